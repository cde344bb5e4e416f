"""What runs in the tasks: functions of Arrow batches, for ``mapInArrow``."""

import gc
import json
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, Final, cast

from otel_loopeval.runs.resume import Segments
from otel_loopeval.sources.errors import Reporter, SourceError
from otel_loopeval.spark.judging import Judge, Judging
from otel_loopeval.spark.lines import Undecoded
from otel_loopeval.spark.packing import Packer
from otel_loopeval.spark.reading import Reader, reporter
from otel_loopeval.spark.schema import JUDGED_COLUMNS, VERDICT_COLUMNS, row_of

_PACKED_AT: Final = 50_000
"""Spans that are packed at once: the more, the fewer rows, and the more memory of the task."""
_ROWS: Final = 1000
_PARTITION_BITS: Final = 40
_SEGMENTS_LANE: Final = -1
Batches = Iterator[Any]
Task = Callable[[Batches], Batches]


class Tally:
    """Counts what goes through the tasks of one job. A task that is run again counts again.

    Args:
        spark: The session.

    Attributes:
        spans: Spans that were read.
        traces: Traces that were wanted.
        errors: Parts that could not be read.
    """

    def __init__(self, spark: Any) -> None:
        accumulator = spark.sparkContext.accumulator
        self.spans: Any = accumulator(0)
        self.traces: Any = accumulator(0)
        self.errors: Any = accumulator(0)

    def counting(self, report: Reporter) -> Reporter:
        """A reporter that counts, too."""

        def count(error: SourceError) -> None:
            self.errors.add(1)
            report(error)

        return count


@contextmanager
def seldom_collected() -> Generator[None, None, None]:
    """The garbage collector looks less often: there are many objects for a while, and no cycles."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def packs_of(reader: Reader, *, strict: bool, tally: Tally | None = None) -> Task:
    """Spans → packs, each with a place that puts the packs of a trace in order."""

    def pack(batches: Batches) -> Batches:
        place = _partition_id() << _PARTITION_BITS
        packer = Packer()
        report = reporter(strict=strict)
        if tally is not None:
            report = tally.counting(report)
        with seldom_collected():
            for batch in batches:
                for found in reader.read(batch, report):
                    if isinstance(found, Undecoded):
                        packer.add_undecoded(found)
                    else:
                        packer.add(found)
                    if packer.held >= _PACKED_AT:
                        place = yield from _flush(packer, place, tally)
            yield from _flush(packer, place, tally)

    return pack


def _flush(packer: Packer, place: int, tally: Tally | None) -> Generator[Any, None, int]:
    if tally is not None:
        tally.spans.add(packer.held)
    packs = packer.take()
    while chunk := list(islice(packs, _ROWS)):
        trace_ids, telling, rooted, spans, payloads = zip(*chunk, strict=True)
        places = range(place, place + len(chunk))
        place += len(chunk)
        pa = _pyarrow()
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(trace_ids, pa.binary()),
                pa.array(places, pa.int64()),
                pa.array(telling, pa.bool_()),
                pa.array(rooted, pa.bool_()),
                pa.array(spans, pa.int64()),
                pa.array(payloads, pa.binary()),
            ],
            names=["trace_id", "place", "telling", "rooted", "spans", "payload"],
        )
    return place


def judged_of(judging: Judging, *, tally: Tally | None = None) -> Task:
    """Packs, each trace's together and in order → judged traces.

    A trace with a run that has paused, or goes on from one that has, is handed on as it is, in one lane for
    all of these: its verdicts depend on other traces.
    """

    def judge(batches: Batches) -> Batches:
        with seldom_collected():
            yield from _arrow(_judged(batches, judging, tally), _judged_types)

    return judge


def _judged(batches: Batches, judging: Judging, tally: Tally | None) -> Iterator[dict[str, Any]]:
    judge = Judge(judging)
    query = judging.query
    choosy = query.service is not None or query.since is not None or query.until is not None
    for lane, (trace_id, packs) in enumerate(groupby(_rows(batches), key=itemgetter(0))):
        payloads: list[bytes] = []
        telling = False
        for _, tells, payload in packs:
            telling = telling or tells
            payloads.append(payload)
        if not telling and not (choosy and tally is not None):
            judged = None  # no run; wanted as far as one can know without a look
            wanted = True
        else:
            judged = judge.judge(trace_id, payloads)
            wanted = judged is not None
        if tally is not None and wanted:
            tally.traces.add(1)
        if judged is None:
            continue
        if judged.in_segments:
            yield _judged_row(_SEGMENTS_LANE, judged.began_ns, trace_id, payloads=payloads)
            continue
        for record in judged.records:
            text = json.dumps(record.to_dict(), allow_nan=False)
            yield _judged_row(lane, judged.began_ns, trace_id, record=text)


def _judged_row(
    lane: int,
    began_ns: int,
    trace_id: bytes,
    *,
    record: str | None = None,
    payloads: list[bytes] | None = None,
) -> dict[str, Any]:
    began = min(began_ns, 2**63 - 1)
    return {"lane": lane, "began": began, "trace_id": trace_id, "record": record, "payloads": payloads}


def verdicts_of(judging: Judging) -> Task:
    """Judged traces, by lane and time → verdicts."""

    def settle(batches: Batches) -> Batches:
        yield from verdict_batches(_settled(batches, judging))

    return settle


def _settled(batches: Batches, judging: Judging) -> Iterator[dict[str, Any]]:
    judge: Judge | None = None
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("trace_id", "record", "payloads"))
        for trace_id, text, payloads in zip(*columns, strict=True):
            if text is not None:
                yield row_of(json.loads(text))
                continue
            judge = judge or Judge(judging, Segments())
            judged = judge.judge(trace_id, payloads)
            for record in () if judged is None else judged.records:
                yield row_of(record.to_dict())


def verdict_batches(rows: Iterable[dict[str, Any]]) -> Batches:
    """Rows of the verdict table as Arrow batches."""
    return _arrow(rows, _verdict_types)


def _rows(batches: Batches) -> Iterator[tuple[bytes, bool, bytes]]:
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("trace_id", "telling", "payload"))
        yield from zip(*columns, strict=True)


def _arrow(rows: Iterable[dict[str, Any]], types: Callable[[], Any]) -> Batches:
    found = iter(rows)
    while chunk := list(islice(found, _ROWS)):
        yield _pyarrow().RecordBatch.from_pylist(chunk, schema=types())


def _judged_types() -> Any:
    return _types(JUDGED_COLUMNS)


def _verdict_types() -> Any:
    return _types(VERDICT_COLUMNS)


def _types(columns: dict[str, str]) -> Any:
    pa = _pyarrow()
    known = {
        "date": pa.date32(),
        "string": pa.string(),
        "binary": pa.binary(),
        "boolean": pa.bool_(),
        "bigint": pa.int64(),
        "double": pa.float64(),
        "array<string>": pa.list_(pa.string()),
        "array<double>": pa.list_(pa.float64()),
        "array<binary>": pa.list_(pa.binary()),
    }
    return pa.schema([(name, known[kind]) for name, kind in columns.items()])


def _pyarrow() -> Any:
    import pyarrow as pa  # noqa: PLC0415 - an extra  # type: ignore[import]

    return cast("Any", pa)


def _partition_id() -> int:
    from pyspark import TaskContext  # noqa: PLC0415 - an extra  # type: ignore[import]

    context = cast("Any", TaskContext).get()
    return 0 if context is None else context.partitionId()
