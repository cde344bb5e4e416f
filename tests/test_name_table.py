"""The page of names is up to date, complete, and true of what leaves the process."""

import asyncio
from typing import Any

import pytest
from opentelemetry.trace import Tracer
from support import name_table

from otel_loopeval import iteration, loop, semconv
from otel_loopeval.testing import Capture


def test_the_page_is_up_to_date() -> None:
    old = name_table.PAGE.read_text(encoding="utf-8")

    assert old == name_table.page(old), "run: python tests/support/name_table.py --write"


def test_every_name_is_documented() -> None:
    """A constant of ``semconv`` that names an attribute or a metric has a line in the table."""
    table = name_table.table()
    enums = {semconv.EVALUATION_NAME}
    for constant, value in vars(semconv).items():
        names: list[str] = []
        if isinstance(value, semconv.Metric):
            names = [value.name]
        elif isinstance(value, str) and value.startswith(("loopeval.", "gen_ai.", "error.")):
            names = [value]
        for name in set(names) - enums:
            assert f"`{name}`" in table, constant


def test_types_are_given_to_real_names_only() -> None:
    attributes = {name for _, name, _ in name_table.attributes()}

    assert {name for names in name_table.TYPES.values() for name in names} <= attributes
    metrics = {metric.name for metric in name_table.metrics()}
    assert name_table.MORE_ATTRIBUTES.keys() | name_table.NOT_OF_A_RUN <= metrics
    assert name_table.instruments().keys() == metrics


CHAT = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "gpt-4o-mini",
    "gen_ai.usage.input_tokens": 10,
    "gen_ai.usage.output_tokens": 5,
}


def all_kinds_of_runs(capture: Capture) -> None:
    tracer: Tracer = capture.tracer_provider.get_tracer("somebody.else")
    with loop(
        "writer",
        threshold=8.0,
        max_iterations=5,
        conversation_id="c",
        token_budget=10,
        max_wasted_iterations=0,
    ) as run:
        for score in (6.0, 9.0, 7.0):
            with iteration() as it:
                with tracer.start_as_current_span("chat", attributes=CHAT):
                    pass
                with it.evaluating(), tracer.start_as_current_span("chat", attributes=CHAT):
                    it.score = score
                it.findings = ["shorter"]
                it.reasoning = "too long"
                run.record_guard_event(
                    {"type": "repeated_action", "tool": "search", "count": 3, "rule": "r", "reason": "again"}
                )
        with loop("inner", mode="goal") as inner:
            inner.success = True
    with loop("waiter", mode="agent") as run:
        run.paused("approval")
    with loop("waiter", mode="agent", resume=run.resume_token):
        pass
    with pytest.raises(ZeroDivisionError), loop("broken"), iteration():
        _ = 1 / 0
    with pytest.raises(asyncio.CancelledError), loop("cancelled"):
        raise asyncio.CancelledError


def otlp_type(value: Any) -> str:
    """Types as the SDK sends them: sequences are lists here."""
    if isinstance(value, list):
        return f"{otlp_type(value[0])}[]"
    return {bool: "boolean", int: "int", float: "double", str: "string"}[type(value)]


def test_types_are_those_of_the_telemetry(plain_capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(semconv.ENV_CAPTURE_CONTENT, "true")
    plain_capture.instrument(iteration_metrics=True, console=False)
    all_kinds_of_runs(plain_capture)

    documented = {name for _, name, _ in name_table.attributes()}
    seen: set[str] = set()
    spans = [span for span in plain_capture.spans() if span["scope"] != "somebody.else"]
    carriers = [*spans, *(event for span in spans for event in span["events"])]
    for carrier in carriers:
        for name, value in carrier["attributes"].items():
            if not name.startswith("exception."):  # the SDK's own, when it records an exception
                assert name in documented
                assert otlp_type(value) == name_table.type_of(name), name
                seen.add(name)
    elsewhere = {
        name
        for _, name, description in name_table.attributes()
        if description.rstrip(".").endswith(("(read)", "(metrics)", "(model and tool calls)", "(PraisonAI)"))
    }
    assert documented - seen == elsewhere


def test_attributes_of_metrics_are_those_of_the_telemetry(plain_capture: Capture) -> None:
    plain_capture.instrument(iteration_metrics=True, console=False)
    all_kinds_of_runs(plain_capture)

    metrics = plain_capture.metrics()
    unrecorded = {"loopeval.tracker.evicted_runs", "loopeval.tracker.late_spans", "loopeval.tracker.errors"}
    unrecorded |= {name for name in name_table.NOT_OF_A_RUN if name.startswith("loopeval.serve.")}
    assert metrics.keys() == {metric.name for metric in name_table.metrics()} - unrecorded
    for name, metric in metrics.items():
        allowed = {*name_table.RUN_ATTRIBUTES, *name_table.MORE_ATTRIBUTES.get(name, ())}
        found = {key for point in metric["points"] for key in point["attributes"]}
        assert found == allowed, name
