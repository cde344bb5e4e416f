"""Checks of what is installed and of the environment variables: nothing is imported or started for them."""

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, entry_points, version

from otel_loopeval import semconv
from otel_loopeval.doctor.findings import BAD, GOOD, NOTE, WARNING, Finding
from otel_loopeval.otel.options import Options
from otel_loopeval.version import __version__

_ENTRY_POINT = "loopeval"
_MORE_VARIABLES = {"LOOPEVAL_FINGERPRINT_KEY", "LOOPEVAL_SOURCE_HEADERS"}
_DISABLED = "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"


def check_packages() -> Iterator[Finding]:
    """What is installed, and whether it fits together."""
    python = ".".join(map(str, sys.version_info[:3]))
    sdk, api = _version("opentelemetry-sdk"), _version("opentelemetry-api")
    told = f"otel-loopeval {__version__}, opentelemetry-sdk {sdk}, Python {python}"
    if sdk == api:
        yield Finding(GOOD, "versions", told)
    else:
        yield Finding(
            WARNING,
            "versions",
            f"{told}, but opentelemetry-api {api}",
            "Install the same version of both: pip install --upgrade opentelemetry-api opentelemetry-sdk",
        )
    configurators = sorted(point.name for point in entry_points(group="opentelemetry_configurator"))
    if not configurators:
        yield Finding(
            BAD,
            "distro",
            "opentelemetry-instrument sets up no SDK here, so nothing is recorded without code",
            'pip install "otel-loopeval[auto]"',
        )
    elif len(configurators) > 1:
        yield Finding(
            WARNING,
            "distro",
            f"several configurators are installed ({', '.join(configurators)}): the first one found wins",
            "Keep one, or name it in OTEL_PYTHON_CONFIGURATOR.",
        )
    else:
        yield Finding(GOOD, "distro", "opentelemetry-instrument sets up the SDK")
    points = entry_points(group="opentelemetry_instrumentor")
    if _ENTRY_POINT not in {point.name for point in points}:
        yield Finding(
            BAD,
            "entry point",
            f"the installed package has no entry point {_ENTRY_POINT!r}: it is a copy, not an installation",
            "pip install otel-loopeval in the environment of the app.",
        )


def check_frameworks() -> Iterator[Finding]:
    """Which agent frameworks are here whose loops are seen without code."""
    found = _version("praisonaiagents")
    if found:
        yield Finding(GOOD, "frameworks", f"praisonaiagents {found} is instrumented when it is imported")
    else:
        yield Finding(
            NOTE,
            "frameworks",
            "no praisonaiagents here: runs come from loop(), from our own EvaluationLoop, or from agents "
            "that emit spans themselves",
        )


def check_variables(environment: Mapping[str, str] | None = None) -> Iterator[Finding]:
    """Variables that turn telemetry off, and those that nobody reads."""
    environment = os.environ if environment is None else environment
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        yield Finding(
            BAD,
            "OTEL_SDK_DISABLED",
            "is true: no telemetry leaves the process (praisonaiagents' old command line sets it)",
            "Unset it, or set it to false before the program starts.",
        )
    for signal, what in (("TRACES", "traces"), ("METRICS", "metrics, and so no alert,")):
        if environment.get(f"OTEL_{signal}_EXPORTER", "").strip().lower() == "none":
            yield Finding(WARNING, f"OTEL_{signal}_EXPORTER", f"is none: no {what} will be seen")
    disabled = {name.strip() for name in environment.get(_DISABLED, "").split(",")}
    if disabled & {_ENTRY_POINT, "*"}:
        yield Finding(BAD, _DISABLED, f"has {_ENTRY_POINT}: loops are not seen", f"Take {_ENTRY_POINT} out.")
    temporality = environment.get("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "").strip().lower()
    if temporality == "delta":
        yield Finding(
            NOTE,
            "temporality",
            "metrics are sent as deltas: Prometheus needs cumulative ones",
            "Unset OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE, unless your backend wants deltas.",
        )
    known = {semconv.ENV_PREFIX + field.name.upper() for field in fields(Options)} | _MORE_VARIABLES
    for name in sorted(environment):
        if name.startswith(semconv.ENV_PREFIX) and name not in known:
            yield Finding(WARNING, name, "is read by nobody", f"There are {', '.join(sorted(known))}.")
    if "--preload" in environment.get("GUNICORN_CMD_ARGS", ""):
        yield Finding(
            WARNING,
            "fork order",
            "gunicorn loads the app before it forks: workers would export the parent's counts again",
            "Set telemetry up in a post_fork hook, and begin no run before it.",
        )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
