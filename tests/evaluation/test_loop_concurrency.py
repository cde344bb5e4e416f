"""One loop object that runs several times at once, in threads and in tasks."""

import asyncio
import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from loop_parts import Verdict

from otel_loopeval.evaluation import EvaluationLoop, GoalLoop, Judge

RUNS = 8


class CountingJudge:
    """Scores by how often its own run has been told its feedback: run n needs n + 1 iterations."""

    def run(self, *, output: str, criteria: str) -> Verdict:
        number, step = (int(part) for part in output.split())
        return Verdict(9.0 if step > number else 1.0, f"{step}")


def next_step(prompt: str) -> str:
    """Answers "run step", with the step from the feedback of its own run."""
    lines = prompt.split("\n")
    return f"{lines[0]} {int(lines[-1]) + 1 if len(lines) > 1 else 1}"


def expected(number: int) -> list[float]:
    return [1.0] * number + [9.0]


def test_in_threads():
    barrier = threading.Barrier(RUNS)

    def agent(prompt: str) -> str:
        if "\n" not in prompt:
            barrier.wait(timeout=20)  # all runs are in their first iteration at once
        return next_step(prompt)

    loop = EvaluationLoop(agent, "", max_iterations=20, judge=CountingJudge())
    with ThreadPoolExecutor(RUNS) as pool:
        results = list(pool.map(loop.run, map(str, range(RUNS))))

    assert [result.score_history for result in results] == [expected(number) for number in range(RUNS)]
    assert [it.iteration for it in results[-1].iterations] == list(range(1, RUNS + 1))


async def test_in_tasks():
    waiting = 0
    all_there = asyncio.Event()

    async def agent(prompt: str) -> str:
        nonlocal waiting
        if "\n" not in prompt:
            waiting += 1
            if waiting == RUNS:
                all_there.set()
            await all_there.wait()
        await asyncio.sleep(0)
        return next_step(prompt)

    loop = EvaluationLoop(agent, "", max_iterations=20, judge=CountingJudge())
    results = await asyncio.gather(*(loop.run_async(str(number)) for number in range(RUNS)))

    assert [result.score_history for result in results] == [expected(number) for number in range(RUNS)]


async def test_goal_loops_in_tasks():
    async def agent(prompt: str) -> str:
        await asyncio.sleep(0)
        return prompt.partition("\n")[0] + (" again" if "not met yet" in prompt else "")

    loop = GoalLoop(agent, "Reach it.", max_turns=3, judge={"0", "1", "2 again"}.__contains__)
    results = await asyncio.gather(*(loop.run_async(str(number)) for number in range(4)))

    assert [(r.iterations, r.completion_reason) for r in results] == [
        (1, "goal_met"),
        (1, "goal_met"),
        (2, "goal_met"),
        (3, "budget_paused"),
    ]


@pytest.mark.parametrize(
    "loop", [EvaluationLoop(str.upper, "good"), GoalLoop(str.upper, "good")], ids=["evaluation", "goal"]
)
def test_threads_share_one_lazily_made_judge(loop: Any):
    barrier = threading.Barrier(RUNS)

    def judge(_: int) -> Judge:
        barrier.wait(timeout=20)
        return loop.judge

    with ThreadPoolExecutor(RUNS) as pool:
        judges = list(pool.map(judge, range(RUNS)))

    assert len({id(judge) for judge in judges}) == 1
    assert isinstance(judges[0], Judge)


def test_the_default_judge_takes_the_loops_criteria_and_model():
    judge = EvaluationLoop(str.upper, "is loud", model="gpt-5").judge

    assert (judge.criteria, judge.model) == ("is loud", "gpt-5")


def test_a_loop_can_be_copied():
    loop = copy.deepcopy(EvaluationLoop(str.upper, "", metric=len, threshold=4))

    assert loop.run("four").final_output == "FOUR"
