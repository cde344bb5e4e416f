"""Spans kept in a file by tests, as ``otel-loopeval score`` reads them."""

from pathlib import Path

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from otel_loopeval.otlp import read_file
from otel_loopeval.testing import TraceFile


def provider_to(path: Path) -> TracerProvider:
    provider = TracerProvider(resource=Resource({"service.name": "tests"}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(TraceFile(path)))
    return provider


def test_spans_come_back_as_they_were_and_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    for name in ("first", "second"):
        tracer = provider_to(path).get_tracer("scope")
        with tracer.start_as_current_span(name, attributes={"text": "é\n", "numbers": [1, 2]}) as span:
            span.add_event("happened", {"x": 1.5})
    spans = list(read_file(path))
    assert [(s.name, s.scope, dict(s.resource), s.parent_id) for s in spans] == [
        ("first", "scope", {"service.name": "tests"}, None),
        ("second", "scope", {"service.name": "tests"}, None),
    ]
    assert (spans[0].attributes["text"], list(spans[0].attributes["numbers"])) == ("é\n", [1, 2])
    assert [(event.name, dict(event.attributes)) for event in spans[0].events] == [("happened", {"x": 1.5})]
    assert path.read_text().count("\n") == 2


@pytest.mark.swallows
def test_a_file_that_cannot_be_written_to_fails_nothing(
    tmp_path: Path, swallowed: list[tuple[str, Exception]]
) -> None:
    with provider_to(tmp_path / "missing" / "traces.jsonl").get_tracer("scope").start_as_current_span("lost"):
        pass
    assert [(place, type(error)) for place, error in swallowed] == [("testing.trace_file", FileNotFoundError)]
