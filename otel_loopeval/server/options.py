"""What ``serve`` is told to do, checked."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from otel_loopeval.runs.verdict import Policy
from otel_loopeval.server.following import Limits

_MAX_PORT = 65_535


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
    """An address such as ``127.0.0.1:4318``.

    Raises:
        ValueError: It is none.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > _MAX_PORT:
        raise ValueError(f"an address is HOST:PORT, such as 127.0.0.1:4318, got {text!r}")
    return Address(host, int(port))


def read_header(text: str) -> tuple[str, str]:
    """A header such as ``authorization=Bearer abc``.

    Raises:
        ValueError: It is none.
    """
    name, equals, value = text.partition("=")
    name, value = name.strip().lower(), value.strip()
    if (
        not equals
        or not name
        or not name.replace("-", "").replace("_", "").isalnum()
        or not (name + value).isascii()
        or not value.isprintable()
    ):
        raise ValueError(f"a header is NAME=VALUE in printable ASCII, got {name!r} and a value")
    return name, value


def read_tokens(path: Path) -> dict[str, str]:
    """The tokens in a file: one a line, as ``tenant:token``, or the token alone; ``#`` begins a comment.

    Returns:
        The tenant of each token, ``default`` for a token alone.

    Raises:
        ValueError: There is none in it.
        OSError: It cannot be read.
    """
    tokens: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        tenant, _, token = text.rpartition(":")
        tokens[token.strip()] = tenant.strip() or "default"
    if not tokens or "" in tokens:
        raise ValueError(f"{path} has no token on some line, or none at all: one a line, as tenant:token")
    return tokens


class Tls(NamedTuple):
    """The server's certificate.

    Attributes:
        certificate: File with the chain, PEM.
        key: File with its key, PEM.
    """

    certificate: Path
    key: Path


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
        max_connections: Connections held open at once.
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
        for name in ("request_s", "forward_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")
        if self.forward is not None:
            parts = urlsplit(self.forward)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
                raise ValueError(
                    f"--forward is the base URL of an OTLP/HTTP endpoint, such as http://127.0.0.1:4328, "
                    f"got {self.forward!r}"
                )
