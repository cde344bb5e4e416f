"""Who may come to the page, and whose runs they see; and the headers that keep it to itself."""

from typing import Final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from otel_loopeval.server.page.options import PageOptions
from otel_loopeval.server.tokens import ALL, Tokens

_POLICY: Final = (
    b"default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"vary", b"authorization"),
)


class Gate:
    """Lets in who may come in, as an ASGI application around another one.

    Args:
        app: The other one.
        options: Tells of tokens, and of the names that it may be asked for by.
    """

    def __init__(self, app: ASGIApp, options: PageOptions) -> None:
        self._app = app
        self._tokens = Tokens(options.tokens)
        self._hosts = options.hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See the ASGI specification."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        app = self._app
        if scope["type"] == "http":
            app = self._refusal(Headers(scope=scope), scope) or app
        await app(scope, receive, send_with_headers)

    def _refusal(self, headers: Headers, scope: Scope) -> Response | None:
        """Why a request is not let in; None if it is, and whose runs it may see is in its scope."""
        if self._hosts is not None and _host(headers.get("host", "")) not in self._hosts:
            return PlainTextResponse("the page is not served under this name\n", 421)
        tenant = self._tokens.tenant_of(headers.get("authorization", "").encode("latin-1"))
        if tenant is None:
            return PlainTextResponse(
                "a token is needed, as the password\n",
                401,
                {"www-authenticate": 'Basic realm="otel-loopeval", charset="UTF-8"'},
            )
        scope.setdefault("state", {})["viewer"] = None if not self._tokens or tenant == ALL else tenant
        return None


def viewer_of(request: Request) -> str | None:
    """The tenant whose runs a request may see; None for those of all."""
    return request.state.viewer


def _host(header: str) -> str:
    name, colon, port = header.lower().rpartition(":")
    return name if colon and port.isdecimal() else header.lower()
