"""What the store keeps of a run for lists: its columns, of which one is its record."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Final, cast

from otel_loopeval.health.wire import encodable
from otel_loopeval.reports import RunRecord, record_of
from otel_loopeval.server.served import ServedRun

COLUMNS: Final = (
    "key",
    "trace_id",
    "root_id",
    "agent",
    "service",
    "environment",
    "passed",
    "doom_loop",
    "complete",
    "closed_ns",
    "record",
    "tenant",
)
"""The columns of the table of runs but for ``seq``."""
# json.dumps() would make an encoder for each call.
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False)
_TUPLES: Final = ("reasons", "scores", "doom_loop_kinds")
_LONGEST_NAME: Final = 200
"""Characters of the names of agents, services and environments: lists are made of them."""
_LONGEST: Final = 2_000
"""Characters of what else a record or a guard event has as text."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run as lists show it.

    Attributes:
        key: Identifies it in the store, and in the address of its page.
        record: What reports tell of it.
        service: Service that ran it; empty where it is unknown.
        environment: Deployment environment of the service; empty where it is unknown.
        complete: Whether all of its spans came.
        closed_ns: When it was judged, in nanoseconds since the epoch.
        tenant: Whose token brought its spans; empty where nobody was asked for one.
    """

    key: str
    record: RunRecord
    service: str
    environment: str
    complete: bool
    closed_ns: int
    tenant: str


def key_of(served: ServedRun) -> str:
    """What identifies a run: the same each time that the same spans come."""
    root = served.root
    # Of a trace whose root is missing, several parts may be runs.
    last = f"{served.run.started_ns:x}-part" if root is None else f"{root.span_id:016x}"
    key = f"{served.trace_id:032x}-{last}"
    return f"{key}-{digest_of(served.tenant)}" if served.tenant else key


def digest_of(tenant: str) -> str:
    """Stands for a tenant where its name cannot: in addresses, say."""
    return hashlib.blake2b(tenant.encode(), digest_size=8).hexdigest()


def row_of(served: ServedRun) -> tuple[Any, ...]:
    """The values of a run for :data:`COLUMNS`."""
    record = record_of(served.replayed, served.trace_id)
    root = served.root
    agent = _cut(record.agent, _LONGEST_NAME)
    fields = {name: bounded(value) for name, value in record.to_dict().items()}
    return (
        key_of(served),
        served.trace_id.to_bytes(16, "big"),
        None if root is None else root.span_id.to_bytes(8, "big"),
        agent,
        _cut(encodable(served.service), _LONGEST_NAME),
        _cut(encodable(served.environment), _LONGEST_NAME),
        record.passed,
        record.doom_loop_fired,
        served.complete,
        served.closed_ns,
        encoded({**fields, "agent": agent}),
        served.tenant,
    )


def run_of(
    key: str, service: str, environment: str, complete: int, closed_ns: int, record: str, tenant: str
) -> StoredRun:
    """A run out of its columns."""
    fields = json.loads(record)
    for name in _TUPLES:
        fields[name] = tuple(fields[name])
    return StoredRun(key, RunRecord(**fields), service, environment, bool(complete), closed_ns, tenant)


def bounded(value: Any) -> Any:
    """A value whose texts are no longer than a page can show: what spans say may be of any length."""
    if isinstance(value, str):
        return _cut(value, _LONGEST)
    if isinstance(value, tuple):
        return [bounded(part) for part in cast("tuple[Any, ...]", value)]
    return value


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def encoded(value: Any) -> str:
    """A value as JSON, in one line."""
    return _ENCODER.encode(value)
