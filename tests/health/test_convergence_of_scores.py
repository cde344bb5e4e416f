"""Convergence and score deltas, apart from any loop result."""

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from otel_loopeval.health import Convergence, assess, converge, score_deltas


def test_the_record_is_frozen_and_complete() -> None:
    reached = converge([3, 9, 4], 8.0, "optimize", None)
    assert reached == Convergence(
        iterations_to_success=2, converged=True, wasted_iterations=1, num_iterations=3
    )
    with pytest.raises(AttributeError):
        reached.converged = False  # pyright: ignore[reportAttributeAccessIssue] - that is the test


@pytest.mark.parametrize("mode", ["optimize", "review"])
@pytest.mark.parametrize("score", [None, math.nan, math.inf, -math.inf, "9", object()])
def test_a_score_that_is_no_finite_number_never_converges(score: Any, mode: str) -> None:
    assert converge([score], 8.0, mode).converged is False
    assert converge([score], -math.inf, mode).converged is False


def test_iterations_without_a_score_count_and_do_not_converge() -> None:
    assert converge([None, 9.0, None], 8.0) == Convergence(2, True, 1, 3)
    assert converge([None, None], 8.0) == Convergence(2, False, 0, 2)


def test_an_infinite_score_is_passed_over() -> None:
    assert converge([math.inf, 5.0, 9.0], 8.0) == Convergence(3, True, 0, 3)


def test_review_takes_the_loops_word_even_where_nothing_was_scored() -> None:
    assert converge([None, None], 8.0, "review", success=True) == Convergence(2, True, 0, 2)


def test_deltas_are_rounded_to_four_digits() -> None:
    assert score_deltas([0.1, 0.3, 0.30004, 0.30010001]) == [0.2, 0.0, 0.0001]
    assert score_deltas([]) == []
    assert score_deltas([7.0]) == []


def test_deltas_beside_a_missing_score_are_missing() -> None:
    assert score_deltas([None, 5, 7, None, math.nan, 8.0, 8.5]) == [None, 2, None, None, None, 0.5]


def test_differences_beyond_the_floats_are_missing() -> None:
    assert score_deltas([-1.7e308, 1.7e308]) == [None]


def test_whole_scores_of_any_size_keep_their_digits() -> None:
    assert score_deltas([2**80, 2**80 + 1]) == [1]


usual = st.floats(-1e6, 1e6)
near_ties = st.integers(-(10**7), 10**7).map(lambda n: (2 * n + 1) * 0.00005)
any_finite = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=500, deadline=None)
@given(st.lists(usual | near_ties | any_finite | st.integers(-(10**9), 10**9), min_size=2, max_size=30))
@example([0.0, 0.00005])
@example([0.0, 0.00015])
@example([0.0, 2.5e-5])
@example([0.0, 9.99995])
@example([1e7, -1e7])
@example([5e-324, 0.0])
def test_fast_rounding_is_pythons_rounding(scores: list[float]) -> None:
    expected = [round(after - before, 4) for before, after in pairwise(scores)]
    assert score_deltas(scores) == [d if math.isfinite(d) else None for d in expected]


@settings(max_examples=500, deadline=None)
@given(st.integers(-(10**10), 10**10), st.integers(-4, 4))
def test_fast_rounding_beside_every_tie(half: int, ulps: int) -> None:
    score = float(Fraction(2 * half + 1, 20_000))
    for _ in range(abs(ulps)):
        score = math.nextafter(score, math.copysign(math.inf, ulps))
    assert score_deltas([0.0, score]) == [round(score, 4)]


def test_waste_may_be_left_out_of_the_verdict() -> None:
    assert assess([9, 9, 9], 8.0).success is False
    assert assess([9, 9, 9], 8.0, max_wasted_iterations=None).success is True


def test_assess_counts_guards_without_seeing_them() -> None:
    health = assess([9.0], 8.0, guard_count=3, doom_loop_fired=True, total_duration_s=2.5)
    assert health.to_dict() == {
        "iterations_to_success": 1,
        "wasted_iterations": 0,
        "doom_loop_fired": True,
        "guard_interventions": 3,
        "total_duration_s": 2.5,
        "score_delta_per_iteration": [],
        "converged": True,
        "success": False,
        "passed": False,
        "threshold": 8.0,
        "reasoning": "Converged in 1 iteration(s). Doom-loop guard fired. 3 guard intervention(s).",
        "metadata": {"num_iterations": 1},
    }
