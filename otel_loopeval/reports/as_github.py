"""Reports for GitHub Actions: annotations on the run, and the job's summary.

Workflow commands: https://docs.github.com/actions/reference/workflow-commands-for-github-actions
"""

import os
from pathlib import Path
from typing import Final, TextIO

from otel_loopeval.reports import words
from otel_loopeval.reports.as_markdown import markdown, source_notes
from otel_loopeval.reports.forms import Report
from otel_loopeval.reports.records import RunRecord
from otel_loopeval.reports.shortlist import Shortlist

SUMMARY_VARIABLE: Final = "GITHUB_STEP_SUMMARY"
_ANNOTATIONS: Final = 10
"""GitHub shows ten of each kind a step, and drops the others."""
_RUNS: Final = 50
_LONGEST: Final = 1000


class GithubWriter:
    """``::error`` for what fails the gate, ``::warning`` for other unhealthy runs.

    The Markdown report is appended to the file that ``GITHUB_STEP_SUMMARY`` names, if it does.

    Args:
        out: Where the workflow commands go: the step's standard output, for GitHub to see them.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._shortlist = Shortlist(_RUNS)
        self._warned = 0

    def run(self, record: RunRecord, failed: tuple[str, ...]) -> None:
        """See :class:`~otel_loopeval.reports.forms.Writer`."""
        if record.nested or (record.passed is not False and not failed):
            return
        self._shortlist.add(record, failed)
        if not failed and self._warned < _ANNOTATIONS:
            self._warned += 1
            self._command("warning", f"Loop unhealthy: {record.agent}", _about(record))

    def finish(self, report: Report) -> None:
        """See :class:`~otel_loopeval.reports.forms.Writer`."""
        for failure in report.outcome.failures[:_ANNOTATIONS]:
            self._command("error", f"Loop health: {failure.rule}", failure.message)
        left = _ANNOTATIONS - len(report.outcome.failures)
        failing = [record for record in self._shortlist.runs if report.gate.fails(record)]
        for record in failing[: max(left, 0)]:
            self._command("error", f"Loop unhealthy: {record.agent}", _about(record))
        for note in (*report.outcome.notes, *source_notes(report)):
            self._command("notice", "Loop health", note)
        total, nested = report.summary.total(), report.summary.total(nested=True)
        # Never at the beginning of a line: GitHub would take a name that begins like a command for one.
        self._out.write(f"Loop health: {words.headline(total, nested)}\n")
        summary = os.environ.get(SUMMARY_VARIABLE)
        if summary:
            with Path(summary).open("a", encoding="utf-8", errors="backslashreplace", newline="\n") as stream:
                stream.write(markdown(report, self._shortlist))

    def _command(self, command: str, title: str, message: str) -> None:
        self._out.write(f"::{command} title={_property(title)}::{_data(message)}\n")


def _about(record: RunRecord) -> str:
    return f"{words.why(record)}. {record.reasoning} Run {record.id}, trace {record.trace_id or 'unknown'}."


def _data(text: str) -> str:
    return text[:_LONGEST].replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
