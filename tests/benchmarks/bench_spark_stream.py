"""Spans per second and core through Spark's Structured Streaming, with state: spans → files of verdicts.

    python tests/benchmarks/bench_spark_stream.py [--from files|kafka] [--spans N] [--batches N] [--every S]

Files are lines of JSON, one file a micro-batch; Kafka is a real broker (Tansu) on this machine, with messages
of protobuf, read by the source in Python; bodies of 1,000 spans either way, the same as in bench_spark.py.
The root of a trace comes a micro-batch after its other spans, and the trace closes with the next one: all
spans are in the state for two micro-batches. Verdicts are written to Parquet, by day.

A core is a second of CPU time of the JVM and all Python workers, without the broker's, from the start of the
query until all that has come is judged. A micro-batch costs time whatever is in it, so two sizes of them are
run, as many of each: their difference is what spans cost, the rest what a micro-batch does.
"""

import argparse
import itertools
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench_spark import PER_TRACE, Cpu, measured
from sources.stored_spans import request
from spark import broker
from spark.fleet import Fleet, exported
from spark.spark_session import session

from otel_loopeval.otlp import trace_line
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.spark import Patience, health, register_kafka

BODY = 1000
PATIENCE_S = 300


def micro_batches(count: int, spans: int) -> Iterator[list[list[SpanData]]]:
    """The bodies of each."""
    traces = list(Fleet(loops=0.1).traces(count * spans // PER_TRACE))
    per_batch = spans // PER_TRACE
    roots: list[SpanData] = []
    for first in range(0, len(traces), per_batch):
        chunk = traces[first : first + per_batch]
        inner = [span for trace in chunk for span in trace[1:]]
        # A Collector's batch has the spans of a resource together.
        bodies = exported([roots, inner], per_body=BODY)
        yield [sorted(body, key=lambda span: id(span.resource)) for body in bodies]
        roots = [trace[0] for trace in chunk]
    yield exported([roots], per_body=BODY)


class Stream:
    """A stream that has all of its micro-batches before it.

    Args:
        spark: The session.
        folder: What it may write to.
        every_s: Seconds between two micro-batches.
    """

    def __init__(self, spark: Any, folder: Path, every_s: float) -> None:
        self._spark = spark
        self._folder = folder
        self._every_s = every_s
        self._runs = itertools.count()
        self.micro_batches = 0
        self.state_bytes = 0

    def run(self, frame: Any) -> int:
        """Judge it all; gives the number of runs."""
        folder = self._folder / str(next(self._runs))
        query = (
            health(frame, patience=Patience(grace_s=0.1, idle_s=60, remember_s=1), buckets=32)
            .writeStream.partitionBy("day")
            .option("path", str(folder / "verdicts"))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(processingTime=f"{self._every_s} seconds")
            .start()
        )
        self.state_bytes = 0
        seen, since = -1, time.monotonic()
        while time.monotonic() < since + PATIENCE_S:
            time.sleep(self._every_s / 20)  # and so it stops between two of them
            progress = query.lastProgress
            if not query.isActive:
                break
            if progress is None or progress["batchId"] == seen:
                continue
            seen, since = progress["batchId"], time.monotonic()
            (state,) = progress["stateOperators"]
            self.state_bytes = max(self.state_bytes, state["memoryUsedBytes"])
            if progress["numInputRows"] == 0 and state["numRowsTotal"] == 0:
                break
        self.micro_batches = seen + 1
        query.stop()
        failure = query.exception()
        if failure is not None:
            raise RuntimeError(str(failure))
        return self._spark.read.parquet(str(folder / "verdicts")).count()


def files(spark: Any, folder: Path, of: list[list[list[SpanData]]]) -> Any:
    """A file a micro-batch."""
    folder.mkdir()
    for number, bodies in enumerate(of):
        path = folder / f"{number:03}.jsonl"
        path.write_text("".join(trace_line(body) + "\n" for body in bodies))
    return spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))


def kafka(spark: Any, address: str, topic: str, of: list[list[list[SpanData]]]) -> Any:
    """So many messages a micro-batch."""
    broker.fill(address, topic, (request(*body) for bodies in of for body in bodies))
    reader = broker.options(spark.readStream, address, topic)
    return reader.option("maxOffsetsPerTrigger", len(of[0])).load()


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--from", choices=("files", "kafka"), default="files", dest="source")
    parser.add_argument("--spans", type=int, default=20_000, help="of a micro-batch")
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--every", type=float, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, session() as spark:
        folder = Path(temporary)
        with broker.broker(folder / "log") as address:
            register_kafka(spark)
            stream = Stream(spark, folder, options.every)
            results: list[tuple[int, int, Cpu]] = []
            frames: dict[str, tuple[int, Any]] = {}
            for name, size in (("small", 2 * BODY), ("large", options.spans)):
                of = list(micro_batches(options.batches, size))
                spans = sum(len(body) for bodies in of for body in bodies)
                if options.source == "files":
                    frames[name] = spans, files(spark, folder / name, of)
                else:
                    frames[name] = spans, kafka(spark, address, name, of)
            for name in ("large", "small", "large"):  # the first warms up
                spans, frame = frames[name]
                runs, seconds, cpu = measured(lambda frame=frame: stream.run(frame))
                results.append((spans, stream.micro_batches, cpu))
                print(
                    f"{name:>7}: {spans:>9,} spans from {options.source}, {runs:>7,} runs, "
                    f"{stream.micro_batches} micro-batches, {seconds:.1f} s on the clock; "
                    f"{cpu.total:.1f} CPU s ({cpu.jvm:.1f} JVM, {cpu.python:.1f} Python): "
                    f"{spans / cpu.total:,.0f} spans/s a core; "
                    f"state of {stream.state_bytes / 2**20:.0f} MiB",
                    flush=True,
                )
        (few, small, little), (many, large, much) = results[1:]
        # Twice: micro-batches · what one does + spans · what one costs
        share = large / small
        more, each = (
            many - few * share,
            Cpu(much.jvm - little.jvm * share, much.python - little.python * share),
        )
        base = (little.total - few / more * each.total) / small
        print(
            f"a span costs {each.total / more * 1e6:.1f} us ({each.jvm / more * 1e6:.1f} JVM, "
            f"{each.python / more * 1e6:.1f} Python): {more / each.total:,.0f} spans/s a core; "
            f"a micro-batch {base:.2f} CPU s"
        )


if __name__ == "__main__":
    main()
