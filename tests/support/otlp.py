"""Starts the OTLP receiver of :mod:`support.otlp_receiver` and reads what arrived there."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast
from urllib.request import Request, urlopen

Line = dict[str, Any]

RECEIVER = Path(__file__).with_name("otlp_receiver.py")


class OtlpReceiver:
    """A receiver process on loopback. A context manager.

    Args:
        grpc_port: Where to take OTLP over gRPC; 0 takes a free port.

    Attributes:
        grpc_port: Where OTLP over gRPC is taken.
        http_port: Where OTLP over HTTP is taken.
    """

    def __init__(self, grpc_port: int = 0) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(RECEIVER), str(grpc_port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        ports = json.loads(self._process.stdout.readline())
        self.grpc_port: int = ports["grpc"]
        self.http_port: int = ports["http"]

    def __enter__(self) -> "OtlpReceiver":  # noqa: PYI034  # Self needs Python 3.11
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.wait(10)

    def environment(self, protocol: str) -> dict[str, str]:
        """Variables that make the SDK of another process export here.

        Args:
            protocol: ``"grpc"`` or ``"http/protobuf"``.
        """
        port = self.grpc_port if protocol == "grpc" else self.http_port
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_EXPORTER_OTLP_INSECURE": "true",
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_METRICS_EXPORTER": "otlp",
            "OTEL_LOGS_EXPORTER": "otlp",
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
        }

    def clear(self) -> None:
        """Forget what has arrived."""
        with urlopen(Request(f"http://127.0.0.1:{self.http_port}/received", method="DELETE")):
            pass

    def received(self) -> "Received":
        """What has arrived so far."""
        with urlopen(f"http://127.0.0.1:{self.http_port}/received") as response:
            return Received([json.loads(line) for line in response.read().decode().splitlines()])

    def wait_for(self, spans: int, timeout_s: float = 10) -> "Received":
        """What has arrived once there are so many spans; on time-out, what there is."""
        deadline = time.monotonic() + timeout_s
        while True:
            received = self.received()
            if len(received.spans()) >= spans or time.monotonic() > deadline:
                return received
            time.sleep(0.05)


class Received:
    """What arrived at a receiver."""

    def __init__(self, lines: list[Line]) -> None:
        self.lines = lines

    @property
    def protocols(self) -> set[str]:
        """The protocols that it came over."""
        return {line["protocol"] for line in self.lines}

    def spans(self, name: str | None = None) -> list[Line]:
        """Spans, all or of a name, by start time."""
        spans = [
            line for line in self.lines if line["signal"] == "span" and (name is None or line["name"] == name)
        ]
        return sorted(spans, key=lambda span: (span["start_ns"], -span["end_ns"]))

    def span(self, name: str) -> Line:
        """The one span of a name."""
        (span,) = self.spans(name)
        return span

    def children(self, parent: Line) -> list[Line]:
        """Spans right below another."""
        return [span for span in self.spans() if span["parent_id"] == parent["span_id"]]

    def logs(self, event_name: str | None = None) -> list[Line]:
        """Log records, all or of an event name."""
        return [
            line
            for line in self.lines
            if line["signal"] == "log" and (event_name is None or line["event_name"] == event_name)
        ]

    def metric_names(self) -> set[str]:
        """Names of the metrics that arrived."""
        return {line["name"] for line in self.lines if line["signal"] == "metric"}

    def points(self, metric: str) -> list[Line]:
        """The latest data point of each attribute set of a metric (sums are cumulative)."""
        latest: dict[str, Line] = {}
        for line in self.lines:
            if line["signal"] == "metric" and line["name"] == metric:
                key = json.dumps([line["resource"], line["attributes"]], sort_keys=True)
                if key not in latest or line["time_ns"] >= latest[key]["time_ns"]:
                    latest[key] = line
        return list(latest.values())

    def point(self, metric: str) -> Line:
        """The one data point of a metric."""
        (point,) = self.points(metric)
        return point

    def total(self, metric: str, **attributes: Any) -> float:
        """The sum of a counter over the attribute sets that hold the given ones (dots as ``__``)."""
        wanted = {key.replace("__", "."): value for key, value in attributes.items()}
        return sum(
            point["value"] for point in self.points(metric) if wanted.items() <= point["attributes"].items()
        )

    def text(self) -> str:
        """Everything that left the process, as one text to look for canaries in."""
        return json.dumps(self.lines, ensure_ascii=False)


def typed(value: Any) -> Any:
    """A value with its types spelled out, for comparisons in which ``1``, ``1.0`` and ``True`` differ."""
    if isinstance(value, dict):
        return {key: typed(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [typed(item) for item in cast("list[Any]", value)]
    return (type(value).__name__, value)
