"""Judge the runs in stored traces: whether each loop is healthy, in any form, and with a gate for CI."""

import argparse
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TextIO

from otel_loopeval.cli import score_options
from otel_loopeval.cli.errors import EXIT_FAILURE, EXIT_OK, EXIT_USAGE, CommandError

if TYPE_CHECKING:
    from otel_loopeval.cli.score_reading import Reading
    from otel_loopeval.cli.score_spark import SparkReading
    from otel_loopeval.reports import Gate, Writer

SUMMARY: Final = "judge the runs in stored traces, with a gate for CI"

add_arguments = score_options.add_arguments


def run(options: argparse.Namespace) -> int:
    """Judge stored runs.

    Raises:
        CommandError: The input cannot be read, or an option cannot be used.
    """
    # Imported here, for a quick --help.
    from otel_loopeval.cli.score_explain import explain  # noqa: PLC0415
    from otel_loopeval.cli.score_reading import Reading  # noqa: PLC0415

    gate = _gate(options)
    if options.engine == score_options.SPARK:
        from otel_loopeval.cli.score_spark import SparkReading  # noqa: PLC0415

        reading = SparkReading(options)
    else:
        reading = Reading(options)
    with _output(options) as out:
        if options.explain is not None and isinstance(reading, Reading):
            return explain(options, reading, gate, out)
        return _report(options, reading, gate, out)


def _report(options: argparse.Namespace, reading: "Reading | SparkReading", gate: "Gate", out: TextIO) -> int:
    from otel_loopeval.reports import GateKeeper, Report, Summary  # noqa: PLC0415

    writer = _writer(options, out)
    keeper, summary = GateKeeper(gate), Summary()
    for record in reading.records():
        summary.add(record)
        writer.run(record, keeper.look(record))
    outcome = keeper.tell(summary)
    writer.finish(Report(summary, gate, outcome, reading.source))
    if options.output is not None or options.format not in ("table", "github"):
        # Whoever reads the log of a build should not have to open the report to know why it failed.
        for failure in outcome.failures:
            print(f"otel-loopeval: {failure.rule}: {failure.message}", file=sys.stderr)  # noqa: T201
    return EXIT_OK if outcome.passed else EXIT_FAILURE


def _writer(options: argparse.Namespace, out: TextIO) -> "Writer":
    from otel_loopeval import reports  # noqa: PLC0415
    from otel_loopeval.cli.score_table import TableWriter  # noqa: PLC0415

    if options.format == "table":
        return TableWriter(out, no_color=options.no_color)
    forms = {
        "json": reports.JsonWriter,
        "jsonl": reports.JsonLinesWriter,
        "junit": reports.JunitWriter,
        "markdown": reports.MarkdownWriter,
        "github": reports.GithubWriter,
    }
    return forms[options.format](out)


def _gate(options: argparse.Namespace) -> "Gate":
    from otel_loopeval.reports import BaselineRule, Gate, read_baseline  # noqa: PLC0415

    baseline = None
    if options.baseline is not None:
        try:
            baseline = read_baseline(options.baseline)
        except (OSError, ValueError) as error:
            cause = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise CommandError(
                f"cannot use the baseline {str(options.baseline)!r}: {cause}", EXIT_USAGE
            ) from error
    return Gate(
        score_options.fail_on(options),
        options.max_wasted_iterations,
        options.max_doom_loop_rate,
        baseline,
        BaselineRule(options.min_runs, options.tolerance, options.token_tolerance),
    )


@contextmanager
def _output(options: argparse.Namespace) -> Generator[TextIO, None, None]:
    from otel_loopeval.cli.files import check_writable, open_whole  # noqa: PLC0415

    if options.output is None:
        yield sys.stdout
        return
    try:
        check_writable(options.output)
        with open_whole(options.output) as stream:
            yield stream
    except CommandError as error:
        # Status 1 is the gate's here.
        raise CommandError(
            str(error), EXIT_USAGE if error.status == EXIT_FAILURE else error.status
        ) from error
