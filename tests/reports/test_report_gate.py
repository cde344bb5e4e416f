"""The gate: what fails, what does not, and comparison with an earlier report."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_records import record, write

from otel_loopeval.reports import (
    AgentTotals,
    BaselineRule,
    Gate,
    GateKeeper,
    JsonWriter,
    RunRecord,
    Summary,
    read_baseline,
)
from otel_loopeval.reports.gate import conditions

HEALTHY = record(9.0)
UNHEALTHY = record(1.0)
WASTED = record(9.0, 9.0)
DOOMED = record(9.0, doom=True)
OVER = replace(HEALTHY, over_token_budget=True)
PAUSED = record(9.0, loopeval__run__outcome="paused")
NESTED = replace(DOOMED, nested=True)


def outcome(gate: Gate, *records: RunRecord) -> list[str]:
    keeper, summary = GateKeeper(gate), Summary()
    for one in records:
        summary.add(one)
        keeper.look(one)
    return [f"{failure.rule}: {failure.message}" for failure in keeper.tell(summary).failures]


@pytest.mark.parametrize(
    ("condition", "fails", "passes"),
    [
        ("unhealthy", UNHEALTHY, HEALTHY),
        ("doom_loop", DOOMED, UNHEALTHY),
        ("waste", WASTED, UNHEALTHY),
        ("budget", OVER, UNHEALTHY),
    ],
)
def test_each_condition_fails_on_its_own_runs_only(condition: str, fails: RunRecord, passes: RunRecord):
    gate = Gate(frozenset({condition}))
    assert gate.fails(fails) == (condition,)
    assert gate.fails(passes) == ()


def test_what_is_said_of_each_condition():
    everything = Gate(frozenset({"unhealthy", "doom_loop", "waste", "budget"}))
    ran = "writer 0000000000000001"
    assert outcome(everything, UNHEALTHY, DOOMED, WASTED, OVER) == [
        f"unhealthy: 3 runs unhealthy: {ran}, {ran}, {ran}",
        f"doom_loop: 1 run with a doom loop: {ran}",
        f"waste: 1 run with more wasted iterations than allowed: {ran}",
        f"budget: 1 run over the token budget: {ran}",
    ]
    assert outcome(Gate(), *[UNHEALTHY] * 6)[0].endswith(f"{ran}, {ran}, ...")


def test_a_runs_own_limit_of_waste_wins():
    gate = Gate(frozenset({"waste"}), max_wasted_iterations=1)
    assert gate.fails(WASTED) == ()
    assert gate.fails(replace(WASTED, max_wasted_iterations=0)) == ("waste",)
    assert gate.fails(replace(WASTED, wasted_iterations=2)) == ("waste",)
    assert gate.fails(replace(WASTED, wasted_iterations=2, max_wasted_iterations=2)) == ()


def test_agents_may_repeat_themselves_unless_a_limit_is_set() -> None:
    repeating = replace(WASTED, mode="agent", wasted_iterations=3, max_wasted_iterations=None)
    assert Gate(frozenset({"waste"})).fails(repeating) == ()
    assert Gate(frozenset({"waste"}), max_wasted_iterations=0).fails(repeating) == ("waste",)
    assert Gate(frozenset({"waste"})).fails(replace(repeating, mode="goal")) == ("waste",)


def test_runs_inside_others_fail_nothing_and_runs_without_a_verdict_are_not_unhealthy():
    gate = Gate(frozenset({"unhealthy", "doom_loop"}))
    assert gate.fails(NESTED) == ()
    assert gate.fails(PAUSED) == ()
    assert gate.fails(replace(PAUSED, doom_loop_fired=True)) == ("doom_loop",)


def test_no_runs_to_judge_fail():
    assert outcome(Gate()) == ["no_runs: no runs to judge: none found"]
    assert outcome(Gate(), PAUSED) == ["no_runs: no runs to judge: 1 found, none with a verdict"]
    assert outcome(Gate(), NESTED) == ["no_runs: no runs to judge: none found, and 1 inside other runs"]
    assert outcome(Gate(frozenset())) == []


def test_the_rate_of_doom_loops():
    gate = Gate(frozenset(), max_doom_loop_rate=0.5)
    assert outcome(gate, DOOMED, HEALTHY) == []
    assert outcome(gate, DOOMED, DOOMED, HEALTHY) == [
        "doom_loop_rate: 2 of 3 runs had a doom loop: 66.7%, allowed 50.0%"
    ]
    assert outcome(gate, NESTED, HEALTHY) == []
    assert outcome(gate) == []


def test_conditions_are_checked():
    assert conditions(["waste", "budget"]) == {"waste", "budget"}
    with pytest.raises(
        ValueError, match="'wast' is no condition: allowed are unhealthy, doom_loop, waste, bud"
    ):
        conditions(["wast"])


# Baseline -----------------------------------------------------------------------------------------------


def baseline_file(folder: Path, *records: RunRecord) -> Path:
    out = io.StringIO()
    write(JsonWriter(out), records)
    path = folder / "baseline.json"
    path.write_text(out.getvalue())
    return path


def compare(
    folder: Path, before: list[RunRecord], now: list[RunRecord], **rule: Any
) -> tuple[list[str], list[str]]:
    gate = Gate(
        frozenset(),
        baseline=read_baseline(baseline_file(folder, *before)),
        baseline_rule=BaselineRule(**rule),
    )
    keeper, summary = GateKeeper(gate), Summary()
    for one in now:
        summary.add(one)
        keeper.look(one)
    result = keeper.tell(summary)
    return [failure.message for failure in result.failures], list(result.notes)


def test_the_same_runs_are_no_worse(tmp_path: Path):
    runs = [HEALTHY, UNHEALTHY, WASTED, DOOMED, PAUSED, NESTED, HEALTHY, HEALTHY]
    assert compare(tmp_path, runs, runs) == ([], [])


@pytest.mark.parametrize(
    ("before", "now", "message"),
    [
        ([HEALTHY] * 10, [HEALTHY] * 8 + [UNHEALTHY] * 2, "writer: health rate fell, 100.0% to 80.0%"),
        ([HEALTHY] * 10, [HEALTHY] * 9 + [UNHEALTHY], None),  # as much as is tolerated
        (
            [UNHEALTHY] * 10,
            [UNHEALTHY] * 8 + [replace(UNHEALTHY, doom_loop_fired=True)] * 2,
            "writer: doom-loop rate rose, 0.0% to 20.0%",
        ),
        (
            [replace(HEALTHY, iterations=4)] * 5,
            [replace(HEALTHY, iterations=4, wasted_iterations=1)] * 5,
            "writer: wasted iterations rose, 0.0% to 25.0%",
        ),
        (
            [replace(HEALTHY, input_tokens=100, output_tokens=100)] * 5,
            [replace(HEALTHY, input_tokens=200, output_tokens=51)] * 5,
            "writer: tokens per run rose, 200 to 251",
        ),
        (
            [replace(HEALTHY, input_tokens=100, output_tokens=100)] * 5,
            [replace(HEALTHY, input_tokens=200, output_tokens=50)] * 5,
            None,
        ),
        ([HEALTHY] * 5, [replace(HEALTHY, input_tokens=9, output_tokens=9)] * 5, None),  # not known before
        ([UNHEALTHY] * 5, [HEALTHY] * 5, None),  # better
    ],
)
def test_what_is_worse(tmp_path: Path, before: list[RunRecord], now: list[RunRecord], message: str | None):
    assert compare(tmp_path, before, now) == ([] if message is None else [message], [])


def test_the_tolerances_are_the_users(tmp_path: Path):
    before, now = [HEALTHY] * 10, [HEALTHY] * 9 + [UNHEALTHY]
    assert compare(tmp_path, before, now, tolerance=0.05)[0] == ["writer: health rate fell, 100.0% to 90.0%"]
    tokens = [replace(HEALTHY, input_tokens=n, output_tokens=0) for n in (100, 150)]
    assert compare(tmp_path, [tokens[0]] * 5, [tokens[1]] * 5, token_tolerance=0.5)[0] == []


def test_few_runs_new_agents_and_gone_ones_are_noted_and_do_not_fail(tmp_path: Path):
    new, gone = replace(UNHEALTHY, agent="new"), replace(HEALTHY, agent="gone")
    assert compare(tmp_path, [HEALTHY] * 4 + [gone], [UNHEALTHY] * 9 + [new]) == (
        [],
        [
            "not compared with the baseline, not in it: new",
            "not compared with the baseline, no runs now: gone",
            "not compared with the baseline, fewer than 5 runs with a verdict: writer (4 before, 9 now)",
        ],
    )
    assert compare(tmp_path, [HEALTHY] * 4, [UNHEALTHY] * 9, min_runs=4)[0] == [
        "writer: health rate fell, 100.0% to 0.0%"
    ]


def test_runs_inside_others_are_not_compared(tmp_path: Path):
    inner = replace(HEALTHY, nested=True)
    assert compare(tmp_path, [inner] * 5, [replace(UNHEALTHY, nested=True)] * 5) == ([], [])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "Expecting property name"),
        ("[]", "it is no report of `score --format json`"),
        ('{"schema_version": 1}', "it is no report"),
        ('{"schema_version": 2, "agents": []}', "its schema_version is 2, and this version reads 1"),
        ('{"schema_version": 1, "agents": {}}', "its agents are no array"),
        ('{"schema_version": 1, "agents": [1]}', r"agents\[0\] has no agent"),
        ('{"schema_version": 1, "agents": [{"agent": 1}]}', r"agents\[0\] has no agent"),
        (
            '{"schema_version": 1, "agents": [{"agent": "a", "health_rate": "1"}]}',
            r"agents\[0\].health_rate='1' is no number from 0",
        ),
        (
            '{"schema_version": 1, "agents": [{"agent": "a", "healthy": -1}]}',
            r"agents\[0\].healthy=-1 is no number from 0",
        ),
        ('{"schema_version": 1, "agents": [{"agent": "a", "waste_rate": NaN}]}', "nan is no number from 0"),
        ("[" * 100_000, "it is nested too deeply"),
    ],
)
def test_a_file_that_is_no_report_is_refused(tmp_path: Path, text: str, problem: str):
    path = tmp_path / "baseline.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=problem):
        read_baseline(path)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path):
    path = tmp_path / "baseline.json"
    path.write_bytes(b"\x1f\x8b\xff")
    with pytest.raises(ValueError, match="it is not UTF-8 text"):
        read_baseline(path)


# Sums ---------------------------------------------------------------------------------------------------


def test_sums_of_an_agent():
    totals = AgentTotals("writer")
    for one in (HEALTHY, UNHEALTHY, WASTED, DOOMED, PAUSED, replace(HEALTHY, cost_usd=0.5)):
        totals.add(one)
    assert (totals.runs, totals.healthy, totals.unhealthy, totals.judged) == (6, 2, 3, 5)
    assert (totals.health_rate, totals.doom_loop_rate, totals.waste_rate) == (2 / 5, 1 / 6, 1 / 7)
    assert totals.to_dict()["cost_usd"] == 0.5
    assert totals.to_dict()["tokens"] is None
    assert json.loads(json.dumps(totals.to_dict(), allow_nan=False))["agent"] == "writer"


def test_agents_beyond_the_bound_count_together(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("otel_loopeval.reports.summary.MAX_AGENTS", 2)
    summary = Summary()
    for name in ("a", "b", "c", "d", "a"):
        summary.add(replace(HEALTHY, agent=name))
    assert [(totals.agent, totals.runs) for totals in summary.agents] == [("_other", 2), ("a", 2), ("b", 1)]
    assert summary.total().runs == 5
