"""Autonomous runs: ``Agent.run_autonomous``, ``run_autonomous_async``, and ``start`` where it calls them.

A turn is an iteration: it begins as the agent is about to be asked and lasts until the next one, so that
the guards of the package, its goal judge and its saving of sessions run inside it. The package catches the
errors of a turn and returns them in its ``AutonomyResult``; what was raised is seen where the agent is asked.
"""

from typing import Any, Final

from otel_loopeval import semconv
from otel_loopeval.evaluation.agents import agent_name
from otel_loopeval.health.wire import as_int, as_text
from otel_loopeval.instrumentation.patches import Patches
from otel_loopeval.instrumentation.praisonai import partial
from otel_loopeval.instrumentation.praisonai.loops import SCOPE
from otel_loopeval.instrumentation.seams import LoopSeams
from otel_loopeval.instrumentation.shapes import Call, LoopShape, driven, keep_answer, read_answer
from otel_loopeval.otel import _sdk
from otel_loopeval.otel.live import Run
from otel_loopeval.otel.loops import begin_run

MAX_TURNS: Final = 20
"""Turns that the package allows where nobody says otherwise."""
_MAX_STAGE: Final = 64

OUTCOMES: Final = {
    "goal": semconv.OUTCOME_COMPLETED,
    "goal_met": semconv.OUTCOME_COMPLETED,
    "tool_completion": semconv.OUTCOME_COMPLETED,
    "promise": semconv.OUTCOME_COMPLETED,
    "no_tool_calls": semconv.OUTCOME_COMPLETED,
    "max_iterations": semconv.OUTCOME_LIMIT,
    "timeout": semconv.OUTCOME_LIMIT,
    "budget_exhausted": semconv.OUTCOME_LIMIT,
    # The package calls it a pause, since a later call may go on where this one left off. For the health of
    # loops it is one that used up its turns without meeting its goal: called a pause, it would be in no
    # health rate, and no goal loop would ever fail to converge.
    "budget_paused": semconv.OUTCOME_LIMIT,
    "doom_loop": semconv.OUTCOME_STOPPED,
    "needs_help": semconv.OUTCOME_STOPPED,
    "interrupted": semconv.OUTCOME_CANCELLED,
    "cancelled": semconv.OUTCOME_CANCELLED,
    "error": semconv.OUTCOME_FAILED,
}
"""The outcomes of runs by the package's word for why they ended."""


def patch_autonomy(module: Any, patches: Patches) -> None:
    """Follow the autonomous runs of the package's ``Agent``."""
    agent = module.Agent
    if not hasattr(agent, "run_autonomous"):
        raise AttributeError("Agent.run_autonomous")
    seams = LoopSeams(
        agent,
        LoopShape(
            begin=_begin,
            finish=finish,
            failure=failure,
            partial=partial.autonomy_result,
            answer=keep_answer,
            number=_next_number,
            runs=("run_autonomous", "run_autonomous_async"),
            turns=("_consume_self_correction",),
            asks=("chat", "achat"),
            scores=(),
            notes={"_autonomy_budget_result": _take_progress},
            coroutines=frozenset({"achat"}),
        ),
    )
    patches.on_restore(seams.restore)
    seams.patch()


def _begin(agent: Any, call: Call) -> Run:
    state = getattr(agent, "_goal_state", None)
    if state is not None and getattr(state, "status", None) == "active":
        return begin_goal(agent, getattr(state, "max_turns", None))
    limit = call.argument(1, "max_iterations")
    if limit is None:
        config: Any = getattr(agent, "autonomy_config", None) or {}
        limit = config.get("max_iterations", MAX_TURNS)
    return begin_run(
        agent_name(agent),
        scope=SCOPE,
        framework=semconv.FRAMEWORK_PRAISONAI,
        mode=semconv.MODE_AGENT,
        max_iterations=as_int(limit),
    )


def begin_goal(agent: Any, max_turns: Any) -> Run:
    """Begin the run of a goal loop. A gate lets the goal pass or not: 1 or 0 against a threshold of 1."""
    return begin_run(
        agent_name(agent),
        scope=SCOPE,
        framework=semconv.FRAMEWORK_PRAISONAI,
        mode=semconv.MODE_GOAL,
        threshold=1.0,
        max_iterations=as_int(max_turns),
    )


def finish(run: Run, result: Any) -> str | None:
    """Read an ``AutonomyResult``: why the run ended, and in which stage."""
    success = bool(getattr(result, "success", False))
    reason = as_text(getattr(result, "completion_reason", None))
    run.success = success
    run.state.completion_reason = reason
    known = driven(run)
    facts: dict[str, Any] = {}
    stage = _stage(getattr(result, "stage", None))
    if stage is not None:
        facts[semconv.RUN_STAGE] = stage
    turns_used = None if known is None else known.progress.get("turns_used")
    if turns_used is not None:
        facts[semconv.RUN_TURNS_USED] = turns_used
    if facts and run.span_id is not None:
        _sdk.set_clean_attributes(run.span, facts)
    if known is not None and known.progress.get("unreadable"):
        return semconv.OUTCOME_STOPPED  # the goal's judge could not be read, again and again
    outcome = None if reason is None else OUTCOMES.get(reason)
    if outcome is None:
        outcome = semconv.OUTCOME_COMPLETED if success else semconv.OUTCOME_STOPPED
    return outcome


def failure(run: Run, result: Any) -> BaseException | None:
    """The error that an ``AutonomyResult`` tells of: as it was raised, where that was seen."""
    told = getattr(result, "error", None)
    if told is None and getattr(result, "completion_reason", None) != "error":
        return None
    known = driven(run)
    if known is None:
        return None
    if known.error is None or str(known.error) != str(told):
        known.error = _Unseen(told)
    return known.error


class _Unseen(Exception):  # noqa: N818 - its name goes out, see below
    """Stands for an error of which only the message is known."""


# The value of `error.type` is the qualified name of the class, and this is the convention's for an error
# whose type is not known.
_Unseen.__module__, _Unseen.__qualname__ = "builtins", semconv.ERROR_OTHER


def _next_number(_call: Call) -> None:
    return None


def _take_progress(run: Run, call: Call) -> None:
    """Read what the loop passes to its check of budgets, once a turn."""
    known, it = driven(run), run.iteration
    if known is None:
        return
    answer = call.argument(5, "last_output")
    if it is not None and it.output is None:  # an agent whose `chat` was replaced on the object
        read_answer(it, answer)
        known.output = answer
    stage = _stage(call.argument(1, "stage"))
    if stage is not None:
        known.progress["stage"] = stage
        if it is not None and it.span_id is not None:
            _sdk.set_clean_attributes(it.span, {semconv.ITERATION_STAGE: stage})
    actions = call.argument(2, "actions_taken")
    if isinstance(actions, list):
        known.progress["actions"] = actions  # the loop's own list, which it goes on to fill
    started_at = call.argument(4, "started_at")
    if isinstance(started_at, str):
        known.progress["started_at"] = started_at


def _stage(value: Any) -> str | None:
    # Newer versions may have an enumeration.
    stage = as_text(getattr(value, "value", value))
    return None if stage is None else stage[:_MAX_STAGE]
