"""The SQLite file of the store: opening it, its schema and the schema's version, one process at a time."""

import os
import sqlite3
import sys
from pathlib import Path
from typing import IO, Final

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_UPGRADES: Final[tuple[str, ...]] = ()
"""What makes the second version of the schema of the first, the third of the second, and so on."""
_MAX_LOG: Final = 64 * 2**20
"""Bytes to which the write-ahead log is cut after it has grown."""
_APPLICATION_ID: Final = 0x6C_6F_6F_70  # "loop", so that another program's database is told apart

# The schema as it is now, all upgrades included. The big column is in a table of its own, so that lists read
# few pages. Each index ends in the order of the list, so that a page of it is read without sorting, however
# many runs there are.
_SCHEMA: Final = f"""
PRAGMA application_id = {_APPLICATION_ID};
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
    record TEXT NOT NULL
);
CREATE INDEX runs_by_time ON runs (closed_ns);
CREATE INDEX runs_by_verdict ON runs (passed, closed_ns);
CREATE INDEX runs_by_doom_loop ON runs (closed_ns) WHERE doom_loop = 1;
CREATE INDEX runs_by_agent ON runs (agent, closed_ns);
CREATE INDEX runs_by_agent_and_verdict ON runs (agent, passed, closed_ns);
CREATE INDEX runs_by_agent_with_doom_loop ON runs (agent, closed_ns) WHERE doom_loop = 1;
CREATE INDEX runs_by_agent_and_service ON runs (agent, service, closed_ns);
CREATE INDEX runs_by_service ON runs (service, closed_ns);
CREATE INDEX runs_by_service_and_verdict ON runs (service, passed, closed_ns);
CREATE INDEX runs_by_service_with_doom_loop ON runs (service, closed_ns) WHERE doom_loop = 1;
CREATE INDEX runs_by_trace ON runs (trace_id);
CREATE TABLE details (
    seq INTEGER PRIMARY KEY REFERENCES runs (seq) ON DELETE CASCADE,
    detail BLOB NOT NULL
);
CREATE TABLE open_spans (
    trace_id BLOB NOT NULL,
    span_id BLOB NOT NULL,
    received_ns INTEGER NOT NULL,
    line TEXT NOT NULL,
    PRIMARY KEY (trace_id, span_id)
) WITHOUT ROWID;
CREATE INDEX open_spans_by_time ON open_spans (received_ns);
PRAGMA user_version = {1 + len(_UPGRADES)};
"""


class StoreError(OSError):
    """The store cannot be opened, read or written to; the message says why and names the file."""


def lock(path: Path) -> IO[bytes]:
    """Take the file for this process, until the lock is closed or the process ends, in whatever way.

    Raises:
        StoreError: Another process has it, or there can be no lock beside it.
    """
    beside = path.with_name(f"{path.name}-lock")
    try:
        stream = beside.open("ab")
    except OSError as error:
        raise StoreError(f"cannot open the store {str(path)!r}: {error.strerror or error}") from error
    try:
        if sys.platform == "win32":
            msvcrt.locking(stream.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(stream.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        stream.close()
        raise StoreError(
            f"the store {str(path)!r} is in use by another process: each needs a file of its own"
        ) from error
    return stream


def open_writer(path: Path) -> sqlite3.Connection:
    """A connection that writes, to a file of our schema; made if it is not there, for its owner only.

    Raises:
        StoreError: There can be no such file, it is damaged, or it is not ours.
    """
    try:
        # What was captured may be secret. An umask would be the whole process's.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise StoreError(f"cannot open the store {str(path)!r}: {error.strerror or error}") from error
    try:
        connection = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
        try:
            _prepare(connection, path)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise explained(path, error) from error
    return connection


def open_reader(path: Path) -> sqlite3.Connection:
    """A connection that only reads; for use under a lock by any thread.

    Raises:
        StoreError: The file cannot be read.
    """
    try:
        connection = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA query_only = 1")
    except sqlite3.Error as error:
        raise explained(path, error) from error
    return connection


def explained(path: Path, error: sqlite3.Error) -> StoreError:
    """An error of SQLite's, with what to do about it."""
    text = str(error)
    if not isinstance(error, sqlite3.OperationalError) and isinstance(error, sqlite3.DatabaseError):
        text += "; move the file away, and a new one is made"
    return StoreError(f"the store {str(path)!r} fails: {text}")


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    version, application = (
        connection.execute(f"PRAGMA {pragma}").fetchone()[0] for pragma in ("user_version", "application_id")
    )
    empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    if not empty and application != _APPLICATION_ID:
        raise StoreError(f"{str(path)!r} is a database of another program: choose another file for the store")
    known = 1 + len(_UPGRADES)
    if version > known:
        raise StoreError(
            f"the store {str(path)!r} has version {version} of the schema, and this otel-loopeval knows "
            f"versions up to {known}: use the newer otel-loopeval, or another file"
        )
    if empty:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # before the first table, or not at all
    connection.execute("PRAGMA journal_mode = WAL")
    # An acknowledged span outlives a loss of power too; commits are shared, so that this costs little.
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = 1")
    connection.execute(f"PRAGMA journal_size_limit = {_MAX_LOG}")
    if empty:
        connection.executescript(f"BEGIN IMMEDIATE;{_SCHEMA}COMMIT;")
        return
    # A file that cannot be written to shall fail now, not with the first span.
    upgrades = "".join(f"{script};" for script in _UPGRADES[version - 1 :])
    connection.executescript(f"BEGIN IMMEDIATE;{upgrades}PRAGMA user_version = {known};COMMIT;")
