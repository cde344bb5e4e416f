"""What ``serve`` is told to do, checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from otel_loopeval.runs.verdict import Policy
from otel_loopeval.server.addresses import DEFAULT_GRPC, DEFAULT_HTTP, Address, is_same_host, unresolved
from otel_loopeval.server.option_values import read_forward
from otel_loopeval.server.tls import ForwardTls, Tls
from otel_loopeval.server.traces.limits import Limits

_MAX_BODY: Final = 2**31 - 1
"""The largest message that gRPC can be told of."""


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What to do.

    Attributes:
        http: Where to take OTLP over HTTP; the page and the metrics are there too.
        grpc: Where to take OTLP over gRPC; None for nowhere.
        forward: The next hop, such as ``http://collector:4318``; None for none.
        forward_headers: Headers that it is sent.
        forward_tls: Whom we trust there, and who we are, where its URL is one of https.
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
    forward_tls: ForwardTls = field(default_factory=ForwardTls)
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
        self._check_reach()
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
            raise ValueError(f"--http and --grpc cannot both be at {self.http}: each needs a port of its own")
        if self.forward is not None:
            self._check_forward(read_forward(self.forward))
        elif self.forward_headers:
            raise ValueError("headers for the next hop need a next hop: give --forward")
        if self.forward_tls != ForwardTls() and urlsplit(self.forward or "").scheme != "https":
            raise ValueError(
                "certificates for the next hop need one of https: give --forward https://…, "
                f"got {self.forward or 'none'!r}"
            )

    def _check_reach(self) -> None:
        for option, address in (("--http", self.http), ("--grpc", self.grpc)):
            if address is None or address.is_loopback or self.tls is not None or self.insecure:
                continue
            if problem := unresolved(address):
                raise ValueError(f"argument {option}: {address} is no address of this machine: {problem}")
            raise ValueError(
                f"argument {option}: {address} can be reached from other machines: give --tls-cert and "
                "--tls-key, or --insecure if something in front of it sees to that"
            )

    def _check_forward(self, forward: str) -> None:
        parts = urlsplit(forward)
        to = Address(parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
        for own in (self.http, self.grpc):
            if own is not None and to.port == own.port and is_same_host(to, own):
                raise ValueError(f"{forward!r} is this server itself ({own}): give the next hop's URL")
