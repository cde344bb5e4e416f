"""About how much memory spans take, for whoever has to hold a bounded amount of them."""

from collections.abc import Mapping
from typing import Any, Final, cast

from otel_loopeval.runs.spans import SpanData

_SPAN_BYTES: Final = 600
_EVENT_BYTES: Final = 250
_ATTRIBUTE_BYTES: Final = 130
_ITEM_BYTES: Final = 50
"""What CPython 3.11 takes for them, texts apart, measured with ``tracemalloc``."""
_SMALL: Final = frozenset({int, float, bool, type(None)})


def size_of(span: SpanData) -> int:
    """About how much memory a span takes, in bytes."""
    size = _SPAN_BYTES + _size_of_attributes(span.attributes)
    for event in span.events:
        size += _EVENT_BYTES + _size_of_attributes(event.attributes)
    return size


def _size_of_attributes(attributes: Mapping[str, Any]) -> int:
    size = _ATTRIBUTE_BYTES * len(attributes)
    for value in attributes.values():
        kind = value.__class__
        if kind is str:
            size += len(value)
        elif kind not in _SMALL:
            size += _size_of_value(value)
    return size


def _size_of_value(value: object) -> int:
    if isinstance(value, (str, bytes)):
        return _ITEM_BYTES + len(value)
    if isinstance(value, Mapping):
        items = cast("Mapping[str, object]", value).items()
        return sum(_ATTRIBUTE_BYTES + len(key) + _size_of_value(item) for key, item in items)
    if isinstance(value, (list, tuple)):
        return _ITEM_BYTES + sum(map(_size_of_value, cast("list[object] | tuple[object, ...]", value)))
    return _ITEM_BYTES
