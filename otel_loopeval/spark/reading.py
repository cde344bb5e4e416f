"""Arrow batches of whatever holds spans → the spans, read as ``score`` reads them."""

import io
import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from itertools import starmap
from pathlib import Path
from typing import Any, Final, cast

from otel_loopeval.otlp.misfit import Misfit
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.server.traces.intake import Intake, Others, ids_of
from otel_loopeval.sources import SourceError, open_source
from otel_loopeval.sources.clickhouse import span_of_row
from otel_loopeval.sources.documents import spans_of_json, spans_of_request
from otel_loopeval.sources.errors import Reporter
from otel_loopeval.sources.files import read_stream
from otel_loopeval.sources.records import Form, Record
from otel_loopeval.sources.salvage import Damaged
from otel_loopeval.spark.lines import Part, Undecoded, split_line

_LOG: Final = logging.getLogger("otel_loopeval.spark")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND: Final = timedelta(microseconds=1)
_MAX_RESOURCES: Final = 1000
_JSON: Final = (b"{", b"[")
_BUFFER: Final = 2**20
_PARENT: Final = b"\x22\x08"  # tag and length
_NO_SPAN: Final = bytes(8)
_NEEDED: Final = ("TraceId", "SpanId", "ParentSpanId", "SpanName", "Timestamp", "Duration", "SpanAttributes")
_CLICKHOUSE: Final = (
    *_NEEDED,
    "ServiceName",
    "ResourceAttributes",
    "ScopeName",
    "StatusCode",
    "StatusMessage",
    "Events.Timestamp",
    "Events.Name",
    "Events.Attributes",
)
_ALIASES: Final = {
    "Events.Timestamp": "EventTimes",
    "Events.Name": "EventNames",
    "Events.Attributes": "EventAttributes",
}
"""Spark takes a dot in a name for that of a field."""


Found = SpanData | Undecoded
Layout = Callable[[Any, Reporter], Iterator[Found]]
"""Gives the spans in an Arrow batch."""


class Reader:
    """How the rows of a table are read.

    Attributes:
        columns: The columns that are read.
        read: Gives the spans in an Arrow batch of these columns.
    """

    def __init__(self, columns: tuple[str, ...], read: Layout) -> None:
        self.columns = columns
        self.read = read

    @property
    def expressions(self) -> list[str]:
        """The columns in the words of Spark SQL."""
        return [f"`{name}` AS `{_ALIASES.get(name, name)}`" for name in self.columns]


def reader_of(columns: Sequence[str]) -> Reader:
    """How a table with these columns is read.

    Raises:
        ValueError: It holds spans in no form that is known.
    """
    known = set(columns)
    if known.issuperset(_NEEDED):
        return Reader(tuple(name for name in _CLICKHOUSE if name in known), _rows)
    if known.issuperset(("path", "content")):
        return Reader(("path", "content"), _files)
    if "value" in known:
        return Reader(("value",), _bodies)
    if "path" in known:
        return Reader(("path",), _paths)
    raise ValueError(
        "expected a column 'value' (lines of a file, messages of Kafka), 'path' (files; with 'content', what "
        f"is in them), or the columns of ClickHouse's otel_traces ({', '.join(_NEEDED)}, …), got the columns "
        f"{', '.join(map(repr, columns))}"
    )


def reporter(*, strict: bool) -> Reporter:
    """What is told of a part that cannot be read: it is logged and left out, or ends the job."""
    return _raise if strict else _warn


def _raise(error: SourceError) -> None:
    # An exception of several arguments does not survive the way to the driver. No ValueError, which is what
    # a file that cannot be read may raise.
    raise RuntimeError(str(error)) from None


def _warn(error: SourceError) -> None:
    _LOG.warning("skipped %s", error)


def _bodies(batch: Any, report: Reporter) -> Iterator[Found]:
    """Each cell is an OTLP body: JSON or protobuf."""
    import pyarrow as pa  # noqa: PLC0415 - an extra  # type: ignore[import]

    column = batch.column(0).cast(cast("Any", pa).binary())
    intake = Intake()
    for index in range(len(column)):
        body = cast("bytes | None", column[index].as_py())
        if not body or body.isspace():
            continue
        form = Form.JSON if body.lstrip()[:1] in _JSON else Form.REQUEST
        try:
            yield from _of_record(Record("", form, body), intake)
        except Misfit as misfit:
            report(SourceError("a value", "", str(misfit)))
            if isinstance(misfit, Damaged):
                yield from misfit.spans


def _files(batch: Any, report: Reporter) -> Iterator[Found]:
    """Each row is a file with its content."""
    for path, content in zip(batch.column(0), batch.column(1), strict=True):
        yield from _reported(
            _stream(cast("io.RawIOBase", io.BytesIO(content.as_py())), path.as_py(), report), report
        )


def _paths(batch: Any, report: Reporter) -> Iterator[Found]:
    """Each row is a file that the task can open, or anything else that ``score`` reads."""
    for path in batch.column(0):
        yield from _reported(_at(path.as_py(), report), report)


def _at(path: str, report: Reporter) -> Iterator[Found]:
    if not Path(path).is_file():
        yield from open_source(path, on_error=report)
        return
    try:
        with Path(path).open("rb", buffering=0) as stream:
            yield from _stream(stream, path, report)
    except OSError as error:
        report(SourceError(path, "", error.strerror or str(error)))


def _stream(stream: io.RawIOBase, path: str, report: Reporter) -> Iterator[Found]:
    intake = Intake()
    buffered = cast("io.BufferedReader", io.BufferedReader(stream, _BUFFER))
    return read_stream(buffered, path, report, lambda record: _of_record(record, intake))


def _of_record(record: Record, intake: Intake) -> Sequence[Found]:
    if record.form is Form.JSON:
        found = split_line(record.data)
        if found is None:
            return spans_of_json(record.data)
        return [*found[0], *found[1]]
    body = record.data
    if record.form is Form.RESOURCE_SPANS:
        body = b"\x0a" + _varint(len(body)) + body
    try:
        marked, others, decoded, _, _ = intake.read(body)
    except Misfit:
        return spans_of_request(body)
    return [*marked, *decoded, *starmap(undecoded, others.items())]


def undecoded(trace_id: bytes, others: list[Others]) -> Undecoded:
    """What the intake has left undecoded of a trace."""
    parts: list[Part] = [(scope, resource, spans) for (resource, scope), spans in others]
    return Undecoded(trace_id, parts, any(_is_root(data) for _, _, spans in parts for data in spans))


def _is_root(data: bytes) -> bool:
    # Nearly all have the parent's id just behind their own.
    return (data[28:30] != _PARENT or data[30:38] == _NO_SPAN) and not ids_of(data)[1]


def _varint(number: int) -> bytes:
    data = bytearray()
    while number >= 0x80:  # noqa: PLR2004 - more than seven bits
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def _reported(spans: Iterator[Found], report: Reporter) -> Iterator[Found]:
    try:
        yield from spans
    except SourceError as error:
        report(error)


def _rows(batch: Any, report: Reporter) -> Iterator[SpanData]:
    """Each row is a span, as the Collector's exporter to ClickHouse writes it."""
    resources: dict[str, dict[str, Any]] = {}
    for row in batch.to_pylist():
        try:
            yield span_of_row(_as_selected(row), resources)
        except (Misfit, ValueError, TypeError) as error:
            report(SourceError("a row", "", str(error)))
        if len(resources) > _MAX_RESOURCES:
            resources.clear()


def _as_selected(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the table as ClickHouse would give it to ``score``."""
    row["Start"] = _nanoseconds(row["Timestamp"])
    row["Duration"] = int(row["Duration"])  # Spark has no unsigned numbers: it gives a decimal
    row["SpanAttributes"] = _attributes(row["SpanAttributes"])
    row["ResourceAttributes"] = _attributes(row.get("ResourceAttributes"))
    row["EventTimes"] = [_nanoseconds(time) for time in row.get("EventTimes") or ()]
    row["EventNames"] = row.get("EventNames") or []
    row["EventAttributes"] = [_attributes(found) for found in row.get("EventAttributes") or ()]
    return row


def _nanoseconds(time: Any) -> int:
    if isinstance(time, datetime):
        moment = time if time.tzinfo is not None else time.replace(tzinfo=timezone.utc)
        return (moment - _EPOCH) // _MICROSECOND * 1000
    return int(time)


def _attributes(found: Any) -> Any:
    """Arrow gives a map as pairs."""
    return dict(cast("list[tuple[str, Any]]", found)) if isinstance(found, list) else found
