"""The one way in."""

from typing import Any, Final

from otel_loopeval.runs.verdict import Policy
from otel_loopeval.sources import Query
from otel_loopeval.spark.batch import judged_at_rest
from otel_loopeval.spark.desk import Patience
from otel_loopeval.spark.judging import MAX_TRACE_SPANS, Judging
from otel_loopeval.spark.streaming import judged_in_motion

BUCKETS: Final = 128


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
    patience: Patience | None = None,
    buckets: int = BUCKETS,
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
        partitions: Parts into which traces are divided; None for ``spark.sql.shuffle.partitions``. Not of a
            stream, where that setting decides.
        patience: How long traces of a stream are waited for; None for the defaults.
        buckets: Of a stream: into how many buckets traces are divided, several times the number of
            partitions. The state depends on it: to change it, begin a new checkpoint.

    Returns:
        A ``DataFrame`` with the columns of :data:`~otel_loopeval.spark.schema.VERDICT_COLUMNS`; write it
        partitioned by ``day``. Of a stream, a stream: each run once, as its trace closes. There, a run that
        goes on in another trace after a pause is ``incomplete``: only tables are judged across traces.

    Raises:
        ValueError: The columns are none of these, or an argument cannot be used.
    """
    judging = Judging(
        Policy(threshold, max_wasted_iterations, token_budget),
        Query(agent=agent, service=service),
        max_trace_spans,
    )
    if df.isStreaming:
        return judged_in_motion(df, judging, patience or Patience(), strict=strict, buckets=buckets)
    return judged_at_rest(df, judging, strict=strict, partitions=partitions)
