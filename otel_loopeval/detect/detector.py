"""The detector: steps in, observations out."""

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from otel_loopeval import semconv
from otel_loopeval.detect.alarms import Raised
from otel_loopeval.detect.calls import CallJudge
from otel_loopeval.detect.chanting import Chanting
from otel_loopeval.detect.clock import Clock, seconds
from otel_loopeval.detect.cycle import Cycle
from otel_loopeval.detect.error_family import ErrorFamily
from otel_loopeval.detect.evidence import DOOM_LOOP, OUTPUTS, SEVERITIES, TOOLS, AnyEvidence, Finding
from otel_loopeval.detect.exact import Exact
from otel_loopeval.detect.identity import canonical
from otel_loopeval.detect.interleaved import Interleaved
from otel_loopeval.detect.lane import Lane, Track
from otel_loopeval.detect.messages import judge_message
from otel_loopeval.detect.no_progress import NoProgress
from otel_loopeval.detect.normalised import Normalised
from otel_loopeval.detect.observation import NOTHING, Observation
from otel_loopeval.detect.recognition import Recogniser
from otel_loopeval.detect.repeated_output import RepeatedOutput
from otel_loopeval.detect.steps import ModelOutput, Step, ToolCall, UserMessage
from otel_loopeval.health.drafts import quick
from otel_loopeval.health.guards import GuardEvent

_new_event, _new_observation = quick(GuardEvent), quick(Observation)
_LANES: Final = 64
_WORD: Final = re.compile(r"[^\W_]")


def default_evidence() -> tuple[AnyEvidence, ...]:
    """The kinds of evidence that a detector uses unless it is told otherwise.

    Each takes a ladder of counts for ``notice``, ``warning`` and ``doom_loop``; these are the defaults:

    - ``exact`` 2, 3, 4 units in a row with the same calls and results;
    - ``normalised`` the same, where only ids, times, counters or references differ;
    - ``cycle`` 2, 3, 3 rounds of two to five units;
    - ``interleaved`` 4, 5, 6 sightings of a call and result between calls that change nothing;
    - ``error_family`` 3, 4, 5 failures of one kind in a row, under any arguments;
    - ``no_progress`` 6, 8, 12 units in a row without news, or 4, 5, 6 with one long result;
    - ``repeated_output`` 2, 2, 3 times the same message in a row (a third more between calls);
    - ``output_cycle`` 2, 3, 3 rounds of messages;
    - ``chanting`` 6, 8, 10 repeats of a sentence in one message (20 of a word, 5 of a paragraph).

    Counts are raised by a quarter where results are not known, and doubled for an outage without times and
    for actions that are repeated by nature.

    Returns:
        The evidence, the most specific first.
    """
    return (
        Exact(),
        Normalised(),
        Cycle(),
        Interleaved(),
        ErrorFamily(),
        NoProgress(),
        RepeatedOutput(),
        Cycle(track=OUTPUTS),
        Chanting(),
    )


_Tracks = tuple[tuple[AnyEvidence, ...], tuple[Any, ...], tuple[AnyEvidence, ...], tuple[Any, ...]]


def _tracks(evidence: Sequence[AnyEvidence]) -> _Tracks:
    """The evidence for tool calls with its states at the start, and the same for outputs."""
    tools = tuple(kind for kind in evidence if kind.track == TOOLS)
    outputs = tuple(kind for kind in evidence if kind.track == OUTPUTS)
    return tools, tuple(kind.fresh for kind in tools), outputs, tuple(kind.fresh for kind in outputs)


@functools.cache
def _default_tracks() -> _Tracks:
    """Shared by all detectors, since evidence keeps no state of its own: most runs are short."""
    return _tracks(default_evidence())


class DoomLoopDetector:
    """Watches the steps of one run for loops.

    Args:
        tool_identity: Says what identifies a call, in place of its name and arguments: any object, compared
            by what it says; ``None`` to leave it to the detector. If it raises, it is passed over.
        result_identity: Says what identifies the result of a call, likewise.
        user_resets: Whether a message of the user starts the counting anew.
        poll_gap_s: Idle seconds between two looks at the same thing from which on it is patience and no loop;
            half as many if the thing says that it is under way.
        evidence: Kinds of evidence, the most specific first; :func:`default_evidence` unless given.

    Raises:
        ValueError: ``poll_gap_s`` is not a positive number.
    """

    def __init__(
        self,
        tool_identity: Callable[[ToolCall], Any] | None = None,
        result_identity: Callable[[ToolCall], Any] | None = None,
        user_resets: bool = True,
        *,
        poll_gap_s: float = 25.0,
        evidence: Sequence[AnyEvidence] | None = None,
    ) -> None:
        if not poll_gap_s > 0:
            raise ValueError(f"poll_gap_s must be a positive number of seconds, not {poll_gap_s!r}")
        tracks = _default_tracks() if evidence is None else _tracks(evidence)
        self._tools, self._fresh_tools, self._outputs, self._fresh_outputs = tracks
        self._user_resets = user_resets
        self._recogniser = Recogniser(tool_identity, result_identity)
        self._clock = Clock()
        self._calls = CallJudge(self._recogniser, self._clock, seconds(min(poll_gap_s, 1e9)))
        self._lanes: dict[str | None, Lane] = {}
        self._numbers = 0
        self._index = -1

    def observe(self, step: Step) -> Observation:
        """Judge the next step of the run.

        Args:
            step: The step, after it ended; steps in the order in which they ended.

        Returns:
            What the step repeats, and the event to report if a streak grew worse with it.
        """
        self._index = index = self._index + 1
        if isinstance(step, ToolCall):
            agent = step.agent
            # An agent that is no name is turned into one.
            lane = self._lanes.get(agent) if agent is None or type(agent) is str else None
            if lane is None:
                lane = self._lane(agent)
            lane.used = index
            verdict = self._calls.judge(step, lane, index)
            if verdict is None:
                return NOTHING
            raised = lane.alarms.judge(verdict.found, index) if verdict.found else None
            rule = "normalised" if verdict.normalised else "exact"
            evidence = raised.rule if raised else rule if verdict.redundant else None
            event = self._event(raised, step, lane, lane.tools.unit.tool) if raised else None
            return _new_observation(verdict.redundant, verdict.repeats, evidence, event)
        if isinstance(step, ModelOutput):
            return self._message(step, index)
        if isinstance(step, UserMessage):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
            self._clock.skip(step.start_ns)
            if self._user_resets:
                self._recogniser.seen.clear()
                for lane in self._lanes.values():
                    lane.clear()
        return NOTHING

    def _message(self, step: ModelOutput, index: int) -> Observation:
        self._clock.see(step.start_ns, step.end_ns)
        text = step.text
        if type(text) is not str or not text or not _WORD.search(text):
            return NOTHING
        lane = self._lane(step.agent)
        found = judge_message(lane, text, step.turn, index)
        if not found:
            return NOTHING
        raised = lane.alarms.judge(found, index)
        repeats = max(
            (finding.count - 1 for _, rule, finding in found if rule == "repeated_output"), default=0
        )
        evidence = raised.rule if raised else "repeated_output" if repeats else None
        event = self._event(raised, step, lane, None) if raised else None
        return Observation(repeats > 0, repeats, evidence, event)

    def _lane(self, agent: str | None) -> Lane:
        if agent is not None and type(agent) is not str:
            agent = canonical(agent)[0]
        lane = self._lanes.get(agent)
        if lane is None:
            if len(self._lanes) >= _LANES:
                del self._lanes[min(self._lanes.values(), key=lambda known: known.used).agent]
            self._lanes[agent] = lane = Lane(
                agent,
                self._numbers,
                Track(self._tools, self._fresh_tools),
                Track(self._outputs, self._fresh_outputs),
            )
            lane.idle = self._clock.idle
            self._numbers += 1
        lane.used = self._index
        return lane

    def _event(
        self, raised: Raised, step: ToolCall | ModelOutput, lane: Lane, tool: str | None
    ) -> GuardEvent:
        finding: Finding = raised.finding
        severity = SEVERITIES[finding.level]
        time_ns = step.start_ns if step.end_ns is None else step.end_ns
        return _new_event(
            kind=finding.kind,
            doom_loop=severity == DOOM_LOOP,
            source=semconv.SOURCE_DETECTOR,
            action=semconv.ACTION_OBSERVE,
            tool=tool,
            count=finding.count,
            rule=raised.rule,
            agent=lane.agent,
            severity=severity,
            key=f"{raised.streak[0]}:{raised.streak[1]}:{lane.agent}",
            first_step=finding.first_step,
            last_step=self._index,
            time_ns=time_ns,
        )
