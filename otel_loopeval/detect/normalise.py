"""Text without what changes by itself: times, durations, request ids, attempt counters, addresses.

Two results that differ only in such things teach the agent nothing new. Numbers that may be progress (a
percentage, a page, tests that pass, rows) are kept. Normalising costs ten times as much as hashing, so the
detector does it only for a call that it has seen before with another result.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, cast

from otel_loopeval.detect.identity import canonical, decode

_HEAD: Final = 8192
_TAIL: Final = 2048

_VOLATILE: Final = re.compile(
    r"""
    \x1b\[[0-9;?]*[A-Za-z]  # terminal colours
  | \b\d{4}-\d\d-\d\d[T\ ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:\ ?Z|\ ?[+-]\d\d:?\d\d)?  # date, time
  | \b\d{1,2}:\d\d:\d\d(?:[.,]\d+)?\b  # time with seconds
  | \b1[5-9]\d{8}(?:\d{3}){0,3}(?:\.\d+)?\b  # since the epoch: s, ms, µs, ns
  | \b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b  # UUID
  | \b0x[0-9a-f]{6,}\b  # address
  | \b(?![0-9a-f]{40}\b|[0-9a-f]{64}\b)(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{16,}\b  # hexadecimal id, no hash
  | \b\d+(?:\.\d+)?\ ?(?:ms|us|µs|ns|s|secs?|seconds?)\b  # duration
  | /tmp/[\w./-]+ | \btmp[a-z0-9_]{6,10}\b  # temporary file
  | \b(?:attempt|retry|try|poll|call|invocation|request|seq|sequence|pid|thread|port|nonce)
      (?:[\ _-]?(?:id|no\.?|num|number|count))?["']?\ ?[=:\#(]?\ ?["']?\#?\d+  # labelled counter
  | \b(?:request|req|trace|span|correlation|session|call|run|message|msg|response|event|operation)
      [\ _-]?id["']?\ ?[=:]?\ ?["']?[\w.:-]*\d[\w.:-]*  # labelled id
  | \breq[_-][\w-]*\d[\w-]*  # prefixed request id
  | \bref["']?\ ?[=:]\ ?["']?[\w-]+  # element reference
    """,
    re.VERBOSE | re.IGNORECASE,
)
_FAMILY: Final = re.compile(
    r"""'[^']{1,200}' | "[^"]{1,200}" | `[^`]{1,200}` | (?:[\w.-]*[/\\])+[\w.-]* | [\w-]*\d[\w-]*""",
    re.VERBOSE,
)
_STATUS: Final = re.compile(r"\b[1-5]\d\d\b")
_WORD: Final = re.compile(r"\w")
_SPACE: Final = re.compile(r"\s+")
_REFERENCE_KEYS: Final = frozenset(
    {"ref", "uid", "node_id", "nodeid", "element_id", "elementid", "element_ref", "handle", "backend_node_id"}
)
_NONCE_KEYS: Final = frozenset(
    {
        "nonce",
        "request_id",
        "requestid",
        "idempotency_key",
        "timestamp",
        "ts",
        "cache_buster",
        "call_id",
        "tool_call_id",
    }
)
_REFERENCE: Final = re.compile(r"[@#\[]{0,2}[A-Za-z_-]{0,8}\d[\w-]{0,12}\]?")


def normalise(text: str) -> str:
    """Take out of a text what changes by itself.

    Args:
        text: Text of a result, of any length; only its first 8,192 and last 2,048 characters are normalised,
            and what lies between is kept as it is.

    Returns:
        The text with every volatile part replaced by ``#`` and runs of white space by one space.
    """
    if len(text) > _HEAD + _TAIL:
        middle = text[_HEAD:-_TAIL]
        return f"{normalise(text[:_HEAD])}{hash(middle)}{normalise(text[-_TAIL:])}"
    calm = _SPACE.sub(" ", _VOLATILE.sub("#", text)).strip()
    # A result that is nothing but an id (or a fingerprint of a result) says just that.
    return calm if _WORD.search(calm) else text


def error_family(text: str) -> str:
    """Reduce an error message to its kind: no quoted parts, paths, ids or numbers but a status code.

    Args:
        text: The message; its first 300 characters are looked at.

    Returns:
        The family.
    """
    head = text[:300].lower()
    status = _STATUS.findall(head[:80])
    return f"{','.join(status[:2])}|{_SPACE.sub(' ', _FAMILY.sub('#', head)).strip()}"


def normalise_arguments(arguments: object) -> str | None:
    """Take element references and nonces out of the arguments of a call.

    A reference alone is what tells one element from another: it is dropped only where a label remains, so
    that six check boxes in a row are not one.

    Args:
        arguments: A mapping, or a string of JSON that encodes one.

    Returns:
        Canonical text without them, or ``None`` if there was nothing to take out or nothing remains.
    """
    mapping = decode(arguments) if isinstance(arguments, str) else arguments
    if not isinstance(mapping, Mapping):
        return None
    kept: dict[str, Any] = {}
    dropped = labelled = False
    for key, value in cast("Mapping[Any, Any]", mapping).items():
        name = str(key).lower()
        if name in _NONCE_KEYS or (name in _REFERENCE_KEYS and _REFERENCE.fullmatch(str(value))):
            dropped = True
            continue
        labelled = labelled or isinstance(value, str)
        kept[str(key)] = value
    return canonical(kept)[0] if dropped and labelled else None
