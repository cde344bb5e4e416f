"""Keyed fingerprints of steps: equal steps have equal ones, and nothing can be read from them.

They let stored traces be judged whose content was not captured. The key keeps a reader of the trace from
trying out arguments until one fits; whoever compares traces of several processes configures the same key.
"""

from hashlib import blake2b
from typing import Any, Final

from otel_loopeval.detect.identity import canonical, decode

_BYTES: Final = 8
_MAX_KEY: Final = 64
_PREFIX: Final = "fingerprint"
_LETTERS: Final = str.maketrans("0123456789abcdef", "ghijklmnopqrstuv")


class Fingerprints:
    """Makes fingerprints under one key.

    Args:
        key: The key; of a longer one than 64 bytes, its hash.

    Raises:
        ValueError: The key is empty.
    """

    def __init__(self, key: bytes) -> None:
        if not key:
            raise ValueError("the key of fingerprints must not be empty")
        self._key = key if len(key) <= _MAX_KEY else blake2b(key).digest()

    def step(self, name: str, arguments: Any) -> str:
        """Fingerprint of what a call did.

        Args:
            name: Name of the tool.
            arguments: Its arguments, as for :class:`~otel_loopeval.detect.ToolCall`; null is as none.
        """
        told: object = decode(arguments) if type(arguments) is str else arguments
        if told is None:
            told = arguments.strip() if isinstance(arguments, str) else {}
        return self._hash("step", name, canonical(told, full=True)[0])

    def result(self, result: Any, error: Any = None) -> str:
        """Fingerprint of what a call brought: its error if it had one, else its result."""
        if error is not None:
            return self._hash("error", canonical(error, full=True)[0])
        return self._hash("result", canonical(result, full=True)[0])

    def _hash(self, *parts: str) -> str:
        digest = blake2b(digest_size=_BYTES, key=self._key)
        for part in parts:
            data = part.encode("utf-8", "backslashreplace")
            digest.update(len(data).to_bytes(8, "big"))
            digest.update(data)
        return digest.hexdigest()


def as_word(fingerprint: str) -> str:
    """A fingerprint as a word for the detector: only letters, since digits might be taken for a counter."""
    return _PREFIX + fingerprint.lower().translate(_LETTERS)


def is_word(text: str) -> bool:
    """Whether a text is a fingerprint as a word."""
    return text.startswith(_PREFIX) and len(text) == len(_PREFIX) + 2 * _BYTES and text.isalpha()
