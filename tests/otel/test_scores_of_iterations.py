"""Scores come from judges, which may answer anything."""

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from otel_loopeval import iteration, loop
from otel_loopeval.testing import Capture


class Unreadable:
    def __float__(self) -> float:
        raise RuntimeError("no number today")


def exported_score(capture: Capture, value: Any) -> Any:
    with loop("writer"), iteration() as it:
        it.score = value
    return capture.spans("evaluation_loop.iteration")[-1]["attributes"].get("loopeval.iteration.score")


@pytest.mark.parametrize(
    ("value", "score"),
    [
        (7, 7.0),
        (7.25, 7.25),
        ("7.5", 7.5),
        (True, 1.0),
        (Decimal("8.5"), 8.5),
        (Fraction(1, 4), 0.25),
        (0, 0.0),
        (-3, -3.0),
    ],
)
def test_numbers(capture: Capture, value: Any, score: float) -> None:
    got = exported_score(capture, value)
    assert (got, type(got)) == (score, float)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "nan"])
def test_a_score_that_is_not_finite_is_none(capture: Capture, value: Any) -> None:
    assert exported_score(capture, value) is None
    root = capture.span("evaluation_loop")["attributes"]
    assert root["loopeval.health.converged"] is False
    assert "loopeval.run.best_score" not in root
    assert "loopeval.health.score_delta_per_iteration" not in root


@pytest.mark.parametrize("value", [None, "good", [9], {}, object(), Unreadable(), 10**400])
def test_what_is_no_number_warns_once_and_counts_as_not_scored(
    capture: Capture, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        assert exported_score(capture, value) is None
    messages = [record.getMessage() for record in caplog.records if record.name == "otel_loopeval"]
    kind = type(value).__name__
    assert messages == [
        f"otel-loopeval: a score must be a number, got a {kind}; the iteration counts as not scored"
    ]


def test_a_bad_score_leaves_the_good_one_before_it(capture: Capture) -> None:
    with loop("writer"), iteration() as it:
        it.score = 9
        it.score = "oops"
        assert it.score == 9.0


def test_the_score_reads_as_zero_until_it_is_set(capture: Capture) -> None:
    with loop("writer"), iteration() as it:
        assert it.score == 0.0
        assert not it.score >= 8
    assert exported_score(capture, 3) == 3.0


def test_deltas_skip_what_has_no_score(capture: Capture) -> None:
    with loop("writer"):
        for score in (4, math.nan, 6.0, 6.1234567):
            with iteration() as it:
                it.score = score
    deltas = [
        span["attributes"].get("loopeval.iteration.score_delta")
        for span in capture.spans("evaluation_loop.iteration")
    ]
    assert deltas == [None, None, None, 0.1235]
    assert capture.span("evaluation_loop")["attributes"]["loopeval.health.score_delta_per_iteration"] == [
        0.1235
    ]


def test_without_a_single_delta_the_attribute_is_absent(capture: Capture) -> None:
    with loop("writer", threshold=8.0):
        for score in (None, 9.0):
            with iteration() as it:
                if score is not None:
                    it.score = score

    attributes = capture.span("evaluation_loop writer")["attributes"]
    assert attributes["loopeval.health.iterations_to_success"] == 2
    assert "loopeval.health.score_delta_per_iteration" not in attributes


def test_the_last_128_deltas_are_kept(capture: Capture) -> None:
    with loop("writer", mode="review"):
        for number in range(200):
            with iteration() as it:
                it.score = number * number
    deltas = capture.span("evaluation_loop")["attributes"]["loopeval.health.score_delta_per_iteration"]
    assert len(deltas) == 128
    assert (deltas[0], deltas[-1]) == (143.0, 397.0)
