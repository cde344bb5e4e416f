# pyright: reportMissingTypeStubs=false
# praisonaiagents ships no types.
"""Literal outcomes that were observed on praisonaiagents 1.7.17, for our evaluator."""

import enum
import types
from collections import UserDict
from types import SimpleNamespace
from typing import Any

import pytest
from praisonaiagents.escalation.doom_loop import DoomLoopType

from otel_loopeval.health import LoopEvaluator, is_doom_loop_event


class Mode(enum.Enum):
    REVIEW = "review"


class StrMode(str, enum.Enum):
    REVIEW = "review"


class Kind(enum.Enum):
    DOOM_LOOP = "doom_loop"


class IntKind(enum.IntEnum):
    DOOM_LOOP = 1


class Slotted:
    __slots__ = ("type",)

    def __init__(self) -> None:
        self.type = "no_progress"


def run_of(*scores: float, mode: Any = "optimize", success: Any = None) -> SimpleNamespace:
    return SimpleNamespace(
        score_history=list(scores), threshold=8.0, total_duration_seconds=1.0, mode=mode, success=success
    )


def test_optimize_wastes_what_follows_the_threshold() -> None:
    health = LoopEvaluator().run(run_of(9, 3, 4))
    assert health.to_dict() == {
        "iterations_to_success": 1,
        "wasted_iterations": 2,
        "doom_loop_fired": False,
        "guard_interventions": 0,
        "total_duration_s": 1.0,
        "score_delta_per_iteration": [-6, 1],
        "converged": True,
        "success": False,
        "passed": False,
        "threshold": 8.0,
        "reasoning": "Converged in 1 iteration(s). 2 wasted iteration(s) after threshold.",
        "metadata": {"num_iterations": 3},
    }


def test_waste_within_its_bound_is_healthy() -> None:
    assert LoopEvaluator(max_wasted_iterations=2).run(run_of(9, 3, 4)).passed is True
    assert LoopEvaluator(max_wasted_iterations=1).run(run_of(9, 3, 4)).passed is False


def test_the_threshold_is_met_by_equality() -> None:
    assert LoopEvaluator().run(run_of(7.99, 8.0)).iterations_to_success == 2


@pytest.mark.parametrize("success", [True, False, None])
def test_optimize_ignores_the_loops_own_success(success: bool | None) -> None:
    assert LoopEvaluator().run(run_of(5, 9, success=success)).converged is True
    assert LoopEvaluator().run(run_of(5, 6, success=success)).converged is False


@pytest.mark.parametrize(
    ("scores", "success", "converged"),
    [
        ((9, 3), None, False),
        ((9, 3), False, False),
        ((9, 3), True, True),
        ((3, 9), None, True),
        ((3, 9), 0, False),
    ],
)
def test_review_defers_to_the_loop_then_to_its_last_score(
    scores: tuple[float, ...], success: Any, converged: bool
) -> None:
    health = LoopEvaluator().run(run_of(*scores, mode="review", success=success))
    assert (health.converged, health.wasted_iterations, health.iterations_to_success) == (converged, 0, 2)


@pytest.mark.parametrize(
    "nothing", [None, {}, {"score_history": [9]}, object(), run_of(), run_of(mode="review")]
)
def test_nothing_to_judge_is_unhealthy_and_no_error(nothing: Any) -> None:
    health = LoopEvaluator().run(nothing)
    assert (health.iterations_to_success, health.wasted_iterations, health.success) == (0, 0, False)
    assert health.reasoning == "Did not converge after 0 iteration(s)."
    assert health.threshold == 8.0


@pytest.mark.parametrize("mode", [None, "", Mode.REVIEW, StrMode.REVIEW, "anything", 3])
def test_modes_that_mean_optimize(mode: Any) -> None:
    assert LoopEvaluator().run(run_of(9, 3, mode=mode, success=True)).wasted_iterations == 1


@pytest.mark.parametrize("mode", ["review", "REVIEW", "Review"])
def test_modes_that_mean_review(mode: str) -> None:
    assert LoopEvaluator().run(run_of(9, 3, mode=mode, success=True)).wasted_iterations == 0


def test_the_constructors_threshold_wins_over_the_results() -> None:
    assert LoopEvaluator(threshold=5).run(run_of(5, 9)).to_dict()["threshold"] == 5.0
    assert LoopEvaluator(threshold=5).run(run_of(5, 9)).iterations_to_success == 1


def test_the_reasoning_names_everything_that_counts() -> None:
    health = LoopEvaluator().run(run_of(9, 9), [{"type": "doom_loop"}, {"type": "info"}])
    assert health.reasoning == (
        "Converged in 1 iteration(s). 1 wasted iteration(s) after threshold."
        " Doom-loop guard fired. 2 guard intervention(s)."
    )
    assert (health.doom_loop_fired, health.guard_interventions, health.success) == (True, 2, False)


def test_a_string_of_guard_events_is_counted_by_its_characters() -> None:
    health = LoopEvaluator().run(run_of(9), "doom_loop")
    assert (health.guard_interventions, health.doom_loop_fired) == (9, False)


@pytest.mark.parametrize(
    "event",
    [
        {"type": "DOOM_LOOP"},
        {"type": "Doom-Loop"},
        {"event": "doomloop"},
        {"type": Kind.DOOM_LOOP},
        {"type": DoomLoopType.CIRCULAR_PLAN},
        {"is_loop": "False"},
        {"is_loop": True, "type": "info"},
        {"is_loop": None, "type": "repetition"},
        {"loop_type": ""},
        {"loop_type": "banana"},
        {"doom_loop": "false"},
        {"doom_loop": False, "type": "doom_loop"},
        {"doom_loop_fired": 1},
        Slotted(),
        SimpleNamespace(event="repeated_output"),
    ],
    ids=repr,
)
def test_events_that_are_a_doom_loop(event: Any) -> None:
    assert is_doom_loop_event(event) is True


@pytest.mark.parametrize(
    "event",
    [
        {"is_loop": False, "type": "doom_loop"},
        {"is_loop": 0, "loop_type": "x"},
        {"doom_loop": False, "doom_loop_fired": True},
        {"type": None, "event": "doom_loop"},
        {"type": "info", "event": "doom_loop"},
        {"type": " doom_loop "},
        {"type": b"doom_loop"},
        {"type": IntKind.DOOM_LOOP},
        {"loop_type": None},
        {},
        "doom_loop",
        b"doom_loop",
        None,
        3,
        types.MappingProxyType({"type": "doom_loop"}),
        UserDict({"type": "doom_loop"}),
        SimpleNamespace(type="info"),
    ],
    ids=repr,
)
def test_events_that_are_no_doom_loop(event: Any) -> None:
    assert is_doom_loop_event(event) is False
