"""Spans that tell of no loop, kept a while: if their trace turns out to have one, they are around it."""

from typing import Final

from otel_loopeval.runs.sizes import size_of
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.server.traces.intake import Others

_BYTES_A_SPAN: Final = 80
"""What Python takes for a span that waits, beside its bytes."""


class Waiting:
    """Two generations of spans: when the younger has had its share of room or time, the older one goes.

    So a span is kept for between half of the room or time and all of it, and none is looked at to forget it.

    Args:
        most_bytes: Bytes that they may take in all.
        idle_s: Seconds after which a generation is over in any case.
    """

    def __init__(self, most_bytes: int, idle_s: float) -> None:
        self._most_bytes = most_bytes
        self._idle_s = idle_s
        self._others: dict[bytes, list[Others]] = {}
        self._older_others: dict[bytes, list[Others]] = {}
        self._decoded: dict[bytes, list[SpanData]] = {}  # the same, of what had to be decoded
        self._older_decoded: dict[bytes, list[SpanData]] = {}
        self._bytes = 0
        self._since = 0.0

    def add(self, key: bytes, others: list[Others]) -> None:
        """Keep undecoded spans of a trace, whose bytes :meth:`grow` is told of."""
        before = self._others.get(key)
        if before is None:
            self._others[key] = others
        else:
            before += others

    def add_decoded(self, key: bytes, spans: list[SpanData]) -> None:
        """Keep decoded spans of a trace."""
        self._decoded.setdefault(key, []).extend(spans)
        self._bytes += sum(map(size_of, spans))

    def grow(self, size: int, spans: int, now: float) -> None:
        """A body was taken, of so many bytes and spans."""
        self._bytes += size + spans * _BYTES_A_SPAN
        if self._bytes * 2 > self._most_bytes or now - self._since > self._idle_s:
            self._older_others, self._others = self._others, {}
            self._older_decoded, self._decoded = self._decoded, {}
            self._bytes = 0
            self._since = now

    def pop(self, key: bytes) -> tuple[list[Others], list[SpanData]]:
        """What is kept of a trace, the oldest first; it is kept no longer."""
        return (
            [*self._older_others.pop(key, ()), *self._others.pop(key, ())],
            [*self._older_decoded.pop(key, ()), *self._decoded.pop(key, ())],
        )
