"""Runs as the receiving side hands them to the store, made of built spans by the real replay."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from otel_loopeval import semconv
from otel_loopeval.runs.reconstruct import replay
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.runs.tracker import Tracker
from otel_loopeval.server.served import ServedRun
from otel_loopeval.testing import FixedClock, TraceBuilder

NOW_NS = 1_790_000_000_000_000_000
"""2026-09-21, a little after 14:13 UTC."""


def served_all(
    spans: Sequence[SpanData], *, closed_ns: int = NOW_NS, service: str = "shop", complete: bool = True
) -> list[ServedRun]:
    """The runs of a trace."""
    return [
        ServedRun(
            run=run,
            verdict=verdict,
            root=root,
            spans=tuple(spans),
            trace_id=spans[0].trace_id,
            service=service,
            environment="test",
            complete=complete,
            closed_ns=closed_ns,
        )
        for run, verdict, root in replay(spans, Tracker())
    ]


def served(
    scores: Sequence[float | None],
    *,
    trace_id: int = 1,
    agent: str = "writer",
    doom_loop: bool = False,
    closed_ns: int = NOW_NS,
    service: str = "shop",
    attributes: dict[str, Any] | None = None,
) -> ServedRun:
    """A run of these scores; with a doom loop in its second iteration if told."""
    builder = TraceBuilder(trace_id, FixedClock(closed_ns - 60_000_000_000))
    event = builder.guard_event(semconv.KIND_REPEATED_ACTION, tool="search", count=5, iteration=2)
    events = {2: [replace(event, time_ns=event.time_ns + 1_500_000_000)]} if doom_loop else {}
    builder.run(scores, agent=agent, events=events, attributes=attributes)
    (run,) = served_all(builder.spans, closed_ns=closed_ns, service=service)
    return run


def agent_with_repeats(
    trace_id: int = 7,
    *,
    agent: str = "researcher",
    closed_ns: int = NOW_NS,
    content: bool = True,
    turns: int = 6,
) -> ServedRun:
    """Somebody else's agent that calls one tool again and again, in turns of a model call and a tool call."""
    builder = TraceBuilder(trace_id, FixedClock(closed_ns - 120_000_000_000))
    root_id, start_ns = builder.span_id(), builder.clock.now_ns
    for turn in range(turns):
        builder.span(
            "chat gpt-5",
            parent_id=root_id,
            duration_s=1.5,
            scope="openai",
            attributes={
                semconv.GEN_AI_OPERATION_NAME: "chat",
                semconv.GEN_AI_REQUEST_MODEL: "gpt-5",
                semconv.GEN_AI_USAGE_INPUT_TOKENS: 900 + 150 * turn,
                semconv.GEN_AI_USAGE_OUTPUT_TOKENS: 60,
            },
        )
        attributes: dict[str, Any] = {
            semconv.GEN_AI_OPERATION_NAME: "execute_tool",
            semconv.GEN_AI_TOOL_NAME: "search" if turn else "list_sources",
        }
        if content:
            attributes[semconv.GEN_AI_TOOL_CALL_ARGUMENTS] = (
                '{"query": "<b>otters</b>", "pages": 3}' if turn else "{}"
            )
            attributes[semconv.GEN_AI_TOOL_CALL_RESULT] = '{"hits": 0}' if turn else "wikipedia, books"
        builder.span(
            f"execute_tool {attributes[semconv.GEN_AI_TOOL_NAME]}",
            parent_id=root_id,
            duration_s=0.5,
            scope="tools",
            attributes=attributes,
        )
    builder.span(
        f"invoke_agent {agent}",
        span_id=root_id,
        start_ns=start_ns,
        duration_s=(builder.clock.now_ns - start_ns) / 1e9,
        scope="openai",
        attributes={semconv.GEN_AI_OPERATION_NAME: "invoke_agent", semconv.GEN_AI_AGENT_NAME: agent},
    )
    (run,) = served_all(builder.spans, closed_ns=closed_ns)
    return run
