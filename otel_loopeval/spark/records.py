"""Files → the records of their runs, in a session of one's own: what ``score --engine spark`` does."""

import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

from otel_loopeval.reports import RunRecord, Source
from otel_loopeval.sources.paths import files_at
from otel_loopeval.spark.batch import judged_at_rest
from otel_loopeval.spark.judging import Judging
from otel_loopeval.spark.schema import record_of_row
from otel_loopeval.spark.tasks import Tally

_DEFAULTS: Final = {
    "spark.app.name": "otel-loopeval score",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
_ALONE: Final = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}


class SparkJob:
    """One job over the files at some locations.

    The session is that of ``spark-submit`` or of ``SPARK_CONF_DIR``, and else one on this machine; paths have
    to be the same on all machines of a cluster.

    Args:
        locations: Paths, folders and globs as for ``score``.
        judging: What is judged, and how.
        strict: Whether a part that cannot be read ends the job.

    Raises:
        SourceError: There are no files at a location.
    """

    def __init__(self, locations: Sequence[str], judging: Judging, *, strict: bool) -> None:
        self._paths = [os.path.realpath(path) for location in locations for path in files_at(location)]
        self._judging = judging
        self._strict = strict
        self.source = Source(0, 0, 0, 0, 0)

    def records(self) -> Iterator[RunRecord]:
        """The runs, in the order in which they began. When they have come, ``source`` tells what was read."""
        spark, ours = _session()
        tally = Tally(spark)
        try:
            rows = [(path,) for path in self._paths]
            # A file a task: those of one size, as a Collector rotates them, spread well.
            files = spark.createDataFrame(spark.sparkContext.parallelize(rows, len(rows)), "path string")
            verdicts = judged_at_rest(files, self._judging, strict=self._strict, tally=tally)
            ordered = verdicts.repartition(1).sortWithinPartitions("started", "trace_id", "nested", "id")
            for row in ordered.toLocalIterator():
                yield record_of_row(row.asDict())
            self.source = Source(tally.spans.value, tally.traces.value, 0, 0, tally.errors.value)
        finally:
            if ours:
                spark.stop()


def _session() -> tuple[Any, bool]:
    """The session there is, or a new one; and whether it is new."""
    from pyspark import SparkConf  # noqa: PLC0415 - an extra  # type: ignore[import]
    from pyspark.sql import SparkSession  # noqa: PLC0415  # type: ignore[import]

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = cast("Any", SparkConf)()
    alone = conf.get("spark.master", "local[*]").startswith("local")
    for name, value in {**_DEFAULTS, **(_ALONE if alone else {})}.items():
        conf.setIfMissing(name, value)
    sessions = cast("Any", SparkSession)
    found = sessions.getActiveSession()
    return (found, False) if found is not None else (sessions.builder.config(conf=conf).getOrCreate(), True)
