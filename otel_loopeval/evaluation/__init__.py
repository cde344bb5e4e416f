"""Running loops: the evaluation loop, the goal loop, their results, the judge, and calling any agent."""

from otel_loopeval.evaluation.api import run_until, run_until_async
from otel_loopeval.evaluation.autonomy import AutonomyResult
from otel_loopeval.evaluation.criteria import GoalCriteria
from otel_loopeval.evaluation.errors import JudgeError
from otel_loopeval.evaluation.goal import GoalLoop
from otel_loopeval.evaluation.judge import Judge
from otel_loopeval.evaluation.loop import EvaluationLoop
from otel_loopeval.evaluation.results import EvaluationLoopResult, IterationResult
from otel_loopeval.evaluation.stop import StopLoop
from otel_loopeval.evaluation.verdicts import JudgeResult

__all__ = [
    "AutonomyResult",
    "EvaluationLoop",
    "EvaluationLoopResult",
    "GoalCriteria",
    "GoalLoop",
    "IterationResult",
    "Judge",
    "JudgeError",
    "JudgeResult",
    "StopLoop",
    "run_until",
    "run_until_async",
]
