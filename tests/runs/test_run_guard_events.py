"""What several guards say of one run: one loop is told of once."""

from otel_loopeval.health.guards import GuardEvent
from otel_loopeval.runs.run import LoopRun


def event(source: str, tool: str | None, key: str, *, agent: str | None = None) -> GuardEvent:
    return GuardEvent(
        kind="repeated_action", doom_loop=True, source=source, tool=tool, key=key, agent=agent, time_ns=1
    )


def told(*events: GuardEvent) -> list[bool]:
    run = LoopRun("writer", started_ns=0)
    fired = [run.add_guard_event(each) for each in events]
    assert run.interventions == len(events)
    assert run.doom_loop_fired
    return fired


def test_two_guards_that_see_one_tool_go_round() -> None:
    assert told(
        event("detector", "search", "1", agent="writer"),
        event("praisonaiagents.loop_guard", "search", "a"),
        event("praisonaiagents.loop_guard", "search", "b"),
    ) == [True, False, False]


def test_whoever_was_first_tells_of_the_next_loop_of_that_tool() -> None:
    assert told(
        event("praisonaiagents.loop_guard", "search", "a"),
        event("detector", "search", "1"),
        event("praisonaiagents.loop_guard", "search", "b"),
    ) == [True, False, True]


def test_other_tools_and_guards_that_name_none_are_other_loops() -> None:
    assert told(
        event("detector", "search", "1"),
        event("praisonaiagents.loop_guard", "read", "a"),
        event("praisonaiagents.autonomy", None, "b"),
        event("detector", None, "2"),
    ) == [True, True, True, True]


def test_agents_of_one_run_are_told_apart() -> None:
    assert told(
        event("detector", "search", "1:a", agent="a"), event("detector", "search", "1:b", agent="b")
    ) == [True, True]
