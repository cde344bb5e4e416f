"""What a value says, as text: the ground on which two calls or two results are held to be the same.

The text is canonical: keys are sorted, and what is null or empty equals what is absent, at any depth. It is
never parsed again and never leaves the process; only hashes of it are kept.

Size is bounded. A first look samples what is very large (its length, its two ends and a stride through the
middle), and says so; only when a sampled value seems to have been seen before is it read in full.
"""

import json
import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final, cast

_LONG: Final = 1 << 16
_END: Final = 1 << 14
_STRIDE_PARTS: Final = 2048
_NODES: Final = 256
_NODES_FULL: Final = 20_000
_CHARS_FULL: Final = 1 << 23
_DEPTH: Final = 24
_SEP: Final = "\x1f"
_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{6,}")
_BIG_INT: Final = 1 << 63


class _Walk:
    """Budget of one rendering, and whether it had to leave something out."""

    __slots__ = ("chars", "full", "nodes", "sampled")

    def __init__(self, full: bool) -> None:
        self.full = full
        self.nodes = _NODES_FULL if full else _NODES
        self.chars = _CHARS_FULL if full else _LONG
        self.sampled = False


def canonical(value: object, *, full: bool = False) -> tuple[str, bool]:
    """Render any object as canonical text.

    Args:
        value: Anything: cyclic, huge, with methods that raise.
        full: Read large values whole (up to 8 M characters and 20,000 nodes) instead of sampling them.

    Returns:
        The text, and whether it was sampled, so that two different values may share it. Never raises.
    """
    if type(value) is str and len(value) <= _LONG:
        return value, False
    kind: type[object] = type(value)
    if kind is dict:
        flat = _flat(cast("dict[Any, Any]", value))
        if flat is not None:
            return flat, False
    walk = _Walk(full)
    try:
        return _render(value, walk, 0), walk.sampled
    except Exception:  # noqa: BLE001 - the value's own methods may raise anything
        return f"<{kind.__qualname__}>", True


def canonical_arguments(arguments: object, *, full: bool = False) -> tuple[str, bool]:
    """Render the arguments of a call: as :func:`canonical`, but a string of JSON equals what it encodes.

    Args:
        arguments: A mapping, a raw string (perhaps malformed JSON), or anything else.
        full: As for :func:`canonical`.

    Returns:
        As :func:`canonical`.
    """
    if type(arguments) is str and len(arguments) <= _LONG:
        decoded = decode(arguments)
        if decoded is not None:
            return canonical(decoded, full=full)
        return arguments.strip(), False
    return canonical(arguments, full=full)


def decode(text: str) -> dict[str, Any] | list[Any] | None:
    """Decode a JSON object or array.

    Args:
        text: Any text.

    Returns:
        What it encodes, or ``None`` if it is no valid JSON object or array.
    """
    if text[:1] not in ("{", "[") and text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _flat(mapping: dict[Any, Any]) -> str | None:  # noqa: C901 - hot, and one decision a kind of value
    # Nearly all arguments are small and flat: this path costs a third of the general one.
    if len(mapping) > _NODES:
        return None
    parts: list[str] = []
    size = 0
    try:
        for key in sorted(mapping):
            value = mapping[key]
            kind: type[object] = type(value)
            if kind is str:
                if not value:
                    continue
                size += len(value)
            elif kind is int:
                if not -_BIG_INT < value < _BIG_INT:
                    return None
            elif value is None:
                continue
            elif kind is not bool and kind is not float:
                return None
            if type(key) is not str:
                return None
            parts.append(f"{key}={value}")
    except Exception:  # noqa: BLE001 - keys of several types do not sort, or compare with code of their own
        return None
    return _SEP.join(parts) if size <= _LONG else None


def _render(value: object, walk: _Walk, depth: int) -> str:  # noqa: PLR0911 - one return a kind of value
    walk.nodes -= 1
    if walk.nodes < 0 or depth > _DEPTH:
        walk.sampled = True
        return ""
    if isinstance(value, str):
        return _text(str(value), walk)
    if value is None:
        return ""
    if isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, int):
        return str(value) if -_BIG_INT < value < _BIG_INT else hex(value)
    if isinstance(value, bytes | bytearray):
        return _text(bytes(value[: walk.chars]).decode("latin-1"), walk)
    if isinstance(value, Mapping):
        return _pairs(cast("Mapping[Any, Any]", value), walk, depth)
    if isinstance(value, list | tuple):
        return _items(cast("list[Any] | tuple[Any, ...]", value), walk, depth)
    if isinstance(value, set | frozenset):
        # A set has no order: render each item on its own, and sort.
        texts = sorted(
            _render(item, walk, depth + 1) for item in islice(cast("Iterable[Any]", value), walk.nodes)
        )
        return "[" + _SEP.join(texts) + "]"
    return _object(value, walk, depth)


def _text(text: str, walk: _Walk) -> str:
    room = walk.chars
    walk.chars = max(room - len(text), 0)
    if len(text) <= room:
        return text
    walk.sampled = True
    stride = max(len(text) // _STRIDE_PARTS, 1)
    return f"{len(text)}:{text[:_END]}{text[-_END:]}{text[::stride]}"


def _pairs(mapping: Mapping[Any, Any], walk: _Walk, depth: int) -> str:
    parts: list[str] = []
    if len(mapping) > walk.nodes:
        walk.sampled = True
        parts.append(str(len(mapping)))
    for key, value in islice(mapping.items(), max(walk.nodes, 0)):
        text = _render(value, walk, depth + 1)
        if text:
            parts.append(f"{key if type(key) is str else _render(key, walk, depth + 1)}={text}")
    if not parts:
        return ""
    parts.sort()
    inner = _SEP.join(parts)
    return inner if depth == 0 else "{" + inner + "}"


def _items(items: list[Any] | tuple[Any, ...], walk: _Walk, depth: int) -> str:
    chosen: Iterable[Any] = items
    parts: list[str] = []
    if len(items) > walk.nodes:
        walk.sampled = True
        parts.append(str(len(items)))
        half = max(walk.nodes // 2, 0)
        chosen = (*items[:half], *items[len(items) - half :])
    parts.extend(text for item in chosen if (text := _render(item, walk, depth + 1)))
    return "[" + _SEP.join(parts) + "]" if parts else ""


def _object(value: object, walk: _Walk, depth: int) -> str:
    kind = type(value)
    if isinstance(value, BaseException):
        return f"{kind.__qualname__}: {_text(str(value), walk)}"
    if kind.__repr__ is object.__repr__ and kind.__str__ is object.__str__:
        # Such an object prints its address, which says nothing; its fields do.
        fields: object = getattr(value, "__dict__", None)
        inner = _render(cast("object", fields), walk, depth + 1) if isinstance(fields, dict) else ""
        return f"{kind.__qualname__}({inner})"
    return _text(_ADDRESS.sub("0x", repr(value)), walk)
