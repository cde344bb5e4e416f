"""The embedded store: runs that are over, and the spans of those that are not, in one SQLite file."""

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from itertools import groupby
from operator import itemgetter
from os import PathLike
from pathlib import Path
from typing import Final

from otel_loopeval.otlp import read_lines, trace_line
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.server.served import ServedRun
from otel_loopeval.server.store.details import packed_detail
from otel_loopeval.server.store.queries import read_closed_traces, read_open_spans
from otel_loopeval.server.store.retention import Retention
from otel_loopeval.server.store.rows import COLUMNS, row_of
from otel_loopeval.server.store.schema import lock, open_writer
from otel_loopeval.server.store.view import Reader, View
from otel_loopeval.server.store.writer import Writer

NO_STORE: Final = "none"
_READ_AT_ONCE: Final = 1_000

_PUT_RUN: Final = (
    f"INSERT INTO runs ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))}) "  # noqa: S608 - names of ours
    f"ON CONFLICT (key) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in COLUMNS[1:])}"
)


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
        path = Path(path)
        self._clock = clock
        self._lock_file = lock(path)
        try:
            connection = open_writer(path)
            self._reader = Reader(path)
        except BaseException:
            self._lock_file.close()
            raise
        self._writer = Writer(connection, path, retention or Retention(), clock)

    def view(self, tenant: str | None = None) -> View:
        """What somebody may see of it.

        Args:
            tenant: Whose runs; None for those of all.
        """
        return View(self._reader, self._writer, tenant)

    def put_spans(self, spans: Sequence[SpanData], tenant: str = "") -> "Future[None]":
        """Keep spans of a tenant's traces that are not closed. One that is there already stays as it is."""
        now = self._clock()

        def write(connection: sqlite3.Connection) -> tuple[str, ...]:
            connection.executemany(
                "INSERT OR IGNORE INTO open_spans VALUES (?, ?, ?, ?, ?)",
                [(tenant, *_ids(span), now, trace_line([span])) for span in spans],
            )
            return ()

        return self._writer.submit(write, len(spans))

    def put_run(self, run: ServedRun) -> "Future[None]":
        """Keep a run that is over. One that is there already is replaced."""

        def write(connection: sqlite3.Connection) -> tuple[str, ...]:
            row = row_of(run)
            connection.execute(_PUT_RUN, row)
            seq = connection.execute("SELECT seq FROM runs WHERE key = ?", row[:1]).fetchone()[0]
            connection.execute("INSERT OR REPLACE INTO details VALUES (?, ?)", (seq, packed_detail(run)))
            return (run.tenant,)

        return self._writer.submit(write, len(run.spans))

    def close_trace(self, trace_id: int, tenant: str = "") -> "Future[None]":
        """A trace is closed: :meth:`open_spans` tells of its spans no more."""

        def write(connection: sqlite3.Connection) -> tuple[str, ...]:
            connection.execute(
                "DELETE FROM open_spans WHERE tenant = ? AND trace_id = ?",
                (tenant, trace_id.to_bytes(16, "big")),
            )
            return ()

        return self._writer.submit(write)

    def open_spans(self) -> Iterator[tuple[str, SpanData]]:
        """The spans of all traces that are not closed, each with its tenant, by tenant and trace.

        A damaged one is left out.

        Raises:
            StoreError: The file cannot be read.
        """
        after: tuple[str, bytes, bytes] = "", b"", b""
        while True:
            rows = self._reader.read(read_open_spans, after, _READ_AT_ONCE)
            for tenant, of_tenant in groupby(rows, itemgetter(0)):
                for span in read_lines((row[3] for row in of_tenant), on_error=_leave_out):
                    yield tenant, span
            if len(rows) < _READ_AT_ONCE:
                return
            after = rows[-1][:3]

    def closed_traces(self, since_ns: int, most: int) -> list[tuple[str, int]]:
        """Tenant and id of the traces of runs that were closed at a time or later, the latest last.

        Args:
            since_ns: The time, in nanoseconds since the epoch.
            most: How many at most: the latest.

        Raises:
            StoreError: The file cannot be read.
        """
        return self._reader.read(read_closed_traces, since_ns, most)

    def close(self, patience_s: float = 20.0) -> bool:
        """Write what waits, and close the file.

        Args:
            patience_s: Seconds that it may take. After them, nothing more is written.

        Returns:
            Whether all that waited was written, or refused, and the file is closed. If not, the last write is
            still under way, and the file stays this process's until its end.
        """
        if not self._writer.close(patience_s):
            return False
        self._reader.close()
        self._lock_file.close()
        return True


def _ids(span: SpanData) -> tuple[bytes, bytes]:
    return span.trace_id.to_bytes(16, "big"), span.span_id.to_bytes(8, "big")


def _leave_out(_error: Exception) -> None:
    """A span that cannot be read would keep the others from coming back."""
