"""Every guard of praisonaiagents, driven until it fires and until just before: one firing is one event."""

import asyncio
import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from praisonaiagents.agent.autonomy import DoomLoopTracker
from praisonaiagents.agent.loop_detection import LoopDetectionConfig
from praisonaiagents.escalation.doom_loop import DoomLoopConfig, DoomLoopDetector
from praisonaiagents.escalation.loop_guard import LoopGuard, LoopGuardConfig
from praisonaiagents.escalation.observability import EventType, ObservabilityHooks
from praisonaiagents.permissions.doom_loop import DoomLoopDetector as PermissionsDetector
from praisonaiagents.permissions.manager import PermissionManager

from otel_loopeval import iteration, loop, uninstrument
from otel_loopeval.instrumentation.praisonai import PATCHES
from otel_loopeval.otel import errors
from otel_loopeval.testing import Capture

Step = Callable[[int], Any]
"""One action of an agent under a guard, by its number from 1."""

LENIENT = DoomLoopConfig(max_similar_actions=99, max_no_progress_steps=99, max_consecutive_failures=99)


@pytest.fixture(autouse=True)
def package_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package reads them where agents are made, and sends nothing."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("PRAISONAI_TELEMETRY_DISABLED", "true")
    monkeypatch.setenv("DO_NOT_TRACK", "true")


@pytest.fixture
def plugin() -> Iterator[Any]:
    """The plugin's module, whose import registers its hook for the whole process."""
    from praisonaiagents.hooks import remove_hook  # noqa: PLC0415 - only the plugin's tests
    from praisonaiagents.plugins import loop_detection_plugin  # noqa: PLC0415

    remove_hook(loop_detection_plugin._hook_id)
    loop_detection_plugin.reset_history()
    yield loop_detection_plugin
    loop_detection_plugin.reset_history()


def agent_of(**settings: Any) -> Any:
    from praisonaiagents import Agent  # noqa: PLC0415 - only where an agent is needed

    return Agent(name="writer", instructions="Write.", output="silent", **settings)


def short(event: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a guard event without their prefix and without the iteration."""
    return {
        key.removeprefix("loopeval.guard."): value
        for key, value in event.items()
        if key != "loopeval.guard.iteration"
    }


def fired(capture: Capture) -> list[dict[str, Any]]:
    """What the package's guards told, span by span; not what our own detector makes of the agent."""
    told = [
        short(event["attributes"])
        for span in capture.spans()
        for event in span["events"]
        if event["name"] == "loopeval.guard"
    ]
    return [event for event in told if event["source"] != "detector"]


def event(
    kind: str,
    source: str,
    action: str,
    tool: str | None,
    count: int | None,
    rule: str | None,
    *,
    doom_loop: bool = True,
) -> dict[str, Any]:
    """A guard event as it leaves the process."""
    told = {
        "kind": kind,
        "doom_loop": doom_loop,
        "source": f"praisonaiagents.{source}",
        "action": action,
        "tool": tool,
        "count": count,
        "rule": rule,
    }
    return {key: value for key, value in told.items() if value is not None}


# The guards, each as something that takes one step after another -----------------------------------------


def detector_of(config: DoomLoopConfig | None = None, *, success: bool = True, path: str = "a.py") -> Step:
    detector = DoomLoopDetector(config)
    return lambda number: detector.record_action(
        "read_file", {"path": path.format(number)}, "content", success
    )


def detector_of_responses() -> Step:
    detector = DoomLoopDetector()

    def respond(_number: int) -> None:
        detector.record_response("the same fifty characters of an answer, word by word")
        detector.is_doom_loop()

    return respond


def detector_out_of_time() -> Step:
    detector = DoomLoopDetector(DoomLoopConfig(max_total_time=0.0, max_identical_actions=99))
    detector.start_session()
    assert detector._start_time is not None
    detector._start_time -= 1
    return lambda number: detector.record_action(f"tool_{number}", {}, number, success=True)


def tracker_of(threshold: int = 3) -> Step:
    tracker = DoomLoopTracker(threshold)

    def act(_number: int) -> None:
        tracker.record("read_file", {"path": "a.py"}, "content", True)
        tracker.is_doom_loop()

    return act


def tracker_that_is_asked() -> Step:
    """Its first three answers are what its detector has reported; the fourth is to give up."""
    tracker = DoomLoopTracker()
    for _ in range(3):
        tracker.record("read_file", {"path": "a.py"}, "content", True)
    return lambda _number: tracker.get_recovery_action()


def permissions_detector() -> Step:
    detector = PermissionsDetector()
    return lambda _number: detector.record_and_check("bash", {"command": "ls"})


def permissions_detector_of_many() -> Step:
    detector = PermissionsDetector(max_tool_calls=6)
    return lambda number: detector.record_and_check(f"tool_{number}", {})


def permissions_detector_of_one_tool() -> Step:
    detector = PermissionsDetector(max_tool_calls=8)
    return lambda number: detector.record_and_check("bash", {"command": f"ls {number}"})


def permission_manager(folder: Path) -> Step:
    manager = PermissionManager(storage_dir=str(folder))
    return lambda _number: manager.check_doom_loop("bash", {"command": "ls"})


def permission_gate(folder: Path) -> Step:
    agent = agent_of()
    agent._permission_manager = PermissionManager(storage_dir=str(folder))
    return lambda _number: agent._check_permission_manager_doom_loop("bash", {"command": "ls"})


def permission_gate_of_another_manager() -> Step:
    class Result:
        is_loop = True
        reason = "seen before"

    class Manager:
        calls = 0

        def check_doom_loop(self, _tool: str, _arguments: Any) -> Any:
            self.calls += 1
            return Result() if self.calls > 2 else None

    agent = agent_of()
    agent._permission_manager = Manager()
    return lambda _number: agent._check_permission_manager_doom_loop("bash", {"command": "ls"})


class CountsOnly(LoopGuard):
    """A guard that counts calls and does not compare results: the newest blocks by count only so."""

    def _check_no_progress(self) -> None:
        return None

    def _trailing_identical_result_run(self) -> int:
        return 99


def loop_guard_of(tool: str, guard: LoopGuard | None = None, result: str = "content") -> Step:
    """Checked before and after, and fed in between, as agents do."""
    used = guard or LoopGuard()

    def call(number: int) -> None:
        decision = used.check(tool, {"path": "a.py"}, is_pre_execution=True)
        if not decision.should_block():
            used.record(tool, {"path": "a.py"}, True, result=result.format(number))
            used.check(tool, {"path": "a.py"}, is_pre_execution=False)
        else:
            used._tool_counts[tool] = used._tool_counts.get(tool, 0) + 1

    return call


def loop_guard_out_of_time() -> Step:
    guard = LoopGuard(LoopGuardConfig(max_time_per_turn=0.0))
    guard.reset_turn()
    assert guard._turn_start_time is not None
    guard._turn_start_time -= 1
    return lambda _number: guard.check("bash", {})


def tool_loop_of(tool: str, *, alternating: bool = False) -> Step:
    """Recorded, looked at, and its outcome recorded, as agents do."""
    import praisonaiagents.agent.loop_detection as module  # noqa: PLC0415 - looked up when it is called

    history: list[Any] = []
    config = LoopDetectionConfig(enabled=True, warn_threshold=4, critical_threshold=6)

    def call(number: int) -> None:
        arguments = {"path": "ab"[number % 2] if alternating else "a"}
        if alternating:  # as the plugin has it: ping-pong is not found where the call is recorded before
            module.detect_tool_loop(history, tool, arguments, config)
            module.record_tool_call(history, tool, arguments, config)
        else:
            module.record_tool_call(history, tool, arguments, config)
            module.detect_tool_loop(history, tool, arguments, config)
        module.record_tool_outcome(history, tool, arguments, "content", config)

    return call


def hooks_of(kind: EventType, data: dict[str, Any]) -> Step:
    hooks = ObservabilityHooks()
    return lambda number: hooks.emit(kind, {**data, "step": number} if number > 1 else {"step": 1})


@dataclass(frozen=True)
class Case:
    """A guard and what it takes to make it fire.

    Attributes:
        make: Makes the guard, given an empty folder.
        at: The step at which it fires.
        event: What is told then.
        before: What has been told of the same guard before.
        more: Steps after it that tell nothing more.
    """

    make: Callable[[Path], Step]
    at: int
    event: dict[str, Any]
    before: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    more: int = 3


READ = "read_file"
GUARD = "loop_guard"
DETECTION = "loop_detection"

CASES = {
    "escalation: identical actions": Case(
        lambda _: detector_of(LENIENT),
        3,
        event("repeated_action", "escalation", "recover", READ, 3, "repeated_action"),
    ),
    "escalation: similar actions": Case(
        lambda _: detector_of(DoomLoopConfig(max_no_progress_steps=99), path="{}.py"),
        5,
        event("repeated_action", "escalation", "recover", READ, 5, "repeated_action"),
    ),
    "escalation: failures": Case(
        lambda _: detector_of(
            DoomLoopConfig(max_identical_actions=99, max_similar_actions=99), success=False, path="{}.py"
        ),
        3,
        event("repeated_failure", "escalation", "recover", READ, 3, "repeated_failure"),
    ),
    "escalation: no progress": Case(
        lambda _: detector_of(DoomLoopConfig(max_similar_actions=99), path="{}.py"),
        5,
        event("no_progress", "escalation", "recover", READ, 5, "no_progress"),
    ),
    "escalation: repeated output": Case(
        lambda _: detector_of_responses(),
        8,
        event("repeated_output", "escalation", "recover", None, 8, "repeated_output"),
    ),
    "escalation: time": Case(
        lambda _: detector_out_of_time(),
        2,
        event("resource_exhaustion", "escalation", "halt", "tool_2", None, "resource_exhaustion"),
    ),
    "tracker": Case(
        lambda _: tracker_of(), 3, event("repeated_action", "autonomy", "recover", READ, 3, "repeated_action")
    ),
    "tracker: gives up": Case(
        lambda _: tracker_that_is_asked(),
        4,
        event("repeated_action", "autonomy", "halt", READ, 3, "repeated_action"),
        [event("repeated_action", "autonomy", "recover", READ, 3, "repeated_action")],
    ),
    "permissions: identical calls": Case(
        lambda _: permissions_detector(),
        4,
        event("repeated_action", "permissions", "observe", "bash", 3, "identical_calls"),
    ),
    "permissions: all calls": Case(
        lambda _: permissions_detector_of_many(),
        7,
        event("resource_exhaustion", "permissions", "observe", None, 6, "all_calls"),
    ),
    "permissions: calls of one tool": Case(
        lambda _: permissions_detector_of_one_tool(),
        5,
        event("resource_exhaustion", "permissions", "observe", "bash", 4, "calls_of_one_tool"),
    ),
    "permissions: manager": Case(
        permission_manager,
        4,
        event("repeated_action", "permissions", "observe", "bash", 3, "identical_calls"),
    ),
    "permissions: the agent's gate": Case(
        permission_gate, 4, event("repeated_action", "permissions", "block", "bash", 3, "identical_calls")
    ),
    "permissions: another manager": Case(
        lambda _: permission_gate_of_another_manager(),
        3,
        event("loop_detected", "permissions", "block", "bash", None, None),
    ),
    "loop guard: warns of an idempotent tool": Case(
        lambda _: loop_guard_of(READ, result="line {}"),
        5,
        event("repeated_action", GUARD, "warn", READ, 5, "idempotent_warn", doom_loop=False),
    ),
    "loop guard: blocks an idempotent tool": Case(
        lambda _: loop_guard_of(READ, CountsOnly()),
        8,
        event("repeated_action", GUARD, "block", READ, 8, "idempotent_block", doom_loop=False),
        [event("repeated_action", GUARD, "warn", READ, 5, "idempotent_warn", doom_loop=False)],
    ),
    "loop guard: halts an idempotent tool": Case(
        lambda _: loop_guard_of(READ, CountsOnly()),
        12,
        event("repeated_action", GUARD, "halt", READ, 12, "idempotent_halt"),
        [
            event("repeated_action", GUARD, "warn", READ, 5, "idempotent_warn", doom_loop=False),
            event("repeated_action", GUARD, "block", READ, 8, "idempotent_block", doom_loop=False),
        ],
    ),
    "loop guard: warns of a mutating tool": Case(
        lambda _: loop_guard_of("bash", result="line {}"),
        3,
        event("repeated_action", GUARD, "warn", "bash", 3, "mutating_warn", doom_loop=False),
    ),
    "loop guard: halts a mutating tool": Case(
        lambda _: loop_guard_of("bash", CountsOnly()),
        7,
        event("repeated_action", GUARD, "halt", "bash", 7, "mutating_halt"),
        [
            event("repeated_action", GUARD, "warn", "bash", 3, "mutating_warn", doom_loop=False),
            event("repeated_action", GUARD, "block", "bash", 5, "mutating_block", doom_loop=False),
        ],
    ),
    "loop guard: warns of no progress": Case(
        lambda _: loop_guard_of(READ),
        4,
        event("no_progress", GUARD, "warn", READ, 4, "no_progress_warn", doom_loop=False),
    ),
    "loop guard: halts without progress": Case(
        lambda _: loop_guard_of(READ),
        8,
        event("no_progress", GUARD, "halt", READ, 8, "no_progress_halt"),
        [event("no_progress", GUARD, "warn", READ, 4, "no_progress_warn", doom_loop=False)],
    ),
    "loop guard: time": Case(
        lambda _: loop_guard_out_of_time(),
        1,
        event("resource_exhaustion", GUARD, "halt", "bash", None, "time_exceeded"),
    ),
    "tool loop: warning": Case(
        lambda _: tool_loop_of(READ),
        4,
        event("repeated_action", DETECTION, "warn", READ, 4, "generic_repeat", doom_loop=False),
        more=1,
    ),
    "tool loop: critical": Case(
        lambda _: tool_loop_of(READ),
        6,
        event("repeated_action", DETECTION, "block", READ, 6, "generic_repeat"),
        [event("repeated_action", DETECTION, "warn", READ, 4, "generic_repeat", doom_loop=False)],
    ),
    "tool loop: polling": Case(
        lambda _: tool_loop_of("poll_status"),
        7,
        event("no_progress", DETECTION, "block", "poll_status", 6, "poll_no_progress"),
        [event("no_progress", DETECTION, "warn", "poll_status", 4, "poll_no_progress", doom_loop=False)],
    ),
    "tool loop: ping-pong": Case(
        lambda _: tool_loop_of(READ, alternating=True),
        6,
        event("circular_plan", DETECTION, "block", READ, 6, "ping_pong"),
        [event("circular_plan", DETECTION, "warn", READ, 4, "ping_pong", doom_loop=False)],
        more=2,
    ),
    "observability: a step in a doom loop": Case(
        lambda _: hooks_of(EventType.STEP_END, {"doom_loop": True, "recovery_action": "abort"}),
        2,
        event("loop_detected", "observability", "halt", None, None, None),
        more=0,
    ),
    "observability: a doom loop detected": Case(
        lambda _: hooks_of(EventType.DOOM_LOOP_DETECTED, {"loop_type": "no_progress"}),
        1,
        event("loop_detected", "observability", "observe", None, None, None),
        more=0,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_just_below(capture: Capture, name: str, tmp_path: Path) -> None:
    case = CASES[name]
    with loop("writer"):
        step = case.make(tmp_path)
        for number in range(1, case.at):
            step(number)
    assert fired(capture) == case.before


@pytest.mark.parametrize("name", CASES)
def test_until_it_fires(capture: Capture, name: str, tmp_path: Path) -> None:
    case = CASES[name]
    with loop("writer") as run, iteration():
        step = case.make(tmp_path)
        for number in range(1, case.at + 1):
            step(number)
        assert run.doom_loop_fired is case.event["doom_loop"]
    assert fired(capture) == [*case.before, case.event]
    assert capture.value("loopeval.doom_loop.fired") == int(case.event["doom_loop"]) + sum(
        told["doom_loop"] and told["action"] != "recover" for told in case.before
    )


@pytest.mark.parametrize("name", CASES)
def test_the_same_again_is_no_other_firing(capture: Capture, name: str, tmp_path: Path) -> None:
    case = CASES[name]
    with loop("writer"):
        step = case.make(tmp_path)
        for number in range(1, case.at + case.more + 1):
            step(number)
    assert fired(capture) == [*case.before, case.event]


# The plugin ---------------------------------------------------------------------------------------------

PLUGIN_WARNS = event(
    "repeated_action",
    "loop_detection_plugin",
    "warn",
    "read_file",
    10,
    "generic_repeat",
    doom_loop=False,
)
PLUGIN_BLOCKS = event("repeated_action", "loop_detection_plugin", "block", "read_file", 20, "generic_repeat")


def hook_input() -> Any:
    from praisonaiagents.hooks.events import BeforeToolInput  # noqa: PLC0415 - only the plugin's tests

    return BeforeToolInput(
        session_id="s",
        cwd="/",
        event_name="before_tool",
        timestamp="0",
        tool_name="read_file",
        tool_input={"path": "a.py"},
    )


@pytest.mark.parametrize(
    ("calls", "events"),
    [
        (10, []),
        (11, [PLUGIN_WARNS]),
        (20, [PLUGIN_WARNS]),
        (21, [PLUGIN_WARNS, PLUGIN_BLOCKS]),
        (25, [PLUGIN_WARNS, PLUGIN_BLOCKS]),
    ],
)
def test_the_plugin_hook(capture: Capture, plugin: Any, calls: int, events: list[dict[str, Any]]) -> None:
    results: list[Any] = []
    with loop("writer"):
        results += [plugin._loop_detection_hook(hook_input()) for _ in range(calls)]
    assert fired(capture) == events
    assert results[-1].is_allowed() is (calls < 21)


# Guards around one another --------------------------------------------------------------------------------


RECOVERS = event("repeated_action", "autonomy", "recover", None, 3, "repeated_action")


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("observe", [False, True])
@pytest.mark.parametrize(("turns", "recoveries"), [(2, 0), (3, 1), (9, 3)])
def test_autonomy_recovery(
    capture: Capture, is_async: bool, observe: bool, turns: int, recoveries: int
) -> None:
    """The detector, the tracker around it, the recovery around that, and the hooks that are told of it."""
    agent = agent_of(autonomy={"completion_promise": "DONE", "observe": observe})
    agent.chat = lambda _prompt: "the same"

    async def answer(_prompt: str) -> str:
        return "the same"

    agent.achat = answer
    with loop("outer"):
        if is_async:
            asyncio.run(agent.run_autonomous_async("task", max_iterations=turns))
        else:
            agent.run_autonomous("task", max_iterations=turns)
    assert fired(capture) == [RECOVERS] * recoveries
    told = [] if agent._observability_hooks is None else agent._observability_hooks._events
    assert sum(1 for seen in told if seen.data.get("doom_loop")) == (recoveries if observe else 0)


def test_hooks_that_are_told_by_somebody_else_too(capture: Capture) -> None:
    agent = agent_of(autonomy={"completion_promise": "DONE", "observe": True})
    agent.chat = lambda _prompt: "the same"
    with loop("outer"):
        agent.run_autonomous("task", max_iterations=3)
        agent._observability_hooks.emit(EventType.STEP_END, {"doom_loop": True})
        ObservabilityHooks(enabled=False).emit(EventType.STEP_END, {"doom_loop": True})
    assert sorted(told["source"] for told in fired(capture)) == [
        "praisonaiagents.autonomy",
        "praisonaiagents.observability",
    ]


@pytest.mark.parametrize(("approves", "action"), [(True, "observe"), (False, "block")])
@pytest.mark.parametrize("is_async", [False, True])
def test_an_agent_decides_on_a_critical_tool_loop(
    capture: Capture, approves: bool, action: str, is_async: bool
) -> None:
    """One event, with what the agent did, and not what the function would have had it do."""
    import praisonaiagents.agent.loop_detection as module  # noqa: PLC0415 - looked up when it is called
    from praisonaiagents.permissions.rules import PermissionAction  # noqa: PLC0415

    class Manager:
        def resolve_tool_action(self, _name: str, _agent: Any) -> Any:
            return PermissionAction.ALLOW if approves else PermissionAction.DENY

    agent = agent_of()
    agent._permission_manager = Manager()
    agent._loop_detector_config = LoopDetectionConfig(enabled=True, warn_threshold=2, critical_threshold=3)
    agent._loop_detector_history = []
    with loop("writer") as run:
        verdict: Any = None
        for _ in range(3):
            history, config = agent._ensure_loop_detector()
            module.record_tool_call(history, "bash", {}, config)
            verdict = module.detect_tool_loop(history, "bash", {}, config)
        assert verdict["level"] == "critical"
        assert not run.doom_loop_fired
        if is_async:
            assert asyncio.run(agent._doom_loop_approved_async("bash", {}, verdict)) is approves
        else:
            assert agent._doom_loop_approved("bash", {}, verdict) is approves
        assert run.doom_loop_fired
    assert fired(capture) == [
        event("repeated_action", DETECTION, "warn", "bash", 2, "generic_repeat", doom_loop=False),
        event("repeated_action", DETECTION, action, "bash", 3, "generic_repeat"),
    ]


# When an alarm is over ------------------------------------------------------------------------------------


def test_a_new_turn_of_a_loop_guard(capture: Capture) -> None:
    guard = LoopGuard()
    step = loop_guard_of("read_file", guard)
    with loop("writer"):
        for number in range(1, 6):
            step(number)
        guard.reset_turn()
        for number in range(1, 6):
            step(number)
    assert [told["rule"] for told in fired(capture)] == ["no_progress_warn"] * 2


def test_another_tool_of_a_loop_guard(capture: Capture) -> None:
    guard = LoopGuard()
    with loop("writer"):
        for number in range(1, 6):
            loop_guard_of("read_file", guard, f"line {number}")(number)
            loop_guard_of("bash", guard, f"row {number}")(number)
    assert [(told["tool"], told["count"]) for told in fired(capture)] == [("bash", 3), ("read_file", 5)]


def test_progress_ends_the_alarm_of_a_loop_guard(capture: Capture) -> None:
    guard = LoopGuard(
        LoopGuardConfig(
            idempotent_warn_threshold=99,
            idempotent_block_threshold=99,
            idempotent_halt_threshold=99,
            no_progress_halt=99,
        )
    )
    with loop("writer"):
        for result in "aaaabcccc":
            loop_guard_of("read_file", guard, result)(1)
    assert [told["rule"] for told in fired(capture)] == ["no_progress_warn"] * 2


def test_calls_of_a_permissions_detector_have_alarms_of_their_own(capture: Capture) -> None:
    detector = PermissionsDetector()
    with loop("writer"):
        for command in ("ls", "ls", "ls", "ls", "pwd", "pwd", "pwd", "pwd", "ls"):
            detector.record_and_check("bash", {"command": command})
        detector.reset_tool("bash")
        for _ in range(4):
            detector.record_and_check("bash", {"command": "ls"})
    assert [told["rule"] for told in fired(capture)] == ["identical_calls"] * 3
    assert capture.value("loopeval.doom_loop.fired") == 2  # the third is on the first one's streak


def test_a_reset_history_of_tool_calls(capture: Capture) -> None:
    import praisonaiagents.agent.loop_detection as module  # noqa: PLC0415 - looked up when it is called

    history: list[Any] = []
    config = LoopDetectionConfig(enabled=True, warn_threshold=3, critical_threshold=9)
    with loop("writer"):
        for _ in range(2):
            for _ in range(5):
                module.record_tool_call(history, "bash", {}, config)
                module.detect_tool_loop(history, "bash", {}, config)
            module.reset_matching_history(history, "bash", {})
    assert [told["count"] for told in fired(capture)] == [3, 3]


def test_a_new_session_of_a_detector(capture: Capture) -> None:
    detector = DoomLoopDetector()
    with loop("writer"):
        for _ in range(2):
            for _ in range(8):
                detector.record_response("the same fifty characters of an answer, word by word")
            detector.record_action("answer", {}, "", success=True)
            detector.record_action("answer", {}, "", success=True)
            detector.start_session()
    assert [told["kind"] for told in fired(capture)] == ["repeated_output"] * 2


# Failures, other versions, and the end --------------------------------------------------------------------


def test_what_a_guard_found_before_it_raised(capture: Capture) -> None:
    class Fragile(DoomLoopTracker):
        def is_doom_loop(self) -> bool:
            raise ValueError("broken")

    tracker = Fragile()

    class Delegate(DoomLoopDetector):
        def record_action(self, *args: Any, **kwargs: Any) -> None:
            super().record_action(*args, **kwargs)
            if len(self._actions) == 3:
                raise ValueError("broken")

    tracker._delegate = Delegate()
    with loop("writer"):
        for _ in range(2):
            tracker.record("bash", {}, "", True)
        with pytest.raises(ValueError, match="broken"):
            tracker.record("bash", {}, "", True)
    assert [told["kind"] for told in fired(capture)] == ["repeated_action"]


def test_every_part_is_followed_in_this_version(
    plain_capture: Capture, plugin: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for patch in PATCHES:
        importlib.import_module(patch.module)
    plain_capture.instrument()
    assert [line for line in caplog.messages if "is not followed" in line] == []


def test_a_version_without_a_seam_loses_that_part_alone(
    plain_capture: Capture, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(DoomLoopTracker, "get_recovery_action")
    plain_capture.instrument()
    record = DoomLoopTracker.record
    plain_capture.instrument()
    (line,) = [line for line in caplog.messages if "is not followed" in line]
    assert line.endswith(
        "in its doom-loop trackers: type object 'DoomLoopTracker' has no attribute 'get_recovery_action'"
    )
    assert not hasattr(record, "__wrapped__")  # what was patched of it is taken back
    assert hasattr(DoomLoopDetector.record_action, "__wrapped__")
    assert dict(errors.counts) == {}


def test_nothing_after_uninstrument(capture: Capture, plugin: Any) -> None:
    import praisonaiagents.agent.loop_detection as module  # noqa: PLC0415 - looked up when it is called

    patched = [
        (DoomLoopDetector, "is_doom_loop"),
        (DoomLoopTracker, "record"),
        (PermissionsDetector, "check"),
        (LoopGuard, "check"),
        (ObservabilityHooks, "emit"),
        (module, "detect_tool_loop"),
        (plugin, "detect_tool_loop"),
    ]
    assert all(hasattr(getattr(owner, name), "__wrapped__") for owner, name in patched)
    uninstrument()
    # The plugin was imported while the function was patched, and keeps that: it is inert.
    assert [name for owner, name in patched[:-1] if hasattr(getattr(owner, name), "__wrapped__")] == []
    with loop("writer"):
        for step in (detector_of(), tracker_of(), permissions_detector(), loop_guard_of("bash")):
            for number in range(1, 9):
                step(number)
        for _ in range(22):
            plugin._loop_detection_hook(hook_input())
    assert fired(capture) == []


def test_guards_work_the_same_without_and_with_us(plain_capture: Capture) -> None:
    def decisions() -> list[Any]:
        guard, told = LoopGuard(), []
        for _ in range(9):
            told.append(guard.check("bash", {}).code)
            guard.record("bash", {}, True, result="same")
        permissions = PermissionsDetector()
        told += [permissions.record_and_check("bash", {}).is_loop for _ in range(5)]
        tracker = DoomLoopTracker()
        for _ in range(3):
            tracker.record("bash", {}, "", True)
        told += [tracker.get_recovery_action() for _ in range(5)]
        return told

    bare = decisions()
    plain_capture.instrument()
    assert decisions() == bare
    assert dict(errors.counts) == {}
