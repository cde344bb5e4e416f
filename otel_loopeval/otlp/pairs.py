"""Attributes → encoded ``KeyValue`` messages, for what is built of encoded parts."""

from collections.abc import Mapping
from typing import Any, Final, cast

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

_INT64: Final = 2**63


def encoded_pairs(attributes: Mapping[str, Any]) -> list[bytes]:
    """Attributes, each encoded: most are the same in run after run, and remembered."""
    pairs: list[bytes] = []
    for key, value in attributes.items():
        kind = value.__class__
        if kind not in _PLAIN and not (kind is tuple and all(item.__class__ is str for item in value)):
            pairs.append(_pair(key, value))
            continue
        known = key, kind, value  # True is 1
        pair = _known.get(known)
        if pair is None:
            pair = _pair(key, value)
            if len(pair) <= _MAX_KNOWN_BYTES:
                if len(_known) >= _MAX_KNOWN:
                    _known.clear()
                _known[known] = pair
        pairs.append(pair)
    return pairs


_PLAIN: Final[frozenset[type]] = frozenset({str, int, bool})
_known: Final[dict[tuple[str, type, Any], bytes]] = {}
_MAX_KNOWN: Final = 10_000
_MAX_KNOWN_BYTES: Final = 200


def _pair(key: str, value: Any) -> bytes:
    pair = KeyValue(key=key)
    _set(pair.value, value)
    return pair.SerializeToString()


def _set(target: AnyValue, value: Any) -> None:
    if isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, int):
        target.int_value = max(min(value, _INT64 - 1), -_INT64)
    elif isinstance(value, float):
        target.double_value = value
    elif isinstance(value, str):
        target.string_value = value.encode("utf-8", "replace").decode()
    elif isinstance(value, bytes):
        target.bytes_value = value
    elif isinstance(value, Mapping):
        for key, item in cast("Mapping[str, Any]", value).items():
            _set(target.kvlist_value.values.add(key=key).value, item)
    elif isinstance(value, (list, tuple)):
        for item in value:  # type: ignore[reportUnknownVariableType]  # of anything
            _set(target.array_value.values.add(), item)
