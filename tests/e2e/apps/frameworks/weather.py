"""What the apps have in common: questions, a tool's work, and a line of output for each answer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

QUESTIONS: Final = ("Where is it warmest?", "Is it warm in Paris?")
TURNS: Final = 8
"""Calls of the model after which an agent gives up."""


def report(city: str) -> str:
    """The weather in a city, always the same."""
    return f"{10 + len(city)} degrees in {city}"


def answer_all(
    limit: type[Exception], ask: Callable[[str], str], *ways: Callable[[str], Awaitable[str]]
) -> None:
    """Ask an agent each question in each way.

    Args:
        limit: What a framework raises when its own limit ends the search for an answer.
        ask: Asks an agent.
        ways: Ask it in coroutines.
    """

    async def waited_for(way: Callable[[str], Awaitable[str]], question: str) -> str:
        return await way(question)

    for question in QUESTIONS:
        _tell(lambda question=question: ask(question), limit)
    for way in ways:
        for question in QUESTIONS:
            _tell(lambda way=way, question=question: asyncio.run(waited_for(way, question)), limit)


def _tell(answer: Callable[[], str], limit: type[Exception]) -> None:
    try:
        print(answer())
    except limit as error:
        print(f"gave up: {type(error).__name__}")
