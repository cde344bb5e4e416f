"""The span processor: runs that somebody else's spans tell of, and the tokens of spans inside ours."""

from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span
from opentelemetry.trace import NonRecordingSpan, StatusCode, set_span_in_context

from otel_loopeval import semconv
from otel_loopeval.otel import _sdk, doom, emission, spending
from otel_loopeval.otel.console import print_verdict
from otel_loopeval.otel.options import Options, check_provider
from otel_loopeval.otel.pipeline import Pipeline, open_spans
from otel_loopeval.runs import reconstruct
from otel_loopeval.runs.spans import SpanData, SpanEvent
from otel_loopeval.runs.usage import read_usage
from otel_loopeval.runs.verdict import effective_token_budget

if TYPE_CHECKING:
    from otel_loopeval.runs.reconstruct import Node


class LoopHealthProcessor(_sdk.Hooks):
    """Reconstructs loop runs from spans and puts each run's health on its root span.

    Add it to a ``TracerProvider``, before or after its exporters; ``instrument()`` does so by itself.
    It never exports anything and never blocks.

    Args:
        options: Options of ``instrument()`` by name, such as ``threshold`` or ``on_doom_loop``.

    Raises:
        TypeError: An option is unknown or of the wrong type.
        ValueError: An option is out of its range.
    """

    def __init__(self, **options: Any) -> None:
        unknown = options.keys() - set(Options.__dataclass_fields__) - {"meter_provider", "logger_provider"}
        if unknown:
            raise TypeError(f"LoopHealthProcessor has no option {', '.join(sorted(unknown))}")
        providers = (options.pop("meter_provider", None), options.pop("logger_provider", None))
        check_provider("meter_provider", providers[0], "get_meter")
        check_provider("logger_provider", providers[1], "get_logger")
        pipeline = Pipeline(Options.of(options), trace.NoOpTracerProvider(), *providers)
        pipeline.own_providers = providers
        self.use(pipeline)

    @classmethod
    def of(cls, pipeline: Pipeline) -> "LoopHealthProcessor":
        """The processor of a pipeline."""
        processor = cls.__new__(cls)
        processor.use(pipeline)
        return processor

    def adopt(
        self,
        provider: trace.TracerProvider,
        options: Options | None,
        meter_provider: Any,
        logger_provider: Any,
    ) -> Pipeline:
        """Give its pipeline the provider that it was added to, and new options if there are any."""
        self._pipeline.adopt(provider)
        if options is not None:
            self._pipeline.configure(options, meter_provider, logger_provider)
        return self._pipeline

    def use(self, pipeline: Pipeline) -> None:
        """Work for a pipeline."""
        super().__init__(open_spans, pipeline.foreign_roots)
        self._pipeline = pipeline

    def _started(self, span: Span, parent: "Node | None") -> None:
        """A span under one of our names has started."""
        if not self._pipeline.active:
            return
        span_id = span.get_span_context().span_id
        if span_id in open_spans:
            return  # another processor of ours has it
        start_ns = span.start_time or 0
        attributes = _sdk.attributes_of(span)
        node = reconstruct.begin(self._pipeline.tracker, parent, span_id, span.name, attributes, start_ns)
        if node is None:
            if parent is not None:
                open_spans[span_id] = parent
            return
        open_spans[span_id] = node
        if node.iteration_state is None:
            self._pipeline.watch()
            self._pipeline.foreign_roots[span_id] = node
            open_spans.drop_closed()
            self._pipeline.instruments.started(node.state, _context_of(span))

    def _ending(self, span: Span) -> None:
        """A root that somebody else ends is about to: the last moment to put its health on it."""
        span_id = span.get_span_context().span_id
        self._pipeline.foreign_roots.pop(span_id, None)
        node = open_spans.pop(span_id, None)
        if not isinstance(node, reconstruct.SpanNode):
            return
        attributes = _sdk.attributes_of(span)
        told = attributes.get(semconv.HEALTH_DOOM_LOOP_FIRED) is not None  # a part of every verdict
        ending = reconstruct.end_root(
            self._pipeline.tracker,
            node,
            attributes,
            _events(span),
            span.end_time or 0,
            error=span.status.status_code is StatusCode.ERROR,
        )
        if ending.verdict is None or told:
            return  # whoever emits a verdict of its own has counted the run as well
        _sdk.set_on_ending(span, emission.health_attributes(ending.run, ending.verdict))
        context = _context_of(span)
        error = attributes.get(semconv.ERROR_TYPE)
        self._pipeline.instruments.ended(
            ending.run,
            ending.verdict,
            error if isinstance(error, str) else None,
            context,
            effective_token_budget(ending.run, self._pipeline.tracker.policy),
        )
        for event, fired in ending.guard_events:
            doom.announce(self._pipeline, ending.run, event, context, fired=fired)
        print_verdict(self._pipeline, ending.run, ending.verdict)

    def _ended(self, span: ReadableSpan, node: "Node") -> None:
        """A span inside a run has ended."""
        run = node.state
        if run.closed:
            self._pipeline.instruments.late_span(run)
            return
        if isinstance(node, reconstruct.SpanNode):
            with self._pipeline.tracker.lock:
                ending = reconstruct.end_inside(node, neutral_span(span), self._pipeline.tracker.price)
            for event, fired in ending.guard_events:
                doom.announce(self._pipeline, run, event, _context_of(span), fired=fired)
            if ending.spent is not None:
                spending.announce(self._pipeline, run, ending.spent, _context_of(span))
        else:
            # All that such a span can tell of a run which its owner feeds is its tokens. Its parent matters
            # where that may tell the same tokens again; the owner's own spans never do.
            context, parent = span.context, span.parent
            spending.count_span(
                self._pipeline,
                node,
                0 if context is None else context.span_id,
                None if parent is None or parent.span_id == node.span_id else parent.span_id,
                read_usage(_sdk.attributes_of(span)),
                span.end_time or 0,
                _context_of(span),
            )


def _context_of(span: Any) -> Context:
    """A context for exemplars: they read trace and span id from the span in it, ended or not."""
    return set_span_in_context(NonRecordingSpan(span.get_span_context()), Context())


def _events(span: ReadableSpan) -> tuple[SpanEvent, ...]:
    return tuple(SpanEvent(event.name, event.timestamp, event.attributes or {}) for event in span.events)


def neutral_span(span: ReadableSpan) -> SpanData:
    """A span of the SDK as the core sees it."""
    context, parent = span.get_span_context(), span.parent
    return SpanData(
        name=span.name,
        trace_id=0 if context is None else context.trace_id,
        span_id=0 if context is None else context.span_id,
        parent_id=None if parent is None else parent.span_id,
        start_ns=span.start_time or 0,
        end_ns=span.end_time or 0,
        attributes=_sdk.attributes_of(span),
        events=_events(span),
        error=span.status.status_code is StatusCode.ERROR,
    )
