"""The line per run on stderr, so that the first five minutes need no backend."""

import sys
from typing import TYPE_CHECKING

from otel_loopeval.otel.errors import swallow

if TYPE_CHECKING:
    from otel_loopeval.otel.pipeline import Pipeline
    from otel_loopeval.runs.run import LoopRun
    from otel_loopeval.runs.verdict import Verdict


def print_verdict(pipeline: "Pipeline", run: "LoopRun", verdict: "Verdict") -> None:
    """Print a run's verdict if the options want it, or have no opinion and there is no backend."""
    wanted = pipeline.options.console
    if wanted is None:
        wanted = not pipeline.records
    if not wanted:
        return
    try:
        stream = sys.stderr  # looked up each time: Jupyter and test runners replace it
        if stream is not None:
            line = format_line(run, verdict) + "\n"
            encoding = getattr(stream, "encoding", None) or "utf-8"
            # The real stderr escapes what it cannot encode; what replaces it may raise instead.
            stream.write(line.encode(encoding, "backslashreplace").decode(encoding))
            stream.flush()
    except Exception as error:  # noqa: BLE001 - a closed or broken stderr is no reason to fail
        swallow("console", error)


def format_line(run: "LoopRun", verdict: "Verdict") -> str:
    """A verdict in one line of plain ASCII (the agent's name may hold more)."""
    health = verdict.health
    word = {True: "HEALTHY", False: "UNHEALTHY", None: "NO VERDICT"}[verdict.passed]
    parts = [f"{run.iteration_count} iteration(s)"]
    if verdict.best_score is not None:
        parts.append(f"best {verdict.best_score:g} of {health.threshold:g}")
    parts.append(f"{health.total_duration_s:.2f} s")
    if not verdict.decided:
        parts.append(verdict.outcome)
    text = f"loopeval: {word} {run.agent} [{run.mode}] {', '.join(parts)}"
    return f"{text}: {health.reasoning}" if verdict.decided and not health.success else text
