"""The SQLite file of the store: opening it, bringing it up to date, one process at a time."""

import os
import sqlite3
import stat
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import IO, Final

from otel_loopeval.server.store.tables import APPLICATION_ID, SCHEMA, UPGRADES

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

BUSY_S: Final = 10.0
"""Seconds that one waits while another process, such as ``sqlite3``, has the file."""
_MAX_LOG: Final = 64 * 2**20
"""Bytes to which the write-ahead log is cut after it has grown."""


Write = Callable[[sqlite3.Connection], Collection[str]]
"""Writes to the connection that it is given, inside a transaction.

It returns the tenants whose lists of runs have changed."""


class StoreError(OSError):
    """The store cannot be opened, read or written to; the message says why and names the file."""


class UnkeepableError(StoreError):
    """It cannot be kept, however often one tries: it is not the store that fails."""


def lock(path: Path) -> IO[bytes]:
    """Take the file for this process, until the lock is closed or the process ends, in whatever way.

    It is the file's that symbolic links lead to, whichever way it was named.

    Raises:
        StoreError: Another process has it, it is no regular file, or there can be no lock beside it.
    """
    try:
        real = path.resolve()
        other = real.exists() and not stat.S_ISREG(real.stat().st_mode)
        # What is beside a device, say, is not ours either.
        stream = None if other else real.with_name(f"{real.name}-lock").open("ab")
    except (OSError, RuntimeError) as error:  # the latter for links in a circle, before Python 3.13
        raise _unopened(path, error) from error
    if stream is None:
        raise StoreError(f"cannot open the store {str(path)!r}: it takes a regular file")
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
        raise _unopened(path, error) from error
    try:
        connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
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
        connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA query_only = 1")
    except sqlite3.Error as error:
        raise explained(path, error) from error
    return connection


def explained(path: Path, error: sqlite3.Error) -> StoreError:
    """An error of SQLite's, with what to do about it."""
    text = str(error)
    if not isinstance(error, sqlite3.OperationalError) and isinstance(error, sqlite3.DatabaseError):
        text += "; move the file away, and a new one is made"
        if "not a database" in text:  # it may never have been a store
            text += ", or choose another file"
    return StoreError(f"the store {str(path)!r} fails: {text}")


def _unopened(path: Path, error: OSError | RuntimeError) -> StoreError:
    why = error.strerror or error if isinstance(error, OSError) else error
    return StoreError(
        f"cannot open the store {str(path)!r}: {why} (it takes a file that can be read and written, in a "
        "folder that is there and can be written to)"
    )


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    version, application = (
        connection.execute(f"PRAGMA {pragma}").fetchone()[0] for pragma in ("user_version", "application_id")
    )
    empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    if not empty and application != APPLICATION_ID:
        raise StoreError(f"{str(path)!r} is a database of another program: choose another file for the store")
    known = 1 + len(UPGRADES)
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
        connection.executescript(f"BEGIN IMMEDIATE;{SCHEMA}COMMIT;")
        return
    # A file that cannot be written to shall fail now, not with the first span.
    upgrades = "".join(f"{script};" for script in UPGRADES[version - 1 :])
    connection.executescript(f"BEGIN IMMEDIATE;{upgrades}PRAGMA user_version = {known};COMMIT;")
