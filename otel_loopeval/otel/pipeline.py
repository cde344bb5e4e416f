"""What belongs to one tracer provider: its tracker, tracers, instruments and options."""

import threading
from dataclasses import replace
from time import time_ns
from typing import TYPE_CHECKING, Any
from weakref import ref

from opentelemetry import _logs, metrics, trace
from opentelemetry.context import Context
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.trace import Span
from opentelemetry.trace import NoOpTracerProvider, TracerProvider

from otel_loopeval import semconv
from otel_loopeval.otel import _sdk, errors, lifecycle, watching
from otel_loopeval.otel.instruments import Instruments
from otel_loopeval.otel.options import Options
from otel_loopeval.pricing import known_prices, load_prices
from otel_loopeval.runs.following import Following
from otel_loopeval.runs.nodes import Opening
from otel_loopeval.runs.run import LoopRun
from otel_loopeval.runs.tracker import Tracker
from otel_loopeval.version import __version__

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.metrics import MeterProvider

    from otel_loopeval.runs.nodes import Entry
    from otel_loopeval.runs.verdict import Verdict

_KNOWN_PRICES = known_prices()
_PRICE = None if _KNOWN_PRICES is None else errors.guarded("pricing")(_KNOWN_PRICES)

prepare = errors.guarded("pricing.load")(load_prices)
"""Loads what runs need and what is too slow, or worse, to load when they go on. Cheap the second time."""


class OpenSpans(dict[int, Any]):
    """Open spans, by span id, with what they stand for (``Entry``).

    A span that stands for nothing yet, and those inside it, have the span itself: see :meth:`find`.

    Spans may never end, and nobody tells us when they are garbage: what belongs to runs that are over is
    dropped in bulk, once it may be half of the table.
    """

    room = _sdk.ROOM

    def find(self, entry: Any, *, make: bool = False) -> "Entry | None":
        """What an entry of the table stands for.

        Args:
            entry: The entry; None for none.
            make: Whether an outermost span is to stand for an opening from now on, if it stands for nothing.
        """
        if not isinstance(entry, Span):
            return entry
        span_id = entry.get_span_context().span_id
        known = self.get(span_id)
        if known is entry:
            known = None
            if make:
                known = self[span_id] = _sdk.LiveOpening(span_id, ref(entry))
        return known

    def drop_closed(self) -> None:
        """Forget the spans of runs that are over or were evicted, if there are many spans.

        Of spans that are in no run, the older half goes, where these alone would fill the table.
        """
        if len(self) < self.room:
            return
        idle: list[int] = []
        for span_id, entry in list(self.items()):
            if isinstance(entry, Span):
                idle.append(span_id)
            elif isinstance(entry, Opening):
                if entry.closed or (entry.node is not None and entry.node.state.closed):
                    self.pop(span_id, None)
                elif entry.node is None:
                    idle.append(span_id)
            elif entry.state.closed or entry.state.evicted:
                self.pop(span_id, None)
        if len(idle) >= self.room // 2:
            for span_id in idle[: len(idle) // 2]:
                self.pop(span_id, None)
        self.room = max(_sdk.ROOM, 2 * len(self))


open_spans = OpenSpans()
"""Open spans, by span id, with what they stand for.

One table for the process: span ids are random, and whichever processor sees a span first has it, so that
a second processor on the same provider finds nothing left to do.
"""


class Pipeline:
    """The tracker of one tracer provider and where its verdicts go.

    Args:
        options: How runs are judged and what is emitted.
        tracer_provider: Where spans go.
        meter_provider: Where metrics go; the global one if None.
        logger_provider: Where log events go; the global one if None.

    Attributes:
        options: How runs are judged and what is emitted, at present.
        active: Whether it does anything.
        records: Whether there is a backend, as far as one can see.
        has_recorded: Whether a run has begun here.
        foreign_roots: The open spans that may be the root of a run which somebody else ends: they are in
            ``open_spans`` too.
        own_providers: Meter and logger provider to use where ``instrument()`` names none.
        tracker: Follows the runs.
        following: Reads runs from spans.
        instruments: The metrics.
        logger: Emits log events.
    """

    def __init__(
        self,
        options: Options,
        tracer_provider: TracerProvider,
        meter_provider: "MeterProvider | None" = None,
        logger_provider: "LoggerProvider | None" = None,
    ) -> None:
        self._tracer_provider = tracer_provider
        self._tracers: dict[str, Any] = {}
        self._shown: dict[tuple[str, str, str, bool], dict[str, Any]] = {}
        self.records = hasattr(tracer_provider, "add_span_processor")
        self.foreign_roots = OpenSpans()
        self.has_recorded = False
        self.own_providers: tuple[Any, Any] = (None, None)
        self.tracker = Tracker(
            options.policy,
            max_runs=options.max_open_runs,
            max_idle_s=options.max_idle_s,
            on_evict=self._on_evict,
            on_finish=self._on_finish,
            price=_PRICE,
        )
        self.following = Following(self.tracker, opening=_sdk.LiveOpening)
        self.configure(options, meter_provider, logger_provider)

    def configure(
        self,
        options: Options,
        meter_provider: "MeterProvider | None" = None,
        logger_provider: "LoggerProvider | None" = None,
    ) -> None:
        """Take new options; runs that are open go on under them."""
        self.options = options
        self.active = True
        meter_provider = meter_provider or self.own_providers[0]
        logger_provider = logger_provider or self.own_providers[1]
        self._meter_provider, self._logger_provider = meter_provider, logger_provider
        self.tracker.policy = options.policy
        self.following.detects = options.detectors
        self.logger = _logs.get_logger(semconv.SCOPE, __version__, logger_provider)
        meter = metrics.get_meter(semconv.SCOPE, __version__, meter_provider)
        self.instruments = Instruments(
            meter,
            self.tracker.open_runs,
            iteration_metrics=options.iteration_metrics,
            shown=self._shown,
        )
        if self.has_recorded:  # not the first time: the exit hook must stay after the providers' own
            lifecycle.watch(self)

    def tracer(self, scope: str) -> Any:
        """The tracer of an instrumentation scope."""
        tracer = self._tracers.get(scope)
        if tracer is None:
            self.watch()
            tracer = self._tracers[scope] = self._tracer_provider.get_tracer(scope, __version__)
        return tracer

    def watch(self) -> None:
        """A run begins: record the open runs when the process ends."""
        if not self.has_recorded:
            self.has_recorded = True
            lifecycle.watch(self)

    def interrupt(self, run: LoopRun) -> None:
        """Count a run as interrupted whose root span somebody else ends, and has not."""
        verdict = self.tracker.finish(run, time_ns(), outcome=semconv.OUTCOME_INTERRUPTED)
        if verdict is not None:
            self.instruments.ended(run, verdict, None, Context())

    def forget(self) -> None:
        """In a forked child: drop what belongs to the parent."""
        open_spans.clear()
        self.foreign_roots.clear()
        for run in self.tracker.forget():
            if run.owner is not None:
                run.owner.disown()

    def adopt(self, provider: TracerProvider) -> None:
        """Learn the provider that the processor of this pipeline was added to."""
        self._tracer_provider = provider
        self.records = True

    def flush(self, timeout_ms: int) -> None:
        """Export what the providers still hold."""
        for provider in (
            self._tracer_provider,
            self._meter_provider or metrics.get_meter_provider(),
            self._logger_provider or _logs.get_logger_provider(),
        ):
            flush = getattr(provider, "force_flush", None)
            if flush is not None:
                flush(timeout_ms)

    def _on_finish(self, run: LoopRun, verdict: "Verdict") -> None:
        watching.tell(run, verdict, self.tracker.policy)

    def _on_evict(self, run: LoopRun, reason: str) -> None:
        self.instruments.evicted(reason)
        if run.owner is not None:
            run.owner.abandon()
        else:
            run.closed = True
            self.foreign_roots.drop_closed()
        open_spans.drop_closed()


def inert_pipeline(options: Options | None = None) -> Pipeline:
    """A pipeline that judges runs, since programs act on the verdict, and emits nothing."""
    return Pipeline(
        replace(options or Options(), on_doom_loop=None, console=False, sigterm=False),
        NoOpTracerProvider(),
        NoOpMeterProvider(),
        _logs.NoOpLoggerProvider(),
    )


class Registry:
    """Which pipeline a run goes to: the configured provider's, made as soon as there is a provider."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pipelines: dict[int, Pipeline] = {}  # by id of the provider, which the pipeline keeps alive
        self._options: Options | None = None
        self._providers: tuple[Any, Any, Any] = (None, None, None)
        self._latest: tuple[TracerProvider, Pipeline] | None = None
        self._inert: Pipeline | None = None

    def configure(
        self,
        options: Options,
        tracer_provider: Any = None,
        meter_provider: Any = None,
        logger_provider: Any = None,
    ) -> None:
        """Use these options and providers from now on, for pipelines that exist too."""
        with self._lock:
            self._options = options
            self._providers = (tracer_provider, meter_provider, logger_provider)
            self._latest = self._inert = None
            for pipeline in self._pipelines.values():
                pipeline.configure(options, meter_provider, logger_provider)
        self._attach()

    @errors.guarded("pipeline.attach")
    def _attach(self) -> None:
        """Add the processor to a provider that is there already: the first runs may be somebody else's."""
        provider = self._providers[0] or trace.get_tracer_provider()
        if hasattr(provider, "add_span_processor"):
            self.of(provider)

    def deactivate(self) -> None:
        """Make everything inert: processors see nothing, new runs emit nothing."""
        with self._lock:
            self._latest = None
            for pipeline in self._pipelines.values():
                pipeline.active = False
            self._inert = inert_pipeline(self._options)

    def renew_lock(self) -> None:
        """In a forked child: the lock may be held by a thread that is not here."""
        self._lock = threading.Lock()

    def reset(self) -> None:
        """Forget every provider, pipeline and option, as if the process had just begun: for tests."""
        with self._lock:
            for pipeline in self._pipelines.values():
                pipeline.active = False
                pipeline.forget()
            self._pipelines = {}
            self._options = self._latest = self._inert = None
            self._providers = (None, None, None)

    def current(self) -> Pipeline:
        """The pipeline for a run that begins now. Never raises: at worst, an inert one."""
        if self._inert is not None:
            return self._inert
        try:
            provider: TracerProvider = self._providers[0] or trace.get_tracer_provider()
            latest = self._latest
            if latest is not None and latest[0] is provider:
                return latest[1]
            pipeline = self.of(provider)
        except Exception as error:  # noqa: BLE001 - the guard: the loop goes on without telemetry
            errors.swallow("pipeline.current", error)
            return inert_pipeline(self._options)
        self._latest = (provider, pipeline)
        return pipeline

    def of(self, provider: TracerProvider) -> Pipeline:
        """The pipeline of a provider; made, and its processor added to it, if it has none."""
        prepare()
        with self._lock:
            pipeline = self._pipelines.get(id(provider))
            if pipeline is not None:
                return pipeline
            from otel_loopeval.otel.processor import LoopHealthProcessor  # noqa: PLC0415 - it needs Pipeline

            options = Options.of({}) if self._options is None else self._options
            found = [p for p in _sdk.processors_of(provider) if isinstance(p, LoopHealthProcessor)]
            if found:
                # The user registered one: it has a tracker, and there is one tracker per provider.
                options = None if self._options is None else options
                pipeline = found[0].adopt(provider, options, *self._providers[1:])
            else:
                pipeline = Pipeline(options, provider, *self._providers[1:])
            self._pipelines[id(provider)] = pipeline
            if pipeline.records and not found:
                try:
                    provider.add_span_processor(LoopHealthProcessor.of(pipeline))  # type: ignore[attr-defined]  # it records
                except Exception as error:  # noqa: BLE001 - the guard: runs of ours need no processor
                    errors.swallow("pipeline.add_span_processor", error)
            return pipeline


registry = Registry()
lifecycle.after_fork_in_child(registry.renew_lock)
