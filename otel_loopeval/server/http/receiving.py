"""Who answers a request of HTTP: the core for OTLP, the page, or nobody but this module."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from otel_loopeval.server.core import Core
from otel_loopeval.server.http.heads import Head
from otel_loopeval.server.http.replies import JSON, PROTOBUF, TEXT, Reply, refused
from otel_loopeval.server.requests import NO_TOKEN, ONLY_SHOWS, SIGNALS, Otlp
from otel_loopeval.server.tokens import ALL

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_OF_ALL: Final = refused(
    403,
    "metrics tell of all tenants: the token of the tenant * is needed, from a line *:token of --token-file",
)
_SIGNAL_OF: Final = {f"/v1/{signal}": signal for signal in SIGNALS}


class Receiver:
    """Takes OTLP at ``/v1/traces``, ``/v1/metrics`` and ``/v1/logs``; the rest goes to the page.

    Args:
        core: Does the work.
        ready: Whether the server is ready for work.
        metrics: What answers with the metrics; where there are tokens, not to one of several tenants.
        page: What answers everything else, and asks for tokens itself; None for nothing.

    Attributes:
        core: Does the work.
    """

    def __init__(
        self,
        core: Core,
        *,
        ready: Callable[[], bool],
        metrics: App,
        page: App | None = None,
    ) -> None:
        self.core = core
        self._page = page
        self._ready = ready
        self._metrics = metrics

    def route(self, head: Head, path: str) -> Otlp | Reply | App:
        """What a request is, by its head: OTLP to be taken, answered already, or who answers it.

        Args:
            head: Its head.
            path: Its path, decoded.
        """
        signal = _SIGNAL_OF.get(path)
        if signal is not None:
            return self._otlp(signal, head)
        if path in ("/healthz", "/readyz", "/metrics"):
            return self._plain(path, head)
        if self._page is None:
            return refused(404, "OTLP is taken at /v1/traces, /v1/metrics and /v1/logs")
        return self._page

    def _plain(self, path: str, head: Head) -> Reply | App:
        if head.method not in ("GET", "HEAD"):
            return refused(405, "GET it")._replace(allow=b"GET, HEAD")
        if path == "/metrics":
            return self._withheld(head) or self._metrics
        if path == "/readyz" and not self._ready():
            return refused(503, "not ready")
        return Reply(200, b"ok", TEXT)

    def _withheld(self, head: Head) -> Reply | None:
        """Why who asks may not see the metrics, which tell of all tenants; None if they may."""
        tokens = self.core.tokens
        tenant = tokens.tenant_of(dict(head.headers).get(b"authorization", b""))
        if tenant is None:
            return NO_TOKEN
        return None if tokens.may_see_metrics(tenant) else _OF_ALL

    def _otlp(self, signal: str, head: Head) -> Otlp | Reply:
        headers = dict(head.headers)
        content_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        size = headers.get(b"content-length", b"")
        core = self.core
        tenant = core.tokens.tenant_of_bearer(headers.get(b"authorization", b""))
        refusal: Reply | None = None
        if head.method != "POST":
            refusal = refused(405, "POST it")._replace(allow=b"POST")
        elif tenant is None:
            refusal = NO_TOKEN
        elif tenant == ALL:
            refusal = ONLY_SHOWS
        elif content_type not in (PROTOBUF, JSON):
            refusal = refused(415, "content-type is application/x-protobuf or application/json")
        elif size.isdigit():
            refusal = self.too_much(int(size))
        if refusal is not None:
            core.count(signal, refusal.status, tenant or "")
            return refusal
        encoding = headers.get(b"content-encoding", b"").strip().lower()
        return Otlp(signal, content_type, encoding, tenant or "")

    def too_much(self, size: int, counted: int = 0) -> Reply | None:
        """Why a body is not taken; None if it is.

        Args:
            size: Its bytes.
            counted: How many of them have come in and count already.
        """
        options = self.core.options
        if size > options.max_body:
            return refused(413, f"a body may have {options.max_body} bytes, this one has more")
        if size - counted + self.core.inflight > options.max_inflight:
            return refused(503, "too much at once", b"1")
        return None
