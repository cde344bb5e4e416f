"""A run judged while it happens and the same run judged from its stored spans get the same verdict."""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.trace import Status, StatusCode

from otel_loopeval import StopLoop, iteration, loop, record_guard_event
from otel_loopeval.health import guard_event_of
from otel_loopeval.otel import emission
from otel_loopeval.runs.reconstruct import replay
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.runs.tracker import Tracker
from otel_loopeval.runs.verdict import Policy
from otel_loopeval.testing import Capture

HEALTH = "loopeval.health."


@dataclass(frozen=True)
class Guard:
    event: dict[str, Any]


@dataclass(frozen=True)
class Call:
    """A model call: perhaps a wrapper repeats its tokens, perhaps it outlives its iteration or its run."""

    tokens: tuple[int, int]
    wrapped: bool
    end: str


@dataclass(frozen=True)
class Step:
    score: float | None
    inside: tuple[Any, ...]


@dataclass(frozen=True)
class Program:
    mode: str
    threshold: float | None
    max_iterations: int | None
    steps: tuple[Any, ...]
    success: bool | None
    ending: str


guards = st.builds(
    Guard,
    st.fixed_dictionaries(
        {"type": st.sampled_from(["doom_loop", "repeated_action", "no_progress", "note", "rate_limit"])},
        optional={
            "tool": st.sampled_from(["search", "grep"]),
            "action": st.sampled_from(["warn", "halt", "nonsense"]),
            "count": st.integers(0, 9),
            "reason": st.just("words"),
            "key": st.sampled_from(["a", "b"]),
        },
    ),
)
calls = st.builds(
    Call,
    tokens=st.tuples(st.integers(0, 500), st.integers(0, 500)),
    wrapped=st.booleans(),
    end=st.sampled_from(["in time"] * 4 + ["after the iteration", "after the run"]),
)
scores = st.none() | st.sampled_from([0.0, 7.999, 8.0, 10.0]) | st.floats(-10, 12)


def programs(actions: st.SearchStrategy[Any]) -> st.SearchStrategy[Program]:
    inside = st.lists(actions, max_size=2).map(tuple)
    steps = st.lists(st.builds(Step, scores, inside) | guards, max_size=6).map(tuple)
    return st.builds(
        Program,
        mode=st.sampled_from(["optimize", "review", "goal", "agent"]),
        threshold=st.none() | st.sampled_from([0.0, 5.0, 8.0]),
        max_iterations=st.none() | st.integers(0, 5),
        steps=steps,
        success=st.none() | st.booleans(),
        ending=st.sampled_from(["return"] * 6 + ["error", "cancel", "interrupt", "stop", "pause"]),
    )


nested_programs = programs(st.recursive(guards | calls, programs, max_leaves=4))
policies = st.builds(
    Policy,
    threshold=st.none() | st.just(6.0),
    max_wasted_iterations=st.integers(0, 2),
    token_budget=st.none() | st.just(300),
)

ENDINGS: dict[str, type[BaseException]] = {
    "error": ValueError,
    "cancel": GeneratorExit,
    "interrupt": KeyboardInterrupt,
    "stop": StopLoop,
}


class Ours:
    """Does what a program says, with our public API."""

    def __init__(self, tracer: Any) -> None:
        self.tracer = tracer
        self._late: list[Any] = []

    def perform(self, program: Program) -> None:
        self.run(program)
        for span in self._late:
            span.end()

    def act(self, action: Any, stragglers: list[Any]) -> None:
        if isinstance(action, Guard):
            self.guard(action)
        elif isinstance(action, Step):
            self.step(action, stragglers)
        elif isinstance(action, Program):
            self.run(action)
        else:
            self.call(action, stragglers)

    def call(self, call: Call, stragglers: list[Any]) -> None:
        usage = {"gen_ai.usage.input_tokens": call.tokens[0], "gen_ai.usage.output_tokens": call.tokens[1]}
        if call.end != "in time":
            span = self.tracer.start_span("chat", attributes=usage)
            (stragglers if call.end == "after the iteration" else self._late).append(span)
            return
        wrapper = self.tracer.start_as_current_span("chat", attributes=usage if call.wrapped else None)
        with wrapper, self.tracer.start_as_current_span("http", attributes=usage):
            pass

    def guard(self, guard: Guard) -> None:
        record_guard_event(guard.event)

    def step(self, step: Step, stragglers: list[Any]) -> None:
        with iteration() as it:
            for action in step.inside:
                self.act(action, stragglers)
            if step.score is not None:
                it.score = step.score

    def run(self, program: Program) -> None:
        with (
            suppress(ValueError, GeneratorExit, KeyboardInterrupt),
            loop(
                "agent",
                mode=program.mode,
                threshold=program.threshold,
                max_iterations=program.max_iterations,
            ) as run,
        ):
            run.success = program.success
            self.steps(program)
            if program.ending == "pause":
                run.paused("approval")
            elif program.ending != "return":
                raise ENDINGS[program.ending]

    def steps(self, program: Program) -> None:
        stragglers: list[Any] = []
        for step in program.steps:
            self.act(step, stragglers)
        for span in stragglers:
            span.end()


class Theirs(Ours):
    """Does the same as another library might that knows our names."""

    def guard(self, guard: Guard) -> None:
        event = guard_event_of(guard.event)
        trace.get_current_span().add_event("loopeval.guard", emission.guard_event(event))

    def step(self, step: Step, stragglers: list[Any]) -> None:
        with self.tracer.start_as_current_span("evaluation_loop.iteration") as span:
            for action in step.inside:
                self.act(action, stragglers)
            if step.score is not None:
                span.set_attribute("loopeval.iteration.score", step.score)

    def run(self, program: Program) -> None:
        settings = {
            "loopeval.run.id": token_hex(8),
            "loopeval.run.threshold": program.threshold,
            "loopeval.run.max_iterations": program.max_iterations,
            "loopeval.run.mode": program.mode,
        }
        name = {"goal": "goal_loop", "agent": "agent_loop"}.get(program.mode, "evaluation_loop")
        with self.tracer.start_as_current_span(
            f"{name} agent", attributes={key: value for key, value in settings.items() if value is not None}
        ) as root:
            self.steps(program)
            if program.success is not None:
                root.set_attribute("loopeval.run.success", program.success)
            if program.ending == "error":
                root.set_status(Status(StatusCode.ERROR))
            elif program.ending in FOREIGN_OUTCOMES:
                root.set_attribute("loopeval.run.outcome", FOREIGN_OUTCOMES[program.ending])


FOREIGN_OUTCOMES = {"cancel": "cancelled", "interrupt": "interrupted", "stop": "stopped", "pause": "paused"}


def live_verdicts(capture: Capture) -> dict[str, dict[str, Any]]:
    """What the roots carry of their runs, by run id; error.type belongs to the span."""
    return {
        span.attributes["loopeval.run.id"]: plain({**span.attributes, "error.type": None})
        for span in capture.neutral_spans()
        if "loopeval.run.id" in span.attributes
    }


def without_health(spans: Sequence[SpanData]) -> list[SpanData]:
    return [
        replace(span, attributes={k: v for k, v in span.attributes.items() if not k.startswith(HEALTH)})
        for span in spans
    ]


def replayed_verdicts(spans: Sequence[SpanData], policy: Policy) -> dict[str, dict[str, Any]]:
    return {
        run.id: plain({**emission.start_attributes(run), **emission.end_attributes(run, verdict)})
        for run, verdict, _ in replay(spans, Tracker(policy))
    }


def plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: [*value] if isinstance(value, (list, tuple)) else value
        for key, value in attributes.items()
        if value is not None
    }


def execute(capture: Capture, program: Program, policy: Policy, performer: type[Ours] = Ours) -> None:
    capture.clear()
    capture.instrument(
        threshold=policy.threshold,
        max_wasted_iterations=policy.max_wasted_iterations,
        token_budget=policy.token_budget,
    )
    performer(capture.tracer_provider.get_tracer("app")).perform(program)


@pytest.fixture(scope="module")
def recorder() -> Iterator[Capture]:
    """One capture for all generated examples: making one takes longer than running one."""
    with Capture() as capture:
        yield capture


@settings(max_examples=300, deadline=None)
@given(program=nested_programs, policy=policies, seed=st.integers(0, 2**16))
def test_live_and_replayed_verdicts_agree(
    recorder: Capture, program: Program, policy: Policy, seed: int
) -> None:
    execute(recorder, program, policy)
    live = live_verdicts(recorder)
    assert live
    spans = without_health(recorder.neutral_spans())
    assert replayed_verdicts(spans, policy) == live

    # Files are read in any order, and at-least-once delivery repeats spans.
    shuffled = [*spans, *random.Random(seed).sample(spans, len(spans) // 2)]
    random.Random(seed).shuffle(shuffled)
    assert replayed_verdicts(shuffled, policy) == live


@settings(max_examples=200, deadline=None)
@given(program=nested_programs, policy=policies)
def test_the_processors_verdict_on_foreign_runs_and_the_replayed_one_agree(
    recorder: Capture, program: Program, policy: Policy
) -> None:
    execute(recorder, program, policy, Theirs)
    spans = recorder.neutral_spans()
    live = {key: health_of(attributes) for key, attributes in live_verdicts(recorder).items()}
    assert all("loopeval.health.reasoning" in attributes for attributes in live.values())
    replayed = replayed_verdicts(without_health(spans), policy)
    assert {key: health_of(attributes) for key, attributes in replayed.items()} == live


def health_of(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """What a foreign root is given."""
    return {k: v for k, v in attributes.items() if k.startswith((HEALTH, "loopeval.run.tokens"))}


@settings(max_examples=100, deadline=None)
@given(program=nested_programs, policy=policies)
def test_spans_without_the_loops_own_word_still_get_the_same_health(
    recorder: Capture, program: Program, policy: Policy
) -> None:
    """Without our outcome and success, what a run is judged by is in its iterations and events alone."""
    if program.ending != "return" or program.success is not None or program.mode == "goal":
        return
    execute(recorder, program, policy)
    told = ("loopeval.health.", "loopeval.run.outcome", "loopeval.run.success")
    root = next(span for span in recorder.neutral_spans() if span.parent_id is None)
    spans = [
        replace(span, attributes={k: v for k, v in span.attributes.items() if not k.startswith(told)})
        if span is root or span.span_id == root.span_id
        else span
        for span in recorder.neutral_spans()
    ]
    run_id = root.attributes["loopeval.run.id"]
    assert replayed_verdicts(spans, policy)[run_id] == live_verdicts(recorder)[run_id]
