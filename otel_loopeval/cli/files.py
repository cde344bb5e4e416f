"""Writing a file whole or not at all."""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from otel_loopeval.cli.errors import CommandError


def check_writable(path: Path) -> None:
    """Find out before the work whether its result can be written.

    Raises:
        CommandError: It cannot; the message names file and cause.
    """
    try:
        if path.is_dir():
            raise IsADirectoryError(None, "it is a folder")
        if not _is_special(path):
            temporary = _temporary_beside(path)
            temporary.open("x").close()
            temporary.unlink()
    except (OSError, ValueError) as error:
        raise _refused(path, error) from error


def write_whole(path: Path, text: str) -> None:
    """Write a file, whole or not at all.

    Args:
        path: The file; what was there before is replaced. Devices and pipes are written to.
        text: Its contents.

    Raises:
        CommandError: It cannot be written; the message names file and cause.
    """
    with open_whole(path, errors="strict") as stream:
        stream.write(text)


@contextmanager
def open_whole(path: Path, *, errors: str = "backslashreplace") -> Generator[TextIO, None, None]:
    """A stream to a file that is there with all that was written when the block ends, and else as before.

    Args:
        path: The file; what was there before is replaced. Devices and pipes are written to.
        errors: What becomes of text that UTF-8 cannot say, as for ``open()``.

    Raises:
        CommandError: It cannot be written; the message names file and cause.
    """
    try:
        special = _is_special(path)
        target = path if special else _temporary_beside(path)
        try:
            with target.open(
                "w" if special else "x", encoding="utf-8", errors=errors, newline="\n"
            ) as stream:
                yield stream
            if not special:
                target.replace(os.path.realpath(path))
        except BaseException:
            if not special:
                with suppress(OSError):
                    target.unlink()
            raise
    except (OSError, ValueError) as error:
        raise _refused(path, error) from error


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file()


def _temporary_beside(path: Path) -> Path:
    """A new name in the folder of the file, or of the one that it is a link to."""
    return Path(os.path.realpath(path)).parent / f".loopeval-{os.urandom(8).hex()}.tmp"


def _refused(path: Path, error: Exception) -> CommandError:
    cause = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return CommandError(f"cannot write {str(path)!r}: {cause}. Choose another file with --output.")
