"""Every private field of the OpenTelemetry SDK that we touch, each probed once, with a public fallback.

The probes run a real span through a throw-away provider. A future SDK that renames a field makes us
slower, not wrong.
"""
# This module is where private fields are allowed:
# ruff: noqa: SLF001
# pyright: reportPrivateUsage=false, reportOptionalSubscript=false, reportOptionalMemberAccess=false
# pyright: reportUnknownArgumentType=false

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from opentelemetry.context import Context
from opentelemetry.sdk.trace import Event, ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.trace import NonRecordingSpan, SpanContext, get_current_span, set_span_in_context

from otel_loopeval.otel.errors import swallow
from otel_loopeval.runs.dialects.facts import Look
from otel_loopeval.runs.dialects.frameworks import AI, HOST, LEAF, NATURES, PLAIN, nature_of
from otel_loopeval.runs.dialects.own import AGENT_PREFIXES, NAME_PREFIXES
from otel_loopeval.runs.dialects.reading import MARKS
from otel_loopeval.runs.nodes import NOTHING_SEEN, Opening

if TYPE_CHECKING:
    from otel_loopeval.otel.pipeline import OpenSpans, Pipeline

RUN_KEY = "otel_loopeval.run"
"""Key of the OpenTelemetry context under which the current run or iteration is kept."""

MAX_OPEN_SPANS = 100_000
"""Open spans inside runs that are followed at once; the spans of a run that come later add no tokens."""

_PREFIX_LENGTH = min(map(len, NAME_PREFIXES))
_PREFIXES = frozenset(prefix[:_PREFIX_LENGTH] for prefix in (*NAME_PREFIXES, *AGENT_PREFIXES))
_INITIALS = frozenset(prefix[:1] for prefix in _PREFIXES)  # most names need no more than a look at one letter


ROOM = 20_000
"""Open spans from which on it is looked for those that never end."""


class StandIn(NonRecordingSpan):
    """Stands in for a span around a model call whose tokens our instrumentation counts.

    What starts inside the call is the child of the span all the same, and is not looked at; what is written
    on it goes nowhere.

    Attributes:
        in_use: Whether there ever was one: as long as not, nobody need look for them.
    """

    in_use = False

    def __init__(self, context: SpanContext) -> None:
        super().__init__(context)
        StandIn.in_use = True


class _Fed:
    """Stands for a node of a run while a span is started that its owner feeds and nobody else looks into."""

    span = None


FED = _Fed()


def _is_counted(parent_context: Context | None) -> bool:
    """Whether a span is inside a model call whose tokens our instrumentation counts."""
    return StandIn.in_use and isinstance(get_current_span(parent_context), StandIn)


class LiveOpening(Opening):
    """An opening that is a span of the SDK."""

    def see(self) -> tuple[Look, int]:
        """See the base class."""
        span: ReadableSpan | None = self.span()
        if span is None:
            return NOTHING_SEEN, 0
        scope = span.instrumentation_scope
        return Look(span.name, "" if scope is None else scope.name, attributes_of(span)), span.start_time or 0


class PublicHooks(SpanProcessor):
    """The processor's hot path through public properties only.

    Nearly every span that passes tells of no agent, so the hooks decide that as cheaply as they can and hand
    the few others to the methods below. ``spans`` maps the ids of open spans to what they stand for: a run
    or an iteration that they are inside of, else the opening of their trace. ``roots`` has those whose end
    may be the end of a run that somebody else emits.

    What a span is, is looked at when it starts and when it ends, since many instrumentations tell it only
    then. Between the two it costs an entry in a table: what it stands for, or as long as that is nothing,
    the outermost span itself, so that no object is made for it.
    """

    _pipeline: "Pipeline"
    _hears_endings = False

    def __init__(self, spans: "OpenSpans", roots: "OpenSpans") -> None:
        self._spans = spans
        self._roots = roots

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """See the base class."""
        try:
            if parent_context is not None:
                owner: Any = parent_context.get(RUN_KEY)
                if owner is not None and owner.span is None:
                    return  # ours, and fed by its owner
            scope = span.instrumentation_scope
            nature = PLAIN if scope is None else NATURES.get(scope.name) or nature_of(scope.name)
            if nature is LEAF:
                return
            parent, name = span.parent, span.name
            if nature is not HOST and (
                nature is AI
                or (name[:1] in _INITIALS and name[:_PREFIX_LENGTH] in _PREFIXES)
                or not MARKS.isdisjoint(_copy_of(span))
            ):
                if not _is_counted(parent_context):
                    self._started(span, None if parent is None else self._spans.get(parent.span_id))
            elif parent is None or parent.is_remote:
                if self._pipeline.active:
                    spans = self._spans
                    spans.setdefault(span.get_span_context().span_id, span)
                    if len(spans) >= ROOM:
                        spans.drop_closed()
            else:
                spans = self._spans
                entry = spans.get(parent.span_id)
                if entry is not None and len(spans) < MAX_OPEN_SPANS and not _is_counted(parent_context):
                    spans[span.get_span_context().span_id] = entry
        except Exception as error:  # noqa: BLE001 - the guard
            swallow("processor.on_start", error)

    def _on_ending(self, span: Span) -> None:
        self._hears_endings = True
        try:
            spans = self._spans
            span_id = span.get_span_context().span_id if spans else 0
            entry = spans.pop(span_id, None)
            if entry is not None:
                roots = self._roots
                if (roots and span_id in roots) or not MARKS.isdisjoint(_copy_of(span)):
                    self._ending(span, entry)
                elif entry.__class__ is not _SPAN_CLASS or (
                    roots and entry.get_span_context().span_id in roots
                ):
                    self._ended(span, entry)
        except Exception as error:  # noqa: BLE001 - the guard
            swallow("processor.on_ending", error)

    def on_end(self, span: ReadableSpan) -> None:
        """See the base class: all is done at the ending, unless somebody in between does not tell of it."""
        if not self._hears_endings:
            self._ended_untold(span)

    def _ended_untold(self, span: ReadableSpan) -> None:
        try:
            context = span.get_span_context()
            entry = None if context is None else self._spans.pop(context.span_id, None)
            if entry is not None:
                self._ended(span, entry)
        except Exception as error:  # noqa: BLE001 - the guard
            swallow("processor.on_end", error)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002 - the interface
        """There is nothing to flush. Older base classes say None, which keeps later processors from it."""
        return True

    def _started(self, span: Span, parent: Any) -> None:
        raise NotImplementedError

    def _ending(self, span: Any, entry: Any) -> None:
        raise NotImplementedError

    def _ended(self, span: ReadableSpan, entry: Any) -> None:
        raise NotImplementedError


class ProbedHooks(PublicHooks):
    """The same through the private fields behind those properties: a fraction of the cost."""

    _plain_scope: Any = None  # the last one: the spans of the program itself often have one scope

    # In one piece, since a call would cost as much as all that it does.
    def on_start(  # noqa: C901, PLR0912
        self, span: Span, parent_context: Context | None = None
    ) -> None:
        """See the base class."""
        try:
            if parent_context is not None:
                owner: Any = parent_context.get(RUN_KEY)
                if owner is not None and owner.span is None:
                    return  # ours, and fed by its owner
            scope: Any = span._instrumentation_scope
            if scope is self._plain_scope:
                nature = PLAIN
            else:
                nature = NATURES.get(scope._name) or nature_of(scope._name)
                if nature is LEAF:
                    return
                if nature is PLAIN:
                    self._plain_scope = scope
            parent: Any = span._parent
            name = span._name
            if nature is not HOST and (
                nature is AI
                or (name[:1] in _INITIALS and name[:_PREFIX_LENGTH] in _PREFIXES)
                or not MARKS.isdisjoint(span._attributes._dict)
            ):
                if not _is_counted(parent_context):
                    self._started(span, None if parent is None else self._spans.get(parent[1]))
            elif parent is None or parent[2]:
                if self._pipeline.active:
                    spans = self._spans
                    spans.setdefault(span._context[1], span)
                    if len(spans) >= ROOM:
                        spans.drop_closed()
            else:
                spans = self._spans
                entry = spans.get(parent[1])
                if entry is not None and len(spans) < MAX_OPEN_SPANS and not _is_counted(parent_context):
                    spans[span._context[1]] = entry
        except Exception as error:  # noqa: BLE001 - the guard
            swallow("processor.on_start", error)

    def _on_ending(self, span: Span) -> None:
        self._hears_endings = True
        try:
            entry = self._spans.pop(span._context[1], None)
            if entry is not None:
                roots = self._roots
                # The scope was looked at when it started.
                if not MARKS.isdisjoint(span._attributes._dict) or (roots and span._context[1] in roots):
                    self._ending(span, entry)
                elif entry.__class__ is not _SPAN_CLASS or (roots and entry._context[1] in roots):
                    self._ended(span, entry)
        except Exception as error:  # noqa: BLE001 - the guard
            swallow("processor.on_ending", error)


def _copy_of(span: ReadableSpan) -> Mapping[str, Any]:
    """A copy of a span's attributes: to go through them where they are takes several times as long."""
    attributes: Any = span.attributes
    return attributes.copy() if _HAS_ATTRIBUTES_COPY else attributes or {}


def span_id_of(span: Any) -> int:
    """The id of a recording span of the SDK."""
    if _PROBE.fields:
        return span._context[1]
    return span.get_span_context().span_id


def attributes_of(span: ReadableSpan) -> Mapping[str, Any]:
    """A span's attributes, without a copy where the SDK lets us at them."""
    if _HAS_ATTRIBUTES_DICT:
        own: Any = span._attributes
        return own._dict
    return span.attributes or {}


def set_clean_attributes(span: Any, attributes: dict[str, Any]) -> None:
    """Set attributes of our own making on an open span.

    They need none of the SDK's cleaning, which costs more than all that we do: keys are strings; values
    are str, bool, int (64 bits), float, or tuples of one of these. Where the span has a limit that could
    matter, the SDK applies it.
    """
    if type(span) is _CLEAN_SPAN:
        own = span._attributes
        with span._lock:
            if (
                span._end_time is None
                and own.max_value_len is None
                and (own.maxlen is None or len(own._dict) + len(attributes) <= own.maxlen)
            ):
                own._dict.update(attributes)
                return
    span.set_attributes(attributes)


def add_clean_event(span: Any, name: str, attributes: dict[str, Any], time_ns: int) -> None:
    """Add an event with attributes of our own making to an open span, as :func:`set_clean_attributes`."""
    if type(span) is _CLEAN_SPAN:
        limits = span._limits
        if limits.max_attribute_length is None and (
            limits.max_event_attributes is None or len(attributes) <= limits.max_event_attributes
        ):
            span._add_event(Event(name, attributes, time_ns))
            return
    span.add_event(name, attributes, time_ns)


def set_on_ending(span: Span, attributes: Mapping[str, Any]) -> None:
    """Set attributes on a span inside ``_on_ending``.

    The SDK refuses them there, since the span has its end time, though every exporter gets its attributes
    only afterwards (from 1.43 it freezes them too). Writing them under the span's own lock, unfrozen for a
    moment, reaches all exporters whatever the order of the processors. What is told of a span only after its
    end can be put nowhere.
    """
    if not hasattr(span, "set_attributes"):
        return
    if span.is_recording() or not _HAS_FREEZABLE_ATTRIBUTES:
        span.set_attributes(attributes)
        return
    with span._lock:
        own: Any = span._attributes
        frozen = own._immutable
        own._immutable = False
        try:
            for key, value in attributes.items():
                own[key] = value
        finally:
            own._immutable = frozen


def processors_of(provider: object) -> tuple[SpanProcessor, ...]:
    """The span processors of a provider, or none where they cannot be seen."""
    active = getattr(provider, "_active_span_processor", None)
    found = getattr(active, "_span_processors", ())
    return found if isinstance(found, tuple) else ()  # type: ignore[return-value]  # of what, nobody says


def context_with(context: Context, key: str, value: object) -> Context:
    """A context with one more value: what ``set_value`` does, in one copy instead of two."""
    return Context({**context, key: value})


def context_with_span(context: Context, span: Any) -> Context:
    """A context in which a span is the current one."""
    if _SPAN_KEY is None:
        return set_span_in_context(span, context)
    return Context({**context, _SPAN_KEY: span})


def _probe_span_key() -> str | None:
    try:
        from opentelemetry.trace.propagation import _SPAN_KEY as key  # noqa: PLC0415, N811
    except ImportError:
        return None
    marker: Any = object()
    return key if set_span_in_context(marker, Context()).get(key) is marker else None


class _Probe(SpanProcessor):
    """Looks at a span of a throw-away provider in each of the hooks."""

    def __init__(self) -> None:
        self.span_class: type | None = None
        self.fields = False
        self.attributes_dict = False
        self.attributes_copy: bool = False
        self.freezable_attributes = False

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:  # noqa: ARG002 - the interface
        """Take the class, which is not the one that the SDK exports: isinstance would be slow."""
        self.span_class = span.__class__

    def _on_ending(self, span: Span) -> None:
        try:
            own: Any = span._attributes
            with span._lock:
                self.freezable_attributes = isinstance(own._immutable, bool)
        except Exception:  # noqa: BLE001 - a probe: whatever goes wrong, the field is not there
            self.freezable_attributes = False

    def on_end(self, span: ReadableSpan) -> None:
        """Compare the private fields with the public properties."""
        try:
            parent, context = span._parent, span._context
            self.fields = (
                span._name == span.name
                and parent is span.parent
                and parent is not None
                and context is not None
                and context[1] == context.span_id
                and parent[1] == parent.span_id
                and parent[2] == parent.is_remote
                and span._instrumentation_scope._name == "otel_loopeval"
                and span._start_time == span.start_time
                and _probed_dict(span) == {"probe": 1}
            )
        except Exception:  # noqa: BLE001 - a probe
            self.fields = False
        try:
            own: Any = span._attributes
            self.attributes_dict = own._dict == dict(span.attributes or {}) and isinstance(own._dict, dict)
        except Exception:  # noqa: BLE001 - a probe
            self.attributes_dict = False
        try:
            copied: Any = span.attributes.copy()  # type: ignore[union-attr]  # no method of a Mapping
            self.attributes_copy = bool(copied == dict(span.attributes or {}))
        except Exception:  # noqa: BLE001 - a probe
            self.attributes_copy = False


def _probed_dict(span: Any) -> dict[str, Any]:
    return dict(span._attributes._dict)


def _probe_clean_span() -> type | None:
    """The class of the SDK's spans if attributes and events can be put on them as they are."""
    try:
        provider = TracerProvider(shutdown_on_exit=False)
        span: Any = provider.get_tracer("otel_loopeval").start_span("probe", Context(), attributes={"a": 1})
        kind: type[Any] = span.__class__
        own, limits = span._attributes, span._limits
        with span._lock:
            known = (
                span._end_time is None
                and own._dict == {"a": 1}
                and type(own._dict) in (dict, OrderedDict)
                and hasattr(own, "maxlen")
                and hasattr(own, "max_value_len")
                and hasattr(limits, "max_attribute_length")
                and hasattr(limits, "max_event_attributes")
            )
            own._dict.update({"b": (1.0, 2.0)})
        span._add_event(Event("e", {"c": True}, 7))
        event = span.events[-1]
        told = (event.name, dict(event.attributes or {}), event.timestamp) == ("e", {"c": True}, 7)
        seen = dict(span.attributes) == {"a": 1, "b": (1.0, 2.0)}
    except Exception:  # noqa: BLE001 - a probe
        return None
    return kind if known and told and seen else None


def _probe() -> _Probe:
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - only for the probe
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON  # noqa: PLC0415
    from opentelemetry.trace import TraceFlags  # noqa: PLC0415

    probe = _Probe()
    provider = TracerProvider(sampler=ALWAYS_ON, resource=Resource({}), shutdown_on_exit=False)
    provider.add_span_processor(probe)
    parent = NonRecordingSpan(SpanContext(1, 2, is_remote=False, trace_flags=TraceFlags(1)))
    context = set_span_in_context(parent, Context())
    provider.get_tracer("otel_loopeval").start_span("probe", context=context, attributes={"probe": 1}).end()
    return probe


_SPAN_KEY = _probe_span_key()
_PROBE = _probe()
_SPAN_CLASS = _PROBE.span_class
_CLEAN_SPAN = _probe_clean_span()
_HAS_ATTRIBUTES_DICT = _PROBE.attributes_dict
_HAS_ATTRIBUTES_COPY = _PROBE.attributes_copy
_HAS_FREEZABLE_ATTRIBUTES = _PROBE.freezable_attributes

Hooks: type[PublicHooks] = ProbedHooks if _PROBE.fields else PublicHooks
"""The processor's hot path for the SDK that is installed."""
