"""What importing the package costs, beside the OpenTelemetry SDK alone.

    python tests/benchmarks/bench_import.py

Each row is a fresh interpreter that imports and exits; the time is the interpreter's own account of the
imports (wall clock inside the process), the best of several runs, in milliseconds.
"""

import subprocess
import sys
from typing import NamedTuple

RUNS = 15

SDK = "import opentelemetry.sdk.trace, opentelemetry.sdk.metrics"
CASES = {
    "OpenTelemetry SDK alone": SDK,
    "import otel_loopeval": "import otel_loopeval",
    "SDK and otel_loopeval": f"{SDK}; import otel_loopeval",
    "SDK and instrument()": f"{SDK}; import otel_loopeval; otel_loopeval.instrument()",
    "SDK, instrument() and loop()": (
        f"{SDK}; import otel_loopeval; otel_loopeval.instrument(console=False); "
        "otel_loopeval.loop('x').__enter__()"
    ),
}


class Row(NamedTuple):
    """One case, in milliseconds."""

    name: str
    best_ms: float


def rows() -> list[Row]:
    """Measure every case, in turn so that a slow moment of the machine hits all of them."""
    best = dict.fromkeys(CASES, float("inf"))
    for _ in range(RUNS):
        for name, code in CASES.items():
            program = (
                f"import time; start = time.perf_counter_ns(); {code}; "
                "print(time.perf_counter_ns() - start, flush=True); import os; os._exit(0)"
            )
            found = subprocess.run(
                [sys.executable, "-c", program], check=True, capture_output=True, text=True
            )
            best[name] = min(best[name], int(found.stdout) / 1e6)
    return [Row(name, value) for name, value in best.items()]


def main() -> None:
    """Print the table."""
    print(f"{'imported':32} {'best ms':>8}")
    for row in rows():
        print(f"{row.name:32} {row.best_ms:8.1f}")


if __name__ == "__main__":
    main()
