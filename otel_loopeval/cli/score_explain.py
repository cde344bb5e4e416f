"""``score --explain RUN``: one run whole, with the steps of each loop, what repeated, and what it cost."""

import argparse
from collections.abc import Iterator
from typing import Final, NamedTuple, TextIO

from rich.text import Text

from otel_loopeval import semconv
from otel_loopeval.cli.console import make_console, printable, symbols_of
from otel_loopeval.cli.errors import EXIT_FAILURE, EXIT_OK, EXIT_USAGE, CommandError
from otel_loopeval.cli.rendering import run_tree
from otel_loopeval.cli.score_reading import JudgedTrace, Reading
from otel_loopeval.cli.steps import repeated_calls
from otel_loopeval.cli.stored_runs import StoredRuns
from otel_loopeval.reports import Gate, RunRecord, record_of, words
from otel_loopeval.runs.reconstruct import Replayed
from otel_loopeval.runs.spans import SpanData

_SHORTEST: Final = 4
_LISTED: Final = 10


class _Found(NamedTuple):
    record: RunRecord
    replayed: Replayed
    trace: JudgedTrace


def explain(options: argparse.Namespace, reading: Reading, gate: Gate, out: TextIO) -> int:
    """Show one run.

    Returns:
        The exit status, by what the gate makes of this run alone.

    Raises:
        CommandError: There is no such run, or several; or the input cannot be read.
    """
    found = _find(options.explain, reading)
    runs = StoredRuns(found.trace.spans, runs=found.trace.runs)
    console = make_console(no_color=options.no_color, file=out)
    symbols = symbols_of(console)
    console.print(run_tree(found.replayed, runs, symbols))
    console.print(Text("\nWhat repeated", style="bold"))
    repeats = [*_reported(found.replayed), *repeated_calls(_inside(found.replayed.root, runs))]
    if found.record.evidence == semconv.EVIDENCE_NONE and found.record.mode == semconv.MODE_AGENT:
        repeats.append("no detector could look: the trace tells neither arguments nor results of calls")
    for line in repeats or ("nothing",):
        console.print(Text(f"  {printable(line)}"), soft_wrap=True)
    console.print(Text("\nWhat it cost", style="bold"))
    for line in _costs(found):
        console.print(Text(f"  {printable(line)}"), soft_wrap=True)
    record = found.record
    console.print(Text(f"\nrun {printable(record.id)}, trace {record.trace_id}", style="dim"), soft_wrap=True)
    return EXIT_FAILURE if gate.fails(record) else EXIT_OK


def _find(wanted: str, reading: Reading) -> _Found:
    """The one run that is meant."""
    matches: list[_Found] = []
    total = 0
    for trace in reading.traces():
        for replayed in trace.runs:
            total += 1
            record = record_of(replayed, trace.trace_id)
            if record.id == wanted:
                return _Found(record, replayed, trace)
            if _is_meant(wanted, record) and len(matches) <= _LISTED:
                matches.append(_Found(record, replayed, trace))
    if len(matches) == 1:
        return matches[0]
    if not matches:
        found = f"there is none among {words.count(total, 'run')}"
        raise CommandError(
            f"--explain {printable(wanted)!r}: {found}; a table of runs shows their ids", EXIT_USAGE
        )
    listed = "".join(f"\n  {printable(m.record.id)}  {printable(m.record.agent)}" for m in matches[:_LISTED])
    more = "\n  ..." if len(matches) > _LISTED else ""
    raise CommandError(
        f"--explain {printable(wanted)!r}: several runs are called that:{listed}{more}", EXIT_USAGE
    )


def _is_meant(wanted: str, record: RunRecord) -> bool:
    """Whether an id is the beginning of the run's or, if it is not inside another run, of its trace's."""
    if len(wanted) < _SHORTEST:
        return False
    trace = None if record.nested else record.trace_id
    return record.id.startswith(wanted) or (trace is not None and trace.startswith(wanted.lower()))


def _inside(root: SpanData | None, runs: StoredRuns) -> Iterator[SpanData]:
    """The spans inside a run, those of the runs inside it left out."""
    waiting = [] if root is None else [root]
    seen: set[int] = set()  # broken input may have cycles
    while waiting:
        span = waiting.pop()
        seen.add(span.span_id)
        yield span
        waiting += [
            child for child in runs.children(span) if runs.run_of(child) is None and child.span_id not in seen
        ]


def _reported(replayed: Replayed) -> list[str]:
    return [
        words.guard_event(event) + ("" if event.iteration is None else f", in iteration {event.iteration}")
        for event in replayed.run.guard_events
    ]


def _costs(found: _Found) -> Iterator[str]:
    record = found.record
    if record.tokens is None:
        yield "tokens: unknown, since no span tells them"
    else:
        parts = f"{record.input_tokens:,} in, {record.output_tokens:,} out"
        yield f"tokens: {record.tokens:,} ({parts}){_usd(record.cost_usd)}"
    if record.judge_tokens is not None:
        yield f"judges: {record.judge_tokens:,} tokens"
    if record.wasted_iterations:
        tokens = "" if record.wasted_tokens is None else f", {record.wasted_tokens:,} tokens"
        wasted = words.count(record.wasted_iterations, "iteration")
        yield f"wasted: {wasted}{tokens}{_usd(record.wasted_cost_usd)}"
    else:
        yield "wasted: nothing"
    if record.over_token_budget:
        yield "over the token budget"


def _usd(cost: float | None) -> str:
    return "" if cost is None else f", {cost:,.5f} USD"
