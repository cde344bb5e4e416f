"""on_demand.py in a process whose clock is an hour fast: the clock first, then what reads it."""

import runpy
import time
from pathlib import Path

OFFSET_S = 3_600
true_time, true_time_ns = time.time, time.time_ns
time.time = lambda: true_time() + OFFSET_S
time.time_ns = lambda: true_time_ns() + OFFSET_S * 1_000_000_000

from opentelemetry.instrumentation.auto_instrumentation import initialize  # noqa: E402 # after the clock

initialize()
runpy.run_path(str(Path(__file__).with_name("on_demand.py")))
