"""Check the set-up of telemetry: what is installed, where it goes, and whether a test run arrives."""

import argparse
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from otel_loopeval.cli.errors import EXIT_FAILURE, EXIT_OK

if TYPE_CHECKING:
    from otel_loopeval.cli.console import Symbols
    from otel_loopeval.doctor import Finding

SUMMARY: Final = "check the set-up of telemetry, and whether a test run arrives"

_INSIDE: Final = "LOOPEVAL_DOCTOR_INSIDE"
_URLS: Final = ("jaeger", "prometheus")
_FLAGS: Final = ("no_send", "json", "no_color")
_START: Final = "from opentelemetry.instrumentation.auto_instrumentation import run; run()"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.epilog = (
        "Run it where and as the app runs: in its virtual environment and with its variables. It starts "
        "itself under opentelemetry-instrument and looks at what an app would find. Exit status 1 says that "
        "something will not be seen."
    )
    parser.add_argument(
        "--jaeger", metavar="URL", help="read the test run back from Jaeger, such as http://localhost:16686"
    )
    parser.add_argument(
        "--prometheus", metavar="URL", help="read it back from Prometheus, such as http://localhost:9090"
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=30.0,
        metavar="S",
        help="seconds that it has to arrive (default: 30)",
    )
    parser.add_argument("--no-send", action="store_true", help="send no test run, and connect to nothing")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--no-color", action="store_true", help="no colours (NO_COLOR is respected too)")


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < 86_400:  # noqa: PLR2004 - a day
        raise argparse.ArgumentTypeError(f"must be above 0 and below 86400, got {text}")
    return seconds


def run(options: argparse.Namespace) -> int:
    """Examine the set-up, in a process that is instrumented as an app would be."""
    if os.environ.get(_INSIDE) is None:
        return _run_instrumented(options)
    del os.environ[_INSIDE]
    status = _examine(options)
    sys.stdout.flush()
    # Not an exit like any other: the exporters would try once more, and complain to standard error.
    os._exit(status)


def _examine(options: argparse.Namespace) -> int:
    from otel_loopeval.cli.console import make_console, symbols_of  # noqa: PLC0415 - for a quick --help
    from otel_loopeval.doctor import BAD  # noqa: PLC0415
    from otel_loopeval.doctor.examination import Wishes, examine  # noqa: PLC0415

    wishes = Wishes(
        send=not options.no_send,
        jaeger=options.jaeger,
        prometheus=options.prometheus,
        timeout_s=options.timeout,
    )
    console = make_console(no_color=options.no_color)
    symbols = symbols_of(console)
    findings: list[Finding] = []
    for finding in examine(wishes):
        findings.append(finding)
        if not options.json:
            style, text = _told(finding, symbols)
            console.print(text, style=style, soft_wrap=True)
            if finding.advice:
                console.print(f"    {finding.advice}", soft_wrap=True)
    bad = sum(finding.level == BAD for finding in findings)
    if options.json:
        print(json.dumps({"ok": not bad, "findings": [finding.to_dict() for finding in findings]}, indent=2))  # noqa: T201
    else:
        summary = "Everything is in order." if not bad else f"{bad} thing(s) to mend: see above."
        console.print(f"\n{summary}", style="bold")
    return EXIT_FAILURE if bad else EXIT_OK


def _run_instrumented(options: argparse.Namespace) -> int:
    """Run the same command again under ``opentelemetry-instrument``."""
    wished = ["doctor", f"--timeout={options.timeout}"]
    wished += [f"--{name}={value}" for name in _URLS if (value := getattr(options, name)) is not None]
    wished += [f"--{name.replace('_', '-')}" for name in _FLAGS if getattr(options, name)]
    command = [sys.executable, "-c", _START, sys.executable, "-m", "otel_loopeval", *wished]
    sys.stdout.flush()
    return subprocess.run(command, env={**os.environ, _INSIDE: "1"}, check=False).returncode  # noqa: S603 - ourselves


def _told(finding: "Finding", symbols: "Symbols") -> tuple[str, str]:
    from otel_loopeval.cli.console import printable  # noqa: PLC0415
    from otel_loopeval.doctor import BAD, GOOD, WARNING  # noqa: PLC0415

    symbol, style = {
        GOOD: (symbols.passed, "green"),
        WARNING: (symbols.alarm, "yellow"),
        BAD: (symbols.failed, "red"),
    }.get(finding.level, (symbols.undecided, ""))
    return style, printable(f"{symbol} {finding.check}: {finding.text}")
