"""Guard events by the loop result that they belong to: by identity, weakly, and not without bound."""

import gc
import weakref
from dataclasses import dataclass, field
from typing import Any

import pytest

from otel_loopeval import AutonomyResult, GuardEvent, LoopEvaluator
from otel_loopeval.evaluation import EvaluationLoopResult
from otel_loopeval.health import captured_guard_events, forget_guard_events, remember_guard_events
from otel_loopeval.health.captured import ByIdentity

DOOM = GuardEvent(kind="repeated_action", doom_loop=True)
NOTE = GuardEvent()


@dataclass
class Result:
    """Like the package's: compared by its fields, and so without a hash."""

    score_history: list[float] = field(default_factory=lambda: [9.0])
    threshold: float = 8.0


@pytest.fixture(autouse=True)
def nothing_remembered() -> None:
    forget_guard_events()


@pytest.mark.parametrize("make", [Result, EvaluationLoopResult, lambda: AutonomyResult(success=True)])
def test_by_identity_and_weakly(make: Any) -> None:
    one, other = make(), make()
    remember_guard_events(one, [DOOM])
    assert captured_guard_events(one) == (DOOM,)
    assert captured_guard_events(other) is None
    seen = weakref.ref(one)
    del one
    gc.collect()
    assert seen() is None


@pytest.mark.parametrize("result", [None, "text", 5, (1, 2)])
def test_results_that_cannot_be_referenced_weakly(result: Any) -> None:
    remember_guard_events(result, [DOOM])
    assert captured_guard_events(result) is None


def test_a_doom_loop_in_a_run_inside() -> None:
    result = Result()
    remember_guard_events(result, [NOTE], fired_inside=True)
    assert captured_guard_events(result) == (NOTE, GuardEvent(kind="loop_detected", doom_loop=True))
    remember_guard_events(result, [DOOM], fired_inside=True)
    assert captured_guard_events(result) == (DOOM,)


def test_the_last_thousand() -> None:
    results = [Result() for _ in range(1_200)]
    for result in results:
        remember_guard_events(result, [])
    assert [captured_guard_events(result) for result in results] == [None] * 200 + [()] * 1_000


def test_what_is_given_wins() -> None:
    result = Result()
    remember_guard_events(result, [DOOM, NOTE])
    health = LoopEvaluator().run(result)
    assert (health.success, health.doom_loop_fired, health.guard_interventions) == (False, True, 2)
    for given in ([], (), [{"type": "note"}]):
        health = LoopEvaluator().run(result, given)
        assert (health.success, health.guard_interventions) == (True, len(given))


def test_nothing_captured_is_as_before() -> None:
    assert LoopEvaluator().run(Result()).success
    result = Result()
    remember_guard_events(result, [DOOM])
    forget_guard_events()
    assert LoopEvaluator().run(result).success


def test_a_table_that_holds_what_it_must() -> None:
    table: ByIdentity[int] = ByIdentity(2, holds=True)
    lists: list[list[int]] = [[], [], []]
    for number, subject in enumerate(lists):
        table.set(subject, number)
    assert [table.get(subject) for subject in lists] == [None, 1, 2]
    assert (table.pop(lists[2]), table.pop(lists[2]), len(table)) == (2, None, 1)


def test_an_address_that_is_used_again() -> None:
    table: ByIdentity[int] = ByIdentity()
    for _ in range(100):
        table.set(Result(), 1)  # dead at once: the next one mostly has its address
    assert len(table) == 0
    kept = Result()
    table.set(kept, 2)
    assert table.get(kept) == 2
