"""The one thread that writes to the store: what waits for it is committed together."""

import sqlite3
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Final

from otel_loopeval.server.store.retention import Retention, Tidier
from otel_loopeval.server.store.schema import StoreError, UnkeepableError, Write, explained

MAX_WAITING: Final = 200_000
"""Spans that may wait for the writer; more are refused, so that the memory of a slow disk is bounded."""
_MAX_TOGETHER: Final = 20_000
"""Spans in one commit: a larger one would keep its senders waiting, and the write-ahead log growing."""

_OF_VALUES: Final = (
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
)
"""Errors of SQLite's that are not about the file, but about what is to go into it."""


class _NotBegunError(StoreError):
    """There could be no transaction: another process has the file, or its disk is gone."""


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
        self._every_s = retention.every_s
        self._tidier = Tidier(connection, retention, clock)
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
                look_at = time.monotonic() + (0 if self._tidy() else self._every_s)
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

    def _tidy(self) -> bool:
        """Remove some of what is too much; whether there may be more of it."""
        try:
            return self._tidier.tidy(lambda write: self._write([write]))
        except StoreError:
            return False
        except sqlite3.Error as error:
            self.trouble = str(explained(self._path, error))
            return False

    def _write(self, writes: Sequence[Write]) -> Collection[str]:
        """Write, and commit.

        Returns:
            Of which tenants the list of runs has changed.

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
        return changed

    def _roll_back(self) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            self.trouble = str(explained(self._path, error))


def _tell(future: "Future[None]", error: StoreError | None) -> None:
    # A future that its owner cancelled is of no interest to anybody.
    if future.set_running_or_notify_cancel():
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
