"""Spans that tell of no loop, and may be around one: between an agent and its tools, or around the whole.

They are not decoded before a run turns out to be inside of them.
"""

from collections.abc import Callable
from typing import Any, Final

from otel_loopeval.otlp.misfit import Misfit
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.server.traces.counts import Counts
from otel_loopeval.server.traces.intake import Batch, Group, Intake, Others, ids_of
from otel_loopeval.server.traces.limits import Limits
from otel_loopeval.server.traces.open_traces import OpenTraces, Other, Trace
from otel_loopeval.server.traces.waiting import Waiting

Put = Callable[[bytes, Trace, list[SpanData], float], Any]
"""Takes spans into a trace: its key, itself, the spans, the time. The trace may be over after that."""

_WAIT_S: Final = 30.0
"""Seconds that spans of a trace are waited for that tell of a run in it, at most."""
_BESIDE_BYTES: Final = 300
"""What Python takes for a span that is held undecoded, beside its bytes."""


class Surroundings:
    """What may be around runs: of traces that are followed, and of those of which nothing is known yet.

    Args:
        intake: What read the bodies, and decodes.
        traces: The traces that are followed.
        put: Takes what is around a run into its trace.
        limits: How much is held.
        counts: Where it is counted what there was no room for, and what could not be read.
    """

    def __init__(
        self, intake: Intake, traces: OpenTraces, put: Put, *, limits: Limits, counts: Counts
    ) -> None:
        self._intake = intake
        self._traces = traces
        self._put = put
        self._most = limits.max_trace_spans
        self._counts = counts
        self._waiting = Waiting(limits.waiting_bytes, min(limits.idle_s, _WAIT_S))

    def take(self, batch: Batch, whose: bytes, now: float, kept: list[SpanData]) -> None:
        """Take the undecoded spans of a body.

        Args:
            batch: The body.
            whose: The tenant, as the keys of its traces have it.
            now: The time, in seconds of a steady clock.
            kept: Where those go that turn out to be around a run.
        """
        others_of = batch.others
        if whose:
            others_of = {trace_id + whose: others for trace_id, others in others_of.items()}
        # The hot path: nearly all that comes in goes through here.
        open_traces, wait = self._traces.by_key, self._waiting.add
        for key, others in others_of.items():
            trace = open_traces.get(key)
            if trace is None:
                wait(key, others)
            else:
                self._surround(key, trace, others, now, kept)
        self._waiting.grow(batch.size, batch.total, now)

    def wait(self, key: bytes, spans: list[SpanData]) -> None:
        """Keep a while the spans, decoded already, of a trace that nothing is known of."""
        self._waiting.add_decoded(key, spans)

    def recall(self, key: bytes, now: float, kept: list[SpanData]) -> None:
        """A trace turns out to be of interest: what has been seen of it before is around it."""
        others, decoded = self._waiting.pop(key)
        open_traces = self._traces.by_key
        if others and (trace := open_traces.get(key)) is not None:
            self._surround(key, trace, others, now, kept)
        if decoded and (trace := open_traces.get(key)) is not None:  # it may have grown too large just now
            self._put(key, trace, decoded, now)
            kept += decoded

    def around(self, trace: Trace) -> list[SpanData]:
        """The undecoded spans of a trace that its spans of interest are inside of."""
        others = trace.others
        found: list[SpanData] = []
        if not others:
            return found
        for span in trace.spans.values():
            parent_id = span.parent_id
            parent = None if parent_id is None else parent_id.to_bytes(8, "big")
            while parent and (other := others.pop(parent, None)) is not None:
                parent = other.parent_id
                around = self._decode(other.group, other.data)
                if around is not None and around.span_id not in trace.spans:
                    found.append(around)
        return found

    def _surround(
        self, key: bytes, trace: Trace, others: list[Others], now: float, kept: list[SpanData]
    ) -> None:
        rooted = False
        room = self._most - len(trace.others)
        for group, several in others:
            if len(several) > room:
                self._counts.forgotten += len(several) - room
                del several[room:]
            room -= len(several)
            for data in several:
                span_id, parent_id = ids_of(data)
                rooted = rooted or not parent_id
                if int.from_bytes(span_id, "big") in trace.wanted:
                    around = self._decode(group, data)
                    if around is not None:
                        self._put(key, trace, [around], now)
                        kept.append(around)
                    if key not in self._traces.by_key:
                        return  # it was too large
                    continue
                if span_id not in trace.others:
                    self._traces.grow(trace, len(data) + _BESIDE_BYTES)
                trace.others[span_id] = Other(parent_id, group, data)
        self._traces.heard(key, trace, now, rooted=rooted)

    def _decode(self, group: Group, data: bytes) -> SpanData | None:
        try:
            return self._intake.decode(group, data)
        except Misfit:
            self._counts.unreadable += 1
            return None
