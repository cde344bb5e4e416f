"""Bodies of requests without their compression, of bounded size."""

import zlib
from typing import Final

from otel_loopeval.sources.compression import bounded_frame

_GZIP_WINDOW: Final = 31  # zlib's own: the header of gzip is expected
_ZLIB_WINDOW: Final = 15


class BodyError(Exception):
    """A body that cannot be read.

    Args:
        status: The status of the answer.
        message: What is wrong with it.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def plain(body: bytes, encoding: bytes, limit: int) -> bytes:
    """A body without its compression.

    Args:
        body: The body.
        encoding: Its ``Content-Encoding``.
        limit: Bytes that it may have in the end.

    Raises:
        BodyError: It is broken, too large, or of an encoding that is not known.
    """
    if encoding in (b"", b"identity"):
        return body
    if encoding in (b"gzip", b"deflate"):
        return _inflated(body, _GZIP_WINDOW if encoding == b"gzip" else _ZLIB_WINDOW, limit)
    if encoding == b"zstd":
        try:
            return bounded_frame(body, limit)
        except ValueError as error:
            raise BodyError(413 if "more than" in str(error) else 400, str(error)) from None
    raise BodyError(
        415, f"content-encoding is gzip, zstd or deflate, got {encoding[:40].decode('latin-1')!r}"
    )


def _inflated(body: bytes, window: int, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while body:
        inflater = zlib.decompressobj(window)
        try:
            part = inflater.decompress(body, limit + 1 - size)
        except zlib.error as error:
            raise BodyError(400, f"broken compression ({error})") from None
        size += len(part)
        if size > limit:
            raise BodyError(413, f"a body may have {limit} bytes, this one has more")
        if not inflater.eof:
            raise BodyError(400, "compressed data that is cut off")
        parts.append(part)
        body = inflater.unused_data
        if part == b"" and len(parts) > 1_000:  # noqa: PLR2004 - members that hold nothing
            raise BodyError(400, "compressed data without end")
    return parts[0] if len(parts) == 1 else b"".join(parts)
