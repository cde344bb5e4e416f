"""Runs in segments: what a paused run hands over to the segment that goes on with it, maybe elsewhere.

A run that waits for an approval ends as ``paused``, and another process may go on with it hours later. What
it has done so far is handed over in a token, a line of JSON that the program keeps with the rest of its
state, so that the last segment is judged as the whole run. The token holds numbers and identifiers only.
"""

import json
import math
import re
import threading
from collections import OrderedDict
from typing import Any, Final, NamedTuple, cast

from otel_loopeval import semconv
from otel_loopeval.health.guards import GuardEvent
from otel_loopeval.runs.run import MAX_ITERATIONS_KEPT, IterationState, LoopRun
from otel_loopeval.runs.usage import Spending

_VERSION: Final = 1

# https://www.w3.org/TR/trace-context/#traceparent-header: later versions may append fields.
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")


class Segment(NamedTuple):
    """What is known of the segment before.

    Attributes:
        trace_id: Trace of its root span; 0 where that was not recorded.
        span_id: Its root span; 0 where that was not recorded.
        run_id: Identifier of the run; None where only the span is known.
        facts: What the run had done, as the token has it.
    """

    trace_id: int
    span_id: int
    run_id: str | None
    facts: dict[str, Any]


def token_of(run: LoopRun, paused_ns: int, trace_id: int = 0, span_id: int = 0) -> str:
    """What a segment hands over.

    Args:
        run: The run.
        paused_ns: When the segment ended, in nanoseconds since the epoch.
        trace_id: Trace of its root span, if that is recorded.
        span_id: Its root span.
    """
    facts = {
        "v": _VERSION,
        "id": run.id,
        "span": f"{trace_id:032x}-{span_id:016x}",
        "ns": max(paused_ns - run.started_ns, 0) + run.carried_ns,
        "iterations": [
            [iteration.number, iteration.score, _spending(iteration.spending)] for iteration in run.iterations
        ],
        "dropped": run.dropped_iterations,
        "interventions": run.interventions,
        "doom_loops": list(dict.fromkeys(event.kind for event in run.guard_events if event.doom_loop)),
        "child_doom_loop": run.child_doom_loop,
        "over_budget": run.budget_exceeded,
        "spending": _spending(run.spending),
        "judges": _spending(run.judge_spending),
    }
    return json.dumps(facts, allow_nan=False, separators=(",", ":"))


def read_token(token: str) -> Segment:
    """Read a token, or a W3C ``traceparent`` for a link to the segment before and nothing more.

    Raises:
        ValueError: It is neither.
    """
    match = _TRACEPARENT.fullmatch(token)
    if match is not None:
        return Segment(int(match[1], 16), int(match[2], 16), None, {})
    try:
        facts: Any = json.loads(token)
        trace_id, span_id = (int(part, 16) for part in facts["span"].split("-"))
        segment = Segment(trace_id, span_id, facts["id"], cast("dict[str, Any]", facts))
        if facts["v"] != _VERSION or not isinstance(segment.run_id, str):
            raise ValueError  # noqa: TRY301 - all that is wrong with it is told below
        carry_over(segment, LoopRun("", started_ns=0))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        shown = token if len(token) <= _SHOWN else token[:_SHOWN] + "…"
        raise ValueError(
            f"resume must be what run.paused() gave, or a W3C traceparent, got {shown!r}"
        ) from None
    return segment


class Segments:
    """Runs that have paused, for the segments that go on with them: spans tell of each by itself.

    Bounded: of very many, the latest. Thread-safe, since trackers that share them may be in several threads.

    Args:
        max_bytes: What their tokens may take; one of 10,000 iterations takes 200 kB.
    """

    def __init__(self, *, max_bytes: int = 64 * 1024 * 1024) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._lock = threading.Lock()  # protects the tokens, their order and what they take
        self._tokens: OrderedDict[str, str] = OrderedDict()

    def paused(self, run: LoopRun, paused_ns: int) -> None:
        """A segment has ended, and the run may go on."""
        token = token_of(run, paused_ns)
        with self._lock:
            self._bytes += len(token) - len(self._tokens.pop(run.id, ""))  # it is ASCII
            self._tokens[run.id] = token
            while len(self._tokens) > _KEPT or self._bytes > self._max_bytes:
                self._bytes -= len(self._tokens.popitem(last=False)[1])

    def go_on(self, run: LoopRun) -> bool:
        """A segment begins: let it go on from the one before.

        Returns:
            Whether that is known, and makes sense: whoever sends spans can make them up.
        """
        with self._lock:
            token = self._tokens.get(run.id)
        if token is None:
            return False
        try:
            segment = read_token(token)
        except ValueError:
            return False
        carry_over(segment, run)
        return True


_KEPT: Final = 10_000
_SHOWN: Final = 80


def carry_over(segment: Segment, run: LoopRun) -> None:
    """Let a run go on from the segment before.

    Raises:
        ValueError, TypeError, KeyError: The facts are not as :func:`token_of` has them.
    """
    facts = segment.facts
    run.resumed = True
    if not facts:
        return
    iterations: list[IterationState] = []
    for number, score, spending in facts["iterations"]:
        iteration = IterationState(_count(number), run.started_ns)
        iteration.score = None if score is None else _finite(score)
        iteration.spending = _read_spending(spending)
        iterations.append(iteration)
    run.carried_ns = _count(facts["ns"])
    run.iterations = iterations[:MAX_ITERATIONS_KEPT]
    run.dropped_iterations = _count(facts["dropped"])
    run.carried_iterations = run.iteration_count
    run.interventions = _count(facts["interventions"])
    for kind in facts["doom_loops"]:
        if kind not in semconv.GUARD_KINDS:
            raise ValueError(kind)
        run.guard_events.append(GuardEvent(kind=kind, doom_loop=True, time_ns=run.started_ns))
    run.carried_guard_events = len(run.guard_events)
    run.own_doom_loop = bool(facts["doom_loops"])
    run.child_doom_loop = facts["child_doom_loop"] is True
    run.budget_exceeded = facts["over_budget"] is True
    # Read twice: what the run has spent grows.
    run.spending, run.carried_spending = (_read_spending(facts["spending"]) for _ in range(2))
    run.judge_spending, run.carried_judge_spending = (_read_spending(facts["judges"]) for _ in range(2))


def _spending(spending: Spending | None) -> list[Any] | None:
    if spending is None:
        return None
    return [spending.input_tokens, spending.output_tokens, spending.known_cost_usd, spending.unpriced]


def _read_spending(value: Any) -> Spending | None:
    if value is None:
        return None
    input_tokens, output_tokens, cost_usd, unpriced = value
    spending = Spending()
    spending.input_tokens, spending.output_tokens = _count(input_tokens), _count(output_tokens)
    spending.known_cost_usd = _finite(cost_usd)
    spending.unpriced = unpriced is not False
    return spending


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(value)
    return value


def _finite(value: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        raise TypeError(value)
    return float(value)
