"""Heads of requests: what they say, and those that came before, which need no parsing.

A sender's requests have the same head again and again, but for the length of the body. Parsing it anew takes
as long as reading a small body. So what the parser made of a head is remembered, by all its bytes but the
digits of its length. Only the parser decides what a head means: here its answer is found again.
"""

import re
from typing import Final, Generic, TypeVar

_MAX_KNOWN: Final = 1_000
_MAX_BYTES: Final = 4_096
_length = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: ?([0-9]{1,10})\r\n").search

T = TypeVar("T")


class Head:
    """Head of a request.

    Attributes:
        method: Its method.
        target: The path and what follows it, as it came.
        headers: Names in lower case and values, in order.
        version: ``1.1`` or ``1.0``.
        keep_alive: Whether the sender lets the connection live.
    """

    __slots__ = ("headers", "keep_alive", "method", "target", "version")

    def __init__(
        self,
        method: str,
        target: bytes,
        headers: list[tuple[bytes, bytes]],
        version: str = "1.1",
        *,
        keep_alive: bool = True,
    ) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.version = version
        self.keep_alive = keep_alive


class KnownHeads(Generic[T]):
    """What the parser made of heads."""

    def __init__(self) -> None:
        self._meanings: dict[tuple[bytes, bytes], T] = {}
        self._whole: dict[bytes, tuple[T, int]] = {}  # with their length, for what is sent most often

    def find(self, head: bytes) -> tuple[T, int] | None:
        """What a head means and the bytes of the body after it; None if it is new.

        Args:
            head: The head, with the line end of its last header.
        """
        found = self._whole.get(head)
        if found is not None:
            return found
        length = _length(head)
        if length is None:
            return None
        start, end = length.span(1)
        meaning = self._meanings.get((head[:start], head[end:]))
        if meaning is None:
            return None
        if len(self._whole) >= _MAX_KNOWN:
            self._whole.clear()
        found = self._whole[head] = (meaning, int(head[start:end]))
        return found

    def keep(self, head: bytes, meaning: T) -> None:
        """Remember a head. It must be of a message whose length is told by ``Content-Length`` alone.

        Args:
            head: The head, with the line end of its last header.
            meaning: What the parser made of it.
        """
        length = _length(head)
        if length is None or len(head) > _MAX_BYTES:
            return
        if not head.count(b"\n") == head.count(b"\r") == head.count(b"\r\n"):
            return  # a lenient parser may have seen its end earlier than we do
        if len(self._meanings) >= _MAX_KNOWN:
            self._meanings.clear()
        start, end = length.span(1)
        self._meanings[head[:start], head[end:]] = meaning
