"""The options of ``score``, and what their values mean."""

import argparse
import re
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

from otel_loopeval.cli.values import count_from, number, number_from_0
from otel_loopeval.reports.baseline import BaselineRule
from otel_loopeval.reports.gate import CONDITIONS, NO_RUNS, UNHEALTHY, conditions
from otel_loopeval.runs.assembly import Bounds

FORMATS: Final = ("table", "json", "jsonl", "junit", "markdown", "github")
NEVER: Final = "none"
PYTHON: Final = "python"
SPARK: Final = "spark"

_AGO: Final = re.compile(r"(\d+)(s|m|h|d|w)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_RULE: Final = BaselineRule()
_BOUNDS: Final = Bounds()
_QUIET: Final = f"{_BOUNDS.quiet_spans:,} spans"
_SECONDS_QUIET: Final = f"{_BOUNDS.quiet_s:.0f} seconds"
_MEGABYTES: Final = _BOUNDS.max_bytes >> 20
_EPILOG: Final = f"""\
exit status: 0 healthy; 1 the gate failed; 2 bad use (an option, a baseline or an output that cannot be used,
a run that is not there); 3 the input cannot be read (with --strict: any part of it)

input: OTLP as JSON lines, JSON or protobuf, also compressed (gzip, zstd), Jaeger and Phoenix exports; folders
and globs of such files; - for standard input; jaeger+http://, tempo+http://, phoenix+http://, clickhouse://
and chdb:// addresses.

gate: by default a run with a bad verdict fails it. With --max-doom-loop-rate or --baseline, and without
--fail-on, only these do. No run with a verdict always fails it, unless --allow-empty or --fail-on none. Runs
inside other runs are counted apart, and do not fail it themselves.

baseline: an agent with at least --min-runs runs with a verdict in both reports has become worse if its health
rate fell, or its doom-loop rate (runs with a doom loop among all runs) or its waste (wasted iterations among
all) rose, by more than --tolerance; or if its tokens per run rose by more than the share --token-tolerance.

memory: spans are held until their trace is whole. A trace is taken to be whole when it has its root span and
{_QUIET} of others and {_SECONDS_QUIET} of the spans' own time have passed it by. If more than --max-spans
spans (or about {_MEGABYTES} MB of them) are held, the traces without news go first; runs of a trace that is
cut are incomplete.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument("locations", nargs="+", metavar="PATH|URL", help="where the stored spans are")

    which = parser.add_argument_group("which runs")
    which.add_argument("--service", metavar="NAME", help="only traces in which this service took part")
    which.add_argument("--agent", metavar="NAME", help="only runs of this agent")
    when = "an ISO 8601 time (UTC, unless it says otherwise), or how long ago: 30m, 12h, 7d"
    which.add_argument(
        "--since", type=_time, metavar="TIME", help=f"only traces that began then or later: {when}"
    )
    which.add_argument("--until", type=_time, metavar="TIME", help="only traces that began before then")
    which.add_argument("--limit", type=count_from(1), metavar="N", help="at most so many traces")

    healthy = parser.add_argument_group("what is healthy, where a run does not say itself")
    healthy.add_argument(
        "--threshold", type=number, metavar="SCORE", help="the score to reach (default: 8.0)"
    )
    healthy.add_argument(
        "--max-wasted-iterations",
        type=count_from(0),
        metavar="N",
        help="wasted iterations allowed (default: 0 in loops with scores; turns of agents do not matter)",
    )
    healthy.add_argument("--token-budget", type=count_from(1), metavar="N", help="tokens that a run may use")

    output = parser.add_argument_group("output")
    output.add_argument("--format", choices=FORMATS, default="table", help="default: %(default)s")
    output.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write to FILE, whole or not at all"
    )
    output.add_argument(
        "--explain",
        metavar="RUN",
        help="show one run as a tree, and judge only that: its id, or that of its trace, or how it begins",
    )
    output.add_argument("--no-color", action="store_true", help="no colours (NO_COLOR is respected too)")

    gate = parser.add_argument_group("gate")
    gate.add_argument(
        "--fail-on",
        type=_conditions,
        metavar="LIST",
        help=f"comma-separated, of {', '.join(CONDITIONS)}; or {NEVER} (default: {UNHEALTHY},{NO_RUNS})",
    )
    gate.add_argument(
        "--max-doom-loop-rate",
        type=_share,
        metavar="RATE",
        help="share of runs that may have a doom loop, 0 to 1",
    )
    gate.add_argument(
        "--baseline",
        type=Path,
        metavar="FILE",
        help="fail where an agent is worse than in this --format json report",
    )
    gate.add_argument(
        "--min-runs", type=count_from(1), default=_RULE.min_runs, metavar="N", help="default: %(default)s"
    )
    gate.add_argument(
        "--tolerance", type=_share, default=_RULE.tolerance, metavar="RATE", help="default: %(default)s"
    )
    gate.add_argument(
        "--token-tolerance",
        type=number_from_0,
        default=_RULE.token_tolerance,
        metavar="SHARE",
        help="default: %(default)s",
    )
    gate.add_argument("--allow-empty", action="store_true", help="no runs are no failure")

    reading = parser.add_argument_group("reading")
    reading.add_argument("--strict", action="store_true", help="stop at the first part that cannot be read")
    reading.add_argument(
        "--engine",
        choices=(PYTHON, SPARK),
        default=PYTHON,
        help="what reads files and judges: this process, or Apache Spark (default: %(default)s)",
    )
    reading.add_argument(
        "--max-spans",
        type=count_from(2),
        default=_BOUNDS.max_spans,
        metavar="N",
        help="spans held in memory (default: %(default)s)",
    )


def fail_on(options: argparse.Namespace) -> frozenset[str]:
    """The conditions of the gate, with what the other options say of them."""
    chosen: frozenset[str] | None = options.fail_on
    if chosen is None:
        softer = options.max_doom_loop_rate is not None or options.baseline is not None
        chosen = frozenset() if softer else frozenset({UNHEALTHY})
    elif not chosen:
        return chosen
    return chosen - {NO_RUNS} if options.allow_empty else chosen | {NO_RUNS}


def _conditions(text: str) -> frozenset[str]:
    if text.strip() == NEVER:
        return frozenset()
    try:
        return conditions(name.strip() for name in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; or {NEVER}") from None


def _share(text: str) -> float:
    value = number(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not from 0 to 1")
    return value


def _time(text: str) -> int:
    """A time in nanoseconds since the epoch."""
    ago = _AGO.fullmatch(text.strip())
    if ago is not None:
        return time.time_ns() - int(ago[1]) * _SECONDS[ago[2]] * 1_000_000_000
    try:
        # Python 3.10 does not know the Z.
        moment = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text.strip()))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time: an ISO 8601 time such as 2025-01-31T12:00, or how long ago, such as 12h"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return int(moment.timestamp() * 1_000_000) * 1000
