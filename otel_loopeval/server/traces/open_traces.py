"""The traces of which more may come: what is held of each, and which of them is over next.

Each table is in the order in which its first has to be looked at first, so that none is searched. A trace is
known by its key: its id and its tenant, since two tenants may have a trace of the same id.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, NamedTuple

from otel_loopeval import semconv
from otel_loopeval.runs.sizes import size_of
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.server.traces.intake import Group
from otel_loopeval.server.traces.limits import Limits

CLOSED_ROOT: Final = "root"
CLOSED_IDLE: Final = "idle"
CLOSED_AGE: Final = "age"
CLOSED_CAPACITY: Final = "capacity"
CLOSED_TOO_LARGE: Final = "too_large"
CLOSED_SHUTDOWN: Final = "shutdown"

_ID_BYTES: Final = 16


def key_of(tenant: str, trace_id: int) -> bytes:
    """The key of a trace. Without tenants it is the id as bytes and nothing else."""
    return trace_id.to_bytes(_ID_BYTES, "big") + tenant.encode()


def read_key(key: bytes) -> tuple[str, int]:
    """The tenant and the id of a trace."""
    return key[_ID_BYTES:].decode(), int.from_bytes(key[:_ID_BYTES], "big")


class Other(NamedTuple):
    """A span that is not decoded."""

    parent_id: bytes
    group: Group
    data: bytes


class Trace:
    """A trace of which more may come.

    Attributes:
        spans: Its spans of interest, and those around them that are known to be, by id.
        others: Its other spans by id, not decoded.
        bytes: Estimated memory of all of them.
        heard: When there was news of it, in seconds of a steady clock.
        age_at: When it began.
        rooted: When its root came; None before.
        restored: Whether spans of it come from a store.
        wanted: Ids of what its spans are inside of.
        judged: Ids of roots that have a verdict.
    """

    __slots__ = ("age_at", "bytes", "heard", "judged", "others", "restored", "rooted", "spans", "wanted")

    def __init__(self, now: float) -> None:
        self.spans: dict[int, SpanData] = {}
        self.others: dict[bytes, Other] = {}
        self.bytes = 0
        self.heard = now
        self.age_at = now
        self.rooted: float | None = None
        self.restored = False
        self.wanted: set[int] = set()
        self.judged: set[int | None] = set()


class OpenTraces:
    """The traces of which more may come.

    Args:
        limits: How long they are waited for, and how much is held.

    Attributes:
        by_key: The traces, the oldest first.
        held_bytes: Estimated memory of what is held.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        # A plain dictionary would look through the places of all that went before its first, each time.
        self.by_key: OrderedDict[bytes, Trace] = OrderedDict()
        self._rooted: OrderedDict[bytes, Trace] = OrderedDict()  # by when the root came
        self._rootless: OrderedDict[bytes, Trace] = OrderedDict()  # by when there was news
        self.held_bytes = 0

    def begin(self, key: bytes, now: float) -> Trace:
        """A trace that was not there."""
        trace = self.by_key[key] = self._rootless[key] = Trace(now)
        return trace

    def hold(self, key: bytes, trace: Trace, spans: Iterable[SpanData], now: float) -> int:
        """Hold spans of a trace.

        Returns:
            How many of them came again.
        """
        held = trace.spans
        rooted = False
        size = repeated = 0
        for span in spans:
            before = held.get(span.span_id)
            held[span.span_id] = span  # its last version counts
            size += size_of(span)
            if before is not None:
                repeated += 1
                size -= size_of(before)
            if span.name == semconv.SPAN_VERDICT:
                trace.judged.add(span.parent_id)
            elif span.parent_id is None:
                rooted = True
            else:
                trace.wanted.add(span.parent_id)
        self.grow(trace, size)
        self.heard(key, trace, now, rooted=rooted)
        return repeated

    def grow(self, trace: Trace, size: int) -> None:
        """A trace takes so many bytes more."""
        trace.bytes += size
        self.held_bytes += size

    def heard(self, key: bytes, trace: Trace, now: float, *, rooted: bool) -> None:
        """There is news of a trace, among it its root or not."""
        trace.heard = now
        if trace.rooted is not None:
            return
        if self._rootless.pop(key, None) is None:
            return  # it was too large
        if rooted:
            trace.rooted = now
            self._rooted[key] = trace
        else:
            self._rootless[key] = trace

    def due(self, now: float) -> tuple[bytes, str] | None:
        """The key of a trace that is over by now, and why it is."""
        limits = self._limits
        if self._rooted:
            key, trace = next(iter(self._rooted.items()))
            if now - (trace.rooted or 0.0) >= limits.grace_s:
                return key, CLOSED_ROOT
        if self._rootless:
            key, trace = next(iter(self._rootless.items()))
            if now - trace.heard >= limits.idle_s:
                return key, CLOSED_IDLE
        if self.by_key:
            key, trace = next(iter(self.by_key.items()))
            if now - trace.age_at >= limits.max_age_s:
                return key, CLOSED_AGE
        return None

    def least(self) -> bytes:
        """The key of the trace that makes room first: one without a root, the one quiet longest."""
        return next(iter(self._rootless or self.by_key))

    def pop(self, key: bytes) -> Trace | None:
        """Hold a trace no longer; None if it was not held."""
        trace = self.by_key.pop(key, None)
        if trace is not None:
            self._rooted.pop(key, None)
            self._rootless.pop(key, None)
            self.held_bytes -= trace.bytes
        return trace
