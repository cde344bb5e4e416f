"""``EvaluationLoop``, and so ``Agent.run_until``."""

from typing import Any

from otel_loopeval import semconv
from otel_loopeval.evaluation.agents import agent_name
from otel_loopeval.instrumentation.evaluation import loop_settings
from otel_loopeval.instrumentation.patches import Patches
from otel_loopeval.instrumentation.praisonai import partial
from otel_loopeval.instrumentation.seams import LoopSeams
from otel_loopeval.instrumentation.shapes import Call, LoopShape, driven, keep_answer, read_verdict
from otel_loopeval.otel.errors import warn_once
from otel_loopeval.otel.iterations import Iteration
from otel_loopeval.otel.live import Run
from otel_loopeval.otel.loops import begin_run

SCOPE = semconv.INSTRUMENTATION_SCOPE_PREFIX + "praisonaiagents"


def patch_loops(module: Any, patches: Patches) -> None:
    """Follow the package's ``EvaluationLoop``."""
    shape = LoopShape(
        begin=_begin,
        answer=keep_answer,
        score=_take_verdict,
        judge_failure=_judge_failure,
        partial=partial.loop_result,
    )
    seams = LoopSeams(module.EvaluationLoop, shape)
    patches.on_restore(seams.restore)
    seams.patch()
    if not hasattr(module.EvaluationLoop, "_score"):
        # They are on its result then, and fill in the iterations when the run ends.
        warn_once(
            "otel-loopeval: this version of praisonaiagents is not followed in its scores while loops run: "
            "type object 'EvaluationLoop' has no attribute '_score'"
        )


def _begin(loop: Any, _call: Call) -> Run:
    return begin_run(
        agent_name(loop.agent), scope=SCOPE, framework=semconv.FRAMEWORK_PRAISONAI, **loop_settings(loop)
    )


def _take_verdict(it: Iteration, verdict: Any) -> None:
    read_verdict(it, verdict)
    known = driven(it.run)
    if known is not None:
        known.verdicts.append((it.number, known.output, verdict))


def _judge_failure(verdict: Any) -> str | None:
    """How the judge failed, if it did: the package's judge says so in words, with a score of 0."""
    reasoning = getattr(verdict, "reasoning", None)
    failed = isinstance(reasoning, str) and reasoning.startswith("Evaluation error: ")
    return semconv.ERROR_JUDGE_UNAVAILABLE if failed else None
