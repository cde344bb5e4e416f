"""Parts that the instrumentation tests share: scripted agents and metrics, and the two loop classes."""

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest


class Agent:
    """An agent that answers something else each time, so that no detector has anything to say."""

    name = "writer"

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def chat(self, prompt: str) -> str:
        return f"answer {next(self._numbers)} to a question"


def series(*scores: Any) -> Callable[[str], Any]:
    """A metric that gives these scores in order; an exception among them is raised."""
    remaining = iter(scores)

    def metric(_output: str) -> Any:
        score = next(remaining)
        if isinstance(score, BaseException):
            raise score
        return score

    return metric


@dataclass(frozen=True)
class Family:
    """One of the loop classes that are instrumented.

    Attributes:
        name: What its runs say that their framework is.
        loop: The class.
        scope: Instrumentation scope of its spans.
    """

    name: str
    loop: Any
    scope: str

    def make(self, *scores: Any, base: Any = None, **settings: Any) -> Any:
        """A loop that scores like this."""
        return (base or self.loop)(Agent(), "", metric=series(*scores), **settings)


def own() -> Family:
    from otel_loopeval import EvaluationLoop  # noqa: PLC0415 - as late as a program might

    return Family("otel_loopeval", EvaluationLoop, "otel_loopeval.instrumentation.evaluation")


def praisonaiagents() -> Family:
    from praisonaiagents.eval.loop import EvaluationLoop  # noqa: PLC0415 - as late as a program might

    return Family("praisonaiagents", EvaluationLoop, "otel_loopeval.instrumentation.praisonaiagents")


FAMILIES = {"own": own, "praisonaiagents": praisonaiagents}


def run_sync(loop: Any, prompt: str = "task") -> Any:
    return loop.run(prompt)


def run_in_asyncio(loop: Any, prompt: str = "task") -> Any:
    return asyncio.run(loop.run_async(prompt))


both_ways = pytest.mark.parametrize("run", [run_sync, run_in_asyncio], ids=["run", "run_async"])
