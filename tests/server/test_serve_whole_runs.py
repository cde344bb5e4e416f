"""Runs as fleets have them: over many processes and several traces, behind another server, cut off."""

import random
from typing import Any

import pytest
from server.followed import Followed, scored
from server.serve_processes import HEALTHY, Traffic, as_json
from sources.stored_spans import request

from otel_loopeval.otlp.protobuf import read_request
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.server.next_hop.verdicts import verdict_id, verdict_request

SECOND = 1_000_000_000
AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "writer"}
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 10}
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}


def span(
    name: str, span_id: int, parent_id: int | None, start: int, attributes: dict[str, Any], **more: Any
) -> SpanData:
    """A span of a second that begins at a second."""
    fields: dict[str, Any] = {"trace_id": 7, "scope": "genai", "resource": {"service.name": "shop"}, **more}
    return SpanData(
        name,
        span_id=span_id,
        parent_id=parent_id,
        start_ns=start * SECOND,
        end_ns=(start + fields.pop("seconds", 1)) * SECOND,
        attributes=attributes,
        **fields,
    )


@pytest.mark.parametrize("seed", range(6))
def test_a_run_over_eight_processes_is_one_run(seed: int) -> None:
    def of(process: int) -> dict[str, str]:
        return {"service.name": f"service-{process}"}

    spans = [
        span("POST /write", 1, None, 0, {}, scope="fastapi", resource=of(0), seconds=100),
        span("evaluation_loop writer", 2, 1, 1, {"loopeval.run.threshold": 8.0}, resource=of(1), seconds=90),
    ]
    for number in range(1, 7):
        at, told = (
            10 * number,
            {"loopeval.iteration.number": number, "loopeval.iteration.score": 2.0 + number},
        )
        spans += [
            span("evaluation_loop.iteration", 10 * number, 2, at, told, resource=of(1), seconds=9),
            span("POST /model", 10 * number + 1, 10 * number, at + 1, {}, scope="httpx", resource=of(1)),
            span(
                "POST /model",
                10 * number + 2,
                10 * number + 1,
                at + 1,
                {},
                scope="asgi",
                resource=of(number + 1),
            ),
            span("chat m", 10 * number + 3, 10 * number + 2, at + 1, CHAT, resource=of(number + 1)),
        ]
    bodies = [request(*(one for one in spans if one.resource == of(process))) for process in range(8)]
    random.Random(seed).shuffle(bodies)
    followed = Followed(grace_s=10.0)

    followed.take(*bodies)
    followed.following.tick(10.0)

    (run,) = followed.runs
    assert (run.service, run.run.iteration_count, run.run.input_tokens) == ("service-1", 6, 60)
    assert (run.verdict.best_score, run.verdict.outcome, run.verdict.passed) == (8.0, "completed", True)
    assert followed.records() == scored(bodies)
    assert followed.following.counts.closed == {"root": 1}


def test_an_agent_of_another_service_is_a_run_inside() -> None:
    ours, theirs = {"service.name": "ours"}, {"service.name": "theirs"}
    spans = [
        span("invoke_agent writer", 1, None, 0, AGENT, resource=ours, seconds=50),
        span("chat m", 2, 1, 1, CHAT, resource=ours),
        span("POST /agent", 3, 1, 5, {}, scope="httpx", resource=ours, seconds=20),
        span("POST /agent", 4, 3, 6, {}, scope="asgi", resource=theirs, seconds=18),
        span(
            "invoke_agent helper",
            5,
            4,
            7,
            {**AGENT, "gen_ai.agent.name": "helper"},
            resource=theirs,
            seconds=9,
        ),
        span("chat m", 6, 5, 8, CHAT, resource=theirs),
    ]
    followed = Followed()
    followed.take(request(*spans[3:]), request(*spans[:3]))
    followed.following.finish()
    assert sorted(
        (run.run.agent, run.service, None if run.run.parent is None else run.run.parent.agent)
        for run in followed.runs
    ) == [("helper", "theirs", "writer"), ("writer", "ours", None)]
    assert followed.records() == scored([request(*spans)])


def paused(trace_id: int, start: int, **attributes: Any) -> bytes:
    told = {"loopeval.run.id": "r1", "loopeval.run.threshold": 8.0, **attributes}
    number = 1 if "loopeval.run.outcome" in attributes else 2
    return request(
        span("evaluation_loop writer", 1, None, start, told, trace_id=trace_id, seconds=9),
        span(
            "evaluation_loop.iteration",
            2,
            1,
            start + 1,
            {"loopeval.iteration.number": number, "loopeval.iteration.score": 4.0 + 2.5 * (number - 1)},
            trace_id=trace_id,
        ),
    )


def test_segments_in_traces_of_their_own_are_judged_as_one_run() -> None:
    first = paused(1, 0, **{"loopeval.run.outcome": "paused"})
    second = paused(2, 3600, **{"loopeval.run.resumed": True})
    followed = Followed(grace_s=1.0)

    followed.take(first, now=0.0)
    followed.following.tick(2.0)
    followed.take(second, now=3600.0)
    followed.following.tick(3602.0)

    before, whole = followed.runs
    assert (before.verdict.outcome, before.verdict.passed) == ("paused", None)
    assert (whole.verdict.outcome, whole.run.iteration_count, whole.run.cut) == ("completed", 2, False)
    assert whole.verdict.health.total_duration_s == 18.0  # not the hour between


def test_a_segment_whose_first_part_was_never_here_is_incomplete() -> None:
    followed = Followed()
    followed.take(paused(2, 3600, **{"loopeval.run.resumed": True}))
    followed.following.finish()
    assert [(run.verdict.outcome, run.complete) for run in followed.runs] == [("incomplete", False)]


def test_a_verdict_on_a_run_without_a_root_ends_no_trace_and_is_not_told_again() -> None:
    inside = request(span("evaluation_loop.iteration", 2, 1, 0, {"loopeval.iteration.number": 1}))
    first, second = Followed(), Followed(grace_s=1.0, idle_s=30.0)
    first.take(inside)
    first.following.finish()
    told = verdict_request(first.runs)

    second.take(inside, told, now=0.0)
    second.following.tick(29.0)
    assert second.runs == []  # a verdict has no parent here, and is no root all the same
    second.following.tick(30.0)

    assert [(run.verdict.outcome, run.judged_before) for run in second.runs] == [("incomplete", True)]
    assert second.following.counts.judged_before == 1


def test_the_verdict_on_a_run_without_a_root_has_the_same_id_each_time() -> None:
    inside = request(span("evaluation_loop.iteration", 2, 1, 0, {"loopeval.iteration.number": 1}))
    ids: set[int] = set()
    for _ in range(2):
        followed = Followed()
        followed.take(inside)
        followed.following.finish()
        ids.add(verdict_id(followed.runs[0]))
    assert len(ids) == 1


@pytest.mark.parametrize("encode", [bytes, as_json], ids=["protobuf", "json"])
def test_what_came_before_is_around_a_run_in_either_encoding(encode: Any) -> None:
    """The process around exports first: of what it did, nothing tells yet that there is a run inside."""
    traffic = Traffic()
    traffic.agent()
    *inside, around = [encode(body) for body in traffic.taken()]
    followed = Followed(grace_s=10.0, idle_s=30.0)

    def take(body: bytes, now: float) -> None:
        read = followed.intake.read_json if encode is as_json else followed.intake.read
        followed.following.take(read(body), now)

    take(around, 0.0)
    for body in inside:
        take(body, 5.0)
    followed.following.tick(15.0)

    assert followed.following.counts.closed == {"root": 1}
    assert {one.name for one in followed.runs[0].spans} >= {"POST /chat", "invoke_agent writer"}


def test_the_trace_that_was_quiet_longest_makes_room() -> None:
    followed = Followed(max_traces=3)
    bodies: list[list[bytes]] = []
    for _ in range(4):
        traffic = Traffic()
        traffic.agent(turns=HEALTHY)
        bodies.append(traffic.taken())
    for number in range(3):
        followed.take(bodies[number][0], now=float(number))
    followed.take(bodies[0][1], now=3.0)  # the first is heard of again, so the second is the quietest
    followed.take(bodies[3][0], now=4.0)
    assert followed.closed == [read_request(bodies[1][0])[0].trace_id]
    assert followed.following.counts.closed == {"capacity": 1}
    assert [run.complete for run in followed.runs] == [False] * len(followed.runs)


def test_what_is_held_is_counted_again_where_a_span_comes_again_larger() -> None:
    followed = Followed(max_bytes=100_000)
    small, large = ({**CHAT, "gen_ai.output.messages": "x" * size} for size in (10, 200_000))
    followed.take(request(span("chat m", 1, 2, 0, small)))
    held = followed.following.held_bytes
    followed.take(request(span("chat m", 1, 2, 0, small)))
    assert followed.following.held_bytes == held > 0
    followed.take(request(span("chat m", 1, 2, 0, large)))
    assert followed.following.counts.closed == {"capacity": 1}
    assert followed.following.held_bytes == 0
    assert followed.following.counts.repeated == 2


def test_a_trace_with_more_around_it_than_there_is_room_for_leaves_nothing_behind() -> None:
    followed = Followed(max_trace_spans=4)
    plain = [span(f"GET /{n}", 100 + n, 99 + n if n else None, 0, {}, scope="fastapi") for n in range(9)]
    told = [span("chat m", 200 + n, 100 + n, 0, CHAT) for n in range(3)]
    followed.take(request(*plain), request(*told), request(*plain), request(*told))
    followed.following.finish()
    assert followed.following.held_bytes == 0
    assert followed.following.counts.closed == {"too_large": 1}


def test_a_large_trace_counts_as_several_of_those_that_are_closed_at_once() -> None:
    followed = Followed(grace_s=1.0)
    for trace_id in range(1, 6):
        told = [span("invoke_agent writer", 1, None, 0, AGENT, trace_id=trace_id, seconds=9)]
        told += [span("chat m", 10 + n, 1, 1, CHAT, trace_id=trace_id) for n in range(600)]
        followed.take(request(*told))
    assert followed.following.tick(1.0, 32)
    assert len(followed.closed) == 2  # each counts as 19
    left: list[int] = []
    for _ in range(2):
        followed.take(b"", now=5.0)
        left.append(followed.following.open_traces)
    assert left == [1, 0]
