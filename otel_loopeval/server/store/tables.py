"""The tables of the store as SQL: as they are now, and what makes them of those of older versions."""

from typing import Final

APPLICATION_ID: Final = 0x6C_6F_6F_70
"""``"loop"``, so that another program's database is told apart."""

_ORDERS: Final = (
    ("time", "closed_ns", ""),
    ("verdict", "passed, closed_ns", ""),
    ("doom_loop", "closed_ns", "doom_loop = 1"),
    ("agent", "agent, closed_ns", ""),
    ("agent_and_verdict", "agent, passed, closed_ns", ""),
    ("agent_with_doom_loop", "agent, closed_ns", "doom_loop = 1"),
    ("agent_and_service", "agent, service, closed_ns", ""),
    ("service", "service, closed_ns", ""),
    ("service_and_verdict", "service, passed, closed_ns", ""),
    ("service_with_doom_loop", "service, closed_ns", "doom_loop = 1"),
)
"""What lists are filtered by: name, columns, condition. Each index ends in the order of the list, so that a
page of it is read without sorting, however many runs there are."""


def _indexes_of_all() -> str:
    return "".join(
        f"CREATE INDEX runs_by_{name} ON runs ({columns}){' WHERE ' if where else ''}{where};\n"
        for name, columns, where in _ORDERS
    )


def _indexes_of_tenants() -> str:
    """The same for one tenant's runs. Where nobody is asked for a token, they are empty and cost nothing."""
    return "".join(
        f"CREATE INDEX runs_of_tenant_by_{name} ON runs (tenant, {columns}) "
        f"WHERE tenant != ''{' AND ' if where else ''}{where};\n"
        for name, columns, where in _ORDERS
    )


_TRACES_OF_TENANTS: Final = "CREATE INDEX runs_by_trace ON runs (tenant, trace_id, closed_ns);\n"
_OPEN_SPANS: Final = """
CREATE TABLE open_spans (
    tenant TEXT NOT NULL,
    trace_id BLOB NOT NULL,
    span_id BLOB NOT NULL,
    received_ns INTEGER NOT NULL,
    line TEXT NOT NULL,
    PRIMARY KEY (tenant, trace_id, span_id)
) WITHOUT ROWID;
"""
_OPEN_SPANS_BY_TIME: Final = "CREATE INDEX open_spans_by_time ON open_spans (received_ns);\n"

# What makes the second version of the first.
_TENANTS: Final = f"""
ALTER TABLE runs ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
DROP INDEX runs_by_trace;
{_TRACES_OF_TENANTS}{_indexes_of_tenants()}
ALTER TABLE open_spans RENAME TO spans_without_tenant;
{_OPEN_SPANS}
INSERT INTO open_spans SELECT '', trace_id, span_id, received_ns, line FROM spans_without_tenant;
DROP TABLE spans_without_tenant;
{_OPEN_SPANS_BY_TIME}
"""  # noqa: S608 - words of ours
UPGRADES: Final[tuple[str, ...]] = (_TENANTS,)
"""What makes each version of the schema of the one before, from the second on."""

SCHEMA: Final = f"""
PRAGMA application_id = {APPLICATION_ID};
CREATE TABLE runs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    trace_id BLOB NOT NULL,
    root_id BLOB,
    agent TEXT NOT NULL,
    service TEXT NOT NULL,
    environment TEXT NOT NULL,
    passed INTEGER,
    doom_loop INTEGER NOT NULL,
    complete INTEGER NOT NULL,
    closed_ns INTEGER NOT NULL,
    record TEXT NOT NULL,
    tenant TEXT NOT NULL DEFAULT ''
);
{_indexes_of_all()}{_TRACES_OF_TENANTS}{_indexes_of_tenants()}
CREATE TABLE details (
    seq INTEGER PRIMARY KEY REFERENCES runs (seq) ON DELETE CASCADE,
    detail BLOB NOT NULL
);
{_OPEN_SPANS}{_OPEN_SPANS_BY_TIME}
PRAGMA user_version = {1 + len(UPGRADES)};
"""
"""The schema as it is now. The big column is in a table of its own, so that lists read few pages."""
