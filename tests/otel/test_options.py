"""Options: arguments first, then ``LOOPEVAL_*`` variables, then defaults."""

from typing import Any

import pytest

from otel_loopeval import LoopHealthProcessor, instrument, iteration, loop, record_guard_event
from otel_loopeval.otel.options import Options
from otel_loopeval.testing import Capture

called: list[Any] = []


def noting(event: Any, run: Any) -> None:
    """What LOOPEVAL_ON_DOOM_LOOP names in a test below."""
    called.append(event)


def test_defaults() -> None:
    assert Options.of({}, {}) == Options(
        threshold=None,
        max_wasted_iterations=None,
        token_budget=None,
        events="span",
        iteration_metrics=False,
        detectors=True,
        on_doom_loop=None,
        console=None,
        max_open_runs=20_000,
        max_idle_s=None,
        sigterm=True,
    )


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        ("threshold", "7", 7.0),
        ("threshold", " 0.8 ", 0.8),
        ("max_wasted_iterations", "2", 2),
        ("token_budget", "10000", 10_000),
        ("events", "log", "log"),
        ("events", "BOTH", "both"),
        ("iteration_metrics", "true", True),
        ("iteration_metrics", "No", False),
        ("detectors", "0", False),
        ("detectors", "on", True),
        ("console", "yes", True),
        ("max_open_runs", "5", 5),
        ("max_idle_s", "0.5", 0.5),
        ("sigterm", "off", False),
    ],
)
def test_each_variable(option: str, text: str, value: Any) -> None:
    options = Options.of({}, {f"LOOPEVAL_{option.upper()}": text})
    got = getattr(options, option)
    assert (got, type(got)) == (value, type(value))


BAD = [
    ("threshold", "high", "LOOPEVAL_THRESHOLD must be a number, got 'high'", "8.0"),
    ("threshold", "nan", "LOOPEVAL_THRESHOLD must be a finite number, got nan", "8.0"),
    (
        "max_wasted_iterations",
        "-1",
        "LOOPEVAL_MAX_WASTED_ITERATIONS must be a whole number of at least 0, got -1",
        "0",
    ),
    ("max_wasted_iterations", "1.5", "LOOPEVAL_MAX_WASTED_ITERATIONS must be a whole number, got '1.5'", "0"),
    ("token_budget", "1k", "LOOPEVAL_TOKEN_BUDGET must be a whole number, got '1k'", "None"),
    ("events", "spans", "LOOPEVAL_EVENTS must be one of 'span', 'log', 'both', got 'spans'", "'span'"),
    ("iteration_metrics", "maybe", "LOOPEVAL_ITERATION_METRICS must be true or false, got 'maybe'", "False"),
    ("detectors", "2", "LOOPEVAL_DETECTORS must be true or false, got '2'", "True"),
    (
        "on_doom_loop",
        "module",
        "LOOPEVAL_ON_DOOM_LOOP must be 'package.module:function', got 'module'",
        "None",
    ),
    ("max_open_runs", "0", "LOOPEVAL_MAX_OPEN_RUNS must be a whole number of at least 1, got 0", "20000"),
    ("max_idle_s", "-3", "LOOPEVAL_MAX_IDLE_S must be a number of seconds above 0, got '-3'", "None"),
]


@pytest.mark.parametrize(("option", "text", "message", "default"), BAD)
def test_a_bad_variable_is_one_warning_and_the_default(
    option: str, text: str, message: str, default: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = Options.of({}, {f"LOOPEVAL_{option.upper()}": text})
    assert options == Options()
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().replace("got -3.0", "got '-3'") == (
        f"otel-loopeval: {message}; using the default, {default}"
    )


def test_a_good_variable_beside_a_bad_one_counts() -> None:
    options = Options.of({}, {"LOOPEVAL_THRESHOLD": "7", "LOOPEVAL_EVENTS": "nowhere"})
    assert (options.threshold, options.events) == (7.0, "span")


def test_an_argument_wins_over_a_variable_and_silences_its_warning(caplog: pytest.LogCaptureFixture) -> None:
    options = Options.of({"threshold": 5}, {"LOOPEVAL_THRESHOLD": "junk"})
    assert options.threshold == 5.0
    assert caplog.records == []


@pytest.mark.parametrize(
    ("argument", "value", "error", "message"),
    [
        ("threshold", "8", TypeError, "threshold must be a finite number, got '8'"),
        ("threshold", float("inf"), ValueError, "threshold must be a finite number, got inf"),
        (
            "max_wasted_iterations",
            -1,
            ValueError,
            "max_wasted_iterations must be a whole number of at least 0, got -1",
        ),
        ("token_budget", 1.5, TypeError, "token_budget must be a whole number of at least 0, got 1.5"),
        ("events", "spans", ValueError, "events must be one of 'span', 'log', 'both', got 'spans'"),
        ("iteration_metrics", "yes", TypeError, "iteration_metrics must be True or False, got 'yes'"),
        ("detectors", 1, TypeError, "detectors must be True or False, got 1"),
        ("on_doom_loop", 5, TypeError, "on_doom_loop must be callable as on_doom_loop(event, run), got 5"),
        ("console", "no", TypeError, "console must be True or False, got 'no'"),
    ],
)
def test_bad_arguments_are_refused(argument: str, value: Any, error: type[Exception], message: str) -> None:
    for take in (instrument, LoopHealthProcessor):
        with pytest.raises(error) as caught:
            take(**{argument: value})
        assert str(caught.value) == message


def test_the_processor_refuses_options_that_it_does_not_know() -> None:
    with pytest.raises(TypeError, match=r"^LoopHealthProcessor has no option treshold$"):
        LoopHealthProcessor(treshold=8)


def test_instrument_with_a_bad_argument_changes_nothing(plain_capture: Capture) -> None:
    plain_capture.instrument(threshold=5)
    with pytest.raises(ValueError):
        plain_capture.instrument(threshold=9, events="nowhere")
    with loop("writer") as run:
        assert run.threshold == 5.0


def test_variables_reach_the_runs(plain_capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPEVAL_THRESHOLD", "5")
    monkeypatch.setenv("LOOPEVAL_MAX_WASTED_ITERATIONS", "1")
    monkeypatch.setenv("LOOPEVAL_TOKEN_BUDGET", "10")
    plain_capture.instrument()
    with loop("writer"):
        for _ in range(2):
            with iteration() as it:
                it.score = 5
    root = plain_capture.span("evaluation_loop")["attributes"]
    assert root["loopeval.health.threshold"] == 5.0
    assert root["loopeval.health.passed"] is True
    assert root["loopeval.health.over_token_budget"] is False
    assert "loopeval.run.threshold" not in root  # the run itself brought none


def test_a_runs_own_settings_win(plain_capture: Capture) -> None:
    plain_capture.instrument(threshold=5, max_wasted_iterations=0, token_budget=1)
    with loop("writer", threshold=4, max_wasted_iterations=3, token_budget=100):
        for _ in range(3):
            with iteration() as it:
                it.score = 4
    root = plain_capture.span("evaluation_loop")["attributes"]
    assert root["loopeval.health.threshold"] == 4.0
    assert root["loopeval.health.passed"] is True


def test_a_callback_named_in_the_environment(plain_capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPEVAL_ON_DOOM_LOOP", f"{__name__}:noting")
    called.clear()
    plain_capture.instrument()
    with loop("writer"):
        record_guard_event({"type": "doom_loop"})
    assert [event.kind for event in called] == ["loop_detected"]


@pytest.mark.swallows
def test_a_named_callback_that_is_not_there(
    plain_capture: Capture, monkeypatch: pytest.MonkeyPatch, swallowed: list[tuple[str, Exception]]
) -> None:
    monkeypatch.setenv("LOOPEVAL_ON_DOOM_LOOP", "no_such_module:function")
    plain_capture.instrument()
    with loop("writer"):
        record_guard_event({"type": "doom_loop"})
    assert [(place, type(error)) for place, error in swallowed] == [("on_doom_loop", ModuleNotFoundError)]


def test_instrument_again_reconfigures(plain_capture: Capture) -> None:
    plain_capture.instrument(threshold=5)
    with loop("before"), iteration() as it:
        it.score = 6
    plain_capture.instrument(threshold=7, events="log")
    with loop("after"), iteration() as it:
        it.score = 6
    before, after = (
        span["attributes"]["loopeval.health.passed"] for span in plain_capture.spans("evaluation_loop")
    )
    assert (before, after) == (True, False)
    assert len(plain_capture.logs()) == 1
    assert plain_capture.value("loopeval.runs") == 2
