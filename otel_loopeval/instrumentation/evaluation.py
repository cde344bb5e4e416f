"""Our own loops: ``EvaluationLoop`` and ``GoalLoop``."""

from typing import Any

from otel_loopeval import semconv
from otel_loopeval.evaluation.agents import agent_name
from otel_loopeval.evaluation.goal import GoalLoop
from otel_loopeval.evaluation.loop import EvaluationLoop
from otel_loopeval.health.wire import as_float, as_int, as_text
from otel_loopeval.instrumentation.seams import LoopSeams
from otel_loopeval.instrumentation.shapes import Call, LoopShape
from otel_loopeval.otel.iterations import Iteration
from otel_loopeval.otel.live import Run
from otel_loopeval.otel.loops import begin_run

SCOPE = semconv.INSTRUMENTATION_SCOPE_PREFIX + "evaluation"


def loop_settings(loop: Any) -> dict[str, Any]:
    """The settings of a run that an evaluation loop object tells, whatever it really holds."""
    mode = getattr(loop, "mode", None)
    return {
        "threshold": as_float(getattr(loop, "threshold", None)),
        "max_iterations": as_int(getattr(loop, "max_iterations", None)),
        "mode": mode if mode in (semconv.MODE_OPTIMIZE, semconv.MODE_REVIEW) else semconv.MODE_OPTIMIZE,
    }


def _begin(loop: Any, _call: Call) -> Run:
    return begin_run(
        agent_name(loop.agent), scope=SCOPE, framework=semconv.FRAMEWORK_OWN, **loop_settings(loop)
    )


def _begin_goal(loop: Any, _call: Call) -> Run:
    return begin_run(
        agent_name(loop.agent),
        scope=SCOPE,
        framework=semconv.FRAMEWORK_OWN,
        mode=semconv.MODE_GOAL,
        threshold=1.0,
        max_iterations=as_int(loop.max_turns),
    )


def _read_gate(it: Iteration, verdict: Any) -> None:
    """A gate either lets the goal pass or not: 1 or 0 against a threshold of 1."""
    it.score = 1.0 if verdict.met else 0.0
    it.reasoning = verdict.reason


def _unreadable(verdict: Any) -> str | None:
    """How the judge of a gate failed, if it did."""
    return semconv.ERROR_JUDGE_UNREADABLE if getattr(verdict, "readable", True) is False else None


def _read_goal_result(run: Run, result: Any) -> str | None:
    run.success = bool(result.success)
    run.state.completion_reason = as_text(result.completion_reason)
    metadata: dict[str, Any] = result.metadata or {}
    if metadata.get("stopped") is True or metadata.get("paused_by") == "unreadable_verdicts":
        return semconv.OUTCOME_STOPPED
    return None


def seams() -> list[LoopSeams]:
    """The patches of our own loop classes."""
    return [
        LoopSeams(
            EvaluationLoop,
            LoopShape(begin=_begin),
        ),
        LoopSeams(
            GoalLoop,
            LoopShape(
                begin=_begin_goal,
                finish=_read_goal_result,
                score=_read_gate,
                judge_failure=_unreadable,
                scores=("_goal_gate", "_goal_gate_async"),
            ),
        ),
    ]
