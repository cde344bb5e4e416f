"""Parts that the evaluation tests share: scripted judges and agents, and both ways to run a loop."""

import asyncio
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pytest

Run: TypeAlias = Callable[..., Any]
"""A way to run a loop to its end."""


@dataclass
class Verdict:
    score: Any
    reasoning: str = ""
    suggestions: list[str] = field(default_factory=list[str])


class ScriptedJudge:
    """A user's judge: gives its verdicts in order and keeps what it was asked."""

    def __init__(self, verdicts: Iterable[Any]) -> None:
        self._verdicts = iter(verdicts)
        self.asked: list[tuple[str, str]] = []

    def run(self, *, output: str, criteria: str) -> Any:
        self.asked.append((output, criteria))
        return next(self._verdicts)


class NotingAgent:
    """A user's agent: numbers its answers and keeps its prompts."""

    name = "noting"

    def __init__(self) -> None:
        self.prompts: list[str] = []

    def chat(self, prompt: str) -> str:
        self.prompts.append(prompt)
        return f"answer {len(self.prompts)}"


def series(*values: Any) -> Callable[[str], Any]:
    """A metric that returns these values in order."""
    remaining = iter(values)
    return lambda _output: next(remaining)


def run_sync(loop: Any, prompt: str = "task") -> Any:
    return loop.run(prompt)


def run_in_asyncio(loop: Any, prompt: str = "task") -> Any:
    cancelled: list[asyncio.CancelledError] = []

    async def main() -> Any:
        try:
            return await loop.run_async(prompt)
        except asyncio.CancelledError as error:  # a task of Python 3.10 would raise another one
            cancelled.append(error)

    result = asyncio.run(main())
    if cancelled:
        raise cancelled[0]
    return result


both_ways = pytest.mark.parametrize("run", [run_sync, run_in_asyncio], ids=["run", "run_async"])


def nan_as_none(scores: Iterable[float]) -> list[float | None]:
    """Scores in a form that compares equal to itself."""
    return [None if math.isnan(score) else score for score in scores]


def never(_output: str) -> bool:
    """A goal judge that is never content."""
    return False


def always(_output: str) -> bool:
    """A goal judge that is always content."""
    return True


def partial_of(error: BaseException) -> Any:
    """The result that an exception carries."""
    return vars(error)["partial_result"]


def notes_of(error: BaseException) -> list[str]:
    """An exception's notes, on every Python."""
    return vars(error)["__notes__"]
