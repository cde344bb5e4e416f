# pyright: reportMissingTypeStubs=false
# praisonaiagents ships no types.
"""Microseconds per evaluation: our LoopEvaluator and praisonaiagents', on the same inputs.

Run it with ``python tests/benchmarks/bench_loop_evaluator.py``. The two take turns in short batches, so
that both meet the same machine, and the median batch counts.
"""

import random
import time
from collections.abc import Callable
from statistics import median
from types import SimpleNamespace
from typing import Any

from praisonaiagents.eval import LoopEvaluator as PackageEvaluator

from otel_loopeval.health import LoopEvaluator

_ROUNDS = 200
_BATCH_S = 0.002


def rows() -> list[tuple[str, float, float]]:
    """Measure every case: its name, our microseconds per call, praisonaiagents' microseconds per call."""
    ours, package = LoopEvaluator(), PackageEvaluator()
    results = {count: _loop_result(count) for count in (5, 100, 10_000)}
    guards = [{"type": "tool_call", "reason": "repeated tool call"} for _ in range(1_000)]

    def reused(evaluator: Any, count: int) -> Callable[[], Any]:
        return lambda: evaluator.run(results[count])

    cases: list[tuple[str, Callable[[], Any], Callable[[], Any]]] = [
        (f"{count:,} iterations", reused(ours, count), reused(package, count)) for count in results
    ]
    cases.append(
        (
            "5 iterations, new evaluator",
            lambda: LoopEvaluator().run(results[5]),
            lambda: PackageEvaluator().run(results[5]),
        )
    )
    cases.append(
        (
            "5 iterations, 1,000 guard events, none fires",
            lambda: ours.run(results[5], guard_events=guards),
            lambda: package.run(results[5], guard_events=guards),
        )
    )
    return [(name, *_compare(our_call, package_call)) for name, our_call, package_call in cases]


def _loop_result(count: int) -> SimpleNamespace:
    scores = [round(random.Random(number).uniform(0, 7.9), 2) for number in range(count)]
    return SimpleNamespace(
        score_history=scores, threshold=8.0, total_duration_seconds=1.5, mode="optimize", success=False
    )


def _compare(ours: Callable[[], Any], package: Callable[[], Any]) -> tuple[float, float]:
    assert ours().to_dict() == package().to_dict()
    calls = max(1, int(_BATCH_S / _seconds(package, 3)))
    batches = [(_seconds(ours, calls), _seconds(package, calls)) for _ in range(_ROUNDS)]
    return median(b[0] for b in batches) * 1e6, median(b[1] for b in batches) * 1e6


def _seconds(call: Callable[[], Any], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def main() -> None:
    """Print the table."""
    print(f"{'LoopEvaluator.run':46} {'ours µs':>10} {'package µs':>11} {'faster':>7}")
    for name, ours_us, package_us in rows():
        print(f"{name:46} {ours_us:10.2f} {package_us:11.2f} {package_us / ours_us:6.1f}x")


if __name__ == "__main__":
    main()
