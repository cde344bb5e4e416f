"""What the demo shows and writes when its output is piped."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from command_line import Outcome, run_command
from google.protobuf import json_format
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from otel_loopeval import semconv
from otel_loopeval.otlp import read_file
from otel_loopeval.runs.dialects import own
from otel_loopeval.runs.reconstruct import replay
from otel_loopeval.runs.tracker import Tracker

SHOWN = """
Three loops with local agents, no model, no key: is each loop healthy?

✔ writer      improves until it is good enough  4 → 6 → 8
✘ polisher    goes on when it is good enough    6 → 8 → 8 → 8 → 6 → 8
✘ researcher  repeats the same search           2 → 2 → 2 → 2

Loop         Verdict       Iterations     Best   Scores   Why
────────────────────────────────────────────────────────────────────────────────
writer       ✔ healthy              3   8 of 8   ▅▆█      converged in 3
polisher     ✘ unhealthy            6   8 of 8   ▆███▆█   4 wasted iterations
researcher   ✘ unhealthy            4   2 of 8   ▃▃▃▃     did not converge, doom
                                                          loop (repeated_action)

Their traces (a full bar is the threshold):

evaluation_loop writer  ✔ healthy  3 of 5 iterations, TIME
Converged in 3 iteration(s).
├── iteration 1  ━━━━━─────  4 TIME
├── iteration 2  ━━━━━━━━──  6      +2 TIME
└── iteration 3  ━━━━━━━━━━  8      +2 TIME  threshold met

evaluation_loop polisher  ✘ unhealthy  6 of 6 iterations, TIME
Converged in 2 iteration(s). 4 wasted iteration(s) after threshold.
├── iteration 1  ━━━━━━━━──  6 TIME
├── iteration 2  ━━━━━━━━━━  8      +2 TIME  threshold met
├── iteration 3  ━━━━━━━━━━  8      +0 TIME  wasted
├── iteration 4  ━━━━━━━━━━  8      +0 TIME  wasted
├── iteration 5  ━━━━━━━━──  6      -2 TIME  wasted
└── iteration 6  ━━━━━━━━━━  8      +2 TIME  wasted

evaluation_loop researcher  ✘ unhealthy  4 of 8 iterations, stopped, TIME
Did not converge after 4 iteration(s). Doom-loop guard fired. 1 guard
intervention(s).
├── iteration 1  ━━────────  2 TIME
├── iteration 2  ━━────────  2      +0 TIME
├── iteration 3  ━━────────  2      +0 TIME
└── iteration 4  ━━────────  2      +0 TIME
    └── ▲ doom loop: repeated_action of search, 4 times (detector, rule exact)

Wrote 3 traces, 19 spans, to loopeval-demo.jsonl (OTLP/JSON lines).

Next steps
  See these traces in Jaeger, at http://localhost:16686:
    docker run -d -p 16686:16686 -p 4317:4317 jaegertracing/jaeger
    OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4317 otel-loopeval demo
  Watch a loop of your own:
    from otel_loopeval import iteration, loop

    with loop("my-agent", threshold=8) as run:
        for _ in range(5):
            with iteration() as it:
                it.score = judge(agent(prompt))
            if it.score >= 8 or run.doom_loop_fired:
                break
  Watch a PraisonAI loop without changing its code:
    pip install "otel-loopeval[auto]"
    opentelemetry-instrument python app.py
"""

SHOWN_IN_ASCII = """
+ writer      improves until it is good enough  4 -> 6 -> 8
x polisher    goes on when it is good enough    6 -> 8 -> 8 -> 8 -> 6 -> 8
x researcher  repeats the same search           2 -> 2 -> 2 -> 2

Loop       | Verdict     | Iterations |   Best | Scores      | Why
-----------+-------------+------------+--------+-------------+------------------
writer     | + healthy   |          3 | 8 of 8 | 4 6 8       | converged in 3
"""


def without_times(text: str) -> str:
    lines = (re.sub(r" +\d+(\.\d)? m?s\b", " TIME", line).rstrip() for line in text.splitlines())
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, Path]:
    folder = tmp_path_factory.mktemp("demo")
    return run_command("demo", cwd=folder), folder / "loopeval-demo.jsonl"


def test_it_shows_three_loops_their_verdicts_their_traces_and_what_to_do_next(demo: tuple[Outcome, Path]):
    outcome, _ = demo
    assert (outcome.status, outcome.err) == (0, "")
    assert without_times(outcome.out) == SHOWN


def test_piped_it_has_no_escape_codes_and_fits_eighty_columns(demo: tuple[Outcome, Path]):
    outcome, _ = demo
    assert "\x1b" not in outcome.out
    assert max(len(line) for line in outcome.out.splitlines()) == 80


def test_the_file_has_a_line_of_strict_otlp_for_each_trace_and_nothing_else_is_left(
    demo: tuple[Outcome, Path],
):
    _, file = demo
    assert [path.name for path in file.parent.iterdir()] == ["loopeval-demo.jsonl"]
    lines = file.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 3
    for line in lines:
        json.loads(line, parse_constant=pytest.fail)
        data = json_format.Parse(
            line, TracesData()
        )  # an id in hexadecimal is base64 to protobuf, though another one
        (resource,) = data.resource_spans
        service = {pair.key: pair.value.string_value for pair in resource.resource.attributes}["service.name"]
        assert service == "otel-loopeval-demo"
    assert re.fullmatch(
        r"[0-9a-f]{32}", json.loads(lines[0])["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["traceId"]
    )


def test_the_file_replays_to_the_verdicts_that_were_live(demo: tuple[Outcome, Path]):
    _, file = demo
    spans = list(read_file(file))
    live = {s.attributes[semconv.RUN_ID]: s.attributes for s in spans if own.is_root(s.name)}
    replayed = replay(spans, Tracker())
    assert [(run.agent, verdict.passed, verdict.outcome) for run, verdict, _ in replayed] == [
        ("writer", True, "completed"),
        ("polisher", False, "completed"),
        ("researcher", False, "stopped"),
    ]
    for run, verdict, _ in replayed:
        attributes, health = live[run.id], verdict.health
        found: dict[str, Any] = {
            semconv.RUN_OUTCOME: verdict.outcome,
            semconv.RUN_SUCCESS: verdict.success,
            semconv.RUN_BEST_SCORE: verdict.best_score,
            semconv.RUN_BEST_ITERATION: verdict.best_iteration,
            semconv.RUN_FINAL_SCORE: verdict.final_score,
            semconv.HEALTH_PASSED: verdict.passed,
            semconv.HEALTH_CONVERGED: verdict.converged,
            semconv.HEALTH_DOOM_LOOP_FIRED: health.doom_loop_fired,
            semconv.HEALTH_WASTED_ITERATIONS: health.wasted_iterations,
            semconv.HEALTH_ITERATIONS_TO_SUCCESS: health.iterations_to_success,
            semconv.HEALTH_GUARD_INTERVENTIONS: health.guard_interventions,
            semconv.HEALTH_SCORE_DELTA_PER_ITERATION: tuple(health.score_delta_per_iteration),
            semconv.HEALTH_REASONS: verdict.reasons or None,
            semconv.HEALTH_DOOM_LOOP_KINDS: verdict.doom_loop_kinds or None,
            semconv.HEALTH_REASONING: health.reasoning,
            semconv.HEALTH_TOTAL_DURATION_S: health.total_duration_s,
        }
        assert found == {name: attributes.get(name) for name in found}


def test_an_output_without_unicode_gets_ascii(tmp_path: Path):
    outcome = run_command("demo", cwd=tmp_path, env={"PYTHONUTF8": "0", "PYTHONIOENCODING": "cp1252"})
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.out.isascii()
    lines = "\n".join(line.rstrip() for line in outcome.out.splitlines())
    assert SHOWN_IN_ASCII in lines
    assert "`-- iteration 3  ##########  8      +2" in lines
    assert "! doom loop: repeated_action of search, 4 times" in lines


def test_the_environment_does_not_change_what_the_demo_shows(tmp_path: Path):
    outcome = run_command(
        "demo",
        cwd=tmp_path,
        env={
            "OTEL_TRACES_SAMPLER": "always_off",
            "LOOPEVAL_DETECTORS": "false",
            "LOOPEVAL_EVENTS": "log",
            "LOOPEVAL_THRESHOLD": "100",
            "LOOPEVAL_CONSOLE": "true",
            "LOOPEVAL_MAX_WASTED_ITERATIONS": "9",
        },
    )
    assert (outcome.status, outcome.err) == (0, "")
    assert without_times(outcome.out) == SHOWN


def test_the_file_can_have_another_name_and_replaces_what_was_there(tmp_path: Path):
    file = tmp_path / "traces.jsonl"
    file.write_text("old\n" * 10_000)
    outcome = run_command("demo", "--output", "traces.jsonl", cwd=tmp_path)
    assert outcome.status == 0
    assert "to traces.jsonl (OTLP/JSON lines)" in outcome.out
    assert len(list(read_file(file))) == 19
    assert [path.name for path in tmp_path.iterdir()] == ["traces.jsonl"]


def test_a_folder_that_is_not_there_is_said_before_anything_runs(tmp_path: Path):
    outcome = run_command("demo", "-o", "missing/traces.jsonl", cwd=tmp_path)
    assert outcome == Outcome(
        1,
        "",
        "otel-loopeval: cannot write 'missing/traces.jsonl': No such file or directory. "
        "Choose another file with --output.\n",
    )


def test_a_disabled_sdk_is_said(tmp_path: Path):
    outcome = run_command("demo", cwd=tmp_path, env={"OTEL_SDK_DISABLED": "true"})
    assert outcome.status == 2
    assert outcome.err == "otel-loopeval: OTEL_SDK_DISABLED is set: unset it to see anything\n"
