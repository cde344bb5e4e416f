"""gzip and zstd, known by their first bytes."""

import gzip
import importlib
import io
import zlib
from typing import Any, cast

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_SKIPPABLE = tuple(bytes([first]) + b"\x2a\x4d\x18" for first in range(0x50, 0x60))  # frames without data
_BUFFER = 2**20
_NEEDED = "zstd needs Python 3.14 or later, or: pip install 'otel-loopeval[sources]'"


def _load_zstd() -> Any:
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(name)
        except ImportError:  # noqa: PERF203 - two turns
            continue
    return None


_zstd: Any = _load_zstd()

STREAM_ERRORS: tuple[type[Exception], ...] = (
    EOFError,
    zlib.error,
    gzip.BadGzipFile,
    *([] if _zstd is None else [_zstd.ZstdError]),
)
"""What reading a broken compressed stream may raise."""


def is_zstd(head: bytes) -> bool:
    """Whether some bytes begin a frame of zstd."""
    return head.startswith((_ZSTD, *_SKIPPABLE))


def decompressed(stream: io.BufferedReader) -> io.BufferedReader:
    """The stream without its compression, if it has one: gzip or zstd, of any number of members or frames.

    Raises:
        ValueError: There is no zstd here.
    """
    head = stream.peek(len(_ZSTD))
    if head.startswith(_GZIP):
        return _buffered(gzip.GzipFile(fileobj=stream))
    if is_zstd(head):
        if _zstd is None:
            raise ValueError(_NEEDED)
        return _buffered(_zstd.ZstdFile(stream))
    return stream


def bounded_frame(data: bytes, limit: int) -> bytes:
    """One frame of zstd as the bytes that it holds, at most ``limit``.

    Raises:
        ValueError: It is broken or holds more, or there is no zstd here.
    """
    if _zstd is None:
        raise ValueError(_NEEDED)
    parts: list[bytes] = []
    size = 0
    while data:
        decompressor = _zstd.ZstdDecompressor()
        try:
            part = cast("bytes", decompressor.decompress(data, limit + 1 - size))
        except _zstd.ZstdError as error:
            raise ValueError(f"broken zstd ({error})") from None
        size += len(part)
        if size > limit:
            raise ValueError(f"{len(data)} bytes of zstd that hold more than {limit}")
        if not decompressor.eof:
            raise ValueError("zstd that is cut off")
        parts.append(part)
        data = decompressor.unused_data
    return b"".join(parts)


def _buffered(raw: Any) -> io.BufferedReader:
    return io.BufferedReader(cast("io.RawIOBase", raw), _BUFFER)
