"""Traces across processes: when they are over, what is judged, and what is held."""

import random

import pytest
from server.followed import Followed, scored
from server.serve_processes import HEALTHY, STUCK, Traffic
from sources.stored_spans import request
from support.foreign_agents import DIALECTS, Dialect

from otel_loopeval.otlp.protobuf import read_request
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.runs.usage import Usage
from otel_loopeval.server.next_hop.verdicts import verdict_id, verdict_request
from otel_loopeval.server.traces.limits import Limits

BAD_NS = 10**18


def chatting(trace_id: int, at_ns: int) -> bytes:
    """An agent that calls a model once."""
    call = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.usage.input_tokens": 10,
    }
    return request(
        SpanData("evaluation_loop w", trace_id, 1, None, at_ns, at_ns + 9, {}),
        SpanData("chat m", trace_id, 2, 1, at_ns + 1, at_ns + 2, call, scope="x"),
    )


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("seed", range(4))
def test_the_verdicts_are_those_of_score_in_whatever_order_and_pieces(dialect: Dialect, seed: int) -> None:
    chance = random.Random(seed)
    traffic = Traffic()
    for number in range(4):
        traffic.agent(f"a{number}", dialect=dialect, turns=chance.choice((HEALTHY, STUCK)))
        traffic.plain(2)
    pieces = traffic.taken()
    chance.shuffle(pieces)
    followed = Followed()

    followed.take(*pieces)
    followed.following.tick(60.0)

    assert followed.records() == scored(pieces) != []
    assert len(followed.runs) == 4
    assert all(run.complete and run.service == "shop" and run.environment == "test" for run in followed.runs)


def test_a_trace_is_over_a_grace_after_its_root() -> None:
    traffic = Traffic()
    traffic.agent()
    *inside, root = traffic.taken()
    followed = Followed(grace_s=10.0, idle_s=30.0)

    followed.take(root, now=0.0)  # nothing says yet that it is of interest
    followed.take(*inside, now=5.0)
    followed.following.tick(14.9)
    assert followed.runs == []
    followed.following.tick(15.0)
    assert len(followed.runs) == 1
    assert followed.following.counts.closed == {"root": 1}
    assert followed.following.open_traces == followed.following.held_bytes == 0


def test_without_a_root_a_trace_is_over_when_it_is_quiet() -> None:
    traffic = Traffic()
    traffic.agent()
    *inside, agent, _root = traffic.taken()
    followed = Followed(idle_s=30.0)

    followed.take(*inside, now=0.0)
    followed.take(agent, now=20.0)
    followed.following.tick(49.0)
    assert followed.runs == []
    followed.following.tick(50.0)
    assert [run.verdict.outcome for run in followed.runs] == ["completed"]
    assert followed.following.counts.closed == {"idle": 1}


def test_an_age_ends_a_trace_that_is_never_quiet() -> None:
    traffic = Traffic()
    traffic.agent(turns=STUCK)
    followed = Followed(max_age_s=10.0)
    for second, body in enumerate(traffic.taken()[:-2]):
        followed.take(body, now=float(second))
    assert followed.following.counts.closed == {"age": 1}
    assert followed.following.counts.late > 0


def test_late_and_retried_spans_start_no_other_run() -> None:
    traffic = Traffic()
    traffic.agent()
    body = traffic.body()
    followed = Followed(grace_s=1.0)

    followed.take(body, body, now=0.0)
    followed.following.tick(2.0)
    assert followed.take(body, now=3.0) == 0
    followed.following.tick(60.0)

    assert len(followed.runs) == 1
    assert (followed.following.counts.repeated, followed.following.counts.late) == (5, 4)


def test_a_root_that_brings_a_verdict_is_not_judged_again() -> None:
    traffic = Traffic()
    with traffic.provider.get_tracer("x").start_as_current_span(
        "evaluation_loop w", attributes={"loopeval.health.doom_loop_fired": False}
    ):
        pass
    followed = Followed(grace_s=0.0)
    followed.take(traffic.body())
    followed.following.finish()
    assert [run.judged_before for run in followed.runs] == [True]
    assert followed.following.counts.judged_before == 1


def test_behind_another_server_a_run_is_not_judged_again() -> None:
    traffic = Traffic()
    traffic.agent(turns=STUCK)
    body = traffic.body()
    first, second = Followed(), Followed()
    first.take(body)
    first.following.finish()
    told = verdict_request(first.runs)

    second.take(body, told)
    second.following.finish()

    assert [run.judged_before for run in first.runs] == [False]
    assert [run.judged_before for run in second.runs] == [True]
    (verdict,) = read_request(told)
    assert verdict.span_id == verdict_id(first.runs[0])
    assert verdict.parent_id == (first.runs[0].root or verdict).span_id
    assert scored([body, told]) == scored([body])


def test_what_was_under_way_when_the_server_began_is_incomplete() -> None:
    traffic = Traffic()
    traffic.agent()
    body = traffic.body()
    spans = read_request(body)
    began = min(span.start_ns for span in spans) + 1

    during, before = Followed(complete_since_ns=began), Followed(complete_since_ns=began + 10**13)
    for followed in (during, before):
        followed.take(body)
        followed.following.finish()

    assert [(run.complete, run.verdict.outcome, run.verdict.passed) for run in during.runs] == [
        (False, "incomplete", None)
    ]
    assert [run.complete for run in before.runs] == [True]


def test_what_is_held_is_bounded_and_what_is_cut_says_so() -> None:
    followed = Followed(max_traces=5)
    for _ in range(20):
        traffic = Traffic()
        traffic.agent()
        followed.take(*traffic.taken()[:-1], now=0.0)
    assert followed.following.open_traces == 5
    assert followed.following.counts.closed == {"capacity": 15}
    assert {run.verdict.outcome for run in followed.runs} == {"incomplete"}


def test_a_trace_without_end_is_cut() -> None:
    traffic = Traffic()
    traffic.agent(turns=HEALTHY * 20)
    followed = Followed(max_trace_spans=20)
    followed.take(*traffic.taken(), now=0.0)
    assert followed.following.counts.closed == {"too_large": 1}
    assert [run.complete for run in followed.runs] == [False]
    assert followed.following.held_bytes == 0


def test_spans_around_a_run_are_found_again_however_long_before_they_came() -> None:
    traffic = Traffic()
    tracer = traffic.provider.get_tracer("fastapi")
    with tracer.start_as_current_span("POST /outer"), tracer.start_as_current_span("inner"):
        traffic.agent()
    pieces = traffic.taken()
    followed = Followed()
    followed.take(*reversed(pieces))
    followed.following.finish()
    assert {span.name for span in followed.runs[0].spans} >= {"POST /outer", "inner", "POST /chat"}


def test_open_runs_go_on_from_what_a_store_has() -> None:
    traffic = Traffic()
    traffic.agent(turns=STUCK)
    pieces = traffic.taken()
    first, second = Followed(), Followed(complete_since_ns=10**19)
    kept = [span for body in pieces[:-2] for span in first.following.take(first.intake.read(body), 0.0)]

    assert second.following.restore([("", span) for span in kept], 0.0) == len(kept)
    second.take(*pieces[-2:])
    second.following.finish()

    assert second.records() == scored(pieces)


@pytest.mark.parametrize("limit", [{"max_traces": 5}, {"max_bytes": 20_000}], ids=["traces", "bytes"])
def test_of_what_a_store_has_no_more_is_held_than_may_be(limit: dict[str, int]) -> None:
    first, second = Followed(), Followed(**limit)
    rooted, rootless = [], []
    for number in range(20):
        traffic = Traffic()
        traffic.agent()
        pieces = traffic.taken()
        (rooted if number < 10 else rootless).extend(
            span
            for body in (pieces if number < 10 else pieces[:-1])
            for span in first.following.take(first.intake.read(body), 0.0)
        )
    second.following.restore([("", span) for span in rooted + rootless], 0.0)
    assert 0 < second.following.open_traces <= 5
    assert second.following.held_bytes <= limit.get("max_bytes", 2**30)
    assert second.following.counts.closed == {"capacity": 20 - second.following.open_traces}
    with_root = {span.trace_id for span in rooted}
    assert {run.complete for run in second.runs if run.trace_id in with_root} == {True}
    assert {run.complete for run in second.runs if run.trace_id not in with_root} == {False}


def test_what_cannot_be_judged_is_not_closed_and_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    def price(usage: Usage, at_ns: int) -> float:
        if at_ns < BAD_NS:
            raise ValueError("what nobody thought of")
        return 0.5

    followed = Followed(grace_s=1.0, price=price)
    bodies = [chatting(trace_id, BAD_NS - 100 if trace_id in (1, 2) else BAD_NS) for trace_id in range(1, 6)]
    followed.take(*bodies[:3], now=0.0)
    assert followed.take(bodies[3], now=2.0) == 2, "it closes those before, and is kept"
    followed.take(bodies[4], now=2.0)
    followed.following.finish()
    assert [run.trace_id for run in followed.runs] == [3, 4, 5]
    assert followed.closed == [3, 4, 5]
    assert followed.following.open_traces == followed.following.held_bytes == 0
    assert caplog.messages == ["this should not have happened; going on"]


def test_spans_with_numbers_that_nobody_has_harm_no_other_request() -> None:
    def root(trace_id: int, **attributes: object) -> SpanData:
        return SpanData("evaluation_loop w", trace_id, 1, None, 1, 9, {"loopeval.run.id": "r", **attributes})

    odd = SpanData("evaluation_loop.iteration", 1, 2, 1, 2, 3, {"loopeval.iteration.number": -1})
    followed = Followed(grace_s=1.0)
    followed.take(request(root(1, **{"loopeval.run.outcome": "paused"}), odd), now=0.0)
    followed.take(request(root(2, **{"loopeval.run.resumed": True})), now=2.0)
    assert followed.take(request(root(3)), now=4.0) == 1
    followed.following.finish()
    assert [(run.trace_id, run.verdict.outcome) for run in followed.runs] == [
        (1, "paused"),
        (2, "completed"),
        (3, "completed"),
    ]


def test_limits_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="idle_s must be at least 0, got -1"):
        Limits(idle_s=-1)
    with pytest.raises(ValueError, match="max_traces must be at least 1, got 0"):
        Limits(max_traces=0)


def test_many_runs_that_are_over_at_once_are_closed_a_few_at_a_time() -> None:
    traffic = Traffic()
    for number in range(100):
        traffic.agent(f"a{number}")
    followed = Followed(grace_s=10.0)
    followed.take(traffic.body(), now=0.0)

    assert followed.following.tick(20.0, 30)
    assert len(followed.runs) == 30
    followed.take(b"", now=20.0)  # and with each body some
    assert len(followed.runs) == 62
    assert followed.following.tick(20.0, 30)
    assert not followed.following.tick(20.0, 30)
    assert len(followed.runs) == 100
