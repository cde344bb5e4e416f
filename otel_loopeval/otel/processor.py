"""The span processor: runs that somebody else's spans tell of, and the tokens of spans inside ours."""

from typing import TYPE_CHECKING, Any
from weakref import ref

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span
from opentelemetry.trace import NonRecordingSpan, StatusCode, set_span_in_context

from otel_loopeval import semconv
from otel_loopeval.otel import _sdk, doom, emission, fingerprints, spending
from otel_loopeval.otel.console import print_verdict
from otel_loopeval.otel.options import Options, check_provider
from otel_loopeval.otel.pipeline import Pipeline, open_spans, prepare
from otel_loopeval.runs.dialects import own, reading
from otel_loopeval.runs.dialects.facts import Look, look_of
from otel_loopeval.runs.following import enclosing, kind_of
from otel_loopeval.runs.nodes import Ending, Opening, SpanNode
from otel_loopeval.runs.spans import SpanData, SpanEvent
from otel_loopeval.runs.verdict import effective_token_budget

if TYPE_CHECKING:
    from otel_loopeval.runs.nodes import Entry, Node
    from otel_loopeval.runs.run import LoopRun


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
        prepare()
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

    def _started(self, span: Span, parent: Any) -> None:
        """A span under one of our names, or of an AI library, has started."""
        pipeline = self._pipeline
        if not pipeline.active:
            return
        span_id = span.get_span_context().span_id
        if span_id in open_spans:
            return  # another processor of ours has it
        outermost = span.parent is None or span.parent.is_remote
        if parent is None and not outermost and not own.is_root(span.name):
            return  # inside of something that is not followed
        parent = open_spans.find(parent, make=True)
        look = look_at(span)
        with pipeline.tracker.lock:
            entry = pipeline.following.started(
                parent, span_id, look, kind_of(look), span.start_time or 0, ref(span)
            )
        if entry is None:
            if parent is not None and len(open_spans) < _sdk.MAX_OPEN_SPANS:
                open_spans[span_id] = parent
            return
        open_spans[span_id] = entry
        if isinstance(entry, SpanNode) and entry.iteration_state is None:
            pipeline.foreign_roots[span_id] = entry
            self._began(entry.state, span)
        elif isinstance(entry, Opening):
            open_spans.drop_closed()

    def _began(self, run: "LoopRun", span: Any) -> None:
        self._pipeline.watch()
        open_spans.drop_closed()
        self._pipeline.instruments.started(run, context_of(span))

    def _ending(self, span: Span, entry: Any) -> None:
        """A span that may matter is about to end: the last moment to put something on it."""
        span_id = span.get_span_context().span_id
        self._pipeline.foreign_roots.pop(span_id, None)
        if entry is not None and entry is span:
            found = _sdk.LiveOpening(span_id, ref(span))
        else:
            found = open_spans.find(entry, make=True)
        if found is not None:
            neutral = neutral_span(span)
            self._take(found, span, neutral)
            if not isinstance(found, (SpanNode, Opening)) and neutral.scope.startswith(semconv.SCOPE):
                return  # our instrumentations put theirs on themselves
            fingerprints.put_on(self._pipeline.options, span, neutral)

    def _ended(self, span: ReadableSpan, entry: Any) -> None:
        """A span inside what may be a run has ended, and tells of no agent, model or tool."""
        found = open_spans.find(entry)
        if found is not None:
            self._take(found, span, neutral_span(span))

    def _take(self, entry: "Entry", span: ReadableSpan, neutral: SpanData) -> None:
        pipeline = self._pipeline
        if not isinstance(entry, (SpanNode, Opening)):
            self._feed_owner(entry, span, neutral)
            return
        if isinstance(entry, SpanNode) and entry.state.closed:
            pipeline.instruments.late_span(entry.state)
            return
        kind = kind_of(look_of(neutral))
        told = neutral.attributes.get(semconv.HEALTH_DOOM_LOOP_FIRED) is not None  # a part of every verdict
        with pipeline.tracker.lock:
            endings = pipeline.following.ended(entry, neutral, kind)
        opening = entry if isinstance(entry, Opening) else None
        while opening is not None:
            if opening.node is not None and not opening.closed:
                pipeline.foreign_roots[opening.span_id] = opening
            opening = opening.outer
        for ending in endings:
            if ending.verdict is None or not told:  # else, who told it has counted the run as well
                self._announce(ending, span, neutral)

    def _announce(self, ending: Ending, span: ReadableSpan, neutral: SpanData) -> None:
        pipeline, run, verdict = self._pipeline, ending.run, ending.verdict
        context = context_of(span)
        if ending.started:
            self._began(run, span)
        if ending.spent is not None:
            spending.announce(pipeline, run, ending.spent, context)
        for position, (event, fired) in enumerate(ending.guard_events):
            if position < ending.detected:
                doom.tell(pipeline, run, event, self._innermost(ending, span), context, fired=fired)
            doom.announce(pipeline, run, event, context, fired=fired)
        if verdict is not None:
            _sdk.set_on_ending(span, emission.health_attributes(run, verdict))  # type: ignore[arg-type]  # it is in _on_ending
            error = neutral.attributes.get(semconv.ERROR_TYPE)
            pipeline.instruments.ended(
                run,
                verdict,
                error if isinstance(error, str) else None,
                context,
                effective_token_budget(run, pipeline.tracker.policy),
            )
            print_verdict(pipeline, run, verdict)

    def _innermost(self, ending: Ending, ended: Any) -> Any:
        """The innermost span of a run that is still open, after one that just ended."""
        current = trace.get_current_span()
        inside = enclosing(open_spans.find(open_spans.get(current.get_span_context().span_id)))
        if inside is not None and inside.state is ending.run and current is not ended:
            return current
        return None if ending.span is None else ending.span()

    def _feed_owner(self, node: "Node", span: ReadableSpan, neutral: SpanData) -> None:
        """A span inside a run that its owner feeds: its tokens, and the steps that the owner cannot see."""
        pipeline, run = self._pipeline, node.state
        if run.closed:
            pipeline.instruments.late_span(run)
            return
        # Its parent matters where that may tell the same tokens again; the owner's own spans never do.
        spending.count_span(
            pipeline,
            node,
            neutral.span_id,
            None if neutral.parent_id == node.span_id else neutral.parent_id,
            reading.usage_of(neutral.attributes),
            neutral.end_ns,
            context_of(span),
        )
        if run.owner is None or neutral.scope.startswith(semconv.SCOPE):  # our instrumentations show theirs
            return
        with pipeline.tracker.lock:
            steps = pipeline.following.steps_for(node, neutral)
        for step in steps:
            run.owner.observe(step)


def context_of(span: Any) -> Context:
    """A context for exemplars: they read trace and span id from the span in it, ended or not."""
    return set_span_in_context(NonRecordingSpan(span.get_span_context()), Context())


def look_at(span: ReadableSpan) -> Look:
    """What there is to see of a span of the SDK."""
    scope = span.instrumentation_scope
    return Look(span.name, "" if scope is None else scope.name, _sdk.attributes_of(span))


def neutral_span(span: ReadableSpan) -> SpanData:
    """A span of the SDK as the core sees it."""
    context, parent, scope = span.get_span_context(), span.parent, span.instrumentation_scope
    return SpanData(
        name=span.name,
        trace_id=0 if context is None else context.trace_id,
        span_id=0 if context is None else context.span_id,
        parent_id=None if parent is None else parent.span_id,
        start_ns=span.start_time or 0,
        end_ns=span.end_time or 0,
        attributes=_sdk.attributes_of(span),
        events=tuple(SpanEvent(event.name, event.timestamp, event.attributes or {}) for event in span.events),
        error=span.status.status_code is StatusCode.ERROR,
        scope="" if scope is None else scope.name,
        resource=span.resource.attributes,
        status_message=span.status.description or "",
    )
