"""A fleet's spans: services that call each other, and in some of their traces an agent or a loop at work."""

import random
from collections.abc import Iterator
from typing import Any

from otel_loopeval.runs.spans import SpanData, SpanEvent

START_NS = 1_767_323_045_123_456_000
SERVICES = tuple(
    {"service.name": f"service-{number}", "host.name": f"host-{number}", "k8s.pod.name": f"pod-{number}"}
    for number in range(20)
)
_LOOPS, _AGENTS = "otel_loopeval", "app.agents"
_HTTP = {
    "http.request.method": "GET",
    "http.response.status_code": 200,
    "http.route": "/orders/{id}",
    "url.scheme": "https",
    "server.address": "orders.internal",
    "server.port": 8443,
    "client.address": "10.1.2.3",
    "user_agent.original": "python-requests/2.32",
    "network.protocol.version": "1.1",
}


class Fleet:
    """Makes traces.

    Args:
        seed: The same seed makes the same traces.
        loops: Share of the traces that have a loop or an agent; of their spans about half is theirs.
    """

    def __init__(self, seed: int = 1, loops: float = 0.1) -> None:
        self._random = random.Random(seed)
        self._loops = loops
        self._start_ns = START_NS

    def traces(self, count: int) -> Iterator[list[SpanData]]:
        """Traces of 20 spans."""
        for _ in range(count):
            yield self.trace()

    def trace(self) -> list[SpanData]:
        """One trace, its root first."""
        draw = self._random
        trace_id = draw.getrandbits(128) | 1
        self._start_ns += draw.randrange(1, 10_000_000)
        has_loop = draw.random() < self._loops
        root_id = draw.getrandbits(63) | 1
        spans = [self._span(trace_id, root_id, None, "GET /orders", 0, 9_000)]
        for index in range(9 if has_loop else 19):
            parent = draw.choice(spans).span_id
            spans.append(self._span(trace_id, draw.getrandbits(63) | 1, parent, "GET /stock", index, 100))
        if has_loop:
            spans += self._loop(trace_id, root_id) if draw.random() < 0.5 else self._agent(trace_id, root_id)
        return spans

    def _span(
        self, trace_id: int, span_id: int, parent_id: int | None, name: str, at_ms: int, ms: int, **more: Any
    ) -> SpanData:
        start_ns = self._start_ns + at_ms * 1_000_000
        fields: dict[str, Any] = {
            "attributes": {**_HTTP, "url.path": f"/orders/{span_id}"},
            "scope": "opentelemetry.instrumentation.requests",
            "resource": SERVICES[span_id % len(SERVICES)],
            **more,
        }
        return SpanData(name, trace_id, span_id, parent_id, start_ns, start_ns + ms * 1_000_000, **fields)

    def _loop(self, trace_id: int, parent_id: int) -> list[SpanData]:
        draw = self._random
        resource = SERVICES[parent_id % len(SERVICES)]
        root_id = draw.getrandbits(63) | 1
        found: list[SpanData] = []
        for number in range(1, 5):
            iteration_id = draw.getrandbits(63) | 1
            model_id = draw.getrandbits(63) | 1
            events = ()
            if draw.random() < 0.1:
                told = {"loopeval.guard.kind": "repeated_action", "loopeval.guard.doom_loop": True}
                events = (SpanEvent("loopeval.guard", self._start_ns + number * 100_000_000, told),)
            score = round(draw.uniform(4, 10), 1)
            told = {"loopeval.iteration.number": number, "loopeval.iteration.score": score}
            name, at = "evaluation_loop.iteration", 10 + number * 100
            found += [
                self._chat(trace_id, model_id, iteration_id, at + 1, resource),
                self._span(
                    trace_id,
                    iteration_id,
                    root_id,
                    name,
                    at,
                    90,
                    attributes=told,
                    events=events,
                    scope=_LOOPS,
                    resource=resource,
                ),
            ]
        told = {
            "gen_ai.operation.name": "invoke_workflow",
            "gen_ai.agent.name": draw.choice(("writer", "planner", "coder")),
            "loopeval.run.mode": draw.choice(("optimize", "review")),
            "loopeval.run.threshold": 8.0,
            "loopeval.run.max_iterations": 4,
        }
        root = self._span(
            trace_id,
            root_id,
            parent_id,
            "evaluation_loop writer",
            10,
            600,
            attributes=told,
            scope=_LOOPS,
            resource=resource,
        )
        return [*found, root]

    def _agent(self, trace_id: int, parent_id: int) -> list[SpanData]:
        draw = self._random
        resource = SERVICES[parent_id % len(SERVICES)]
        root_id = draw.getrandbits(63) | 1
        found: list[SpanData] = []
        stuck = draw.random() < 0.3
        for turn in range(4):
            model_id, tool_id = draw.getrandbits(63) | 1, draw.getrandbits(63) | 1
            found.append(self._chat(trace_id, model_id, root_id, 10 + turn * 100, resource))
            told = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "search",
                "gen_ai.tool.call.arguments": f'{{"query": {0 if stuck else turn}}}',
                "gen_ai.tool.call.result": f'"found {0 if stuck else turn}"',
            }
            found.append(
                self._span(
                    trace_id,
                    tool_id,
                    root_id,
                    "execute_tool search",
                    60 + turn * 100,
                    30,
                    attributes=told,
                    scope=_AGENTS,
                    resource=resource,
                )
            )
        told = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": draw.choice(("helper", "finder")),
        }
        found.append(
            self._span(
                trace_id,
                root_id,
                parent_id,
                "invoke_agent helper",
                9,
                900,
                attributes=told,
                scope=_AGENTS,
                error=draw.random() < 0.2,
                resource=resource,
            )
        )
        return found

    def _chat(
        self, trace_id: int, span_id: int, parent_id: int, at_ms: int, resource: dict[str, str]
    ) -> SpanData:
        told: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "gpt-4o",
            "gen_ai.usage.input_tokens": 900 + at_ms,
            "gen_ai.usage.output_tokens": 120,
            "gen_ai.response.finish_reasons": ("stop",),
            "server.address": "api.openai.com",
        }
        return self._span(
            trace_id,
            span_id,
            parent_id,
            "chat gpt-4o",
            at_ms,
            40,
            attributes=told,
            scope="opentelemetry.instrumentation.openai_v2",
            resource=resource,
        )


def exported(traces: list[list[SpanData]], *, seed: int = 2, per_body: int = 1000) -> list[list[SpanData]]:
    """The spans in bodies as they come from a Collector: inner spans first, traces mixed."""
    spans = [span for trace in traces for span in trace]
    draw = random.Random(seed)
    spans.sort(key=lambda span: span.end_ns + draw.randrange(500_000_000))
    return [spans[index : index + per_body] for index in range(0, len(spans), per_body)]
