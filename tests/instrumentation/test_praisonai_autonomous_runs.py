"""PraisonAI's autonomous runs: ``run_autonomous``, ``run_autonomous_async``, ``start`` and ``astart``."""

import asyncio
import itertools
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from praisonai_agents import (
    BIG_TASK,
    ITERATIVE,
    SCOPE,
    Stubs,
    agent,
    autonomous_async,
    autonomous_sync,
    both_ways,
    outline,
    root_facts,
    scripted,
    stubs,
)
from support.openai_stub import asks_for_score, message, tool_call

from otel_loopeval import current_run, uninstrument
from otel_loopeval.testing import Capture

__all__ = ["stubs"]  # a fixture, used by its name


def statuses(capture: Capture) -> list[tuple[str, Any]]:
    return [(span["status"], span["attributes"].get("error.type")) for span in capture.spans()]


@both_ways
def test_a_run_becomes_a_trace(capture: Capture, run: Any) -> None:
    result = run(scripted(), max_iterations=9)
    assert (result.success, result.completion_reason, result.iterations) == (True, "no_tool_calls", 3)
    assert capture.outline() == (
        "agent_loop writer\n"
        "  evaluation_loop.iteration\n"
        "  evaluation_loop.iteration\n"
        "  evaluation_loop.iteration"
    )
    root, *iterations = capture.spans()
    assert (root["scope"], root["status"], root["kind"]) == (SCOPE, "UNSET", "INTERNAL")
    assert root["attributes"] == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "writer",
        "loopeval.run.mode": "agent",
        "loopeval.run.framework": "praisonaiagents",
        "loopeval.run.id": "run-1",
        "loopeval.run.max_iterations": 9,
        "loopeval.run.stage": "autonomous",
        "loopeval.run.outcome": "completed",
        "loopeval.run.completion_reason": "no_tool_calls",
        "loopeval.run.success": True,
        "loopeval.run.iterations": 3,
        "loopeval.health.passed": True,
        "loopeval.health.converged": True,
        "loopeval.health.doom_loop_fired": False,
        "loopeval.health.iterations_to_success": 3,
        "loopeval.health.wasted_iterations": 0,
        "loopeval.health.guard_interventions": 0,
        "loopeval.health.total_duration_s": 0.0,
        "loopeval.health.threshold": 8.0,
        "loopeval.health.reasoning": "Completed in 3 iteration(s).",
        "loopeval.health.evidence": "full",
    }
    assert [span["attributes"] for span in iterations] == [
        {"loopeval.iteration.number": number, "loopeval.iteration.stage": "autonomous"}
        for number in (1, 2, 3)
    ]
    assert current_run() is None


@both_ways
def test_stages_rise(capture: Capture, run: Any) -> None:
    result = run(scripted(), "Tidy up `main.py`", completion_promise="NEVER", max_iterations=4)
    assert result.stage == "planned"
    stages = [
        span["attributes"]["loopeval.iteration.stage"] for span in capture.spans("evaluation_loop.iteration")
    ]
    assert stages == ["direct", "direct", "heuristic", "planned"]
    assert root_facts(capture, "run.stage") == {"run.stage": "planned"}


def promised() -> Any:
    return ["Step 1 of the work", "<promise>SHIPPED</promise>"]


def interrupted() -> Any:
    from praisonaiagents.agent.interrupt import InterruptController  # noqa: PLC0415 - late

    controller = InterruptController()
    controller.request("user")
    return controller


def spending(worker: Any) -> str:
    worker._total_tokens_in += 50
    return "Step 1 of the work"


@both_ways
@pytest.mark.parametrize(
    ("answers", "settings", "arguments", "reason", "outcome", "passed"),
    [
        (["The task completed."], {}, {}, "goal", "completed", True),
        (promised(), {}, {"completion_promise": "SHIPPED"}, "promise", "completed", True),
        (
            None,
            {},
            {"max_iterations": 2, "completion_promise": "SHIPPED"},
            "max_iterations",
            "limit",
            False,
        ),
        (None, {}, {"timeout_seconds": 1e-9}, "timeout", "limit", False),
        (itertools.repeat("The same"), {}, {}, "needs_help", "stopped", False),
        ([ConnectionError("refused")], {}, {}, "error", "failed", False),
        ([KeyboardInterrupt()], {}, {}, "cancelled", "cancelled", None),
        (None, {"interrupt_controller": interrupted}, {}, "interrupted", "cancelled", None),
        (
            [spending],
            {"autonomy": lambda: {**ITERATIVE, "max_tokens": 40}},
            {},
            "budget_exhausted",
            "limit",
            False,
        ),
    ],
    ids=[
        "goal",
        "promise",
        "max_iterations",
        "timeout",
        "needs_help",
        "error",
        "cancelled",
        "interrupted",
        "budget_exhausted",
    ],
)
def test_outcomes(
    capture: Capture,
    run: Any,
    answers: Any,
    settings: dict[str, Any],
    arguments: dict[str, Any],
    reason: str,
    outcome: str,
    passed: Any,
) -> None:
    worker = scripted(answers, **{name: make() for name, make in settings.items()})
    result = run(worker, **arguments)
    assert result.completion_reason == reason
    assert root_facts(
        capture, "run.completion_reason", "run.outcome", "run.success", "health.passed", "health.converged"
    ) == {
        "run.completion_reason": reason,
        "run.outcome": outcome,
        "run.success": result.success,
        "health.passed": passed,
        "health.converged": passed,
    }
    assert capture.value("loopeval.runs", {"loopeval.run.outcome": outcome}) == 1


def test_a_doom_loop_that_the_package_gives_up_on(capture: Capture) -> None:
    """Its last stage of recovery, which it reaches where its tracker is not reset between tasks."""

    def tired(worker: Any) -> str:
        worker._doom_loop_tracker._recovery_attempts = 3
        return "The same"

    result = scripted(itertools.repeat(tired)).run_autonomous(BIG_TASK)
    assert result.completion_reason == "doom_loop"
    assert root_facts(capture, "run.outcome", "health.doom_loop_fired", "health.reasons") == {
        "run.outcome": "stopped",
        "health.doom_loop_fired": True,
        "health.reasons": ["not_converged", "doom_loop"],
    }


@both_ways
def test_recoveries_are_guard_events_of_their_turns(capture: Capture, run: Any) -> None:
    run(scripted(itertools.repeat("The same")))
    turns = [
        [event["attributes"]["loopeval.guard.action"] for event in span["events"]]
        for span in capture.spans("evaluation_loop.iteration")
    ]
    assert [actions[0] if actions else None for actions in turns] == [
        None,
        None,
        "recover",
        None,
        None,
        "recover",
        None,
        None,
        "recover",
    ]


@both_ways
def test_an_error_that_comes_back_as_a_result_marks_the_spans(capture: Capture, run: Any) -> None:
    result = run(scripted(["Step 1 of the work", TimeoutError("words of the user")]))
    assert (result.completion_reason, result.error) == ("error", "words of the user")
    assert statuses(capture) == [("ERROR", "TimeoutError"), ("UNSET", None), ("ERROR", "TimeoutError")]
    assert "words of the user" not in repr(capture.spans())
    assert capture.value("loopeval.runs", {"error.type": "TimeoutError"}) == 1


@both_ways
def test_an_error_of_a_type_that_nobody_tells(capture: Capture, run: Any) -> None:
    from praisonaiagents import Agent  # noqa: PLC0415 - late

    class Broken(Agent):
        def _record_action(self, *_: Any) -> None:
            raise OSError("disk full")

    result = run(scripted(base=Broken))
    assert (result.completion_reason, result.error) == ("error", "disk full")
    assert statuses(capture) == [("ERROR", "_OTHER"), ("ERROR", "_OTHER")]
    assert root_facts(capture, "run.outcome") == {"run.outcome": "failed"}


def test_the_message_of_an_error_is_content(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")
    autonomous_sync(scripted([TimeoutError("words of the user")]))
    root, turn = capture.spans()
    assert [span["description"] for span in (root, turn)] == ["words of the user"] * 2
    recorded = [event["name"] for span in (root, turn) for event in span["events"]]
    assert recorded == ["exception"]


@both_ways
def test_autonomy_that_is_not_enabled(capture: Capture, run: Any) -> None:
    with pytest.raises(ValueError, match="Autonomy must be enabled"):
        run(scripted(autonomy=None))
    assert statuses(capture) == [("ERROR", "ValueError")]


def test_start_and_astart_where_they_run_autonomously(capture: Capture) -> None:
    assert scripted(["All done."]).start(BIG_TASK).completion_reason == "goal"
    assert asyncio.run(scripted(["All done."]).astart(BIG_TASK)).completion_reason == "goal"
    assert capture.outline() == "\n".join(["agent_loop writer\n  evaluation_loop.iteration"] * 2)
    # One answer is no loop.
    scripted(["An answer."], autonomy=True).start(BIG_TASK)
    assert len(capture.spans("agent_loop")) == 2


@both_ways
def test_overriding_methods_and_mixins(capture: Capture, run: Any) -> None:
    from praisonaiagents import Agent  # noqa: PLC0415 - late

    class Polite:
        """A mixin that never calls the class that it is mixed into."""

        def chat(self, prompt: str, *_: Any, **__: Any) -> str:
            return "All done, if it please you."

        async def achat(self, prompt: str, *_: Any, **__: Any) -> str:
            return "All done, if it please you."

    class Retrying(Agent):
        def run_autonomous(self, *args: Any, **kwargs: Any) -> Any:
            super().run_autonomous(*args, **kwargs)
            return super().run_autonomous(*args, **kwargs)

        async def run_autonomous_async(self, *args: Any, **kwargs: Any) -> Any:
            await super().run_autonomous_async(*args, **kwargs)
            return await super().run_autonomous_async(*args, **kwargs)

    class Both(Polite, Retrying): ...

    worker = Both(name="writer", instructions="Write", output="silent", autonomy=ITERATIVE)
    assert run(worker).output == "All done, if it please you."
    assert capture.outline() == (
        "agent_loop writer\n  evaluation_loop.iteration\n  evaluation_loop.iteration"
    )
    assert root_facts(capture, "run.iterations", "run.outcome", "health.evidence") == {
        "run.iterations": 2,
        "run.outcome": "completed",
        "health.evidence": "full",
    }
    uninstrument()
    assert "chat" in vars(Polite)
    assert Polite.chat(worker, "") == "All done, if it please you."
    assert Polite.chat.__module__ == __name__
    assert not hasattr(Polite.chat, "__wrapped__")
    for name in ("run_autonomous", "chat", "achat", "_consume_self_correction", "run_goal", "_goal_gate"):
        assert not hasattr(getattr(Agent, name), "__wrapped__"), name


def test_a_chat_that_was_replaced_on_the_object(capture: Capture) -> None:
    worker = scripted()
    worker.chat = lambda _prompt: "All done by hand."
    assert worker.run_autonomous(BIG_TASK).output == "All done by hand."
    assert capture.outline() == "agent_loop writer\n  evaluation_loop.iteration"
    assert root_facts(capture, "health.evidence") == {"health.evidence": "full"}


@both_ways
def test_an_agent_that_runs_itself_and_another(capture: Capture, run: Any) -> None:
    from praisonaiagents import Agent  # noqa: PLC0415 - late

    class Inner(Agent): ...

    inner = scripted(["All done."], base=Inner)
    inner.name = "helper"

    def delegate(worker: Any) -> str:
        inner.run_autonomous(BIG_TASK)
        worker.run_autonomous(BIG_TASK)
        return "All done."

    run(scripted([delegate, "All done.", "All done."]))
    assert capture.outline() == (
        "agent_loop writer\n"
        "  evaluation_loop.iteration\n"
        "    agent_loop helper\n"
        "      evaluation_loop.iteration\n"
        "    agent_loop writer\n"
        "      evaluation_loop.iteration"
    )
    assert capture.value("loopeval.runs", {"loopeval.run.nested": True}) == 2


def test_one_agent_object_in_many_tasks_and_threads(capture: Capture) -> None:
    """Each sees its own run, and what it says goes to that one."""
    mixed: list[Any] = []

    def look(worker: Any) -> str:
        run = current_run()
        assert run is not None
        mixed.append(run.id)
        return f"Done: {run.id}"

    worker = scripted(itertools.repeat(look))

    async def gather() -> list[Any]:
        return await asyncio.gather(*(worker.run_autonomous_async(BIG_TASK) for _ in range(8)))

    results = asyncio.run(gather())
    assert len({result.output for result in results}) == 8
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: worker.run_autonomous(BIG_TASK), range(8)))
    assert len({result.output for result in results}) == 8
    assert len(set(mixed)) == 16
    roots = capture.tree()
    assert [root["name"] for root in roots] == ["agent_loop writer"] * 16
    # The package's tracker is one for all of them, and may send some into another turn.
    assert sum(len(root["children"]) for root in roots) == len(mixed)


def test_asking_an_agent_outside_of_any_run_opens_none(capture: Capture) -> None:
    assert scripted(["An answer."]).chat("a question") == "An answer."
    assert capture.spans() == []


def using_a_tool(request: Any) -> Any:
    """Asks for two tool calls at once, then answers with more than the hundred characters that count."""
    if asks_for_score(request):
        return None
    if request["messages"][-1]["role"] == "tool":
        return "The tools have answered. " * 5
    return message(
        tool_calls=[tool_call("look", {"place": "a"}), tool_call("look", {"place": "b"}, "call_2")]
    )


@pytest.mark.parametrize("options", ["plain", "timeout", "parallel"])
@pytest.mark.parametrize("run", [autonomous_sync, autonomous_async])
def test_the_current_run_inside_of_the_packages_tools(
    capture: Capture, stubs: Stubs, run: Any, options: str
) -> None:
    from praisonaiagents import ExecutionConfig  # noqa: PLC0415 - late
    from praisonaiagents.config.feature_configs import ToolConfig  # noqa: PLC0415 - late

    stubs(using_a_tool)
    places: list[Any] = []

    def look(place: str) -> str:
        """Look at a place."""
        run = current_run()
        places.append((place, None if run is None or run.iteration is None else run.iteration.number))
        return f"nothing in {place}"

    settings: dict[str, Any] = {
        "plain": {},
        "timeout": {"tool_config": ToolConfig(timeout=30)},
        "parallel": {"execution": ExecutionConfig(parallel_tool_calls=True)},
    }[options]
    result = run(agent(tools=[look], autonomy=ITERATIVE, **settings))
    assert result.completion_reason == "tool_completion"
    assert sorted(places) == [("a", 1), ("b", 1)]
    assert outline(capture) == "agent_loop writer\n  evaluation_loop.iteration"


@pytest.mark.swallows
def test_a_tool_result_that_cannot_be_read(capture: Capture) -> None:
    from praisonaiagents import Agent  # noqa: PLC0415 - late

    class Ambiguous:
        def __bool__(self) -> bool:
            raise ValueError("the truth value of an array is ambiguous")

    result = {"error": Ambiguous()}

    class Measuring(Agent):
        def _execute_tool_with_context(self, *_: Any, **__: Any) -> Any:
            return result

    assert scripted(base=Measuring).execute_tool("measure", {}) is result
    assert capture.span("execute_tool measure")["status"] == "UNSET"


def test_two_evaluation_loops_of_one_agent_at_once(capture: Capture, stubs: Stubs) -> None:
    stubs(using_a_tool, scores=[9])
    runs: list[Any] = []

    def look(place: str) -> str:
        """Look at a place."""
        run = current_run()
        runs.append(None if run is None else run.id)
        return "nothing"

    worker = agent(tools=[look])

    async def gather() -> list[Any]:
        loops = (worker.run_until_async(f"task {number}", "is good") for number in range(2))
        return await asyncio.gather(*loops)

    assert [result.success for result in asyncio.run(gather())] == [True, True]
    assert len(runs) == 4
    assert None not in runs
    assert len(set(runs)) == 2
    assert outline(capture) == "\n".join(
        ["evaluation_loop writer\n  evaluation_loop.iteration\n    evaluate"] * 2
    )


def test_a_result_is_what_it_was(plain_capture: Capture, stubs: Stubs) -> None:
    def told() -> Any:
        stub = stubs(using_a_tool)

        def look(place: str) -> str:
            """Look at a place."""
            return f"nothing in {place}"

        result = agent(tools=[look], autonomy=ITERATIVE).run_autonomous(BIG_TASK)
        return result.success, result.output, result.completion_reason, result.actions, stub.requests

    before = told()
    plain_capture.instrument()
    assert told() == before
    assert len(plain_capture.spans("agent_loop")) == 1


def test_nothing_of_the_package_is_imported() -> None:
    program = (
        "import sys\n"
        "from otel_loopeval import instrument\n"
        "instrument()\n"
        "print([name for name in sys.modules if name.startswith('praisonaiagents')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"
