"""The processor: runs that somebody else emits under our names, whatever stands around it."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.context import Context, attach, get_current
from opentelemetry.sdk.trace import (
    ConcurrentMultiSpanProcessor,
    ReadableSpan,
    Span,
    SpanProcessor,
    SynchronousMultiSpanProcessor,
)
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.trace import Status, StatusCode

from otel_loopeval import (
    LoopHealthProcessor,
    current_run,
    instrument,
    iteration,
    loop,
    record_guard_event,
    uninstrument,
)
from otel_loopeval.otel import _sdk, processor
from otel_loopeval.otel.pipeline import OpenSpans, open_spans, registry
from otel_loopeval.testing import Capture, SpanStore

BASE = {
    "gen_ai.agent.name": "writer",
    "loopeval.run.mode": "optimize",
    "loopeval.run.framework": "other",
    "loopeval.run.nested": False,
}


@pytest.fixture(params=["public fields", "private fields"])
def hooks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to read a span: an SDK that renames a private field must cost time and nothing else."""
    chosen = _sdk.PublicHooks if request.param == "public fields" else _sdk.ProbedHooks

    for name in ("on_start", "_on_ending", "on_end"):
        monkeypatch.setattr(LoopHealthProcessor, name, getattr(chosen, name), raising=False)


def foreign_run(
    provider: Any,
    scores: tuple[float | None, ...] = (5.0, 9.0),
    *,
    agent: str = "writer",
    doom: bool = False,
    attributes: dict[str, Any] | None = None,
    late_attributes: dict[str, Any] | None = None,
) -> None:
    """What another library does that knows our names."""
    tracer = provider.get_tracer("somebody.else")
    with tracer.start_as_current_span(
        f"evaluation_loop {agent}", attributes={"loopeval.run.threshold": 8.0, **(attributes or {})}
    ) as root:
        for number, score in enumerate(scores, start=1):
            with tracer.start_as_current_span("evaluation_loop.iteration") as span:
                span.set_attribute("loopeval.iteration.number", number)
                with tracer.start_as_current_span("chat") as chat:
                    chat.set_attributes({"gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 2})
                if score is not None:
                    span.set_attribute("loopeval.iteration.score", score)
                if doom:
                    span.add_event(
                        "loopeval.guard",
                        {"loopeval.guard.kind": "repeated_action", "loopeval.guard.doom_loop": True},
                    )
        root.set_attributes(late_attributes or {})


HEALTHY = {
    "loopeval.run.threshold": 8.0,
    "loopeval.health.passed": True,
    "loopeval.health.converged": True,
    "loopeval.health.doom_loop_fired": False,
    "loopeval.health.iterations_to_success": 2,
    "loopeval.health.wasted_iterations": 0,
    "loopeval.health.guard_interventions": 0,
    "loopeval.health.total_duration_s": 0.0,
    "loopeval.health.threshold": 8.0,
    "loopeval.health.score_delta_per_iteration": [4.0],
    "loopeval.health.reasoning": "Converged in 2 iteration(s).",
    "loopeval.health.evidence": "none",
    "loopeval.run.tokens.input": 20,
    "loopeval.run.tokens.output": 4,
}


def processor_for(capture: Capture, **options: Any) -> LoopHealthProcessor:
    return LoopHealthProcessor(
        meter_provider=capture.meter_provider, logger_provider=capture.logger_provider, **options
    )


@pytest.fixture
def watched(hooks: None) -> Iterator[Capture]:
    """A provider with our processor registered by hand, and nothing instrumented."""
    with Capture() as capture:
        capture.tracer_provider.add_span_processor(processor_for(capture))
        yield capture


def test_a_foreign_run_gets_its_health_and_nothing_else(watched: Capture) -> None:
    foreign_run(watched.tracer_provider)
    root = watched.span("evaluation_loop")
    assert root["attributes"] == HEALTHY
    assert (root["kind"], root["scope"], root["status"]) == ("INTERNAL", "somebody.else", "UNSET")
    assert [span["attributes"] for span in watched.spans("evaluation_loop.iteration")] == [
        {"loopeval.iteration.number": 1, "loopeval.iteration.score": 5.0},
        {"loopeval.iteration.number": 2, "loopeval.iteration.score": 9.0},
    ]


def test_the_same_verdict_as_our_own_loop(watched: Capture) -> None:
    foreign_run(watched.tracer_provider, (9.0, 3.0, 4.0), doom=True)
    with Capture() as ours:
        ours.instrument()
        tracer = ours.tracer_provider.get_tracer("app")
        with loop("writer", threshold=8.0) as run:
            for score in (9.0, 3.0, 4.0):
                with iteration() as it:
                    with tracer.start_as_current_span("chat") as chat:
                        chat.set_attributes(
                            {"gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 2}
                        )
                    it.score = score
                    run.record_guard_event({"type": "repeated_action"})

    def health(capture: Capture) -> dict[str, Any]:
        attributes = capture.span("evaluation_loop")["attributes"]
        return {
            k: v for k, v in attributes.items() if k.startswith(("loopeval.health.", "loopeval.run.tokens"))
        }

    assert health(watched) == health(ours)
    assert health(ours)["loopeval.health.reasons"] == ["wasted_iterations", "doom_loop"]
    assert health(ours)["loopeval.health.wasted_tokens"] == 24


def test_metrics_of_a_foreign_run(watched: Capture) -> None:
    foreign_run(watched.tracer_provider, (9.0, 5.0), doom=True)
    root = watched.span("evaluation_loop")
    assert [(p["attributes"], p["value"]) for p in watched.points("loopeval.runs")] == [
        (
            {
                **BASE,
                "loopeval.run.outcome": "completed",
                "loopeval.health.passed": False,
                "loopeval.health.converged": True,
                "loopeval.health.doom_loop_fired": True,
            },
            1,
        )
    ]
    assert watched.value("loopeval.runs.started", BASE) == 1
    assert watched.value("loopeval.iterations.wasted", BASE) == 1
    assert watched.value("loopeval.tokens", {**BASE, "gen_ai.token.type": "input"}) == 20
    assert watched.value("loopeval.guard.interventions", BASE) == 2
    (fired,) = watched.points("loopeval.doom_loop.fired")
    assert (fired["value"], fired["attributes"]["loopeval.guard.kind"]) == (1, "repeated_action")
    (duration,) = watched.points("loopeval.run.duration")
    assert root["id"] is not None
    assert duration["count"] == 1


def test_exemplars_of_a_foreign_run_point_at_its_root(watched: Capture) -> None:
    foreign_run(watched.tracer_provider)
    metrics = watched.metrics()
    root = watched.span("evaluation_loop")
    for name in ("loopeval.runs", "loopeval.run.duration", "loopeval.runs.started", "loopeval.iterations"):
        (point,) = metrics[name]["points"]
        assert [(e["trace_id"], e["span_id"]) for e in point["exemplars"]] == [(root["trace_id"], root["id"])]


def test_attributes_that_are_set_late_count(watched: Capture) -> None:
    foreign_run(
        watched.tracer_provider,
        (5.0, 5.0),
        late_attributes={
            "loopeval.run.threshold": 5.0,
            "loopeval.run.outcome": "paused",
            "loopeval.run.mode": "review",
        },
    )
    root = watched.span("evaluation_loop")["attributes"]
    assert root["loopeval.health.threshold"] == 5.0
    assert "loopeval.health.passed" not in root
    assert watched.value("loopeval.runs", {"loopeval.run.outcome": "paused"}) == 1


def test_a_foreign_run_that_failed(watched: Capture) -> None:
    tracer = watched.tracer_provider.get_tracer("somebody.else")
    with tracer.start_as_current_span("evaluation_loop writer") as root:
        root.set_status(Status(StatusCode.ERROR))
        root.set_attribute("error.type", "SomeError")
    assert watched.value("loopeval.runs", {"loopeval.run.outcome": "failed", "error.type": "SomeError"}) == 1
    assert watched.span()["attributes"]["loopeval.health.passed"] is False


def test_the_callback_of_a_foreign_doom_loop(hooks: None) -> None:
    calls: list[tuple[str, str]] = []
    with Capture() as capture:
        capture.tracer_provider.add_span_processor(
            processor_for(capture, on_doom_loop=lambda event, run: calls.append((event.kind, run.agent)))
        )
        foreign_run(capture.tracer_provider, doom=True)
    assert calls == [("repeated_action", "writer")]


def test_a_verdict_that_is_there_already_is_left_alone(watched: Capture) -> None:
    """Two trackers of different versions, say: whoever told it has counted the run as well."""
    told = {"loopeval.health.doom_loop_fired": False, "loopeval.health.reasoning": "mine"}
    for verdict in ({**told, "loopeval.health.passed": False}, told):
        foreign_run(watched.tracer_provider, late_attributes=verdict)
        root = watched.span("evaluation_loop")["attributes"]
        assert root["loopeval.health.reasoning"] == "mine"
        assert "loopeval.health.converged" not in root
        watched.clear()
    assert watched.value("loopeval.runs") == 0


def test_spans_that_are_none_of_ours_are_untouched(watched: Capture) -> None:
    tracer = watched.tracer_provider.get_tracer("app")
    with (
        tracer.start_as_current_span("evaluation"),
        tracer.start_as_current_span("evaluation_loop.iteration"),
    ):
        pass
    with tracer.start_as_current_span(""):
        pass
    assert [span["attributes"] for span in watched.spans()] == [{}, {}, {}]
    assert watched.metrics().keys() <= {"loopeval.run.open", "loopeval.run.idle_max"}
    assert open_spans == {}


def test_nothing_stays_behind(watched: Capture) -> None:
    for _ in range(50):
        foreign_run(watched.tracer_provider)
    assert open_spans == {}
    assert watched.value("loopeval.run.open") == 0


def test_a_span_that_ends_after_its_root_is_late(watched: Capture) -> None:
    tracer = watched.tracer_provider.get_tracer("somebody.else")
    with tracer.start_as_current_span("evaluation_loop writer"):
        late = tracer.start_span("chat", attributes={"gen_ai.usage.input_tokens": 10})
        late_iteration = tracer.start_span("evaluation_loop.iteration")
    late.end()
    late_iteration.end()
    assert watched.value("loopeval.tracker.late_spans", BASE) == 2
    assert watched.value("loopeval.tokens") == 0
    assert open_spans == {}


def test_tokens_count_once_through_nested_wrappers(watched: Capture) -> None:
    tracer = watched.tracer_provider.get_tracer("somebody.else")
    usage = {"gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 2}
    with (
        tracer.start_as_current_span("evaluation_loop writer"),
        tracer.start_as_current_span("invoke_agent") as agent,
    ):
        for _ in range(2):
            with (
                tracer.start_as_current_span("chat", attributes=usage),
                tracer.start_as_current_span("http", attributes=usage),
            ):
                pass
        agent.set_attributes({"gen_ai.usage.input_tokens": 20, "gen_ai.usage.output_tokens": 4})
    root = watched.span("evaluation_loop")["attributes"]
    assert (root["loopeval.run.tokens.input"], root["loopeval.run.tokens.output"]) == (20, 4)
    assert watched.value("loopeval.tokens", {"gen_ai.token.type": "input"}) == 20


def test_unknown_tokens_are_absent(watched: Capture) -> None:
    tracer = watched.tracer_provider.get_tracer("somebody.else")
    with tracer.start_as_current_span("evaluation_loop writer"), tracer.start_as_current_span("chat"):
        pass
    root = watched.span("evaluation_loop")["attributes"]
    assert not [key for key in root if "tokens" in key]


def test_our_loop_inside_a_foreign_run(watched: Capture) -> None:
    watched.instrument()
    tracer = watched.tracer_provider.get_tracer("somebody.else")
    outer_spans = tracer.start_as_current_span("evaluation_loop outer"), tracer.start_as_current_span("work")
    with outer_spans[0], outer_spans[1], loop("inner") as run:
        run.record_guard_event({"type": "doom_loop"})
    outer, inner = watched.spans("evaluation_loop")
    assert inner["attributes"]["loopeval.health.doom_loop_fired"] is True
    assert outer["attributes"]["loopeval.health.doom_loop_fired"] is True
    assert watched.value("loopeval.runs", {"gen_ai.agent.name": "inner", "loopeval.run.nested": True}) == 1


def test_a_guard_event_recorded_inside_a_foreign_run_counts_once(watched: Capture) -> None:
    watched.instrument()
    tracer = watched.tracer_provider.get_tracer("somebody.else")
    with tracer.start_as_current_span("evaluation_loop writer"), tracer.start_as_current_span("execute_tool"):
        record_guard_event({"type": "doom_loop"})
    assert watched.span("evaluation_loop")["attributes"]["loopeval.health.doom_loop_fired"] is True
    assert [
        (p["attributes"]["gen_ai.agent.name"], p["value"]) for p in watched.points("loopeval.doom_loop.fired")
    ] == [("writer", 1)]
    assert watched.value("loopeval.guard.interventions") == 1


def test_a_foreign_run_inside_our_loop(watched: Capture) -> None:
    watched.instrument()
    with loop("outer"), iteration() as it:
        foreign_run(watched.tracer_provider, agent="inner", doom=True)
        it.score = 9
        run = current_run()
        assert run is not None
        assert run.doom_loop_fired
    outer, inner = watched.spans("evaluation_loop")
    assert [outer["name"], inner["name"]] == ["evaluation_loop outer", "evaluation_loop inner"]
    assert inner["attributes"]["loopeval.health.reasons"] == ["doom_loop"]
    assert outer["attributes"]["loopeval.run.tokens.input"] == 20
    assert watched.value("loopeval.runs", {"gen_ai.agent.name": "inner", "loopeval.run.nested": True}) == 1
    assert (
        watched.value("loopeval.tokens", {"gen_ai.token.type": "input", "gen_ai.agent.name": "inner"}) == 20
    )
    assert watched.value("loopeval.tokens", {"gen_ai.agent.name": "outer"}) == 0


def test_a_run_whose_context_was_lost_is_a_run_of_its_own(watched: Capture) -> None:
    tracer = watched.tracer_provider.get_tracer("somebody.else")
    with tracer.start_as_current_span("evaluation_loop outer"):
        tracer.start_span("evaluation_loop inner", context=Context({"x": 1})).end()
    assert watched.value("loopeval.runs", {"loopeval.run.nested": False}) == 2


def test_wrapped_calls_count_once_in_a_run_of_many_iterations(watched: Capture) -> None:
    tracer = watched.tracer_provider.get_tracer("app")
    usage = {"gen_ai.usage.input_tokens": 1}
    watched.instrument()
    with loop("writer"):
        for _ in range(1_100):
            with (
                iteration(),
                tracer.start_as_current_span("agent", attributes=usage),
                tracer.start_as_current_span("chat", attributes=usage),
            ):
                pass
    assert watched.span("evaluation_loop")["attributes"]["loopeval.run.tokens.input"] == 1_100


def test_more_foreign_runs_open_than_the_table_holds(hooks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_spans, "room", 50)
    with Capture() as capture:
        capture.tracer_provider.add_span_processor(processor_for(capture, max_open_runs=10))
        tracer = capture.tracer_provider.get_tracer("somebody.else")
        roots = [tracer.start_span(f"evaluation_loop agent-{number}") for number in range(30)]
        assert capture.value("loopeval.tracker.evicted_runs", {"loopeval.reason": "capacity"}) == 20
        assert capture.value("loopeval.run.open") == 10
        for root in roots:
            root.end()
        judged = [span for span in capture.spans() if span["attributes"]]
        assert [span["name"] for span in judged] == [
            f"evaluation_loop agent-{number}" for number in range(20, 30)
        ]


def test_foreign_runs_that_are_abandoned_leave_nothing(
    plain_capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_tables(monkeypatch)
    monkeypatch.setenv("LOOPEVAL_MAX_OPEN_RUNS", "10")
    plain_capture.instrument()
    tracer = plain_capture.tracer_provider.get_tracer("somebody.else")
    for _ in range(500):
        tracer.start_span("evaluation_loop writer")
    assert len(open_spans) <= 20
    assert len(registry.current().foreign_roots) <= 20


@pytest.mark.parametrize("ends", [True, False], ids=["runs that end", "runs that are abandoned"])
def test_spans_in_our_runs_that_never_end_leave_nothing(
    plain_capture: Capture, monkeypatch: pytest.MonkeyPatch, *, ends: bool
) -> None:
    small_tables(monkeypatch)
    monkeypatch.setenv("LOOPEVAL_MAX_OPEN_RUNS", "10")
    plain_capture.instrument()
    tracer = plain_capture.tracer_provider.get_tracer("app")
    kept: list[Any] = []
    for _ in range(500):
        outer = get_current()
        block = loop("writer")
        block.__enter__()
        tracer.start_span("a stream that nobody closes")
        if ends:
            block.__exit__(None, None, None)
        else:
            kept.append(block)
            attach(outer)
    assert len(open_spans) <= 60


def small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sdk, "ROOM", 20)
    monkeypatch.setattr(OpenSpans, "room", 20)
    monkeypatch.setattr(open_spans, "room", 20)


# Where the processor stands ---------------------------------------------------------------------------------

Arrangement = Callable[[LoopHealthProcessor, SpanStore], list[SpanProcessor]]

arrangements: dict[str, Arrangement] = {
    "before simple": lambda ours, store: [ours, SimpleSpanProcessor(store)],
    "after simple": lambda ours, store: [SimpleSpanProcessor(store), ours],
    "before batch": lambda ours, store: [ours, BatchSpanProcessor(store)],
    "after batch": lambda ours, store: [BatchSpanProcessor(store), ours],
}
multi_processors: dict[str, Callable[[], Any]] = {
    "synchronous": SynchronousMultiSpanProcessor,
    "concurrent": lambda: ConcurrentMultiSpanProcessor(num_threads=2),
}


class TellsOfNoEndings(SpanProcessor):
    """Hands on what it is told, as somebody would who knows the public methods of a processor only."""

    def __init__(self, inner: SpanProcessor) -> None:
        self.inner = inner

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self.inner.on_start(span, parent_context=parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        self.inner.on_end(span)


def test_behind_a_processor_that_tells_of_no_endings(hooks: None) -> None:
    with Capture() as capture:
        capture.tracer_provider.add_span_processor(TellsOfNoEndings(processor_for(capture)))
        tracer = capture.tracer_provider.get_tracer("app")
        with (
            tracer.start_as_current_span("evaluation_loop writer"),
            tracer.start_as_current_span("evaluation_loop.iteration"),
            tracer.start_as_current_span("chat", attributes={"gen_ai.usage.input_tokens": 7}),
        ):
            pass
        assert capture.value("loopeval.tokens", {"gen_ai.token.type": "input"}) == 7


@pytest.mark.parametrize(("arrangement", "multi"), list(itertools.product(arrangements, multi_processors)))
def test_health_reaches_every_exporter(hooks: None, arrangement: str, multi: str) -> None:
    stores = [SpanStore(), SpanStore()]
    with Capture(exporting=False, active_span_processor=multi_processors[multi]()) as capture:
        ours = processor_for(capture)
        order = arrangements[arrangement](ours, stores[0])
        for span_processor in [*order, SimpleSpanProcessor(stores[1])]:
            capture.tracer_provider.add_span_processor(span_processor)
        for _ in range(20):
            foreign_run(capture.tracer_provider)
        capture.tracer_provider.force_flush()
        for store in stores:
            roots = [span for span in store.spans if span.name == "evaluation_loop writer"]
            assert len(roots) == 20
            for root in roots:
                attributes = dict(root.attributes or {})
                assert attributes.keys() == HEALTHY.keys()
                assert attributes["loopeval.health.passed"] is True
                assert attributes["loopeval.run.tokens.input"] == 20
        assert capture.value("loopeval.runs") == 20
        assert capture.value("loopeval.run.open") == 0


@pytest.mark.parametrize(("arrangement", "multi"), list(itertools.product(arrangements, multi_processors)))
def test_our_own_runs_under_every_arrangement(hooks: None, arrangement: str, multi: str) -> None:
    store = SpanStore()
    with Capture(exporting=False, active_span_processor=multi_processors[multi]()) as capture:
        for span_processor in arrangements[arrangement](processor_for(capture), store):
            capture.tracer_provider.add_span_processor(span_processor)
        capture.instrument()
        tracer = capture.tracer_provider.get_tracer("app")
        for _ in range(20):
            with loop("writer"), iteration() as it:
                with tracer.start_as_current_span("chat", attributes={"gen_ai.usage.input_tokens": 10}):
                    pass
                it.score = 9
        capture.tracer_provider.force_flush()
        roots = [span for span in store.spans if span.name == "evaluation_loop writer"]
        assert len(roots) == 20
        for root in roots:
            attributes = root.attributes or {}
            assert attributes["loopeval.health.passed"] is True
            assert attributes["loopeval.run.tokens.input"] == 10
        assert capture.value("loopeval.runs") == 20
        assert open_spans == {}


def test_flushing_goes_past_it() -> None:
    """A processor that does not say True keeps those behind it from flushing."""
    assert LoopHealthProcessor().force_flush() is True


def test_hooks_are_chosen_by_a_probe() -> None:
    assert _sdk.Hooks is _sdk.ProbedHooks  # on the SDK that is installed
    assert issubclass(processor.LoopHealthProcessor, _sdk.PublicHooks)


def test_the_public_way_is_taken_where_the_sdk_lets_us() -> None:
    taken: list[dict[str, Any]] = []

    class Span:
        def is_recording(self) -> bool:
            return True

        def set_attributes(self, attributes: dict[str, Any]) -> None:
            taken.append(attributes)

    _sdk.set_on_ending(Span(), {"a": 1})  # type: ignore[arg-type]
    assert taken == [{"a": 1}]


@pytest.mark.parametrize("has_dict", [True, False])
def test_attributes_with_and_without_the_private_dictionary(
    watched: Capture, monkeypatch: pytest.MonkeyPatch, has_dict: bool
) -> None:
    monkeypatch.setattr(_sdk, "_HAS_ATTRIBUTES_DICT", has_dict)
    foreign_run(watched.tracer_provider)
    assert watched.span("evaluation_loop")["attributes"] == HEALTHY


# Several processors, several providers ---------------------------------------------------------------------


def test_a_second_processor_is_inert(watched: Capture) -> None:
    watched.tracer_provider.add_span_processor(processor_for(watched))
    foreign_run(watched.tracer_provider, doom=True)
    assert watched.value("loopeval.runs.started") == 1
    assert watched.value("loopeval.run.open") == 0
    assert watched.value("loopeval.runs") == 1
    assert watched.value("loopeval.doom_loop.fired") == 1
    assert watched.value("loopeval.tokens", {"gen_ai.token.type": "input"}) == 20
    assert watched.span("evaluation_loop")["attributes"]["loopeval.health.guard_interventions"] == 2


def test_a_processor_of_the_users_is_adopted_by_instrument(hooks: None) -> None:
    with Capture() as capture:
        capture.tracer_provider.add_span_processor(processor_for(capture, threshold=5.0))
        capture.instrument(threshold=6.0)
        with loop("ours"), iteration() as it:
            it.score = 5.5
        foreign_run(
            capture.tracer_provider, (5.5,), agent="theirs", attributes={"loopeval.run.threshold": "none"}
        )
        processors = _sdk.processors_of(capture.tracer_provider)
        assert sum(isinstance(p, LoopHealthProcessor) for p in processors) == 1
        thresholds = [
            span["attributes"]["loopeval.health.threshold"] for span in capture.spans("evaluation_loop")
        ]
        assert thresholds == [6.0, 6.0]
        assert capture.value("loopeval.runs") == 2


def test_an_adopted_processor_keeps_the_providers_that_it_was_given(hooks: None) -> None:
    with Capture() as capture:
        capture.tracer_provider.add_span_processor(processor_for(capture))
        instrument(tracer_provider=capture.tracer_provider)
        with loop("ours"):
            pass
        assert capture.value("loopeval.runs") == 1


def test_two_providers_have_a_tracker_each(hooks: None) -> None:
    with Capture() as first, Capture() as second:
        for capture in (first, second):
            capture.tracer_provider.add_span_processor(processor_for(capture))
        foreign_run(first.tracer_provider)
        foreign_run(second.tracer_provider)
        foreign_run(second.tracer_provider)
        assert (first.value("loopeval.runs"), second.value("loopeval.runs")) == (1, 2)


def test_uninstrument_makes_the_processor_of_instrument_inert(capture: Capture) -> None:
    with loop("makes the pipeline"):
        pass
    capture.clear()
    uninstrument()
    foreign_run(capture.tracer_provider)
    assert capture.span("evaluation_loop")["attributes"] == {"loopeval.run.threshold": 8.0}
    assert capture.value("loopeval.runs") == 1


def test_the_instrumentations_processor_sees_foreign_runs_before_any_of_ours(capture: Capture) -> None:
    foreign_run(capture.tracer_provider)
    assert capture.span("evaluation_loop")["attributes"] == HEALTHY
