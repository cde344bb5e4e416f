"""Tokens, cost and the token budget: on spans, on metrics, and while the run is going."""

from typing import Any

import pytest
from opentelemetry.trace import Tracer

from otel_loopeval import current_run, iteration, loop
from otel_loopeval.runs.reconstruct import replay
from otel_loopeval.runs.run import LoopRun
from otel_loopeval.runs.tracker import Tracker
from otel_loopeval.runs.usage import Usage
from otel_loopeval.testing import Capture

pytest.importorskip("genai_prices", reason="the extra [cost] is not installed")

# gpt-4o-mini costs 0.15 USD a million input tokens and 0.60 a million output tokens.
MILLION_IN, MILLION_OUT = 0.15, 0.60


def chat(
    capture: Capture,
    input_tokens: int,
    output_tokens: int,
    *,
    model: str = "gpt-4o-mini",
    provider: str = "openai",
    cached_tokens: int = 0,
) -> None:
    tracer: Tracer = capture.tracer_provider.get_tracer("somebody.else")
    with tracer.start_as_current_span("chat") as span:
        span.set_attributes(
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": provider,
                "gen_ai.request.model": model,
                "gen_ai.usage.input_tokens": input_tokens,
                "gen_ai.usage.output_tokens": output_tokens,
                "gen_ai.usage.cache_read.input_tokens": cached_tokens,
            }
        )


def values(capture: Capture, name: str) -> dict[str, Any]:
    points = capture.metrics().get(name, {"points": []})["points"]
    return {point["attributes"].get("gen_ai.token.type", ""): point["value"] for point in points}


def test_cost_of_iterations_run_and_waste(capture: Capture) -> None:
    with loop("writer", threshold=8.0):
        for score in (9.0, 5.0):
            with iteration() as it:
                chat(capture, 1_000_000, 1_000_000)
                it.score = score
    first, second = (span["attributes"] for span in capture.spans("evaluation_loop.iteration"))
    root = capture.span("evaluation_loop")["attributes"]
    assert first["loopeval.iteration.cost_usd"] == pytest.approx(0.75)
    assert second["loopeval.iteration.cost_usd"] == pytest.approx(0.75)
    assert root["loopeval.run.cost_usd"] == pytest.approx(1.5)
    assert root["loopeval.health.wasted_cost_usd"] == pytest.approx(0.75)
    assert root["loopeval.health.wasted_tokens"] == 2_000_000
    assert values(capture, "loopeval.cost") == {"": pytest.approx(1.5)}
    assert values(capture, "loopeval.wasted_cost") == {"": pytest.approx(0.75)}


def test_an_unknown_model_gives_no_cost_where_it_was_used(capture: Capture) -> None:
    with loop("writer", threshold=8.0):
        with iteration() as it:
            chat(capture, 1_000_000, 0)
            it.score = 9.0
        with iteration():
            chat(capture, 1_000_000, 0, model="stub-model")
    first, second = (span["attributes"] for span in capture.spans("evaluation_loop.iteration"))
    root = capture.span("evaluation_loop")["attributes"]
    assert first["loopeval.iteration.cost_usd"] == pytest.approx(MILLION_IN)
    assert "loopeval.iteration.cost_usd" not in second
    assert "loopeval.run.cost_usd" not in root
    assert "loopeval.health.wasted_cost_usd" not in root
    assert root["loopeval.run.tokens.input"] == 2_000_000
    assert values(capture, "loopeval.cost") == {
        "": pytest.approx(MILLION_IN)
    }  # of calls whose price is known


def test_cached_input_is_cheaper(capture: Capture) -> None:
    with loop("writer"), iteration():
        chat(capture, 1_000_000, 0, cached_tokens=1_000_000)
    assert capture.span("evaluation_loop")["attributes"]["loopeval.run.cost_usd"] == pytest.approx(0.075)


def test_a_run_inside_counts_for_the_run_around_it(capture: Capture) -> None:
    with loop("outer"), iteration():
        chat(capture, 1_000_000, 0)
        with loop("inner"), iteration():
            chat(capture, 0, 1_000_000)
    inner, outer = sorted(
        (span["attributes"] for span in capture.spans("evaluation_loop")),
        key=lambda attributes: attributes["gen_ai.agent.name"],
    )
    assert inner["loopeval.run.cost_usd"] == pytest.approx(MILLION_OUT)
    assert outer["loopeval.run.cost_usd"] == pytest.approx(MILLION_IN + MILLION_OUT)


def test_a_budget_is_told_as_it_is_exceeded(capture: Capture) -> None:
    seen: list[Any] = []
    with loop("writer", threshold=8.0, token_budget=100) as run:
        for tokens in (60, 40, 1, 50):
            with iteration() as it:
                chat(capture, tokens, 0)
                it.score = 8.0
            seen.append((run.over_token_budget, values(capture, "loopeval.token_budget.exceeded")))
    assert seen == [(False, {}), (False, {}), (True, {"": 1}), (True, {"": 1})]
    root = capture.span("evaluation_loop")["attributes"]
    assert root["loopeval.health.over_token_budget"] is True
    assert root["loopeval.health.passed"] is False
    assert root["loopeval.health.reasons"] == ["wasted_iterations", "over_token_budget"]
    assert root["loopeval.health.reasoning"].endswith(" Over the token budget.")
    (point,) = capture.metrics()["loopeval.run.token_budget_ratio"]["points"]
    assert (point["count"], point["sum"]) == (1, 1.51)


def test_a_budget_is_the_only_reason(plain_capture: Capture) -> None:
    plain_capture.instrument(token_budget=10)
    with loop("writer"), iteration() as it:
        chat(plain_capture, 6, 5)
        it.score = 9.0
    root = plain_capture.span("evaluation_loop")["attributes"]
    assert root["loopeval.health.converged"] is True
    assert root["loopeval.health.reasons"] == ["over_token_budget"]


def test_a_budget_that_is_met_exactly_is_met(capture: Capture) -> None:
    with loop("writer", token_budget=11), iteration() as it:
        chat(capture, 6, 5)
        it.score = 9.0
    root = capture.span("evaluation_loop")["attributes"]
    assert root["loopeval.health.over_token_budget"] is False
    assert root["loopeval.health.passed"] is True
    assert values(capture, "loopeval.token_budget.exceeded") == {}


def test_each_run_has_its_own_budget_and_counts_once(capture: Capture) -> None:
    with loop("outer", token_budget=100), iteration():
        for _ in range(2):
            with loop("inner", token_budget=50), iteration():
                chat(capture, 60, 0)
                chat(capture, 1, 0)
    points = capture.metrics()["loopeval.token_budget.exceeded"]["points"]
    found = {point["attributes"]["gen_ai.agent.name"]: point["value"] for point in points}
    assert found == {"inner": 2, "outer": 1}


def test_there_is_no_verdict_on_a_budget_that_is_not_set(capture: Capture) -> None:
    with loop("writer") as run, iteration():
        chat(capture, 10**9, 0)
        assert run.over_token_budget is None
    assert "loopeval.health.over_token_budget" not in capture.span("evaluation_loop")["attributes"]
    assert values(capture, "loopeval.run.token_budget_ratio") == {}


def test_stored_spans_cost_what_the_live_ones_did(capture: Capture) -> None:
    with loop("writer", threshold=8.0):
        for score in (9.0, 5.0):
            with iteration() as it:
                chat(capture, 1_000, 100)
                it.score = score
    live = capture.span("evaluation_loop")["attributes"]
    (replayed,) = replay(capture.neutral_spans(), Tracker(price=lambda usage, _: usage.input_tokens * 2.0))
    assert replayed.run.spending is not None
    assert replayed.run.spending.cost_usd == 4_000.0
    assert replayed.verdict.wasted_cost_usd == 2_000.0
    assert replayed.verdict.wasted_tokens == live["loopeval.health.wasted_tokens"] == 1_100


def test_tokens_without_a_price_have_no_cost() -> None:
    run = LoopRun("writer", started_ns=0)
    run.spend(None, Usage(3, 4), None)
    assert (run.input_tokens, run.output_tokens) == (3, 4)
    assert run.spending is not None
    assert run.spending.cost_usd is None


def test_a_run_inside_a_judge_is_the_judges_for_the_runs_around_it() -> None:
    outer = LoopRun("outer", started_ns=0)
    judge = LoopRun("judge", started_ns=0, parent=outer, serves_judge=True)
    inner = LoopRun("inner", started_ns=0, parent=judge)
    inner.spend(None, Usage(10, 1), 0.5)
    assert (inner.input_tokens, judge.input_tokens, outer.input_tokens) == (10, 10, 0)
    assert outer.judge_spending is not None
    assert outer.judge_spending.tokens == 11
    assert outer.judge_spending.cost_usd == 0.5


def test_the_run_is_known_where_a_model_call_is_made(capture: Capture) -> None:
    with loop("writer", token_budget=5) as run, iteration():
        chat(capture, 6, 0)
        here = current_run()
        assert here is not None
        assert here is run
        assert here.over_token_budget is True
