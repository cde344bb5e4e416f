"""Open traces between the batches of a stream: what is waited for, and how long.

A desk is a state machine with one owner and without a clock: the time is passed in. It holds the traces of
one bucket, as packs that it does not look into, and is stored as a whole between batches.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from otel_loopeval.spark.packing import Pack

_VERSION: Final = 2


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a trace is waited for, and how much is held.

    Attributes:
        grace_s: Seconds without news after which a trace that has its root is taken to be whole.
        idle_s: Seconds without news after which one without its root is given up.
        max_age_s: Seconds after which a trace is closed in any case.
        remember_s: Seconds for which a closed trace is remembered: what comes for it meanwhile is dropped,
            since a part of a trace would be judged as if it were the whole.
        max_bytes: Bytes of packed spans that a bucket holds; beyond it, the trace that is due next goes.
    """

    grace_s: float = 10.0
    idle_s: float = 60.0
    max_age_s: float = 3600.0
    remember_s: float = 600.0
    max_bytes: int = 64 * 2**20

    def __post_init__(self) -> None:
        for name in ("grace_s", "idle_s", "max_age_s", "remember_s"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be a finite number from 0, got {getattr(self, name)}")
        if self.max_bytes < 1:
            raise ValueError(f"max_bytes must be at least 1, got {self.max_bytes}")


class Closed(NamedTuple):
    """A trace that is not waited for any longer.

    Attributes:
        trace_id: Its id, 16 bytes.
        payloads: Its spans, packed, in the order in which they came.
        cut: Whether it was closed for want of room while more of it may have come.
    """

    trace_id: bytes
    payloads: list[bytes]
    cut: bool


class _Open(msgspec.Struct, array_like=True, gc=False):
    first_ms: int
    due_ms: int
    rooted: bool = False
    telling: bool = False
    spans: int = 0
    size: int = 0
    payloads: list[bytes] = []  # msgspec makes a new one each time


class _Stored(msgspec.Struct, array_like=True, gc=False):
    version: int
    open: dict[bytes, _Open]
    closed: dict[bytes, int]


_DECODER: Final = msgspec.msgpack.Decoder(_Stored)
_ENCODER: Final = msgspec.msgpack.Encoder()


class Desk:
    """The open traces of a bucket.

    Args:
        patience: How long they are waited for.
        max_trace_spans: Spans of one trace that are held; what is beyond that is dropped.
        stored: What :meth:`store` gave; None for an empty desk.

    Attributes:
        late: Packs that were dropped since their trace was closed.

    Raises:
        ValueError: It was stored by a version that this one cannot read.
    """

    def __init__(self, patience: Patience, max_trace_spans: int, stored: bytes | None = None) -> None:
        self._patience = patience
        self._max_trace_spans = max_trace_spans
        self._open: dict[bytes, _Open] = {}
        self._closed: dict[bytes, int] = {}  # trace → when it is forgotten; in the order of that
        self.late = 0
        if stored is not None:
            found = _DECODER.decode(stored)
            if found.version != _VERSION:
                raise ValueError(
                    f"state of version {found.version}, expected {_VERSION}: use a new checkpoint"
                )
            self._open, self._closed = found.open, found.closed
        self._size = sum(trace.size for trace in self._open.values())

    @property
    def next_ms(self) -> int | None:
        """When there is something to do next, in milliseconds; None for an empty desk."""
        due = [trace.due_ms for trace in self._open.values()]
        due += list(self._closed.values())[:1]
        return min(due, default=None)

    def store(self) -> bytes:
        """All of it, for the next batch."""
        return _ENCODER.encode(_Stored(_VERSION, self._open, self._closed))

    def add(self, pack: Pack, now_ms: int) -> None:
        """Take some spans of a trace."""
        if pack.trace_id in self._closed:
            self.late += 1
            return
        trace = self._open.get(pack.trace_id)
        if trace is None:
            trace = self._open[pack.trace_id] = _Open(now_ms, 0)
        trace.rooted = trace.rooted or pack.rooted
        trace.telling = trace.telling or pack.telling
        wait_s = self._patience.grace_s if trace.rooted else self._patience.idle_s
        trace.due_ms = min(now_ms + _ms(wait_s), trace.first_ms + _ms(self._patience.max_age_s))
        if trace.spans <= self._max_trace_spans:  # one more tells that there are more
            trace.payloads.append(pack.payload)
            trace.spans += pack.spans
            trace.size += len(pack.payload)
            self._size += len(pack.payload)

    def close(self, now_ms: int) -> Iterator[Closed]:
        """The traces that are due, and those that there is no room for, as far as they may have runs."""
        for trace_id in [trace_id for trace_id, until_ms in self._closed.items() if until_ms <= now_ms]:
            del self._closed[trace_id]
        in_order = sorted(self._open.items(), key=_due)
        for trace_id, trace in in_order:
            is_due = trace.due_ms <= now_ms
            if not is_due and self._size <= self._patience.max_bytes:
                break
            del self._open[trace_id]
            self._size -= trace.size
            self._closed[trace_id] = now_ms + _ms(self._patience.remember_s)
            if trace.telling:
                yield Closed(trace_id, trace.payloads, not is_due and not trace.rooted)


def _due(item: tuple[bytes, _Open]) -> int:
    return item[1].due_ms


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
