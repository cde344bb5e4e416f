"""Running loops: the evaluation loop, the goal loop, their results, the judge, and calling any agent."""

from otel_loopeval.evaluation.loop import EvaluationLoop
from otel_loopeval.evaluation.results import EvaluationLoopResult, IterationResult
from otel_loopeval.evaluation.stop import StopLoop

__all__ = ["EvaluationLoop", "EvaluationLoopResult", "IterationResult", "StopLoop"]
