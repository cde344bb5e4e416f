"""``score --engine spark``: the same runs, judged by a cluster, or by all cores of this machine."""

import argparse
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Final

from otel_loopeval.cli.console import printable
from otel_loopeval.cli.errors import EXIT_UNREADABLE, EXIT_USAGE, CommandError
from otel_loopeval.cli.score_reading import policy_of
from otel_loopeval.reports import RunRecord, Source
from otel_loopeval.sources import Query, SourceError

if TYPE_CHECKING:
    from otel_loopeval.spark.records import SparkJob

_NEEDED: Final = ("pyspark", "pyarrow", "msgspec")
_NOT_THERE: Final = {
    "explain": "--explain shows one trace",
    "limit": "--limit takes the first traces, and a cluster has none",
}


class SparkReading:
    """Reads what the options ask for, once, with Spark.

    Args:
        options: The command's options.

    Raises:
        CommandError: They contradict each other, or Spark is not installed, or there is nothing to read.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        for name, why in _NOT_THERE.items():
            if getattr(options, name) is not None:
                raise CommandError(f"{why}: leave out --engine spark", EXIT_USAGE)
        for location in options.locations:
            if location == "-" or "://" in location:
                raise CommandError(
                    f"--engine spark reads files, not {printable(location)}: leave it out, or use "
                    "otel_loopeval.spark.health() on a table",
                    EXIT_USAGE,
                )
        missing = [name for name in _NEEDED if find_spec(name) is None]
        if missing:
            raise CommandError(
                f"--engine spark needs {', '.join(missing)}: pip install 'otel-loopeval[spark]'", EXIT_USAGE
            )
        if not _has_java():
            raise CommandError(
                "--engine spark needs Java 17 or newer: there is no java on the PATH or in JAVA_HOME "
                "(on Debian: apt-get install default-jre-headless)",
                EXIT_USAGE,
            )
        self._job = _job(options)

    @property
    def source(self) -> Source:
        """What has been read."""
        return self._job.source

    def records(self) -> Iterator[RunRecord]:
        """The runs, in the order in which they began.

        Raises:
            CommandError: The job failed, or none of the input can be read.
        """
        try:
            yield from self._job.records()
        except Exception as error:  # Spark's errors, of many kinds
            raise CommandError(f"the Spark job failed: {_cause(error)}", EXIT_UNREADABLE) from error
        if self.source.errors and not self.source.spans:
            raise CommandError("cannot read any of the input", EXIT_UNREADABLE)


def _has_java() -> bool:
    # As pyspark looks for it. Spark Connect needs none, since the session is elsewhere.
    home = os.environ.get("JAVA_HOME")
    if "SPARK_REMOTE" in os.environ:
        return True
    return which(str(Path(home, "bin", "java")) if home else "java") is not None


def _job(options: argparse.Namespace) -> "SparkJob":
    from otel_loopeval.spark.judging import Judging  # noqa: PLC0415 - msgspec may not be there
    from otel_loopeval.spark.records import SparkJob  # noqa: PLC0415

    try:
        query = Query(options.service, options.since, options.until, agent=options.agent)
        judging = Judging(policy_of(options), query, max(options.max_spans // 2, 1))
        return SparkJob(options.locations, judging, strict=options.strict)
    except SourceError as error:
        raise CommandError(f"cannot read {printable(str(error))}", EXIT_UNREADABLE) from error
    except ValueError as error:
        raise CommandError(str(error), EXIT_USAGE) from error


def _cause(error: Exception) -> str:
    """The line of a long report that says what went wrong: the last one of the Python part."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("ValueError:", "RuntimeError:"))]
    return printable((told or lines or [type(error).__name__])[0])[:500]
