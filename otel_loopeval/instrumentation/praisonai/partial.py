"""Results so far, of the package's own types, for the ``StopLoop`` that ends one of its loops.

The classes are found among the modules that the loop itself has imported: nothing is imported here. A
field that a version does not have is left out.
"""

import dataclasses
import sys
from datetime import datetime, timezone
from time import time, time_ns
from typing import Any

from otel_loopeval.evaluation.results import best_of
from otel_loopeval.evaluation.stop import StopLoop
from otel_loopeval.instrumentation.shapes import driven
from otel_loopeval.otel.live import Run

STOPPED = "stopped"
"""The ``completion_reason`` of an autonomous run that was stopped."""


def loop_result(run: Run, _stop: StopLoop) -> Any:
    """An ``EvaluationLoopResult`` with the iterations that were scored, as the loop would have made it."""
    known = driven(run)
    results = sys.modules.get("praisonaiagents.eval.results")
    if known is None or results is None:
        return None
    if not known.verdicts and run.state.iteration_count > 1:
        return None  # a version, or a subclass, whose verdicts pass unseen
    iterations = [
        _make(
            results.IterationResult,
            iteration=number,
            output=output,
            score=verdict.score,
            reasoning=getattr(verdict, "reasoning", ""),
            findings=getattr(verdict, "suggestions", None) or [],
        )
        for number, output, verdict in known.verdicts
    ]
    best = best_of(iterations)
    threshold = known.loop.threshold
    return _make(
        results.EvaluationLoopResult,
        iterations=iterations,
        success=best is not None and best.score >= threshold,
        total_duration_seconds=(time_ns() - run.state.started_ns) / 1e9,
        threshold=threshold,
        mode=known.loop.mode,
        metadata={"stopped": True},
        best=best,
    )


def autonomy_result(run: Run, _stop: StopLoop) -> Any:
    """An ``AutonomyResult`` with what the run has told so far."""
    known = driven(run)
    autonomy = sys.modules.get("praisonaiagents.agent.autonomy")
    if known is None or autonomy is None:
        return None
    progress = known.progress
    started = run.state.started_ns / 1e9
    started_at = datetime.fromtimestamp(started, timezone.utc).isoformat().replace("+00:00", "Z")
    return _make(
        autonomy.AutonomyResult,
        success=False,
        output="" if known.output is None else str(known.output),
        completion_reason=STOPPED,
        iterations=run.state.iteration_count,
        stage=progress.get("stage", "direct"),
        actions=list(progress.get("actions", ())),
        duration_seconds=time() - started,
        started_at=progress.get("started_at", started_at),
        metadata={"stopped": True},
    )


def _make(cls: Any, **values: Any) -> Any:
    known = {field.name for field in dataclasses.fields(cls)}
    return cls(**{name: value for name, value in values.items() if name in known})
