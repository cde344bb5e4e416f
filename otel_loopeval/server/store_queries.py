"""Lists of stored runs: filters, and pages that are as quick at the end of a long list as at the start."""

import sqlite3
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from otel_loopeval.server.store_rows import StoredRun, run_of

UNHEALTHY: Final = "unhealthy"
HEALTHY: Final = "healthy"
DOOM_LOOP: Final = "doom_loop"
UNDECIDED: Final = "none"
VERDICTS: Final = (UNHEALTHY, DOOM_LOOP, HEALTHY, UNDECIDED)
"""What a filter may ask of the verdict."""

MOST_COUNTED: Final = 10_000
"""Runs that a list counts: counting all of a long one would take longer than reading a page of it."""
MOST_OPEN: Final = 1_000
"""Open traces that are counted, for the same reason."""
_MAX_INT: Final = 2**63 - 1
_CONDITIONS: Final = {
    UNHEALTHY: "passed = 0",
    HEALTHY: "passed = 1",
    UNDECIDED: "passed IS NULL",
    DOOM_LOOP: "doom_loop = 1",
}
_COLUMNS: Final = "key, service, environment, complete, closed_ns, record, seq"


class Cursor(NamedTuple):
    """A place in the list, next to a run.

    Attributes:
        closed_ns: When that run was judged.
        seq: Its number in the store.
        newer: Whether the newer side is meant, not the older.
    """

    closed_ns: int
    seq: int
    newer: bool = False


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs a list shows; None and empty mean all.

    Attributes:
        verdict: One of :data:`VERDICTS`.
        agent: Name of the agent.
        service: Name of the service.
        since_ns: Runs that were judged then or later, in nanoseconds since the epoch.

    Raises:
        ValueError: There is no such verdict.
    """

    verdict: str | None = None
    agent: str | None = None
    service: str | None = None
    since_ns: int | None = None

    def __post_init__(self) -> None:
        if self.verdict and self.verdict not in VERDICTS:
            raise ValueError(f"verdict is {self.verdict!r}: it must be one of {', '.join(VERDICTS)}")


@dataclass(frozen=True, slots=True)
class RunPage:
    """A page of a list, the run that was judged last first.

    Attributes:
        runs: The runs.
        older: Where the next page begins; None at the end.
        newer: Where the page before ends; None at the beginning.
        total: Runs in the list, at most :data:`MOST_COUNTED` + 1.
    """

    runs: tuple[StoredRun, ...]
    older: Cursor | None
    newer: Cursor | None
    total: int


@dataclass(frozen=True, slots=True)
class Choices:
    """What filters can choose from.

    Attributes:
        agents: Names of agents, sorted.
        services: Names of services, sorted.
    """

    agents: tuple[str, ...]
    services: tuple[str, ...]


def read_page(connection: sqlite3.Connection, asked: RunFilter, cursor: Cursor | None, size: int) -> RunPage:
    """Read one page of a list."""
    where, values = _where(asked)
    towards = "ASC" if cursor is not None and cursor.newer else "DESC"
    place, at = "", []
    if cursor is not None:
        place = f" AND (closed_ns, seq) {'>' if cursor.newer else '<'} (?, ?)"
        at = [min(cursor.closed_ns, _MAX_INT), min(cursor.seq, _MAX_INT)]
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM runs WHERE {where}{place} "  # noqa: S608 - of our own words only
        f"ORDER BY closed_ns {towards}, seq {towards} LIMIT ?",
        [*values, *at, size + 1],
    ).fetchall()
    more = len(rows) > size
    rows = rows[:size]
    if towards == "ASC":
        rows.reverse()
    total = _count(connection, where, values)
    has_newer = more if towards == "ASC" else cursor is not None
    has_older = True if towards == "ASC" else more
    return RunPage(
        runs=tuple(run_of(*row[:6]) for row in rows),
        older=Cursor(rows[-1][4], rows[-1][6]) if rows and has_older else None,
        newer=Cursor(rows[0][4], rows[0][6], newer=True) if rows and has_newer else None,
        total=total,
    )


def read_counts(connection: sqlite3.Connection, asked: RunFilter) -> dict[str | None, int]:
    """Count runs by verdict (None: of all), whatever verdict is asked for; see :data:`MOST_COUNTED`."""
    counts: dict[str | None, int] = {}
    for verdict in (None, *VERDICTS):
        where, values = _where(replace(asked, verdict=verdict))
        counts[verdict] = _count(connection, where, values)
    return counts


def read_run(connection: sqlite3.Connection, key: str) -> tuple[StoredRun, bytes] | None:
    """Read one run and its packed details, or None if there is no such run."""
    row: tuple[Any, ...] | None = connection.execute(
        f"SELECT {_COLUMNS}, detail FROM runs JOIN details USING (seq) WHERE key = ?",  # noqa: S608 - likewise
        (key,),
    ).fetchone()
    return None if row is None else (run_of(*row[:6]), row[7])


def read_siblings(
    connection: sqlite3.Connection, trace_id: int, but: str, most: int
) -> tuple[StoredRun, ...]:
    """Read the other runs of a trace, in the order in which they were judged."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM runs WHERE trace_id = ? AND key != ? ORDER BY closed_ns, seq LIMIT ?",  # noqa: S608 - likewise
        (trace_id.to_bytes(16, "big"), but, most),
    )
    return tuple(run_of(*row[:6]) for row in rows)


def read_choices(connection: sqlite3.Connection, most: int) -> Choices:
    """Read what filters can choose from."""
    return Choices(_distinct(connection, "agent", most), _distinct(connection, "service", most))


def read_open_traces(connection: sqlite3.Connection) -> int:
    """Count the traces that have spans kept and are not closed, at most :data:`MOST_OPEN` + 1."""
    # From one trace to the next in the index, since each may have very many spans.
    return connection.execute(
        "WITH RECURSIVE traces (id) AS (SELECT min(trace_id) FROM open_spans UNION ALL "
        "SELECT (SELECT min(trace_id) FROM open_spans WHERE trace_id > id) FROM traces WHERE id IS NOT NULL "
        "LIMIT ?) SELECT count(id) FROM traces",
        (MOST_OPEN + 1,),
    ).fetchone()[0]


def _count(connection: sqlite3.Connection, where: str, values: list[Any]) -> int:
    return connection.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM runs WHERE {where} LIMIT ?)",  # noqa: S608 - likewise
        [*values, MOST_COUNTED + 1],
    ).fetchone()[0]


def _distinct(connection: sqlite3.Connection, column: str, most: int) -> tuple[str, ...]:
    # From one name to the next in the index: SELECT DISTINCT would read all of it.
    rows = connection.execute(
        f"WITH RECURSIVE names (name) AS (SELECT min({column}) FROM runs UNION ALL "  # noqa: S608 - likewise
        f"SELECT (SELECT min({column}) FROM runs WHERE {column} > name) FROM names WHERE name IS NOT NULL) "
        "SELECT name FROM names WHERE name IS NOT NULL AND name != '' LIMIT ?",
        (most,),
    )
    return tuple(row[0] for row in rows)


def _where(asked: RunFilter) -> tuple[str, list[Any]]:
    conditions: list[str] = []
    values: list[Any] = []
    if asked.verdict:
        conditions.append(_CONDITIONS[asked.verdict])
    for column, value in (("agent", asked.agent), ("service", asked.service)):
        if value:
            conditions.append(f"{column} = ?")
            values.append(value)
    if asked.since_ns is not None:
        conditions.append("closed_ns >= ?")
        values.append(asked.since_ns)
    return " AND ".join(conditions) or "1", values
