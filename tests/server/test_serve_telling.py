"""Verdicts on their way to the next hop: each is told, whatever others are like and whoever gives up."""

import asyncio
from dataclasses import replace
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from server.serve_inside import next_hop, request_of
from support.served_runs import served

from otel_loopeval.otlp.protobuf import read_request
from otel_loopeval.server.core import Core
from otel_loopeval.server.next_hop.verdicts import verdict_request
from otel_loopeval.server.options import ServeOptions
from otel_loopeval.server.served import ServedRun

Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


def run_of(trace_id: int, resource: dict[Any, Any]) -> ServedRun:
    run = served([9.0], trace_id=trace_id)
    assert run.root is not None
    return replace(run, root=replace(run.root, resource=resource))


def traces_in(body: bytes) -> list[int]:
    return [span.trace_id for span in read_request(body)]


def test_attributes_of_a_resource_are_told_as_they_are() -> None:
    odd = {"a": ("x", {"y": 1}), "b": ("x", True), "c": ("x", 1), "d": ("x", "y"), "e": ()}
    told = ExportTraceServiceRequest.FromString(verdict_request([run_of(1, odd)]))

    found = {pair.key: pair.value.array_value.values for pair in told.resource_spans[0].resource.attributes}
    assert found["a"][1].kvlist_value.values[0].value.int_value == 1
    assert [found[name][1].WhichOneof("value") for name in "bcd"] == [
        "bool_value",
        "int_value",
        "string_value",
    ]
    assert len(found["e"]) == 0


def test_a_verdict_that_cannot_be_told_keeps_no_other_from_it() -> None:
    told: list[bytes] = []

    async def hop(reader: Reader, writer: Writer) -> None:
        told.append((await request_of(reader))[1])
        writer.write(OK)

    async def main() -> int:
        async with next_hop(hop) as url:
            core = Core(ServeOptions(forward=url))
            for run in (run_of(1, {}), run_of(2, {3: "no name"}), run_of(3, {})):
                core.telling.add(run)
            assert await core.telling.send()
            return core.telling.lost

    assert asyncio.run(main()) == 1
    assert traces_in(told[0]) == [1, 3]


def test_what_is_given_up_while_it_is_told_is_told_again() -> None:
    told: list[bytes] = []

    async def main() -> None:
        asked, answer = asyncio.Event(), asyncio.Event()

        async def hop(reader: Reader, writer: Writer) -> None:
            while True:
                told.append((await request_of(reader))[1])
                asked.set()
                await answer.wait()
                writer.write(OK)

        async with next_hop(hop) as url:
            core = Core(ServeOptions(forward=url))
            core.telling.add(run_of(1, {}))
            sending = asyncio.ensure_future(core.telling.send())
            await asked.wait()
            sending.cancel()
            await asyncio.wait([sending])
            answer.set()
            assert await core.telling.send()
            assert core.telling.lost == 0

    asyncio.run(main())
    assert [traces_in(body) for body in told] == [[1], [1]]
