"""The embedded store: runs that are over, and the spans of those that are not, in one SQLite file."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypeVar

from otel_loopeval.otlp import read_lines, trace_line
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.server.served import ServedRun
from otel_loopeval.server.store_queries import (
    Choices,
    Cursor,
    RunFilter,
    RunPage,
    read_choices,
    read_counts,
    read_open_traces,
    read_page,
    read_run,
    read_siblings,
)
from otel_loopeval.server.store_rows import (
    COLUMNS,
    RunDetail,
    StoredRun,
    packed_detail,
    row_of,
    unpacked_detail,
)
from otel_loopeval.server.store_schema import StoreError, explained, lock, open_reader, open_writer
from otel_loopeval.server.store_writer import Retention, Writer

PAGE_SIZE: Final = 50
"""Runs on a page of a list."""
NO_STORE: Final = "none"
_MOST_CHOICES: Final = 500
_MOST_SIBLINGS: Final = 50
_READ_AT_ONCE: Final = 1_000

_PUT_RUN: Final = (
    f"INSERT INTO runs ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))}) "  # noqa: S608 - names of ours
    f"ON CONFLICT (key) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in COLUMNS[1:])}"
)

_T = TypeVar("_T")


def open_store(path: "str | PathLike[str]", retention: Retention | None = None) -> "Store | None":
    """The store in a file; None where the path is ``none``.

    Raises:
        StoreError: The file cannot be opened, is damaged, or is another program's.
    """
    return None if path == NO_STORE else Store(path, retention)


class Store:
    """Runs that are over, and the spans of those that are not.

    Thread-safe. What is put comes back as a future, which is done once it is on the disk, so that an
    acknowledged span survives whatever ends the process; its exception is a :class:`StoreError` where the
    disk is full, say. A full disk or a damaged file stops no thread: once there is space, writing goes on.

    Args:
        path: The file; made if it is not there. Its folder must be there.
        retention: What is kept; by default 7 days and 1 GiB.
        clock: The time in nanoseconds since the epoch.

    Raises:
        StoreError: The file cannot be opened, is damaged, or is another program's.
    """

    def __init__(
        self,
        path: "str | PathLike[str]",
        retention: Retention | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._path = Path(path)
        self._clock = clock
        self._lock_file = lock(self._path)
        try:
            connection = open_writer(self._path)
            self._reader = open_reader(self._path)
        except BaseException:
            self._lock_file.close()
            raise
        self._reading = threading.Lock()  # one connection, used by any thread
        self._writer = Writer(connection, self._path, retention or Retention(), clock)

    @property
    def trouble(self) -> str:
        """Why the last commit failed; empty if it did not."""
        return self._writer.trouble

    @property
    def changes(self) -> int:
        """A number that is another one after the list of runs has changed."""
        return self._writer.changes

    def put_spans(self, spans: Sequence[SpanData]) -> "Future[None]":
        """Keep spans of traces that are not closed. One that is there already stays as it is."""
        now = self._clock()

        def write(connection: sqlite3.Connection) -> None:
            connection.executemany(
                "INSERT OR IGNORE INTO open_spans VALUES (?, ?, ?, ?)",
                [(*_ids(span), now, trace_line([span])) for span in spans],
            )

        return self._writer.submit(write, len(spans))

    def put_run(self, run: ServedRun) -> "Future[None]":
        """Keep a run that is over. One that is there already is replaced."""

        def write(connection: sqlite3.Connection) -> bool:
            row = row_of(run)
            connection.execute(_PUT_RUN, row)
            seq = connection.execute("SELECT seq FROM runs WHERE key = ?", row[:1]).fetchone()[0]
            connection.execute("INSERT OR REPLACE INTO details VALUES (?, ?)", (seq, packed_detail(run)))
            return True

        return self._writer.submit(write, len(run.spans))

    def close_trace(self, trace_id: int) -> "Future[None]":
        """A trace is closed: :meth:`open_spans` tells of its spans no more."""

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM open_spans WHERE trace_id = ?", (trace_id.to_bytes(16, "big"),))

        return self._writer.submit(write)

    def open_spans(self) -> Iterator[SpanData]:
        """The spans of all traces that are not closed, by trace. A damaged one is left out.

        Raises:
            StoreError: The file cannot be read.
        """
        after: tuple[bytes, bytes] = b"", b""
        while True:
            rows = self._read(_open_spans_after, after)
            yield from read_lines((row[2] for row in rows), on_error=_leave_out)
            if len(rows) < _READ_AT_ONCE:
                return
            after = rows[-1][0], rows[-1][1]

    def open_traces(self) -> int:
        """How many traces are not closed; at most :data:`~otel_loopeval.server.store_queries.MOST_OPEN` + 1.

        Raises:
            StoreError: The file cannot be read.
        """
        return self._read(read_open_traces)

    def closed_roots(self, since_ns: int) -> list[tuple[int, int]]:
        """Trace and span ids of the roots of runs that were closed at a time or later.

        Raises:
            StoreError: The file cannot be read.
        """
        rows = self._read(_closed_roots, since_ns)
        return [
            (int.from_bytes(trace_id, "big"), int.from_bytes(root_id, "big")) for trace_id, root_id in rows
        ]

    def runs(self, asked: RunFilter, cursor: Cursor | None = None, size: int = PAGE_SIZE) -> RunPage:
        """A page of the runs, the one that was judged last first.

        Raises:
            StoreError: The file cannot be read.
        """
        return self._read(read_page, asked, cursor, size)

    def counts(self, asked: RunFilter) -> dict[str | None, int]:
        """How many runs there are of each verdict (None: of all), the verdict that is asked for left aside.

        Each is at most :data:`~otel_loopeval.server.store_queries.MOST_COUNTED` + 1.

        Raises:
            StoreError: The file cannot be read.
        """
        return self._read(read_counts, asked)

    def run(self, key: str) -> tuple[StoredRun, RunDetail] | None:
        """A run with all that is known of it, or None if there is no such run.

        Raises:
            StoreError: The file cannot be read.
        """
        found = self._read(read_run, key)
        if found is None:
            return None
        try:
            return found[0], unpacked_detail(found[1])
        except ValueError as error:
            raise StoreError(f"the store {str(self._path)!r} fails: {error}") from error

    def siblings(self, run: StoredRun) -> tuple[StoredRun, ...]:
        """The other runs of a run's trace, at most 50.

        Raises:
            StoreError: The file cannot be read.
        """
        trace_id = int(run.record.trace_id or "0", 16)
        return self._read(read_siblings, trace_id, run.key, _MOST_SIBLINGS)

    def choices(self) -> Choices:
        """The agents and services that there are, at most 500 of each.

        Raises:
            StoreError: The file cannot be read.
        """
        return self._read(read_choices, _MOST_CHOICES)

    def close(self) -> None:
        """Write what waits, and close the file."""
        self._writer.close()
        with self._reading:
            self._reader.close()
        self._lock_file.close()

    def _read(self, read: Callable[..., _T], *arguments: object) -> _T:
        try:
            with self._reading:
                return read(self._reader, *arguments)
        except sqlite3.Error as error:
            raise explained(self._path, error) from error


def _open_spans_after(connection: sqlite3.Connection, after: tuple[bytes, bytes]) -> list[Any]:
    return connection.execute(
        "SELECT trace_id, span_id, line FROM open_spans WHERE (trace_id, span_id) > (?, ?) "
        "ORDER BY trace_id, span_id LIMIT ?",
        (*after, _READ_AT_ONCE),
    ).fetchall()


def _closed_roots(connection: sqlite3.Connection, since_ns: int) -> list[tuple[bytes, bytes]]:
    return connection.execute(
        "SELECT trace_id, root_id FROM runs WHERE closed_ns >= ? AND root_id IS NOT NULL", (since_ns,)
    ).fetchall()


def _ids(span: SpanData) -> tuple[bytes, bytes]:
    return span.trace_id.to_bytes(16, "big"), span.span_id.to_bytes(8, "big")


def _leave_out(_error: Exception) -> None:
    """A span that cannot be read would keep the others from coming back."""
