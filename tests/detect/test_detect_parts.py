"""The parts of the detector: packed sightings, bounded memory, ladders, and evidence of one's own."""

import pytest
from detect_steps import events
from hypothesis import given
from hypothesis import strategies as st

from otel_loopeval.detect import ToolCall
from otel_loopeval.detect.detector import default_evidence
from otel_loopeval.detect.effects import command_looks, looks_by_name
from otel_loopeval.detect.evidence import TOOLS, Finding, Ladder, Unit
from otel_loopeval.detect.exact import Exact
from otel_loopeval.detect.memory import Sightings
from otel_loopeval.detect.sighting import MARK, MASK64, Sighting, pack_first

small = st.integers(0, 0xFFFF)


@given(small, small, st.booleans(), st.integers(0, 2**32 - 1), st.integers(0, MARK), st.integers(0, MASK64))
def test_a_sighting_survives_packing(total: int, times: int, volatile: bool, first: int, mark: int, got: int):
    sighting = Sighting(total, times, volatile, first, mark, got)
    assert Sighting.unpack(sighting.pack()) == sighting
    assert pack_first(first, mark, got) == Sighting(1, 1, False, first, mark, got).pack()


def test_counts_stop_growing_before_they_spill_over():
    packed = Sighting(70_000, 80_000, False, 1, 2, 3).pack()
    assert Sighting.unpack(packed) == Sighting(65_535, 65_535, False, 1, 2, 3)


def test_units_since_a_sighting_are_counted_unless_something_changed():
    sighting = Sighting(1, 1, False, 0, 5 << 16 | 7, 0)
    assert sighting.units_since(9 << 16 | 7) == 4
    assert sighting.units_since(9 << 16 | 8) is None


def test_memory_keeps_the_latest_and_forgets_the_rest():
    seen = Sightings(10)
    for key in range(100):
        seen.put(key, key * key)
    assert [key for key in range(100) if seen.get(key) is not None] == list(range(80, 100))
    seen.put(99, 1)
    assert seen.get(99) == 1
    seen.clear()
    assert seen.get(99) is None


def test_a_ladder_says_how_bad_a_count_is():
    ladder = Ladder(2, 3, 4)
    assert [ladder.level(count) for count in range(1, 6)] == [0, 1, 2, 3, 3]
    assert [ladder.level(count, 2.0) for count in range(3, 9)] == [0, 1, 1, 2, 2, 3]
    assert ladder.finding("other", 7, 4, 0) == Finding("other", 7, 4, 0, level=3, grew=True)
    assert ladder.finding("other", 7, 5, 0).grew is False
    with pytest.raises(ValueError, match="1 <= notice <= warning <= doom_loop, not 3, 2, 4"):
        Ladder(3, 2, 4)


def test_limits_are_options_of_each_kind_of_evidence():
    found = events([ToolCall("ls", {}, "x")] * 9, evidence=[Exact(Ladder(3, 5, 7))])
    assert [(at, event.severity) for at, event in found] == [(3, "notice"), (5, "warning"), (7, "doom_loop")]


class ManyCalls:
    """Evidence of someone else: a tool called more than ten times, failing or coming back."""

    name = "many_calls"
    track = TOOLS
    strict = False
    fresh = 0

    def advance(self, state: int, unit: Unit) -> tuple[int, Finding | None]:
        count = state + 1
        if count <= 2:
            return count, None
        return count, Finding("resource_exhaustion", hash(unit.tool), count, unit.first, 3)


def test_evidence_can_be_added():
    steps = [ToolCall("ls", {"n": n % 3}, "x") for n in range(9)]
    found = events(steps, evidence=[*default_evidence()[:2], ManyCalls()])
    assert [(at, event.rule, event.kind, event.doom_loop) for at, event in found] == [
        (6, "many_calls", "resource_exhaustion", True)
    ]


@pytest.mark.parametrize(
    ("tool", "looks"),
    [
        ("read_file", True),
        ("getWeather", True),
        ("run_tests", True),
        ("Search", True),
        ("edit_file", False),
        ("createTicket", False),
        ("update_tests", False),
        ("frobnicate", False),
        ("bash", None),
        ("run_command", None),
    ],
)
def test_names_tell_looking_from_changing(tool: str, looks: bool | None):
    assert looks_by_name(tool) is looks


def test_commands_tell_looking_from_changing():
    assert command_looks("command=cd /srv && pytest -q 2>&1 | tail -3")
    assert not command_looks("command=pytest -q > out.txt")
    assert not command_looks("command=find . -name x -delete")
    assert not command_looks("command=make install")
