"""Sending over OTLP, to where the standard environment variables say."""

import math
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from otel_loopeval.cli.console import printable
from otel_loopeval.cli.errors import EXIT_USAGE, CommandError
from otel_loopeval.otel.complaints import complaints

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

GRPC: Final = "grpc"
HTTP: Final = "http/protobuf"
_HTTP_PORT: Final = 4318
_SUCCESS: Final = "SUCCESS"
_LONGEST_PROBLEM: Final = 300
_LOOK_S: Final = 1.0

PATIENCE_S: Final = 2.0
"""Seconds that an endpoint has to take a request, unless the environment gives it another time."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Where one signal goes.

    Attributes:
        endpoint: The endpoint, as it was configured.
        protocol: ``"grpc"`` or ``"http/protobuf"``.
        timeout_s: Time for a request in seconds; None for what the environment says.
    """

    endpoint: str
    protocol: str
    timeout_s: float | None

    def __str__(self) -> str:
        return f"{self.endpoint} over {'gRPC' if self.protocol == GRPC else 'HTTP'}"


def destination_of(signal: str, environment: Mapping[str, str] | None = None) -> Destination | None:
    """Where a signal goes, or None if no endpoint is configured for it.

    Args:
        signal: ``"TRACES"`` or ``"METRICS"``.
        environment: Variables to read, ``os.environ`` if None: ``OTEL_EXPORTER_OTLP_ENDPOINT``,
            ``_PROTOCOL`` and ``_TIMEOUT``, and their ``OTEL_EXPORTER_OTLP_{signal}_*`` forms, which win.

    Raises:
        CommandError: The protocol is one that we do not speak.
    """
    environment = os.environ if environment is None else environment

    def configured(name: str) -> str:
        own = environment.get(f"OTEL_EXPORTER_OTLP_{signal}_{name}", "").strip()
        return own or environment.get(f"OTEL_EXPORTER_OTLP_{name}", "").strip()

    endpoint = configured("ENDPOINT")
    if not endpoint or environment.get(f"OTEL_{signal}_EXPORTER", "").strip().lower() == "none":
        return None
    protocol = configured("PROTOCOL").lower() or _usual_protocol(endpoint)
    if protocol not in (GRPC, HTTP):
        raise CommandError(
            f"OTEL_EXPORTER_OTLP_PROTOCOL must be {GRPC!r} or {HTTP!r}, got {protocol!r}", EXIT_USAGE
        )
    return Destination(endpoint, protocol, None if configured("TIMEOUT") else PATIENCE_S)


def _usual_protocol(endpoint: str) -> str:
    """gRPC, as OpenTelemetry for Python has it; but HTTP where the port is the one of OTLP over HTTP."""
    try:
        return HTTP if urlsplit(endpoint).port == _HTTP_PORT else GRPC
    except ValueError:  # no port is spelled like that: the exporter will say so
        return GRPC


def send_traces(destination: Destination, spans: Sequence["ReadableSpan"]) -> str | None:
    """Send spans.

    Returns:
        None, or why they did not arrive.
    """
    with complaints() as heard:
        try:
            exporter = _span_exporter(destination)
            arrived = exporter.export(spans).name == _SUCCESS
            exporter.shutdown()
        except Exception as error:  # noqa: BLE001 - the environment may say anything
            return _one_line(str(error) or type(error).__name__)
    return None if arrived else _unreachable(destination) or _last(heard)


def _span_exporter(destination: Destination) -> "SpanExporter":
    # Imported here: gRPC and protobuf are slow to import, and most commands send nothing.
    if destination.protocol == GRPC:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

        return OTLPSpanExporter(timeout=destination.timeout_s)
    from opentelemetry.exporter.otlp.proto.http import trace_exporter  # noqa: PLC0415

    return trace_exporter.OTLPSpanExporter(timeout=destination.timeout_s)


class MetricSender:
    """Collects the metrics of a meter provider and sends them once.

    Args:
        destination: Where they go.

    Attributes:
        destination: Where they go.
        reader: The reader to give to the meter provider.

    Raises:
        Exception: The environment says what the exporter cannot take.
    """

    def __init__(self, destination: Destination) -> None:
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415

        self.destination = destination
        self._exporter = _metric_exporter(destination)
        self.reader = PeriodicExportingMetricReader(self._exporter, export_interval_millis=math.inf)

    def send(self) -> str | None:
        """Send what there is.

        Returns:
            None, or why it did not arrive.
        """
        with complaints() as heard:
            try:
                self.reader.force_flush()
            except Exception as error:  # noqa: BLE001 - the environment may say anything
                return _one_line(str(error) or type(error).__name__)
        return None if self._exporter.arrived else _last(heard)


class _Watched:
    """Remembers whether an exporter's last export arrived: the reader that calls it does not tell."""

    arrived = False

    def export(self, *arguments: Any, **options: Any) -> Any:
        inherited: Any = super()  # the exporter's class
        result = inherited.export(*arguments, **options)
        self.arrived = result.name == _SUCCESS
        return result


def _metric_exporter(destination: Destination) -> Any:
    kind: Any
    if destination.protocol == GRPC:
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter  # noqa: PLC0415

        kind = OTLPMetricExporter
    else:
        from opentelemetry.exporter.otlp.proto.http import metric_exporter  # noqa: PLC0415

        kind = metric_exporter.OTLPMetricExporter
    watched: Any = type("WatchedExporter", (_Watched, kind), {})
    return watched(timeout=destination.timeout_s)


def _unreachable(destination: Destination) -> str | None:
    """Why nothing answers at an endpoint, if that is so: exporters only tell that they gave up."""
    try:
        parts = urlsplit(destination.endpoint)
        if not parts.hostname or parts.port is None:
            return None
        socket.create_connection((parts.hostname, parts.port), _LOOK_S).close()
    except (OSError, ValueError) as error:
        return _one_line(getattr(error, "strerror", None) or str(error))
    return None


def _last(heard: Sequence[str]) -> str:
    """The last thing that an exporter complained of."""
    return _one_line(heard[-1]) if heard else "it was not accepted"


def _one_line(message: str) -> str:
    line = printable(" ".join(message.split())).rstrip(".")
    return line if len(line) <= _LONGEST_PROBLEM else f"{line[: _LONGEST_PROBLEM - 3]}..."
