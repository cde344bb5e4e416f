"""Tenants: what two of them send never meets in a run, whatever ids their traces have."""

import json
import signal
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from server.followed import Followed
from server.serve_processes import STUCK, Sink, Traffic, await_that, serving
from sources.stored_spans import request

from otel_loopeval.otlp.protobuf import read_request
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.server.next_hop.verdicts import verdict_id
from otel_loopeval.server.served import ServedRun

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 10}


def agent(turns: Any = None) -> list[bytes]:
    """An agent and the request around it: its spans, each in a body of its own, the root last."""
    traffic = Traffic()
    traffic.agent(turns=turns)
    return traffic.taken()


def take(followed: Followed, tenant: str, *bodies: bytes, now: float = 0.0) -> list[SpanData]:
    return [
        span for body in bodies for span in followed.following.take(followed.intake.read(body), now, tenant)
    ]


def told(run: ServedRun) -> tuple[Any, ...]:
    return run.tenant, run.verdict, sorted(span.span_id for span in run.spans)


def with_trace_id_of(body: bytes, bodies: list[bytes]) -> list[bytes]:
    old, new = (read_request(of)[0].trace_id.to_bytes(16, "big") for of in (bodies[0], body))
    return [each.replace(old, new) for each in bodies]


ONE = agent()
OTHER = with_trace_id_of(ONE[0], agent(STUCK))


def alone(tenant: str, bodies: list[bytes]) -> list[tuple[Any, ...]]:
    followed = Followed()
    take(followed, tenant, *bodies)
    followed.following.finish()
    return [told(run) for run in followed.runs]


@given(st.permutations([*(("a", body) for body in ONE), *(("", body) for body in OTHER)]))
@settings(max_examples=60, deadline=None)
def test_two_tenants_with_one_trace_id_are_judged_as_if_alone(
    sent: list[tuple[str, bytes]],
) -> None:
    followed = Followed()
    for tenant, body in sent:
        take(followed, tenant, body)
    followed.following.finish()
    assert sorted(map(told, followed.runs), key=str) == sorted([*alone("a", ONE), *alone("", OTHER)], key=str)
    assert len(followed.runs) == 2
    assert followed.following.counts.repeated == 0


def test_the_same_spans_of_two_tenants_are_two_runs_with_verdicts_of_their_own() -> None:
    followed = Followed()
    for tenant in ("", "a", "b"):
        take(followed, tenant, *ONE)
    followed.following.finish()
    assert [run.tenant for run in followed.runs] == ["", "a", "b"]
    assert len({verdict_id(run) for run in followed.runs}) == 3
    assert verdict_id(followed.runs[0]) == verdict_id(replace(followed.runs[1], tenant=""))


def test_what_is_late_for_one_tenant_begins_a_run_of_another() -> None:
    followed = Followed(grace_s=1.0)
    take(followed, "a", *ONE, now=0.0)
    followed.following.tick(2.0)
    assert take(followed, "a", *ONE, now=3.0) == []
    assert len(take(followed, "b", *ONE, now=3.0)) == 5
    followed.following.tick(5.0)
    assert [run.tenant for run in followed.runs] == ["a", "b"]


def test_a_paused_run_is_not_gone_on_with_by_another_tenant() -> None:
    def segment(trace_id: int, number: int, **more: Any) -> bytes:
        attributes = {"loopeval.run.id": "r1", "loopeval.run.threshold": 8.0, **more}
        inside = {"loopeval.iteration.number": number, "loopeval.iteration.score": 6.0 + number}
        start = trace_id * 10**10
        return request(
            SpanData("evaluation_loop w", trace_id, 1, None, start, start + 9, attributes),
            SpanData("evaluation_loop.iteration", trace_id, 2, 1, start + 1, start + 2, inside),
        )

    followed = Followed(grace_s=1.0)
    take(followed, "a", segment(1, 1, **{"loopeval.run.outcome": "paused"}))
    followed.following.tick(2.0)
    for tenant in ("b", "a"):
        take(followed, tenant, segment(2, 2, **{"loopeval.run.resumed": True}), now=3.0)
        followed.following.tick(5.0)
    assert [(run.tenant, run.verdict.outcome, run.complete) for run in followed.runs] == [
        ("a", "paused", True),
        ("b", "incomplete", False),
        ("a", "completed", True),
    ]


def test_what_a_store_has_comes_back_to_its_tenant() -> None:
    first, second = Followed(), Followed()
    kept = [
        (tenant, span)
        for tenant, bodies in (("a", ONE), ("b", OTHER))
        for span in take(first, tenant, *bodies[:-2])
    ]
    second.following.remember([("c", kept[0][1].trace_id)])
    assert second.following.restore(kept, 0.0) == len(kept)
    take(second, "a", *ONE[-2:])
    take(second, "b", *OTHER[-2:])
    assert take(second, "c", *ONE) == []  # which was over
    second.following.finish()
    assert [told(run) for run in second.runs] == [*alone("a", ONE), *alone("b", OTHER)]


def test_a_killed_server_and_its_store_keep_tenants_apart(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("red:secret-1\nblue:secret-2\n*:secret-3\n")
    arguments = ("--store", "runs.db", "--token-file", "tokens", "--grace", "200ms", "--idle", "1h")
    red, blue = {"authorization": "Bearer secret-1"}, {"authorization": "Bearer secret-2"}
    with Sink() as sink:
        arguments = (*arguments, "--forward", sink.url)
        with serving(*arguments, cwd=tmp_path) as server:
            for sender, bodies in ((red, ONE), (blue, OTHER)):
                for body in bodies[:-1]:
                    assert server.send(body, **sender) == 200
            server.end(signal.SIGKILL)
        with serving(*arguments, cwd=tmp_path) as server:
            assert server.send(ONE[-1], **red) == 200
            assert server.send(OTHER[-1], **blue) == 200
            await_that(lambda: len(sink.verdicts()) == 2, "two verdicts")
            metrics = server.metrics(authorization="Bearer secret-3")
            assert server.end() == 0
        verdicts = sink.verdicts()
    assert sorted(verdict.attributes["loopeval.health.doom_loop_fired"] for verdict in verdicts) == [
        False,
        True,
    ]
    assert len({verdict.span_id for verdict in verdicts}) == 2
    runs = [name for name in metrics if name.startswith("loopeval_run")]
    assert runs
    assert not [name for name in runs if "tenant" in name or '"red"' in name]
    connection = sqlite3.connect(tmp_path / "runs.db")
    try:
        rows = connection.execute("SELECT tenant, record FROM runs ORDER BY tenant").fetchall()
        assert connection.execute("SELECT count(*) FROM open_spans").fetchone() == (0,)
    finally:
        connection.close()
    assert [(tenant, json.loads(record)["doom_loop_fired"]) for tenant, record in rows] == [
        ("blue", True),
        ("red", False),
    ]
