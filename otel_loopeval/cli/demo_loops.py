"""The three loops of the demo, as a program would write them.

The agents are local and deterministic, and each answer is scored by how many of the wanted facts it has.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from otel_loopeval import EvaluationLoop, ToolCall, iteration, loop

Agent = Callable[[str], str]
Scored = Callable[[float], object]
"""Told each score as it comes."""
Think = Callable[[], object]
"""Takes the time that a model would take."""

THRESHOLD: Final = 8.0

_FACTS: Final = ("retries", "timeouts", "Python 3.13", "breaking change", "upgrade guide")
_DRAFTS: Final = (
    "Version 2.0 brings retries and timeouts.",
    "Version 2.0 brings retries, timeouts and Python 3.13.",
    "Version 2.0 brings retries, timeouts and Python 3.13, with one breaking change.",
)
_POLISHED: Final = (
    "Now with retries, timeouts and Python 3.13.",
    "Now with retries, timeouts and Python 3.13; see the upgrade guide.",
    "New: retries, timeouts, Python 3.13. See the upgrade guide.",
    "Retries! Timeouts! And Python 3.13: see the upgrade guide.",
    "Fresh: retries, timeouts and Python 3.13, see the docs.",
    "Fresh: retries, timeouts, Python 3.13; see the upgrade guide.",
)


@dataclass(frozen=True, slots=True)
class DemoLoop:
    """One loop of the demo.

    Attributes:
        agent: Name of its agent.
        story: What it shows, in a few words.
        max_iterations: Iterations that it may run.
        run: Runs it, given what to do at each model call and with each score.
    """

    agent: str
    story: str
    max_iterations: int
    run: Callable[[Think, Scored], object]


def coverage(text: str) -> float:
    """How many of the wanted facts a text has, from 0 to 10."""
    return 10 * sum(fact.lower() in text.lower() for fact in _FACTS) / len(_FACTS)


def run_writer(think: Think, scored: Scored) -> None:
    """An ``EvaluationLoop``, made visible by ``instrument()`` without a change."""
    drafts = iter(_DRAFTS)

    def writer(_prompt: str) -> str:
        think()
        return next(drafts)

    EvaluationLoop(
        writer,
        criteria="",
        metric=coverage,
        threshold=THRESHOLD,
        max_iterations=5,
        on_iteration=lambda it: scored(it.score),
    ).run("Write the release notes.")


def run_polisher(think: Think, scored: Scored) -> None:
    """A hand-written loop that never asks whether the answer is good enough already."""
    with loop("polisher", threshold=THRESHOLD, max_iterations=6):
        for text in _POLISHED:
            with iteration() as it:
                think()
                it.score = coverage(text)
            scored(it.score)


def run_researcher(think: Think, scored: Scored) -> None:
    """A hand-written loop whose agent makes the same call again and again, until the doom loop is seen."""
    with loop("researcher", threshold=THRESHOLD, max_iterations=8) as run:
        for _ in range(8):
            with iteration() as it:
                think()
                query = {"query": "upgrade guide of version 2.0"}
                run.observe(ToolCall("search", query, result="no documents found"))
                it.score = coverage("I am still looking for the upgrade guide.")
            scored(it.score)
            if run.doom_loop_fired:
                break


def demo_loops() -> Iterator[DemoLoop]:
    """The loops, in the order in which they run."""
    yield DemoLoop("writer", "improves until it is good enough", 5, run_writer)
    yield DemoLoop("polisher", "goes on when it is good enough", 6, run_polisher)
    yield DemoLoop("researcher", "repeats the same search", 8, run_researcher)
