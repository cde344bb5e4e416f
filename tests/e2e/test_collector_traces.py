"""What the Collector does with spans: no verdict is sampled away, content goes no further, fleets work."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import Status, StatusCode
from support.otlp import OtlpReceiver, Received
from support.servers import AGENT_CONFIG, Collector, await_that, free_ports

from otel_loopeval import instrument, iteration, loop

MakeProvider = Callable[[Collector], TracerProvider]


@pytest.fixture
def make_provider() -> Iterator[MakeProvider]:
    """Makes providers that export each span as it ends."""
    providers: list[TracerProvider] = []

    def make(collector: Collector) -> TracerProvider:
        provider = TracerProvider(resource=Resource({"service.name": "traces"}))
        exporter = OTLPSpanExporter(f"http://127.0.0.1:{collector.grpc_port}", insecure=True)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        providers.append(provider)
        return provider

    yield make
    for provider in providers:
        provider.shutdown()


def collecting(tmp_path: Path, receiver: OtlpReceiver, **variables: str) -> Collector:
    """A Collector that takes the receiver for Jaeger, and keeps none of the spans that no policy asks for."""
    endpoint = f"127.0.0.1:{receiver.grpc_port}"
    return Collector(tmp_path, JAEGER_OTLP_ENDPOINT=endpoint, SAMPLING_PERCENTAGE="0", **variables)


def settled(receiver: OtlpReceiver, *names: str) -> Received:
    """What has arrived a while after spans of these names have."""
    await_that(lambda: {span["name"] for span in receiver.received().spans()} >= set(names), f"{names}")
    time.sleep(2.5)  # for what should not arrive: a decision of the sampler, and a batch
    return receiver.received()


def test_a_verdict_outlives_the_sampler(
    receiver: OtlpReceiver, make_provider: MakeProvider, tmp_path: Path
) -> None:
    """Runs five times longer than the sampler waits, of ours and of a framework that we only judge."""
    with collecting(tmp_path, receiver) as collector:
        collector.start()
        provider = make_provider(collector)
        instrument(tracer_provider=provider)
        web, model = provider.get_tracer("web"), provider.get_tracer("openai")
        foreign = provider.get_tracer("pydantic-ai").start_span("invoke_agent critic")
        with web.start_as_current_span("GET /health"):
            pass
        with web.start_as_current_span("POST /article"), loop("writer", max_iterations=5):
            for score in (5.0, 6.0, 7.0, 7.5, 9.0):
                with iteration() as it:
                    with model.start_as_current_span("chat"):
                        time.sleep(1.0)
                    it.score = score
        # As the processor leaves the root of a framework's own trace when it ends.
        foreign.set_attributes({"loopeval.health.passed": False, "loopeval.health.doom_loop_fired": True})
        foreign.end()
        received = settled(receiver, "evaluation_loop writer", "invoke_agent critic", "POST /article")

    assert Counter(span["name"] for span in received.spans()) == {
        "evaluation_loop writer": 1,
        "evaluation_loop.iteration": 5,
        "invoke_agent critic": 1,
        # Of the same trace, whose first iteration came in time to tell that it is about a loop.
        "chat": 5,
        "POST /article": 1,
        # Not: GET /health.
    }
    root = received.span("evaluation_loop writer")["attributes"]
    assert (root["loopeval.health.passed"], root["loopeval.run.iterations"]) == (True, 5)
    assert received.span("invoke_agent critic")["attributes"]["loopeval.health.doom_loop_fired"] is True


def test_a_span_on_which_a_guard_stepped_in_is_kept_and_can_be_searched_for(
    receiver: OtlpReceiver, make_provider: MakeProvider, tmp_path: Path
) -> None:
    with collecting(tmp_path, receiver) as collector:
        collector.start()
        model = make_provider(collector).get_tracer("openai")
        with model.start_as_current_span("chat") as span:
            span.add_event("loopeval.guard", {"loopeval.guard.doom_loop": True})
            span.add_event("loopeval.guard", {"loopeval.guard.doom_loop": False})
        received = settled(receiver, "chat")

    chat = received.span("chat")
    assert chat["attributes"]["loopeval.guard.doom_loop"] is True
    assert [event["attributes"] for event in chat["events"]] == [
        {"loopeval.guard.doom_loop": True},
        {"loopeval.guard.doom_loop": False},
    ]


def test_content_ends_here(receiver: OtlpReceiver, make_provider: MakeProvider, tmp_path: Path) -> None:
    content = dict.fromkeys(
        (
            "gen_ai.input.messages",
            "gen_ai.output.messages",
            "gen_ai.system_instructions",
            "gen_ai.tool.call.arguments",
            "gen_ai.tool.call.result",
            "gen_ai.prompt",
            "gen_ai.prompt.0.content",
            "gen_ai.completion.0.content",
            "gen_ai.content.prompt",
            "gen_ai.evaluation.explanation",
            "llm.input_messages.0.message.content",
            "llm.output_messages.0.message.content",
            "llm.prompts",
            "input.value",
            "output.value",
            "tool.parameters",
            "tool_arguments",
            "tool_response",
            "traceloop.entity.input",
            "traceloop.entity.output",
            "ai.prompt.messages",
            "ai.response.text",
            "ai.response.toolCalls",
            "ai.toolCall.args",
            "ai.toolCall.result",
            "gcp.vertex.agent.llm_request",
            "gcp.vertex.agent.tool_call_args",
            "langfuse.observation.input",
            "loopeval.guard.reason",
            "exception.message",
        ),
        "canary",
    )
    kept = {
        "loopeval.run.id": "1",
        "gen_ai.agent.name": "writer",
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.prompt.name": "kept",
        "loopeval.health.reasoning": "Converged in 3 iteration(s).",
    }
    with collecting(tmp_path, receiver) as collector:
        collector.start()
        tracer = make_provider(collector).get_tracer("any")
        with tracer.start_as_current_span("work", attributes={**content, **kept}) as span:
            span.add_event("exception", {"exception.message": "canary", "exception.type": "ValueError"})
            span.add_event("gen_ai.choice", {"content": "canary", "gen_ai.completion": "canary"})
            span.add_event(
                "loopeval.guard", {"loopeval.guard.reason": "canary", "loopeval.guard.kind": "other"}
            )
            span.set_status(Status(StatusCode.ERROR, "canary"))
        received = settled(receiver, "work")

    assert "canary" not in received.text()
    work = received.span("work")
    assert work["attributes"] == kept
    assert [(event["name"], event["attributes"]) for event in work["events"]] == [
        ("exception", {"exception.type": "ValueError"}),
        ("gen_ai.choice", {}),
        ("loopeval.guard", {"loopeval.guard.kind": "other"}),
    ]
    assert (work["status"], work["status_message"]) == (2, "")


def test_an_agent_sends_every_trace_to_one_collector_of_the_tail_tier(
    make_provider: MakeProvider, tmp_path: Path
) -> None:
    """And one of them that goes away costs no verdict: its traces wait in the agent's queue."""
    ports = free_ports(2)
    tier = [OtlpReceiver(), OtlpReceiver()]
    tails = [
        Collector(
            tmp_path / f"tail{number}",
            JAEGER_OTLP_ENDPOINT=f"127.0.0.1:{backend.grpc_port}",
            OTLP_GRPC_PORT=str(port),
            SAMPLING_PERCENTAGE="100",
        )
        for number, (backend, port) in enumerate(zip(tier, ports, strict=True))
    ]
    hostnames = ", ".join(f"127.0.0.1:{port}" for port in ports)
    agent = Collector(tmp_path / "agent", AGENT_CONFIG, TAIL_TIER=f"[{hostnames}]")
    try:
        for collector in (*tails, agent):
            collector.start()
        provider = make_provider(agent)
        instrument(tracer_provider=provider)
        model = provider.get_tracer("openai")

        def run(number: int) -> None:
            with loop(f"writer-{number}"), iteration() as it:
                with model.start_as_current_span("chat"):
                    pass
                it.score = 9.0

        for number in range(20):
            run(number)
        tails[1].stop()
        for number in range(20, 30):
            run(number)
        tails[1].start()
        await_that(
            lambda: sum(len(backend.received().spans()) for backend in tier) >= 90, "30 runs, 3 spans each"
        )
        spans = [backend.received().spans() for backend in tier]
    finally:
        for collector in (agent, *tails):
            collector.stop()
        for backend in tier:
            backend.close()

    first, second = ({span["trace_id"] for span in some} for some in spans)
    assert first & second == set()
    assert (len(first) + len(second), min(len(first), len(second)) > 0) == (30, True)
    names = {span["name"] for some in spans for span in some if span["name"].startswith("evaluation_loop ")}
    assert names == {f"evaluation_loop writer-{number}" for number in range(30)}
