"""Tests of the agent. The marker fails those whose loops were unhealthy, whatever the answer."""

import pytest
from agent import research


@pytest.mark.loop_health
@pytest.mark.parametrize(
    ("question", "answer"), [("capital of France", "Paris"), ("largest ocean", "Pacific")]
)
def test_answers(question: str, answer: str) -> None:
    assert research(question) == answer


@pytest.mark.parametrize("_attempt", range(5))
def test_answers_again_and_again(_attempt: int) -> None:
    """Agents vary: what is compared with the baseline are rates over several runs."""
    assert research("capital of France") == "Paris"
