"""``otel-loopeval score --explain``: one run as a tree, what repeated, and what it cost."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_loopeval.cli.main import main
from otel_loopeval.otlp import trace_line
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.testing import TraceBuilder


def explain(
    spans: list[SpanData], wanted: str, *arguments: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[int, list[str], str]:
    path = folder / "spans.jsonl"
    path.write_text(trace_line(spans) + "\n")
    status = main(["score", str(path), "--explain", wanted, *arguments])
    out, err = capsys.readouterr()
    return status, [line.rstrip() for line in out.splitlines()], err


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "140")
    return tmp_path


def loop(**root: Any) -> TraceBuilder:
    builder = TraceBuilder(0xABCD << 112)
    event = builder.guard_event(
        "repeated_action", tool="search", count=3, source="detector", rule="exact", iteration=2
    )
    span = builder.run([9.0, 4.0], events={2: [event]}, attributes={"loopeval.run.id": "run-77", **root})
    for n, spent in enumerate((1200, 300)):
        builder.span(
            "chat gpt-4o",
            parent_id=builder.spans[n].span_id,
            start_ns=span.start_ns + n * 1_000_000_000,
            duration_s=0.5,
            attributes={
                "gen_ai.operation.name": "chat",
                "gen_ai.usage.input_tokens": spent,
                "gen_ai.usage.output_tokens": 50,
            },
        )
    return builder


def agent(arguments: Any = '{"q": "same"}', calls: int = 3) -> TraceBuilder:
    """Somebody else's agent that calls a tool again and again."""
    builder = TraceBuilder(0xBEEF << 112)
    root = builder.span_id()
    start = builder.clock.now_ns
    for n in range(calls):
        asked = [
            {
                "role": "assistant",
                "parts": [{"type": "tool_call", "name": "search", "id": f"c{n}", "arguments": arguments}],
            }
        ]
        builder.span(
            "chat gpt-4o",
            parent_id=root,
            attributes={
                "gen_ai.operation.name": "chat",
                "gen_ai.usage.input_tokens": 10,
                "gen_ai.usage.output_tokens": 1,
                **({} if arguments is None else {"gen_ai.output.messages": json.dumps(asked)}),
            },
        )
        tool: dict[str, Any] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "search",
            "gen_ai.tool.call.id": f"c{n}",
        }
        if arguments is not None:
            tool |= {"gen_ai.tool.call.arguments": arguments, "gen_ai.tool.call.result": "nothing found"}
        builder.span("execute_tool search", parent_id=root, attributes=tool)
    builder.span(
        "invoke_agent finder",
        span_id=root,
        start_ns=start,
        duration_s=(builder.clock.now_ns - start) / 1e9,
        attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "finder"},
    )
    return builder


def test_a_loop_with_what_repeated_and_what_it_cost(folder: Path, capsys: pytest.CaptureFixture[str]):
    status, lines, err = explain(loop().spans, "run-77", folder=folder, capsys=capsys)
    assert (status, err) == (1, "")
    reasoning = "Converged in 1 iteration(s). 1 wasted iteration(s) after threshold. "
    assert lines == [
        "evaluation_loop agent  ✘ unhealthy  2 iterations, 2.0 s",
        f"{reasoning}Doom-loop guard fired. 1 guard intervention(s).",
        "├── iteration 1  ━━━━━━━━━━  9           1.0 s  threshold met",
        "│   └── chat gpt-4o  500 ms  1,250 tokens",
        "└── iteration 2  ━━━━━─────  4      -5   1.0 s  wasted",
        "    ├── ▲ doom loop: repeated_action of search, 3 times (detector, rule exact)",
        "    └── chat gpt-4o  500 ms  350 tokens",
        "",
        "What repeated",
        "  doom loop: repeated_action of search, 3 times (detector, rule exact), in iteration 2",
        "",
        "What it cost",
        "  tokens: 1,600 (1,500 in, 100 out)",
        "  wasted: 1 iteration, 350 tokens",
        "",
        "run run-77, trace abcd0000000000000000000000000000",
    ]


def test_what_it_cost_in_money(folder: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("genai_prices", reason="needs the extra cost")
    model = {"gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-4o"}
    spans = [
        replace(span, attributes={**span.attributes, **model}) if span.name.startswith("chat") else span
        for span in loop().spans
    ]
    _, lines, _ = explain(spans, "run-77", folder=folder, capsys=capsys)
    # 2.50 USD for a million of input tokens and 10 for a million of output tokens, in 2023 and since.
    told = lines.index("What it cost")
    assert lines[told + 1 : told + 3] == [
        "  tokens: 1,600 (1,500 in, 100 out), 0.00475 USD",
        "  wasted: 1 iteration, 350 tokens, 0.00125 USD",
    ]


def test_an_agent_of_somebody_else_with_its_calls(folder: Path, capsys: pytest.CaptureFixture[str]):
    status, lines, _ = explain(agent(calls=4).spans, "beef", folder=folder, capsys=capsys)
    assert status == 1
    assert lines[0] == "invoke_agent finder  ✘ unhealthy  4 iterations, 8.0 s"
    assert lines[2:4] == [
        '├── chat gpt-4o  1.0 s  11 tokens, asks for search({"q": "same"})',
        '├── execute_tool search  1.0 s  ({"q": "same"}) = nothing found',
    ]
    assert lines[10:] == [
        "",
        "What repeated",
        "  doom loop: repeated_action of search, 4 times (detector, rule exact), in iteration 4",
        '  4 times search({"q": "same"})',
        "",
        "What it cost",
        "  tokens: 44 (40 in, 4 out)",
        "  wasted: 3 iterations, 33 tokens",
        "",
        "run 0000000000000001, trace beef0000000000000000000000000000",
    ]


def test_without_content_there_is_none_to_show(folder: Path, capsys: pytest.CaptureFixture[str]):
    status, lines, _ = explain(agent(None).spans, "beef", folder=folder, capsys=capsys)
    assert status == 0
    assert lines[2:4] == ["├── chat gpt-4o  1.0 s  11 tokens", "├── execute_tool search  1.0 s"]
    assert lines[9:12] == [
        "What repeated",
        "  3 times search, with arguments that the trace does not tell",
        "  no detector could look: the trace tells neither arguments nor results of calls",
    ]


def test_content_cannot_drive_the_terminal_and_is_cut_short(folder: Path, capsys: pytest.CaptureFixture[str]):
    hostile = "\x1b]0;owned\x07 [red]\n:smile: \u202e" + "x" * 10_000
    _, lines, _ = explain(agent(hostile, calls=1).spans, "beef", folder=folder, capsys=capsys)
    shown = " ".join(line.lstrip("│├─ ") for line in lines[2:4])
    told = "search(\ufffd]0;owned\ufffd [red] :smile: \ufffd" + "x" * 71 + "...)"
    assert shown == f"chat gpt-4o  1.0 s  11 tokens, asks for {told}"
    assert not any(c in "".join(lines) for c in "\x1b\x07\u202e")


@pytest.mark.parametrize("wanted", ["run-77", "run-", "abcd0000000000000000000000000000", "ABCD"])
def test_a_run_is_found_by_its_id_or_its_traces_or_how_they_begin(
    wanted: str, folder: Path, capsys: pytest.CaptureFixture[str]
):
    _, lines, _ = explain(loop().spans, wanted, folder=folder, capsys=capsys)
    assert lines[-1] == "run run-77, trace abcd0000000000000000000000000000"


@pytest.mark.parametrize("wanted", ["nobody", "run", ""])
def test_a_run_that_is_not_there_is_bad_use(wanted: str, folder: Path, capsys: pytest.CaptureFixture[str]):
    status, lines, err = explain(loop().spans, wanted, folder=folder, capsys=capsys)
    assert (status, lines) == (2, [])
    assert err == (
        f"otel-loopeval: --explain {wanted!r}: there is none among 1 run; a table of runs shows their ids\n"
    )


def test_several_runs_of_that_name_are_listed(folder: Path, capsys: pytest.CaptureFixture[str]):
    builder = TraceBuilder(1)
    for n in range(12):
        builder.run([9.0], agent=f"agent {n}", attributes={"loopeval.run.id": f"run-{n:02}"})
    status, lines, err = explain(builder.spans, "run-", folder=folder, capsys=capsys)
    assert (status, lines) == (2, [])
    assert err.splitlines()[:3] == [
        "otel-loopeval: --explain 'run-': several runs are called that:",
        "  run-00  agent 0",
        "  run-01  agent 1",
    ]
    assert (len(err.splitlines()), err.splitlines()[-1]) == (12, "  ...")


def test_the_gate_looks_at_that_run_only(folder: Path, capsys: pytest.CaptureFixture[str]):
    builder = TraceBuilder(1)
    builder.run([9.0], attributes={"loopeval.run.id": "good"})
    builder.run([1.0], attributes={"loopeval.run.id": "badly"})
    assert explain(builder.spans, "good", folder=folder, capsys=capsys)[0] == 0
    assert explain(builder.spans, "badly", folder=folder, capsys=capsys)[0] == 1
    assert explain(builder.spans, "badly", "--fail-on", "doom_loop", folder=folder, capsys=capsys)[0] == 0


def test_a_run_whose_root_is_missing(folder: Path, capsys: pytest.CaptureFixture[str]):
    spans = [span for span in loop().spans if span.name == "evaluation_loop.iteration"]
    status, lines, _ = explain(spans, "abcd", folder=folder, capsys=capsys)
    assert status == 0
    assert lines[:3] == [
        "unknown (its root span is missing)  ○ no verdict  2 iterations, incomplete, 2.0 s",
        "├── iteration 1  score 9",
        "└── iteration 2  score 4",
    ]
    assert lines[-1].startswith("run abcd")


def test_broken_input_that_goes_in_circles_ends(folder: Path, capsys: pytest.CaptureFixture[str]):
    builder = loop()
    root = builder.spans[2]
    builder.span("in", parent_id=root.span_id, span_id=900)
    builder.span("circles", parent_id=900, span_id=901)
    spans = [s for s in builder.spans if s is not root]
    circle = SpanData(
        root.name, root.trace_id, root.span_id, 901, root.start_ns, root.end_ns, root.attributes
    )
    status, lines, _ = explain([*spans, circle], "run-77", folder=folder, capsys=capsys)
    assert status == 1
    assert any("circles" in line for line in lines)
