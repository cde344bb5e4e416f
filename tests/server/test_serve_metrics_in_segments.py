"""/metrics of ``serve`` on runs that paused and went on: what happened once is counted once."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from server.followed import Followed
from sources.stored_spans import request

from otel_loopeval import semconv
from otel_loopeval.runs.spans import SpanEvent
from otel_loopeval.runs.usage import Usage
from otel_loopeval.server.run_metrics import RunMetrics
from otel_loopeval.testing import FixedClock, TraceBuilder

FIRST = {semconv.RUN_OUTCOME: semconv.OUTCOME_PAUSED}
LAST = {semconv.RUN_RESUMED: True}
BETWEEN = {**FIRST, **LAST}


def loop_of(kind: str, action: str = semconv.ACTION_OBSERVE, **more: Any) -> SpanEvent:
    return TraceBuilder().guard_event(kind, action=action, **more)


def segment(
    number: int,
    attributes: Mapping[str, Any],
    *,
    calls: Sequence[int] = (),
    judges: Sequence[int] = (),
    events: Sequence[SpanEvent] = (),
    model: str = "priced",
) -> bytes:
    """One of a run's segments, in a trace of its own: an iteration with calls of so many input tokens."""
    builder = TraceBuilder(number, FixedClock(number * 3_600_000_000_000))
    root_id, iteration_id, judge_id = builder.span_id(), builder.span_id(), builder.span_id()
    for around, tokens in [(iteration_id, calls), (judge_id, judges)]:
        for count in tokens:
            builder.span(
                f"chat {model}",
                parent_id=around,
                attributes={
                    semconv.GEN_AI_OPERATION_NAME: "chat",
                    semconv.GEN_AI_REQUEST_MODEL: model,
                    semconv.GEN_AI_USAGE_INPUT_TOKENS: count,
                    semconv.GEN_AI_USAGE_OUTPUT_TOKENS: 1,
                },
            )
    builder.span(semconv.SPAN_EVALUATE, span_id=judge_id, parent_id=iteration_id)
    told = {semconv.ITERATION_NUMBER: number}
    builder.span(
        semconv.SPAN_ITERATION, span_id=iteration_id, parent_id=root_id, attributes=told, events=events
    )
    builder.span(
        "evaluation_loop writer", span_id=root_id, attributes={semconv.RUN_ID: "order-7", **attributes}
    )
    return request(*builder.spans)


def price(usage: Usage, _ended_ns: int) -> float | None:
    """An eighth of a dollar for each input token, so that sums are exact."""
    return usage.input_tokens / 8 if usage.model == "priced" else None


def counted(*servers: Iterable[bytes]) -> dict[tuple[str, ...], float]:
    """The counters of servers of which each gets some of the segments, summed, by name and labels of note."""
    sums: dict[tuple[str, ...], float] = {}
    for segments in servers:
        registry = CollectorRegistry()
        metrics = RunMetrics(registry)
        followed = Followed(grace_s=1.0, price=price)
        for position, body in enumerate(segments):
            followed.take(body, now=100.0 * position)
            followed.following.tick(100.0 * position + 50)
        for run in followed.runs:
            metrics.ended(run)
        for sample in (sample for metric in registry.collect() for sample in metric.samples):
            labels = (
                semconv.GUARD_KIND,
                semconv.GUARD_ACTION,
                semconv.GUARD_SOURCE,
                semconv.GEN_AI_TOKEN_TYPE,
            )
            shown = [sample.labels.get(name.replace(".", "_")) for name in labels]
            if sample.name.endswith("_total"):
                key = (sample.name.removeprefix("loopeval_").removesuffix("_total"), *filter(None, shown))
                sums[key] = sums.get(key, 0.0) + sample.value
    return sums


def test_a_doom_loop_and_an_intervention_are_of_the_segment_that_they_were_in() -> None:
    found = counted(
        [
            segment(1, FIRST, events=[loop_of("repeated_action", "block", source="detector")]),
            segment(2, BETWEEN),
            segment(3, LAST, events=[loop_of("no_progress", source="detector", key="k")]),
        ]
    )
    assert {key: value for key, value in found.items() if key[0].startswith(("doom_loop", "guard"))} == {
        ("doom_loop_fired", "repeated_action", "block", "detector"): 1,
        ("doom_loop_fired", "no_progress", "observe", "detector"): 1,
        ("guard_interventions", "repeated_action", "block"): 1,
        ("guard_interventions", "no_progress", "observe"): 1,
    }


def test_a_doom_loop_that_is_told_again_after_the_pause_is_an_intervention() -> None:
    stuck = loop_of("loop_detected", source="application")
    found = counted([segment(1, FIRST, events=[stuck]), segment(2, LAST, events=[stuck])])
    assert found["doom_loop_fired", "loop_detected", "observe", "application"] == 1
    assert found["guard_interventions", "loop_detected", "observe"] == 2


ONE = segment(1, FIRST, calls=[100, 20], judges=[7])
TWO = segment(2, BETWEEN, calls=[3], judges=[8])
THREE = segment(3, LAST, calls=[1_000])
SPENT = {
    ("tokens", "input"): 1_123,
    ("tokens", "output"): 4,
    ("judge_tokens", "input"): 15,
    ("judge_tokens", "output"): 2,
    ("cost_USD",): 140.375,
    ("judge_cost_USD",): 1.875,
}


@pytest.mark.parametrize(
    "servers",
    [
        [[ONE, TWO, THREE]],
        [[ONE], [TWO], [THREE]],
        [[ONE, TWO], [THREE]],
        [[ONE], [TWO, THREE]],
    ],
    ids=["one server", "three", "the last elsewhere", "the first elsewhere"],
)
def test_what_a_run_spent_is_counted_once_whoever_judges_its_segments(servers: list[list[bytes]]) -> None:
    found = counted(*servers)
    assert {key: value for key, value in found.items() if "tokens" in key[0] or "cost" in key[0]} == SPENT


def test_what_a_run_that_never_goes_on_spent_is_counted() -> None:
    found = counted([ONE])
    assert (found["tokens", "input"], found["cost_USD",], found["judge_cost_USD",]) == (120, 15.0, 0.875)


def test_a_call_without_a_price_hides_no_other_segments_cost() -> None:
    dear = segment(1, FIRST, calls=[100], model="unknown")
    assert ("cost_USD",) not in counted([dear])
    for servers in ([[dear, TWO]], [[dear], [TWO]]):
        found = counted(*servers)
        assert (found["tokens", "input"], found["cost_USD",]) == (103, 0.375)
