"""Judging a tool call: recognise it, put it into its unit, weigh time and change, ask the evidence."""

from collections.abc import Sequence
from typing import Final

from otel_loopeval.detect.clock import Clock
from otel_loopeval.detect.effects import command_looks, looks_by_name
from otel_loopeval.detect.evidence import Finding
from otel_loopeval.detect.identity import canonical
from otel_loopeval.detect.lane import Lane
from otel_loopeval.detect.patience import WAIT, is_patient, slack, waits_on_purpose
from otel_loopeval.detect.recognition import Recognised, Recogniser
from otel_loopeval.detect.sighting import Sighting, pack_first
from otel_loopeval.detect.steps import ToolCall

_GAP: Final = 8
_LONG: Final = 100

Found = Sequence[tuple[int, str, Finding]]
"""Rank and name of the evidence, and what it found."""


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
        self.found: Found = ()


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

    def judge(self, step: ToolCall, lane: Lane, index: int) -> Verdict | None:  # noqa: PLR0915 - hot: written out
        """Judge a call.

        Args:
            step: The call.
            lane: Lane of its agent.
            index: Index of the step.

        Returns:
            The verdict, valid until the next call of this method; ``None`` if the call is news.
        """
        turn = step.turn
        if turn is not None and type(turn) is not int and type(turn) is not str:
            turn = canonical(turn)[0]
        joins = turn is not None and turn == lane.turn
        lane.turn = turn
        lane.called = True
        call = self._recogniser.recognise(step, lane, joins=joins)
        patient = False
        clock = self._clock
        # Without times, and with nothing to be patient about, there is nothing to weigh.
        if step.end_ns is not None or step.start_ns is not None or call.same or clock.idle != lane.idle:
            patient = self._waited(step, lane, call, joins=joins)
        stale = call.same and not patient
        if call.blind:
            member = hash(("blind", index))
        elif call.own_key == lane.own_key and call.raw == lane.got and not joins:
            # The very same as the step before, under whatever identity that one was given.
            member = lane.members[-1]
        else:
            member = hash((call.key, call.got))
        if joins:
            unit = lane.join(member, index)
            unit.stale = unit.stale and stale
            unit.normalised = unit.normalised or call.normalised
            unit.error = unit.error and call.error
            if unit.tool != call.tool:
                unit.tool = None
        else:
            unit = lane.open(member, index)
            unit.stale = stale
            unit.normalised = call.normalised
            unit.error = call.error
            unit.tool = call.tool
        # Under other arguments, the same long text says that asking on leads nowhere.
        unit.echoes = (
            call.raw == lane.got
            and not joins
            and len(call.text) >= _LONG
            and unit.tool == unit.previous_tool
            and call.own_key != lane.own_key
            and looks_by_name(call.tool[:200]) is True
        )
        lane.got = call.raw
        lane.own_key = call.own_key
        known = call.sighting
        if known is None:
            self._first_sight(call, lane, index)
            unit.sightings = 1
            # A new call that worked ends every streak; that it worked is asked only where its tool may fail.
            asks = unit.echoes or call.error or (unit.tool == unit.previous_tool and call.failed)
        else:
            self._again(call, known, lane, index, stale=stale)
            asks = stale or call.failed
        if not stale:
            lane.news()
        found = self._ask(call, lane) if asks and not (patient or call.blind) else ()
        call.release()
        if known is None and not found:
            return None
        verdict = self._verdict
        verdict.redundant = stale and member in lane.previous_members
        verdict.repeats = 0 if known is None else known.total
        verdict.normalised = call.normalised
        verdict.found = found
        return verdict

    def _waited(self, step: ToolCall, lane: Lane, call: Recognised, *, joins: bool) -> bool:
        clock = self._clock
        duration = clock.see(step.start_ns, step.end_ns)
        if (duration >= WAIT or call.same) and waits_on_purpose(call, duration, clock):
            clock.idle += max(duration, self._poll_gap)
        pause = clock.idle - lane.idle
        lane.idle = clock.idle
        patient = (call.same or call.error) and is_patient(call, lane, pause, duration, self._poll_gap)
        if not joins:
            lane.pause = pause
        return patient

    def _first_sight(self, call: Recognised, lane: Lane, index: int) -> None:
        if call.blind:
            lane.changed()
            return
        if not call.error:
            # What may have an effect and worked is a change.
            looks = looks_by_name(call.tool[:200])
            if looks is None:
                looks = command_looks(call.arguments)
            if not looks and not call.failed:
                lane.changed()
        packed = pack_first(index, lane.mark, call.got)
        self._recogniser.seen.put(call.key, packed)
        if call.own_key != call.key:
            self._recogniser.seen.put(call.own_key, packed)

    def _again(self, call: Recognised, known: Sighting, lane: Lane, index: int, *, stale: bool) -> None:
        if not stale:
            # Its result moved on, or time went by.
            lane.changed()
        times, first = 1, index
        since = known.units_since(lane.mark) if stale else None
        if since is not None and since <= _GAP:
            # Twice in one turn is one sighting.
            times, first = known.times + (since > 0), known.first
        unit = lane.tools.unit
        unit.sightings, unit.sighted, unit.sighted_first = times, call.key, first
        now = Sighting(known.total + 1, times, call.volatile, first, lane.mark, call.got)
        packed = now.pack()
        self._recogniser.seen.put(call.key, packed)
        if call.own_key != call.key:
            self._recogniser.seen.put(call.own_key, packed)

    def _ask(self, call: Recognised, lane: Lane) -> Found:
        unit = lane.tools.unit
        unit.slack = slack(call, self._clock)
        unit.text = call.text
        unit.forget_outcome()
        found = lane.tools.judge()
        unit.text = ""
        return found
