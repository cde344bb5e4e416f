"""Which provider a run goes to, and that metrics are exact whatever is sampled."""

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    ParentBased,
    Sampler,
    TraceIdRatioBased,
)
from opentelemetry.util._once import Once

from otel_loopeval import LoopHealthProcessor, instrument, iteration, loop, record_guard_event, uninstrument
from otel_loopeval.otel import _sdk
from otel_loopeval.otel.pipeline import open_spans
from otel_loopeval.testing import Capture, SpanStore


@pytest.fixture
def no_global_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process in which nobody has set a tracer provider, and one may be set."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())


def a_run(score: float = 9.0, agent: str = "writer") -> None:
    with loop(agent), iteration() as it:
        it.score = score


def provider_with(store: SpanStore) -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(store))
    return provider


@pytest.mark.usefixtures("no_global_provider")
def test_a_global_provider_that_is_there() -> None:
    store = SpanStore()
    trace.set_tracer_provider(provider_with(store))
    instrument()
    a_run()
    assert [span.name for span in store.spans] == ["evaluation_loop.iteration", "evaluation_loop writer"]


@pytest.mark.usefixtures("no_global_provider")
def test_a_global_provider_that_is_set_later(capsys: pytest.CaptureFixture[str]) -> None:
    instrument()
    a_run()
    assert "HEALTHY writer" in capsys.readouterr().err
    store = SpanStore()
    trace.set_tracer_provider(provider_with(store))
    a_run()
    assert len(store.spans) == 2
    assert (store.spans[1].attributes or {})["loopeval.health.passed"] is True
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("no_global_provider")
def test_a_provider_that_is_set_in_mid_run() -> None:
    """The run goes on where it began; the next one is recorded."""
    instrument(console=False)
    store = SpanStore()
    with loop("first") as run:
        trace.set_tracer_provider(provider_with(store))
        with iteration() as it:
            it.score = 9
        assert run.health.success
    a_run(agent="second")
    assert "evaluation_loop second" in [span.name for span in store.spans]
    assert open_spans == {}


@pytest.mark.usefixtures("no_global_provider")
def test_without_instrument_the_global_provider_is_used() -> None:
    store = SpanStore()
    trace.set_tracer_provider(provider_with(store))
    a_run()
    assert (store.spans[1].attributes or {})["loopeval.health.passed"] is True


@pytest.mark.usefixtures("no_global_provider")
def test_metrics_and_log_events_without_any_tracer_provider(plain_capture: Capture) -> None:
    instrument(
        meter_provider=plain_capture.meter_provider,
        logger_provider=plain_capture.logger_provider,
        events="log",
        console=False,
    )
    a_run()
    a_run(2.0)
    assert plain_capture.value("loopeval.runs") == 2
    assert [r["attributes"]["gen_ai.evaluation.score.value"] for r in plain_capture.logs()] == [9.0, 2.0]
    assert {r["span_id"] for r in plain_capture.logs()} == {0}


def test_the_processor_is_added_once_per_provider(plain_capture: Capture) -> None:
    for _ in range(3):
        plain_capture.instrument()
        a_run()
    processors = _sdk.processors_of(plain_capture.tracer_provider)
    assert sum(isinstance(p, LoopHealthProcessor) for p in processors) == 1
    assert plain_capture.value("loopeval.runs") == 3


def test_many_first_runs_at_once_add_one_processor(plain_capture: Capture) -> None:
    plain_capture.instrument()
    barrier = threading.Barrier(8)

    def first_run(_: int) -> None:
        barrier.wait()
        a_run()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(first_run, range(8)))
    assert plain_capture.value("loopeval.runs") == 8
    processors = _sdk.processors_of(plain_capture.tracer_provider)
    assert sum(isinstance(p, LoopHealthProcessor) for p in processors) == 1


def test_another_provider_takes_over() -> None:
    with Capture() as first, Capture() as second:
        first.instrument()
        a_run(agent="one")
        second.instrument()
        a_run(agent="two")
        assert first.span("evaluation_loop")["name"] == "evaluation_loop one"
        assert second.span("evaluation_loop")["name"] == "evaluation_loop two"
        assert second.value("loopeval.runs") == 1


def test_uninstrument_and_instrument_again(capture: Capture) -> None:
    a_run()
    uninstrument()
    a_run()
    uninstrument()
    capture.instrument()
    a_run()
    assert len(capture.spans("evaluation_loop")) == 2
    assert capture.value("loopeval.runs") == 2


def test_uninstrument_in_mid_run(capture: Capture) -> None:
    with loop("writer") as run:
        uninstrument()
        with iteration() as it:
            it.score = 9
        assert run.health.success
    assert capture.span("evaluation_loop")["attributes"]["loopeval.health.passed"] is True
    assert capture.value("loopeval.runs") == 1
    assert open_spans == {}


def test_after_uninstrument_loops_still_know_their_health(capture: Capture) -> None:
    uninstrument()
    with loop("writer", threshold=5) as run:
        with iteration() as it:
            it.score = 6
            record_guard_event({"type": "doom_loop"})
        assert run.doom_loop_fired
        assert run.health.converged
    assert capture.spans() == []
    assert capture.metrics() == {}


def test_uninstrument_without_instrument_does_nothing(plain_capture: Capture) -> None:
    uninstrument()
    plain_capture.instrument()
    a_run()
    assert plain_capture.value("loopeval.runs") == 1


def test_reconfiguring_in_mid_run(plain_capture: Capture) -> None:
    plain_capture.instrument(threshold=9)
    with loop("writer") as run:
        with iteration() as it:
            it.score = 8
        assert not run.health.converged
        plain_capture.instrument(threshold=7)
        assert run.health.converged
    assert plain_capture.span("evaluation_loop")["attributes"]["loopeval.health.threshold"] == 7.0
    assert plain_capture.value("loopeval.runs") == 1


def test_a_provider_that_is_shut_down(capture: Capture) -> None:
    capture.tracer_provider.shutdown()
    a_run()
    assert capture.value("loopeval.runs") == 1


def test_runs_and_their_contexts_are_garbage_at_their_end(capture: Capture) -> None:
    with loop("writer") as run, iteration() as it:
        it.score = 9
    seen = [weakref.ref(run)]
    del run, it
    gc.collect()
    assert seen[0]() is None


SAMPLERS: dict[str, Sampler] = {
    "always_on": ALWAYS_ON,
    "always_off": ALWAYS_OFF,
    "traceidratio 0.1": TraceIdRatioBased(0.1),
    "parentbased_always_off": ParentBased(ALWAYS_OFF),
}


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS.keys())
def test_metrics_are_exact_under_any_sampler(sampler: Sampler) -> None:
    fired: list[Any] = []
    with Capture(sampler=sampler, ids=RandomIdGenerator()) as capture:
        capture.instrument(on_doom_loop=lambda event, run: fired.append(run.agent))
        for number in range(100):
            with loop("writer", threshold=8) as run:
                with iteration() as it:
                    it.score = 5
                    if number % 10 == 0:
                        record_guard_event({"type": "doom_loop"})
                if not run.doom_loop_fired:
                    with iteration() as it:
                        it.score = 9
        assert capture.value("loopeval.runs") == 100
        assert capture.value("loopeval.runs.started") == 100
        assert capture.value("loopeval.runs", {"loopeval.health.passed": True}) == 90
        assert capture.value("loopeval.doom_loop.fired") == 10
        assert capture.value("loopeval.guard.interventions") == 10
        assert capture.value("loopeval.iterations") == 190
        assert capture.value("loopeval.run.duration") == 100
        assert capture.value("loopeval.run.open") == 0
        assert len(fired) == 10
        exported = len([s for s in capture.finished_spans if s.name == "evaluation_loop writer"])
        expected = {"always_on": (100, 100), "traceidratio 0.1": (1, 35)}
        least, most = expected.get(next(k for k, v in SAMPLERS.items() if v is sampler), (0, 0))
        assert least <= exported <= most
    assert open_spans == {}


def test_nested_runs_and_current_run_without_recording() -> None:
    with Capture(sampler=ALWAYS_OFF) as capture:
        capture.instrument()
        with loop("outer") as outer, iteration(), loop("inner") as inner, iteration():
            record_guard_event({"type": "doom_loop"})
            assert inner.doom_loop_fired
            assert outer.doom_loop_fired
        assert capture.value("loopeval.runs", {"loopeval.run.nested": True}) == 1
        assert capture.value("loopeval.doom_loop.fired", {"gen_ai.agent.name": "inner"}) == 1
        assert capture.value("loopeval.doom_loop.fired", {"gen_ai.agent.name": "outer"}) == 0
