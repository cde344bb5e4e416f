"""The one thread that writes to the store: what waits for it is committed together."""

import math
import sqlite3
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from otel_loopeval.server.store_schema import StoreError, UnkeepableError, explained

MAX_WAITING: Final = 200_000
"""Spans that may wait for the writer; more are refused, so that the memory of a slow disk is bounded."""
_MAX_TOGETHER: Final = 20_000
"""Spans in one commit: a larger one would keep its senders waiting, and the write-ahead log growing."""
_DELETED_AT_ONCE: Final = 500
_FREED_AT_ONCE: Final = 2_000
_SPARE_PAGES: Final = 100
_JUMP_S: Final = 3_600.0
"""Seconds by which the clock may be ahead at once: more is a clock that was set, or a machine that slept."""

_OF_VALUES: Final = (
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
)
"""Errors of SQLite's that are not about the file, but about what is to go into it."""

Write = Callable[[sqlite3.Connection], Collection[str]]
"""Writes to the connection that it is given, inside a transaction.

It returns the tenants whose lists of runs have changed."""


class _NotBegunError(StoreError):
    """There could be no transaction: another process has the file, or its disk is gone."""


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


class Writer:
    """Writes in the background, in the order of the calls.

    Args:
        connection: The connection that writes; the writer closes it at its end.
        path: The file, for error messages.
        retention: What is kept.
        clock: The time in nanoseconds since the epoch.

    Attributes:
        trouble: Why the last commit failed; empty if it did not, or only for what was to be written.
        changes: How often runs of a tenant were added or removed.
    """

    def __init__(
        self, connection: sqlite3.Connection, path: Path, retention: Retention, clock: Callable[[], int]
    ) -> None:
        self.trouble = ""
        self.changes: Counter[str] = Counter()
        self._connection = connection
        self._path = path
        self._retention = retention
        self._clock = clock
        self._looked = clock(), time.monotonic()
        self._trusted_from = 0.0
        # Protects what waits, its weight and whether the end was asked for.
        self._turn = threading.Condition()
        self._waiting: deque[tuple[Write, int, Future[None]]] = deque()
        self._weight = 0
        self._ending = False
        self._given_up = False
        self._thread = threading.Thread(target=self._work, name="loopeval-store", daemon=True)
        self._thread.start()

    def submit(self, write: Write, weight: int = 1) -> "Future[None]":
        """Have something written.

        Args:
            write: Writes it.
            weight: How many spans it is worth.

        Returns:
            Done once it is on the disk; its exception is a :class:`StoreError` where it is not.
        """
        future: Future[None] = Future()
        with self._turn:
            if self._ending:
                future.set_exception(self._closed())
                return future
            if self._weight + weight > MAX_WAITING and self._waiting:
                text = f"is too slow: {self._weight:,} spans wait to be written"
                future.set_exception(StoreError(f"the store {str(self._path)!r} {text}"))
                return future
            self._waiting.append((write, weight, future))
            self._weight += weight
            self._turn.notify()
        return future

    def close(self, patience_s: float) -> bool:
        """Write what waits, and end.

        Args:
            patience_s: Seconds that it may take. After them, nothing more is begun.

        Returns:
            Whether it has ended. If not, the thread is still at its last write.
        """
        with self._turn:
            self._ending = True
            self._turn.notify()
        self._thread.join(patience_s)
        if not self._thread.is_alive():
            return True
        with self._turn:
            self._given_up = True
            dropped, self._waiting = self._waiting, deque()
        for _, _, future in dropped:
            _tell(future, self._closed())
        return False

    def _closed(self) -> StoreError:
        return StoreError(f"the store {str(self._path)!r} is closed")

    def _work(self) -> None:
        look_at = time.monotonic()
        while True:
            with self._turn:
                self._turn.wait_for(
                    lambda: self._waiting or self._ending, timeout=max(look_at - time.monotonic(), 0)
                )
                if not self._waiting and self._ending:
                    break
                batch = self._take()
            if batch:
                self._commit(batch)
            if time.monotonic() >= look_at:
                more = self._tidy()
                look_at = time.monotonic() + (0 if more else self._retention.every_s)
        try:
            self._connection.close()
        except sqlite3.Error as error:
            self.trouble = str(explained(self._path, error))

    def _take(self) -> "list[tuple[Write, Future[None]]]":
        batch: list[tuple[Write, Future[None]]] = []
        taken = 0
        while self._waiting and taken < _MAX_TOGETHER:
            write, weight, future = self._waiting.popleft()
            taken += weight
            self._weight -= weight
            batch.append((write, future))
        return batch

    def _commit(self, batch: "Sequence[tuple[Write, Future[None]]]") -> None:
        """Write what waits together. Where that fails, each alone: one may be what cannot be written."""
        parts = deque([batch])
        while parts:
            part = parts.popleft()
            error: StoreError | None = None
            if self._given_up:
                error = self._closed()
            else:
                try:
                    self._write([write for write, _ in part])
                except _NotBegunError as failed:
                    # The others would wait for as long, one after the other.
                    part = [each for others in (part, *parts) for each in others]
                    parts.clear()
                    error = failed
                except StoreError as failed:
                    if len(part) > 1:
                        parts.extend([each] for each in part)
                        continue
                    error = failed
            for _, future in part:
                _tell(future, error)

    def _write(self, writes: Sequence[Write]) -> None:
        """Write, and commit.

        Raises:
            StoreError: It is not written.
        """
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            self.trouble = str(explained(self._path, error))
            raise _NotBegunError(self.trouble) from error
        changed: list[str] = []
        try:
            for write in writes:
                changed.extend(write(self._connection))
            self._connection.execute("COMMIT")
        except Exception as error:  # whatever it is, whoever waits is told, and the thread goes on
            self._roll_back()
            if isinstance(error, sqlite3.Error) and not isinstance(error, _OF_VALUES):
                self.trouble = str(explained(self._path, error))
                raise StoreError(self.trouble) from error
            raise UnkeepableError(f"cannot be kept in the store {str(self._path)!r}: {error}") from error
        self.trouble = ""
        self.changes.update(changed)

    def _roll_back(self) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            self.trouble = str(explained(self._path, error))

    def _tidy(self) -> bool:
        """Remove some of what is too old or too much; whether there may be more of it.

        A little at a time: others wait to be written.
        """
        before = sum(self.changes.values())
        try:
            oldest = self._oldest()
            if oldest is not None:
                self._write([lambda to: _remove_old(to, oldest)])
            more = sum(self.changes.values()) > before
            if not more:
                size = self._size()
                if size > self._retention.max_bytes:
                    share = 1 - self._retention.max_bytes / size
                    self._write([lambda to: _remove_oldest(to, share)])
                    more = self._size() < size  # else nothing is left to remove
        except StoreError:
            return False
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
        try:
            self._connection.execute(f"PRAGMA incremental_vacuum({_FREED_AT_ONCE})").fetchall()
            return self._connection.execute("PRAGMA freelist_count").fetchone()[0] > _SPARE_PAGES
        except sqlite3.Error as error:
            self.trouble = str(explained(self._path, error))
            return False

    def _size(self) -> int:
        """Bytes of the file that are in use."""
        try:
            pages, free, size = (
                self._connection.execute(f"PRAGMA {pragma}").fetchone()[0]
                for pragma in ("page_count", "freelist_count", "page_size")
            )
        except sqlite3.Error as error:
            self.trouble = str(explained(self._path, error))
            return 0
        return (pages - free) * size


def _tell(future: "Future[None]", error: StoreError | None) -> None:
    # A future that its owner cancelled is of no interest to anybody.
    if future.set_running_or_notify_cancel():
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


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
