"""Runs small programs in processes of their own, whose telemetry goes to a file as JSON lines.

A program's source is preceded by ``from lifecycle_programs import telemetry``, and calls ``telemetry()``
where it would set up its OpenTelemetry SDK.
"""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
_FILE = "LIFECYCLE_FILE"


def telemetry() -> None:
    """Set up the SDK's global providers with batching exporters, as programs do."""
    from opentelemetry import metrics, trace  # noqa: PLC0415 - the test process needs none of these
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.metrics.export import (  # noqa: PLC0415
        MetricExporter,
        MetricExportResult,
        PeriodicExportingMetricReader,
    )
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import (  # noqa: PLC0415
        BatchSpanProcessor,
        SpanExporter,
        SpanExportResult,
    )

    class Spans(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            for span in spans:
                _write(kind="span", name=span.name, attributes=dict(span.attributes or {}))
            return SpanExportResult.SUCCESS

    class Metrics(MetricExporter):
        def export(self, metrics_data: Any, timeout_millis: float = 0, **kwargs: Any) -> MetricExportResult:
            for resource in metrics_data.resource_metrics:
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        for point in metric.data.data_points:
                            value = getattr(point, "value", None)
                            attributes = dict(point.attributes)
                            _write(kind="metric", name=metric.name, attributes=attributes, value=value)
            return MetricExportResult.SUCCESS

        def shutdown(self, timeout_millis: float = 0, **kwargs: Any) -> None:
            pass

        def force_flush(self, timeout_millis: float = 0) -> bool:
            return True

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Spans(), schedule_delay_millis=3_600_000))
    trace.set_tracer_provider(provider)
    reader = PeriodicExportingMetricReader(Metrics(), export_interval_millis=3_600_000)
    metrics.set_meter_provider(MeterProvider([reader]))


def _write(**record: Any) -> None:
    """Append a line in one system call, so that several processes may write."""
    line = json.dumps({"pid": os.getpid(), **record}, allow_nan=False) + "\n"
    descriptor = os.open(os.environ[_FILE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


@dataclass
class Ended:
    """A program that has ended.

    Attributes:
        status: Its exit status; negative for the signal that ended it.
        stdout: What it wrote.
        stderr: What it wrote to stderr.
        seconds: How long it ran.
        records: The telemetry that it exported, a dictionary a span or metric point.
    """

    status: int
    stdout: str
    stderr: str
    seconds: float
    records: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def spans(self, name: str = "") -> list[dict[str, Any]]:
        """The spans whose names begin like this."""
        return [r for r in self.records if r["kind"] == "span" and r["name"].startswith(name)]

    def outcomes(self) -> list[str]:
        """Outcomes of the runs, sorted."""
        roots = [span for span in self.spans() if "loopeval.run.outcome" in span["attributes"]]
        return sorted(span["attributes"]["loopeval.run.outcome"] for span in roots)

    def counted(self, metric: str = "loopeval.runs", **attributes: Any) -> dict[int, float]:
        """What each process last said of a counter, by process id."""
        last: dict[tuple[int, str], float] = {}
        wanted = {f"loopeval.run.{key}": value for key, value in attributes.items()}.items()
        for record in self.records:
            if record["name"] == metric and wanted <= record["attributes"].items():
                last[record["pid"], json.dumps(record["attributes"], sort_keys=True)] = record["value"]
        sums: dict[int, float] = {}
        for (pid, _), value in last.items():
            sums[pid] = sums.get(pid, 0) + value
        return sums


class Program:
    """A program that runs.

    Args:
        source: Its source.
        folder: Where its files go.
        command: What runs it, before its file's name.
        variables: Environment variables to add.
    """

    def __init__(self, source: str, folder: Path, *command: str, **variables: str) -> None:
        self._file = folder / "telemetry.jsonl"
        script = folder / "program.py"
        script.write_text("from lifecycle_programs import telemetry\n" + textwrap.dedent(source), "utf-8")
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "LOOPEVAL_"))}
        self._started = time.monotonic()
        self.process = subprocess.Popen(
            [*(command or (sys.executable,)), str(script)],
            cwd=folder,
            env={
                **inherited,
                "PYTHONPATH": str(HERE),
                "PYTHONWARNINGS": "ignore::DeprecationWarning",  # of forking beside threads
                _FILE: str(self._file),
                **variables,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for_line(self, line: str) -> None:
        """Wait until it has written this line to stdout."""
        assert self.process.stdout is not None
        for written in self.process.stdout:
            if written == line + "\n":
                return
        raise AssertionError(f"never wrote {line!r}: {self.ended()}")

    def terminate(self) -> "Ended":
        """Send it SIGTERM once it has said that it is ready."""
        self.wait_for_line("ready")
        # It may still be inside the print that said so, with the lock of its stdout, which console exporters
        # want too.
        time.sleep(0.5)
        self._started = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        return self.ended()

    def ended(self) -> Ended:
        """Wait for its end."""
        try:
            stdout, stderr = self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        seconds = time.monotonic() - self._started
        lines = self._file.read_text("utf-8").splitlines() if self._file.exists() else []
        return Ended(self.process.returncode, stdout, stderr, seconds, [json.loads(line) for line in lines])
