"""A path, a directory or a glob → files."""

import glob
import os
from pathlib import Path

from otel_loopeval.sources.errors import SourceError

SUFFIXES = frozenset({".json", ".jsonl", ".ndjson", ".otlp", ".pb", ".binpb", ".proto", ".bin"})
"""What a directory is searched for; each with ``.gz``, ``.zst`` or ``.zstd`` after it, too."""
_COMPRESSED = frozenset({".gz", ".zst", ".zstd"})


def files_at(location: str) -> list[Path]:
    """The files at a location, by name.

    A directory is searched for files with one of :data:`SUFFIXES`, in its folders too, but for hidden ones; a
    glob may name any (``**`` means folders within folders).

    Raises:
        SourceError: There are none.
    """
    path = Path(location)
    try:
        is_directory, is_there = path.is_dir(), path.exists()
    except (OSError, ValueError) as error:  # a name that no file can have
        raise SourceError(location, "", str(error)) from None
    if is_directory:
        found = sorted(_within(path))
        if not found:
            raise SourceError(location, "", f"no file of traces in this directory ({_suffixes()})")
        return found
    if is_there:
        return [path]
    if glob.has_magic(location):
        matches = map(Path, glob.iglob(location, recursive=True))  # noqa: PTH207 - Path globs below a folder
        found = sorted(match for match in matches if match.is_file())
        if not found:
            raise SourceError(location, "", "no file matches")
        return found
    raise SourceError(location, "", "no such file or directory")


def _within(directory: Path) -> list[Path]:
    found: list[Path] = []
    for folder, folders, names in os.walk(directory):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(folder, name) for name in names if not name.startswith(".") and _is_traces(name)]
    return [path for path in found if path.is_file()]


def _is_traces(name: str) -> bool:
    path = Path(name.lower())
    if path.suffix in _COMPRESSED:
        path = path.with_suffix("")
    return path.suffix in SUFFIXES


def _suffixes() -> str:
    return ", ".join(sorted(SUFFIXES))
