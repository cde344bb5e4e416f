"""Traces of very many spans are judged in a thread: on the event loop, nobody would be answered meanwhile."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from otel_loopeval.server.served import ServedRun
from otel_loopeval.server.traces.judging import Closed

_log: Final = logging.getLogger("otel_loopeval.serve")


class Aside:
    """Traces that are over and wait to be judged, one after the other. It belongs to one event loop."""

    def __init__(self) -> None:
        self._waiting: deque[Closed] = deque()
        self._current: asyncio.Future[list[ServedRun]] | None = None

    def add(self, closed: Closed) -> None:
        """Have a trace judged."""
        self._waiting.append(closed)

    async def work(
        self,
        judge: Callable[[Closed], list[ServedRun]],
        deliver: Callable[[Closed, list[ServedRun] | None], object],
    ) -> None:
        """Judge all that wait. Cancelled, it goes on where it was when it is called again.

        Args:
            judge: Judges a trace, in any thread.
            deliver: Takes the runs of a trace, on the event loop; None where it could not be judged.
        """
        for _ in range(len(self._waiting)):  # what comes meanwhile is for the next call: others wait, too
            if self._current is None:
                self._current = asyncio.ensure_future(asyncio.to_thread(judge, self._waiting[0]))
            runs: list[ServedRun] | None = None
            try:
                runs = await asyncio.shield(self._current)
            except Exception:  # noqa: BLE001 - whatever it was, the others shall be judged
                _log.exception("this should not have happened; going on")
            self._current = None
            deliver(self._waiting.popleft(), runs)
