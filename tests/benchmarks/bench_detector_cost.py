"""What a detector costs: time for each ``observe`` and memory of one long run.

Run it as ``python tests/benchmarks/bench_detector_cost.py``. Times are CPU time, the least of many short
bursts and their median. The same run times canonical JSON with sha256 of 200 bytes, as a detector that hashes
its arguments needs: targets were set on a machine where that takes 2.7 µs, and are scaled to this one.
"""

import gc
import hashlib
import json
import random
import sys
import time
import tracemalloc
from collections.abc import Callable
from statistics import median

from otel_loopeval.detect import DoomLoopDetector, ModelOutput, ToolCall

Step = ToolCall | ModelOutput
_BURSTS = 60
_STEPS = 100_000
_AGENTS = 64
_YARDSTICK = 2.7
"""Microseconds that the yardstick took where the targets were set."""


def arguments(size: int, number: int) -> dict[str, object]:
    """Arguments of about ``size`` bytes, most of them text."""
    return {"path": f"src/module_{number}.py", "query": "x" * (size - 60), "limit": 20}


def result(size: int, number: int) -> str:
    """A result of ``size`` bytes, in which a number and a time change."""
    clock = f"2024-05-01T10:{number // 60 % 60:02d}:{number % 60:02d}"
    return (f"line {number} done at {clock} " + "word more " * (size // 10))[:size]


# What is timed, how to make the n-th step, and the target in microseconds.
TIMED: dict[str, tuple[Callable[[int], Step], float | None]] = {
    "mapping 200 B": (lambda n: ToolCall("read_file", arguments(200, n), f"ok {n}"), 3),
    "mapping 2 kB": (lambda n: ToolCall("read_file", arguments(2000, n), f"ok {n}"), 4),
    "mapping 200 kB": (lambda n: ToolCall("read_file", arguments(200_000, n), f"ok {n}"), 50),
    "JSON 200 B": (lambda n: ToolCall("read_file", json.dumps(arguments(200, n)), f"ok {n}"), 5),
    "JSON 2 kB": (lambda n: ToolCall("read_file", json.dumps(arguments(2000, n)), f"ok {n}"), 7),
    "JSON 200 kB": (lambda n: ToolCall("read_file", json.dumps(arguments(200_000, n)), f"ok {n}"), 50),
    "suspicious 200 B": (lambda n: ToolCall("poll", {"id": 7}, result(200, n)), 20),
    "suspicious 2 kB": (lambda n: ToolCall("poll", {"id": 7}, result(2000, n)), 60),
    "suspicious, 2 kB of arguments": (lambda n: ToolCall("poll", arguments(2000, 7), f"line {n} done"), 60),
    "repeated exactly 200 B": (lambda _: ToolCall("poll", arguments(200, 7), "line done"), None),
    "with turns and times": (
        lambda n: ToolCall(
            "read_file",
            arguments(200, n),
            f"ok {n}",
            agent="a",
            turn=n,
            start_ns=n * 10**9,
            end_ns=n * 10**9 + 10**8,
        ),
        None,
    ),
    "message 400 B": (lambda n: ModelOutput(f"{n} " + "Some words are here, and others there. " * 10), None),
}


def burst(step: Callable[[int], Step], first: int, count: int) -> float:
    """CPU microseconds for each step of one burst."""
    steps = [step(first + n) for n in range(count)]
    detector = DoomLoopDetector()
    for n in range(3):
        detector.observe(step(10**7 + n))
    observe = detector.observe
    gc.disable()
    began = time.process_time()
    for each in steps:
        observe(each)
    took = time.process_time() - began
    gc.enable()
    return took / count * 1e6


def yardstick(count: int = 200) -> float:
    """CPU microseconds of canonical JSON and sha256 of 200 bytes of arguments."""
    value = arguments(200, 1)
    began = time.process_time()
    for _ in range(count):
        hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    return (time.process_time() - began) / count * 1e6


def memory(step: Callable[[int], Step]) -> float:
    """Kilobytes that a detector holds after a long run of many agents."""
    # Make names and small caches exist before counting.
    warm = DoomLoopDetector()
    for n in range(2000):
        warm.observe(step(n))
    del warm
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    detector = DoomLoopDetector()
    for n in range(_STEPS):
        detector.observe(step(n))
    gc.collect()
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    del detector
    return held / 1024


def streams() -> dict[str, Callable[[int], Step]]:
    """Long runs of 64 agents."""
    names = [f"agent-{n}" for n in range(_AGENTS)]
    chance = random.Random(1)

    def mixed(n: int) -> Step:
        agent = names[n % _AGENTS]
        if n % 3 == 0:
            return ModelOutput(f"text {chance.randrange(5)}", agent=agent)
        return ToolCall("read", {"p": chance.randrange(5)}, f"r{chance.randrange(3)}", agent=agent, turn=n)

    return {
        "all new": lambda n: ToolCall("read", {"p": n}, f"r{n}", agent=names[n % _AGENTS], turn=n),
        "all loops": lambda n: ToolCall("read", {"p": n // 64 % 3}, "r", agent=names[n % _AGENTS], turn=n),
        "mixed": mixed,
        "large results": lambda n: ToolCall(
            "read", {"p": n % 9}, "r" * 2000 + str(n), agent=names[n % _AGENTS]
        ),
    }


def main() -> int:
    """Print the figures."""
    reference = min(yardstick() for _ in range(_BURSTS))
    print(f"canonical JSON + sha256 of 200 B: {reference:.1f} µs ({_YARDSTICK} where the targets were set)")
    print(f"{'observe':32}{'least µs':>10}{'median µs':>11}{'target':>8}{'target here':>13}{'of target':>11}")
    for name, (step, target) in TIMED.items():
        count = 40 if "200 kB" in name else 250
        taken = [burst(step, n * count, count) for n in range(_BURSTS)]
        goals = ""
        if target is not None:
            here = target * reference / _YARDSTICK
            goals = f"{target:>8g}{here:>13.1f}{min(taken) / here:>11.2f}"
        print(f"{name:32}{min(taken):10.2f}{median(taken):11.2f}{goals}")
    print(f"\nmemory after {_STEPS:,} steps of {_AGENTS} agents (target 256 kB)")
    for name, step in streams().items():
        print(f"{name:32}{memory(step):10.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
