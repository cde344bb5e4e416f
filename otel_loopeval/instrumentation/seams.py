"""Patching loop classes at their seams, in place and reversibly.

A loop class has methods at which a run begins, an iteration begins and a verdict comes in. They are patched
on the class itself (references to it may be anywhere), on the subclasses that override them, and on those
that are defined later. An iteration lasts from the call that asks the agent until the next one or the end
of the run, so that the callbacks of the loop run inside it.

One loop object may run several times at once: nothing is kept on it, everything on the run in the context.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from opentelemetry.context import get_current

from otel_loopeval import semconv
from otel_loopeval.health import remember_guard_events
from otel_loopeval.instrumentation.patches import Patches
from otel_loopeval.otel import _sdk
from otel_loopeval.otel.errors import swallow
from otel_loopeval.otel.iterations import Iteration
from otel_loopeval.otel.live import Run
from otel_loopeval.otel.node import leave


def read_verdict(it: Iteration, verdict: Any) -> None:
    """Read a judge's verdict: an object with ``score``, ``reasoning`` and ``suggestions``."""
    score = getattr(verdict, "score", None)
    if score is not None:
        it.score = score
    reasoning = getattr(verdict, "reasoning", None)
    it.reasoning = reasoning if isinstance(reasoning, str) else None
    it.findings = getattr(verdict, "suggestions", None) or ()


def read_loop_result(run: Run, result: Any) -> str | None:
    """Read an ``EvaluationLoopResult``: its own verdict, and the scores that the seams did not see.

    Returns:
        The outcome, if the result tells one.
    """
    success = getattr(result, "success", None)
    if success is not None:
        run.success = bool(success)
    run.fill_in_scores(list(getattr(result, "score_history", None) or ()))
    metadata = getattr(result, "metadata", None)
    if isinstance(metadata, dict) and metadata.get("stopped") is True:  # type: ignore[reportUnknownMemberType]  # any dict
        return semconv.OUTCOME_STOPPED
    return None


@dataclass(frozen=True, slots=True)
class LoopShape:
    """What a loop class looks like to us. By default, like an ``EvaluationLoop``, ours or PraisonAI's.

    Attributes:
        begin: Begins a run for a loop object that is about to run.
        finish: Takes what the loop's result says, just before the run ends.
        score: Reads a verdict into the iteration.
        runs: Names of the methods that run the loop.
        asks: Names of the methods that ask the agent, as ``(prompt, iteration, ...)``.
        scores: Names of the methods that return a verdict on an output.
    """

    begin: Callable[[Any], Run]
    finish: Callable[[Run, Any], str | None] = read_loop_result
    score: Callable[[Iteration, Any], None] = read_verdict
    runs: tuple[str, ...] = ("run", "run_async")
    asks: tuple[str, ...] = ("_get_agent_output", "_get_agent_output_async")
    scores: tuple[str, ...] = ("_score", "_score_async")


class LoopSeams:
    """The patches of one loop class and its subclasses.

    Args:
        base: The loop class.
        shape: What it looks like.
    """

    def __init__(self, base: type, shape: LoopShape) -> None:
        self._base = base
        self._shape = shape
        self._patches = Patches()

    def patch(self) -> None:
        """Patch the class, its subclasses, and those to come."""
        for cls in _family(self._base):
            self._patch_class(cls)
        self._patch_init_subclass()

    def restore(self) -> None:
        """Put the original methods back, where nobody has patched over ours."""
        self._patches.restore()

    def _patch_class(self, cls: type) -> None:
        shape = self._shape
        for names, wrap in (
            (shape.runs, self._wrap_run),
            (shape.asks, self._wrap_ask),
            (shape.scores, self._wrap_score),
        ):
            for name in names:
                original = cls.__dict__.get(name)
                if inspect.isfunction(original):
                    # A subclass may override an async method by a plain one that returns an awaitable.
                    is_async = inspect.iscoroutinefunction(original) or name.endswith("_async")
                    ours = functools.wraps(original)(wrap(original, is_async=is_async))
                    self._patches.replace(cls, name, ours)

    def _patch_init_subclass(self) -> None:
        base, seams = self._base, self
        original = base.__dict__.get("__init_subclass__")

        def init_subclass(cls: type, **kwargs: Any) -> None:
            if original is None:
                super(base, cls).__init_subclass__(**kwargs)
            else:
                original.__get__(None, cls)(**kwargs)
            try:
                if seams._patches.active:
                    seams._patch_class(cls)
            except Exception as error:  # noqa: BLE001 - the guard
                swallow("seams.init_subclass", error)

        wrapped: Callable[..., None] = init_subclass
        self._patches.replace(base, "__init_subclass__", classmethod(wrapped))

    # Runs ----------------------------------------------------------------------------------------------

    def _wrap_run(self, original: Callable[..., Any], *, is_async: bool) -> Callable[..., Any]:
        if is_async:

            async def run_async(subject: Any, *args: Any, **kwargs: Any) -> Any:
                outer = get_current()
                run, owns = self._open_run(subject)
                try:
                    result = original(subject, *args, **kwargs)
                    if inspect.isawaitable(result):
                        result = await result
                except BaseException as error:
                    self._close_run(run, owns=owns, error=error)
                    raise
                else:
                    self._close_run(run, owns=owns, result=result)
                    return result
                finally:
                    if owns:
                        leave(run, outer)

            return run_async

        def run_sync(subject: Any, *args: Any, **kwargs: Any) -> Any:
            outer = get_current()
            run, owns = self._open_run(subject)
            try:
                result = original(subject, *args, **kwargs)
            except BaseException as error:
                self._close_run(run, owns=owns, error=error)
                raise
            else:
                self._close_run(run, owns=owns, result=result)
                return result
            finally:
                if owns:
                    leave(run, outer)

        return run_sync

    def _open_run(self, subject: Any) -> tuple[Run | None, bool]:
        """The run that a call of a run method belongs to, and whether the call opened it.

        An overriding method that calls ``super().run()`` is still the same run: it is one if no iteration
        is open. Inside an iteration the same object is running a loop within its own loop.
        """
        try:
            if not self._patches.active:
                return None, False
            node: Any = get_current().get(_sdk.RUN_KEY)
            if isinstance(node, Run) and node.subject is subject:
                return node, False
            run = self._shape.begin(subject)
        except Exception as error:  # noqa: BLE001 - the guard
            swallow("seams.open_run", error)
            return None, False
        run.subject = subject
        return run, True

    def _close_run(
        self, run: Run | None, *, owns: bool, result: Any = None, error: BaseException | None = None
    ) -> None:
        if run is None:
            return
        outcome = None
        try:
            run.end_iterations(error)
            if not owns:
                return
            if error is None:
                state = run.state
                remember_guard_events(result, state.guard_events, fired_inside=state.child_doom_loop)
                outcome = self._shape.finish(run, result)
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("seams.close_run", problem)
        try:
            run.end(error, outcome)
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("seams.end_run", problem)
        run.subject = None

    # Iterations ------------------------------------------------------------------------------------------

    def _wrap_ask(self, original: Callable[..., Any], *, is_async: bool) -> Callable[..., Any]:
        if is_async:

            async def ask_async(subject: Any, *args: Any, **kwargs: Any) -> Any:
                it = self._open_iteration(subject, args, kwargs)
                try:
                    output = original(subject, *args, **kwargs)
                    if inspect.isawaitable(output):
                        output = await output
                finally:
                    if it is not None:
                        it.producing = False
                if it is not None:
                    it.output = output if isinstance(output, str) else None
                return output

            return ask_async

        def ask(subject: Any, *args: Any, **kwargs: Any) -> Any:
            it = self._open_iteration(subject, args, kwargs)
            try:
                output = original(subject, *args, **kwargs)
            finally:
                if it is not None:
                    it.producing = False
            if it is not None:
                it.output = output if isinstance(output, str) else None
            return output

        return ask

    def _open_iteration(
        self, subject: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Iteration | None:
        """Begin the iteration that a call asks the agent for, unless an overriding method has begun it."""
        try:
            if not self._patches.active:
                return None
            node: Any = get_current().get(_sdk.RUN_KEY)
            if node is None or node.run.subject is not subject:
                return None
            run: Run = node.run
            if isinstance(node, Iteration) and node.producing:
                return None
            run.end_iterations()
            number = kwargs.get("iteration", args[1] if len(args) > 1 else None)
            it = Iteration(run, number if isinstance(number, int) and not isinstance(number, bool) else None)
            it.begin()
            it.producing = True
        except Exception as error:  # noqa: BLE001 - the guard
            swallow("seams.open_iteration", error)
            return None
        return it

    def _wrap_score(self, original: Callable[..., Any], *, is_async: bool) -> Callable[..., Any]:
        if is_async:

            async def score_async(subject: Any, *args: Any, **kwargs: Any) -> Any:
                it = self._scoring(subject)
                try:
                    verdict = original(subject, *args, **kwargs)
                    if inspect.isawaitable(verdict):
                        verdict = await verdict
                finally:
                    if it is not None:
                        it.scoring = False
                self._scored(it, verdict)
                return verdict

            return score_async

        def score(subject: Any, *args: Any, **kwargs: Any) -> Any:
            it = self._scoring(subject)
            try:
                verdict = original(subject, *args, **kwargs)
            finally:
                if it is not None:
                    it.scoring = False
            self._scored(it, verdict)
            return verdict

        return score

    def _scoring(self, subject: Any) -> Iteration | None:
        """The iteration that a verdict is for, unless an overriding method has it in hand."""
        try:
            node: Any = get_current().get(_sdk.RUN_KEY)
            if not self._patches.active or node is None or node.run.subject is not subject:
                return None
            it: Iteration | None = node.run.iteration
            if it is None or it.scoring:
                return None
            it.scoring = True
        except Exception as error:  # noqa: BLE001 - the guard
            swallow("seams.scoring", error)
            return None
        return it

    def _scored(self, it: Iteration | None, verdict: Any) -> None:
        if it is None:
            return
        try:
            self._shape.score(it, verdict)
        except Exception as error:  # noqa: BLE001 - the guard
            swallow("seams.scored", error)
        # A stop that was asked for waits for the next iteration: raised here, it would cost the loop the
        # answer that has just been scored, which may be its best.


def _family(base: type) -> list[type]:
    """A class and all its subclasses."""
    family = [base]
    for cls in family:
        family.extend(sub for sub in cls.__subclasses__() if sub not in family)
    return family
