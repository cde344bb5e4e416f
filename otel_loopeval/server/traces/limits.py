"""How long traces are waited for, and how much of them is held."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """How long traces are waited for, and how much is held: of all tenants together.

    Attributes:
        grace_s: Seconds from the root of a trace to its end.
        idle_s: Seconds without news after which a trace without a root is over. A root comes when it ends, so
            this is how long the longest step of a run may take.
        max_age_s: Seconds after which a trace is over in any case.
        max_traces: Traces with spans of interest held at once.
        max_bytes: Estimated memory that their spans take.
        max_trace_spans: Spans held of one trace.
        waiting_bytes: Bodies that are remembered for the spans in them that turn out to be around a run.
        remembered: Traces that are over and still known, so that their late and retried spans start no other.

    Raises:
        ValueError: One of them makes no sense.
    """

    grace_s: float = 10.0
    idle_s: float = 600.0
    max_age_s: float = 3600.0
    max_traces: int = 50_000
    max_bytes: int = 512 * 1024 * 1024
    max_trace_spans: int = 20_000
    waiting_bytes: int = 64 * 1024 * 1024
    remembered: int = 200_000

    def __post_init__(self) -> None:
        for name in ("grace_s", "idle_s", "max_age_s"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")
        for name in ("max_traces", "max_bytes", "max_trace_spans", "waiting_bytes", "remembered"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
