"""The store of ``serve``: runs and spans written per second, and how long a list takes, of very many runs.

    python tests/benchmarks/bench_store.py [--runs 100000] [--rounds 30] [--tenants 20]

Runs of three iterations by 45 agents of 5 services, one in twenty of them unhealthy, each 5 seconds after the
one before. Writing is wall-clock time with commits (synchronous); times of reading are medians and the worst.
Pages are whole answers in HTML, without the network. With tenants, the runs are theirs in turn, 20 at a time,
and lists are those of one of them.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import httpx
from support.served_runs import NOW_NS, agent_with_repeats, served

from otel_loopeval.server.page import page_app
from otel_loopeval.server.store.queries import Cursor, RunFilter
from otel_loopeval.server.store.store import Store

APART_NS = 5_000_000_000
AT_ONCE = 10_000


def fill(store: Store, count: int, tenants: int) -> float:
    """Put runs into the store; returns the seconds that it took."""
    good = [served([4.0, 6.0, 9.0], agent=f"agent-{n}", service=f"service-{n % 5}") for n in range(40)]
    bad = [served([1.0, 2.0, 3.0], agent=f"agent-{n}", doom_loop=n % 2 == 0) for n in range(40, 45)]
    waiting: list[Future[None]] = []
    start = perf_counter()
    for n in range(count):
        run = good[n % 40] if n % 20 else bad[n // 20 % 5]
        assert run.root is not None
        root = replace(run.root, trace_id=n + 1)
        closed_ns = NOW_NS - (count - n) * APART_NS
        tenant = f"tenant-{n // 20 % tenants}" if tenants else ""
        run = replace(run, trace_id=n + 1, root=root, closed_ns=closed_ns, tenant=tenant)
        waiting.append(store.put_run(run))
        if len(waiting) == AT_ONCE:
            for future in waiting:
                future.result()
            waiting.clear()
    for future in waiting:
        future.result()
    return perf_counter() - start


def spans_per_second(store: Store, traces: int) -> float:
    """Spans of open traces that are written per second, a call for each trace."""
    spans = served([4.0, 6.0, 9.0]).spans
    start = perf_counter()
    waiting = [
        store.put_spans([replace(span, trace_id=2**64 + trace) for span in spans]) for trace in range(traces)
    ]
    for future in waiting:
        future.result()
    return traces * len(spans) / (perf_counter() - start)


def measure(name: str, rounds: int, read: Callable[[], object]) -> None:
    """Print how long a reading takes."""
    times: list[float] = []
    for _ in range(rounds):
        start = perf_counter()
        read()
        times.append(perf_counter() - start)
    times.sort()
    print(f"{name:44} {times[rounds // 2] * 1e3:7.1f} ms   worst {times[-1] * 1e3:7.1f} ms")


def page(app: Any, path: str) -> bytes:
    """A page as its server sends it."""

    async def get() -> bytes:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answer = await client.get(path)
        assert answer.status_code == 200, path
        return answer.content

    return asyncio.run(get())


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--tenants", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "runs.db")
        store = Store(path, clock=lambda: NOW_NS)
        seconds = fill(store, options.runs, options.tenants)
        print(f"{options.runs:,} runs: {options.runs / seconds:,.0f} runs/s written")
        print(f"open spans: {spans_per_second(store, 2_000):,.0f} spans/s written")
        view = store.view("tenant-0" if options.tenants else None)
        last = NOW_NS - options.runs * APART_NS
        middle = NOW_NS - options.runs // 2 * APART_NS
        lists: dict[str, tuple[RunFilter, Cursor | None]] = {
            "first page": (RunFilter(), None),
            "page in the middle": (RunFilter(), Cursor(middle, "")),
            "last page": (RunFilter(), Cursor(last + 50 * APART_NS, "")),
            "unhealthy": (RunFilter("unhealthy"), None),
            "doom loop": (RunFilter("doom_loop"), None),
            "no verdict (there are none)": (RunFilter("none"), None),
            "agent": (RunFilter(agent="agent-7"), None),
            "agent, unhealthy (there are none)": (RunFilter("unhealthy", "agent-7"), None),
            "service": (RunFilter(service="service-3"), None),
            "service and agent": (RunFilter(agent="agent-7", service="service-2"), None),
            "last hour": (RunFilter(since_ns=NOW_NS - 3_600_000_000_000), None),
        }
        for name, (asked, cursor) in lists.items():
            measure(name, options.rounds, lambda asked=asked, cursor=cursor: view.runs(asked, cursor))
        measure("counts of all verdicts", options.rounds, lambda: view.counts(RunFilter()))
        measure("names of agents and services", options.rounds, view.choices)
        key = view.runs(RunFilter()).runs[0].key
        measure("one run", options.rounds, lambda: view.run(key))
        app = page_app(store, clock=lambda: NOW_NS)
        long = agent_with_repeats(2**100, turns=10_000)
        store.put_run(long).result()
        measure("page of the list", options.rounds, lambda: page(app, "/"))
        measure("page of a run of 3 iterations", options.rounds, lambda: page(app, f"/runs/{key}"))
        long_key = f"{2**100:032x}-{1:016x}"
        measure(
            f"page of a run of {len(long.spans):,} spans",
            max(options.rounds // 6, 1),
            lambda: page(app, f"/runs/{long_key}"),
        )
        store.close()
        print(f"{path.stat().st_size / options.runs:,.0f} bytes a run")


if __name__ == "__main__":
    main()
