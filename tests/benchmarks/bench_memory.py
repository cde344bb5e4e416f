"""Memory of runs that end, and of runs that never do.

    python tests/benchmarks/bench_memory.py [--runs 1000000]

Each case runs in a process of its own, with an SDK whose exporters drop everything and the default table of
20,000 open runs. Runs that are begun and never left are evicted, and what remains must not grow with their
number; runs that end must leave nothing. The table shows the resident memory at a tenth, a half and all of
the runs, and what the tracker counted.
"""

import argparse
import contextvars
import gc
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from otel_loopeval import instrument, iteration, loop
from otel_loopeval.otel.pipeline import open_spans, registry
from otel_loopeval.runs.tracker import DEFAULT_MAX_RUNS

RUNS = 1_000_000
FINISHED = 10_000
SCORES = (4.0, 5.5, 6.0, 7.5, 9.0)


class Drop(SpanExporter):
    """Takes spans and forgets them."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def in_one_context() -> None:
    """Each run begins inside the one before, which was never left."""
    loop("abandoned").__enter__()


def in_one_context_with_iterations() -> None:
    """As above, in an iteration that was never left either."""
    loop("abandoned").__enter__()
    iteration().__enter__()


def in_copied_contexts() -> None:
    """Each run begins in a context of its own, as in a task or a thread."""
    contextvars.copy_context().run(in_one_context_with_iterations)


def in_dropped_generators() -> None:
    """Each run is in a generator that is dropped: it ends as cancelled."""

    def program() -> Generator[None]:
        with loop("dropped"), iteration():
            yield

    next(program())


def foreign() -> None:
    """Each run is a span of somebody else's that never ends."""
    tracer = trace.get_tracer("foreign")
    root = tracer.start_span("evaluation_loop foreign", context=Context({"foreign": 1}))
    inside = trace.set_span_in_context(root, Context({"foreign": 1}))
    tracer.start_span("evaluation_loop.iteration", context=inside)


def finished() -> None:
    """A run of five iterations that ends."""
    with loop("writer"):
        for score in SCORES:
            with iteration() as it:
                it.score = score


class Case(NamedTuple):
    """A way for runs to begin and perhaps end.

    Attributes:
        make: Makes one run.
        part: Which part of the runs that are asked for it makes, so that all cases take minutes.
        evicts: Whether the runs never end.
    """

    make: Callable[[], None]
    part: float
    evicts: bool = True


CASES = {
    "abandoned in one context": Case(in_one_context, 1),
    "abandoned in one context, with iterations": Case(in_one_context_with_iterations, 0.1),
    "abandoned in copied contexts": Case(in_copied_contexts, 0.1),
    "foreign spans that never end": Case(foreign, 0.1),
    "dropped generators": Case(in_dropped_generators, 0.05, evicts=False),
    "finished runs": Case(finished, 0.02, evicts=False),
}


def resident_mb() -> float:
    """Resident memory of this process now, in MB."""
    status = Path("/proc/self/status").read_text("utf-8")
    [line] = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


def counted(reader: InMemoryMetricReader, name: str) -> int:
    """The sum of a counter."""
    data: Any = reader.get_metrics_data()
    return sum(
        int(point.value)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == name
        for point in metric.data.data_points
    )


def set_up() -> InMemoryMetricReader:
    """An SDK whose exporters drop everything."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(Drop()))
    trace.set_tracer_provider(provider)
    reader = InMemoryMetricReader()
    metrics.set_meter_provider(MeterProvider([reader], shutdown_on_exit=False))
    instrument()
    return reader


def measure(case: str, runs: int) -> None:
    """Print the row of a case."""
    make, part, evicts = CASES[case]
    runs = round(runs * part)
    reader = set_up()
    figures: list[float] = []
    began = perf_counter()
    for share in (0.1, 0.4, 0.5):
        for _ in range(round(runs * share)):
            make()
        gc.collect()
        figures.append(resident_mb())
    seconds = perf_counter() - began
    evicted = counted(reader, "loopeval.tracker.evicted_runs")
    open_runs = len(registry.current().tracker.open_runs())
    ended = counted(reader, "loopeval.runs")
    exact = (evicted, open_runs, ended) == (
        (max(runs - DEFAULT_MAX_RUNS, 0), min(runs, DEFAULT_MAX_RUNS), 0) if evicts else (0, 0, runs)
    )
    print(
        f"{case:<42} {runs:>9,} {figures[0]:>8.0f} {figures[1]:>8.0f} {figures[2]:>8.0f} {evicted:>9,}"
        f" {open_runs:>7,} {ended:>9,} {len(open_spans):>7,} {seconds:>6.0f}  {'exact' if exact else 'WRONG'}"
    )


def measure_finished() -> None:
    """Print what finished runs leave, as the allocator of Python sees it."""
    set_up()
    provider: Any = trace.get_tracer_provider()
    for _ in range(FINISHED // 10):
        finished()
    provider.force_flush()
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    for _ in range(FINISHED):
        finished()
    peak = tracemalloc.get_traced_memory()[1]
    provider.force_flush()
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    print(
        f"\n{FINISHED:,} finished runs: {(after - before) / 1024:,.0f} KB more after them,"
        f" {(peak - before) / 1024:,.0f} KB more at the peak"
        f" (with the batch processor's queue of at most 2,048 spans)"
    )


def main() -> None:
    """Measure every case, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--runs", type=int, default=RUNS, help="runs of the first case; the others make a part of them"
    )
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case == "finished":
        measure_finished()
    elif arguments.case is not None:
        measure(arguments.case, arguments.runs)
    else:
        print(
            f"{'case':<42} {'runs':>9} {'MB @10%':>8} {'MB @50%':>8} {'MB @100%':>8} {'evicted':>9}"
            f" {'open':>7} {'ended':>9} {'spans':>7} {'s':>6}"
        )
        for case in [*CASES, "finished"]:
            sys.stdout.flush()
            command = [sys.executable, __file__, "--runs", str(arguments.runs), "--case", case]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
