"""What the store keeps, and for how long: runs and spans that are too old or too much go."""

import math
import sqlite3
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final

from otel_loopeval.server.store.schema import Write

_DELETED_AT_ONCE: Final = 500
_FREED_AT_ONCE: Final = 1_000
_JUMP_S: Final = 3_600.0
"""Seconds by which the clock may be ahead at once: more is a clock that was set, or a machine that slept."""


@dataclass(frozen=True, slots=True)
class Retention:
    """What the store keeps.

    Attributes:
        max_age_s: Seconds after which a run goes.
        max_bytes: Size of the file over which the oldest runs go.
        every_s: Seconds from one look to the next.

    Raises:
        ValueError: One of them is not above 0.
    """

    max_age_s: float = 7 * 86_400.0
    max_bytes: int = 2**30
    every_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("max_age_s", "max_bytes", "every_s"):
            value = getattr(self, name)
            if not value > 0:
                raise ValueError(f"{name} is {value!r}: it must be above 0")


class Tidier:
    """Removes what is too old or too much, a little at a time: others wait to be written.

    Args:
        connection: The connection that writes.
        retention: What is kept.
        clock: The time in nanoseconds since the epoch.
    """

    def __init__(
        self, connection: sqlite3.Connection, retention: Retention, clock: Callable[[], int]
    ) -> None:
        self._connection = connection
        self._retention = retention
        self._clock = clock
        self._looked = clock(), time.monotonic()
        self._trusted_from = 0.0

    def tidy(self, write: Callable[[Write], Collection[str]]) -> bool:
        """Remove some of it.

        Args:
            write: Writes in a transaction; returns the tenants whose lists of runs have changed.

        Returns:
            Whether there may be more of it.

        Raises:
            sqlite3.Error: The file cannot be read.
        """
        oldest = self._oldest()
        more = oldest is not None and bool(write(lambda to: _remove_old(to, oldest)))
        size = self._size()
        if not more and size > self._retention.max_bytes:
            share = 1 - self._retention.max_bytes / size
            write(lambda to: _remove_oldest(to, share))
            more = self._size() < size  # else nothing is left to remove
        return self._give_back() or more

    def _oldest(self) -> int | None:
        """When the oldest runs that stay were closed; None while the clock cannot be trusted.

        A clock that runs ahead for a moment must not take all runs away.
        """
        now, ticks = self._clock(), time.monotonic()
        before, ticks_before = self._looked
        self._looked = now, ticks
        if (now - before) / 1e9 - (ticks - ticks_before) > _JUMP_S:
            self._trusted_from = ticks + _JUMP_S
        return None if ticks < self._trusted_from else now - int(self._retention.max_age_s * 1e9)

    def _give_back(self) -> bool:
        """Give some of the pages that are no longer used back to the disk; whether there are more."""
        if not self._asked("freelist_count"):
            return False
        # execute() would step once, which frees one page.
        self._connection.executescript(f"PRAGMA incremental_vacuum({_FREED_AT_ONCE})")
        if self._asked("freelist_count"):
            return True
        # The file becomes smaller with the next checkpoint, and there may be none for long.
        self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        return False

    def _size(self) -> int:
        """Bytes of the file that are in use."""
        return (self._asked("page_count") - self._asked("freelist_count")) * self._asked("page_size")

    def _asked(self, pragma: str) -> int:
        return self._connection.execute(f"PRAGMA {pragma}").fetchone()[0]


def _remove_old(connection: sqlite3.Connection, oldest_ns: int) -> set[str]:
    tenants = _remove_runs(connection, "WHERE closed_ns < ? LIMIT ?", (oldest_ns, _DELETED_AT_ONCE))
    connection.execute("DELETE FROM open_spans WHERE received_ns < ?", (oldest_ns,))
    return tenants


def _remove_oldest(connection: sqlite3.Connection, share: float) -> set[str]:
    """Remove a share of the runs, the oldest; where there are none, some spans of the oldest open traces."""
    runs = connection.execute("SELECT count(*) FROM runs").fetchone()[0]
    # Few large ones may be all that there are.
    most = min(math.ceil(runs * share), _DELETED_AT_ONCE)
    tenants = _remove_runs(connection, "ORDER BY closed_ns, seq LIMIT ?", (most,))
    if not tenants:
        connection.execute(
            "DELETE FROM open_spans WHERE (tenant, trace_id, span_id) IN "
            "(SELECT tenant, trace_id, span_id FROM open_spans ORDER BY received_ns LIMIT ?)",
            (_DELETED_AT_ONCE,),
        )
    return tenants


def _remove_runs(connection: sqlite3.Connection, which: str, values: tuple[Any, ...]) -> set[str]:
    """Remove runs; whose they were."""
    rows = connection.execute(f"SELECT seq, tenant FROM runs {which}", values).fetchall()  # noqa: S608 - words of ours
    connection.executemany("DELETE FROM runs WHERE seq = ?", [row[:1] for row in rows])
    return {row[1] for row in rows}
