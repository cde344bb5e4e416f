"""Files and standard input → spans."""

import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

from otel_loopeval.otlp.misfit import Misfit
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.sources.compression import STREAM_ERRORS, decompressed
from otel_loopeval.sources.documents import spans_of
from otel_loopeval.sources.errors import Reporter, SourceError
from otel_loopeval.sources.paths import files_at
from otel_loopeval.sources.records import Record, records
from otel_loopeval.sources.salvage import Damaged

_BUFFER = 2**20
_PROGRESS_BYTES = 2**20
_HEAD = 512

Progress = Callable[[int, int | None], object]
Found = TypeVar("Found")


def read_files(location: str, report: Reporter, on_progress: Progress | None) -> Iterator[SpanData]:
    """The spans in the files at a location, one file after the other.

    Raises:
        SourceError: There are none, or what ``report`` raises. A file that cannot be read is a part of a
            location that has several.
    """
    paths = files_at(location)
    sizes = [_size(path) for path in paths]
    total = sum(sizes)
    done = 0
    for path, size in zip(paths, sizes, strict=True):
        try:
            with path.open("rb", buffering=0) as raw:
                meter = _Meter(raw, on_progress, done, total)
                yield from read_stream(meter.buffered(), os.fspath(path), report)
        except OSError as error:
            _lost(SourceError(os.fspath(path), "", error.strerror or str(error)), report, of=len(paths))
        except SourceError as error:
            if error.place:  # reported and raised already
                raise
            _lost(error, report, of=len(paths))
        done += size
    if on_progress is not None:
        on_progress(total, total)


def read_standard_input(report: Reporter, on_progress: Progress | None) -> Iterator[SpanData]:
    """The spans that are piped in.

    Raises:
        SourceError: They are in no form that is known, or what ``report`` raises.
    """
    stream = cast("BinaryIO", sys.stdin.buffer)
    meter = _Meter(cast("io.RawIOBase", stream), on_progress, 0, None)
    yield from read_stream(meter.buffered(), "standard input", report)


def read_stream(
    stream: io.BufferedReader,
    source: str,
    report: Reporter,
    read: Callable[[Record], Sequence[Found]] = spans_of,
) -> Iterator[Found | SpanData]:
    """The spans in a stream of bytes.

    Args:
        stream: The stream.
        source: What it is, for errors.
        report: Called with the error of each record that cannot be read.
        read: Gives what is in a record; raises :class:`~otel_loopeval.otlp.misfit.Misfit`, and what can be
            read of the record comes all the same.

    Raises:
        SourceError: They are in no form that is known, or what ``report`` raises.
    """
    place = ""
    try:
        content = decompressed(stream)
        found = records(content, content.peek(_HEAD))
        if found is None:
            raise SourceError(source, "", "neither JSON nor OTLP protobuf (nor either with gzip or zstd)")
        for record in found:
            place = record.place
            yield from _found(record, source, report, read)
    except STREAM_ERRORS as error:
        where = f"after {place}" if place else "its beginning"
        report(SourceError(source, where, f"broken compression: {error}; what follows is left unread"))
    except ValueError as error:
        if isinstance(error, SourceError):
            raise
        raise SourceError(source, "", str(error)) from None


def _found(
    record: Record, source: str, report: Reporter, read: Callable[[Record], Sequence[Found]]
) -> Sequence[Found | SpanData]:
    if record.problem:
        report(SourceError(source, record.place, record.problem))
        return []
    try:
        return read(record)
    except Misfit as misfit:
        report(SourceError(source, record.place, str(misfit)))
        return misfit.spans if isinstance(misfit, Damaged) else []


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _lost(error: SourceError, report: Reporter, *, of: int) -> None:
    if of == 1:
        raise error from None
    report(error)


class _Meter(io.RawIOBase):
    """A stream that tells how much of it has been read."""

    def __init__(self, raw: io.RawIOBase, on_progress: Progress | None, done: int, total: int | None) -> None:
        self._raw = raw
        self._on_progress = on_progress
        self._done = done
        self._told = done
        self._total = total

    def buffered(self) -> io.BufferedReader:
        return io.BufferedReader(self, _BUFFER)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview") -> int | None:  # type: ignore[override]
        count = cast("int | None", self._raw.readinto(buffer))  # type: ignore[reportUnknownMemberType]
        if count and self._on_progress is not None:
            self._done += count
            if self._done - self._told >= _PROGRESS_BYTES:
                self._told = self._done
                self._on_progress(self._done, self._total)
        return count
