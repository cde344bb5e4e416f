"""Parts that the tests of PraisonAI's agents share: real agents, on a stub of the OpenAI API or on a script.

Both import the package in this process, as late as a program might.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.openai_stub import OpenAIStub

from otel_loopeval.testing import Capture

SCOPE = "otel_loopeval.instrumentation.praisonaiagents"

Stubs = Callable[..., OpenAIStub]

ITERATIVE = {"level": "full_auto", "mode": "iterative", "track_changes": False}
"""Autonomy that loops, and takes no snapshots of the directory that the tests run in."""

BIG_TASK = "Refactor the whole auth module and then write the tests and the docs"
"""A prompt for which the package chooses the stage `autonomous`: it does not end after one answer."""


@pytest.fixture
def stubs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stubs]:
    """Starts stub servers, with the environment pointing to the last one."""
    started: list[OpenAIStub] = []

    def start(*args: Any, **kwargs: Any) -> OpenAIStub:
        stub = OpenAIStub(*args, **kwargs).start()
        started.append(stub)
        for name, value in stub.environment().items():
            monkeypatch.setenv(name, value)
        return stub

    yield start
    for stub in started:
        stub.close()


def agent(**settings: Any) -> Any:
    """A real agent that asks the model of the environment."""
    from praisonaiagents import Agent  # noqa: PLC0415 - see above

    return Agent(name="writer", instructions="Write", output="silent", **settings)


def scripted(answers: Any = None, *, base: Any = None, **settings: Any) -> Any:
    """A real agent whose ``chat`` and ``achat`` give these answers, and raise the exceptions among them.

    Args:
        answers: An iterable of them; by default something else each time.
        base: A subclass of ``Agent`` instead of the class itself.
        **settings: More settings of the agent.
    """
    from praisonaiagents import Agent  # noqa: PLC0415 - see above

    remaining = iter(answers or (f"Step {number} of the work" for number in itertools.count(1)))

    class Scripted(base or Agent):
        def chat(self, prompt: str, *_: Any, **__: Any) -> Any:
            answer = next(remaining)
            if isinstance(answer, BaseException):
                raise answer
            return answer(self) if callable(answer) else answer

        async def achat(self, prompt: str, *_: Any, **__: Any) -> Any:
            await asyncio.sleep(0)
            return Scripted.chat(self, prompt)

    settings.setdefault("autonomy", ITERATIVE)
    return Scripted(name="writer", instructions="Write", output="silent", **settings)


def autonomous_sync(worker: Any, prompt: str = BIG_TASK, **settings: Any) -> Any:
    return worker.run_autonomous(prompt, **settings)


def autonomous_async(worker: Any, prompt: str = BIG_TASK, **settings: Any) -> Any:
    return asyncio.run(worker.run_autonomous_async(prompt, **settings))


both_ways = pytest.mark.parametrize(
    "run", [autonomous_sync, autonomous_async], ids=["run_autonomous", "run_autonomous_async"]
)


def outline(capture: Capture) -> str:
    """The outline of the spans of loops, without the model and tool calls inside them."""
    lines = capture.outline().split("\n")
    return "\n".join(line for line in lines if line.split()[0] not in ("chat", "execute_tool"))


def root_facts(capture: Capture, *names: str) -> dict[str, Any]:
    """Some attributes of the one root, by the rest of their names after ``loopeval.``."""
    (root,) = [span for span in capture.spans() if "loopeval.run.mode" in span["attributes"]]
    return {name: root["attributes"].get(f"loopeval.{name}") for name in names}
