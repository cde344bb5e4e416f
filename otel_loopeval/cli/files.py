"""Writing a file whole or not at all."""

import os
from contextlib import suppress
from pathlib import Path

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
    try:
        if _is_special(path):
            path.write_text(text, encoding="utf-8", newline="\n")
            return
        temporary = _temporary_beside(path)
        try:
            with temporary.open("x", encoding="utf-8", newline="\n") as stream:
                stream.write(text)
            temporary.replace(os.path.realpath(path))
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
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
