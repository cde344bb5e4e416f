"""Reading values of attributes that may be anything."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

MAX_JSON: Final = 4_000_000
"""Characters of an attribute that are parsed as JSON; a longer one is taken as text."""
MAX_MESSAGES: Final = 2_000
"""Messages of one request that are read: the last ones matter."""


def text_of(value: Any) -> str | None:
    """The value if it is text with something in it, else None."""
    return value if isinstance(value, str) and value else None


def first_text(attributes: Mapping[str, Any], *names: str) -> str | None:
    """The first of some attributes that is text with something in it."""
    for name in names:
        value = attributes.get(name)
        if isinstance(value, str) and value:
            return value
    return None


def parsed(value: Any) -> Any:
    """What JSON text says; other values, and text that is no JSON object or array, as they are."""
    if not isinstance(value, str) or len(value) > MAX_JSON:
        return value
    head = value[:64].lstrip()[:1]
    if head not in ("{", "["):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def mapping_of(value: Any) -> Mapping[str, Any] | None:
    """The value, or what it says as JSON text, if that is a mapping."""
    value = parsed(value)
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else None


def items_of(value: Any) -> Sequence[Any]:
    """The value if it is a sequence of things, else nothing."""
    return cast("Sequence[Any]", value) if isinstance(value, (list, tuple)) else ()


def listed(attributes: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    """Flattened lists put together again: ``prefix.0.rest`` of each element, by its ``rest``.

    Args:
        attributes: Attributes of a span.
        prefix: What the names of the list begin with, without the last dot.

    Returns:
        The elements in the order of their numbers, of very many the last.
    """
    start = prefix + "."
    length = len(start)
    found: dict[int, dict[str, Any]] = {}
    for key, value in attributes.items():
        if key.startswith(start):
            number, _, rest = key[length:].partition(".")
            if number.isdecimal() and len(number) < 9:  # noqa: PLR2004 - a number, not a digest
                found.setdefault(int(number), {})[rest] = value
    return [found[number] for number in sorted(found)[-MAX_MESSAGES:]]
