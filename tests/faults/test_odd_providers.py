"""Tracer providers that are not what one expects: the loop runs, and what can be told is told."""

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.context import get_current
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import NonRecordingSpan, NoOpTracer

from otel_loopeval import EvaluationLoop, LoopHealthProcessor, instrument, iteration, loop
from otel_loopeval.otel.pipeline import registry
from otel_loopeval.testing import Capture


class Slotted(trace.TracerProvider):
    """A provider without room for weak references, and that cannot be hashed."""

    __slots__ = ("_inner",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Slotted)

    def get_tracer(self, *args: Any, **kwargs: Any) -> trace.Tracer:
        return self._inner.get_tracer(*args, **kwargs)


class Foreign:
    """A provider that is none of OpenTelemetry's classes and knows nothing of processors."""

    def get_tracer(self, *args: Any, **kwargs: Any) -> trace.Tracer:
        return NoOpTracer()


class NoTracers(Foreign):
    """A provider that gives no tracer."""

    def get_tracer(self, *args: Any, **kwargs: Any) -> trace.Tracer:
        raise RuntimeError("no tracer")


class NoSpans(Foreign):
    """A provider whose tracers start no span."""

    def get_tracer(self, *args: Any, **kwargs: Any) -> trace.Tracer:
        class Tracer(NoOpTracer):
            def start_span(self, *args: Any, **kwargs: Any) -> trace.Span:
                raise RuntimeError("no span")

        return Tracer()


class NoProcessors(Foreign):
    """A provider that takes no processor."""

    def add_span_processor(self, processor: object) -> None:
        raise RuntimeError("no processors here")


class BrokenSpans(Foreign):
    """A provider whose spans raise in everything."""

    def get_tracer(self, *args: Any, **kwargs: Any) -> trace.Tracer:
        class Broken(NonRecordingSpan):
            def is_recording(self) -> bool:
                return True

            def set_attributes(self, attributes: Any) -> None:
                raise RuntimeError("set_attributes")

            def add_event(self, *args: Any, **kwargs: Any) -> None:
                raise RuntimeError("add_event")

            def set_status(self, *args: Any, **kwargs: Any) -> None:
                raise RuntimeError("set_status")

            def end(self, end_time: int | None = None) -> None:
                raise RuntimeError("end")

        class Tracer(NoOpTracer):
            def start_span(self, *args: Any, **kwargs: Any) -> trace.Span:
                return Broken(trace.SpanContext(1, 2, is_remote=False))

        return Tracer()


def programs() -> Iterator[str]:
    """Loops of two kinds, whose results the program checks itself."""
    before = get_current()
    result = EvaluationLoop(lambda prompt: "answer", "", metric=lambda _: 9).run("prompt")
    assert (result.success, result.final_output) == (True, "answer")
    yield "agent"
    with loop("writer") as run:
        for score in (3.0, 9.0):
            with iteration() as it:
                it.score = score
        assert run.health.success
        assert it.score == 9.0
    yield "writer"
    error = ValueError("by hand")
    with pytest.raises(ValueError) as caught, loop("failing"), iteration():
        raise error
    assert caught.value is error
    yield "failing"
    assert get_current() is before


def counted(capture: Capture) -> dict[str, float]:
    return {
        point["attributes"]["gen_ai.agent.name"]: point["value"] for point in capture.points("loopeval.runs")
    }


def run_with(capture: Capture, provider: Any) -> None:
    instrument(
        tracer_provider=provider,
        meter_provider=capture.meter_provider,
        logger_provider=capture.logger_provider,
    )
    assert list(programs()) == ["agent", "writer", "failing"]
    assert counted(capture) == {"<lambda>": 1, "writer": 1, "failing": 1}
    assert registry.current().tracker.open_runs() == []


def test_a_provider_without_weak_references_or_a_hash(plain_capture: Capture) -> None:
    run_with(plain_capture, Slotted(plain_capture.tracer_provider))
    assert len(plain_capture.spans("evaluation_loop")) == 3
    assert plain_capture.span("evaluation_loop writer")["attributes"]["loopeval.health.passed"] is True


def test_a_provider_that_knows_nothing_of_processors(plain_capture: Capture) -> None:
    run_with(plain_capture, Foreign())


def test_a_provider_that_samples_nothing() -> None:
    with Capture(sampler=ALWAYS_OFF) as capture:
        run_with(capture, capture.tracer_provider)
        assert capture.spans() == []


@pytest.mark.swallows
@pytest.mark.parametrize("provider", [NoTracers, NoSpans, NoProcessors, BrokenSpans])
def test_a_provider_that_raises(plain_capture: Capture, provider: type[Foreign]) -> None:
    run_with(plain_capture, provider())


@pytest.mark.swallows
def test_a_meter_that_raises(plain_capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    plain_capture.instrument()
    list(programs())

    def add(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("no metrics")

    for name in ("_runs", "_runs_started", "_iterations"):
        monkeypatch.setattr(registry.current().instruments, name, type("Broken", (), {"add": add})())
    list(programs())
    assert len(plain_capture.spans("evaluation_loop")) == 6
    healthy = plain_capture.spans("evaluation_loop writer")
    assert [span["attributes"]["loopeval.health.passed"] for span in healthy] == [True, True]


@pytest.mark.parametrize("instrumented", [True, False])
def test_two_processors_and_instrument_twice(plain_capture: Capture, instrumented: bool) -> None:
    provider = plain_capture.tracer_provider
    provider.add_span_processor(LoopHealthProcessor(meter_provider=plain_capture.meter_provider))
    provider.add_span_processor(LoopHealthProcessor(meter_provider=plain_capture.meter_provider))
    if instrumented:
        plain_capture.instrument()
        plain_capture.instrument(threshold=5.0)
        with loop("own"), iteration() as it:
            it.score = 6.0
        assert plain_capture.span("evaluation_loop own")["attributes"]["loopeval.health.threshold"] == 5.0
    with provider.get_tracer("foreign").start_as_current_span("evaluation_loop foreign"):
        pass
    expected = {"own": 1, "foreign": 1} if instrumented else {"foreign": 1}
    assert counted(plain_capture) == expected
