"""What servers may do to those who ask them, and what is said about it."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from otel_loopeval.sources import Query, SourceError, http, open_source

Behaviour = Callable[[BaseHTTPRequestHandler, int], None]


class Server:
    """A server on loopback that behaves as it is told, at the n-th request."""

    def __init__(self) -> None:
        self.behaviour: Behaviour = lambda handler, n: say(handler, b"{}")
        self.requests: list[BaseHTTPRequestHandler] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests.append(self)
                outer.behaviour(self, len(outer.requests))

            do_POST = do_GET  # noqa: N815 - the library's name

            def log_message(self, *args: Any, **kwargs: Any) -> None:
                """Stays quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"


def say(handler: BaseHTTPRequestHandler, data: bytes, status: int = 200, **headers: str) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(data)))
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(data)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.02,))
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http, "_PAUSES_S", (0.01, 0.02))


def problem(location: str) -> str:
    with pytest.raises(SourceError) as caught:
        list(open_source(location))
    return str(caught.value)


@pytest.mark.parametrize("kind", ["jaeger", "tempo", "phoenix"])
def test_something_else_listens_there(kind: str, server: Server):
    server.behaviour = lambda handler, n: say(handler, b"<html>\n<title>Welcome</title>")
    assert problem(f"{kind}+http://{server.address}").startswith(f"http://{server.address}: /")
    assert problem(f"{kind}+http://{server.address}").endswith(
        ": the answer is no JSON (<html> <title>Welcome</title>)"
    )
    server.behaviour = lambda handler, n: say(handler, b'{"data": 7, "traces": 7}')
    assert f"(is this {kind.title()}?)" in problem(f"{kind}+http://{server.address}")
    server.behaviour = lambda handler, n: say(handler, b"nothing like that", 404)
    assert problem(f"{kind}+http://{server.address}").endswith(
        "HTTP status 404 Not Found (nothing like that)"
    )


@pytest.mark.parametrize("kind", ["jaeger+http", "tempo+http", "phoenix+http", "clickhouse"])
def test_nobody_listens_there(kind: str):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        message = problem(f"{kind}://user:secret@{address}")
    assert message.startswith(f"http://{address}: /")
    assert message.endswith(": connection refused: does a server listen there?")


def test_a_busy_server_is_asked_again_at_most_twice(server: Server):
    server.behaviour = lambda handler, n: (
        say(handler, b"later", 503, Retry_After="0") if n < 3 else say(handler, b'{"traces":[]}')
    )
    assert list(open_source(f"tempo+http://{server.address}", query=Query(since=0, until=10**9))) == []
    assert len(server.requests) == 3
    server.behaviour = lambda handler, n: say(handler, b"later", 429)
    assert problem(f"tempo+http://{server.address}").endswith("HTTP status 429 Too Many Requests (later)")
    assert len(server.requests) == 6


def test_a_refusal_is_not_asked_again(server: Server):
    server.behaviour = lambda handler, n: say(handler, b"no", 401)
    assert problem(f"tempo+http://{server.address}").endswith("HTTP status 401 Unauthorized (no)")
    assert len(server.requests) == 1


def test_a_broken_answer(server: Server):
    def half(handler: BaseHTTPRequestHandler, n: int) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b'{"traces"')

    server.behaviour = half
    assert "/api/search: the answer broke off" in problem(f"tempo+http://{server.address}")


def test_an_answer_too_long_to_be_read(server: Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http, "MAX_ANSWER", 1000)
    server.behaviour = lambda handler, n: say(handler, b" " * 1001)
    assert problem(f"tempo+http://{server.address}").endswith("/api/search: an answer longer than 1000 bytes")


def test_credentials_and_headers(server: Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOOPEVAL_SOURCE_HEADERS", "X-Scope-OrgID=team%20a, api_key = k")
    server.behaviour = lambda handler, n: say(handler, b'{"traces":[]}')
    query = Query(since=0, until=10**9)
    assert list(open_source(f"tempo+http://user:p%40ss@{server.address}/base/", query=query)) == []
    (request,) = server.requests
    assert request.path.startswith("/base/api/search?q=%7B%7D&limit=100&")
    assert request.headers["Authorization"] == "Basic dXNlcjpwQHNz"
    assert (request.headers["X-Scope-OrgID"], request.headers["api_key"]) == ("team a", "k")


def test_headers_from_the_environment_take_the_place_of_the_password(
    server: Server, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LOOPEVAL_SOURCE_HEADERS", "Authorization=Bearer%20t")
    server.behaviour = lambda handler, n: say(handler, b'{"traces":[]}')
    list(open_source(f"tempo+http://{server.address}", query=Query(since=0, until=10**9)))
    assert server.requests[0].headers["Authorization"] == "Bearer t"


@pytest.mark.parametrize("text", ["secret", "=secret", "a=b%0d%0aX: secret"])
def test_headers_that_are_none_are_not_shown(text: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOOPEVAL_SOURCE_HEADERS", text)
    assert problem("tempo+http://127.0.0.1:1") == (
        "LOOPEVAL_SOURCE_HEADERS: expected name=value pairs, separated by commas"
    )


def test_credentials_are_not_carried_to_another_place(server: Server):
    other = Server()
    thread = threading.Thread(target=other.server.serve_forever, args=(0.02,))
    thread.start()
    try:
        there = f"http://{other.address}/"
        server.behaviour = lambda handler, n: say(handler, b"", 302, Location=there)
        assert "HTTP status 302" in problem(f"tempo+http://user:secret@{server.address}")
        assert other.requests == []
    finally:
        other.server.shutdown()
        thread.join()
        other.server.server_close()


def test_a_redirect_within_the_server_is_followed(server: Server):
    server.behaviour = lambda handler, n: (
        say(handler, b"", 302, Location="/elsewhere") if n == 1 else say(handler, b'{"traces":[]}')
    )
    query = Query(since=0, until=10**9)
    assert list(open_source(f"tempo+http://{server.address}", query=query)) == []
    assert [request.path[:11] for request in server.requests] == ["/api/search", "/elsewhere"]


ADDRESSES: list[tuple[str, str]] = [
    ("tempo+http://", "expected an address of a host, such as http://localhost:16686"),
    ("tempo+http://host:99999", "Port out of range"),
    ("jaeger+http://user:secret@host:x", "no address: "),
    ("tempo://host", "no such kind of source; there are: jaeger+http(s)://, tempo+http(s)://,"),
    ("http://user:secret@host", "no such kind of source"),
    ("clickhouse://user:secret@host/a;b", "expected a name of letters, digits and underscores, got 'a;b'"),
    ("clickhouse://host/db?table=a`b", "expected a name of letters, digits and underscores, got 'a`b'"),
    ("clickhouse://user:secret@host:x/db", "no address: "),
    ("chdb:///no/such/place", "no such file or directory"),
]


@pytest.mark.parametrize(("location", "expected"), ADDRESSES)
def test_addresses_that_are_none(location: str, expected: str):
    message = problem(location)
    assert expected in message
    assert "secret" not in message


def test_trace_ids_that_would_change_the_address_are_refused(server: Server):
    answer = json.dumps({"traces": [{"traceID": "../../admin"}]}).encode()
    server.behaviour = lambda handler, n: say(handler, answer)
    assert problem(f"tempo+http://{server.address}").endswith(
        "/api/search: expected a trace id, got '../../admin'"
    )
    assert len(server.requests) == 1


QUERIES: list[tuple[dict[str, Any], str]] = [
    ({"limit": 0}, "limit must be at least 1, got 0"),
    ({"since": 5, "until": 5}, "since must be before until, got 5 and 5"),
]


@pytest.mark.parametrize(("fields", "message"), QUERIES)
def test_queries_that_are_none(fields: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=f"^{message}$"):
        Query(**fields)
