"""The report of ``score`` for people: agents, runs, and the result of the gate, on a terminal or in a log."""

from typing import Final, TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from otel_loopeval.cli.console import Symbols, make_console, printable, symbols_of
from otel_loopeval.cli.rendering import VerdictTable, health_mark
from otel_loopeval.reports import AgentTotals, Report, RunRecord, Shortlist, source_notes, words

_RUNS: Final = 50
_AGENTS: Final = 50
_FEW_RUNS: Final = 10
"""So few runs of one agent need no sums."""


class TableWriter:
    """Tables of agents and of the runs most worth a look, and the result.

    Args:
        out: Where to write.
        no_color: No colours in any case.
    """

    def __init__(self, out: TextIO, *, no_color: bool = False) -> None:
        self._console = make_console(no_color=no_color, file=out)
        self._shortlist = Shortlist(_RUNS)

    def run(self, record: RunRecord, failed: tuple[str, ...]) -> None:
        """See :class:`~otel_loopeval.reports.Writer`."""
        self._shortlist.add(record, failed)

    def finish(self, report: Report) -> None:
        """See :class:`~otel_loopeval.reports.Writer`."""
        console, symbols = self._console, symbols_of(self._console)
        runs, agents = self._shortlist.runs, report.summary.agents
        if runs:
            console.print(VerdictTable(runs, symbols, ids=True))
            if self._shortlist.left_out:
                more = words.count(self._shortlist.left_out, "more run")
                console.print(Text(f"{symbols.more} {more}, see --format jsonl", style="dim"))
            console.print()
        if len(agents) > 1 or self._shortlist.left_out or len(runs) > _FEW_RUNS:
            console.print(_agents(agents[:_AGENTS]))
            if len(agents) > _AGENTS:
                more = words.count(len(agents) - _AGENTS, "more agent")
                console.print(Text(f"{symbols.more} {more}", style="dim"))
            console.print()
        show_result(console, symbols, report)


def _agents(agents: list[AgentTotals]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in ("Agent", "Runs", "Healthy", "Doom loops", "Wasted", "Tokens per run"):
        table.add_column(heading, overflow="fold", justify="left" if heading == "Agent" else "right")
    for totals in agents:
        tokens = totals.tokens_per_run
        table.add_row(
            Text(printable(totals.agent) + (" (inside another run)" if totals.nested else "")),
            f"{totals.runs:,}",
            words.percent(totals.health_rate),
            f"{totals.doom_loops:,}",
            f"{totals.wasted_iterations:,} of {totals.iterations:,}",
            "" if tokens is None else f"{tokens:,.0f}",
        )
    return table


def show_result(console: Console, symbols: Symbols, report: Report) -> None:
    """Print what there was, what should be known of the input, and the result of the gate."""
    console.print(words.headline(report.summary.total(), report.summary.total(nested=True)), soft_wrap=True)
    for note in (*report.outcome.notes, *source_notes(report)):
        console.print(Text(f"note: {printable(note)}", style="dim"), soft_wrap=True)
    for failure in report.outcome.failures:
        line = health_mark(passed=False, symbols=symbols).append(f" {failure.rule}: ", style="bold")
        console.print(line.append(printable(failure.message), style="not bold"), soft_wrap=True)
    if report.outcome.passed:
        console.print(health_mark(passed=True, symbols=symbols).append(" passed"))
