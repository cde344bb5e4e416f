"""What is read of the store: lists, as quick at the end of a long one as at the start, runs, open spans.

A tenant of None stands for all tenants.
"""

import sqlite3
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from otel_loopeval.server.store.rows import StoredRun, run_of

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
_COLUMNS: Final = "key, service, environment, complete, closed_ns, record, tenant"


class Cursor(NamedTuple):
    """A place in the list, next to a run.

    Attributes:
        closed_ns: When that run was judged.
        key: Its key: its number in the store would tell how many runs others have.
        newer: Whether the newer side is meant, not the older.
    """

    closed_ns: int
    key: str
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
    """

    runs: tuple[StoredRun, ...]
    older: Cursor | None
    newer: Cursor | None


@dataclass(frozen=True, slots=True)
class Choices:
    """What filters can choose from.

    Attributes:
        agents: Names of agents, sorted.
        services: Names of services, sorted.
    """

    agents: tuple[str, ...]
    services: tuple[str, ...]


def read_page(
    connection: sqlite3.Connection, tenant: str | None, asked: RunFilter, cursor: Cursor | None, size: int
) -> RunPage:
    """Read one page of a list."""
    where, values = _where(tenant, asked)
    backwards = cursor is not None and cursor.newer
    place, at = "", []
    if cursor is not None:
        # A run that has gone meanwhile is taken for the last one of its time, which few share.
        own, own_values = _of(tenant)
        place = (
            f" AND (closed_ns, seq) {'>' if backwards else '<'} "  # noqa: S608 - of our own words only
            f"(?, ifnull((SELECT seq FROM runs WHERE key = ? AND {own}), ?))"
        )
        at = [min(cursor.closed_ns, _MAX_INT), cursor.key, *own_values, _MAX_INT if backwards else 0]
    towards = "ASC" if backwards else "DESC"
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM runs WHERE {where}{place} "  # noqa: S608 - likewise
        f"ORDER BY closed_ns {towards}, seq {towards} LIMIT ?",
        [*values, *at, size + 1],
    ).fetchall()
    more = len(rows) > size
    runs = [run_of(*row) for row in rows[:size]]
    if backwards:
        runs.reverse()
    has_newer = more if backwards else cursor is not None
    has_older = backwards or more
    return RunPage(
        runs=tuple(runs),
        older=Cursor(runs[-1].closed_ns, runs[-1].key) if runs and has_older else None,
        newer=Cursor(runs[0].closed_ns, runs[0].key, newer=True) if runs and has_newer else None,
    )


def read_counts(
    connection: sqlite3.Connection, tenant: str | None, asked: RunFilter
) -> dict[str | None, int]:
    """Count runs by verdict (None: of all), whatever verdict is asked for; see :data:`MOST_COUNTED`."""
    return {
        verdict: _count(connection, *_where(tenant, replace(asked, verdict=verdict)))
        for verdict in (None, *VERDICTS)
    }


def read_run(connection: sqlite3.Connection, tenant: str | None, key: str) -> tuple[StoredRun, bytes] | None:
    """Read one run and its packed details, or None if there is no such run."""
    own, values = _of(tenant)
    row: tuple[Any, ...] | None = connection.execute(
        f"SELECT {_COLUMNS}, detail FROM runs JOIN details USING (seq) WHERE key = ? AND {own}",  # noqa: S608 - likewise
        [key, *values],
    ).fetchone()
    return None if row is None else (run_of(*row[:-1]), row[-1])


def read_siblings(connection: sqlite3.Connection, run: StoredRun, most: int) -> tuple[StoredRun, ...]:
    """Read the other runs of a run's trace, in the order in which they were judged."""
    trace_id = int(run.record.trace_id or "0", 16).to_bytes(16, "big")
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM runs WHERE tenant = ? AND trace_id = ? AND key != ? "  # noqa: S608 - likewise
        "ORDER BY closed_ns, seq LIMIT ?",
        (run.tenant, trace_id, run.key, most),
    )
    return tuple(run_of(*row) for row in rows)


def read_choices(connection: sqlite3.Connection, tenant: str | None, most: int) -> Choices:
    """Read what filters can choose from."""
    return Choices(*(_distinct(connection, tenant, column, most) for column in ("agent", "service")))


def read_tenants(connection: sqlite3.Connection, most: int) -> tuple[str, ...]:
    """Read the tenants that have runs, sorted."""
    return _distinct(connection, None, "tenant", most)


def read_open_traces(connection: sqlite3.Connection, tenant: str | None) -> int:
    """Count the traces that have spans kept and are not closed, at most :data:`MOST_OPEN` + 1."""
    # From one trace to the next in the index, since each may have very many spans.
    own, values = ("1", []) if tenant is None else ("tenant = ?", [tenant])
    next_one = (
        f"FROM open_spans WHERE {own} AND (tenant, trace_id) > (whose, id) ORDER BY tenant, trace_id LIMIT 1"
    )
    return connection.execute(
        "WITH RECURSIVE traces (whose, id) AS (VALUES ('', x'') UNION ALL "  # noqa: S608 - likewise
        f"SELECT (SELECT tenant {next_one}), (SELECT trace_id {next_one}) FROM traces WHERE id IS NOT NULL "
        "LIMIT ?) SELECT count(id) - 1 FROM traces",
        [*values * 2, MOST_OPEN + 2],
    ).fetchone()[0]


def read_open_spans(
    connection: sqlite3.Connection, after: tuple[str, bytes, bytes], most: int
) -> list[tuple[str, bytes, bytes, str]]:
    """Read spans of open traces, by tenant and trace: tenant, trace id, span id, line."""
    return connection.execute(
        "SELECT tenant, trace_id, span_id, line FROM open_spans "
        "WHERE (tenant, trace_id, span_id) > (?, ?, ?) ORDER BY tenant, trace_id, span_id LIMIT ?",
        (*after, most),
    ).fetchall()


def read_closed_traces(connection: sqlite3.Connection, since_ns: int, most: int) -> list[tuple[str, int]]:
    """Read tenant and id of the traces whose last runs were closed at a time or later, the latest last."""
    # Row by row from the end of the index: DISTINCT would sort all that is asked for.
    rows: sqlite3.Cursor = connection.execute(
        "SELECT tenant, trace_id FROM runs WHERE closed_ns >= ? ORDER BY closed_ns DESC, seq DESC",
        (since_ns,),
    )
    found: dict[tuple[str, bytes], None] = {}
    for row in rows:
        found[row] = None
        if len(found) >= most:
            break
    rows.close()
    return [(tenant, int.from_bytes(trace_id, "big")) for tenant, trace_id in reversed(found)]


def _count(connection: sqlite3.Connection, where: str, values: list[Any]) -> int:
    return connection.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM runs WHERE {where} LIMIT ?)",  # noqa: S608 - likewise
        [*values, MOST_COUNTED + 1],
    ).fetchone()[0]


def _distinct(connection: sqlite3.Connection, tenant: str | None, column: str, most: int) -> tuple[str, ...]:
    # From one name to the next in the index: SELECT DISTINCT would read all of it.
    own, values = _of(tenant)
    first = f"SELECT min({column}) FROM runs WHERE {own} AND {column} >"  # noqa: S608 - likewise
    rows = connection.execute(
        f"WITH RECURSIVE names (name) AS ({first} '' UNION ALL "  # noqa: S608 - likewise
        f"SELECT ({first} name) FROM names WHERE name IS NOT NULL) "
        "SELECT name FROM names WHERE name IS NOT NULL LIMIT ?",
        [*values * 2, most],
    )
    return tuple(row[0] for row in rows)


def _of(tenant: str | None) -> tuple[str, list[Any]]:
    # The second half lets SQLite take the indexes that have tenants' runs only.
    return ("1", []) if tenant is None else ("tenant = ? AND tenant != ''", [tenant])


def _where(tenant: str | None, asked: RunFilter) -> tuple[str, list[Any]]:
    condition, values = _of(tenant)
    conditions = [condition]
    if asked.verdict:
        conditions.append(_CONDITIONS[asked.verdict])
    for column, value in (("agent", asked.agent), ("service", asked.service)):
        if value:
            conditions.append(f"{column} = ?")
            values.append(value)
    if asked.since_ns is not None:
        conditions.append("closed_ns >= ?")
        values.append(asked.since_ns)
    return " AND ".join(conditions), values
