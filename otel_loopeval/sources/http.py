"""Asking a server, with the standard library: bounded in time, size and tries."""

import base64
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from http.client import HTTPException, HTTPMessage, HTTPResponse
from typing import IO, Any, cast
from urllib.parse import unquote, urlencode, urlsplit, urlunsplit

from otel_loopeval import semconv
from otel_loopeval.sources.errors import SourceError

HEADERS_VARIABLE = semconv.ENV_PREFIX + "SOURCE_HEADERS"
"""Headers for every request: ``name=value,name=value``, percent-encoded, as the OTLP exporters have them."""

MAX_ANSWER = 256 * 2**20
_TIMEOUT_S = 60.0
_TRIES = 3
_PAUSES_S = (0.2, 1.0)
_MAX_PAUSE_S = 5.0
_BUSY = frozenset({429, 502, 503, 504})
_SHOWN = 200
_NOT_FOUND = 404

Parameters = Iterable[tuple[str, str | int]]


class NotFoundError(SourceError):
    """The server answered 404."""


class AnswerTooLongError(SourceError):
    """The server's answer is longer than is read."""


class Client:
    """Requests below one address.

    Args:
        address: ``http(s)://user:password@host:port/path``; what comes after a ``?`` is not sent.
        headers: More headers.

    Attributes:
        shown: The address for messages, without the password.

    Raises:
        SourceError: It is no such address, or the environment's headers are none.
    """

    def __init__(self, address: str, headers: Mapping[str, str] | None = None) -> None:
        try:
            parts = urlsplit(address)
            port = parts.port
        except ValueError as error:
            raise SourceError(address.rpartition("@")[2], "", f"no address: {error}") from None
        host = parts.hostname or ""
        name = f"[{host}]" if ":" in host else host
        place = f"{name}:{port}" if port is not None else name
        self.shown = urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))
        if parts.scheme not in ("http", "https") or not host:
            raise SourceError(self.shown, "", "expected an address of a host, such as http://localhost:16686")
        self._headers = {"User-Agent": semconv.SCOPE, **(headers or {}), **_environment_headers()}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode("ascii")
        self._opener = urllib.request.build_opener(_SameHost())

    def get(self, path: str, parameters: Parameters = (), *, accept: str = "application/json") -> bytes:
        """The answer to a GET request.

        Args:
            path: Below the address, from its ``/``.
            parameters: Of the query.
            accept: The media type that is wanted.

        Raises:
            SourceError: There is none, or no good one.
        """
        with self._ask(path, parameters, accept) as answer:
            try:
                data = answer.read(MAX_ANSWER + 1)
            except (OSError, HTTPException) as error:
                raise self._broke_off(path, error) from None
            if len(data) > MAX_ANSWER:
                raise AnswerTooLongError(self.shown, "", f"{path}: an answer longer than {MAX_ANSWER} bytes")
            if answer.length:
                raise self._broke_off(path, f"{answer.length} bytes are missing")
        return data

    def get_json(self, path: str, parameters: Parameters = ()) -> Any:
        """The answer to a GET request, parsed.

        Raises:
            SourceError: There is none, or it is no JSON.
        """
        data = self.get(path, parameters)
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            raise SourceError(self.shown, "", f"{path}: the answer is no JSON ({_start(data)})") from None

    def lines(self, path: str, body: bytes, limit: int) -> Iterator[bytes]:
        """The lines of the answer to a POST request, as they come; longer ones in pieces of ``limit`` bytes.

        Raises:
            SourceError: There is none, or no good one.
        """
        with self._ask(path, (), "*/*", body) as answer:
            while True:
                try:
                    line = answer.readline(limit)
                except (OSError, HTTPException) as error:
                    raise self._broke_off(path, error) from None
                if not line:
                    return
                yield line

    def _ask(self, path: str, parameters: Parameters, accept: str, body: bytes | None = None) -> HTTPResponse:
        query = urlencode(list(parameters))
        url = f"{self.shown}{path}?{query}" if query else f"{self.shown}{path}"
        request = urllib.request.Request(  # noqa: S310 - the scheme was looked at
            url, data=body, headers={**self._headers, "Accept": accept}
        )
        return self._opened(request, path)

    def _broke_off(self, path: str, why: object) -> SourceError:
        return SourceError(self.shown, "", f"{path}: the answer broke off ({why})")

    def _opened(self, request: urllib.request.Request, path: str) -> HTTPResponse:
        for pause in (*_PAUSES_S, None):
            try:
                return cast("HTTPResponse", self._opener.open(request, timeout=_TIMEOUT_S))
            except urllib.error.HTTPError as error:  # noqa: PERF203 - three turns
                if error.code not in _BUSY or pause is None:
                    raise self._refused(error, path) from None
                wanted = _seconds(error.headers.get("Retry-After"))
                error.close()
                time.sleep(min(max(pause, wanted), _MAX_PAUSE_S))
            except urllib.error.URLError as error:
                reason = error.reason
                if not isinstance(reason, ConnectionResetError) or pause is None:
                    raise SourceError(self.shown, "", f"{path}: {_why(reason)}") from None
                time.sleep(pause)
            except (OSError, HTTPException) as error:
                if pause is None or isinstance(error, TimeoutError):
                    raise SourceError(self.shown, "", f"{path}: {_why(error)}") from None
                time.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def _refused(self, error: urllib.error.HTTPError, path: str) -> SourceError:
        with error:
            try:
                said = _start(error.read(_SHOWN + 1))
            except (OSError, HTTPException):
                said = ""
        kind = NotFoundError if error.code == _NOT_FOUND else SourceError
        return kind(
            self.shown,
            "",
            f"{path}: HTTP status {error.code} {error.reason}" + (f" ({said})" if said else ""),
        )


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Follows a redirect only to the same place, which may see the credentials."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if (old.scheme, old.netloc) != (new.scheme, new.netloc):
            return None  # and so it stays an error, with the status of the redirect
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _environment_headers() -> dict[str, str]:
    headers: dict[str, str] = {}
    for pair in os.environ.get(HEADERS_VARIABLE, "").split(","):
        name, separator, value = pair.partition("=")
        if not pair.strip():
            continue
        name, value = unquote(name).strip(), unquote(value).strip()
        if not separator or not name or any(character in "\r\n\0" for character in name + value):
            # The value is not shown: it may be a secret.
            raise SourceError(HEADERS_VARIABLE, "", "expected name=value pairs, separated by commas")
        headers[name] = value
    return headers


def _seconds(text: str | None) -> float:
    return (
        float(text)
        if text is not None and text.isascii() and text.isdigit() and len(text) < _TRIES * 3
        else 0.0
    )


def _why(reason: Any) -> str:
    if isinstance(reason, TimeoutError):
        return f"no answer within {_TIMEOUT_S:g} s"
    if isinstance(reason, ConnectionRefusedError):
        return "connection refused: does a server listen there?"
    return str(getattr(reason, "strerror", None) or reason)


def _start(data: bytes) -> str:
    text = " ".join(data[: _SHOWN + 1].decode("utf-8", "replace").split())
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
