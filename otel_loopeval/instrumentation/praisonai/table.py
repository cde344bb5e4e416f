"""What is patched in ``praisonaiagents``: a line per part, and a version without one loses that alone."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from otel_loopeval.instrumentation.patches import Patches
from otel_loopeval.instrumentation.praisonai.guards import escalation
from otel_loopeval.instrumentation.praisonai.loops import patch_loops


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
    Patch("the escalation detector", "praisonaiagents.escalation.doom_loop", escalation.patch_detector),
    Patch("loop guards", "praisonaiagents.escalation.loop_guard", escalation.patch_loop_guard),
)
"""All parts. Those of one module are applied in this order."""
