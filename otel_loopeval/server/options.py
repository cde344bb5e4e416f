"""What ``serve`` is told to do, checked."""

import ipaddress
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from otel_loopeval.runs.verdict import Policy
from otel_loopeval.server.limits import Limits

_MAX_PORT: Final = 65_535
_MAX_TENANT: Final = 100
_MAX_BODY: Final = 2**31 - 1
"""The largest message that gRPC can be told of."""


class Address(NamedTuple):
    """Where to listen.

    Attributes:
        host: A name or an address.
        port: 0 for any that is free.
    """

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect to it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


DEFAULT_HTTP: Final = Address("127.0.0.1", 4318)
DEFAULT_GRPC: Final = Address("127.0.0.1", 4317)


def read_address(text: str) -> Address:
    """An address such as ``127.0.0.1:4318`` or ``[::1]:4318``.

    Raises:
        ValueError: It is none.
    """
    host, _, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    if (
        not re.fullmatch(r"[0-9A-Fa-f:.]+(%\w+)?" if bracketed else r"[0-9A-Za-z._-]+", host)
        or not re.fullmatch(r"[0-9]{1,5}", port)
        or int(port) > _MAX_PORT
    ):
        raise ValueError(
            f"an address is HOST:PORT, such as 127.0.0.1:4318 or [::1]:4318, with a port to {_MAX_PORT}, "
            f"got {text!r}"
        )
    return Address(host, int(port))


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

    Returns:
        The tenant of each token, ``default`` for a token alone.

    Raises:
        ValueError: It cannot be read, there is none in it, one is there twice, or a line has no token that a
            header could bring. What is told has no token in it.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ValueError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{str(path)!r} is no text in UTF-8") from None
    tokens: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
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
    return tokens


class Tls(NamedTuple):
    """The server's certificate.

    Attributes:
        certificate: File with the chain, PEM.
        key: File with its key, PEM.
    """

    certificate: Path
    key: Path

    def check(self) -> None:
        """See whether they are of use.

        Raises:
            ValueError: They are not.
        """

        def passphrase() -> str:
            raise ValueError(f"the key in {str(self.key)!r} has a passphrase: give one without")

        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key, passphrase)
        except OSError as error:  # of which those of TLS are some
            what = "do not belong together" if "MISMATCH" in str(error) else f"are of no use: {error}"
            raise ValueError(
                f"the certificate in {str(self.certificate)!r} and the key in {str(self.key)!r} {what}"
            ) from None


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What to do.

    Attributes:
        http: Where to take OTLP over HTTP; the page and the metrics are there too.
        grpc: Where to take OTLP over gRPC; None for nowhere.
        forward: The next hop, such as ``http://collector:4318``; None for none.
        forward_headers: Headers that it is sent.
        store: File of the store; None for none.
        limits: How long traces are waited for, and how much is held.
        policy: What counts as healthy where a run does not say.
        tokens: The tenant of each bearer token; without any, nobody is asked for one.
        tls: The server's certificate; None for none.
        insecure: Whether it may listen beyond loopback without TLS.
        max_body: Bytes that a request may have, uncompressed.
        max_inflight: Bytes of the requests that are worked on at once; the next get 503.
        max_connections: Connections of HTTP held open at once; of gRPC, four for each five of them.
        request_s: Seconds that a request may take to come in, and a connection may be idle.
        forward_s: Seconds that the next hop may take.
        retry_after_s: What a sender is told to wait when the next hop fails.
        trace_urls: Addresses of traces elsewhere, with ``{trace_id}`` in them; the page checks them.

    Raises:
        ValueError: It cannot be done, or is not safe.
    """

    http: Address = DEFAULT_HTTP
    grpc: Address | None = DEFAULT_GRPC
    forward: str | None = None
    forward_headers: Mapping[str, str] = field(default_factory=dict[str, str])
    store: Path | None = None
    limits: Limits = field(default_factory=Limits)
    policy: Policy = field(default_factory=Policy)
    tokens: Mapping[str, str] = field(default_factory=dict[str, str])
    tls: Tls | None = None
    insecure: bool = False
    max_body: int = 16 * 1024 * 1024
    max_inflight: int = 256 * 1024 * 1024
    max_connections: int = 20_000
    request_s: float = 30.0
    forward_s: float = 10.0
    retry_after_s: int = 5
    trace_urls: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for address in (self.http, self.grpc):
            if address is None or address.is_loopback or self.tls is not None or self.insecure:
                continue
            raise ValueError(
                f"{address} can be reached from other machines: give --tls-cert and --tls-key, or --insecure "
                "if something in front of it sees to that"
            )
        for name in ("max_body", "max_inflight", "max_connections", "retry_after_s"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.max_body > min(self.max_inflight, _MAX_BODY):
            raise ValueError(
                f"max_body must be at most max_inflight ({self.max_inflight}) and {_MAX_BODY}, "
                f"got {self.max_body}"
            )
        for name in ("request_s", "forward_s"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be above 0 and finite, got {getattr(self, name)}")
        if self.grpc is not None and self.grpc == self.http and self.http.port:
            raise ValueError(f"HTTP and gRPC cannot both be at {self.http}: each needs a port of its own")
        if self.forward is not None:
            self._check_forward(read_forward(self.forward))
        elif self.forward_headers:
            raise ValueError("headers for the next hop need a next hop: give --forward")

    def _check_forward(self, forward: str) -> None:
        parts = urlsplit(forward)
        to = Address(parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
        for own in (self.http, self.grpc):
            if own is not None and to.port == own.port and _is_same_host(to, own):
                raise ValueError(f"{forward!r} is this server itself ({own}): give the next hop's URL")


def _is_same_host(one: Address, listening: Address) -> bool:
    """Whether what is sent to one arrives at the other, as far as the names tell."""
    everywhere = listening.host in ("0.0.0.0", "::")  # noqa: S104 - compared, not listened at
    same_machine = one.is_loopback or one.host in ("0.0.0.0", "::")  # noqa: S104
    if same_machine and listening.is_loopback:
        # 127.0.0.1 and 127.0.0.2 may be two servers, but localhost is either.
        return one.host == listening.host or "localhost" in (one.host, listening.host)
    return one.host == listening.host or (everywhere and same_machine)
