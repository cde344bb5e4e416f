"""Judging a tool call: recognise it, put it into its unit, weigh time and change, ask the evidence."""

from typing import Final

from otel_loopeval.detect.clock import Clock
from otel_loopeval.detect.effects import only_looks
from otel_loopeval.detect.evidence import Finding, Unit
from otel_loopeval.detect.identity import canonical
from otel_loopeval.detect.lane import Lane
from otel_loopeval.detect.outcomes import looks_failed
from otel_loopeval.detect.patience import is_patient, slack, waits_on_purpose
from otel_loopeval.detect.recognition import Recognised, Recogniser
from otel_loopeval.detect.sighting import Sighting, pack_first
from otel_loopeval.detect.steps import ToolCall

_MEMBERS: Final = 16
_GAP: Final = 8


class Verdict:
    """What was made of a call. One object, reused for every call of the run.

    Attributes:
        redundant: Same work as the unit before, and nothing new.
        repeats: Earlier sightings of the call.
        normalised: Sameness rests on normalised arguments or results.
        found: What the evidence found in the unit.
    """

    __slots__ = ("found", "normalised", "redundant", "repeats")

    def __init__(self) -> None:
        self.redundant = self.normalised = False
        self.repeats = 0
        self.found: list[tuple[int, str, Finding]] = []


class CallJudge:
    """Judges the tool calls of a run.

    Args:
        recogniser: Recognises calls.
        clock: Clock of the run.
        poll_gap: Pause from which on a repetition is patience, in nanoseconds.
    """

    __slots__ = ("_clock", "_poll_gap", "_recogniser", "_verdict")

    def __init__(self, recogniser: Recogniser, clock: Clock, poll_gap: int) -> None:
        self._recogniser = recogniser
        self._clock = clock
        self._poll_gap = poll_gap
        self._verdict = Verdict()

    def judge(self, step: ToolCall, lane: Lane, index: int) -> Verdict | None:
        """Judge a call.

        Args:
            step: The call.
            lane: Lane of its agent.
            index: Index of the step.

        Returns:
            The verdict, valid until the next call of this method; ``None`` if the call is news.
        """
        clock = self._clock
        duration = clock.see(step.start_ns, step.end_ns)
        turn = step.turn
        if turn is not None and type(turn) is not int and type(turn) is not str:
            turn = canonical(turn)[0]
        joins = turn is not None and turn == lane.turn
        call = self._recogniser.recognise(step, lane, joins=joins)
        if waits_on_purpose(call, duration, clock):
            clock.idle += max(duration, self._poll_gap)
        pause = clock.idle - lane.idle
        lane.idle = clock.idle
        lane.turn = turn
        failed = step.error is not None
        patient = (call.same or failed) and is_patient(
            call, lane, pause, duration, self._poll_gap, failed=failed
        )
        if not joins:
            lane.pause = pause
        stale = call.same and not patient
        member = hash((call.key, call.got)) if not call.blind else hash(("blind", index))
        unit = _place(lane, call, member, index, joins=joins, stale=stale, failed=failed)
        if call.blind:
            lane.epoch += 1
            lane.news()
            return None
        self._remember(call, lane, unit, index, stale=stale, patient=patient, failed=failed)
        if patient or not (stale or failed or unit.tool == unit.previous_tool):
            lane.news()
            found: list[tuple[int, str, Finding]] = []
        else:
            unit.slack = slack(call, clock)
            unit.text = call.text
            found = lane.tools.judge()
            unit.text = ""
            if not stale:
                lane.outputs.news()
        if call.sighting is None and not found:
            return None
        verdict = self._verdict
        verdict.redundant = stale and member in lane.previous_members
        verdict.repeats = call.sighting.total if call.sighting is not None else 0
        verdict.normalised = call.normalised
        verdict.found = found
        return verdict

    def _remember(
        self,
        call: Recognised,
        lane: Lane,
        unit: Unit,
        index: int,
        *,
        stale: bool,
        patient: bool,
        failed: bool,
    ) -> None:
        known = call.sighting
        if known is None:
            # A change is what may have an effect and worked; failures are read from the text too.
            if not (failed or only_looks(call.tool, call.arguments) or looks_failed(call.text)):
                lane.epoch += 1
            unit.sightings, unit.sighted, unit.sighted_first = 1, call.key, index
            self._recogniser.seen.put(call.key, pack_first(lane.epoch, index, lane.ordinal, call.got))
            return
        if patient or not call.same:
            lane.epoch += 1
        count, first = 1, index
        if stale and known.in_epoch(lane.epoch) and lane.ordinal - known.ordinal <= _GAP:
            # Twice in one turn is one sighting.
            count, first = known.times + (lane.ordinal != known.ordinal), known.first
        unit.sightings, unit.sighted, unit.sighted_first = count, call.key, first
        now = Sighting(known.total + 1, count, lane.epoch, call.volatile, first, lane.ordinal, call.got)
        self._recogniser.seen.put(call.key, now.pack())


def _place(
    lane: Lane, call: Recognised, member: int, index: int, *, joins: bool, stale: bool, failed: bool
) -> Unit:
    if joins:
        unit = lane.tools.unit
        if member not in lane.members:
            if len(lane.members) < _MEMBERS:
                lane.members = (*lane.members, member)
                unit.id = hash(tuple(sorted(lane.members))) or 1
            else:
                unit.id = hash((unit.id, member)) or 1
        unit.last = index
        unit.stale = unit.stale and stale
        unit.known = unit.known and call.known
        unit.normalised = unit.normalised or call.normalised
        unit.error = unit.error and failed
        if unit.tool != call.tool:
            unit.tool = None
    else:
        unit = lane.tools.open(index)
        lane.ordinal += 1
        lane.previous_members = lane.members
        lane.members = (member,)
        unit.id = member or 1
        unit.last = index
        unit.stale = stale
        unit.known = call.known
        unit.normalised = call.normalised
        unit.error = failed
        unit.tool = call.tool
    unit.forget_outcome()
    lane.got = call.raw
    return unit
