"""``otel-loopeval score``: what it reads, what it writes, and how it ends."""

import gzip
import io
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from command_line import run_command

from otel_loopeval.cli.main import main
from otel_loopeval.otlp import trace_line
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.testing import FixedClock, TraceBuilder

CLOCK_STARTS = 1_700_000_000_000_000_000  # 2023-11-14T22:13:20Z


class Score:
    """Calls ``score`` in this process."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        """Exit status, standard output and standard error."""
        try:
            status = main(["score", *map(str, arguments)])
        except SystemExit as ended:
            status = int(str(ended.code))
        out, err = self._capsys.readouterr()
        return status, out, err

    def json(self, *arguments: object) -> dict[str, Any]:
        """The report."""
        return json.loads(self(*arguments, "--format", "json")[1])

    def file(self, *traces: Iterable[SpanData], name: str = "spans.jsonl") -> Path:
        """A file with a line for each trace."""
        path = self.folder / name
        path.write_text("".join(trace_line(spans) + "\n" for spans in traces))
        return path


@pytest.fixture
def score(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Score:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return Score(tmp_path, capsys)


def trace(
    number: int, *scores: float | None, agent: str = "writer", hours: int = 0, threshold: float | None = None
) -> list[SpanData]:
    """A trace with one run."""
    builder = TraceBuilder(number << 96 | number, FixedClock(CLOCK_STARTS + hours * 3_600_000_000_000))
    attributes: dict[str, Any] = {"loopeval.run.id": f"run-{number:04}"}
    if threshold is not None:
        attributes["loopeval.run.threshold"] = threshold
    builder.run(scores, agent=agent, attributes=attributes)
    return builder.spans


HEALTHY = trace(1, 5.0, 8.0)
UNHEALTHY = trace(2, 2.0, agent="searcher")
WASTED = trace(3, 9.0, 9.0, agent="polisher")


def test_a_table_for_people_and_status_1(score: Score):
    status, out, err = score(score.file(HEALTHY, UNHEALTHY, WASTED))
    assert (status, err) == (1, "")
    assert [line.rstrip() for line in out.splitlines()] == [
        "Run        Loop       Verdict       Iterations   Scores   Why",
        "────────────────────────────────────────────────────────────────────────────",
        "run-0002   searcher   ✘ unhealthy            1   ▃        did not converge",
        "run-0003   polisher   ✘ unhealthy            2   ██       1 wasted iteration",
        "run-0001   writer     ✔ healthy              2   ▅█       converged in 2",
        "",
        "Agent      Runs   Healthy   Doom loops   Wasted   Tokens per run",
        "────────────────────────────────────────────────────────────────",
        "polisher      1        0%            0   1 of 2",
        "searcher      1        0%            0   0 of 1",
        "writer        1      100%            0   0 of 2",
        "",
        "3 runs, 1 healthy, 2 unhealthy",
        "✘ unhealthy: 2 runs unhealthy: searcher run-0002, polisher run-0003",
    ]


def test_healthy_runs_are_status_0(score: Score):
    status, out, _ = score(score.file(HEALTHY))
    assert status == 0
    assert out.splitlines()[-2:] == ["1 run, 1 healthy, 0 unhealthy", "✔ passed"]


def test_a_narrow_terminal_gets_a_list(score: Score, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "50")
    _, out, _ = score(score.file(UNHEALTHY))
    assert [line.rstrip() for line in out.splitlines()[:4]] == [
        "searcher  ✘ unhealthy",
        "  1 iteration, 1.0 s, best 2 of 8",
        "  did not converge",
        "  run run-0002",
    ]


def test_very_many_runs_are_summed_up(score: Score):
    status, out, _ = score(score.file(*(trace(n, 9.0, agent=f"agent {n % 3}") for n in range(1, 81))))
    assert status == 0
    assert "… 30 more runs, see --format jsonl" in out
    assert "agent 0     26      100%            0   0 of 26" in out


def test_runs_inside_others_are_counted_apart_and_do_not_fail(score: Score):
    builder = TraceBuilder(5)
    outer = builder.run([9.0])
    builder.run([1.0], agent="critic", parent_id=outer.span_id)
    inner = builder.spans[-1]
    spans = [s for s in builder.spans if s is not inner]
    moved = SpanData(
        inner.name,
        inner.trace_id,
        inner.span_id,
        outer.span_id,
        outer.start_ns,
        outer.end_ns,
        inner.attributes,
    )
    report = score.json(score.file([*spans, moved]))
    assert [(run["agent"], run["nested"], run["passed"]) for run in report["runs"]] == [
        ("agent", False, True),
        ("critic", True, False),
    ]
    assert report["gate"]["passed"] is True
    assert (report["summary"]["runs"]["runs"], report["summary"]["nested_runs"]["unhealthy"]) == (1, 1)
    _, out, _ = score(score.file([*spans, moved]))
    assert "1 run, 1 healthy, 0 unhealthy, 1 more inside them (1 unhealthy)" in out


# Input --------------------------------------------------------------------------------------------


def test_several_locations_folders_globs_and_compression(score: Score):
    (score.folder / "sub").mkdir()
    score.file(HEALTHY, name="sub/a.jsonl")
    (score.folder / "sub" / "b.jsonl.gz").write_bytes(gzip.compress(trace_line(UNHEALTHY).encode()))
    assert score.json("sub")["summary"]["runs"]["runs"] == 2
    assert score.json("sub/*.jsonl")["summary"]["runs"]["runs"] == 1
    assert score.json("sub/a.jsonl", "sub/b.jsonl.gz", score.file(WASTED))["summary"]["runs"]["runs"] == 3


def test_a_trace_whose_spans_are_in_several_files_is_one(score: Score):
    first = score.file(UNHEALTHY[:1], name="a.jsonl")
    second = score.file(UNHEALTHY[1:], name="b.jsonl")
    report = score.json(first, second)
    assert [(run["agent"], run["outcome"]) for run in report["runs"]] == [("searcher", "completed")]
    assert report["source"]["traces"] == 1


def test_standard_input(score: Score, monkeypatch: pytest.MonkeyPatch):
    class Input(io.TextIOWrapper):
        pass

    monkeypatch.setattr(sys, "stdin", Input(io.BytesIO((trace_line(HEALTHY) + "\n").encode())))
    assert score.json("-")["summary"]["runs"]["healthy"] == 1


def test_a_broken_line_is_named_and_the_rest_counts(score: Score):
    path = score.file(HEALTHY, HEALTHY)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], '{"resourceSpans": 3}', "{", trace_line(WASTED)]) + "\n")
    status, out, err = score(path, "--format", "json")
    assert status == 1
    assert err.splitlines()[0].startswith(f"otel-loopeval: skipped {path}, line 2: resourceSpans: expected ")
    assert err.splitlines()[1].startswith(f"otel-loopeval: skipped {path}, line 3: ")
    assert json.loads(out)["source"]["errors"] == 2
    assert json.loads(out)["summary"]["runs"]["runs"] == 2


def test_strict_stops_at_the_first_broken_line(score: Score):
    path = score.file(HEALTHY)
    path.write_text(path.read_text() + '{"resourceSpans": 3}\n')
    status, out, err = score(path, "--strict", "--format", "json")
    assert (status, out) == (3, "")
    assert err.startswith(f"otel-loopeval: cannot read {path}, line 2: resourceSpans: expected ")
    assert len(err.splitlines()) == 1


def test_very_many_faults_are_not_told_one_by_one(score: Score):
    path = score.file(HEALTHY)
    path.write_text(path.read_text() + "3\n" * 100)
    status, _, err = score(path)
    assert status == 0
    assert len(err.splitlines()) == 21
    assert err.splitlines()[-1] == "otel-loopeval: more that cannot be read is skipped silently"


@pytest.mark.parametrize("location", ["nowhere.jsonl", "jaeger+http://127.0.0.1:9", "ftp://x"])
def test_what_is_not_there_is_status_3(score: Score, location: str):
    status, out, err = score(location)
    assert (status, out) == (3, "")
    assert err.startswith("otel-loopeval: cannot read ")
    assert "Traceback" not in err


def test_nothing_but_faults_is_status_3_whatever_the_gate(score: Score):
    (score.folder / "x.jsonl").write_text("{\n")
    status, out, err = score("x.jsonl", "--fail-on", "none")
    assert (status, out) == (3, "")
    assert err.splitlines()[-1] == "otel-loopeval: cannot read any of the input"


def test_faults_cannot_drive_the_terminal(score: Score):
    (score.folder / "x.jsonl").write_text('"\\u001b]0;owned\\u0007"\n\x1b[31m\n')
    _, _, err = score("x.jsonl")
    assert "\x1b" not in err


# Which runs ---------------------------------------------------------------------------------------


def test_by_agent_and_by_number_of_traces(score: Score):
    path = score.file(HEALTHY, UNHEALTHY, WASTED)
    assert [run["id"] for run in score.json(path, "--agent", "polisher")["runs"]] == ["run-0003"]
    assert [run["id"] for run in score.json(path, "--limit", "2")["runs"]] == ["run-0001", "run-0002"]


def test_by_service(score: Score):
    def of(service: str, spans: list[SpanData]) -> list[SpanData]:
        resource = {"service.name": service}
        return [
            SpanData(
                s.name,
                s.trace_id,
                s.span_id,
                s.parent_id,
                s.start_ns,
                s.end_ns,
                s.attributes,
                resource=resource,
            )
            for s in spans
        ]

    path = score.file(of("a", HEALTHY), of("b", UNHEALTHY))
    assert [run["service"] for run in score.json(path, "--service", "b")["runs"]] == ["b"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--since", "2023-11-15"], ["run-0002", "run-0003"]),
        (["--until", "2023-11-15T12:00:00Z"], ["run-0001", "run-0002"]),
        (["--since", "2023-11-15", "--until", "2023-11-15T17:00+05:00"], ["run-0002"]),
        (["--since", "1h"], []),
        (["--until", "52w"], ["run-0001", "run-0002", "run-0003"]),
    ],
)
def test_by_time(score: Score, arguments: list[str], expected: list[str]):
    path = score.file(trace(1, 9.0), trace(2, 9.0, hours=8), trace(3, 9.0, hours=24))
    assert [run["id"] for run in score.json(path, *arguments)["runs"]] == expected


def test_what_is_healthy_where_a_run_does_not_say(score: Score):
    path = score.file(trace(1, 6.0), trace(2, 6.0, 6.0, 6.0, threshold=6.0))
    assert [run["passed"] for run in score.json(path)["runs"]] == [False, False]
    report = score.json(path, "--threshold", "5", "--max-wasted-iterations", "2")
    assert [(run["passed"], run["threshold"]) for run in report["runs"]] == [(True, 5.0), (True, 6.0)]


# Gate ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ([], 1),
        (["--fail-on", "none"], 0),
        (["--fail-on", "doom_loop"], 0),
        (["--fail-on", "doom_loop,budget"], 0),
        (["--fail-on", "waste"], 1),
        (["--fail-on", "waste", "--max-wasted-iterations", "1"], 0),
        (["--max-doom-loop-rate", "0.5"], 0),
        (["--max-doom-loop-rate", "0.5", "--fail-on", "unhealthy"], 1),
        (["--agent", "writer"], 0),
        (["--agent", "nobody"], 1),
        (["--agent", "nobody", "--allow-empty"], 0),
        (["--agent", "nobody", "--fail-on", "no_runs", "--allow-empty"], 0),
        (["--agent", "nobody", "--fail-on", "doom_loop"], 1),
        (["--agent", "nobody", "--fail-on", "none"], 0),
    ],
)
def test_the_gate(score: Score, arguments: list[str], status: int):
    assert score(score.file(HEALTHY, WASTED), *arguments)[0] == status


def test_doom_loops_and_budgets(score: Score):
    builder = TraceBuilder(7)
    builder.run([9.0], events={1: [builder.guard_event()]})
    doomed = score.file(builder.spans, HEALTHY, name="doomed.jsonl")
    assert score(doomed, "--fail-on", "doom_loop")[0] == 1
    assert score(doomed, "--max-doom-loop-rate", "0.5")[0] == 0
    assert score(doomed, "--max-doom-loop-rate", "0.4")[0] == 1
    builder = TraceBuilder(8)
    root = builder.run([9.0])
    builder.span(
        "chat m",
        parent_id=root.span_id,
        start_ns=root.start_ns + 1,
        duration_s=0.5,
        attributes={"gen_ai.usage.input_tokens": 80, "gen_ai.usage.output_tokens": 21},
    )
    spender = score.file(builder.spans)
    assert score(spender, "--fail-on", "budget")[0] == 0
    assert score(spender, "--fail-on", "budget", "--token-budget", "101")[0] == 0
    assert score(spender, "--fail-on", "budget", "--token-budget", "100")[0] == 1


def test_a_baseline(score: Score):
    before = score.file(*(trace(n, 9.0) for n in range(1, 11)), name="before.jsonl")
    assert score(before, "--format", "json", "-o", "baseline.json")[0] == 0
    worse = score.file(*(trace(n, 9.0 if n > 3 else 1.0) for n in range(1, 11)))
    status, out, _ = score(worse, "--baseline", "baseline.json")
    assert status == 1
    assert "✘ baseline: writer: health rate fell, 100.0% to 70.0%" in out
    assert score(worse, "--baseline", "baseline.json", "--tolerance", "0.3")[0] == 0
    status, out, _ = score(worse, "--baseline", "baseline.json", "--min-runs", "11")
    assert status == 0
    assert "note: not compared with the baseline, fewer than 11 runs with a verdict" in out
    # A few bad runs fail nothing by themselves where the baseline has them, too.
    assert score(worse, "--format", "json", "-o", "baseline.json", "--fail-on", "none")[0] == 0
    assert score(worse, "--baseline", "baseline.json")[0] == 0


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "No such file or directory"), ("{}", "it is no report of `score --format json`")],
)
def test_a_baseline_that_cannot_be_used_is_bad_use(score: Score, content: str | None, problem: str):
    if content is not None:
        (score.folder / "baseline.json").write_text(content)
    status, out, err = score(score.file(HEALTHY), "--baseline", "baseline.json")
    assert (status, out) == (2, "")
    assert err.startswith(f"otel-loopeval: cannot use the baseline 'baseline.json': {problem}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: PATH|URL"),
        (
            ["x", "--fail-on", "wast"],
            "'wast' is no condition: allowed are unhealthy, doom_loop, waste, budget",
        ),
        (["x", "--fail-on", ""], "'' is no condition"),
        (["x", "--format", "xml"], "invalid choice: 'xml'"),
        (["x", "--limit", "0"], "'0' is no whole number from 1"),
        (["x", "--max-wasted-iterations", "-1"], "'-1' is no whole number from 0"),
        (["x", "--token-budget", "1.5"], "'1.5' is no whole number from 1"),
        (["x", "--max-doom-loop-rate", "5"], "'5' is not from 0 to 1"),
        (["x", "--max-doom-loop-rate", "nan"], "'nan' is no finite number"),
        (["x", "--threshold", "high"], "'high' is no finite number"),
        (["x", "--token-tolerance=-1"], "'-1' is below 0"),
        (["x", "--since", "yesterday"], "'yesterday' is no time: an ISO 8601 time such as 2025-01-31T12:00"),
        (["x", "--since", "2024-01-02", "--until", "2024-01-01"], "since must be before until"),
    ],
)
def test_bad_use_is_status_2(score: Score, arguments: list[str], message: str):
    status, out, err = score(*arguments)
    assert (status, out) == (2, "")
    assert message in err


def test_the_help_tells_statuses_gate_baseline_and_memory(score: Score):
    status, out, _ = score("--help")
    assert status == 0
    text = " ".join(out.split())
    assert "exit status: 0 healthy; 1 the gate failed; 2 bad use" in text
    assert "3 the input cannot be read (with --strict: any part of it)" in text
    assert "10,000 spans of others and 60 seconds" in text
    assert "an agent with at least --min-runs runs" in text


# Output -------------------------------------------------------------------------------------------


def test_every_form_to_a_file(score: Score):
    path = score.file(HEALTHY, UNHEALTHY)
    for form in ("table", "json", "jsonl", "junit", "markdown", "github"):
        status, out, err = score(path, "--format", form, "-o", f"report.{form}")
        assert (status, out) == (1, "")
        assert err == "otel-loopeval: unhealthy: 1 run unhealthy: searcher run-0002\n"
    read = {path.suffix[1:]: path.read_text() for path in score.folder.glob("report.*")}
    assert json.loads(read["json"])["schema_version"] == 1
    assert [json.loads(line)["type"] for line in read["jsonl"].splitlines()] == ["run", "run", "summary"]
    assert ET.fromstring(read["junit"].encode()).get("failures") == "1"
    assert read["markdown"].startswith("## ❌ Loop health: failed\n")
    assert read["github"].startswith("::error title=Loop health%3A unhealthy::")
    assert "\x1b" not in read["table"]


def test_a_file_that_cannot_be_written_is_bad_use_and_told_before_the_work(score: Score):
    status, out, err = score("nowhere.jsonl", "-o", "missing/report.json")
    assert (status, out) == (2, "")
    assert err == (
        "otel-loopeval: cannot write 'missing/report.json': No such file or directory. "
        "Choose another file with --output.\n"
    )


def test_a_report_is_not_replaced_by_half_of_one(score: Score):
    (score.folder / "report.json").write_text("before")
    path = score.file(HEALTHY)
    path.write_text(path.read_text() + "{\n")
    assert score(path, "--strict", "--format", "json", "-o", "report.json")[0] == 3
    assert (score.folder / "report.json").read_text() == "before"
    assert sorted(p.name for p in score.folder.iterdir()) == ["report.json", "spans.jsonl"]


def test_the_same_input_gives_the_same_report(score: Score):
    path = score.file(HEALTHY, UNHEALTHY, trace(9, 1.0, None))
    for form in ("table", "json", "jsonl", "junit", "markdown", "github"):
        assert score(path, "--format", form) == score(path, "--format", form)


def test_as_a_process_with_little_room(tmp_path: Path):
    """Bounds, late spans and a cut trace are told; what is cut is incomplete and not unhealthy."""
    large = trace(1, *[1.0] * 60, agent="large")
    lines = [trace_line([span]) for span in [*large, *trace(2, 9.0)]]
    (tmp_path / "spans.jsonl").write_text("\n".join(lines))
    outcome = run_command("score", "spans.jsonl", "--max-spans", "20", "--format", "json", cwd=tmp_path)
    assert (outcome.status, outcome.err) == (0, "")
    report = json.loads(outcome.out)
    assert report["source"] == {"spans": 63, "traces": 2, "cut_traces": 1, "late_spans": 50, "errors": 0}
    assert [(run["agent"], run["outcome"], run["passed"]) for run in report["runs"]] == [
        ("unknown", "incomplete", None),
        ("writer", "completed", True),
    ]
