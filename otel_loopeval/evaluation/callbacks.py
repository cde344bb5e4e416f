"""Calling ``on_iteration``: what it raises is logged and ignored, except for ``BaseException``."""

import logging
from collections.abc import Callable
from typing import Any

from otel_loopeval.evaluation import calls
from otel_loopeval.evaluation.results import IterationResult

_log = logging.getLogger(__name__)


def notify(callback: Callable[[IterationResult], Any] | None, iteration: IterationResult) -> None:
    """Call the callback, if there is one."""
    if callback is not None:
        try:
            calls.call(callback, iteration)
        except Exception as error:  # noqa: BLE001  # a callback must not end the loop
            _report(error)


async def notify_async(callback: Callable[[IterationResult], Any] | None, iteration: IterationResult) -> None:
    """Await an async callback; call a sync one in a worker thread."""
    if callback is not None:
        try:
            await calls.call_async(callback, iteration)
        except Exception as error:  # noqa: BLE001  # a callback must not end the loop
            _report(error)


def _report(error: Exception) -> None:
    # Messages and tracebacks may hold content, so they stay out of ordinary logs.
    _log.warning("on_iteration raised %s, which is ignored", type(error).__name__)
    _log.debug("on_iteration raised", exc_info=error)
