"""Guard events of every shape become our GuardEvent, and none of them raises."""
# pyright: reportMissingTypeStubs=false
# praisonaiagents ships no types.

import enum
import types
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from praisonaiagents.agent.loop_detection import LoopDetectionConfig, detect_tool_loop, record_tool_call
from praisonaiagents.escalation.doom_loop import DoomLoopEvent, DoomLoopType, RecoveryAction
from praisonaiagents.escalation.loop_guard import LoopGuard
from praisonaiagents.permissions.doom_loop import DoomLoopDetector
from pydantic import BaseModel

from otel_loopeval import semconv
from otel_loopeval.health import GuardEvent, guard_event_of, is_doom_loop_event, tally_guard_events


class Kind(enum.Enum):
    STUCK = "no_progress"
    FINE = "fine"


class Model(BaseModel):
    type: str = "repetition"
    tool: str = "search"


class Hostile:
    """Everything about it raises, its class included."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"hands off {name}")

    def __bool__(self) -> bool:
        raise RuntimeError("neither")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("incomparable")

    __hash__ = None  # pyright: ignore[reportAssignmentType] - unhashable on purpose

    def __str__(self) -> str:
        raise RuntimeError("no text")

    def __index__(self) -> int:
        raise RuntimeError("no number")

    def __iter__(self) -> Iterator[Any]:
        raise RuntimeError("no items")


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("doom_loop", "loop_detected"),
        ("doom-loop", "loop_detected"),
        ("doomloop", "loop_detected"),
        ("loop_detected", "loop_detected"),
        ("repetition", "repeated_action"),
        ("repeated_action", "repeated_action"),
        ("repeated_failure", "repeated_failure"),
        ("no_progress", "no_progress"),
        ("circular_plan", "circular_plan"),
        ("resource_exhaustion", "resource_exhaustion"),
        ("repeated_output", "repeated_output"),
    ],
)
def test_the_eleven_strings_have_a_kind(word: str, kind: str) -> None:
    expected = GuardEvent(kind=kind, doom_loop=True)
    assert guard_event_of({"type": word}) == expected
    assert guard_event_of(SimpleNamespace(event=word.upper())) == expected
    assert guard_event_of({"loop_type": word}) == expected


def test_a_doom_loop_of_another_type_is_other() -> None:
    assert guard_event_of({"loop_type": "banana"}) == GuardEvent(kind="other", doom_loop=True)
    assert guard_event_of({"doom_loop": True, "type": "step_end"}) == GuardEvent(kind="other", doom_loop=True)


def test_a_doom_loop_that_names_no_type_is_a_detected_loop() -> None:
    assert guard_event_of({"is_loop": True}) == GuardEvent(kind="loop_detected", doom_loop=True)
    assert guard_event_of({"doom_loop": True}) == GuardEvent(kind="loop_detected", doom_loop=True)


def test_the_fields_of_a_dict() -> None:
    event = guard_event_of(
        {
            "type": "repeated_failure",
            "tool": "search",
            "count": 4,
            "rule": "same_error",
            "action": "HALT",
            "source": "detector",
            "reason": "four times the same error",
            "iteration": 2,
            "agent": "writer",
            "severity": "doom_loop",
            "key": "search:1",
            "time_ns": 1_700_000_000_000_000_001,
        }
    )
    assert event == GuardEvent(
        kind="repeated_failure",
        doom_loop=True,
        source="detector",
        action="halt",
        tool="search",
        count=4,
        iteration=2,
        rule="same_error",
        agent="writer",
        reason="four times the same error",
        severity="doom_loop",
        key="search:1",
        time_ns=1_700_000_000_000_000_001,
    )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"tool_name": "t"}, {"tool": "t"}),
        ({"tool": None, "tool_name": "t"}, {"tool": "t"}),
        ({"tool": 3}, {"tool": None}),
        ({"loop_count": 7}, {"count": 7}),
        ({"count": True}, {"count": None}),
        ({"count": 2.5}, {"count": None}),
        ({"count": 2**70}, {"count": None}),
        ({"description": "d"}, {"reason": "d"}),
        ({"message": "m"}, {"reason": "m"}),
        ({"reason": "", "message": "m"}, {"reason": "m"}),
        ({"reason": ["r"]}, {"reason": None}),
        ({"action": "explode"}, {"action": "observe"}),
        ({"action": 3}, {"action": "observe"}),
        ({"source": "somewhere"}, {"source": "application"}),
        ({"source": ["detector"]}, {"source": "application"}),
        ({"severity": "bad"}, {"severity": None}),
        ({"timestamp": 1_700_000_000.5}, {"time_ns": 1_700_000_000_500_000_000}),
        ({"timestamp": 12.5}, {"time_ns": None}),
        ({"timestamp": float("nan")}, {"time_ns": None}),
        ({"timestamp": 1e30}, {"time_ns": None}),
    ],
    ids=repr,
)
def test_fields_under_other_names_and_of_wrong_types(
    fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    from_dict, from_object = guard_event_of(fields), guard_event_of(SimpleNamespace(**fields))
    assert from_dict == from_object == GuardEvent(**expected)


def test_a_doom_loop_event_of_the_package() -> None:
    event = DoomLoopEvent(
        loop_type=DoomLoopType.CIRCULAR_PLAN,
        description="plan returns to its start",
        action_history=["a", "b"],
        recovery_action=RecoveryAction.ESCALATE_MODEL,
        timestamp=1_700_000_000.0,
    )
    assert guard_event_of(event) == GuardEvent(
        kind="circular_plan",
        doom_loop=True,
        action="recover",
        reason="plan returns to its start",
        time_ns=1_700_000_000_000_000_000,
    )


def test_a_result_of_the_packages_permission_guard() -> None:
    guard = DoomLoopDetector()
    results = [guard.record_and_check("search", {"q": "x"}) for _ in range(5)]
    fired = [guard_event_of(result) for result in results if result.is_loop]
    assert fired
    assert {(event.kind, event.doom_loop, event.tool) for event in fired} == {
        ("loop_detected", True, "search")
    }
    assert fired[0].count is not None
    assert fired[0].reason
    calm = guard_event_of(results[0])
    assert (calm.kind, calm.doom_loop) == ("other", False)


def test_decisions_of_the_packages_loop_guard() -> None:
    guard = LoopGuard()
    seen: dict[str, GuardEvent] = {}
    for _ in range(10):
        guard.record("write_file", {"path": "a"}, True)
        decision = guard.check("write_file", {"path": "a"})
        assert is_doom_loop_event(decision) is False  # as in the package
        event = guard_event_of(decision)
        seen.setdefault(event.action, event)
    assert {action: (e.kind, e.doom_loop, e.rule, e.tool, e.count) for action, e in seen.items()} == {
        "observe": ("other", False, "mutating_allow", None, None),
        "warn": ("repeated_action", False, "mutating_warn", "write_file", 3),
        "halt": ("no_progress", True, "no_progress_halt", None, 8),
    }
    assert seen["halt"].reason == "No progress detected in 8 tool calls. Agent may be stuck."


def test_verdicts_of_the_packages_tool_loop_detection() -> None:
    history: list[Any] = []
    config = LoopDetectionConfig(enabled=True, warn_threshold=3, critical_threshold=5)
    verdicts: list[Any] = []
    for _ in range(6):
        record_tool_call(history, "search", {"q": "x"}, config)
        verdicts.append(detect_tool_loop(history, "search", {"q": "x"}, config))
    calm, critical = guard_event_of(verdicts[0]), guard_event_of(verdicts[-1])
    assert calm == GuardEvent()
    assert verdicts[-1]["level"] == "critical"
    assert (critical.doom_loop, critical.action, critical.rule) == (True, "block", "generic_repeat")
    assert (critical.kind, critical.count) == ("repeated_action", verdicts[-1]["count"])
    warned = next(guard_event_of(v) for v in verdicts if v.get("level") == "warning")
    assert (warned.doom_loop, warned.action) == (False, "warn")


def test_a_bare_enum_member() -> None:
    assert guard_event_of(Kind.STUCK) == GuardEvent(kind="no_progress", doom_loop=True)
    assert guard_event_of(DoomLoopType.REPEATED_OUTPUT) == GuardEvent(kind="repeated_output", doom_loop=True)
    assert guard_event_of(Kind.FINE) == GuardEvent()


def test_our_own_event_stays_as_it_is() -> None:
    event = GuardEvent(
        kind="repeated_action", doom_loop=True, source="detector", action="warn", first_step=3, last_step=9
    )
    assert guard_event_of(event) == event


def test_our_own_event_with_values_of_no_enum() -> None:
    event = GuardEvent(kind="doom-loop", source="me", action="shout", doom_loop=True, last_step=2)
    assert guard_event_of(event) == GuardEvent(
        kind="loop_detected", source="application", action="observe", doom_loop=True, last_step=2
    )


def test_our_own_event_with_values_of_other_types() -> None:
    """What a span could not carry does not get that far."""
    odd: Any = object()
    event = GuardEvent(kind="other", tool=odd, count=2**70, iteration=odd, rule=odd, agent=odd, reason=odd)
    assert guard_event_of(event) == GuardEvent(kind="other")


@pytest.mark.parametrize(
    "event",
    [
        "doom_loop",
        b"doom_loop",
        None,
        3,
        2.5,
        [],
        [{"type": "doom_loop"}],
        object(),
        object,
        len,
        {},
    ],
    ids=lambda value: type(value).__name__,
)
def test_anything_else_is_other_and_no_doom_loop(event: Any) -> None:
    assert is_doom_loop_event(event) is False
    assert guard_event_of(event) == GuardEvent(kind="other", doom_loop=False)


def test_an_object_that_refuses_everything() -> None:
    assert is_doom_loop_event(Hostile()) is False
    assert guard_event_of(Hostile()) == GuardEvent(kind="other", doom_loop=False)


@pytest.mark.parametrize("name", ["is_loop", "loop_type", "doom_loop", "doom_loop_fired", "type", "event"])
def test_values_that_raise_in_any_field(name: str) -> None:
    event = {name: Hostile(), "tool": Hostile(), "count": Hostile(), "source": Hostile(), "kind": Hostile()}
    for shape in (event, SimpleNamespace(**event)):
        assert is_doom_loop_event(shape) is (name == "loop_type")
        assert guard_event_of(shape).doom_loop is (name == "loop_type")
        assert guard_event_of(shape).tool is None


def test_a_key_that_raises_when_compared() -> None:
    class Key(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            raise RuntimeError("incomparable")

        def __hash__(self) -> int:
            return hash(str(self))

    assert is_doom_loop_event({Key("is_loop"): True, "type": "doom_loop"}) is True
    assert guard_event_of({Key("is_loop"): True, "type": "doom_loop"}).doom_loop is True


FIELDS = [
    *("is_loop", "loop_type", "doom_loop", "doom_loop_fired", "type", "event", "kind", "rule", "code"),
    *("detector", "stuck", "level", "action", "recovery_action", "metadata", "source", "tool", "tool_name"),
    *("count", "loop_count", "iteration", "timestamp", "time_ns", "severity", "key", "reason"),
    *("description", "message", "agent"),
]
anything = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=5),
        st.binary(max_size=5),
        st.sampled_from([Kind.STUCK, object(), DoomLoopType.NO_PROGRESS, "halt", "critical", "doom_loop"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(
            st.sampled_from(FIELDS),
            inner,
            max_size=6,
        ),
    ),
    max_leaves=8,
)


@settings(max_examples=500, deadline=None)
@given(value=anything, as_object=st.booleans())
def test_no_input_raises_and_every_value_is_in_its_enum(value: Any, as_object: bool) -> None:
    event = SimpleNamespace(**value) if as_object and isinstance(value, dict) else value
    read = guard_event_of(event)
    assert read.kind in semconv.GUARD_KINDS
    assert read.source in semconv.GUARD_SOURCES
    assert read.action in semconv.GUARD_ACTIONS
    for text in (read.tool, read.rule, read.agent, read.reason, read.severity, read.key):
        assert text is None or type(text) is str
    for number in (read.count, read.iteration, read.time_ns):
        assert number is None or -(2**63) <= number < 2**63
    if is_doom_loop_event(event):
        assert read.doom_loop is True
    assert guard_event_of(read) == read


def test_collections_are_counted_by_their_length() -> None:
    fires, calm = {"type": "doom_loop"}, {"type": "info"}
    assert tally_guard_events(None) == (0, False)
    assert tally_guard_events([]) == (0, False)
    assert tally_guard_events([calm, fires]) == (2, True)
    assert tally_guard_events((calm,)) == (1, False)
    assert tally_guard_events({"a": fires, "b": calm}.values()) == (2, True)


def test_single_events_are_one_event() -> None:
    assert tally_guard_events({"type": "doom_loop", "reason": "r"}) == (1, True)
    assert tally_guard_events(SimpleNamespace(is_loop=False)) == (1, False)
    assert tally_guard_events(GuardEvent(doom_loop=True)) == (1, True)
    assert tally_guard_events(Model()) == (1, True)  # can be iterated over: its fields
    assert tally_guard_events(object()) == (1, False)
    assert tally_guard_events(7) == (1, False)


def test_iterables_are_read_to_their_end() -> None:
    assert tally_guard_events(iter([{"type": "doom_loop"}, {}, {}])) == (3, True)
    assert tally_guard_events(Model() for _ in range(2)) == (2, True)
    assert tally_guard_events(types.MappingProxyType({"type": "doom_loop"})) == (1, False)  # as the package


def test_collections_that_raise_are_no_error() -> None:
    assert tally_guard_events(Hostile()) == (1, False)
