"""Agents of real frameworks, with the spans that they emit anyway, and nothing of ours but the install.

Each app has one agent with a tool and asks it two questions, in a call, in a coroutine and as a stream. The
model is a stub over HTTP: it answers the first question in three turns, the first with two parallel calls of
the tool, and at the second it asks for the same call again and again, until the framework's own limit ends
it. What is asserted is what arrived at an OTLP receiver. Tests with ``hidden`` in their names are about
apps that keep content to themselves.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.environments import Environment, make_environment
from support.live_frameworks import ANSWER, FRAMEWORKS, WAYS, Framework, script
from support.openai_stub import OpenAIStub
from support.otlp import Line, OtlpReceiver, Received

from otel_loopeval.otlp.encoding import trace_line
from otel_loopeval.runs.spans import SpanData, SpanEvent

APPS = Path(__file__).with_name("apps") / "frameworks"


class Recording(NamedTuple):
    """What one run of an app left.

    Attributes:
        received: What arrived.
        printed: Lines that the app printed.
        served: Input and output tokens that the stub told, summed.
    """

    received: Received
    printed: list[str]
    served: tuple[int, int]

    @property
    def roots(self) -> list[Line]:
        """The roots of its traces, by time: of the first question and the second, in turns."""
        return [span for span in self.received.spans() if span["parent_id"] is None]

    def trace(self, root: Line) -> list[Line]:
        """The spans of a trace."""
        return [span for span in self.received.spans() if span["trace_id"] == root["trace_id"]]


@pytest.fixture(scope="module", params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> Framework:
    return FRAMEWORKS[request.param]


@pytest.fixture(scope="module")
def installed(
    framework: Framework, wheel: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Environment]:
    """The framework with the wheel, in an environment of its own."""
    name = f"live-{next(key for key, value in FRAMEWORKS.items() if value is framework)}"
    requirements = [f"{wheel}[auto]", *framework.requirements]
    yield from make_environment(name, requirements, framework.constraints, tmp_path_factory.mktemp(name))


def record(framework: Framework, environment: Environment, variables: dict[str, str], cwd: Path) -> Recording:
    with OpenAIStub(script) as stub, OtlpReceiver() as receiver:
        done = environment.run(
            ["opentelemetry-instrument", "python", str(APPS / framework.app)],
            {
                **stub.environment(),
                **receiver.environment("http/protobuf"),
                "OTEL_SERVICE_NAME": "weather",
                **variables,
            },
            cwd=cwd,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        assert "Traceback" not in done.stderr
        served = (
            sum(told.input_tokens for told in stub.served),
            sum(told.output_tokens for told in stub.served),
        )
        return Recording(receiver.received(), done.stdout.splitlines(), served)


@pytest.fixture(scope="module")
def shown(
    framework: Framework, installed: Environment, tmp_path_factory: pytest.TempPathFactory
) -> Recording:
    """The app with content captured."""
    return record(framework, installed, framework.shown, tmp_path_factory.mktemp("shown"))


@pytest.fixture(scope="module")
def hidden(
    framework: Framework, installed: Environment, tmp_path_factory: pytest.TempPathFactory
) -> Recording:
    """The app with content not captured."""
    return record(framework, installed, framework.hidden, tmp_path_factory.mktemp("hidden"))


@pytest.fixture(scope="module")
def without(
    framework: Framework, installed: Environment, tmp_path_factory: pytest.TempPathFactory
) -> Recording:
    """The app without us."""
    variables = {**framework.shown, "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "loopeval"}
    return record(framework, installed, variables, tmp_path_factory.mktemp("without"))


def health(span: Line) -> dict[str, Any]:
    """What we say on a root, without its prefix and what differs from run to run."""
    attributes = {
        key.removeprefix("loopeval."): value
        for key, value in span["attributes"].items()
        if key.startswith("loopeval.")
    }
    seconds = attributes.pop("health.total_duration_s")
    # Some frameworks read their starts and ends off another clock than the SDK's.
    assert seconds == pytest.approx((span["end_ns"] - span["start_ns"]) / 1e9)
    for priced in ("run.cost_usd", "health.wasted_cost_usd"):  # Pydantic AI brings the prices
        attributes.pop(priced, None)
    return attributes


def healthy(turns: int, evidence: str) -> dict[str, Any]:
    return {
        "health.passed": True,
        "health.converged": True,
        "health.doom_loop_fired": False,
        "health.iterations_to_success": turns,
        "health.wasted_iterations": 0,
        "health.guard_interventions": 0,
        "health.threshold": 8.0,
        "health.reasoning": f"Completed in {turns} iteration(s).",
        "health.evidence": evidence,
        "run.tokens.input": 350,
        "run.tokens.output": 26,
    }


def gave_up(turns: int, evidence: str, **more: Any) -> dict[str, Any]:
    return {
        "health.passed": False,
        "health.converged": False,
        "health.doom_loop_fired": False,
        "health.iterations_to_success": turns,
        "health.wasted_iterations": 0,
        "health.guard_interventions": 0,
        "health.threshold": 8.0,
        "health.reasons": ["not_converged"],
        "health.reasoning": f"Did not complete after {turns} iteration(s).",
        "health.evidence": evidence,
        "run.tokens.input": 1080,
        "run.tokens.output": 84,
        **{key.replace("__", "."): value for key, value in more.items()},
    }


def agent_runs(framework: Framework, recording: Recording) -> list[Line]:
    """The spans of the agent's runs, by time."""
    return recording.received.spans(framework.run[0])


def test_a_program_works_as_ever(framework: Framework, shown: Recording) -> None:
    assert shown.printed == [ANSWER, f"gave up: {framework.gave_up}"] * WAYS


def test_the_spans_of_the_framework_are_untouched(
    framework: Framework, shown: Recording, without: Recording
) -> None:
    """All that it emits without us is there, and nothing beside it but what bears our name."""
    for span, bare in zip(shown.received.spans(), without.received.spans(), strict=True):
        assert plain(shown, span) == plain(without, bare)
        assert bare["attributes"] == _foreign(bare["attributes"])
    assert [name for name in without.received.metric_names() if name.startswith("loopeval")] == []
    for root in shown.roots:
        name = framework.workflow or framework.run[0]
        assert (root["name"], root["kind"], root["dropped_attributes"]) == (name, framework.kind, 0)
    assert [
        span["name"] for span in shown.received.spans() if span["scope"].startswith("otel_loopeval")
    ] == []


def plain(recording: Recording, span: Line) -> str:
    """A span without what is ours, and without what differs from run to run."""
    names = {other["span_id"]: other["name"] for other in recording.received.spans()}
    told = {
        **{key: span[key] for key in ("name", "kind", "status", "status_message", "scope", "scope_version")},
        "parent": names.get(span["parent_id"]),
        "attributes": _foreign(span["attributes"]),
        "events": [
            {"name": event["name"], "attributes": sorted(event["attributes"])}
            for event in span["events"]
            if not event["name"].startswith("loopeval.")
        ],
    }
    return _VOLATILE.sub("#", json.dumps(told, sort_keys=True))


_VOLATILE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{8,}|\d+(\.\d+)?(e-\d+)?")


def _foreign(attributes: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in attributes.items() if not key.startswith("loopeval.")}


def test_a_healthy_run(framework: Framework, shown: Recording) -> None:
    for span in agent_runs(framework, shown)[::2]:
        assert health(span) == healthy(3, "full")
        assert [event["name"] for event in span["events"]] == []
    if framework.workflow:
        for root in shown.roots[::2]:
            assert health(root) == healthy(1, "full")


def test_a_run_that_loops(framework: Framework, shown: Recording) -> None:
    for span in agent_runs(framework, shown)[1::2]:
        assert health(span) == gave_up(
            8,
            "full",
            health__doom_loop_fired=True,
            health__reasons=["not_converged", "doom_loop"],
            health__doom_loop_kinds=["repeated_action"],
            health__wasted_iterations=framework.wasted,
            health__wasted_tokens=framework.wasted_tokens,
            health__guard_interventions=1,
            health__reasoning=(
                f"Did not complete after 8 iteration(s). {framework.wasted} iteration(s) only repeated"
                " earlier ones. Doom-loop guard fired. 1 guard intervention(s)."
            ),
        )
    if framework.workflow:  # the agent's loop is told on it, and counted once
        for root in shown.roots[1::2]:
            assert health(root) == gave_up(
                1,
                "full",
                health__doom_loop_fired=True,
                health__reasons=["not_converged", "doom_loop"],
                health__reasoning="Did not complete after 1 iteration(s). Doom-loop guard fired.",
            )


def test_the_loop_is_told_while_it_goes_on(framework: Framework, shown: Recording) -> None:
    for position, root in enumerate(shown.roots):
        spans = shown.trace(root)
        told = [event for span in spans for event in span["events"] if event["name"] == "loopeval.guard"]
        if position % 2 == 0:
            assert told == []
            continue
        (event,) = told
        assert event["attributes"] == {
            "loopeval.guard.kind": "repeated_action",
            "loopeval.guard.doom_loop": True,
            "loopeval.guard.source": "detector",
            "loopeval.guard.action": "observe",
            "loopeval.guard.tool": "get_weather",
            "loopeval.guard.count": 4,
            "loopeval.guard.iteration": 4,
            "loopeval.guard.rule": "exact",
        }
        models = [span for span in spans if span["name"] == framework.model]
        assert len(models) == 8
        # As soon as the fourth call's result is known: from its own span, or from the next call of the model.
        assert models[3]["end_ns"] <= event["time_ns"] <= models[5]["start_ns"] < root["end_ns"]


def test_tools(framework: Framework, shown: Recording) -> None:
    """Their spans carry fingerprints: as many calls, the same or others, as there were."""
    for position, root in enumerate(shown.roots):
        tools = [span for span in shown.trace(root) if span["name"] == framework.tool]
        keys = ("loopeval.step.fingerprint", "loopeval.step.result_fingerprint")
        distinct = {tuple(span["attributes"][key] for key in keys) for span in tools}
        expected = (0, 0) if framework.tool is None else (8, 1) if position % 2 else (3, 3)
        assert (len(tools), len(distinct)) == expected


def test_metrics(framework: Framework, shown: Recording) -> None:
    received, name = shown.received, framework.name
    agent = {"gen_ai__agent__name": framework.run[1], "loopeval__run__framework": name}
    assert received.total("loopeval.doom_loop.fired", **agent, loopeval__guard__source="detector") == WAYS
    assert received.total("loopeval.doom_loop.fired") == WAYS
    assert received.total("loopeval.runs.started", **agent) == 2 * WAYS
    for outcome, passed, fired in (("completed", True, False), (framework.outcome, False, True)):
        about = {"loopeval__run__outcome": outcome, "loopeval__health__passed": passed}
        about["loopeval__health__doom_loop_fired"] = fired
        assert received.total("loopeval.runs", **agent, **about) == WAYS
        if framework.workflow:
            workflow = {"gen_ai__agent__name": framework.workflow, "loopeval__run__nested": False}
            assert received.total("loopeval.runs", **workflow, **about) == WAYS
    assert received.total("loopeval.iterations", **agent) == 11 * WAYS
    assert received.total("loopeval.iterations.wasted", **agent) == framework.wasted * WAYS
    assert tokens(received) == shown.served == (1430 * WAYS, 110 * WAYS)
    assert received.total("loopeval.run.open") == 0
    for trouble in ("tracker.errors", "tracker.late_spans", "tracker.evicted_runs"):
        assert f"loopeval.{trouble}" not in received.metric_names()


def tokens(received: Received) -> tuple[float, ...]:
    """Input and output tokens in our metrics."""
    kinds = ("input", "output")
    return tuple(received.total("loopeval.tokens", gen_ai__token__type=kind) for kind in kinds)


def test_what_remains_with_content_hidden(framework: Framework, hidden: Recording) -> None:
    """Runs, turns, tokens and outcomes; the detectors see nothing, and raise no false alarm."""
    assert hidden.printed == [ANSWER, f"gave up: {framework.gave_up}"] * WAYS
    ways = framework.seen_hidden
    spans = agent_runs(framework, hidden)
    seen, unseen = spans[: 2 * ways], spans[2 * ways :]
    assert [health(span) for span in seen] == [healthy(3, "none"), gave_up(8, "none")] * ways
    assert [_foreign(span["attributes"]) for span in unseen] == [span["attributes"] for span in unseen]
    if framework.workflow:
        assert [health(root) for root in hidden.roots] == [healthy(1, "none"), gave_up(1, "none")] * WAYS
    received = hidden.received
    for outcome, passed in (("completed", True), (framework.outcome, False)):
        about = {"loopeval__run__outcome": outcome, "loopeval__health__passed": passed}
        assert received.total("loopeval.runs", gen_ai__agent__name=framework.run[1], **about) == ways
    assert {"loopeval.doom_loop.fired", "loopeval.tracker.errors"}.isdisjoint(received.metric_names())
    assert tokens(received) == (1430 * ways, 110 * ways)
    assert hidden.served == (1430 * WAYS, 110 * WAYS)
    text = received.text()
    assert [content for content in ("degrees", "Oslo", "warmest") if content in text] == []


def test_stored_traces_are_judged_alike(
    framework: Framework,
    installed: Environment,
    shown: Recording,
    hidden: Recording,
    without: Recording,
    tmp_path: Path,
) -> None:
    """``otel-loopeval score`` says of the traces, with and without our attributes, what we said on them."""
    recordings = {"shown": shown, "hidden": hidden, "without": without}
    for name, recording in recordings.items():
        lines = [trace_line([neutral(span)]) for span in recording.received.spans()]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    done = installed.run(
        ["otel-loopeval", "score", *(f"{name}.jsonl" for name in recordings), "--format", "jsonl"],
        cwd=tmp_path,
    )
    assert done.returncode == 1, done.stderr  # some are unhealthy
    records = {
        record["span_id"]: record
        for record in map(json.loads, done.stdout.splitlines())
        if "span_id" in record
    }
    runs = [span for recording in (shown, hidden) for span in recording.received.spans() if is_run(span)]
    bare = [span for span in without.received.spans() if span["span_id"] in records]
    each = 2 if framework.workflow else 1
    assert len(bare) == each * 2 * WAYS
    assert len(records) == len(runs) + len(bare) == each * 2 * (2 * WAYS + framework.seen_hidden)
    # Without us, the same runs were found where we said something.
    pairs = [*zip(runs, runs, strict=True), *zip(runs, bare, strict=False)]
    for told, span in pairs:
        assert scored(records[span["span_id"]]) == expected_score(told, framework)


def is_run(span: Line) -> bool:
    return "loopeval.health.passed" in span["attributes"]


def scored(record: dict[str, Any]) -> dict[str, Any]:
    keys = ("agent", "framework", "nested", "outcome", "reasons", "doom_loop_kinds", "reasoning", "passed")
    more = (
        *("converged", "evidence", "wasted_iterations", "guard_interventions", "doom_loop_fired"),
        *("iterations", "input_tokens", "output_tokens"),
    )
    # A root leaves out wasted tokens where there are none.
    return {**{key: record[key] for key in (*keys, *more)}, "wasted_tokens": record["wasted_tokens"] or None}


def expected_score(span: Line, framework: Framework) -> dict[str, Any]:
    """What a live run said on its root, in the words of a report."""
    told = {key.partition(".")[2]: value for key, value in health(span).items()}
    is_workflow = span["parent_id"] is None and framework.workflow is not None
    return {
        "agent": framework.workflow if is_workflow else framework.run[1],
        "framework": framework.name,
        "nested": framework.workflow is not None and not is_workflow,
        "outcome": "completed" if told["converged"] else framework.outcome,
        "reasons": told.get("reasons", []),
        "doom_loop_kinds": told.get("doom_loop_kinds", []),
        "reasoning": told["reasoning"],
        "passed": told["passed"],
        "converged": told["converged"],
        "evidence": told["evidence"],
        "wasted_iterations": told["wasted_iterations"],
        "guard_interventions": told["guard_interventions"],
        "doom_loop_fired": told["doom_loop_fired"],
        "iterations": told["iterations_to_success"],
        "input_tokens": told["tokens.input"],
        "output_tokens": told["tokens.output"],
        "wasted_tokens": told.get("wasted_tokens"),
    }


def neutral(span: Line) -> SpanData:
    """A received span as the core sees it."""
    return SpanData(
        name=span["name"],
        trace_id=int(span["trace_id"], 16),
        span_id=int(span["span_id"], 16),
        parent_id=None if span["parent_id"] is None else int(span["parent_id"], 16),
        start_ns=span["start_ns"],
        end_ns=span["end_ns"],
        attributes=span["attributes"],
        events=tuple(
            SpanEvent(event["name"], event["time_ns"], event["attributes"]) for event in span["events"]
        ),
        error=span["status"] == 2,
        scope=span["scope"],
        resource=span["resource"],
        status_message=span["status_message"],
    )
