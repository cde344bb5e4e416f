"""What is patched in ``praisonaiagents``: a line per part, and a version without one loses that alone."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from otel_loopeval.instrumentation.patches import Patches
from otel_loopeval.instrumentation.praisonai.autonomy import patch_autonomy
from otel_loopeval.instrumentation.praisonai.calls import patch_litellm, patch_openai
from otel_loopeval.instrumentation.praisonai.evaluator import patch_evaluator
from otel_loopeval.instrumentation.praisonai.goal import patch_goal_loops
from otel_loopeval.instrumentation.praisonai.guards import (
    escalation,
    loop_guard,
    permissions,
    recovery,
    tool_loops,
)
from otel_loopeval.instrumentation.praisonai.loops import patch_loops
from otel_loopeval.instrumentation.praisonai.tools import patch_tools


class Patch(NamedTuple):
    """One part of the instrumentation, which a version of the package has or has not.

    Attributes:
        name: What is lost without it, for the log.
        module: The module that it patches, as soon as the program imports it.
        apply: Puts the patches in place, given the module and where to note them. Raises, typically
            ``AttributeError``, if the module is not as expected; what was put in place is then taken back.
    """

    name: str
    module: str
    apply: Callable[[Any, Patches], None]


PATCHES: Final = (
    Patch("evaluation loops", "praisonaiagents.eval.loop", patch_loops),
    Patch("autonomous runs", "praisonaiagents.agent.agent", patch_autonomy),
    Patch("goal loops", "praisonaiagents.agent.agent", patch_goal_loops),
    Patch("model calls through the OpenAI SDK", "praisonaiagents", patch_openai),
    Patch("model calls through LiteLLM", "praisonaiagents", patch_litellm),
    Patch("tool calls", "praisonaiagents.agent.agent", patch_tools),
    Patch("loop evaluators", "praisonaiagents.eval.loop_eval", patch_evaluator),
    Patch("escalation detectors", "praisonaiagents.escalation.doom_loop", escalation.patch_detector),
    Patch("doom-loop trackers", "praisonaiagents.agent.autonomy", escalation.patch_tracker),
    Patch("autonomy recovery", "praisonaiagents.agent.agent", recovery.patch_recovery),
    Patch("observability hooks", "praisonaiagents.escalation.observability", recovery.patch_observability),
    Patch("loop guards", "praisonaiagents.escalation.loop_guard", loop_guard.patch_loop_guard),
    Patch("permission detectors", "praisonaiagents.permissions.doom_loop", permissions.patch_detector),
    Patch("permission gates", "praisonaiagents.agent.agent", permissions.patch_gate),
    Patch("tool-loop detection", "praisonaiagents.agent.loop_detection", tool_loops.patch_detection),
    Patch("approval of tool loops", "praisonaiagents.agent.agent", tool_loops.patch_approval),
    Patch("tool-loop plugin", "praisonaiagents.plugins.loop_detection_plugin", tool_loops.patch_plugin),
)
"""All parts. Those of one module are applied in this order."""
