"""Patching loop classes at their seams, in place and reversibly.

A loop class has methods at which a run begins, an iteration begins and a verdict comes in. They are patched
on the class that defines them (references to it may be anywhere), which may be a mixin, on the subclasses
that override them, and on those that are defined later. An iteration lasts from the call that begins it
until the next one or the end of the run, so that the callbacks of the loop run inside it.

One loop object may run several times at once: nothing is kept on it, everything on the run in the context.
"""

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from opentelemetry.context import get_current

from otel_loopeval.evaluation.stop import stops_in
from otel_loopeval.health import remember_guard_events
from otel_loopeval.instrumentation.patches import Patches
from otel_loopeval.instrumentation.shapes import Call, Driven, LoopShape, driven
from otel_loopeval.otel import _sdk
from otel_loopeval.otel.errors import guarded, swallow, warn_once
from otel_loopeval.otel.iterations import Iteration
from otel_loopeval.otel.judging import Judging
from otel_loopeval.otel.live import Run
from otel_loopeval.otel.node import leave

__all__ = ["LoopSeams", "LoopShape"]


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
        # Weak: programs make classes as they go, and what wraps a method holds its class.
        self._patched: WeakKeyDictionary[type, set[str]] = WeakKeyDictionary()
        self._wrappers: WeakSet[Callable[..., Any]] = WeakSet()

    def patch(self) -> None:
        """Patch the class, its subclasses, and those to come."""
        for cls in _family(self._base):
            self._patch_class(cls)
        self._patch_init_subclass()

    def restore(self) -> None:
        """Put the original methods back, where nobody has patched over ours."""
        self._patches.restore()
        for reference in self._patched.keyrefs():
            owner = reference()
            for name in () if owner is None else self._patched.get(owner, ()):
                ours: Any = owner.__dict__.get(name)
                if inspect.isfunction(ours) and ours in self._wrappers:
                    setattr(owner, name, ours.__wrapped__)  # type: ignore[reportFunctionMemberAccess]  # wraps() set it
        self._patched.clear()

    def _patch_class(self, cls: type) -> None:
        shape = self._shape
        for names, wrap in (
            (shape.runs, self._wrap_run),
            (shape.turns, self._wrap_turn),
            (shape.asks, self._wrap_ask),
            (shape.scores, self._wrap_score),
            (shape.notes, self._wrap_note),
        ):
            for name in names:
                owner = next((owner for owner in cls.__mro__ if name in owner.__dict__), None)
                original = None if owner is None else owner.__dict__[name]
                if owner is None or not inspect.isfunction(original):
                    continue
                patched = self._patched.setdefault(owner, set())
                if name in patched:
                    continue
                patched.add(name)
                if inspect.isgeneratorfunction(original) or inspect.isasyncgenfunction(original):
                    # What it does, it does later, in the contexts of whoever advances it.
                    warn_once(f"otel-loopeval: {original.__qualname__} is a generator and is not followed")
                    continue
                # A subclass may override an async method by a plain one that returns an awaitable.
                is_async = (
                    inspect.iscoroutinefunction(original)
                    or name.endswith("_async")
                    or name in shape.coroutines
                )
                ours = functools.wraps(original)(wrap(name, original, is_async=is_async))
                self._wrappers.add(ours)
                setattr(owner, name, ours)

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

    def _wrap_run(self, name: str, original: Callable[..., Any], *, is_async: bool) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(original):

            async def run_async(subject: Any, *args: Any, **kwargs: Any) -> Any:
                begin = functools.partial(original, subject, *args, **kwargs)
                return await self._follow(subject, Call(name, args, kwargs), begin)

            return run_async

        if is_async:

            def run_plain(subject: Any, *args: Any, **kwargs: Any) -> Any:
                result = original(subject, *args, **kwargs)
                if not inspect.iscoroutine(result):
                    return result  # such as a task, which goes on without being awaited
                return self._follow(subject, Call(name, args, kwargs), lambda: result)

            return run_plain

        def run_sync(subject: Any, *args: Any, **kwargs: Any) -> Any:
            outer = get_current()
            run, owns = self._open_run(subject, Call(name, args, kwargs))
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

    async def _follow(self, subject: Any, call: Call, begin: Callable[[], Awaitable[Any]]) -> Any:
        """Await what a run method returns, as a run."""
        outer = get_current()
        run, owns = self._open_run(subject, call)
        try:
            result = await begin()
        except BaseException as error:
            self._close_run(run, owns=owns, error=error)
            raise
        else:
            self._close_run(run, owns=owns, result=result)
            return result
        finally:
            if owns:
                leave(run, outer)

    def _open_run(self, subject: Any, call: Call) -> tuple[Run | None, bool]:
        """The run that a call of a run method belongs to, and whether the call opened it.

        An overriding method that calls ``super().run()``, and one run method that calls another, are still
        the same run: they are one if no iteration is open. Inside an iteration the same object is running
        a loop within its own loop.
        """
        try:
            if not self._patches.active or not isinstance(subject, self._base):
                return None, False
            node: Any = get_current().get(_sdk.RUN_KEY)
            if isinstance(node, Run) and _drives(subject, node):
                return node, False
            known = Driven(subject, call)
            run = self._shape.begin(subject, call)
        except Exception as error:  # noqa: BLE001 - the guard
            swallow("seams.open_run", error)
            return None, False
        run.subject = known
        return run, True

    def _close_run(
        self, run: Run | None, *, owns: bool, result: Any = None, error: BaseException | None = None
    ) -> None:
        if run is None:
            return
        outcome = None
        told = error
        try:
            if error is None:
                told = self._shape.failure(run, result)
            elif owns:
                self._attach_partial(run, error)
            run.end_iterations(told)
            if not owns:
                return
            if error is None:
                _remember(run, result)
                outcome = self._shape.finish(run, result)
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("seams.close_run", problem)
        try:
            run.end(told, outcome)
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("seams.end_run", problem)
        run.subject = None

    def _attach_partial(self, run: Run, error: BaseException) -> None:
        """Give ``StopLoop`` the result so far, if it is what ends the run."""
        for stop in stops_in(error):
            stop.partial = None  # not that of a run inside this one
            stop.partial = self._shape.partial(run, stop)
            if stop.partial is not None:
                _remember(run, stop.partial)

    # Iterations ------------------------------------------------------------------------------------------

    def _wrap_turn(self, name: str, original: Callable[..., Any], *, is_async: bool) -> Callable[..., Any]:
        del is_async  # a coroutine is the caller's to await

        def turn(subject: Any, *args: Any, **kwargs: Any) -> Any:
            node = self._node_of(subject)
            if node is not None:
                self._open_iteration(node, Call(name, args, kwargs))
            return original(subject, *args, **kwargs)

        return turn

    def _wrap_ask(self, name: str, original: Callable[..., Any], *, is_async: bool) -> Callable[..., Any]:
        if is_async:

            async def ask_async(subject: Any, *args: Any, **kwargs: Any) -> Any:
                it = self._asking(subject, Call(name, args, kwargs))
                try:
                    output = original(subject, *args, **kwargs)
                    if inspect.isawaitable(output):
                        output = await output
                except Exception as error:
                    self._raised(it, error)
                    raise
                finally:
                    if it is not None:
                        it.producing = False
                self._answered(it, output)
                return output

            return self._where_awaited(original, ask_async)

        def ask(subject: Any, *args: Any, **kwargs: Any) -> Any:
            it = self._asking(subject, Call(name, args, kwargs))
            try:
                output = original(subject, *args, **kwargs)
            except Exception as error:
                self._raised(it, error)
                raise
            finally:
                if it is not None:
                    it.producing = False
            self._answered(it, output)
            return output

        return ask

    def _where_awaited(self, original: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
        """Leave a plain function alone outside of runs: what it returns there, nobody has to await."""
        if inspect.iscoroutinefunction(original):
            return ours

        def plain(subject: Any, *args: Any, **kwargs: Any) -> Any:
            inside = self._node_of(subject) is not None
            return (ours if inside else original)(subject, *args, **kwargs)

        return plain

    def _node_of(self, subject: Any) -> Any:
        """The run that a loop object drives here, or what of it the code is in; None outside of any."""
        try:
            node: Any = get_current().get(_sdk.RUN_KEY)
            inside = node is not None and self._patches.active and _drives(subject, node.run)
        except Exception as error:  # noqa: BLE001 - the guard
            swallow("seams.node_of", error)
            return None
        return node if inside else None

    @guarded("seams.asking")
    def _asking(self, subject: Any, call: Call) -> Iteration | None:
        """The iteration that the agent is asked in, unless it is being asked already.

        Raises:
            StopLoop: The run was asked to stop.
        """
        node = self._node_of(subject)
        if node is None:
            return None
        if any(hasattr(subject, turn) for turn in self._shape.turns):
            it: Iteration | None = node.run.iteration
            if it is None or it.producing:
                return None
        else:
            it = self._open_iteration(node, call)
        if it is not None:
            it.producing = True
        return it

    def _open_iteration(self, node: Any, call: Call) -> Iteration | None:
        """Begin the iteration that a call is for, unless an overriding method has begun it.

        Raises:
            StopLoop: The run was asked to stop.
        """
        try:
            run: Run = node.run
            if isinstance(node, Iteration) and node.producing:
                return None
            run.end_iterations()
            it = Iteration(run, self._shape.number(call))
            it.begin()
        except Exception as error:  # noqa: BLE001 - the guard
            swallow("seams.open_iteration", error)
            return None
        return it

    def _answered(self, it: Iteration | None, output: Any) -> None:
        if it is None:
            return
        try:
            self._shape.answer(it, output)
        except Exception as error:  # noqa: BLE001 - the guard
            swallow("seams.answered", error)

    @guarded("seams.raised")
    def _raised(self, it: Iteration | None, error: Exception) -> None:
        known = None if it is None else driven(it.run)
        if known is not None:
            known.error = error

    def _wrap_note(self, name: str, original: Callable[..., Any], *, is_async: bool) -> Callable[..., Any]:
        del is_async  # as above
        take = self._shape.notes[name]

        def noted(subject: Any, *args: Any, **kwargs: Any) -> Any:
            node = self._node_of(subject)
            if node is not None:
                try:
                    take(node.run, Call(name, args, kwargs))
                except Exception as error:  # noqa: BLE001 - the guard
                    swallow("seams.noted", error)
            return original(subject, *args, **kwargs)

        return noted

    # Verdicts --------------------------------------------------------------------------------------------

    def _wrap_score(self, name: str, original: Callable[..., Any], *, is_async: bool) -> Callable[..., Any]:
        del name
        if is_async:

            async def score_async(subject: Any, *args: Any, **kwargs: Any) -> Any:
                judging = self._judge(subject)
                try:
                    verdict = original(subject, *args, **kwargs)
                    if inspect.isawaitable(verdict):
                        verdict = await verdict
                except BaseException as error:
                    self._judged(judging, error=error)
                    raise
                self._judged(judging, verdict)
                return verdict

            return self._where_awaited(original, score_async)

        def score(subject: Any, *args: Any, **kwargs: Any) -> Any:
            judging = self._judge(subject)
            try:
                verdict = original(subject, *args, **kwargs)
            except BaseException as error:
                self._judged(judging, error=error)
                raise
            self._judged(judging, verdict)
            return verdict

        return score

    def _judge(self, subject: Any) -> Judging | None:
        """Begin to judge the iteration that the code is in, unless an overriding method has begun it."""
        node = self._node_of(subject)
        if node is None:
            return None
        try:
            it: Iteration | None = node.run.iteration
            if it is None or it.scoring or not self._shape.judges(subject):
                return None
            it.scoring = True
            judging = it.evaluating()
            judging.begin()
        except Exception as error:  # noqa: BLE001 - the guard
            swallow("seams.judge", error)
            return None
        return judging

    def _judged(
        self, judging: Judging | None, verdict: Any = None, error: BaseException | None = None
    ) -> None:
        if judging is None:
            return
        it = judging.iteration
        it.scoring = False
        try:
            failure = None if error is not None else self._shape.judge_failure(verdict)
            if failure is not None:
                judging.failed(failure)
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("seams.judge_failure", problem)
        try:
            judging.end(error)
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("seams.end_judging", problem)
        if error is not None:
            return
        try:
            self._shape.score(it, verdict)
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("seams.judged", problem)
        # A stop that was asked for waits for the next iteration: raised here, it would cost the loop the
        # answer that has just been scored, which may be its best.


def _drives(subject: Any, run: Run | None) -> bool:
    """Whether a run is that of a loop object."""
    known = driven(run)
    return known is not None and known.loop is subject


@guarded("seams.remember")
def _remember(run: Run, result: Any) -> None:
    """Let evaluators of the result find the guard events of its run."""
    state = run.state
    remember_guard_events(result, state.guard_events, fired_inside=state.child_doom_loop)


def _family(base: type) -> list[type]:
    """A class and all its subclasses."""
    family = [base]
    for cls in family:
        family.extend(sub for sub in cls.__subclasses__() if sub not in family)
    return family
