"""Run three loops offline and see their health: one converges, one wastes iterations, one loops in place."""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_loopeval.cli.errors import EXIT_OK, CommandError

if TYPE_CHECKING:
    from rich.console import Console

    from otel_loopeval.cli.console import Symbols
    from otel_loopeval.cli.demo_recording import Recording
    from otel_loopeval.cli.sending import Destination
    from otel_loopeval.cli.stored_runs import StoredRuns

SUMMARY: Final = "run three loops offline and see their health"
DEFAULT_OUTPUT: Final = "loopeval-demo.jsonl"

_THINKING_S: Final = 0.25
"""Time that an agent of the demo takes for an answer while somebody watches."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.epilog = (
        "With OTEL_EXPORTER_OTLP_ENDPOINT (or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT) set, traces and metrics "
        "are sent there, and exit status 1 says that the traces did not arrive; else the traces are written "
        f"to {DEFAULT_OUTPUT} in the current folder."
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help=f"write the traces to FILE as OTLP/JSON lines (default without an endpoint: {DEFAULT_OUTPUT})",
    )
    parser.add_argument("--fast", action="store_true", help="do not pause for the reader")
    parser.add_argument("--no-color", action="store_true", help="no colours (NO_COLOR is respected too)")


def run(options: argparse.Namespace) -> int:
    """Run the demo.

    Raises:
        CommandError: The traces cannot be written or sent.
    """
    # Imported here, for a quick --help.
    from otel_loopeval.cli.console import is_live, make_console, symbols_of  # noqa: PLC0415
    from otel_loopeval.cli.demo_loops import demo_loops  # noqa: PLC0415
    from otel_loopeval.cli.demo_progress import show_progress  # noqa: PLC0415
    from otel_loopeval.cli.demo_recording import Recording  # noqa: PLC0415
    from otel_loopeval.cli.files import check_writable, write_whole  # noqa: PLC0415
    from otel_loopeval.cli.sending import destination_of  # noqa: PLC0415

    traces_to, metrics_to = destination_of("TRACES"), destination_of("METRICS")
    output = options.output or (None if traces_to else Path(DEFAULT_OUTPUT))
    if output is not None:
        check_writable(output)
    console = make_console(no_color=options.no_color)
    symbols = symbols_of(console)
    loops = list(demo_loops())
    pause_s = _THINKING_S if is_live(console) and not options.fast else 0.0

    console.print("\nThree loops with local agents, no model, no key: is each loop healthy?\n", style="bold")
    with Recording(metrics_to if traces_to else None) as recording:
        with show_progress(console, symbols, loops) as progress:
            for shown in loops:
                progress.began(shown)
                shown.run(lambda: time.sleep(pause_s), progress.scored)
                progress.ended(recording.last_verdict())
        runs = recording.runs()
        _show(console, symbols, runs)
        if output is not None:
            write_whole(output, "".join(f"{line}\n" for line in recording.lines))
            console.print(f"Wrote {_told(runs)} to {output} (OTLP/JSON lines).", soft_wrap=True)
        if traces_to is not None:
            _send(console, traces_to, recording, runs)
    _show_next_steps(console, sent=traces_to is not None)
    return EXIT_OK


def _show(console: "Console", symbols: "Symbols", runs: "StoredRuns") -> None:
    from otel_loopeval.cli.rendering import VerdictTable, run_tree  # noqa: PLC0415
    from otel_loopeval.reports import record_of  # noqa: PLC0415

    console.print()
    console.print(VerdictTable(map(record_of, runs.runs), symbols))
    console.print("\nTheir traces (a full bar is the threshold):", style="bold")
    for stored in runs.runs:
        console.print()
        console.print(run_tree(stored, runs, symbols))
    console.print()


def _told(runs: "StoredRuns") -> str:
    return f"{len(runs.runs)} traces, {runs.span_count} spans,"


def _send(console: "Console", traces_to: "Destination", recording: "Recording", runs: "StoredRuns") -> None:
    from otel_loopeval.cli.sending import send_traces  # noqa: PLC0415

    problem = send_traces(traces_to, recording.spans)
    if problem is not None:
        raise CommandError(
            f"the traces did not arrive at {traces_to}: {problem}\n"
            "Start a receiver there, or unset OTEL_EXPORTER_OTLP_ENDPOINT to have them written to a file."
        )
    console.print(f"Sent {_told(runs)} to {traces_to}, as service {recording.service}.", soft_wrap=True)
    sender = recording.metric_sender
    if sender is None:
        return
    problem = sender.send()
    if problem is None:
        console.print(f"Sent the metrics to {sender.destination}.", soft_wrap=True)
    else:
        # Such as Jaeger, which takes traces only.
        console.print(f"The metrics were not accepted at {sender.destination}: {problem}", soft_wrap=True)


_SEE_THEM: Final = """\
  See these traces in Jaeger, at http://localhost:16686:
    docker run -d -p 16686:16686 -p 4317:4317 jaegertracing/jaeger
    OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4317 otel-loopeval demo
"""
_FIND_THEM: Final = """\
  In your backend, look for spans named evaluation_loop, and for
    loopeval.health.passed = false
"""
_OWN_LOOPS: Final = """\
  Watch a loop of your own:
    from otel_loopeval import iteration, loop

    with loop("my-agent", threshold=8) as run:
        for _ in range(5):
            with iteration() as it:
                it.score = judge(agent(prompt))
            if it.score >= 8 or run.doom_loop_fired:
                break
  Watch a PraisonAI loop without changing its code:
    pip install "otel-loopeval[auto]"
    opentelemetry-instrument python app.py
"""


def _show_next_steps(console: "Console", *, sent: bool) -> None:
    console.print("\nNext steps", style="bold")
    console.print(_FIND_THEM if sent else _SEE_THEM, end="", soft_wrap=True)
    console.print(_OWN_LOOPS, end="", soft_wrap=True)
