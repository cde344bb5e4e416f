"""Records that are made quickly are the records themselves."""

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, field

import pytest

from otel_loopeval.detect.evidence import Ladder
from otel_loopeval.detect.steps import ModelOutput, ToolCall
from otel_loopeval.health.drafts import quick
from otel_loopeval.health.guards import GuardEvent


@pytest.mark.parametrize("record", [GuardEvent, ToolCall, ModelOutput])
def test_it_is_another_way_to_make_them(record: type[object]) -> None:
    assert quick(record) is not record


def test_what_is_made_is_the_record() -> None:
    made = quick(ToolCall)("search", {"q": 1}, turn=3, end_ns=7)
    plain = ToolCall("search", {"q": 1}, turn=3, end_ns=7)
    assert type(made) is ToolCall
    assert made == plain
    assert repr(made) == repr(plain)
    assert pickle.loads(pickle.dumps(made)) == copy.copy(made) == plain
    assert hash(quick(GuardEvent)(tool="x")) == hash(GuardEvent(tool="x"))
    with pytest.raises(FrozenInstanceError):
        made.name = "other"  # type: ignore[reportAttributeAccessIssue]  # that is the point
    with pytest.raises(TypeError):
        quick(ToolCall)("search", {}, nonsense=1)  # type: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        quick(ToolCall)("search")  # type: ignore[reportCallIssue]


def test_defaults_that_are_made_are_made_for_each() -> None:
    @dataclass(frozen=True, slots=True)
    class Listed:
        values: list[int] = field(default_factory=list[int])

    first, second = quick(Listed)(), quick(Listed)()
    assert type(first) is Listed
    assert first.values == []
    assert first.values is not second.values


def test_records_that_check_themselves_are_left_alone() -> None:
    assert quick(Ladder) is Ladder
    with pytest.raises(ValueError, match="must be counts"):
        quick(Ladder)(3, 2, 1)


def test_records_without_slots_are_left_alone() -> None:
    @dataclass(frozen=True)
    class Open:
        value: int = 0

    assert quick(Open) is Open
