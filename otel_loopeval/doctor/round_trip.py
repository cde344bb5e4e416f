"""A run of ours sent through the whole set-up, and read back where it should have arrived."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen
from uuid import uuid4

from opentelemetry import metrics, trace

from otel_loopeval import semconv
from otel_loopeval.doctor.findings import BAD, GOOD, Finding
from otel_loopeval.otel.complaints import complaints
from otel_loopeval.otel.loops import iteration, loop

AGENT: Final = "otel-loopeval-doctor"
"""Name of the agent of the test run."""
_FLUSH_MS: Final = 10_000
_PAUSE_S: Final = 0.5
_CONNECT_S: Final = 2.0
_PORTS: Final = {"http": 80, "https": 443}


def check_endpoint(signal: str, endpoint: str) -> Finding:
    """Whether anything listens where a signal goes."""
    parts = urlsplit(endpoint if "//" in endpoint else f"//{endpoint}")
    try:
        port = parts.port or _PORTS.get(parts.scheme)
        if not parts.hostname or port is None:
            return Finding(
                BAD, f"{signal} endpoint", f"{endpoint} has no host or port", "Such as http://localhost:4317."
            )
        socket.create_connection((parts.hostname, port), _CONNECT_S).close()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return Finding(
            BAD,
            f"{signal} endpoint",
            f"nothing answers at {endpoint}: {reason}",
            "Start the Collector there, or set OTEL_EXPORTER_OTLP_ENDPOINT to where it is.",
        )
    return Finding(GOOD, f"{signal} endpoint", f"{endpoint} answers")


def send_test_run() -> tuple[str, str, list[Finding]]:
    """Run a loop of one iteration and export it.

    Returns:
        The trace id in hexadecimal, the run's id, and what was found.
    """
    run_id = f"doctor-{uuid4().hex[:12]}"
    trace_id = ""
    with complaints() as heard:
        with loop(AGENT, threshold=8.0, id=run_id), iteration() as it:
            trace_id = f"{trace.get_current_span().get_span_context().trace_id:032x}"
            it.score = 9.0
        for provider in (trace.get_tracer_provider(), metrics.get_meter_provider()):
            flush: Any = getattr(provider, "force_flush", None)
            if flush is not None:
                flush(_FLUSH_MS)
    if heard:
        text = f"the SDK complained while the test run was exported: {heard[-1]}"
        return trace_id, run_id, [Finding(BAD, "export", text)]
    return trace_id, run_id, [Finding(GOOD, "export", f"a test run was exported, trace {trace_id}")]


def read_back_from_jaeger(url: str, trace_id: str, timeout_s: float) -> Finding:
    """Whether Jaeger has the test run, with its verdict."""
    address = f"{url.rstrip('/')}/api/traces/{trace_id}"

    def look(answer: Any) -> bool:
        spans = answer["data"][0]["spans"]
        return any(
            tag["key"] == semconv.HEALTH_PASSED and tag["value"] is True
            for span in spans
            for tag in span["tags"]
        )

    found, problem = _await(address, look, timeout_s)
    if found:
        return Finding(
            GOOD, "Jaeger", f"the test run arrived with its verdict: {url.rstrip('/')}/trace/{trace_id}"
        )
    return Finding(
        BAD,
        "Jaeger",
        f"the test run did not arrive within {timeout_s:g} s ({problem})",
        "Look at the Collector's log, and at its pipeline of traces.",
    )


def read_back_from_prometheus(url: str, service: str, timeout_s: float) -> Finding:
    """Whether Prometheus counts the test run."""
    query = f'{{__name__=~"loopeval_runs_total|loopeval_runs", gen_ai_agent_name="{AGENT}"}}'
    address = f"{url.rstrip('/')}/api/v1/query?query={quote(query)}"
    found, problem = _await(address, lambda answer: bool(answer["data"]["result"]), timeout_s)
    if found:
        return Finding(GOOD, "Prometheus", f"loopeval_runs_total counts the test run of {service}")
    return Finding(
        BAD,
        "Prometheus",
        f"the test run is not counted within {timeout_s:g} s ({problem})",
        "Metrics arrive one export and one scrape later: try a longer --timeout; else look at the "
        "Collector's pipeline of metrics and at the scrape targets.",
    )


def check_backends(
    jaeger: str | None, prometheus: str | None, trace_id: str, service: str, timeout_s: float
) -> Iterator[Finding]:
    """Read the test run back."""
    if jaeger is not None:
        yield read_back_from_jaeger(jaeger, trace_id, timeout_s)
    if prometheus is not None:
        yield read_back_from_prometheus(prometheus, service, timeout_s)


def _await(address: str, look: Callable[[Any], bool], timeout_s: float) -> tuple[bool, str]:
    """Ask until the answer is as expected; else why it is not."""
    until = time.monotonic() + timeout_s
    problem = ""
    while True:
        try:
            # Of the user's own choosing, and only read.
            with urlopen(Request(address), timeout=_CONNECT_S) as response:  # noqa: S310
                if look(json.load(response)):
                    return True, ""
            problem = "it is not there"
        except HTTPError as error:
            problem = f"status {error.code}"
        except (URLError, OSError) as error:
            problem = str(getattr(error, "reason", error))
        except (ValueError, KeyError, IndexError, TypeError):
            problem = "the answer is not what its query API gives"
        if time.monotonic() >= until:
            return False, problem
        time.sleep(_PAUSE_S)
