"""Goal loops: ``Agent.run_goal``, ``run_goal_async``, and ``run_until(goal=...)``, which calls the former.

They delegate to the autonomous loop, whose turns become their iterations. The gate comes once a turn, and
not in every one: a guard may take the turn before it. ``_goal_gate_async`` runs ``_goal_gate`` in a thread,
in a copy of the context, so that the latter alone is a seam.
"""

from typing import Any, Final

from otel_loopeval import semconv
from otel_loopeval.health.wire import as_int
from otel_loopeval.instrumentation.patches import Patches
from otel_loopeval.instrumentation.praisonai import autonomy, partial
from otel_loopeval.instrumentation.seams import LoopSeams
from otel_loopeval.instrumentation.shapes import Call, LoopShape, driven
from otel_loopeval.otel.iterations import Iteration
from otel_loopeval.otel.live import Run

_FAILURES: Final = {
    "judge unavailable": semconv.ERROR_JUDGE_UNAVAILABLE,
    "judge response unparseable": semconv.ERROR_JUDGE_UNREADABLE,
    "judge repeatedly unparseable": semconv.ERROR_JUDGE_UNREADABLE,
}
"""The reasons that the package itself gives for the verdict ``continue`` where its judge failed."""


def patch_goal_loops(module: Any, patches: Patches) -> None:
    """Follow the goal loops of the package's ``Agent``."""
    agent = module.Agent
    for name in ("run_goal", "_goal_gate"):
        if not hasattr(agent, name):
            raise AttributeError(f"Agent.{name}")
    seams = LoopSeams(
        agent,
        LoopShape(
            begin=_begin,
            finish=autonomy.finish,
            failure=autonomy.failure,
            partial=partial.autonomy_result,
            score=_read_gate,
            judge_failure=_judge_failure,
            judges=_judges,
            runs=("run_goal", "run_goal_async"),
            asks=(),
            scores=("_goal_gate",),
        ),
    )
    patches.on_restore(seams.restore)
    seams.patch()


def _begin(agent: Any, call: Call) -> Run:
    return autonomy.begin_goal(agent, call.kwargs.get("max_turns", autonomy.MAX_TURNS))


def _judges(agent: Any) -> bool:
    """Whether the gate is there: without an active goal it lets every turn pass unseen."""
    state = getattr(agent, "_goal_state", None)
    return state is not None and getattr(state, "status", None) == "active"


def _read_gate(it: Iteration, verdict: Any) -> None:
    """Read ``("done" | "continue" | "budget_paused", reason)``."""
    if verdict is None:
        return
    outcome, reason = verdict
    it.score = 1.0 if outcome == "done" else 0.0
    it.reasoning = reason if isinstance(reason, str) else None
    known = driven(it.run)
    if known is None:
        return
    state = getattr(known.loop, "_goal_state", None)
    turns_used = as_int(getattr(state, "turns_used", None))
    if turns_used is not None:
        known.progress["turns_used"] = turns_used
        max_turns = as_int(getattr(state, "max_turns", None))
        known.progress["unreadable"] = (
            outcome == "budget_paused" and max_turns is not None and turns_used < max_turns
        )


def _judge_failure(verdict: Any) -> str | None:
    return None if verdict is None else _FAILURES.get(verdict[1])
