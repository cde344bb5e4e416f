"""Verdicts of a stream: state between batches, and time-outs.

``applyInPandasWithState`` and not ``transformWithState``: both keep state by key with time-outs, but each
call of the latter's state is a round trip to the JVM, and the former has it at hand. A key costs time in each
batch whatever is in it, so the key is no trace but a bucket of traces, whose state is one value.
"""

from collections.abc import Iterator
from typing import Any, cast

from otel_loopeval.spark.batch import packed
from otel_loopeval.spark.desk import Desk, Patience
from otel_loopeval.spark.judging import Judge, Judging
from otel_loopeval.spark.packing import Pack
from otel_loopeval.spark.schema import VERDICT_COLUMNS, ddl, row_of

_VERDICT = {name: kind for name, kind in VERDICT_COLUMNS.items() if name != "day"}
_COLUMNS = ("trace_id", "telling", "rooted", "spans", "payload")


def judged_in_motion(frame: Any, judging: Judging, patience: Patience, *, strict: bool, buckets: int) -> Any:
    """The verdicts on the runs in a stream, as their traces close.

    Args:
        frame: The stream.
        judging: What is judged, and how.
        patience: How long traces are waited for.
        strict: Whether a part that cannot be read ends the query.
        buckets: Into how many buckets traces are divided. The state depends on it: to change it, begin a new
            checkpoint.

    Raises:
        ValueError: There is no bucket.
    """
    if buckets < 1:
        raise ValueError(f"buckets must be at least 1, got {buckets}")
    packs = packed(frame, strict=strict).selectExpr(
        f"pmod(xxhash64(trace_id), {buckets}) AS bucket", "place", *_COLUMNS
    )
    judges: list[Judge] = []  # one a worker process, made there

    def advance(_key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
        if not judges:
            judges.append(Judge(judging))
        yield from _advance(frames, state, judges[0], patience, judging.max_trace_spans)

    verdicts = packs.groupBy("bucket").applyInPandasWithState(
        advance, ddl(_VERDICT), "desk binary", "append", "ProcessingTimeTimeout"
    )
    # Computed here, as it can be, for there to be a projection: without one, Spark 4.3 gives sinks that sort
    # (as by partition) rows of a kind that they fail at.
    return verdicts.selectExpr("to_date(left(started, 10)) AS day", *_VERDICT)


def _advance(
    frames: Iterator[Any], state: Any, judge: Judge, patience: Patience, max_trace_spans: int
) -> Iterator[Any]:
    """What a batch, or a time-out, does to one bucket."""
    now_ms: int = state.getCurrentProcessingTimeMs()
    stored = bytes(state.get[0]) if state.exists else None
    desk = Desk(patience, max_trace_spans, stored)
    if not state.hasTimedOut:
        for frame in frames:
            for values in zip(*(frame[name] for name in _COLUMNS), strict=True):
                trace_id, telling, rooted, spans, payload = values
                pack = Pack(bytes(trace_id), bool(telling), bool(rooted), int(spans), bytes(payload))
                desk.add(pack, now_ms)
    rows = [
        row_of(record.to_dict())
        for closed in desk.close(now_ms)
        for judged in (judge.judge(closed.trace_id, closed.payloads, cut=closed.cut),)
        if judged is not None
        for record in judged.records
    ]
    next_ms = desk.next_ms
    if next_ms is None:
        state.remove()
    else:
        state.update((desk.store(),))
        state.setTimeoutDuration(max(next_ms - now_ms, 1))
    if rows:
        import pandas as pd  # noqa: PLC0415 - an extra  # type: ignore[import]

        yield cast("Any", pd).DataFrame(rows, columns=list(_VERDICT), dtype=object)
