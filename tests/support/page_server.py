"""The page over HTTP on a free port of the loopback, as ``serve`` has it, with a store to fill."""

import threading
from collections.abc import Iterable
from pathlib import Path

import uvicorn
from support.served_runs import NOW_NS, agent_with_repeats, served

from otel_loopeval.server.page import PageOptions, page_app
from otel_loopeval.server.served import ServedRun
from otel_loopeval.server.store.store import Store


class PageServer:
    """Serves until it is left.

    Args:
        folder: Where the store's file goes.
        options: What the page is told.
        runs: What is in the store.

    Attributes:
        store: The store.
        url: Where the page is, without a slash at its end.
    """

    def __init__(
        self, folder: Path, options: PageOptions | None = None, runs: Iterable[ServedRun] = ()
    ) -> None:
        self.store = Store(folder / "runs.db", clock=lambda: NOW_NS)
        self.put(runs)
        app = page_app(self.store, options, clock=lambda: NOW_NS)
        self._server = uvicorn.Server(
            uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", lifespan="off", ws="none")
        )
        self._bound = threading.Event()
        startup = self._server.startup

        async def started(sockets: "list[object] | None" = None) -> None:
            await startup(sockets)  # type: ignore[reportArgumentType]
            self._bound.set()

        self._server.startup = started  # type: ignore[reportAttributeAccessIssue] - tells when it listens
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def __enter__(self) -> "PageServer":  # noqa: PYI034 - no Self before Python 3.11
        self._thread.start()
        assert self._bound.wait(30)
        (listening,) = self._server.servers
        self.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.should_exit = True
        self._thread.join()
        self.store.close()

    def put(self, runs: Iterable[ServedRun]) -> None:
        """Put runs into the store, and wait until they are there."""
        for future in [self.store.put_run(run) for run in runs]:
            future.result(30)


def assorted(count: int) -> list[ServedRun]:
    """Runs of every sort, the last first in lists: healthy, wasteful, looping, paused, long."""
    return [_run(n, NOW_NS - (count - n) * 37_000_000_000) for n in range(1, count + 1)]


def _run(n: int, closed_ns: int) -> ServedRun:
    sort = n % 10
    if sort == 0:
        return agent_with_repeats(n, closed_ns=closed_ns, content=n % 20 == 0)
    agent, scores, more = {
        3: ("planner", [3.0, 4.5, 4.4, 4.5, 4.5], {}),
        5: ("writer", [5.0, 8.5, 8.6, 9.0, 9.1], {}),
        6: ("reviewer", [2.0, 3.0], {"loopeval.run.outcome": "paused"}),
        8: ("a-rather-long-name-of-an-agent", [4.0 + i / 12 for i in range(50)], {}),
    }.get(sort, ("writer", [4.0, 6.0 + n % 3, 8.5 + (n % 5) / 4], {}))
    return served(
        scores, trace_id=n, agent=agent, doom_loop=sort == 3, closed_ns=closed_ns, attributes=dict(more)
    )
