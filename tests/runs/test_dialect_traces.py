"""Stored traces of foreign agents: whole, in pieces, and real ones."""

from dataclasses import replace
from typing import Any

import pytest
from support import otel_corpus

from otel_loopeval.detect.fingerprint import Fingerprints
from otel_loopeval.runs.reconstruct import Replayed, replay
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.runs.tracker import Tracker
from otel_loopeval.runs.verdict import Policy
from otel_loopeval.testing import TraceBuilder

MADE = Fingerprints(b"key")


def judged(spans: list[SpanData], policy: Policy | None = None) -> list[Replayed]:
    return replay(spans, Tracker(policy))


def agent_trace(
    steps: int, tool: dict[str, Any] | None = None, *, result: str | None = "The same long answer."
) -> TraceBuilder:
    """An agent that calls a tool ``steps`` times, in the GenAI conventions."""
    trace = TraceBuilder()
    root, start = trace.span_id(), trace.clock.now_ns
    for _ in range(steps):
        trace.span(
            "chat gpt",
            parent_id=root,
            attributes={"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 5},
            scope="somebody.else",
        )
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "search",
            **({"gen_ai.tool.call.arguments": '{"q": 1}'} if tool is None else tool),
        }
        if result is not None:
            attributes["gen_ai.tool.call.result"] = result
        trace.span("execute_tool search", parent_id=root, attributes=attributes, scope="somebody.else")
    trace.span(
        "invoke_agent writer",
        span_id=root,
        start_ns=start,
        duration_s=2.0 * steps,
        attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "writer"},
        scope="somebody.else",
    )
    return trace


def test_a_whole_trace() -> None:
    ((run, verdict, root),) = judged(agent_trace(2).spans)
    assert (run.agent, run.mode, run.framework) == ("writer", "agent", "other")
    assert (verdict.outcome, verdict.passed, run.iteration_count, run.input_tokens) == (
        "completed",
        True,
        2,
        10,
    )
    assert root is not None
    assert root.name == "invoke_agent writer"
    assert (run.evidence, verdict.health.wasted_iterations) == ("full", 1)


def test_what_repeated_turns_cost() -> None:
    ((_, verdict, _),) = judged(agent_trace(6).spans, Policy(max_wasted_iterations=3))
    assert verdict.reasons == ("wasted_iterations", "doom_loop")
    assert (verdict.health.wasted_iterations, verdict.wasted_tokens) == (5, 25)


@pytest.mark.parametrize(
    ("tool", "result", "evidence", "fired"),
    [
        (None, "The same long answer.", "full", True),
        (None, None, "arguments", True),
        ({}, "The same long answer.", "none", False),
        (
            {
                "loopeval.step.fingerprint": MADE.step("search", {"q": 1}),
                "loopeval.step.result_fingerprint": MADE.result("The same long answer."),
            },
            None,
            "fingerprint",
            True,
        ),
        ({"loopeval.step.fingerprint": MADE.step("search", {"q": 1})}, None, "fingerprint", True),
    ],
)
def test_what_the_detectors_can_see(
    tool: dict[str, Any] | None, result: str | None, evidence: str, fired: bool
) -> None:
    ((run, verdict, _),) = judged(agent_trace(8, tool, result=result).spans)
    assert (run.evidence, verdict.health.doom_loop_fired) == (evidence, fired)


def test_fingerprints_of_other_results_are_no_loop() -> None:
    trace = agent_trace(0)
    root = trace.spans[0]
    spans = [
        replace(
            root,
            name="execute_tool search",
            span_id=100 + number,
            parent_id=root.span_id,
            attributes={
                "gen_ai.tool.name": "search",
                "loopeval.step.fingerprint": MADE.step("search", {"q": 1}),
                "loopeval.step.result_fingerprint": MADE.result(f"row {number}"),
            },
            start_ns=root.start_ns + number,
            end_ns=root.start_ns + number,
        )
        for number in range(8)
    ]
    ((run, verdict, _),) = judged([*spans, replace(root, end_ns=root.start_ns + 100)])
    assert (run.evidence, verdict.health.doom_loop_fired) == ("fingerprint", False)


def test_fingerprints() -> None:
    other = Fingerprints(b"another key")
    assert MADE.step("f", {"a": 1, "b": [2]}) == MADE.step("f", '{"b": [2], "a": 1}')
    assert MADE.step("f", None) == MADE.step("f", {})
    assert MADE.step("f", {"a": 1}) != MADE.step("g", {"a": 1})
    assert MADE.step("f", {"a": 1}) != other.step("f", {"a": 1})
    assert MADE.result("no") != MADE.result(None, "no")
    assert (len(MADE.step("f", {})), MADE.step("f", {}).isalnum()) == (16, True)
    with pytest.raises(ValueError, match="must not be empty"):
        Fingerprints(b"")


def test_a_missing_root_is_cut_off() -> None:
    """Only what cannot be the whole of a run points to a root that is not there."""
    spans = agent_trace(6).spans[:-1]
    ((run, verdict, root),) = judged(spans[::-1])
    assert (verdict.outcome, verdict.passed, root) == ("incomplete", None, None)
    assert (run.iteration_count, run.input_tokens, verdict.health.doom_loop_fired) == (6, 30, True)


def test_an_agent_whose_parent_is_elsewhere_is_whole() -> None:
    *calls, root = agent_trace(2).spans
    ((_, verdict, found),) = judged([*calls, replace(root, parent_id=999)])
    assert (verdict.outcome, verdict.passed, found) == ("completed", True, replace(root, parent_id=999))


def test_a_client_in_another_service_than_the_root() -> None:
    """The outermost span of the process that calls the model is the run."""
    *calls, root = agent_trace(2).spans
    service = {"service.name": "backend"}
    handler = replace(root, name="POST /ask", attributes={}, parent_id=500, resource=service)
    front = replace(root, name="GET /", attributes={}, span_id=500, resource={"service.name": "front"})
    ((run, _, found),) = judged([front, handler, *(replace(call, resource=service) for call in calls)])
    assert (run.agent, found) == ("POST /ask", handler)


def test_a_clock_that_is_behind() -> None:
    """A span starts no earlier than what it is inside of."""
    *calls, root = agent_trace(3).spans
    late = [replace(call, start_ns=call.start_ns - 10**12, end_ns=call.end_ns - 10**12) for call in calls]
    ((run, verdict, _),) = judged([*late, root])
    assert (run.iteration_count, verdict.outcome, run.input_tokens) == (3, "completed", 15)


def test_two_dialects_in_one_trace() -> None:
    trace = TraceBuilder()
    root, start = trace.span_id(), trace.clock.now_ns
    for number in range(3):
        wrapper = trace.span_id()
        begun = trace.clock.now_ns
        trace.span(
            "chat gpt",
            parent_id=wrapper,
            attributes={"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 5},
        )
        trace.span(
            "ChatOpenAI",
            span_id=wrapper,
            parent_id=root,
            start_ns=begun,
            attributes={
                "openinference.span.kind": "LLM",
                "llm.token_count.prompt": 5,
                "llm.output_messages.0.message.role": "assistant",
                "llm.output_messages.0.message.content": f"Step {number}",
            },
        )
        trace.span(
            "look.tool",
            parent_id=root,
            scope="traceloop.tracer",
            attributes={
                "traceloop.span.kind": "tool",
                "traceloop.entity.name": "look",
                "traceloop.entity.input": f'{{"args": [{number}], "kwargs": {{}}}}',
                "traceloop.entity.output": '"found"',
            },
        )
    trace.span(
        "Agent",
        span_id=root,
        start_ns=start,
        duration_s=9,
        attributes={"openinference.span.kind": "AGENT", "agent.name": "mixed"},
    )
    ((run, verdict, _),) = judged(trace.spans)
    assert (run.agent, run.iteration_count, run.input_tokens, verdict.passed) == ("mixed", 3, 15, True)


def test_tools_inside_the_span_of_the_model() -> None:
    """As the ADK has it: they end before the model's span, and belong to its turn."""
    trace = TraceBuilder()
    root, start = trace.span_id(), trace.clock.now_ns
    for _ in range(3):
        model, begun = trace.span_id(), trace.clock.now_ns
        trace.span(
            "execute_tool say",
            parent_id=model,
            attributes={
                "gen_ai.tool.name": "say",
                "gcp.vertex.agent.tool_call_args": "{}",
                "gcp.vertex.agent.tool_response": '{"said": "hello"}',
            },
        )
        trace.span(
            "call_llm",
            span_id=model,
            parent_id=root,
            start_ns=begun,
            attributes={"gen_ai.system": "gcp.vertex.agent", "gen_ai.request.model": "gemini"},
        )
        trace.clock.advance()
    trace.span("invoke_agent say", span_id=root, start_ns=start, duration_s=9)
    ((run, verdict, _),) = judged(trace.spans)
    assert [iteration.wasted for iteration in run.iterations] == [False, True, True]
    assert verdict.health.wasted_iterations == 2


def test_parallel_calls_of_one_turn_are_no_loop() -> None:
    trace = TraceBuilder()
    root, start = trace.span_id(), trace.clock.now_ns
    trace.span("chat", parent_id=root, attributes={"gen_ai.operation.name": "chat"})
    for _ in range(8):
        trace.span(
            "execute_tool roll",
            parent_id=root,
            attributes={
                "gen_ai.tool.name": "roll",
                "gen_ai.tool.call.arguments": '{"dice": 1}',
                "gen_ai.tool.call.result": "four",
            },
        )
    trace.span("invoke_agent dice", span_id=root, start_ns=start, duration_s=20)
    ((run, verdict, _),) = judged(trace.spans)
    assert (run.iteration_count, verdict.health.doom_loop_fired) == (1, False)


def test_the_detectors_can_be_left_out() -> None:
    ((run, verdict, _),) = replay(agent_trace(8).spans, Tracker(), detectors=False)
    assert (run.evidence, verdict.health.doom_loop_fired, run.iteration_count) == ("none", False, 8)


CORPUS = pytest.mark.skipif(
    not otel_corpus.is_there(), reason=f"{otel_corpus.VARIABLE} names no folder with otel_spans.jsonl.gz"
)

RECOGNISED = {
    # framework, runs, turns, input tokens, output tokens, evidence of the outermost run
    "agno-2025-06-11": ("agno", 1, 2, 826, 245, "full"),
    "beeai-2025-08-01": ("beeai", 1, 3, 5542, 0, "full"),
    "claude-agent-2025-12-22": ("other", 1, 4, 34, 232, "full"),
    "crewai-2025-07-11": ("crewai", 1, 1, 190, 164, "full"),
    "google-adk-2025-08-28": ("google_adk", 1, 2, 67, 9, "full"),
    "koog-2025-08-26": ("koog", 1, 2, 215, 125, "full"),
    "openai-agents-2025-09-30": ("openai_agents", 2, 3, 140, 44, "full"),
    "pydantic-ai-tools-2025-06-06": ("pydantic_ai", 1, 1, 31, 96, "full"),
    "pydantic-ai-tools-2025-12-04": ("pydantic_ai", 3, 4, 1315, 209, "full"),
}


@CORPUS
def test_real_traces_of_many_frameworks() -> None:
    found: dict[str, Any] = {}
    for name, spans in otel_corpus.traces():
        runs = judged(spans)
        assert not [r for r in runs if r.verdict.health.doom_loop_fired or r.verdict.passed is not True], name
        outermost = [r.run for r in runs if r.run.parent is None]
        if runs:
            found[name] = (
                outermost[0].framework,
                len(runs),
                sum(r.run.iteration_count for r in runs),
                sum(run.input_tokens for run in outermost),
                sum(run.output_tokens for run in outermost),
                outermost[0].evidence,
            )
    assert found == RECOGNISED
