"""Reports for comments and pages: Markdown, as GitHub and GitLab show it."""

import re
from typing import Final, TextIO

from otel_loopeval.reports import words
from otel_loopeval.reports.forms import Report
from otel_loopeval.reports.records import RunRecord
from otel_loopeval.reports.shortlist import Shortlist

_RUNS: Final = 50
_AGENTS: Final = 50
_LONGEST: Final = 200
_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]()<>#+!|~&-])")
_NAMES: Final = re.compile(r"([@:])(?=[\w/+-])")
"""What begins a mention, a link or an emoji, whether escaped or not."""


class MarkdownWriter:
    """A heading with the result, why the gate failed, a table of agents, and one of the runs worth a look.

    Args:
        out: Where to write.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._shortlist = Shortlist(_RUNS)

    def run(self, record: RunRecord, failed: tuple[str, ...]) -> None:
        """See :class:`~otel_loopeval.reports.forms.Writer`."""
        if failed or (record.passed is not True and not record.nested):
            self._shortlist.add(record, failed)

    def finish(self, report: Report) -> None:
        """See :class:`~otel_loopeval.reports.forms.Writer`."""
        self._out.write(markdown(report, self._shortlist))


def markdown(report: Report, shortlist: Shortlist) -> str:
    """The report as Markdown, with the runs that are worth a look."""
    passed = report.outcome.passed
    lines = [f"## {'✅' if passed else '❌'} Loop health: {'passed' if passed else 'failed'}", ""]
    total, nested = report.summary.total(), report.summary.total(nested=True)
    lines += [f"{words.headline(total, nested)}.", ""]
    lines += [f"- **{failure.rule}**: {_text(failure.message)}" for failure in report.outcome.failures]
    lines += [f"- note: {_text(note)}" for note in (*report.outcome.notes, *source_notes(report))]
    if lines[-1]:
        lines.append("")
    agents = report.summary.agents
    if agents:
        rows = [
            [
                _text(totals.agent) + (" (inside another run)" if totals.nested else ""),
                f"{totals.runs:,}",
                words.percent(totals.health_rate),
                f"{totals.doom_loops:,}",
                f"{totals.wasted_iterations:,} of {totals.iterations:,}",
                "" if totals.tokens_per_run is None else f"{totals.tokens_per_run:,.0f}",
            ]
            for totals in agents[:_AGENTS]
        ]
        headings = ["Agent", "Runs", "Healthy", "Doom loops", "Wasted iterations", "Tokens per run"]
        lines += [*_table(headings, "lrrrrr", rows), ""]
        if len(agents) > _AGENTS:
            lines += [f"... and {len(agents) - _AGENTS:,} more agents.", ""]
    if shortlist.runs:
        rows = [
            [
                f"`{_code(record.id)}`",
                _text(record.agent),
                words.verdict(record.passed),
                f"{record.iterations:,}",
                "" if record.tokens is None else f"{record.tokens:,}",
                _text(words.why(record)),
            ]
            for record in shortlist.runs
        ]
        lines += ["### Runs to look at", ""]
        lines += [*_table(["Run", "Agent", "Verdict", "Iterations", "Tokens", "Why"], "lllrrl", rows), ""]
        if shortlist.left_out:
            lines += [f"... and {words.count(shortlist.left_out, 'more run')}.", ""]
    return "\n".join(lines).rstrip() + "\n"


def source_notes(report: Report) -> list[str]:
    """What a reader should know of the input, if it was not all in order."""
    source = report.source
    notes: list[str] = []
    if source.errors:
        notes.append(f"{words.count(source.errors, 'part')} of the input could not be read")
    if source.cut_traces:
        notes.append(f"{words.count(source.cut_traces, 'trace')} did not fit and counted as incomplete")
    if source.late_spans:
        notes.append(
            f"{words.count(source.late_spans, 'span')} came too late for their trace and did not count"
        )
    return notes


def _table(headings: list[str], sides: str, rows: list[list[str]]) -> list[str]:
    rule = ["---:" if side == "r" else "---" for side in sides]
    return [f"| {' | '.join(cells)} |" for cells in (headings, rule, *rows)]


def _text(text: str) -> str:
    """Text of unknown origin, so that it is shown as it is: no markup, no mention, no line end."""
    shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return _NAMES.sub("\\1\N{ZERO WIDTH SPACE}", _SPECIAL.sub(r"\\\1", _one_line(shown)))


def _code(text: str) -> str:
    return _one_line(text[:_LONGEST]).replace("`", "'").replace("|", "¦")


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
