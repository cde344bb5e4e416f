"""Text without what changes by itself: times, durations, request ids, attempt counters, addresses.

Two results that differ only in such things teach the agent nothing new. Numbers that may be progress (a
percentage, a page, tests that pass, rows) are kept. Normalising costs ten times as much as hashing, so the
detector does it only for a call that it has seen before with another result.
"""

import re
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final, cast

from otel_loopeval.detect.identity import canonical, decode

_HEAD: Final = 8192
_TAIL: Final = 2048
_VOID: Final = "#"

# One token at a time: one large expression over the whole text costs ten times as much.
_PUNCTUATION: Final = "{}[](),;\"'<>|"
_BLANK: Final = str.maketrans(_PUNCTUATION, " " * len(_PUNCTUATION))
_VOLATILE: Final = re.compile(
    r"""
    (?:\d{4}-\d\d-\d\dT)?\d{1,2}:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?  # time
  | 1[5-9]\d{8}(?:\d{3}){0,3}(?:\.\d+)?  # since the epoch: s, ms, µs, ns
  | [0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}  # UUID
  | 0x[0-9a-f]{6,}  # address
  | (?![0-9a-f]{40}$|[0-9a-f]{64}$)(?:(?=.*[a-f])[0-9a-f]{16,}|(?=(?:.*\d){4})(?=.*[a-z])[a-z\d]{20,})  # id
  | \d+(?:\.\d+)?(?:ms|us|µs|ns|s|secs?|seconds?)  # duration
  | /tmp/.* | tmp[a-z0-9_]{6,10}  # temporary file
  | req[_-][\w-]+  # prefixed request id
    """,
    re.VERBOSE | re.IGNORECASE,
)
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")
_DIGIT: Final = re.compile(r"\d")
_UNITS: Final = frozenset(("ms", "us", "µs", "ns", "s", "sec", "secs", "second", "seconds"))
_COUNTERS: Final = (
    "attempt",
    "retry",
    "try",
    "poll",
    "call",
    "invocation",
    "request",
    "seq",
    "sequence",
    "nonce",
)
_OWNERS: Final = (
    *(
        "request",
        "req",
        "trace",
        "span",
        "correlation",
        "session",
        "call",
        "run",
        "message",
        "msg",
        "response",
    ),
    *("event", "operation", "thread", "process"),
)
_LABELS: Final = frozenset(
    spelling
    for label in (
        *_COUNTERS,
        *("pid", "tid", "port", "ref"),
        *(f"{owner}{joint}id" for owner in _OWNERS for joint in ("", "_", "-")),
    )
    for spelling in (label, label.capitalize(), label.upper())
) | frozenset(f"{owner}Id" for owner in _OWNERS)
_FAMILY: Final = re.compile(
    r"""'[^']{1,200}' | "[^"]{1,200}" | `[^`]{1,200}` | (?:[\w.-]*[/\\])+[\w.-]* | [\w-]*\d[\w-]*""",
    re.VERBOSE,
)
_STATUS: Final = re.compile(r"(?<![\w-])[1-5]\d\d(?![\w-])")
_SPACE: Final = re.compile(r"\s+")
_REFERENCE_KEYS: Final = frozenset(
    ("ref", "uid", "node_id", "nodeid", "element_id", "elementid", "element_ref", "handle", "backend_node_id")
)
_NONCE_KEYS: Final = frozenset(
    (
        *("nonce", "request_id", "requestid", "idempotency_key", "timestamp", "ts", "cache_buster"),
        *("call_id", "tool_call_id"),
    )
)
_REASON_KEYS: Final = frozenset(
    ("thought", "thoughts", "reasoning", "rationale", "explanation", "justification")
)
_MAX_KEYS: Final = 64
_SHORT: Final = 200
_REFERENCE: Final = re.compile(r"[@#\[]{0,2}[A-Za-z_-]{0,8}\d[\w-]{0,12}\]?")


def normalise(text: str) -> str:
    """Take out of a text what changes by itself.

    Args:
        text: Text of a result, of any length; only its first 8,192 and last 2,048 characters are normalised,
            and what lies between is kept as it is.

    Returns:
        The words of the text, ``#`` in place of every volatile one, without most punctuation.
    """
    if len(text) > _HEAD + _TAIL:
        middle = text[_HEAD:-_TAIL]
        return f"{normalise(text[:_HEAD])}{hash(middle)}{normalise(text[-_TAIL:])}"
    kept: list[str] = []
    labelled = False
    for word in text.translate(_BLANK).split():
        if word.isalpha():
            if word in _UNITS and kept and _NUMBER.fullmatch(kept[-1]):
                kept[-1] = _VOID
            kept.append(word)
            labelled = word in _LABELS
        else:
            calm, labelled = _calm(word, labelled)
            kept.append(calm)
    # A result that is nothing but an id (or a fingerprint of a result) says just that.
    calm = " ".join(kept)
    return calm if calm.strip("# ") else text


def _calm(word: str, labelled: bool) -> tuple[str, bool]:
    # A word that is not all letters, and whether what comes after it is labelled by it.
    if not _DIGIT.search(word):
        bare = word.strip(":=#.")
        return word, labelled if not bare else bare in _LABELS
    if labelled or _VOLATILE.fullmatch(word.rstrip(".:")):
        return _VOID, False
    key, joint, value = word.replace("=", ":", 1).partition(":")
    if joint and (key in _LABELS or _VOLATILE.fullmatch(value)):
        return f"{key}={_VOID}", False
    return word, False


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
    """Take out of the arguments of a call what does not change what it does.

    That is element references, nonces, the model's own reasoning, and case and spacing of short texts. A
    reference alone is what tells one element from another: it is dropped only where a label remains, so that
    six check boxes in a row are not one.

    Args:
        arguments: A mapping, or a string of JSON that encodes one.

    Returns:
        Canonical text without them, or ``None`` if the arguments are no mapping or no text remains.
    """
    mapping = decode(arguments) if isinstance(arguments, str) else arguments
    if not isinstance(mapping, Mapping):
        return None
    kept: dict[str, Any] = {}
    dropped = labelled = False
    for key, value in islice(cast("Mapping[Any, Any]", mapping).items(), _MAX_KEYS):
        name = str(key).lower()
        if (
            name in _NONCE_KEYS
            or name in _REASON_KEYS
            or (name == "description" and "command" in mapping)
            or (name in _REFERENCE_KEYS and _REFERENCE.fullmatch(str(value)[:_SHORT]))
        ):
            dropped = True
        elif isinstance(value, str):
            labelled = True
            kept[name] = " ".join(value.split()).casefold() if len(value) <= _SHORT else value
        else:
            kept[name] = value
    return canonical(kept)[0] if labelled or not dropped else None
