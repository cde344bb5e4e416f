"""Reports for test viewers: JUnit XML, as CI systems read it."""

import re
from typing import Final, TextIO
from xml.sax.saxutils import escape, quoteattr

from otel_loopeval.reports import words
from otel_loopeval.reports.forms import Report
from otel_loopeval.reports.records import RunRecord
from otel_loopeval.reports.spool import Spool

_SUITE: Final = "otel-loopeval"
_NO_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 has no way to write (section 2.2)."""


class JunitWriter:
    """A test case for each run that is not inside another, and one for each way in which the gate failed.

    A run that fails the gate is a failure; one without a verdict is skipped; one that is unhealthy, but not
    on what the gate fails on, passes and says so. So a failure is shown if, and only if, the gate failed.

    Args:
        out: Where to write.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._cases = Spool()
        self._seconds = 0.0
        self._tests = self._failures = self._skipped = 0

    def run(self, record: RunRecord, failed: tuple[str, ...]) -> None:
        """See :class:`~otel_loopeval.reports.forms.Writer`."""
        if record.nested:
            return
        self._tests += 1
        seconds = record.duration_s or 0.0
        self._seconds += seconds
        self._cases.write(
            f"    <testcase classname={_quoted(record.agent)} name={_quoted(f'{record.agent} {record.id}')}"
            f' time="{seconds:.3f}">\n'
        )
        told = f"{words.why(record)}. {record.reasoning}"
        if failed:
            self._failures += 1
            self._element("failure", message=words.why(record), type=",".join(failed), text=_about(record))
        elif record.passed is None:
            self._skipped += 1
            self._element("skipped", message=f"no verdict: {record.outcome}")
        elif not record.passed:
            self._element("system-out", text=f"Unhealthy, which this gate lets pass: {told}")
        self._cases.write("    </testcase>\n")

    def finish(self, report: Report) -> None:
        """See :class:`~otel_loopeval.reports.forms.Writer`."""
        # The conditions on single runs are shown at those runs.
        apart = [f for f in report.outcome.failures if f.rule not in _SHOWN_AT_RUNS]
        for failure in apart:
            name = failure.rule if failure.agent is None else f"{failure.rule} {failure.agent}"
            self._cases.write(f'    <testcase classname="gate" name={_quoted(name)} time="0.000">\n')
            self._element("failure", message=failure.message, type=failure.rule, text=failure.message)
            self._cases.write("    </testcase>\n")
        counts = (
            f'tests="{self._tests + len(apart)}" failures="{self._failures + len(apart)}" errors="0" '
            f'skipped="{self._skipped}" time="{self._seconds:.3f}"'
        )
        self._out.write(f'<?xml version="1.0" encoding="utf-8"?>\n<testsuites name="{_SUITE}" {counts}>\n')
        self._out.write(f'  <testsuite name="{_SUITE}" {counts}>\n')
        self._cases.pour(self._out)
        self._out.write("  </testsuite>\n</testsuites>\n")

    def _element(self, name: str, *, text: str = "", **attributes: str) -> None:
        shown = "".join(f" {key}={_quoted(value)}" for key, value in attributes.items())
        self._cases.write(f"      <{name}{shown}>{_escaped(text)}</{name}>\n")


_SHOWN_AT_RUNS: Final = frozenset({"unhealthy", "doom_loop", "waste", "budget"})


def _about(record: RunRecord) -> str:
    scores = ", ".join("-" if score is None else f"{score:g}" for score in record.scores)
    lines = [
        record.reasoning,
        f"{words.count(record.iterations, 'iteration')}, outcome {record.outcome}",
        f"scores: {scores}" if record.best_score is not None else "",
        f"tokens: {record.tokens:,}" if record.tokens is not None else "",
        f"trace {record.trace_id}" if record.trace_id is not None else "",
        f"To see the run: otel-loopeval score ... --explain {record.id}",
    ]
    return "\n".join(line for line in lines if line)


def _quoted(text: str) -> str:
    # Line ends in an attribute become spaces unless they are written as references.
    return quoteattr(_writable(text), {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"})


def _escaped(text: str) -> str:
    return escape(_writable(text), {"\r": "&#13;"})


def _writable(text: str) -> str:
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)
