"""Verdicts of what is at rest."""

from typing import Any

from otel_loopeval.spark.judging import Judging
from otel_loopeval.spark.reading import reader_of
from otel_loopeval.spark.schema import JUDGED_COLUMNS, PACK_COLUMNS, VERDICT_COLUMNS, ddl
from otel_loopeval.spark.tasks import Tally, judged_of, packs_of, verdicts_of


def packed(frame: Any, *, strict: bool, tally: Tally | None = None) -> Any:
    """The spans in a table, those of a trace that were read together in one row."""
    reader = reader_of(frame.columns)
    chosen = frame.selectExpr(*reader.expressions)
    return chosen.mapInArrow(packs_of(reader, strict=strict, tally=tally), ddl(PACK_COLUMNS))


def judged_at_rest(
    frame: Any, judging: Judging, *, strict: bool, partitions: int | None = None, tally: Tally | None = None
) -> Any:
    """The verdicts on the runs in a table that is whole.

    Two shuffles: of all spans by trace, thinned out; and of the verdicts, since traces with a run that has
    paused, or goes on from one that has, are judged after one another, by one task.

    Args:
        frame: The table.
        judging: What is judged, and how.
        strict: Whether a part that cannot be read ends the job.
        partitions: Parts into which traces are divided; None for what the session says.
        tally: Counts what goes through.
    """
    # Traces without a telling span are not left out before the shuffle: which they are is known only when all
    # has been read, so that would take a second reading, of 12 of the 15 us that a span costs in all, while
    # packs are compressed to some 100 bytes a span, and shuffling and sorting those costs 1 to 5 us.
    by_trace = ("trace_id",) if partitions is None else (partitions, "trace_id")
    traces = packed(frame, strict=strict, tally=tally).repartition(*by_trace)
    traces = traces.sortWithinPartitions("trace_id", "place")
    judged = traces.mapInArrow(judged_of(judging, tally=tally), ddl(JUDGED_COLUMNS))
    lanes = judged.repartition("lane").sortWithinPartitions("lane", "began")
    return lanes.mapInArrow(verdicts_of(judging), ddl(VERDICT_COLUMNS))
