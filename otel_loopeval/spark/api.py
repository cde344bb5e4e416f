"""The one way in."""

from typing import Any

from otel_loopeval.runs.verdict import Policy
from otel_loopeval.sources import Query
from otel_loopeval.spark.batch import judged_at_rest
from otel_loopeval.spark.judging import MAX_TRACE_SPANS, Judging


def health(
    df: Any,
    *,
    threshold: float | None = None,
    max_wasted_iterations: int | None = None,
    token_budget: int | None = None,
    agent: str | None = None,
    service: str | None = None,
    max_trace_spans: int = MAX_TRACE_SPANS,
    strict: bool = False,
    partitions: int | None = None,
) -> Any:
    """Judge the runs in a table of spans: one row a run, the same as ``otel-loopeval score``'s.

    What the table holds shows in its columns:

    - ``value``, text or binary: OTLP as JSON or protobuf, a body each, as in lines of the Collector's file
      exporter (``spark.read.text``) and messages of its Kafka exporter.
    - ``path`` and ``content``: files of any form that ``score`` reads, compressed ones included
      (``spark.read.format("binaryFile")``).
    - ``path`` alone: the same, opened by the tasks themselves, so that no file has to fit into memory.
    - The columns of ClickHouse's ``otel_traces``, as exported to Parquet; read it with
      ``spark.sql.legacy.parquet.nanosAsLong`` set to ``true``, since Spark has no nanoseconds.

    Args:
        df: The Spark ``DataFrame``.
        threshold: The score to reach, for runs that bring none; None for 8.0.
        max_wasted_iterations: Wasted iterations allowed, for runs that bring no limit; None for 0 in loops
            with scores, while turns of agents do not matter.
        token_budget: Tokens that a run may use, for runs that bring no budget; None for no limit.
        agent: Only runs of this agent.
        service: Only traces in which this service took part.
        max_trace_spans: Spans of one trace that are judged; the runs of a larger one are incomplete.
        strict: Whether a part that cannot be read ends the job; else it is logged by the task and left out.
        partitions: Parts into which traces are divided; None for ``spark.sql.shuffle.partitions``.

    Returns:
        A ``DataFrame`` with the columns of ``VERDICT_COLUMNS``; write it partitioned by ``day``.

    Raises:
        ValueError: The columns are none of these, or an argument cannot be used.
    """
    judging = Judging(
        Policy(threshold, max_wasted_iterations, token_budget),
        Query(agent=agent, service=service),
        max_trace_spans,
    )
    return judged_at_rest(df, judging, strict=strict, partitions=partitions)
