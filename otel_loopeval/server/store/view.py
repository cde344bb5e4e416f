"""What somebody may see of the store: the runs of one tenant, or those of all."""

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar

from otel_loopeval.server.store.details import RunDetail, unpacked_detail
from otel_loopeval.server.store.queries import (
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
    read_tenants,
)
from otel_loopeval.server.store.rows import StoredRun
from otel_loopeval.server.store.schema import StoreError, explained, open_reader
from otel_loopeval.server.store.writer import Writer

PAGE_SIZE: Final = 50
"""Runs on a page of a list."""
_MOST_CHOICES: Final = 500
_MOST_SIBLINGS: Final = 50

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Reader:
    """Reads a store's file, for any thread.

    Args:
        path: The file.

    Raises:
        StoreError: The file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = open_reader(path)
        self._turn = threading.Lock()  # one connection, used by any thread

    def read(
        self, reading: Callable[Concatenate[sqlite3.Connection, _P], _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Read something of it.

        Raises:
            StoreError: The file cannot be read.
        """
        try:
            with self._turn:
                return reading(self._connection, *args, **kwargs)
        except sqlite3.Error as error:
            raise explained(self._path, error) from error

    def detail(self, packed: bytes) -> RunDetail:
        """The details of a run out of bytes that were read.

        Raises:
            StoreError: They are damaged.
        """
        try:
            return unpacked_detail(packed)
        except ValueError as error:
            raise StoreError(f"the store {str(self._path)!r} fails: {error}") from error

    def close(self) -> None:
        """Close the file."""
        with self._turn:
            self._connection.close()


class View:
    """The runs that are over, as far as somebody may see them.

    Thread-safe. Where the file cannot be read, its methods raise a
    :class:`~otel_loopeval.server.store.schema.StoreError`.

    Args:
        reader: Reads the file.
        writer: Writes to it.
        tenant: Whose runs they are; None for those of all.

    Attributes:
        tenant: Whose runs they are; None for those of all.
    """

    def __init__(self, reader: Reader, writer: Writer, tenant: str | None) -> None:
        self.tenant = tenant
        self._reader = reader
        self._writer = writer

    @property
    def trouble(self) -> str:
        """Why the last commit failed; empty if it did not."""
        return self._writer.trouble

    @property
    def changes(self) -> int:
        """A number that is another one after the list of runs has changed."""
        changes = self._writer.changes
        return sum(list(changes.values())) if self.tenant is None else changes[self.tenant]

    def runs(self, asked: RunFilter, cursor: Cursor | None = None, size: int = PAGE_SIZE) -> RunPage:
        """A page of the runs, the one that was judged last first."""
        return self._reader.read(read_page, self.tenant, asked, cursor, size)

    def counts(self, asked: RunFilter) -> dict[str | None, int]:
        """How many runs there are of each verdict (None: of all), the verdict that is asked for left aside.

        Each is at most :data:`~otel_loopeval.server.store.queries.MOST_COUNTED` + 1.
        """
        return self._reader.read(read_counts, self.tenant, asked)

    def run(self, key: str) -> tuple[StoredRun, RunDetail] | None:
        """A run with all that is known of it, or None if there is no such run."""
        found = self._reader.read(read_run, self.tenant, key)
        return None if found is None else (found[0], self._reader.detail(found[1]))

    def siblings(self, run: StoredRun) -> tuple[StoredRun, ...]:
        """The other runs of a run's trace, at most 50.

        The same trace id of another tenant is another trace.
        """
        return self._reader.read(read_siblings, run, _MOST_SIBLINGS)

    def choices(self) -> Choices:
        """The agents and services that there are, at most 500 of each."""
        return self._reader.read(read_choices, self.tenant, _MOST_CHOICES)

    def tenants(self) -> tuple[str, ...]:
        """The tenants that there are, at most 500; none in the view of one of them."""
        return self._reader.read(read_tenants, _MOST_CHOICES) if self.tenant is None else ()

    def open_traces(self) -> int:
        """How many traces are not closed.

        At most :data:`~otel_loopeval.server.store.queries.MOST_OPEN` + 1.
        """
        return self._reader.read(read_open_traces, self.tenant)
