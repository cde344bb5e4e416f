"""CPU of one traced, evaluated run against the same spans and metric records written by hand.

    python tests/benchmarks/bench_tracing.py

A run is a root, five iterations, a score event each, the health attributes on the root and the default
metrics. By hand means: the same names and attributes through the SDK's public API, with
``start_as_current_span``. Both sides go to a batch processor whose exporter drops everything. The two are
measured in turn, many short rounds of each, and the table shows the best round of each side (what other
programs take from the machine only ever adds) with their ratio, and the median ratio of the rounds.

The other tables are what our processor adds to a span that is none of ours.
"""

import contextvars
import gc
import statistics
import sys
from collections.abc import Callable, Sequence
from time import perf_counter_ns, process_time_ns
from typing import Any, NamedTuple

from opentelemetry import metrics
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider as MeterProviderApi
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from otel_loopeval import LoopHealthProcessor, instrument, iteration, loop, semconv, uninstrument
from otel_loopeval.otel import _sdk

SCORES = (4.0, 5.5, 6.0, 7.5, 9.0)
THRESHOLD = 8.0
ROUNDS = 400
RUNS_A_ROUND = 20
SPANS = 50  # foreign spans measured at once
SPAN_ROUNDS = 2_000


class Drop(SpanExporter):
    """Takes spans and forgets them."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


class Row(NamedTuple):
    """One comparison, in microseconds of CPU."""

    name: str
    ours_us: float
    rival_us: float
    median_ratio: float

    @property
    def ratio(self) -> float:
        """Ours over the rival's, best round of each."""
        return self.ours_us / self.rival_us


def _provider() -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(Drop(), max_queue_size=2048))
    return provider


def ours(provider: TracerProvider, meter_provider: MeterProviderApi) -> Callable[[], None]:
    """A run through this package."""
    instrument(tracer_provider=provider, meter_provider=meter_provider)

    def one_run() -> None:
        with loop("writer", threshold=THRESHOLD, max_iterations=5):
            for score in SCORES:
                with iteration() as it:
                    it.score = score

    return one_run


def by_hand(provider: TracerProvider, meter_provider: MeterProviderApi | None) -> Callable[[], None]:
    """The same spans, events and metric records by hand; no metrics if there is no meter provider."""
    tracer = provider.get_tracer("by_hand", "1")
    meter = metrics.get_meter("by_hand", "1", meter_provider)
    counter = meter.create_counter
    runs_started, runs = counter("runs_started"), counter("runs")
    iterations, run_iterations = counter("iterations"), meter.create_histogram("run_iterations")
    duration, ratio = meter.create_histogram("duration"), meter.create_histogram("ratio")
    base = {
        semconv.GEN_AI_AGENT_NAME: "writer",
        semconv.RUN_MODE: "optimize",
        semconv.RUN_FRAMEWORK: "otel_loopeval",
        semconv.RUN_NESTED: False,
    }
    verdict = {
        **base,
        semconv.RUN_OUTCOME: "completed",
        semconv.HEALTH_PASSED: True,
        semconv.HEALTH_CONVERGED: True,
        semconv.HEALTH_DOOM_LOOP_FIRED: False,
    }

    def one_run() -> None:
        with tracer.start_as_current_span(
            "evaluation_loop writer",
            attributes={
                semconv.GEN_AI_OPERATION_NAME: "invoke_workflow",
                semconv.GEN_AI_AGENT_NAME: "writer",
                semconv.RUN_MODE: "optimize",
                semconv.RUN_FRAMEWORK: "otel_loopeval",
                semconv.RUN_ID: "0123456789abcdef",
                semconv.RUN_THRESHOLD: THRESHOLD,
                semconv.RUN_MAX_ITERATIONS: 5,
            },
        ) as root:
            if meter_provider is not None:
                runs_started.add(1, base)
            previous: float | None = None
            for number, score in enumerate(SCORES, start=1):
                with tracer.start_as_current_span(
                    "evaluation_loop.iteration", attributes={semconv.ITERATION_NUMBER: number}
                ) as span:
                    attributes: dict[str, Any] = {
                        semconv.ITERATION_SCORE: score,
                        semconv.ITERATION_THRESHOLD_MET: score >= THRESHOLD,
                    }
                    if previous is not None:
                        attributes[semconv.ITERATION_SCORE_DELTA] = round(score - previous, 4)
                    span.set_attributes(attributes)
                    span.add_event(
                        semconv.EVENT_EVALUATION_RESULT,
                        {
                            semconv.GEN_AI_EVALUATION_NAME: "loopeval.score",
                            semconv.GEN_AI_EVALUATION_SCORE_VALUE: score,
                            semconv.GEN_AI_EVALUATION_SCORE_LABEL: "pass" if score >= THRESHOLD else "fail",
                        },
                    )
                    previous = score
            root.set_attributes(
                {
                    semconv.RUN_OUTCOME: "completed",
                    semconv.RUN_SUCCESS: True,
                    semconv.RUN_ITERATIONS: 5,
                    semconv.RUN_FINAL_SCORE: 9.0,
                    semconv.RUN_BEST_SCORE: 9.0,
                    semconv.RUN_BEST_ITERATION: 5,
                    semconv.HEALTH_PASSED: True,
                    semconv.HEALTH_CONVERGED: True,
                    semconv.HEALTH_DOOM_LOOP_FIRED: False,
                    semconv.HEALTH_ITERATIONS_TO_SUCCESS: 5,
                    semconv.HEALTH_WASTED_ITERATIONS: 0,
                    semconv.HEALTH_GUARD_INTERVENTIONS: 0,
                    semconv.HEALTH_TOTAL_DURATION_S: 0.0001,
                    semconv.HEALTH_THRESHOLD: THRESHOLD,
                    semconv.HEALTH_SCORE_DELTA_PER_ITERATION: [1.5, 0.5, 1.5, 1.5],
                    semconv.HEALTH_REASONING: "Converged in 5 iteration(s).",
                }
            )
            if meter_provider is not None:
                runs.add(1, verdict)
                iterations.add(5, base)
                run_iterations.record(5, base)
                duration.record(0.0001, base)
                ratio.record(1.125, base)

    return one_run


def compare(name: str, left: Callable[[], None], right: Callable[[], None]) -> Row:
    """Measure two functions in turn."""
    lefts: list[float] = []
    rights: list[float] = []
    for _ in range(ROUNDS // 10):
        left()
        right()
    gc.collect()
    gc.freeze()  # what is there already is not looked through before every round
    for round_ in range(ROUNDS):
        first, second = (left, right) if round_ % 2 else (right, left)
        timed = {first: _cpu_us(first)}
        timed[second] = _cpu_us(second)
        lefts.append(timed[left])
        rights.append(timed[right])
    ratios = [a / b for a, b in zip(lefts, rights, strict=True)]
    return Row(name, min(lefts), min(rights), statistics.median(ratios))


def _cpu_us(function: Callable[[], None]) -> float:
    gc.collect()
    gc.disable()
    start = process_time_ns()
    for _ in range(RUNS_A_ROUND):
        function()
    elapsed = process_time_ns() - start
    gc.enable()
    return elapsed / RUNS_A_ROUND / 1_000


def rows() -> list[Row]:
    """The traced run, with and without metrics."""
    found: list[Row] = []
    meters = MeterProvider(metric_readers=[InMemoryMetricReader()], shutdown_on_exit=False)
    found.append(compare("traced run with metrics", ours(_provider(), meters), by_hand(_provider(), meters)))
    without = ours(_provider(), NoOpMeterProvider())
    found.append(compare("spans and evaluation, no metrics", without, by_hand(_provider(), None)))
    uninstrument()
    return found


class Idle(SpanProcessor):
    """A processor that does nothing: what any second processor costs."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        pass

    def _on_ending(self, span: Span) -> None:
        pass

    def on_end(self, span: ReadableSpan) -> None:
        pass


class NameReader(Idle):
    """A processor that only looks at the beginning of a span's name: the least that ours could do."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        if span.name[:8] in _PREFIXES:
            raise AssertionError(span.name)


_PREFIXES = frozenset({"evaluati", "goal_loo", "agent_lo"})


def _processor(hooks: type[_sdk.PublicHooks]) -> SpanProcessor:
    """Our processor with one of its two variants of the hot path."""
    names = ("on_start", "_on_ending", "on_end")
    kind = type("Measured", (LoopHealthProcessor,), {name: getattr(hooks, name) for name in names})
    return kind(meter_provider=NoOpMeterProvider())


def added_to_foreign_span(scope: str = "app") -> dict[str, float]:
    """Nanoseconds that a second processor adds to an outermost span of a scope that is none of ours."""
    attributes = {"http.request.method": "GET", "url.path": "/things", "http.response.status_code": 200}

    def spans(*processors: SpanProcessor) -> Callable[[], None]:
        provider = TracerProvider(shutdown_on_exit=False)
        for processor in (SpanProcessor(), *processors):
            provider.add_span_processor(processor)
        tracer = provider.get_tracer(scope)

        def run() -> None:
            for _ in range(SPANS):
                tracer.start_span("GET /things", attributes=attributes).end()

        return run

    cases = {
        "alone": spans(),
        "a processor that does nothing": spans(Idle()),
        "a processor that looks at the name only": spans(NameReader()),
        "ours, public properties only": spans(_processor(_sdk.PublicHooks)),
        "ours, probed private fields": spans(_processor(_sdk.ProbedHooks)),
    }
    best = dict.fromkeys(cases, float("inf"))
    gc.collect()
    gc.freeze()
    gc.disable()
    for _ in range(SPAN_ROUNDS):
        for name, run in cases.items():
            start = perf_counter_ns()
            run()
            best[name] = min(best[name], (perf_counter_ns() - start) / SPANS)
    gc.enable()
    alone = best.pop("alone")
    return {name: value - alone for name, value in best.items()}


def _print_added(title: str, added: dict[str, float]) -> None:
    print(f"\n{title:48} {'added ns':>9} {'x idle':>7}")
    idle = added["a processor that does nothing"]
    for name, value in added.items():
        print(f"{name:48} {value:9.0f} {value / idle:7.1f}")


def main() -> None:
    """Print the tables."""
    print(f"Python {sys.version.split()[0]}, CPU time, best of {ROUNDS} rounds of {RUNS_A_ROUND} runs\n")
    print(
        f"{'one run: 1 root, 5 iterations':36} {'ours µs':>9} {'by hand µs':>11} {'ratio':>7} {'median':>7}"
    )
    for row in rows():
        print(
            f"{row.name:36} {row.ours_us:9.1f} {row.rival_us:11.1f} {row.ratio:7.2f} {row.median_ratio:7.2f}"
        )
    _print_added("a span of the program's own, no run open", added_to_foreign_span())
    _print_added("a web framework's", added_to_foreign_span("opentelemetry.instrumentation.fastapi"))
    _print_added("a database's", added_to_foreign_span("opentelemetry.instrumentation.redis"))
    instrument(tracer_provider=_provider(), meter_provider=NoOpMeterProvider())
    # In a context of its own: the spans that are measured are not inside it.
    contextvars.copy_context().run(loop("elsewhere").__enter__)
    _print_added("the program's own, while a run is open elsewhere", added_to_foreign_span())
    uninstrument()


if __name__ == "__main__":
    main()
