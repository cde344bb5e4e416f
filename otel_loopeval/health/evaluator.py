"""The evaluator: from a finished loop result and its guard events to a verdict."""

import os
from math import isfinite
from numbers import Integral, Number
from typing import Any

from otel_loopeval import semconv
from otel_loopeval.health._saving import check_template, save
from otel_loopeval.health.assessment import assess
from otel_loopeval.health.captured import captured_guard_events
from otel_loopeval.health.guards import tally_guard_events
from otel_loopeval.health.result import LoopHealthResult

_THRESHOLD = semconv.DEFAULT_THRESHOLD
_OPTIMIZE = semconv.MODE_OPTIMIZE


class LoopEvaluator:
    """Scores the health of a finished loop: convergence, waste, doom loops. No LLM calls, no network.

    A drop-in for ``praisonaiagents.eval.LoopEvaluator``: the same arguments, and the same verdict on
    every input for which that one returns valid JSON, with the few exceptions that the parity test
    lists. Keeps no state between runs, so that one evaluator may serve many threads.

    Args:
        threshold: Score at which a loop has converged; ``None`` for the one on the loop result, and
            8.0 if that has none either.
        max_wasted_iterations: Iterations after convergence that a healthy loop may have.
        name: Name of this evaluation; ``eval_{eval_id}`` if ``None``.
        save_results_path: Where :meth:`run` saves the verdict as JSON; may hold ``{name}`` and
            ``{eval_id}``. The file appears whole or not at all, its folders are made.
        verbose: Whether :meth:`run` prints a summary.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: ``threshold`` is not finite, ``max_wasted_iterations`` is negative, or
            ``save_results_path`` has another placeholder.
    """

    def __init__(
        self,
        threshold: float | None = None,
        max_wasted_iterations: int = 0,
        name: str | None = None,
        save_results_path: str | os.PathLike[str] | None = None,
        verbose: bool = False,
    ) -> None:
        self.threshold = None if threshold is None else _check_threshold(threshold)
        self.max_wasted_iterations = _check_max_wasted(max_wasted_iterations)
        self.save_results_path = None if save_results_path is None else _check_path(save_results_path)
        self.verbose = verbose
        self._name = name
        self._eval_id: dict[str, str] = {}

    @property
    def eval_id(self) -> str:
        """Eight hex digits that identify this evaluator."""
        # Drawn when first asked for: most evaluators are made for one run and never asked.
        # setdefault: of two threads that ask at once, one wins for both.
        return self._eval_id.get("") or self._eval_id.setdefault("", os.urandom(4).hex())

    @property
    def name(self) -> str:
        """Name of this evaluation."""
        return self._name or f"eval_{self.eval_id}"

    @name.setter
    def name(self, name: str | None) -> None:
        self._name = name

    def run(self, loop_result: Any, guard_events: Any = None, **kwargs: Any) -> LoopHealthResult:  # noqa: ARG002 - suites pass what other evaluators take
        """Judge a finished loop.

        Args:
            loop_result: An ``EvaluationLoopResult``, or any object with ``score_history``,
                ``threshold``, ``total_duration_seconds``, ``mode`` and ``success``. An attribute that is
                absent, or that cannot be read, takes its default.
            guard_events: What guards reported: a list or other iterable of dicts or objects (see
                :func:`~otel_loopeval.health.is_doom_loop_event`), or a single one. ``None`` stands for
                the events that were captured while the loop ran, if :func:`~otel_loopeval.instrument` was
                on and this is the very object that the loop returned, else for no events. What is given
                wins: an empty list means that there were none.
            **kwargs: Ignored, so that suites can pass what other evaluators take.

        Returns:
            The verdict.

        Raises:
            SaveResultsError: The verdict could not be saved; it is the error's ``result``.
        """
        try:
            scores = list(getattr(loop_result, "score_history", ()) or ())
            threshold = self.threshold
            if threshold is None:
                threshold = float(getattr(loop_result, "threshold", _THRESHOLD))
            duration = float(getattr(loop_result, "total_duration_seconds", 0.0))
            mode = str(getattr(loop_result, "mode", "") or _OPTIMIZE).lower()
            success = getattr(loop_result, "success", None)
            if success is not None and type(success) is not bool:
                success = bool(success)
        except Exception:  # noqa: BLE001 - someone else's properties: read what can be read
            scores, threshold, duration, mode, success = self._read_carefully(loop_result)
        if guard_events is None:
            guard_events = captured_guard_events(loop_result)
        count, fired = tally_guard_events(guard_events) if guard_events is not None else (0, False)
        result = assess(scores, threshold, mode, success, count, fired, duration, self.max_wasted_iterations)
        try:
            if self.save_results_path:
                save(result, self.save_results_path, name=self.name, eval_id=self.eval_id)
        finally:
            if self.verbose:
                result.print_summary()
        return result

    async def run_async(self, loop_result: Any, guard_events: Any = None, **kwargs: Any) -> LoopHealthResult:
        """Judge a finished loop, like :meth:`run`; a file is saved off the event loop.

        Args:
            loop_result: As in :meth:`run`.
            guard_events: As in :meth:`run`.
            **kwargs: As in :meth:`run`.

        Returns:
            The verdict.

        Raises:
            SaveResultsError: As in :meth:`run`.
        """
        if not self.save_results_path:
            return self.run(loop_result, guard_events, **kwargs)
        import asyncio  # noqa: PLC0415 - slow to import, and only this needs it

        return await asyncio.to_thread(self.run, loop_result, guard_events, **kwargs)

    def _read_carefully(self, loop_result: Any) -> tuple[list[Any], float, float, str, bool | None]:
        threshold = self.threshold
        if threshold is None:
            threshold = _read_float(loop_result, "threshold", _THRESHOLD)
        return (
            _read_scores(loop_result),
            threshold,
            _read_float(loop_result, "total_duration_seconds", 0.0),
            _read_mode(loop_result),
            _read_success(loop_result),
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r}, eval_id={self.eval_id!r})"


def _check_threshold(threshold: Any) -> float:
    if isinstance(threshold, bool) or not isinstance(threshold, Number):
        raise TypeError(f"threshold={threshold!r} must be a finite number or None")
    try:
        number = float(threshold)  # pyright: ignore[reportArgumentType] - a complex number raises
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"threshold={threshold!r} must be a finite number or None") from error
    if not isfinite(number):
        raise ValueError(f"threshold={threshold!r} must be a finite number or None")
    return number


def _check_max_wasted(max_wasted_iterations: Any) -> int:
    if isinstance(max_wasted_iterations, bool) or not isinstance(max_wasted_iterations, Integral):
        raise TypeError(f"max_wasted_iterations={max_wasted_iterations!r} must be an int of at least 0")
    if max_wasted_iterations < 0:
        raise ValueError(f"max_wasted_iterations={max_wasted_iterations!r} must be an int of at least 0")
    return int(max_wasted_iterations)


def _check_path(save_results_path: Any) -> str:
    path: Any = save_results_path
    if isinstance(path, os.PathLike):
        path = os.fspath(path)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - of str or bytes
    if not isinstance(path, str):
        raise TypeError(f"save_results_path={save_results_path!r} must be a str, a path of str, or None")
    check_template(path)
    return path


def _read_scores(loop_result: Any) -> list[Any]:
    try:
        history = getattr(loop_result, "score_history", ())
    except Exception:  # noqa: BLE001 - a property may raise anything; so below
        return []
    try:
        return list(history)
    except Exception:  # noqa: BLE001
        return []


def _read_float(loop_result: Any, name: str, default: float) -> float:
    try:
        return float(getattr(loop_result, name, default))
    except Exception:  # noqa: BLE001
        return default


def _read_mode(loop_result: Any) -> str:
    try:
        return str(getattr(loop_result, "mode", "") or _OPTIMIZE).lower()
    except Exception:  # noqa: BLE001
        return _OPTIMIZE


def _read_success(loop_result: Any) -> bool | None:
    try:
        success = getattr(loop_result, "success", None)
        return None if success is None else bool(success)
    except Exception:  # noqa: BLE001
        return None
