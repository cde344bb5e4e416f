"""HTTP/1.1 as senders speak it, and as nobody should, on real sockets."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from server.serve_inside import PATIENCE_S, Inside, answer_of, inside, next_hop, post, request_of

from otel_loopeval.server.options import ServeOptions

OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n"

Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter
Talk = Callable[[Inside, Reader, Writer], Awaitable[None]]


def talk(script: Talk, **options: float) -> list[bytes]:
    """Talk to a server over one connection; the bodies that its next hop got."""
    bodies: list[bytes] = []

    async def hop(reader: Reader, writer: Writer) -> None:
        while not reader.at_eof():
            try:
                _, body = await request_of(reader)
            except asyncio.IncompleteReadError:
                break
            bodies.append(body)
            writer.write(OK)
        writer.close()

    async def main() -> None:
        async with next_hop(hop) as url, inside(ServeOptions(forward=url, **options)) as server:  # type: ignore[reportArgumentType]
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            await script(server, reader, writer)
            writer.close()
            assert server.core.inflight == 0

    asyncio.run(main())
    return bodies


def test_requests_in_one_packet_are_answered_in_order() -> None:
    async def script(_server: Inside, reader: Reader, writer: Writer) -> None:
        writer.write(
            post(b"1")
            + b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
            + post(b"22")
            + post(b"no", "content-type: text/plain")
            + post(b"333\r\n\r\n")
            + b"HEAD /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
            + post(b"4444")
        )
        told = [await answer_of(reader) for _ in range(5)]
        head = await reader.readuntil(b"\r\n\r\n")
        told.append(await answer_of(reader))
        assert [(status, body) for status, _, body in told] == [
            (200, b""),
            (200, b"ok"),
            (200, b""),
            (415, b"content-type is application/x-protobuf or application/json"),
            (200, b""),
            (200, b""),
        ]
        assert (
            head == b"HTTP/1.1 200 OK\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 2\r\n\r\n"
        )

    assert talk(script) == [b"1", b"22", b"333\r\n\r\n", b"4444"]


def test_a_head_that_came_before_means_the_same_however_it_comes_in() -> None:
    bodies = [b"x", b"", b"y" * 300_000, b"POST /v1/logs HTTP/1.1\r\n\r\n", b"z" * 65_536, b"end"]

    async def script(_server: Inside, reader: Reader, writer: Writer) -> None:
        for body in bodies:
            writer.write(post(body))
            assert (await answer_of(reader))[0] == 200
        for request in (post(b"in parts"), post(b"whole") + post(b"and parts")):
            for start in range(len(request)):
                writer.write(request[start : start + 1])
                await asyncio.sleep(0)
        assert [(await answer_of(reader))[0] for _ in range(3)] == [200, 200, 200]
        writer.write(b"\r\n" + post(b"after an empty line"))
        assert (await answer_of(reader))[0] == 200

    assert talk(script) == [*bodies, b"in parts", b"whole", b"and parts", b"after an empty line"]


def test_other_headers_are_another_head() -> None:
    requests = ((b"", (), 200), (b"x", ("content-encoding: gzip",), 400), (b"", ("x-any: 1",), 200))

    async def script(_server: Inside, reader: Reader, writer: Writer) -> None:
        for body, headers, status in requests * 2:
            writer.write(post(body, *headers, signal="traces"))
            assert (await answer_of(reader))[0] == status

    assert talk(script) == [b"", b"", b"", b""]


def test_chunks_with_extensions_and_trailers_are_one_body() -> None:
    async def script(_server: Inside, reader: Reader, writer: Writer) -> None:
        for _ in range(2):
            writer.write(CHUNKED + b"3;a=b\r\nabc\r\n1\r\nd\r\n0\r\ncontent-type: text/plain\r\n\r\n")
            assert (await answer_of(reader))[0] == 200
        writer.write(CHUNKED + b"b\r\n01234567890\r\n0\r\n\r\n" + post(b"next"))
        assert (await answer_of(reader))[0] == 413
        assert (await answer_of(reader))[0] == 200

    assert talk(script, max_body=10) == [b"abcd", b"abcd", b"next"]


def test_a_sender_that_asks_first_is_told_to_go_on() -> None:
    async def script(_server: Inside, reader: Reader, writer: Writer) -> None:
        for _ in range(2):
            request = post(b"body", "expect: 100-continue")
            writer.write(request[:-4])
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(request[-4:])
            assert (await answer_of(reader))[0] == 200
        # Behind another request it is told so after the answer to that one.
        request = post(b"again", "expect: 100-continue")
        writer.write(post(b"first") + request[:-5])
        assert (await answer_of(reader))[0] == 200
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(request[-5:])
        assert (await answer_of(reader))[0] == 200

    assert talk(script) == [b"body", b"body", b"first", b"again"]


def test_a_sender_that_asks_first_is_refused_before_its_body() -> None:
    async def script(_server: Inside, reader: Reader, writer: Writer) -> None:
        writer.write(post(b"0123456789a", "expect: 100-continue")[:-11])
        status, headers, _ = await answer_of(reader)
        assert (status, headers["connection"]) == (413, "close")
        assert await reader.read() == b""

    assert talk(script, max_body=10) == []


def test_another_method_is_told_which_are_allowed() -> None:
    async def script(_server: Inside, reader: Reader, writer: Writer) -> None:
        for path, allowed in (("/v1/traces", "post"), ("/metrics", "get, head")):
            writer.write(f"DELETE {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
            status, headers, _ = await answer_of(reader)
            assert (status, headers["allow"]) == (405, allowed)

    assert talk(script) == []


def test_what_is_refused_by_its_head_is_read_to_its_end() -> None:
    async def script(_server: Inside, reader: Reader, writer: Writer) -> None:
        request = post(b"x" * 100_000)
        writer.write(request[:50_000])
        assert (await answer_of(reader))[0] == 413
        writer.write(request[50_000:] + post(b"next"))
        assert (await answer_of(reader))[0] == 200

    assert talk(script, max_body=99_999) == [b"next"]


@pytest.mark.parametrize("known", [False, True])
def test_too_much_at_once_is_told_in_the_middle_of_a_body(known: bool) -> None:
    async def script(server: Inside, reader: Reader, writer: Writer) -> None:
        if known:
            writer.write(post(b""))
            assert (await answer_of(reader))[0] == 200
        request = post(b"x" * 100_000)
        writer.write(request[:50_000])
        while not server.core.inflight:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)
        server.core.inflight += 400_000  # others
        writer.write(request[50_000:])
        status, headers, _ = await answer_of(reader)
        assert (status, headers["retry-after"]) == (503, "1")
        server.core.inflight -= 400_000
        writer.write(post(b"next"))
        assert (await answer_of(reader))[0] == 200

    assert talk(script, max_inflight=400_000, max_body=400_000) == ([b"", b"next"] if known else [b"next"])


@pytest.mark.parametrize("keep_alive", ["", "connection: keep-alive\r\n"])
def test_http_1_0_is_answered_and_hung_up_on(keep_alive: str) -> None:
    async def script(_server: Inside, reader: Reader, writer: Writer) -> None:
        request = post(b"old").replace(b"HTTP/1.1", b"HTTP/1.0")
        writer.write(request.replace(b"host: x\r\n", keep_alive.encode()))
        status, headers, _ = await answer_of(reader)
        assert (status, headers["connection"]) == (200, "close")
        assert await reader.read() == b""

    assert talk(script) == [b"old"]


def test_a_sender_that_wants_to_hang_up_is_hung_up_on() -> None:
    async def script(_server: Inside, reader: Reader, writer: Writer) -> None:
        writer.write(post(b"1") + post(b"2", "connection: close") + post(b"3"))
        assert [(await answer_of(reader))[1].get("connection") for _ in range(2)] == [None, "close"]
        assert await reader.read() == b""

    assert talk(script) == [b"1", b"2"]


def test_a_sender_that_has_sent_all_gets_its_answers() -> None:
    async def script(_server: Inside, reader: Reader, writer: Writer) -> None:
        writer.write(post(b"1") + post(b"2"))
        writer.write_eof()
        assert [(await answer_of(reader))[0] for _ in range(2)] == [200, 200]
        assert await reader.read() == b""

    assert talk(script) == [b"1", b"2"]


def test_an_offer_of_another_protocol_is_not_taken_up() -> None:
    """Java's own client offers HTTP/2 with its first request, whatever that is."""
    offer = ("connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAEAAEAA")

    async def script(_server: Inside, reader: Reader, writer: Writer) -> None:
        for _ in range(2):
            writer.write(post(b"body", *offer) + post(b"", *offer) + post(b"next"))
            assert [(await answer_of(reader))[0] for _ in range(3)] == [200, 200, 200]

    assert talk(script) == [b"body", b"", b"next"] * 2


@pytest.mark.parametrize(
    ("status", "request_"),
    [
        (400, b"\x16\x03\x01\x02\x00\x01\x00\x01"),  # TLS
        (405, b"CONNECT localhost:80 HTTP/1.1\r\n\r\n"),
        (400, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        (400, post(b"abc", "content-length: 4")),
        (400, post(b"abc", "transfer-encoding: chunked")),
        (400, post(b"abc").replace(b"Content-Length:", b"Content-Length :")),
        (400, post(b"abc").replace(b"Content-Length: 3", b"Content-Length: +3")),
        (400, post(b"abc").replace(b"Content-Length: 3", b"Content-Length: ")),
        (400, post(b"abc").replace(b"\r\nhost: x", b"\r\nhost: x\r\n folded: y\x00")),
    ],
)
def test_what_is_no_http_is_told_so_and_hung_up_on(status: int, request_: bytes) -> None:
    async def script(_server: Inside, reader: Reader, writer: Writer) -> None:
        writer.write(post(b"before"))
        assert (await answer_of(reader))[0] == 200
        writer.write(request_ + post(b"smuggled"))
        told, headers, _ = await answer_of(reader)
        assert (told, headers["connection"]) == (status, "close")
        assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""

    assert talk(script) == [b"before"]


CHUNKED = (
    b"POST /v1/logs HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"GET / HTTP/1.1\r\nx: ", b"y" * 10_000),
        (b"GET / HTTP/1.1\r\n", b"x: " + b"y" * 10_000 + b"\r\n"),
        (b"GET /", b"y" * 10_000),
        (CHUNKED + b"0\r\n", b"x: " + b"y" * 10_000 + b"\r\n"),
        (CHUNKED + b"1;", b"y" * 10_000),
        (b"", b"\r\n" * 5_000),
    ],
)
def test_what_never_comes_to_a_body_is_hung_up_on(begin: bytes, more: bytes) -> None:
    async def script(_server: Inside, reader: Reader, writer: Writer) -> None:
        writer.write(begin)
        await asyncio.sleep(0.05)
        writer.write(more * 10)
        assert (await answer_of(reader))[0] == 431
        assert await reader.read() == b""

    assert talk(script) == []


def test_a_sender_that_takes_too_long_is_hung_up_on() -> None:
    async def script(server: Inside, reader: Reader, writer: Writer) -> None:
        writer.write(post(b"before"))
        assert (await answer_of(reader))[0] == 200
        writer.write(post(b"never all of it")[:-1])
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(reader.readexactly(1), PATIENCE_S)
        assert server.connections.open == {}

    assert talk(script, request_s=0.3) == [b"before"]


def test_a_sender_that_leaves_takes_nothing_along() -> None:
    async def script(server: Inside, reader: Reader, writer: Writer) -> None:
        del reader
        for request in (
            post(b"x" * 100_000)[:-1],
            post(b"y" * 100_000),
            post(b"1") + post(b"2") + post(b"3")[:-1],
        ):
            _, other = await asyncio.open_connection("127.0.0.1", server.port)
            other.write(request)
            await other.drain()
            await asyncio.sleep(0.05)
            other.transport.abort()
        while len(server.connections.open) > 1 or server.core.inflight:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
        writer.close()

    assert talk(script)[0] == b"y" * 100_000


def test_one_connection_too_many_takes_the_place_of_an_idle_one_or_is_closed() -> None:
    async def script(server: Inside, reader: Reader, writer: Writer) -> None:
        writer.write(post(b"1"))
        assert (await answer_of(reader))[0] == 200
        second, second_writer = await asyncio.open_connection("127.0.0.1", server.port)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(reader.readexactly(1), PATIENCE_S)
        second_writer.write(post(b"22")[:-1])  # it is at something now
        while not server.core.inflight:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)
        third, third_writer = await asyncio.open_connection("127.0.0.1", server.port)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(third.readexactly(1), PATIENCE_S)
        second_writer.write(b"2")
        assert (await answer_of(second))[0] == 200
        for each in (second_writer, third_writer):
            each.close()

    assert talk(script, max_connections=1) == [b"1", b"22"]


def test_answers_that_nobody_reads_are_not_made() -> None:
    async def script(server: Inside, reader: Reader, writer: Writer) -> None:
        del reader
        sent = 0
        try:
            while sent < 400:
                writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n" * 50)
                await asyncio.wait_for(writer.drain(), 0.2)
                sent += 1
                await asyncio.sleep(0)
        except (asyncio.TimeoutError, ConnectionError):
            pass
        for connection in server.connections.open:
            assert connection.transport.get_write_buffer_size() < 1_000_000
        # Others are served meanwhile.
        other, other_writer = await asyncio.open_connection("127.0.0.1", server.port)
        other_writer.write(post(b"other"))
        assert (await answer_of(other))[0] == 200
        other_writer.close()
        writer.transport.abort()

    assert talk(script) == [b"other"]


def test_at_the_end_what_is_under_way_is_answered() -> None:
    async def main() -> None:
        asked = asyncio.Event()
        go_on = asyncio.Event()

        async def hop(reader: Reader, writer: Writer) -> None:
            await request_of(reader)
            asked.set()
            await go_on.wait()
            writer.write(OK)
            await writer.drain()
            writer.close()

        async with next_hop(hop) as url, inside(ServeOptions(forward=url)) as server:
            idle, idle_writer = await asyncio.open_connection("127.0.0.1", server.port)
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            late, late_writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(post(b"under way"))
            late_writer.write(post(b"late")[:-1])
            await asked.wait()
            server.core.draining = True
            draining = asyncio.create_task(server.connections.drain(PATIENCE_S))
            assert await asyncio.wait_for(idle.read(), PATIENCE_S) == b""
            late_writer.write(b"e")
            status, headers, _ = await answer_of(late)
            assert (status, headers["retry-after"], headers["connection"]) == (503, "1", "close")
            go_on.set()
            status, headers, _ = await answer_of(reader)
            assert (status, headers["connection"]) == (200, "close")
            await draining
            for each in (idle_writer, writer, late_writer):
                each.close()

    asyncio.run(main())
