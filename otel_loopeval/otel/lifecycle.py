"""The ends of a process: exit, SIGTERM and fork, with runs still open.

* Exit hooks run last in, first out. Ours is registered when the first run begins, after the providers'
  own, so that interrupted runs are recorded before the providers shut down.
* SIGTERM runs no exit hooks. Where nobody else handles it, our handler finishes the open runs on a helper
  thread (recording inside the handler can deadlock on a lock that the interrupted code holds), waits for
  it for a bounded time, and dies of the signal as the process would have.
* A forked child starts with an empty table and new locks; the runs that are open belong to the parent.
"""

import atexit
import os
import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from otel_loopeval import semconv
from otel_loopeval.otel import errors

if TYPE_CHECKING:
    from otel_loopeval.otel.pipeline import Pipeline

SIGTERM_TIMEOUT_S = 5.0
"""How long a process that got SIGTERM waits for its runs to be recorded and exported."""

_pipelines: "WeakSet[Pipeline]" = WeakSet()
_installed = threading.Lock()
_state: dict[str, Any] = {"sigterm": False, "forked_after_runs": False, "warned": False}


def watch(pipeline: "Pipeline") -> None:
    """Record the open runs of a pipeline when the process ends. Called as its first run begins."""
    with _installed:
        _pipelines.add(pipeline)
        # Again each time, so that it stays behind the providers that were made meanwhile.
        atexit.unregister(finish_open_runs)
        atexit.register(finish_open_runs)
        if pipeline.options.sigterm:
            handle_sigterm()


@errors.guarded("lifecycle.finish_open_runs")
def finish_open_runs() -> None:
    """End every open run as interrupted."""
    for pipeline in list(_pipelines):
        for state in pipeline.tracker.open_runs():
            try:
                if state.owner is not None:
                    state.owner.end(outcome=semconv.OUTCOME_INTERRUPTED)
                else:
                    pipeline.interrupt(state)
            except Exception as error:  # noqa: BLE001, PERF203 - the other runs still want to be recorded
                errors.swallow("lifecycle.finish_run", error)


def note_run() -> None:
    """A run begins: warn, once, if the process was forked after it had recorded others."""
    if _state["forked_after_runs"] and not _state["warned"]:
        _state["warned"] = True
        errors.warn_once(
            "otel-loopeval: this process was forked from one that had recorded runs; the OpenTelemetry SDK "
            "exports the parent's counts again from here. Fork before the first run to have exact counts."
        )


def handle_sigterm() -> None:
    """Handle SIGTERM, only where the process would have died of it and Python lets us.

    Called by ``instrument()`` too, which programs call on the main thread; their first run may not be there.
    """
    if _state["sigterm"] or threading.current_thread() is not threading.main_thread():
        return
    try:
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _on_sigterm)
            _state["sigterm"] = True
    except (ValueError, OSError):  # an interpreter that allows no handlers
        return


def _on_sigterm(signum: int, _frame: object) -> None:
    worker = threading.Thread(target=_finish_and_flush, name="otel-loopeval-sigterm", daemon=True)
    try:
        worker.start()
        worker.join(SIGTERM_TIMEOUT_S)
    finally:
        signal.signal(signum, signal.SIG_DFL)
        os.kill(os.getpid(), signum)


def _finish_and_flush() -> None:
    finish_open_runs()
    for pipeline in list(_pipelines):
        try:
            pipeline.flush(int(SIGTERM_TIMEOUT_S * 1000) - 500)
        except Exception as error:  # noqa: BLE001, PERF203 - the process is about to die; the next provider may work
            errors.swallow("lifecycle.flush", error)


def after_fork_in_child(renew: Callable[[], None]) -> None:
    """Have something done in every forked child from now on."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=errors.guarded("lifecycle.after_fork")(renew))


def _forget_what_is_the_parents() -> None:
    global _installed  # noqa: PLW0603 - the parent's lock may be held by a thread that is not here
    _installed = threading.Lock()
    for pipeline in list(_pipelines):
        if pipeline.has_recorded:
            _state["forked_after_runs"] = True
        pipeline.forget()


after_fork_in_child(_forget_what_is_the_parents)
