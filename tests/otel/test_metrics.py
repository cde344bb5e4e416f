"""Every metric: name, unit, type, exact attributes, buckets, exemplars, and how many series there are."""

import asyncio
from typing import Any

import pytest
from opentelemetry import metrics

from otel_loopeval import StopLoop, instrument, iteration, loop, record_guard_event
from otel_loopeval.testing import Capture

BASE = {
    "gen_ai.agent.name": "writer",
    "loopeval.run.mode": "optimize",
    "loopeval.run.framework": "otel_loopeval",
    "loopeval.run.nested": False,
}
UNITS = {
    "loopeval.runs.started": ("{run}", "Sum"),
    "loopeval.runs": ("{run}", "Sum"),
    "loopeval.doom_loop.fired": ("{event}", "Sum"),
    "loopeval.guard.interventions": ("{event}", "Sum"),
    "loopeval.run.iterations": ("{iteration}", "Histogram"),
    "loopeval.run.duration": ("s", "Histogram"),
    "loopeval.run.score_ratio": ("1", "Histogram"),
    "loopeval.iterations": ("{iteration}", "Sum"),
    "loopeval.iterations.wasted": ("{iteration}", "Sum"),
    "loopeval.tokens": ("{token}", "Sum"),
    "loopeval.wasted_tokens": ("{token}", "Sum"),
    "loopeval.run.open": ("{run}", "Sum"),
    "loopeval.run.idle_max": ("s", "Gauge"),
    "loopeval.iteration.duration": ("s", "Histogram"),
    "loopeval.iteration.score_ratio": ("1", "Histogram"),
    "loopeval.tracker.evicted_runs": ("{run}", "Sum"),
    "loopeval.tracker.late_spans": ("{span}", "Sum"),
    "loopeval.tracker.errors": ("{error}", "Sum"),
}


def chat(capture: Capture, input_tokens: int, output_tokens: int) -> None:
    """A model call as an instrumented client reports it."""
    tracer = capture.tracer_provider.get_tracer("client")
    with tracer.start_as_current_span("chat gpt") as span:
        span.set_attributes(
            {"gen_ai.usage.input_tokens": input_tokens, "gen_ai.usage.output_tokens": output_tokens}
        )


def everything(capture: Capture) -> None:
    """A run that touches every metric of a run that ends well or not."""
    with loop("writer", threshold=8, max_iterations=5):
        for score in (4, 10, 6):
            with iteration() as it:
                chat(capture, 10, 3)
                if score == 6:
                    record_guard_event({"type": "repeated_action"})
                it.score = score


def attributes_of(capture: Capture, metric: str) -> list[tuple[dict[str, Any], Any]]:
    return [(point["attributes"], point["value"]) for point in capture.points(metric)]


@pytest.mark.swallows
def test_names_units_and_types(plain_capture: Capture) -> None:
    def broken(event: Any, run: Any) -> None:
        raise ZeroDivisionError

    plain_capture.instrument(iteration_metrics=True, on_doom_loop=broken)
    everything(plain_capture)
    tracer = plain_capture.tracer_provider.get_tracer("client")
    late: list[Any] = []
    with loop("writer"):
        late.append(tracer.start_span("late"))
    late[0].end()
    found = plain_capture.metrics()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOOPEVAL_MAX_OPEN_RUNS", "1")
        with Capture() as small:
            small.instrument()
            with loop("outer"), loop("inner"):
                pass
            assert attributes_of(small, "loopeval.tracker.evicted_runs") == [
                ({"loopeval.reason": "capacity"}, 1)
            ]
            found.update(small.metrics())
    assert {name: (metric["unit"], metric["type"]) for name, metric in found.items()} == UNITS


def test_every_metric_is_described(capture: Capture) -> None:
    everything(capture)
    for name, metric in capture.metrics().items():
        assert metric["description"], name


def test_runs_and_iterations(capture: Capture) -> None:
    everything(capture)
    assert attributes_of(capture, "loopeval.runs.started") == [(BASE, 1)]
    assert attributes_of(capture, "loopeval.runs") == [
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
    assert attributes_of(capture, "loopeval.iterations") == [(BASE, 3)]
    assert attributes_of(capture, "loopeval.iterations.wasted") == [(BASE, 1)]


def test_guards_and_doom_loops(capture: Capture) -> None:
    with loop("writer"):
        record_guard_event({"type": "repeated_action", "action": "block"})
        record_guard_event({"type": "repeated_action", "action": "block"})
        record_guard_event({"type": "note"})
    assert attributes_of(capture, "loopeval.doom_loop.fired") == [
        (
            {
                **BASE,
                "loopeval.guard.kind": "repeated_action",
                "loopeval.guard.source": "application",
                "loopeval.guard.action": "block",
            },
            1,
        )
    ]
    assert attributes_of(capture, "loopeval.guard.interventions") == [
        ({**BASE, "loopeval.guard.kind": "repeated_action", "loopeval.guard.action": "block"}, 2),
        ({**BASE, "loopeval.guard.kind": "other", "loopeval.guard.action": "observe"}, 1),
    ]


def test_a_doom_loop_is_counted_when_it_fires(capture: Capture) -> None:
    with loop("writer"):
        record_guard_event({"type": "doom_loop"})
        assert capture.value("loopeval.doom_loop.fired") == 1
        assert capture.value("loopeval.runs") == 0


def test_tokens(capture: Capture) -> None:
    everything(capture)
    assert attributes_of(capture, "loopeval.tokens") == [
        ({**BASE, "gen_ai.token.type": "input"}, 30),
        ({**BASE, "gen_ai.token.type": "output"}, 9),
    ]
    assert attributes_of(capture, "loopeval.wasted_tokens") == [(BASE, 13)]


def test_tokens_are_counted_as_each_call_ends(capture: Capture) -> None:
    with loop("writer"), iteration():
        chat(capture, 10, 0)
        assert attributes_of(capture, "loopeval.tokens") == [({**BASE, "gen_ai.token.type": "input"}, 10)]


def test_histograms(capture: Capture) -> None:
    everything(capture)
    (iterations,) = capture.points("loopeval.run.iterations")
    assert iterations["attributes"] == BASE
    assert (iterations["count"], iterations["sum"]) == (1, 3)
    assert iterations["bounds"] == [1, 2, 3, 5, 8, 13, 25]
    assert iterations["buckets"] == [0, 0, 1, 0, 0, 0, 0, 0]
    (duration,) = capture.points("loopeval.run.duration")
    assert duration["bounds"] == [1, 10, 60, 600, 3_600, 86_400, 604_800]
    assert (duration["count"], 0 < duration["sum"] < 60) == (1, True)
    (ratio,) = capture.points("loopeval.run.score_ratio")
    assert ratio["bounds"] == [0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25]
    assert (ratio["count"], ratio["sum"]) == (1, 1.25)


def test_no_histogram_has_more_than_eight_buckets(plain_capture: Capture) -> None:
    plain_capture.instrument(iteration_metrics=True)
    everything(plain_capture)
    histograms = [m for m in plain_capture.metrics().values() if m["type"] == "Histogram"]
    assert len(histograms) == 5
    assert {len(point["buckets"]) for metric in histograms for point in metric["points"]} == {8}


def test_a_run_without_scores_has_no_score_ratio(capture: Capture) -> None:
    with loop("writer"), iteration():
        pass
    with loop("zero", threshold=0), iteration() as it:
        it.score = 1
    assert capture.points("loopeval.run.score_ratio") == []


def test_iteration_metrics(plain_capture: Capture) -> None:
    plain_capture.instrument(iteration_metrics=True)
    everything(plain_capture)
    (duration,) = plain_capture.points("loopeval.iteration.duration")
    assert (duration["attributes"], duration["count"]) == (BASE, 3)
    (ratio,) = plain_capture.points("loopeval.iteration.score_ratio")
    assert (ratio["count"], ratio["sum"]) == (3, 2.5)


def test_a_score_below_zero_counts_as_zero(plain_capture: Capture, caplog: pytest.LogCaptureFixture) -> None:
    """Histograms take nothing negative: the SDK would drop the value and log a warning for each."""
    plain_capture.instrument(iteration_metrics=True)
    with loop("writer"), iteration() as it:
        it.score = -3
    for metric in ("loopeval.run.score_ratio", "loopeval.iteration.score_ratio"):
        (ratio,) = plain_capture.points(metric)
        assert (ratio["count"], ratio["sum"]) == (1, 0.0)
    assert caplog.records == []


def test_open_and_idle_runs(capture: Capture) -> None:
    with loop("writer"):
        with loop("writer"):
            assert capture.value("loopeval.run.open", {"loopeval.run.nested": False}) == 1
            assert capture.value("loopeval.run.open", {"loopeval.run.nested": True}) == 1
        (idle,) = capture.points("loopeval.run.idle_max", {"loopeval.run.nested": False})
        assert 0 < idle["value"] < 60
    assert attributes_of(capture, "loopeval.run.open") == [
        (BASE, 0),
        ({**BASE, "loopeval.run.nested": True}, 0),
    ]
    assert capture.value("loopeval.run.idle_max") == 0


def test_outcomes_without_a_verdict_stay_out_of_health_rates(capture: Capture) -> None:
    with loop("writer") as run:
        run.paused()
    assert attributes_of(capture, "loopeval.runs") == [
        ({**BASE, "loopeval.run.outcome": "paused", "loopeval.health.doom_loop_fired": False}, 1)
    ]


def test_the_error_type_of_a_failed_run(capture: Capture) -> None:
    with pytest.raises(ValueError), loop("writer"):
        raise ValueError("words")
    ((attributes, _),) = attributes_of(capture, "loopeval.runs")
    assert attributes["error.type"] == "ValueError"
    assert attributes["loopeval.run.outcome"] == "failed"


def test_exemplars_point_at_the_root_of_the_run(plain_capture: Capture) -> None:
    plain_capture.instrument(iteration_metrics=True)
    tracer = plain_capture.tracer_provider.get_tracer("app")
    with tracer.start_as_current_span("request"):
        everything(plain_capture)
    metrics = plain_capture.metrics()
    root = plain_capture.span("evaluation_loop")
    chats = {span["id"] for span in plain_capture.spans("chat")}
    iterations = {span["id"] for span in plain_capture.spans("evaluation_loop.iteration")}
    without = {"loopeval.run.open", "loopeval.run.idle_max", "loopeval.tracker.errors"}
    assert metrics.keys() - without == {
        "loopeval.runs.started",
        "loopeval.runs",
        "loopeval.doom_loop.fired",
        "loopeval.guard.interventions",
        "loopeval.run.iterations",
        "loopeval.run.duration",
        "loopeval.run.score_ratio",
        "loopeval.iterations",
        "loopeval.iterations.wasted",
        "loopeval.tokens",
        "loopeval.wasted_tokens",
        "loopeval.iteration.duration",
        "loopeval.iteration.score_ratio",
    }
    for name in metrics.keys() - without:
        for point in metrics[name]["points"]:
            assert point["exemplars"], name
            for exemplar in point["exemplars"]:
                assert exemplar["trace_id"] == root["trace_id"], name
                expected = {root["id"]}
                if name == "loopeval.tokens":
                    expected = chats  # the call itself, which is in the same trace
                elif name.startswith("loopeval.iteration."):
                    expected = iterations
                assert exemplar["span_id"] in expected, name


def series(metrics: dict[str, dict[str, Any]], agent: str) -> int:
    """Time series that Prometheus makes of an agent's points: a histogram has buckets, a sum and a count."""
    return sum(
        len(point["buckets"]) + 2 if "buckets" in point else 1
        for metric in metrics.values()
        for point in metric["points"]
        if point["attributes"].get("gen_ai.agent.name") == agent
    )


def test_an_agent_of_varied_fortunes_stays_within_70_series(capture: Capture) -> None:
    """Every outcome, several kinds of doom loop and of errors, tokens and waste, of one agent."""

    def run(scores: tuple[float, ...] = (), error: BaseException | None = None, **guard: str) -> None:
        try:
            with loop("writer", threshold=8, max_iterations=3) as current:
                for score in scores:
                    with iteration() as it:
                        chat(capture, 10, 3)
                        it.score = score
                if guard.get("paused"):
                    current.paused()
                elif guard:
                    record_guard_event(guard)
                if error is not None:
                    raise error
        except BaseException as raised:
            if raised is not error:
                raise

    run((9,))
    run((5, 6))
    run((5, 6, 7))
    run((9, 5))
    run((5,), type="repeated_action")
    run((5,), type="repeated_failure", action="halt")
    run((9,), type="no_progress")
    run((), type="note")
    run((5,), error=ValueError())
    run((5,), error=TimeoutError())
    run((5,), error=StopLoop())
    run((5,), error=asyncio.CancelledError())
    run((5,), error=KeyboardInterrupt())
    run((5,), paused="yes")
    count = series(capture.metrics(), "writer")
    print(f"series of one agent: {count}")
    assert count <= 70


def test_a_healthy_agent_needs_few_series(capture: Capture) -> None:
    with loop("writer"), iteration() as it:
        chat(capture, 10, 3)
        it.score = 9
    assert series(capture.metrics(), "writer") == 37


def test_at_most_a_hundred_agents(capture: Capture) -> None:
    for number in range(120):
        with loop(f"agent-{number}"), iteration() as it:
            it.score = 9
    agents = {
        point["attributes"]["gen_ai.agent.name"]: point["value"] for point in capture.points("loopeval.runs")
    }
    assert len(agents) == 101
    assert agents["_other"] == 20
    assert agents["agent-99"] == 1
    # Spans keep the real name.
    assert capture.spans("evaluation_loop")[-1]["attributes"]["gen_ai.agent.name"] == "agent-119"


def test_a_hundred_agents_in_all_however_often_it_is_reconfigured(capture: Capture) -> None:
    for round_number in range(2):
        for number in range(100):
            with loop(f"agent-{round_number}-{number}"):
                pass
        capture.instrument()
    agents = {point["attributes"]["gen_ai.agent.name"] for point in capture.points("loopeval.runs")}
    assert len(agents) == 101


def test_open_runs_are_counted_once_after_a_reconfiguration(capture: Capture) -> None:
    with loop("writer"):
        capture.instrument(iteration_metrics=True)
        with loop("writer"):
            assert capture.value("loopeval.run.open") == 2
    assert capture.value("loopeval.run.open") == 0


def test_metrics_go_to_the_global_meter_provider_by_default(plain_capture: Capture) -> None:
    assert type(metrics.get_meter_provider()).__name__ == "_ProxyMeterProvider"
    instrument(tracer_provider=plain_capture.tracer_provider)
    with loop("writer"):
        pass
    assert plain_capture.metrics() == {}


def test_the_gauges_outlive_a_change_of_options(plain_capture: Capture) -> None:
    plain_capture.instrument()
    plain_capture.instrument(iteration_metrics=True)
    with loop("writer"):
        pass
    assert [point["value"] for point in plain_capture.metrics()["loopeval.run.open"]["points"]] == [0]
    assert [point["value"] for point in plain_capture.metrics()["loopeval.run.idle_max"]["points"]] == [0]
