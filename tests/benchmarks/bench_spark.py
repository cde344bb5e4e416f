"""Spans per second and core through Spark, end to end: files of spans → rows of verdicts.

    python tests/benchmarks/bench_spark.py [--spans N] [--loops SHARE] [--times N]
                                           [--form json|files|protobuf]

Bodies of 1,000 spans of some 10 attributes, traces of 20 to 23 spans mixed over the bodies; a tenth of the
traces have a loop or an agent, so about 5 % of the spans are theirs. JSON is lines as in the Collector's
files, read by the JVM; files are the same, opened by the tasks, as `score --engine spark` does; protobuf is
one body a row, as in Kafka's messages. A core is a second of CPU time, of the JVM and all Python workers
together, in a session with one task slot: what other processes on the machine do then counts less. Beside it
are spans a second on the clock, which is less where the machine is busy, and more where the JVM and the
worker run at the same time. Two sizes are run, each several times, and the best counts: their difference is
what spans cost, the rest what a job does.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

import pyarrow as pa  # noqa: E402  # type: ignore[import]
import pyarrow.parquet as pq  # noqa: E402  # type: ignore[import]
from sources.stored_spans import request  # noqa: E402 - they are beside the benchmarks
from spark.fleet import Fleet, exported  # noqa: E402
from spark.spark_session import session  # noqa: E402

from otel_loopeval.otlp import trace_line  # noqa: E402
from otel_loopeval.spark import health  # noqa: E402

TICKS = os.sysconf("SC_CLK_TCK")
PER_TRACE, PER_FILE = 20, 50_000


class Cpu(NamedTuple):
    """CPU seconds: of the JVM, and of all Python processes, this one included."""

    jvm: float
    python: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.jvm + self.python

    def since(self, earlier: "Cpu") -> "Cpu":
        """What has been used meanwhile."""
        return Cpu(self.jvm - earlier.jvm, self.python - earlier.python)


def cpu_now() -> Cpu:
    """CPU time of this process and of all that came of it."""
    times: dict[int, tuple[int, bool, float]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                head, _, tail = (entry / "stat").read_text().rpartition(") ")
            except OSError:  # it has ended meanwhile
                continue
            if head.endswith("(tansu"):
                continue  # a broker is a machine of its own
            fields = tail.split()
            times[int(entry.name)] = int(fields[1]), "(java" in head, sum(map(int, fields[11:15])) / TICKS
    family, grown = {os.getpid()}, True
    while grown:
        more = {pid for pid, (parent, *_) in times.items() if parent in family} - family
        family, grown = family | more, bool(more)
    ours = [times[pid] for pid in family if pid in times]
    return Cpu(
        sum(seconds for _, is_java, seconds in ours if is_java),
        sum(seconds for _, is_java, seconds in ours if not is_java),
    )


def write(folder: Path, spans: int, loops: float, form: str) -> int:
    """Files of a fleet's spans; returns their size in bytes."""
    folder.mkdir()
    size = 0
    for number, first in enumerate(range(0, spans, PER_FILE)):
        traces = list(Fleet(seed=number, loops=loops).traces(min(PER_FILE, spans - first) // PER_TRACE))
        # A Collector's batch has the spans of a resource together.
        bodies = [sorted(body, key=lambda span: id(span.resource)) for body in exported(traces)]
        if form != "protobuf":
            path = folder / f"{number}.jsonl"
            path.write_text("".join(trace_line(body) + "\n" for body in bodies))
        else:
            path = folder / f"{number}.parquet"
            values = pa.array([request(*body) for body in bodies], pa.binary())
            pq.write_table(pa.table({"value": values}), path, compression="none")
        size += path.stat().st_size
    return size


def batch(spark: Any, folder: Path, form: str) -> int:
    """Judge what is there; returns the number of runs."""
    if form == "files":
        paths = [(str(path),) for path in sorted(folder.iterdir())]
        return health(spark.createDataFrame(paths, "path string").repartition(len(paths))).count()
    table = spark.read.text(str(folder)) if form == "json" else spark.read.parquet(str(folder))
    return health(table).count()


def measured(job: Callable[[], int]) -> tuple[int, float, Cpu]:
    """What a job gives, its seconds on the clock, and its CPU seconds."""
    began, cpu = time.monotonic(), cpu_now()
    runs = job()
    return runs, time.monotonic() - began, cpu_now().since(cpu)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--spans", type=int, default=300_000)
    parser.add_argument("--loops", type=float, default=0.1)
    parser.add_argument("--form", choices=("json", "files", "protobuf"), default="json")
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, session() as spark:
        small, large = Path(temporary, "small"), Path(temporary, "large")
        few = options.spans // 6
        write(small, few, options.loops, options.form)
        size = write(large, options.spans, options.loops, options.form)
        priced = "with" if find_spec("genai_prices") else "without"
        print(f"{options.spans:,} spans, {size / options.spans:.0f} bytes as {options.form}, {priced} costs")
        batch(spark, small, options.form)  # warms up the JVM and the workers
        results: list[tuple[int, float, Cpu]] = []
        for count, folder in ((few, small), (options.spans, large)):
            tries = [
                measured(lambda folder=folder: batch(spark, folder, options.form))
                for _ in range(options.times)
            ]
            runs, seconds, cpu = min(tries, key=lambda found: found[2].total)
            results.append((count, seconds, cpu))
            print(
                f"{count:>9,} spans {runs:>7,} runs {seconds:>7.1f} s on the clock: {count / seconds:>7,.0f} "
                f"spans/s; {cpu.total:>6.1f} CPU s ({cpu.jvm:.1f} JVM, {cpu.python:.1f} Python): "
                f"{count / cpu.total:>7,.0f} spans/s a core"
            )
        (few, _, little), (many, _, much) = results
        more, each = many - few, much.since(little)
        print(
            f"a span costs {each.total / more * 1e6:.1f} us ({each.jvm / more * 1e6:.1f} JVM, "
            f"{each.python / more * 1e6:.1f} Python): {more / each.total:,.0f} spans/s a core; "
            f"a job {little.total - few / more * each.total:.1f} CPU s"
        )


if __name__ == "__main__":
    main()
