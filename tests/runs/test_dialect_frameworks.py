"""Peculiarities of frameworks, as their real spans show them: see ``tests/e2e/test_live_frameworks.py``."""

import json
from dataclasses import replace
from typing import Any

import pytest

from otel_loopeval.runs.dialects import reading
from otel_loopeval.runs.dialects.facts import ToolUse
from otel_loopeval.runs.reconstruct import Replayed, replay
from otel_loopeval.runs.spans import SpanData, SpanEvent
from otel_loopeval.runs.tracker import Tracker
from otel_loopeval.testing import TraceBuilder

LANGCHAIN = "openinference.instrumentation.langchain"
AGENTS = "openinference.instrumentation.openai_agents"
HIDDEN = "__REDACTED__"


def judged(spans: list[SpanData]) -> list[Replayed]:
    return replay(spans, Tracker())


def tool_span(attributes: dict[str, Any]) -> SpanData:
    return SpanData("f", 1, 2, None, 0, 1, {"openinference.span.kind": "TOOL", **attributes}, ())


def openinference_trace(turns: list[tuple[dict[str, Any], dict[str, Any]]]) -> TraceBuilder:
    """A graph of LangGraph's, of turns of a model and a tool with the attributes given."""
    trace = TraceBuilder()
    root, start = trace.span_id(), trace.clock.now_ns
    for model, tool in turns:
        for name, kind, attributes in (("ChatOpenAI", "LLM", model), ("get_weather", "TOOL", tool)):
            told = {"openinference.span.kind": kind, **attributes}
            trace.span(name, parent_id=root, attributes=told, scope=LANGCHAIN)
    trace.span(
        "forecaster",
        span_id=root,
        start_ns=start,
        duration_s=2.0 * len(turns),
        attributes={"openinference.span.kind": "CHAIN"},
        scope=LANGCHAIN,
    )
    return trace


def langchain_result(number: int, status: str = "success") -> str:
    message = {"content": "15 degrees", "type": "tool", "tool_call_id": f"call_{number}", "status": status}
    return json.dumps({"type": "tool", "data": message})


def test_the_same_result_in_messages_to_other_calls_is_a_loop() -> None:
    """LangChain's tools bring a message in which the id of the call is."""
    turns = [({}, {"input.value": "Paris", "output.value": langchain_result(n)}) for n in range(6)]
    ((run, verdict, _),) = judged(openinference_trace(turns).spans)
    assert (run.framework, run.evidence, run.iteration_count) == ("langchain", "full", 6)
    assert (verdict.doom_loop_kinds, verdict.health.wasted_iterations) == (("repeated_action",), 5)


@pytest.mark.parametrize(
    ("told", "use"),
    [
        (langchain_result(1), ToolUse("f", None, "15 degrees", "call_1")),
        (langchain_result(1, "error"), ToolUse("f", None, None, "call_1", "15 degrees")),
        (
            json.dumps({"output": {"lc": 1, "kwargs": {"content": "x", "tool_call_id": "a"}}, "kwargs": {}}),
            ToolUse("f", None, "x", "a"),
        ),
        ("content='It\\'s 15' name='f' tool_call_id='a'", ToolUse("f", None, "'It\\'s 15'", "a")),
        (
            "content='no' name='f' id='7' tool_call_id='a' status='error'",
            ToolUse("f", None, None, "a", "'no'"),
        ),
        (
            json.dumps({"id": "adk-1", "name": "f", "response": {"greeting": "hi"}}),
            ToolUse("f", None, {"greeting": "hi"}, "adk-1"),
        ),
        # Results that only look alike are left as they are.
        ("content='x' of tool_call_id", ToolUse("f", None, "content='x' of tool_call_id")),
        ('{"response": 1}', ToolUse("f", None, '{"response": 1}')),
        ('{"tool_call_id": "a"}', ToolUse("f", None, '{"tool_call_id": "a"}')),
        ('{"data": {"data": [{"tool_call_id": 1}]}}', None),
    ],
)
def test_what_a_message_says_that_a_tool_brought(told: str, use: ToolUse | None) -> None:
    expected = ToolUse("f", None, told) if use is None else use
    assert reading.tool_of(tool_span({"output.value": told})) == expected


@pytest.mark.parametrize(
    ("inputs", "arguments"), [({"city": "Paris"}, {"city": "Paris"}), (None, "{'city': 'Paris'}")]
)
def test_arguments_among_much_else(inputs: Any, arguments: Any) -> None:
    """OpenLLMetry tells LangChain's tools with the step of the graph and the id of the call."""
    told = {
        "input_str": "{'city': 'Paris'}",
        "tags": ["seq:step:1"],
        "metadata": {"langgraph_step": 2, "checkpoint_ns": "tools:e9056d49"},
        "inputs": inputs,
        "kwargs": {"tool_call_id": "call_1"},
    }
    brought = {
        "output": {"kwargs": {"content": "15 degrees", "tool_call_id": "call_1"}},
        "kwargs": {"tags": []},
    }
    attributes = {
        "traceloop.span.kind": "tool",
        "traceloop.entity.name": "get_weather",
        "traceloop.entity.input": json.dumps(told),
        "traceloop.entity.output": json.dumps(brought),
    }
    span = SpanData("execute_tool get_weather", 1, 2, None, 0, 1, attributes, ())
    assert reading.tool_of(span) == ToolUse("get_weather", arguments, "15 degrees", "call_1")


def test_what_is_hidden_is_not_seen() -> None:
    """Whatever a tool is called with is the same word then, and what a model says too: no loop."""
    model = {"input.value": HIDDEN, "output.value": HIDDEN, "llm.token_count.prompt": 5}
    tool = {"input.value": HIDDEN, "output.value": HIDDEN}
    ((run, verdict, _),) = judged(openinference_trace([(model, tool)] * 8).spans)
    assert (run.evidence, run.iteration_count, run.input_tokens) == ("none", 8, 40)
    assert (verdict.passed, verdict.health.wasted_iterations) == (True, 0)


def test_hidden_texts_of_messages() -> None:
    attributes: dict[str, Any] = {"openinference.span.kind": "LLM"}
    for position, role in enumerate(("user", "assistant", "tool")):
        start = f"llm.input_messages.{position}.message."
        attributes |= {f"{start}role": role, f"{start}content": HIDDEN}
    attributes["llm.input_messages.2.message.tool_call_id"] = "a"
    attributes["llm.input_messages.3.message.role"] = "user"
    attributes["llm.input_messages.3.message.contents.0.message_content.text"] = HIDDEN
    attributes["llm.output_messages.0.message.role"] = "assistant"
    attributes["llm.output_messages.0.message.content"] = HIDDEN
    span = SpanData("m", 1, 2, None, 0, 1, attributes, ())
    assert [(message.role, message.text) for message in reading.inputs_of(span)] == [
        ("user", None),
        ("assistant", None),
        ("tool", None),
        ("user", None),
    ]
    assert [(answer.id, answer.value) for answer in reading.answers_of(span)] == [("a", None)]
    assert reading.output_of(span) is None


def test_the_definition_of_a_tool_is_no_arguments() -> None:
    schema = '{"type": "object", "properties": {"city": {"type": "string"}}}'
    for given in ({}, {"input.value": HIDDEN}):
        assert reading.tool_of(tool_span({"tool.parameters": schema, **given})) == ToolUse("f")
    for arguments in ('{"type": "object"}', '{"properties": {"a": 1}}'):
        assert reading.tool_of(tool_span({"tool.parameters": arguments})) == ToolUse("f", arguments)


@pytest.mark.parametrize(
    ("told", "fact"),
    [
        ({"gen_ai.response.finish_reasons": ("tool_calls",)}, True),
        ({"gen_ai.response.finish_reasons": ["stop", "tool_call"]}, True),
        ({"gen_ai.response.finish_reasons": "tool_use"}, True),
        ({"llm.finish_reason": "tool_calls"}, True),
        ({"gen_ai.response.finish_reasons": ("stop",)}, False),
        ({"gen_ai.response.finish_reasons": 7, "llm.finish_reason": None}, False),
        ({}, False),
    ],
)
def test_models_that_stop_for_tools(told: dict[str, Any], fact: bool) -> None:
    assert reading.calls_tools(told) is fact


@pytest.mark.parametrize("reason", ["tool_calls", "stop"])
def test_a_loop_by_hand_without_content(reason: str) -> None:
    """Nothing but why the model stopped tells it from calls that have nothing to do with one another."""
    trace = TraceBuilder()
    root, start = trace.span_id(), trace.clock.now_ns
    for why in (reason, reason, "stop"):
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.usage.input_tokens": 5,
            "gen_ai.response.finish_reasons": (why,),
        }
        trace.span(
            "chat gpt", parent_id=root, attributes=attributes, scope="opentelemetry.util.genai.handler"
        )
    trace.span("POST /ask", span_id=root, start_ns=start, duration_s=3.0, scope="fastapi")
    runs = [
        (run.agent, run.iteration_count, run.input_tokens, run.evidence) for run, _, _ in judged(trace.spans)
    ]
    assert runs == ([("POST /ask", 3, 15, "none")] if reason == "tool_calls" else [])


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        ("pydantic_ai.exceptions.UsageLimitExceeded", "limit"),
        ("agents.exceptions.MaxTurnsExceeded", "limit"),
        ("langgraph.errors.GraphRecursionError", "limit"),
        ("langgraph.errors.GraphInterrupt", "paused"),
        ("ValueError", "failed"),
    ],
)
def test_a_framework_s_own_limit(error: str, outcome: str) -> None:
    trace = openinference_trace([({}, {"input.value": "Paris"})] * 2)
    root = trace.spans[-1]
    event = SpanEvent("exception", root.end_ns, {"exception.type": error})
    ((run, verdict, _),) = judged([*trace.spans[:-1], replace(root, error=True, events=(event,))])
    assert (run.outcome, verdict.converged) == (outcome, None if outcome == "paused" else False)


def agents_sdk_trace(*agents: str) -> list[SpanData]:
    """A workflow of the OpenAI Agents SDK: agents one after the other, by what their spans say went wrong."""
    trace = TraceBuilder()
    root, start = trace.span_id(), trace.clock.now_ns
    kind = "openinference.span.kind"
    for number, error in enumerate(agents):
        agent, begun = trace.span_id(), trace.clock.now_ns
        trace.span("response", parent_id=agent, attributes={kind: "LLM"}, scope=AGENTS)
        tool = {kind: "TOOL", "input.value": '{"city": "Paris"}', "output.value": "15 degrees"}
        trace.span("get_weather", parent_id=agent, attributes=tool, scope=AGENTS)
        trace.span(
            f"agent {number}",
            span_id=agent,
            parent_id=root,
            start_ns=begun,
            duration_s=2.0,
            attributes={kind: "AGENT", "agent.name": f"agent {number}"},
            scope=AGENTS,
        )
        trace.spans[-1] = replace(trace.spans[-1], error=bool(error), status_message=error)
    trace.span(
        "Agent workflow",
        span_id=root,
        start_ns=start,
        duration_s=2.0 * len(agents),
        attributes={kind: "AGENT"},
        scope=AGENTS,
    )
    return trace.spans


@pytest.mark.parametrize(
    ("agents", "outcomes"),
    [
        ([""], ["completed", "completed"]),
        (["Max turns exceeded: {'max_turns': 8}"], ["limit", "limit"]),
        (["Error getting response: {'error': 'boom'}"], ["failed", "failed"]),
        (["{'message': 'Max turns exceeded', 'data': {}}", ""], ["limit", "completed", "completed"]),
        (["", "Error"], ["completed", "failed", "failed"]),
    ],
)
def test_a_workflow_of_the_agents_sdk_ends_as_its_last_agent(agents: list[str], outcomes: list[str]) -> None:
    """Its span ends well even where an exception left it."""
    runs = judged(agents_sdk_trace(*agents))
    assert [run.outcome for run, _, _ in runs] == outcomes
    workflow = runs[-1][0]
    assert (workflow.agent, workflow.iteration_count, workflow.evidence) == (
        "Agent workflow",
        len(agents),
        "full",
    )
