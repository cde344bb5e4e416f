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

PLAIN: Final = 1 << 16
"""Length up to which a text is read whole at first look."""
_END: Final = 1 << 14
_STRIDE_PARTS: Final = 2048
_NODES: Final = 256
_NODES_FULL: Final = 5000
_CHARS_FULL: Final = 1 << 23
_DEPTH: Final = 24
_DEPTH_FULL: Final = 100
_SEP: Final = "\x1f"
_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{6,}")
_BIG_INT: Final = 1 << 63
_JSON: Final = json.JSONDecoder()
_OPENING: Final = ("{", "[")
_EMPTY: Final = ("", "null")


class _Walk:
    """Budget of one rendering, and whether it had to leave something out."""

    __slots__ = ("chars", "depth", "nodes", "path", "sampled")

    def __init__(self, full: bool) -> None:
        self.depth = _DEPTH_FULL if full else _DEPTH
        self.path: set[int] = set()
        self.nodes = _NODES_FULL if full else _NODES
        self.chars = _CHARS_FULL if full else PLAIN
        self.sampled = False


def canonical(value: object, *, full: bool = False) -> tuple[str, bool]:
    """Render any object as canonical text.

    Args:
        value: Anything: cyclic, huge, with methods that raise.
        full: Read large values whole (up to 8 M characters and 5,000 nodes) instead of sampling them.

    Returns:
        The text, and whether it was sampled, so that two different values may share it. Never raises.
    """
    if type(value) is str and len(value) <= PLAIN:
        return value, False
    kind: type[object] = type(value)
    if kind is dict:
        text = _flat(cast("dict[Any, Any]", value))
        if text is not None:
            return text, False
    walk = _Walk(full)
    try:
        return _render(value, walk, 0), walk.sampled
    except Exception:  # noqa: BLE001 - the value's own methods may raise anything
        return f"<{kind.__qualname__}>", True


def arguments_text(arguments: object) -> str:
    """Render the arguments of a call: as :func:`canonical`, but a string of JSON equals what it encodes.

    Args:
        arguments: A mapping, a raw string (perhaps malformed JSON), or anything else.

    Returns:
        The text, sampled where it is very large.
    """
    if type(arguments) is str and len(arguments) <= PLAIN:
        decoded = decode(arguments)
        return arguments.strip() if decoded is None else canonical(decoded)[0]
    return canonical(arguments)[0]


def arguments_hash(arguments: object, *, full: bool = False) -> tuple[int, bool]:
    """Hash the arguments of a call, such that equal hashes mean equal canonical text.

    Args:
        arguments: A mapping, a raw string (perhaps malformed JSON), or anything else.
        full: As for :func:`canonical`.

    Returns:
        The hash, and whether it was made of a sample.
    """
    given: object = arguments
    if type(arguments) is str and len(arguments) <= PLAIN:
        given = decode(arguments)
        if given is None:
            return hash(arguments.strip()), False
    kind: type[object] = type(given)
    try:
        if kind is dict:
            quick = hash_plain(cast("dict[Any, Any]", given))
            if quick is not None:
                return quick, False
        if isinstance(given, Mapping):
            return _hash_mapping(cast("Mapping[Any, Any]", given), _Walk(full))
    except Exception:  # noqa: BLE001 - the mapping's own methods may raise anything
        return hash(f"<{kind.__qualname__}>"), True
    text, sampled = canonical(given, full=full)
    return hash(text), sampled


def hash_plain(mapping: dict[Any, Any]) -> int | None:
    """Hash a few plain values as they are: most arguments are such, and rendering costs four times as much.

    Args:
        mapping: The arguments.

    Returns:
        What :func:`arguments_hash` returns, or ``None`` where the general way is needed.
    """
    size = 0
    try:
        for value in mapping.values():
            kind: type[object] = type(cast("object", value))
            if kind is str:
                if not value:
                    return None
                size += len(value)
            elif kind is int:
                if value == -1:  # it hashes as -2 does
                    return None
            elif kind is not bool:
                return None
        if size <= PLAIN and len(mapping) <= _NODES:
            return hash(tuple(sorted(mapping.items())))
    except Exception:  # noqa: BLE001 - keys of several types, or with code of their own
        return None
    return None


def _hash_mapping(mapping: Mapping[Any, Any], walk: _Walk) -> tuple[int, bool]:
    # As hash_plain, for any mapping: what is not plain is rendered, what is empty left out.
    pairs: list[tuple[str, object]] = []
    room = walk.nodes
    if len(mapping) > room:
        walk.sampled = True
        pairs.append(("", len(mapping)))
    for key, value in islice(mapping.items(), room):
        kind: type[object] = type(cast("object", value))
        plain: object = value if (kind is int and value != -1) or kind is bool else _render(value, walk, 1)
        if plain != "":
            pairs.append((key if type(cast("object", key)) is str else _render(key, walk, 1), plain))
    pairs.sort(key=_first)
    return hash(tuple(pairs)), walk.sampled


def _first(pair: tuple[str, object]) -> str:
    return pair[0]


def decode(text: str) -> dict[str, Any] | list[Any] | None:
    """Decode a JSON object or array; what is blank or ``null`` counts as an empty object.

    Args:
        text: Any text.

    Returns:
        What it encodes, or ``None`` if it is no valid JSON object or array.
    """
    start = text[:1]
    if start not in _OPENING:
        text = text.lstrip()
        if text[:1] not in _OPENING:
            # No arguments, as some models write it.
            return {} if text in _EMPTY else None
    try:
        value, end = _JSON.raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return value if end == len(text) or text[end:].isspace() else None


def _flat(mapping: dict[Any, Any]) -> str | None:
    # Results are often small mappings of plain values, too.
    if len(mapping) > _NODES:
        return None
    parts: list[str] = []
    size = 0
    try:
        for key in sorted(mapping):
            value = mapping[key]
            kind: type[object] = type(cast("object", value))
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
    return _SEP.join(parts) if size <= PLAIN else None


def _render(value: object, walk: _Walk, depth: int) -> str:  # noqa: PLR0911 - one return a kind of value
    walk.nodes -= 1
    if walk.nodes < 0 or depth > walk.depth:
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
    if id(value) in walk.path:
        return "^"  # it holds itself
    walk.path.add(id(value))
    text = _container(value, walk, depth)
    walk.path.discard(id(value))
    return text


def _container(value: object, walk: _Walk, depth: int) -> str:
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
