"""What senders are told, by us or by the next hop, and how that looks in HTTP/1.1."""

from http import HTTPStatus
from typing import Final, NamedTuple

PROTOBUF: Final = b"application/x-protobuf"
JSON: Final = b"application/json"
TEXT: Final = b"text/plain; charset=utf-8"

STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class Reply(NamedTuple):
    """What a sender is told, or what the next hop said.

    Attributes:
        status: Status of HTTP.
        body: The response's message, in the type of the request; for errors, a text.
        content_type: Its type; empty where the next hop does not say.
        retry_after: ``Retry-After``, empty where that is no matter.
        allow: The methods that are allowed instead, with status 405.
    """

    status: int
    body: bytes = b""
    content_type: bytes = PROTOBUF
    retry_after: bytes = b""
    allow: bytes = b""


def refused(status: int, message: str, retry_after: bytes = b"") -> Reply:
    """An error, as text."""
    return Reply(status, message.encode("utf-8", "replace"), TEXT, retry_after)


def status_line(status: int) -> bytes:
    """The first line of an answer; the next hop may know statuses that nobody else does."""
    return STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status


def as_http(reply: Reply, *, keep_alive: bool, with_body: bool = True) -> bytes:
    """A reply as it goes to a sender.

    Args:
        reply: The reply.
        keep_alive: Whether the connection lives on.
        with_body: Whether its body goes too: not in answer to HEAD.
    """
    status, body, content_type, retry_after, allow = reply
    if status == 200 and keep_alive and with_body:  # noqa: PLR2004 - nearly always
        return b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (
            content_type,
            len(body),
            body,
        )
    parts = [status_line(status), b"content-type: %b\r\ncontent-length: %d\r\n" % (content_type, len(body))]
    if retry_after:
        parts.append(b"retry-after: %b\r\n" % retry_after)
    if allow:
        parts.append(b"allow: %b\r\n" % allow)
    if status == 401:  # noqa: PLR2004
        parts.append(b"www-authenticate: Bearer\r\n")
    if not keep_alive:
        parts.append(b"connection: close\r\n")
    parts.append(b"\r\n")
    if with_body:
        parts.append(body)
    return b"".join(parts)
