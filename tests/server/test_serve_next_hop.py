"""Next hops as they are: slow, gone, busy, of few words, with TLS."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from server.serve_inside import PATIENCE_S, Inside, answer_of, inside, next_hop, post, request_of
from server.serve_processes import Traffic

from otel_loopeval.server.http.replies import PROTOBUF
from otel_loopeval.server.options import ServeOptions

OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n"
PARTIAL = b"\x0a\x02\x08\x01"
"""One span was rejected, says the next hop."""

Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter
Told = tuple[int, dict[str, str], bytes]


def tell(script: Callable[[Reader, Writer], Awaitable[None]], count: int = 1, **options: Any) -> list[Told]:
    """What senders are told, one after the other, by a server before a next hop with a script."""

    async def main() -> list[Told]:
        async with next_hop(script) as url, inside(ServeOptions(forward=url, **options)) as server:
            told = [await ask(server, b"%d" % number) for number in range(count)]
            assert server.core.inflight == 0
            return told

    return asyncio.run(main())


async def ask(server: Inside, body: bytes) -> Told:
    """What one sender is told."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(post(body))
    told = await answer_of(reader)
    writer.close()
    return told


def saying(answer: bytes) -> Callable[[Reader, Writer], Awaitable[None]]:
    """A next hop that says the same to each request, and then waits for the next."""

    async def script(reader: Reader, writer: Writer) -> None:
        while not reader.at_eof():
            try:
                await request_of(reader)
            except asyncio.IncompleteReadError:
                break
            writer.write(answer)
        writer.close()

    return script


@pytest.mark.parametrize(
    ("answer", "status", "retry_after", "body"),
    [
        (b"413 Too Large\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n\r\nlarge", 413, None, b"large"),
        (b"400 Bad\r\ncontent-length: 3\r\n\r\nbad", 400, None, b"bad"),
        (b"429 Busy\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n", 429, "7", b"the next hop is busy"),
        (
            b"429 Busy\r\nRetry-After: Wed, 21 Oct 2026 07:28:00 GMT\r\ncontent-length: 0\r\n\r\n",
            429,
            "wed, 21 oct 2026 07:28:00 gmt",
            b"the next hop is busy",
        ),
        (b"429 Busy\r\ncontent-length: 0\r\n\r\n", 429, "5", b"the next hop is busy"),
        (b"503 No\r\nretry-after: 30\r\ncontent-length: 0\r\n\r\n", 503, "30", b"the next hop says 503"),
        (
            b"200 OK\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: 6\r\n\r\n<html>",
            503,
            "5",
            b"the next hop answers with a web page, and not as OTLP does",
        ),
        (b"301 Moved\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n", 503, "5", b"the next hop says 301"),
        (b"202 Later\r\ncontent-length: 0\r\n\r\n", 200, None, b""),
        (b"204 Nothing\r\n\r\n", 200, None, b""),
        (b"200 OK\r\ncontent-length: 4\r\n\r\n" + PARTIAL, 200, None, PARTIAL),
        (
            b"200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\n" + PARTIAL + b"\r\n0\r\n\r\n",
            200,
            None,
            PARTIAL,
        ),
        (b"100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n" + PARTIAL, 200, None, PARTIAL),
        (b"200 OK\r\nconnection: close\r\ncontent-length: 4\r\n\r\n" + PARTIAL, 200, None, PARTIAL),
        (
            b"200 OK\r\ncontent-length: 2000000\r\n\r\n" + b"x" * 2_000_000,
            503,
            "5",
            b"the next hop does not answer",
        ),
        (b"200 OK\r\ncontent-length: x\r\n\r\n", 503, "5", b"the next hop does not answer"),
    ],
)
def test_what_the_next_hop_says_is_what_the_sender_is_told(
    answer: bytes, status: int, retry_after: str | None, body: bytes
) -> None:
    for told in tell(saying(b"HTTP/1.1 " + answer), count=3):
        assert (told[0], told[1].get("retry-after"), told[2]) == (status, retry_after, body)
        assert "connection" not in told[1]


def test_no_http_is_no_answer() -> None:
    assert [told[0] for told in tell(saying(b"hello\r\n\r\n"), count=2)] == [503, 503]


def test_a_next_hop_that_never_answers_is_given_up() -> None:
    async def script(reader: Reader, writer: Writer) -> None:
        await reader.read()
        writer.close()

    ((status, headers, body),) = tell(script, forward_s=0.3)
    assert (status, headers["retry-after"], body) == (503, "5", b"the next hop does not answer")


def test_a_next_hop_that_does_not_read_is_given_up() -> None:
    async def main() -> None:
        over = asyncio.Event()

        async def script(reader: Reader, writer: Writer) -> None:
            reader._transport.pause_reading()  # type: ignore[reportAttributeAccessIssue]  # nothing else stops it
            await over.wait()
            writer.close()

        async with next_hop(script) as url, inside(ServeOptions(forward=url, forward_s=0.3)) as server:
            assert (await ask(server, b"x" * 10_000_000))[0] == 503
            over.set()
            assert server.core.inflight == 0

    asyncio.run(main())


def test_a_connection_that_was_closed_meanwhile_is_replaced() -> None:
    """Without a word, as proxies close those that were idle for long: the sender need not know of it."""
    bodies: list[bytes] = []

    async def script(reader: Reader, writer: Writer) -> None:
        _, body = await request_of(reader)
        bodies.append(body)
        writer.write(OK)
        with_another = asyncio.create_task(reader.readexactly(1))
        await asyncio.wait([with_another], timeout=PATIENCE_S)
        writer.transport.abort()  # as the next request comes, its first byte

    assert [told[0] for told in tell(script, count=3)] == [200, 200, 200]
    assert bodies == [b"0", b"1", b"2"]


def test_a_connection_that_breaks_in_the_middle_of_an_answer_is_no_answer() -> None:
    async def script(reader: Reader, writer: Writer) -> None:
        await request_of(reader)
        writer.write(OK[:-2])
        await writer.drain()
        writer.close()

    assert [told[0] for told in tell(script, count=2)] == [503, 503]


@pytest.mark.parametrize("version", [b"HTTP/1.1", b"HTTP/1.0"])
def test_an_answer_may_end_with_its_connection(version: bytes) -> None:
    async def script(reader: Reader, writer: Writer) -> None:
        await request_of(reader)
        writer.write(version + b" 200 OK\r\ncontent-type: application/x-protobuf\r\n\r\n" + PARTIAL[:2])
        await writer.drain()
        await asyncio.sleep(0.02)
        writer.write(PARTIAL[2:])
        await writer.drain()
        writer.close()

    assert [(status, body) for status, _, body in tell(script, count=2)] == [(200, PARTIAL)] * 2


def test_answers_in_parts_and_all_at_once_are_the_same() -> None:
    async def script(reader: Reader, writer: Writer) -> None:
        answer = OK.replace(b"length: 0", b"length: 4") + PARTIAL
        for number in range(4):
            await request_of(reader)
            if number % 2:
                for start in range(0, len(answer), 7):
                    writer.write(answer[start : start + 7])
                    await writer.drain()
                    await asyncio.sleep(0.001)
            else:
                writer.write(answer)
        writer.close()

    assert [(status, body) for status, _, body in tell(script, count=4)] == [(200, PARTIAL)] * 4


def test_what_follows_an_answer_is_no_answer_to_another() -> None:
    connections: list[int] = []

    async def script(reader: Reader, writer: Writer) -> None:
        connections.append(1)
        await saying(OK + OK.replace(b"200 OK", b"500 No"))(reader, writer)

    assert [told[0] for told in tell(script, count=3)] == [200, 200, 200]
    assert len(connections) == 3


def test_a_date_in_the_answer_does_not_fill_the_memory() -> None:
    number = 0

    async def script(reader: Reader, writer: Writer) -> None:
        nonlocal number
        while True:
            await request_of(reader)
            number += 1
            writer.write(OK.replace(b"\r\n\r\n", b"\r\ndate: %d\r\n\r\n" % number))

    async def main() -> None:
        async with next_hop(script) as url, inside(ServeOptions(forward=url)) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            for size in range(2_500):
                writer.write(post(b"x" * size, f"x-{size % 7}: {size}"))
                assert (await answer_of(reader))[0] == 200
            writer.close()
            forwarder: Any = server.core._forwarder  # pyright: ignore[reportPrivateUsage]
            known: Any = server.connections.known
            assert len(forwarder.known) <= 100
            assert len(known._meanings) <= 1_000
            assert len(known._whole) <= 1_000

    asyncio.run(main())


def test_a_hundred_senders_at_once_share_connections_and_get_their_own_answers() -> None:
    async def script(reader: Reader, writer: Writer) -> None:
        while not reader.at_eof():
            try:
                _, body = await request_of(reader)
            except asyncio.IncompleteReadError:
                break
            await asyncio.sleep(0.001 * (len(body) % 5))
            writer.write(OK.replace(b"length: 0", b"length: %d" % len(body)) + body)
        writer.close()

    async def main() -> None:
        async with next_hop(script) as url, inside(ServeOptions(forward=url)) as server:

            async def sender(number: int) -> None:
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                for turn in range(10):
                    body = b"%d-%d" % (number, turn)
                    writer.write(post(body))
                    assert (await answer_of(reader))[::2] == (200, body)
                writer.close()

            await asyncio.gather(*(sender(number) for number in range(100)))
            assert server.core.inflight == 0

    asyncio.run(main())


def test_more_senders_than_connections_are_told_to_wait() -> None:
    async def main() -> None:
        go_on = asyncio.Event()

        async def script(reader: Reader, writer: Writer) -> None:
            await request_of(reader)
            await go_on.wait()
            writer.write(OK)
            await writer.drain()
            writer.close()

        async with next_hop(script) as url, inside(ServeOptions(forward=url)) as server:
            asking = [asyncio.create_task(ask(server, b"%d" % number)) for number in range(257)]
            done, _ = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
            ((status, headers, body),) = [task.result() for task in done]
            assert (status, headers["retry-after"], body) == (503, "1", b"too much at once")
            go_on.set()
            told = await asyncio.gather(*asking)
            assert sorted(status for status, _, _ in told) == [200] * 256 + [503]

    asyncio.run(main())


@pytest.mark.parametrize("answer", [b"200 OK", b"202 Later", b"204 Nothing"])
def test_what_the_next_hop_took_in_any_words_is_followed(answer: bytes) -> None:
    traffic = Traffic()
    traffic.plain(3)

    async def main() -> tuple[int, int]:
        length = b"" if answer.startswith(b"204") else b"content-length: 0\r\n"
        script = saying(b"HTTP/1.1 " + answer + b"\r\n" + length + b"\r\n")
        async with next_hop(script) as url, inside(ServeOptions(forward=url)) as server:
            reply = await server.core.take("traces", PROTOBUF, b"", traffic.body(), "")
            return reply.status, server.core.following.counts.spans

    assert asyncio.run(main()) == (200, 3)


def test_what_is_wrong_with_the_next_hop_is_in_the_log_once(caplog: pytest.LogCaptureFixture) -> None:
    tell(saying(b"HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n"), count=3)
    assert [record.getMessage() for record in caplog.records if record.name == "otel_loopeval.serve"] == [
        "the next hop says 401: what comes in is refused meanwhile"
    ]


def test_what_is_wrong_with_a_request_is_for_its_sender_to_know(caplog: pytest.LogCaptureFixture) -> None:
    tell(saying(b"HTTP/1.1 400 Bad\r\ncontent-length: 0\r\n\r\n"))
    assert [record for record in caplog.records if record.name == "otel_loopeval.serve"] == []
