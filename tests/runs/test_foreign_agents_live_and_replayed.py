"""Foreign agents judged while they work and from their stored spans get the same verdict."""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.foreign_agents import DIALECTS, Call, Dialect, Foreign, Turn

from otel_loopeval import iteration, loop
from otel_loopeval.otel import emission
from otel_loopeval.runs.reconstruct import replay
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.runs.tracker import Tracker
from otel_loopeval.runs.verdict import Policy
from otel_loopeval.testing import Capture

OURS = ("loopeval.",)


@dataclass(frozen=True)
class Work:
    """What one agent does: turns, and agents inside it."""

    dialect: Dialect
    late: bool
    tools: bool
    agent: str | None
    error: str | None
    actions: tuple[Any, ...]


@dataclass(frozen=True)
class Program:
    root: str
    works: tuple[Work, ...]


calls = st.builds(
    Call,
    name=st.sampled_from(["search", "fetch"]),
    arguments=st.sampled_from([{}, {"q": "a"}, {"q": "b"}]),
    result=st.sampled_from(["sunny", "nothing was found"]),
    error=st.sampled_from([None, None, None, "connection refused"]),
)
turns = st.builds(
    Turn,
    text=st.sampled_from([None, "Let me see.", "Done."]),
    calls=st.lists(calls, max_size=2).map(tuple),
    tokens=st.tuples(st.integers(0, 50), st.integers(0, 50)),
)


def works(inside: st.SearchStrategy[Any]) -> st.SearchStrategy[Work]:
    repeated = st.tuples(turns, st.integers(3, 6)).map(lambda pair: (pair[0],) * pair[1])
    actions = st.lists(repeated | st.lists(inside, max_size=3), max_size=4)
    return st.builds(
        Work,
        dialect=st.sampled_from(DIALECTS),
        late=st.booleans(),
        tools=st.booleans(),
        agent=st.sampled_from([None, "one", "two"]),
        error=st.sampled_from([None, None, "ValueError", "CancelledError"]),
        actions=actions.map(lambda lists: tuple(item for some in lists for item in some)),
    )


programs = st.builds(
    Program,
    root=st.sampled_from(["none", "server", "loop"]),
    works=st.lists(
        st.recursive(turns, works, max_leaves=12).filter(lambda x: isinstance(x, Work)), max_size=3
    ).map(tuple),
)


def perform(capture: Capture, work: Work) -> None:
    foreign = Foreign(capture.tracer_provider, work.dialect, late=work.late, tools=work.tools)
    with nullcontext() if work.agent is None else foreign.agent(work.agent, work.error):
        pending: list[Turn] = []
        for action in work.actions:
            if isinstance(action, Turn):
                pending.append(action)
            else:
                foreign.turns(*pending)
                pending = []
                perform(capture, action)
        foreign.turns(*pending)


def execute(capture: Capture, program: Program) -> None:
    tracer = capture.tracer_provider.get_tracer("app")
    if program.root == "loop":
        with loop("ours", mode="agent"), iteration():
            for work in program.works:
                perform(capture, work)
        return
    with tracer.start_as_current_span("POST /") if program.root == "server" else nullcontext():
        for work in program.works:
            perform(capture, work)


def plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: [*value] if isinstance(value, (list, tuple)) else value
        for key, value in attributes.items()
        if key.startswith(("loopeval.health.", "loopeval.run.tokens"))
    }


def live_verdicts(spans: Sequence[SpanData]) -> dict[int, dict[str, Any]]:
    return {
        span.span_id: plain(span.attributes)
        for span in spans
        if "loopeval.health.evidence" in span.attributes
    }


def replayed_verdicts(spans: Sequence[SpanData]) -> dict[int, dict[str, Any]]:
    return {
        root.span_id: plain(emission.health_attributes(run, verdict))
        for run, verdict, root in replay(spans, Tracker(Policy()))
        if root is not None
    }


def untouched(spans: Sequence[SpanData], *, told: bool) -> list[SpanData]:
    """The spans as they would be stored without us, or (told) with our events and fingerprints on them."""
    dropped = ("loopeval.health.", "loopeval.run.tokens") if told else ("loopeval.health.", "loopeval.step.")
    return [
        replace(
            span,
            attributes={k: v for k, v in span.attributes.items() if not k.startswith(dropped)},
            events=tuple(e for e in span.events if told or e.name != "loopeval.guard"),
        )
        for span in spans
    ]


@pytest.fixture(scope="module")
def recorder() -> Iterator[Capture]:
    with Capture() as capture:
        yield capture


@settings(max_examples=120, deadline=None)
@given(program=programs, seed=st.integers(0, 2**16))
def test_live_and_replayed_verdicts_of_foreign_agents_agree(
    recorder: Capture, program: Program, seed: int
) -> None:
    recorder.clear()
    recorder.instrument()
    execute(recorder, program)
    spans = recorder.neutral_spans()
    live = live_verdicts(spans)
    for told in (True, False):
        stored = untouched(spans, told=told)
        assert replayed_verdicts(stored) == live
        shuffled = [*stored, *random.Random(seed).sample(stored, len(stored) // 2)]
        random.Random(seed).shuffle(shuffled)
        assert replayed_verdicts(shuffled) == live


@settings(max_examples=80, deadline=None)
@given(program=programs, seed=st.integers(0, 2**16), data=st.data())
def test_whatever_is_missing_or_wrong_there_is_a_verdict(
    recorder: Capture, program: Program, seed: int, data: st.DataObject
) -> None:
    recorder.clear()
    recorder.instrument()
    execute(recorder, program)
    spans = untouched(recorder.neutral_spans(), told=data.draw(st.booleans()))
    rng = random.Random(seed)
    broken: list[SpanData] = []
    for picked in rng.sample(spans, len(spans) - len(spans) // 3):
        span = picked
        fault = rng.randrange(6)
        if fault == 0:
            span = replace(span, end_ns=span.start_ns - rng.randrange(10**9))
        elif fault == 1:
            span = replace(span, parent_id=rng.choice(spans).span_id)
        elif fault == 2:
            span = replace(span, start_ns=0, end_ns=0)
        broken.append(span)
    for run, verdict, root in replay(broken, Tracker(Policy())):
        assert verdict.outcome in ("completed", "failed", "cancelled", "incomplete", "stopped")
        assert verdict.health.total_duration_s >= 0
        assert run.closed
        assert (root is None) <= (verdict.outcome == "incomplete")
