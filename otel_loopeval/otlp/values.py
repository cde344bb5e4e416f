"""Single values in OTLP/JSON, read strictly and written canonically.

The encoding is that of protocol buffers in JSON (https://protobuf.dev/programming-guides/json/) with the
deviations of OTLP (https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding): ids are hexadecimal,
enums are numbers, unknown fields are ignored. As protobuf readers do, 64-bit integers are taken from
strings and numbers alike (``"1e3"``, too), and enums by name.
"""

import base64
import binascii
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from otel_loopeval.otlp.misfit import Misfit

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_UINT64_MAX = 2**64 - 1
_SURE_DIGITS = 18  # numbers of so many digits are in both ranges
_SPECIAL_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?")
_HEX = frozenset("0123456789abcdefABCDEF")

MAX_NESTING = 30
"""Values may be nested this deep. Protobuf readers allow about as much, and what walks a value recurses."""

_T = TypeVar("_T")


def read_object(value: Any) -> dict[str, Any]:
    """A JSON object."""
    if not isinstance(value, dict):
        raise Misfit("an object", value)
    return cast("dict[str, Any]", value)


def read_array(value: Any) -> list[Any]:
    """A JSON array; null is an empty one, as in protobuf."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise Misfit("an array", value)
    return cast("list[Any]", value)


def read_text(value: Any) -> str:
    """A string; null is the empty one, as in protobuf."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Misfit("a string", value)
    return value


def read_id(value: Any, size: int) -> int | None:
    """A hexadecimal id of ``size`` bytes; None where there is none (absent, empty, or all zero)."""
    if value is None or value == "":
        return None
    if not isinstance(value, str) or len(value) != 2 * size or not _HEX.issuperset(value):
        raise Misfit(f"{2 * size} hexadecimal digits", value)
    return int(value, 16) or None


def read_required_id(value: Any, size: int) -> int:
    """A hexadecimal id of ``size`` bytes, which must be there."""
    number = read_id(value, size)
    if number is None:
        raise Misfit(f"{2 * size} hexadecimal digits, not all zero", value)
    return number


def read_time(value: Any) -> int:
    """Nanoseconds since the epoch, 0 where unknown."""
    return 0 if value is None else _integer(value, 0, _UINT64_MAX)


def read_field(parent: dict[str, Any], key: str, read: Callable[[Any], _T]) -> _T:
    """A field of an object; ``read`` is given None where there is none."""
    try:
        return read(parent.get(key))
    except Misfit as misfit:
        raise misfit.inside(key) from None


def read_items(value: Any, read: Callable[[Any], _T]) -> list[_T]:
    """The items of an array."""
    array = read_array(value)
    items: list[_T] = []
    try:
        for item in array:
            items.append(read(item))  # noqa: PERF401 - the number of items so far is the place of a misfit
    except Misfit as misfit:
        raise misfit.inside(f"[{len(items)}]") from None
    return items


def read_attributes(value: Any, depth: int = 0) -> dict[str, Any]:
    """A list of key-value pairs, the last of a repeated key winning; ``depth`` values around it."""
    return dict(read_items(value, lambda pair: _read_pair(pair, depth)))


def read_value(value: Any, depth: int = 0) -> Any:
    """An ``AnyValue``: str, bool, int, float, bytes, None, or a tuple or dict of them."""
    if value is None:
        return None
    kinds = read_object(value)
    found = [kind for kind in kinds if kind in _READERS and kinds[kind] is not None]
    if not found:
        return None  # empty, or of a kind that a later version has added
    if len(found) > 1:
        raise Misfit(f"one kind of value, not both {found[0]} and {found[1]}", value)
    kind = found[0]
    if kind == "arrayValue":
        return read_field(kinds, kind, lambda array: _read_array_value(array, inner_depth(depth)))
    if kind == "kvlistValue":
        return read_field(kinds, kind, lambda kvlist: _read_kvlist(kvlist, inner_depth(depth)))
    return read_field(kinds, kind, _READERS[kind])


def inner_depth(depth: int) -> int:
    """The depth inside of a value that holds others."""
    if depth >= MAX_NESTING:
        raise Misfit(f"values in at most {MAX_NESTING} others", [])
    return depth + 1


def write_value(value: Any) -> dict[str, Any]:  # noqa: PLR0911 - one for each kind of value
    """An ``AnyValue`` for a value that :func:`read_value` could have given.

    Raises:
        ValueError: An integer has more than 64 bits.
        TypeError: OTLP has no such value.
    """
    if value is None:
        return {}
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        if not _INT64_MIN <= value <= _INT64_MAX:
            raise ValueError(f"an OTLP integer has 64 bits, got {value!r}")
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": _write_number(value)}
    if isinstance(value, bytes | bytearray):
        return {"bytesValue": base64.b64encode(value).decode("ascii")}
    if isinstance(value, Mapping):
        return {"kvlistValue": {"values": write_attributes(cast("Mapping[Any, Any]", value))}}
    if isinstance(value, Sequence):
        return {"arrayValue": {"values": [write_value(item) for item in cast("Sequence[Any]", value)]}}
    raise TypeError(f"OTLP has no value for a {type(value).__name__}")


def write_attributes(attributes: Mapping[Any, Any]) -> list[dict[str, Any]]:
    """A list of key-value pairs.

    Raises:
        ValueError: A value is an integer of more than 64 bits.
        TypeError: OTLP has no such value.
    """
    return [{"key": str(key), "value": write_value(value)} for key, value in attributes.items()]


def _write_number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _read_string(value: Any) -> str:
    if not isinstance(value, str):
        raise Misfit("a string", value)
    return value


def _read_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Misfit("true or false", value)
    return value


def read_int(value: Any) -> int:
    """A signed 64-bit integer, as a number or as a string of digits."""
    if type(value) is str and len(value) <= _SURE_DIGITS and value.isdigit() and value.isascii():
        return int(value)  # the usual form, quickly
    return _integer(value, _INT64_MIN, _INT64_MAX)


def _integer(value: Any, low: int, high: int) -> int:
    number: int | None = None
    if isinstance(value, str):
        # int() also takes spaces, underscores and the digits of every script.
        digits = value[1:] if value[:1] == "-" else value
        if digits.isascii() and digits.isdigit():
            number = int(value) if len(digits) <= len(str(high)) else None
        elif _NUMBER.fullmatch(value) and (real := float(value)).is_integer():
            number = int(real)
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, float) and value.is_integer():
        number = int(value)
    if number is None or not low <= number <= high:
        raise Misfit(f"an integer from {low} to {high}", value)
    return number


def read_double(value: Any) -> float:
    """A number, or the name of one that JSON has no form for."""
    if isinstance(value, str):
        special = _SPECIAL_NUMBERS.get(value)
        if special is not None:
            return special
    elif isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            pass
    raise Misfit('a number, "NaN", "Infinity" or "-Infinity"', value)


def read_bytes(value: Any) -> bytes:
    """Bytes in base64."""
    if isinstance(value, str):
        try:
            # Both alphabets, with and without padding, as protobuf readers do.
            text = value.replace("-", "+").replace("_", "/").rstrip("=")
            return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
        except (binascii.Error, ValueError):
            pass
    raise Misfit("base64", value)


def _read_pair(pair: Any, depth: int) -> tuple[str, Any]:
    entry = read_object(pair)
    return (
        read_field(entry, "key", _read_string),
        read_field(entry, "value", lambda value: read_value(value, depth)),
    )


def _read_array_value(value: Any, depth: int) -> tuple[Any, ...]:
    return tuple(
        read_field(
            read_object(value),
            "values",
            lambda values: read_items(values, lambda item: read_value(item, depth)),
        )
    )


def _read_kvlist(value: Any, depth: int) -> dict[str, Any]:
    return read_field(read_object(value), "values", lambda values: read_attributes(values, depth))


_READERS: dict[str, Callable[[Any], Any]] = {
    "stringValue": _read_string,
    "boolValue": _read_bool,
    "intValue": read_int,
    "doubleValue": read_double,
    "bytesValue": read_bytes,
    "arrayValue": read_array,  # these two only as keys: what is inside has a depth
    "kvlistValue": read_object,
}
