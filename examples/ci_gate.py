"""Fail the build when the loop wastes iterations or goes into a doom loop.

    python ci_gate.py               # healthy: exit status 0
    python ci_gate.py --doom-loop   # a guard reported a doom loop: exit status 1

The verdict needs no model: it is computed from the result of a loop that has run. The loop here is scored
by a numeric metric, so the whole program works offline.
"""

import sys

from otel_loopeval import EvaluationLoop, LoopEvaluator

EXPECTED = "cache the token and refresh it before it expires"
ANSWERS = iter(["use a token", "cache the token", "cache the token and refresh it before it expires"])


def agent(_prompt: str) -> str:
    """Stands for your agent."""
    return next(ANSWERS)


def overlap(answer: str) -> float:
    """Share of the expected words that the answer has."""
    words, expected = set(answer.split()), set(EXPECTED.split())
    return len(words & expected) / len(expected)


loop_result = EvaluationLoop(
    agent=agent,
    criteria="",
    threshold=0.8,
    max_iterations=4,
    metric=overlap,
).run("How should a client use its token?")

# What your guards reported while the loop ran, in any of the shapes that the README lists.
guard_events = [{"type": "doom_loop", "reason": "repeated tool call"}] if "--doom-loop" in sys.argv else []

health = LoopEvaluator(max_wasted_iterations=0).run(loop_result, guard_events=guard_events)
health.print_summary()
if not health.passed:
    print(f"Loop unhealthy: {health.reasoning}")
    sys.exit(1)
