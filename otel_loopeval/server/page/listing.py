"""The list of runs: what its address asks for, and the addresses of what is next to it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple
from urllib.parse import urlencode

from otel_loopeval.reports import words
from otel_loopeval.server.page.charts import Curve, spark
from otel_loopeval.server.store.queries import (
    DOOM_LOOP,
    HEALTHY,
    MOST_COUNTED,
    MOST_OPEN,
    UNDECIDED,
    UNHEALTHY,
    VERDICTS,
    Cursor,
    RunFilter,
    RunPage,
)
from otel_loopeval.server.store.rows import StoredRun

WINDOWS: Final = (
    ("", "Any time", 0),
    ("15m", "Last 15 minutes", 900),
    ("1h", "Last hour", 3_600),
    ("24h", "Last 24 hours", 86_400),
    ("7d", "Last 7 days", 604_800),
)
"""What the list can ask of time: value, words, seconds."""
_TABS: Final = (
    (None, "All"),
    (UNHEALTHY, "Unhealthy"),
    (DOOM_LOOP, "Doom loop"),
    (HEALTHY, "Healthy"),
    (UNDECIDED, "No verdict"),
)
_SECONDS: Final = {value: seconds for value, _, seconds in WINDOWS}
_LONGEST: Final = 1_000
_LONGEST_KEY: Final = 100
_DIGITS: Final = 20
"""Of the largest number of 64 bits."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the address of a list asks for.

    Attributes:
        verdict: One of ``VERDICTS``, or None for all.
        agent: Name of an agent, or empty for all.
        service: Name of a service, or empty for all.
        tenant: A tenant, or empty for all; for who may see all.
        window: One of the values of :data:`WINDOWS`.
        cursor: Where the page begins, or None for the beginning.
    """

    verdict: str | None = None
    agent: str = ""
    service: str = ""
    tenant: str = ""
    window: str = ""
    cursor: Cursor | None = None

    def filter(self, now_ns: int) -> RunFilter:
        """The filter of the store."""
        seconds = _SECONDS[self.window]
        return RunFilter(
            self.verdict,
            self.agent or None,
            self.service or None,
            now_ns - seconds * 1_000_000_000 if seconds else None,
        )

    @property
    def narrowed(self) -> bool:
        """Whether it asks for less than all."""
        return bool(self.verdict or self.agent or self.service or self.tenant or self.window)

    def at(self, cursor: Cursor | None) -> str:
        """The query of the same list at another place."""
        return replace(self, cursor=cursor).query()

    def query(self) -> str:
        """It as the query of an address, with its question mark; empty where it asks for nothing."""
        values = {
            "verdict": self.verdict or "",
            "agent": self.agent,
            "service": self.service,
            "tenant": self.tenant,
            "time": self.window,
        }
        if self.cursor is not None:
            side = "newer" if self.cursor.newer else "older"
            values[side] = f"{self.cursor.closed_ns}-{self.cursor.key}"
        text = urlencode({name: value for name, value in values.items() if value})
        return f"?{text}" if text else ""


@dataclass(frozen=True, slots=True)
class Tab:
    """A verdict to choose.

    Attributes:
        words: It in words.
        count: How many runs have it, as text.
        query: The query of its list.
        current: Whether it is chosen.
    """

    words: str
    count: str
    query: str
    current: bool


@dataclass(frozen=True, slots=True)
class Row:
    """A run in the list.

    Attributes:
        run: The run.
        spark: Its last scores as a small line, or None.
    """

    run: StoredRun
    spark: Curve | None


class Columns(NamedTuple):
    """Which columns of the table have something to show.

    Attributes:
        tenants: Tenants.
        scores: Scores.
        tokens: Tokens.
        cost: What the tokens cost.
    """

    tenants: bool
    scores: bool
    tokens: bool
    cost: bool


def read_asked(query: Mapping[str, str], *, sees_all: bool) -> Asked:
    """What a query asks for. What makes no sense is left out: addresses are kept, and typed by hand.

    Args:
        query: The query.
        sees_all: Whether who asks may choose a tenant.
    """
    verdict = query.get("verdict") or None
    window = query.get("time", "")
    newer = query.get("newer", "")
    return Asked(
        verdict=verdict if verdict in VERDICTS else None,
        agent=_text(query.get("agent", "")),
        service=_text(query.get("service", "")),
        tenant=_text(query.get("tenant", "")) if sees_all else "",
        window=window if window in _SECONDS else "",
        cursor=_cursor(newer, newer=True) if newer else _cursor(query.get("older", ""), newer=False),
    )


def tabs(asked: Asked, counts: Mapping[str | None, int]) -> list[Tab]:
    """The verdicts to choose from, with how many runs there are of each."""
    first = replace(asked, cursor=None)
    return [
        Tab(
            words,
            capped(counts[verdict]),
            replace(first, verdict=verdict).query(),
            current=asked.verdict == verdict,
        )
        for verdict, words in _TABS
    ]


def rows(page: RunPage) -> list[Row]:
    """The rows of a page."""
    return [Row(run, spark(run.record.scores, run.record.threshold)) for run in page.runs]


def columns(page: RunPage, *, sees_all: bool) -> Columns:
    """Which columns have something to show to who sees the runs of all tenants, or of one."""
    records = [run.record for run in page.runs]
    return Columns(
        tenants=sees_all and any(run.tenant for run in page.runs),
        scores=any(record.best_score is not None for record in records),
        tokens=any(record.tokens is not None for record in records),
        cost=any(record.cost_usd is not None for record in records),
    )


def capped(count: int) -> str:
    """A number of runs, of which not more than so many were counted."""
    return f"{MOST_COUNTED:,}+" if count > MOST_COUNTED else f"{count:,}"


def under_way(traces: int) -> str:
    """How many traces are open, in words; empty where there is none."""
    if not traces:
        return ""
    if traces > MOST_OPEN:
        return f"more than {MOST_OPEN:,} traces"
    return words.count(traces, "trace")


def _text(value: str) -> str:
    # A half of a surrogate pair cannot be looked for.
    return value[:_LONGEST].strip().encode("utf-8", "ignore").decode()


def _cursor(text: str, *, newer: bool) -> Cursor | None:
    closed_ns, _, key = text.partition("-")
    if not (closed_ns.isdecimal() and len(closed_ns) <= _DIGITS and len(key) <= _LONGEST_KEY):
        return None
    return Cursor(int(closed_ns), _text(key), newer)
