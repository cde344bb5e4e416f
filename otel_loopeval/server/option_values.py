"""What the values of options mean: the next hop and its headers, tokens."""

import re
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from otel_loopeval.server.tokens import ALL

_MAX_TENANT: Final = 100


def read_forward(text: str) -> str:
    """The base URL of the next hop.

    Raises:
        ValueError: It is none.
    """
    problem = ""
    try:
        parts = urlsplit(text)
        _ = parts.port  # looked at only now
    except ValueError as error:
        parts, problem = urlsplit(""), str(error)
    if not text.isascii() or not text.isprintable() or " " in text:
        problem = "printable ASCII only"  # or it would be taken apart otherwise than it looks
    elif parts.username is not None or parts.password is not None:
        raise ValueError(
            "the next hop's URL may have no user and password in it: give --forward-header authorization=…"
        )
    elif parts.path.rstrip("/").endswith(("/v1/traces", "/v1/metrics", "/v1/logs")):
        problem = "the base alone: /v1/traces and the like are added"
    elif problem or (
        parts.scheme in ("http", "https") and parts.hostname and not parts.query and not parts.fragment
    ):
        pass
    else:
        problem = "http or https, a host, no query"
    if problem:
        raise ValueError(
            f"the next hop is the base URL of OTLP over HTTP, such as http://127.0.0.1:4328, got {text!r} "
            f"({problem})"
        )
    return text


_OURS: Final = frozenset(
    {
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that belong to each request."""


def read_header(text: str) -> tuple[str, str]:
    """A header such as ``authorization=Bearer abc``.

    Raises:
        ValueError: It is none, or not the caller's to set. What is told has no value in it: they are secret.
    """
    name, equals, value = text.partition("=")
    name, value = name.strip().lower(), value.strip()
    if not equals:
        raise ValueError("a header is NAME=VALUE in printable ASCII, got no =")
    if not re.fullmatch(r"[0-9a-z_-]+", name) or not (value.isascii() and value.isprintable()):
        raise ValueError(f"a header is NAME=VALUE in printable ASCII, got {name!r} and a value")
    if name in _OURS:
        raise ValueError(f"the header {name} is each request's own and cannot be given")
    return name, value


def read_tokens(path: Path) -> dict[str, str]:
    """The tokens in a file: one a line, as ``tenant:token``, or the token alone; ``#`` begins a comment.

    The tenant :data:`~otel_loopeval.server.tokens.ALL` stands for all.

    Returns:
        The tenant of each token, ``default`` for a token alone.

    Raises:
        ValueError: It cannot be read, there is none in it, none that may send, one is there twice, or a line
            has more than one colon or no token that a header could bring. What is told has no token in it.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise ValueError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{str(path)!r} is no text in UTF-8") from None
    tokens: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if text.count(":") > 1:  # whichever is taken, part of what was meant would be lost
            raise ValueError(
                f"line {number} of {str(path)!r} has more than one colon: it is tenant:token, with none in "
                "either"
            )
        tenant, _, token = text.rpartition(":")
        tenant, token = tenant.strip() or "default", token.strip()
        if not re.fullmatch(r"[!-~]+", token) or not tenant.isprintable() or len(tenant) > _MAX_TENANT:
            raise ValueError(
                f"line {number} of {str(path)!r} is no tenant:token: a token is printable ASCII without "
                f"spaces, a tenant has at most {_MAX_TENANT} printable characters"
            )
        if token in tokens:
            raise ValueError(f"line {number} of {str(path)!r} has a token that was there before")
        tokens[token] = tenant
    if not tokens:
        raise ValueError(f"{str(path)!r} has no token in it: one a line, as tenant:token")
    if set(tokens.values()) == {ALL}:
        raise ValueError(
            f"{str(path)!r} lets nobody send: the token of {ALL} shows the runs of all, and sends none; give "
            "each sender a line tenant:token"
        )
    return tokens
