"""Agents that never heard of us, followed by their spans while they work."""

from typing import Any

import pytest
from opentelemetry.context import Context
from support.foreign_agents import (
    DIALECTS,
    GENAI,
    OPENINFERENCE,
    Call,
    Dialect,
    Foreign,
    Turn,
)

from otel_loopeval import iteration, loop
from otel_loopeval.otel import _sdk
from otel_loopeval.otel.pipeline import open_spans, registry
from otel_loopeval.testing import Capture

SEARCH = Call("search", {"q": "weather in Rome"}, "It is sunny in Rome, with 25 degrees in the afternoon.")
FETCH = Call("fetch", {"url": "https://example.org"}, "Example Domain. This domain is for use in documents.")
HEALTHY = (Turn(calls=(SEARCH,)), Turn(calls=(FETCH,)), Turn("Sunny."))
LOOPING = (*[Turn(calls=(SEARCH,))] * 6, Turn("Sunny."))

dialects = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)


def health(capture: Capture, name: str) -> dict[str, Any]:
    (span,) = [span for span in capture.spans() if span["name"].startswith(name)]
    return {
        key.removeprefix("loopeval."): value
        for key, value in span["attributes"].items()
        if key.startswith("loopeval.")
    }


def root_name(dialect: Dialect) -> str:
    return dialect.agent("writer")[0]


@dialects
@pytest.mark.parametrize("late", [False, True], ids=["told at the start", "told at the end"])
@pytest.mark.parametrize("tools", [True, False], ids=["spans of tools", "tools in messages"])
def test_a_healthy_agent(capture: Capture, dialect: Dialect, late: bool, tools: bool) -> None:
    foreign = Foreign(capture.tracer_provider, dialect, late=late, tools=tools)
    with foreign.agent("writer"):
        foreign.turns(*HEALTHY)
    found = health(capture, root_name(dialect))
    del found["health.total_duration_s"]
    assert found == {
        "health.passed": True,
        "health.converged": True,
        "health.doom_loop_fired": False,
        "health.iterations_to_success": 3,
        "health.wasted_iterations": 0,
        "health.guard_interventions": 0,
        "health.threshold": 8.0,
        "health.reasoning": "Completed in 3 iteration(s).",
        "health.evidence": "full",
        "run.tokens.input": 30,
        "run.tokens.output": 6,
    }
    base = {"gen_ai.agent.name": "writer", "loopeval.run.mode": "agent", "loopeval.run.nested": False}
    assert capture.value("loopeval.runs.started", base) == 1
    assert capture.value("loopeval.runs", {**base, "loopeval.run.outcome": "completed"}) == 1
    assert capture.value("loopeval.tokens", {**base, "gen_ai.token.type": "input"}) == 30
    assert capture.value("loopeval.iterations", base) == 3
    assert capture.value("loopeval.run.open") == 0
    assert open_spans == {}
    assert registry.current().foreign_roots == {}


@dialects
@pytest.mark.parametrize("late", [False, True], ids=["told at the start", "told at the end"])
@pytest.mark.parametrize("tools", [True, False], ids=["spans of tools", "tools in messages"])
def test_a_doom_loop_is_told_while_the_agent_works(
    plain_capture: Capture, dialect: Dialect, late: bool, tools: bool
) -> None:
    fired: list[tuple[str, str | None, int]] = []
    turns_done = 0
    plain_capture.instrument(
        on_doom_loop=lambda event, run: fired.append((event.kind, event.tool, turns_done))
    )
    foreign = Foreign(plain_capture.tracer_provider, dialect, late=late, tools=tools)
    with foreign.agent("writer"):
        for turn in LOOPING:
            foreign.turns(turn)
            turns_done += 1
            if turns_done == 5:
                assert plain_capture.value("loopeval.doom_loop.fired") == (1 if tools else 0)
    if tools:
        assert fired == [("repeated_action", "search", 3)]  # the fourth call, in the turn that is going on
        (span,) = [span for span in plain_capture.spans() if span["name"] == root_name(dialect)]
        (event,) = [event for event in span["events"] if event["name"] == "loopeval.guard"]
        assert event["attributes"]["loopeval.guard.source"] == "detector"
        assert event["attributes"]["loopeval.guard.tool"] == "search"
        found = health(plain_capture, root_name(dialect))
        assert found["health.reasons"] == ["doom_loop"]
        assert found["health.wasted_iterations"] == 5
        assert found["health.guard_interventions"] == 1


def test_a_doom_loop_in_messages_alone(plain_capture: Capture) -> None:
    """Without spans of tools, what a call brought is known as the model is told."""
    fired: list[str] = []
    plain_capture.instrument(on_doom_loop=lambda event, run: fired.append(event.tool))
    foreign = Foreign(plain_capture.tracer_provider, GENAI, tools=False)
    with foreign.agent("writer"):
        foreign.turns(*LOOPING)
        assert fired == ["search"]
    assert health(plain_capture, "invoke_agent")["health.wasted_iterations"] == 5


def test_nothing_but_health_is_put_on_a_foreign_root(capture: Capture) -> None:
    foreign = Foreign(capture.tracer_provider, GENAI)
    with foreign.agent("writer"):
        foreign.turns(*HEALTHY)
    (span,) = [span for span in capture.spans() if span["name"] == "invoke_agent writer"]
    assert {
        key for key in span["attributes"] if not key.startswith(("loopeval.health.", "loopeval.run.tokens"))
    } == {
        "gen_ai.operation.name",
        "gen_ai.agent.name",
        "gen_ai.conversation.id",
    }
    assert span["events"] == []


@pytest.mark.parametrize(
    ("error", "outcome", "passed"),
    [
        ("ValueError", "failed", False),
        ("asyncio.exceptions.CancelledError", "cancelled", None),
        ("KeyboardInterrupt", "interrupted", None),
        ("langgraph.errors.GraphInterrupt", "paused", None),
    ],
)
def test_an_agent_that_ended_with_an_error(
    capture: Capture, error: str, outcome: str, passed: bool | None
) -> None:
    foreign = Foreign(capture.tracer_provider, GENAI)
    with foreign.agent("writer", error=error):
        foreign.turns(HEALTHY[0])
    found = health(capture, "invoke_agent")
    assert found.get("health.passed") is passed
    assert capture.value("loopeval.runs", {"loopeval.run.outcome": outcome}) == 1


def test_a_plain_chat_is_no_run(capture: Capture) -> None:
    tracer = capture.tracer_provider.get_tracer("app")
    foreign = Foreign(capture.tracer_provider, GENAI)
    with tracer.start_as_current_span("POST /chat"):
        foreign.turns(Turn("Hello."), Turn("Hello."), Turn("Hello."), Turn("Hello."))
    foreign.turns(Turn("Alone."))
    assert capture.metrics().keys() <= {"loopeval.run.open", "loopeval.run.idle_max"}
    assert not [key for span in capture.spans() for key in span["attributes"] if key.startswith("loopeval.h")]
    assert open_spans == {}


def test_one_call_for_structured_output_is_no_run(capture: Capture) -> None:
    """A model that is made to call a tool to answer in a form: nobody calls the tool."""
    tracer = capture.tracer_provider.get_tracer("app")
    with tracer.start_as_current_span("POST /extract"):
        Foreign(capture.tracer_provider, GENAI, tools=False).turns(Turn(calls=(SEARCH,)))
    assert capture.value("loopeval.runs") == 0


@dialects
@pytest.mark.parametrize("tools", [True, False], ids=["spans of tools", "tools in messages"])
def test_a_hand_written_loop_around_a_client(capture: Capture, dialect: Dialect, tools: bool) -> None:
    """The outermost span of the process is the run."""
    tracer = capture.tracer_provider.get_tracer("app")
    foreign = Foreign(capture.tracer_provider, dialect, tools=tools)
    with tracer.start_as_current_span("POST /ask"):
        for turn in HEALTHY:
            with tracer.start_as_current_span("step"):
                foreign.turns(turn)
    found = health(capture, "POST /ask")
    assert (found["health.passed"], found["health.iterations_to_success"]) == (True, 3)
    assert found["run.tokens.input"] == 30
    assert capture.value("loopeval.runs.started", {"gen_ai.agent.name": "POST /ask"}) == 1
    assert capture.value("loopeval.tokens", {"gen_ai.token.type": "output"}) == 6
    assert registry.current().foreign_roots == {}


def test_a_hand_written_loop_that_loops(capture: Capture) -> None:
    tracer = capture.tracer_provider.get_tracer("app")
    foreign = Foreign(capture.tracer_provider, OPENINFERENCE)
    with tracer.start_as_current_span("main") as root:
        foreign.turns(*LOOPING[:4])
        assert [event.name for event in root.events] == ["loopeval.guard"]  # type: ignore[attr-defined]
        assert capture.value("loopeval.doom_loop.fired") == 1
        foreign.turns(*LOOPING[4:])
    assert health(capture, "main")["health.reasons"] == ["doom_loop"]


def test_a_library_that_tells_kinds_only_at_the_end(capture: Capture) -> None:
    """LangChain's instrumentation: spans start with a name, and the graph is no agent by its name."""
    web = capture.tracer_provider.get_tracer("opentelemetry.instrumentation.fastapi")
    tracer = capture.tracer_provider.get_tracer("openinference.instrumentation.langchain")

    def end(span: Any, kind: str, **more: Any) -> None:
        span.set_attributes({"openinference.span.kind": kind, **more})

    with web.start_as_current_span("POST /ask"), tracer.start_as_current_span("LangGraph") as graph:
        for _ in range(5):
            with tracer.start_as_current_span("agent") as node:
                with tracer.start_as_current_span("ChatOpenAI") as model:
                    start = "llm.output_messages.0.message"
                    end(
                        model,
                        "LLM",
                        **{
                            f"{start}.role": "assistant",
                            f"{start}.tool_calls.0.tool_call.function.name": "search",
                            f"{start}.tool_calls.0.tool_call.function.arguments": '{"q": 1}',
                            "llm.token_count.prompt": 10,
                            "llm.token_count.completion": 1,
                        },
                    )
                end(node, "AGENT")
            with tracer.start_as_current_span("tools") as node:
                with tracer.start_as_current_span("search") as tool:
                    end(
                        tool,
                        "TOOL",
                        **{"tool.name": "search", "input.value": '{"q": 1}', "output.value": "no"},
                    )
                end(node, "CHAIN")
        end(graph, "CHAIN", **{"session.id": "c9"})
    found = health(capture, "LangGraph")
    assert (found["health.iterations_to_success"], found["run.tokens.input"]) == (5, 50)
    assert found["health.reasons"] == ["doom_loop"]
    assert health(capture, "POST /ask") == {}
    assert [point["attributes"]["loopeval.run.framework"] for point in capture.points("loopeval.runs")] == [
        "langchain"
    ]


def test_an_agent_that_says_so_only_at_its_end(capture: Capture) -> None:
    """What went on inside it was taken for the outermost span's, and is handed over."""
    tracer = capture.tracer_provider.get_tracer("app")
    foreign = Foreign(capture.tracer_provider, GENAI)
    with tracer.start_as_current_span("POST /ask"):
        for name in ("first", "second"):
            with tracer.start_as_current_span("work") as span:
                foreign.turns(*HEALTHY)
                span.set_attributes({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name})
    assert health(capture, "POST /ask") == {}
    assert [
        span["attributes"]["loopeval.health.iterations_to_success"] for span in capture.spans("work")
    ] == [3, 3]
    for name in ("first", "second"):
        assert capture.value("loopeval.runs", {"gen_ai.agent.name": name}) == 1
    assert capture.value("loopeval.runs") == 2
    assert capture.value("loopeval.run.open") == 0


def test_agents_inside_an_agent(capture: Capture) -> None:
    """An agent that only calls agents: each is a turn; tokens are rolled up and counted once."""
    foreign = Foreign(capture.tracer_provider, GENAI)
    with foreign.agent("team") as root:
        for name in ("one", "two"):
            with foreign.agent(name) as span:
                foreign.turns(*HEALTHY)
                span.set_attributes({"gen_ai.usage.input_tokens": 30, "gen_ai.usage.output_tokens": 6})
        root.set_attributes({"gen_ai.usage.input_tokens": 60, "gen_ai.usage.output_tokens": 12})
    team = health(capture, "invoke_agent team")
    assert (team["health.iterations_to_success"], team["run.tokens.input"], team["run.tokens.output"]) == (
        2,
        60,
        12,
    )
    assert health(capture, "invoke_agent one")["run.tokens.input"] == 30
    assert capture.value("loopeval.runs", {"loopeval.run.nested": True}) == 2
    assert capture.value("loopeval.runs", {"loopeval.run.nested": False}) == 1
    assert capture.value("loopeval.tokens", {"gen_ai.token.type": "input"}) == 60


def test_a_loop_of_a_sub_agent_marks_the_agent_around_it(capture: Capture) -> None:
    foreign = Foreign(capture.tracer_provider, GENAI)
    with foreign.agent("team"):
        foreign.turns(HEALTHY[0])
        with foreign.agent("one"):
            foreign.turns(*LOOPING)
    assert health(capture, "invoke_agent team")["health.doom_loop_fired"] is True
    assert health(capture, "invoke_agent team")["health.guard_interventions"] == 0
    assert capture.value("loopeval.doom_loop.fired") == 1


def test_the_usage_of_an_agent_that_has_no_model_calls(capture: Capture) -> None:
    foreign = Foreign(capture.tracer_provider, GENAI)
    with foreign.agent("writer") as span:
        span.set_attributes({"gen_ai.usage.input_tokens": 7, "gen_ai.usage.output_tokens": 3})
    assert health(capture, "invoke_agent")["run.tokens.input"] == 7
    assert capture.value("loopeval.tokens", {"gen_ai.token.type": "output"}) == 3


def test_a_foreign_agent_inside_our_loop(capture: Capture) -> None:
    foreign = Foreign(capture.tracer_provider, GENAI)
    with loop("outer", threshold=8.0), iteration() as it:
        with foreign.agent("inner"):
            foreign.turns(*HEALTHY)
        it.score = 9
    outer, inner = health(capture, "evaluation_loop outer"), health(capture, "invoke_agent inner")
    assert (outer["health.passed"], outer["run.iterations"], outer["run.tokens.input"]) == (True, 1, 30)
    assert (inner["health.passed"], inner["health.iterations_to_success"]) == (True, 3)
    assert capture.value("loopeval.runs", {"loopeval.run.nested": True, "loopeval.run.mode": "agent"}) == 1
    (iteration_span,) = capture.spans("evaluation_loop.iteration")
    assert iteration_span["attributes"]["loopeval.iteration.number"] == 1


def test_tools_of_others_inside_our_loop_are_its_steps(capture: Capture) -> None:
    foreign = Foreign(capture.tracer_provider, OPENINFERENCE)
    with loop("outer", mode="agent") as run, iteration():
        foreign.turns(*LOOPING[:3])
        assert not run.doom_loop_fired
        foreign.turns(LOOPING[3])
        assert run.doom_loop_fired
    assert health(capture, "agent_loop outer")["health.evidence"] == "full"
    assert capture.value("loopeval.doom_loop.fired") == 1


def test_detectors_off(plain_capture: Capture) -> None:
    plain_capture.instrument(detectors=False)
    foreign = Foreign(plain_capture.tracer_provider, GENAI)
    with foreign.agent("writer"):
        foreign.turns(*LOOPING)
    found = health(plain_capture, "invoke_agent")
    assert (found["health.passed"], found["health.evidence"]) == (True, "none")
    assert found["health.iterations_to_success"] == 7
    assert not [k for span in plain_capture.spans() for k in span["attributes"] if "fingerprint" in k]


@pytest.mark.parametrize(("label", "passed"), [("pass", True), ("fail", False), ("excellent", True)])
def test_a_judgement_of_the_agents_work(capture: Capture, label: str, passed: bool) -> None:
    """Scores of others are on their own scale: their label decides, if they have one that we know."""
    foreign = Foreign(capture.tracer_provider, GENAI)
    with foreign.agent("writer") as span:
        foreign.turns(*HEALTHY)
        span.add_event(
            "gen_ai.evaluation.result",
            {"gen_ai.evaluation.score.value": 0.3, "gen_ai.evaluation.score.label": label},
        )
    assert health(capture, "invoke_agent")["health.passed"] is passed


def test_wasted_turns_decide_only_where_a_limit_was_set(plain_capture: Capture) -> None:
    turns = (*LOOPING[:3], Turn("Sunny."))
    for limit, passed in ((None, True), (1, False), (2, True)):
        plain_capture.clear()
        plain_capture.instrument(max_wasted_iterations=limit)
        foreign = Foreign(plain_capture.tracer_provider, GENAI)
        with foreign.agent("writer"):
            foreign.turns(*turns)
        found = health(plain_capture, "invoke_agent")
        assert (found["health.wasted_iterations"], found["health.passed"]) == (2, passed)
        assert found["health.wasted_tokens"] == 24


def test_fingerprints_on_tool_spans(capture: Capture) -> None:
    foreign = Foreign(capture.tracer_provider, GENAI)
    with foreign.agent("writer"):
        foreign.turns(Turn(calls=(SEARCH,)), Turn(calls=(SEARCH,)), Turn(calls=(FETCH,)))
    one, two, three = (
        (
            span["attributes"]["loopeval.step.fingerprint"],
            span["attributes"]["loopeval.step.result_fingerprint"],
        )
        for span in capture.spans("execute_tool")
    )
    assert one == two
    assert one[0] != three[0]
    assert one[1] != three[1]
    assert [len(text) for text in one] == [16, 16]


def test_a_hand_written_loop_inside_a_servers_span_is_judged_there(capture: Capture) -> None:
    server = capture.tracer_provider.get_tracer("opentelemetry.instrumentation.fastapi")
    foreign = Foreign(capture.tracer_provider, GENAI)
    with server.start_as_current_span("POST /chat"), server.start_as_current_span("receive"):
        foreign.turns(*LOOPING)
    assert health(capture, "POST /chat")["health.doom_loop_fired"] is True
    assert len(open_spans) == 0


def test_a_servers_span_that_says_late_that_it_is_an_agents(capture: Capture) -> None:
    """Whoever writes on the current span of a web framework can only do so after its start."""
    server = capture.tracer_provider.get_tracer("opentelemetry.instrumentation.asgi")
    foreign = Foreign(capture.tracer_provider, GENAI)
    with server.start_as_current_span("POST /chat") as span:
        span.set_attributes({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "writer"})
        foreign.turns(*HEALTHY)
    assert health(capture, "POST /chat")["health.iterations_to_success"] == 3
    assert capture.value("loopeval.runs", {"gen_ai.agent.name": "writer"}) == 1


def test_calls_that_leave_the_process_are_not_looked_at(capture: Capture) -> None:
    client = capture.tracer_provider.get_tracer("opentelemetry.instrumentation.httpx")
    foreign = Foreign(capture.tracer_provider, GENAI)
    misleading = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 1_000}
    with client.start_as_current_span("POST", attributes=misleading):
        assert len(open_spans) == 0
    with foreign.agent("writer"):
        foreign.turns(*HEALTHY)
        with client.start_as_current_span("POST", attributes=misleading):
            assert len(open_spans) == 1
    found = health(capture, "invoke_agent")
    assert (found["health.iterations_to_success"], found["run.tokens.input"]) == (3, 30)


def test_spans_that_never_end_do_not_fill_the_table(
    capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_sdk, "ROOM", 100)
    monkeypatch.setattr(open_spans, "room", 100)
    tracer = capture.tracer_provider.get_tracer("app")
    foreign = Foreign(capture.tracer_provider, GENAI)
    with foreign.agent("writer"):
        for _ in range(2_000):
            tracer.start_span("left", context=Context())
        assert len(open_spans) <= 400
        foreign.turns(*HEALTHY)
    assert health(capture, "invoke_agent")["health.iterations_to_success"] == 3
    open_spans.clear()
