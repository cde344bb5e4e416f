"""``EvaluationLoop``, and so ``Agent.run_until``."""

from typing import Any

from otel_loopeval import semconv
from otel_loopeval.evaluation.agents import agent_name
from otel_loopeval.instrumentation.evaluation import loop_settings
from otel_loopeval.instrumentation.patches import Patches
from otel_loopeval.instrumentation.seams import LoopSeams, LoopShape
from otel_loopeval.otel.live import Run
from otel_loopeval.otel.loops import begin_run

SCOPE = semconv.INSTRUMENTATION_SCOPE_PREFIX + "praisonaiagents"


def patch_loops(module: Any, patches: Patches) -> None:
    """Follow the package's ``EvaluationLoop``."""
    seams = LoopSeams(module.EvaluationLoop, LoopShape(begin=_begin))
    patches.on_restore(seams.restore)
    seams.patch()


def _begin(loop: Any) -> Run:
    return begin_run(
        agent_name(loop.agent), scope=SCOPE, framework=semconv.FRAMEWORK_PRAISONAI, **loop_settings(loop)
    )
