"""The forms that reports are written in: JSON, JSON lines, JUnit, Markdown, GitHub's."""

import io
import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from report_records import record, write

from otel_loopeval import reports
from otel_loopeval.reports import (
    Gate,
    GithubWriter,
    JsonLinesWriter,
    JsonWriter,
    JunitWriter,
    MarkdownWriter,
    RunRecord,
    Source,
)
from otel_loopeval.reports.shortlist import Shortlist
from otel_loopeval.reports.spool import Spool
from otel_loopeval.version import __version__

SCHEMA: dict[str, Any] = json.loads((Path(reports.__file__).parent / "report.schema.json").read_text())

HEALTHY = record(5.0, 9.0, agent="writer", number=1, tokens=70)
WASTED = record(9.0, 1.0, agent="writer", number=2)
DOOMED = record(2.0, agent="searcher", number=3, doom=True)
PAUSED = record(1.0, agent="waiter", number=4, loopeval__run__outcome="paused")
NESTED = replace(record(1.0, agent="critic", number=5), nested=True)
ALL = (HEALTHY, WASTED, DOOMED, PAUSED, NESTED)


def strict(text: str) -> Any:
    def no_constant(name: str) -> Any:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=no_constant)


def test_json_is_as_its_schema_says():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    out = io.StringIO()
    write(JsonWriter(out), ALL, source=Source(20, 5, 1, 2, 3))
    document = strict(out.getvalue())
    jsonschema.validate(document, SCHEMA)
    assert document["schema_version"] == 1
    assert document["generator"] == f"otel-loopeval {__version__}"
    assert document["source"] == {"spans": 20, "traces": 5, "cut_traces": 1, "late_spans": 2, "errors": 3}
    assert [(run["agent"], run["passed"], run["failed_on"]) for run in document["runs"]] == [
        ("writer", True, []),
        ("writer", False, ["unhealthy"]),
        ("searcher", False, ["unhealthy"]),
        ("waiter", None, []),
        ("critic", False, []),
    ]
    assert [(a["agent"], a["nested"], a["runs"], a["health_rate"]) for a in document["agents"]] == [
        ("searcher", False, 1, 0.0),
        ("waiter", False, 1, None),
        ("writer", False, 2, 0.5),
        ("critic", True, 1, 0.0),
    ]
    assert document["gate"]["passed"] is False
    assert document["gate"]["fail_on"] == ["no_runs", "unhealthy"]
    total = document["summary"]["runs"]
    assert (total["runs"], total["healthy"], total["unhealthy"], total["doom_loops"]) == (4, 1, 2, 1)
    assert (total["tokens"], total["tokens_per_run"], total["cost_usd"]) == (70, 70.0, None)
    assert document["summary"]["nested_runs"]["runs"] == 1


def test_the_schema_knows_every_field_and_no_other():
    assert set(SCHEMA["$defs"]["run"]["properties"]) == {f.name for f in fields(RunRecord)} | {"failed_on"}
    assert set(SCHEMA["$defs"]["run"]["required"]) == set(SCHEMA["$defs"]["run"]["properties"])
    totals = reports.Summary().total().to_dict()
    assert set(SCHEMA["$defs"]["sums"]["properties"]) == set(totals) - {"agent", "nested"}


def test_json_without_runs_is_whole():
    out = io.StringIO()
    write(JsonWriter(out), [])
    document = strict(out.getvalue())
    jsonschema.validate(document, SCHEMA)
    assert document["runs"] == []
    assert document["gate"]["failures"] == [
        {"rule": "no_runs", "message": "no runs to judge: none found", "agent": None}
    ]


def test_what_is_not_finite_is_null():
    run = record(float("nan"), 3.0, loopeval__run__threshold=float("inf"))
    out = io.StringIO()
    write(JsonWriter(out), [run])
    (told,) = strict(out.getvalue())["runs"]
    assert told["scores"] == [None, 3.0]
    assert told["threshold"] == 8.0


def test_json_lines_tell_each_run_at_once_and_the_sums_last():
    out = io.StringIO()
    writer = JsonLinesWriter(out)
    writer.run(HEALTHY, ())
    (first,) = out.getvalue().splitlines()
    assert strict(first)["type"] == "run"
    write(writer, [DOOMED])
    lines = [strict(line) for line in out.getvalue().splitlines()]
    assert [line["type"] for line in lines] == ["run", "run", "summary"]
    assert all(line["schema_version"] == 1 for line in lines)
    run_schema = {"$ref": "#/$defs/run", "$defs": SCHEMA["$defs"]}
    jsonschema.validate(lines[1], run_schema)
    jsonschema.validate({**lines[2], "runs": []}, SCHEMA)


def junit(*records: RunRecord, gate: Gate | None = None) -> ET.Element:
    out = io.StringIO()
    write(JunitWriter(out), records, gate)
    return ET.fromstring(out.getvalue().encode())


def test_junit_has_a_case_for_each_run_that_is_not_inside_another():
    root = junit(*ALL)
    (suite,) = root
    assert (root.tag, suite.tag) == ("testsuites", "testsuite")
    for element in (root, suite):
        assert {key: element.get(key) for key in ("tests", "failures", "errors", "skipped", "time")} == {
            "tests": "4",
            "failures": "2",
            "errors": "0",
            "skipped": "1",
            "time": "6.000",
        }
    assert [(case.get("classname"), case.get("name"), [c.tag for c in case]) for case in suite] == [
        ("writer", "writer 0000000000000001", []),
        ("writer", "writer 0000000000000001", ["failure"]),
        ("searcher", "searcher 0000000000000001", ["failure"]),
        ("waiter", "waiter 0000000000000001", ["skipped"]),
    ]
    failure = suite[1][0]
    assert failure.attrib == {"message": "1 wasted iteration", "type": "unhealthy"}
    assert (failure.text or "").splitlines() == [
        "Converged in 1 iteration(s). 1 wasted iteration(s) after threshold.",
        "2 iterations, outcome completed",
        "scores: 9, 1",
        "trace 00000000000000000000000000000002",
        "To see the run: otel-loopeval score ... --explain 0000000000000001",
    ]
    assert suite[3][0].get("message") == "no verdict: paused"


def test_junit_shows_failures_if_and_only_if_the_gate_fails():
    tolerant = junit(WASTED, gate=Gate(frozenset({"doom_loop"})))
    assert tolerant.get("failures") == "0"
    assert (tolerant[0][0][0].tag, tolerant[0][0][0].text) == (
        "system-out",
        (
            "Unhealthy, which this gate lets pass: 1 wasted iteration. "
            "Converged in 1 iteration(s). 1 wasted iteration(s) after threshold."
        ),
    )
    rate = junit(HEALTHY, DOOMED, gate=Gate(frozenset(), max_doom_loop_rate=0.1))
    assert rate.get("failures") == "1"
    assert [(case.get("classname"), case.get("name")) for case in rate[0]][-1] == ("gate", "doom_loop_rate")
    assert rate[0][-1][0].get("message") == "1 of 2 runs had a doom loop: 50.0%, allowed 10.0%"
    assert [case.get("name") for case in junit()[0]] == ["no_runs"]


def test_junit_escapes_what_xml_cannot_say():
    name = 'a<b>&"c"\n\x00\x1b]0;t\x07\ud800\uffff é'
    root = junit(replace(WASTED, agent=name))
    assert root[0][0].get("classname") == 'a<b>&"c"\n\ufffd\ufffd]0;t\ufffd\ufffd\ufffd é'


def test_markdown_shows_the_result_the_agents_and_the_runs_to_look_at():
    out = io.StringIO()
    write(MarkdownWriter(out), ALL, source=Source(9, 5, 1, 2, 3))
    assert out.getvalue().splitlines() == [
        "## ❌ Loop health: failed",
        "",
        (
            "4 runs, 1 healthy, 2 unhealthy, 1 without a verdict, 1 with a doom loop, "
            "1 more inside them (1 unhealthy)."
        ),
        "",
        "- **unhealthy**: 2 runs unhealthy: writer 0000000000000001, searcher 0000000000000001",
        "- note: 3 parts of the input could not be read",
        "- note: 1 trace did not fit and counted as incomplete",
        "- note: 2 spans came too late for their trace and did not count",
        "",
        "| Agent | Runs | Healthy | Doom loops | Wasted iterations | Tokens per run |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| searcher | 1 | 0% | 1 | 0 of 1 |  |",
        "| waiter | 1 |  | 0 | 0 of 1 |  |",
        "| writer | 2 | 50.0% | 0 | 1 of 4 | 70 |",
        "| critic (inside another run) | 1 | 0% | 0 | 0 of 1 |  |",
        "",
        "### Runs to look at",
        "",
        "| Run | Agent | Verdict | Iterations | Tokens | Why |",
        "| --- | --- | --- | ---: | ---: | --- |",
        "| `0000000000000001` | writer | unhealthy | 2 |  | 1 wasted iteration |",
        (
            "| `0000000000000001` | searcher | unhealthy | 1 |  "
            "| did not converge, doom loop \\(loop\\_detected\\) |"
        ),
        "| `0000000000000001` | waiter | no verdict | 1 |  | paused |",
    ]


def test_markdown_that_passed_is_short():
    out = io.StringIO()
    write(MarkdownWriter(out), [HEALTHY])
    assert out.getvalue() == (
        "## ✅ Loop health: passed\n\n1 run, 1 healthy, 0 unhealthy.\n\n"
        "| Agent | Runs | Healthy | Doom loops | Wasted iterations | Tokens per run |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: |\n"
        "| writer | 1 | 100% | 0 | 0 of 2 | 70 |\n"
    )


def test_markdown_takes_no_markup_from_names():
    out = io.StringIO()
    name = "a|b\n# c @team <img src=x> [l](u) `d` \x1b[0m"
    write(MarkdownWriter(out), [replace(WASTED, agent=name, id="x`|y")])
    row = out.getvalue().splitlines()[-1]
    assert row.startswith(
        "| `x'¦y` | a\\|b \\# c @\u200bteam \\<img src=x\\> \\[l\\]\\(u\\) \\`d\\`  \\[0m | unhealthy |"
    )


def test_markdown_of_very_many_runs_and_agents_is_bounded():
    out = io.StringIO()
    write(MarkdownWriter(out), [replace(WASTED, agent=f"agent {n}") for n in range(200)])
    lines = out.getvalue().splitlines()
    assert len(lines) < 130
    assert "... and 150 more agents." in lines
    assert "... and 150 more runs." in lines


def test_github_gets_commands_and_a_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    out = io.StringIO()
    write(GithubWriter(out), ALL, Gate(frozenset({"doom_loop", "no_runs"})), Source(errors=1))
    assert out.getvalue().splitlines() == [
        (
            "::warning title=Loop unhealthy%3A writer::1 wasted iteration. "
            "Converged in 1 iteration(s). 1 wasted iteration(s) after threshold. "
            "Run 0000000000000001, trace 00000000000000000000000000000002."
        ),
        "::error title=Loop health%3A doom_loop::1 run with a doom loop: searcher 0000000000000001",
        (
            "::error title=Loop unhealthy%3A searcher::did not converge, doom loop (loop_detected). "
            "Did not converge after 1 iteration(s). Doom-loop guard fired. 1 guard intervention(s). "
            "Run 0000000000000001, trace 00000000000000000000000000000003."
        ),
        "::notice title=Loop health::1 part of the input could not be read",
        (
            "Loop health: 4 runs, 1 healthy, 2 unhealthy, 1 without a verdict, 1 with a doom loop, "
            "1 more inside them (1 unhealthy)"
        ),
    ]
    assert summary.read_text().startswith("before\n## ❌ Loop health: failed\n")


def test_github_takes_no_commands_from_names(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    out = io.StringIO()
    name = "x\n::add-mask::y\r%0A,z"
    write(GithubWriter(out), [replace(WASTED, agent=name, id=name)])
    lines = out.getvalue().split("\n")
    assert len(lines) == 4
    assert all(line.startswith(("::error title=Loop ", "Loop health: ")) for line in lines[:3])
    assert "title=Loop unhealthy%3A x%0A%3A%3Aadd-mask%3A%3Ay%0D%250A%2Cz::" in lines[1]


def test_github_shows_no_more_annotations_than_github_does(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    out = io.StringIO()
    write(GithubWriter(out), [WASTED] * 100)
    assert out.getvalue().count("::error ") == 10
    out = io.StringIO()
    write(GithubWriter(out), [WASTED] * 100, Gate(frozenset()))
    assert (out.getvalue().count("::error "), out.getvalue().count("::warning ")) == (0, 10)


def test_a_shortlist_keeps_the_worst_first():
    shortlist = Shortlist(3)
    for run, failed in ((HEALTHY, ()), (PAUSED, ()), (WASTED, ()), (HEALTHY, ()), (DOOMED, ("unhealthy",))):
        shortlist.add(run, failed)
    assert shortlist.runs == [DOOMED, WASTED, PAUSED]
    assert shortlist.left_out == 2


def test_a_spool_gives_back_what_it_was_given_however_much():
    spool = Spool()
    assert spool.written is False
    for n in range(200_000):
        spool.write(f"line {n} with a few characters of é\r\n")
    out = io.StringIO(newline="")
    spool.pour(out)
    lines = out.getvalue().split("\r\n")
    assert (len(lines), lines[0], lines[-2]) == (
        200_001,
        "line 0 with a few characters of é",
        "line 199999 with a few characters of é",
    )
