"""Runs for people: a table of verdicts, and each run's trace as a tree.

Every cell says in words what its colour says. What comes from spans is shown as text, never as markup.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from otel_loopeval import semconv
from otel_loopeval.cli.console import Symbols, printable
from otel_loopeval.cli.steps import about
from otel_loopeval.cli.stored_runs import StoredRuns
from otel_loopeval.reports import RunRecord, record_of, words
from otel_loopeval.runs.dialects import own
from otel_loopeval.runs.reconstruct import Replayed
from otel_loopeval.runs.spans import SpanData, SpanEvent

_TABLE_WIDTH: Final = 72
"""Columns that the table of verdicts needs."""
_BAR_CELLS: Final = 10
_CHART_SCORES: Final = 12
_SHORT_ID: Final = 8
_SHOWN_AT_EACH_END: Final = 6
"""Spans of one parent that a tree shows from its beginning and from its end, if there are many."""

_GOOD, _BAD, _QUIET, _ALARM = "green", "red", "dim", "yellow"


class VerdictTable:
    """The verdicts, one row a run; on a narrow terminal, where a table would break its words, a list.

    Args:
        runs: The runs.
        symbols: What the console can show.
        ids: Whether to show what identifies each, and its tokens where they are known.
    """

    def __init__(self, runs: Iterable[RunRecord], symbols: Symbols, *, ids: bool = False) -> None:
        self._runs = list(runs)
        self._symbols = symbols
        self._ids = _short_ids(self._runs) if ids else []

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if options.max_width >= _TABLE_WIDTH:
            yield self._table()
            return
        for position, record in enumerate(self._runs):
            name = Text(printable(record.agent), style="bold")
            yield name.append("  ").append(health_text(record.passed, self._symbols))
            best = "" if record.best_score is None else f", best {_best(record)}"
            yield Padding(Text(f"{_facts(record)}{best}"), (0, 0, 0, 2))
            if record.passed is not None:
                yield Padding(Text(printable(words.why(record))), (0, 0, 0, 2))
            if self._ids:
                yield Padding(Text(f"run {self._ids[position]}", style=_QUIET), (0, 0, 0, 2))

    def _table(self) -> Table:
        headings = ["Loop", "Verdict", "Iterations", "Best", "Scores", "Why"]
        if self._ids:
            headings = ["Run", "Loop", "Verdict", "Iterations", "Tokens", "Scores", "Why"]
            empty = {"Tokens": all(record.tokens is None for record in self._runs)}
            empty["Scores"] = all(record.best_score is None for record in self._runs)
            headings = [heading for heading in headings if not empty.get(heading)]
        table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for heading in headings:
            right = heading in ("Iterations", "Best", "Tokens")
            table.add_column(heading, overflow="fold", justify="right" if right else "left")
        for position, record in enumerate(self._runs):
            cells = {
                "Run": Text(self._ids[position] if self._ids else "", style=_QUIET),
                "Loop": Text(printable(record.agent)),
                "Verdict": health_text(record.passed, self._symbols),
                "Iterations": Text(str(record.iterations)),
                "Best": Text(_best(record)),
                "Tokens": Text("" if record.tokens is None else f"{record.tokens:,}"),
                "Scores": Text(chart(record.scores, _threshold(record), self._symbols)),
                "Why": Text(printable(words.why(record))),
            }
            table.add_row(*(cells[heading] for heading in headings))
        return table


def _short_ids(runs: Sequence[RunRecord]) -> list[str]:
    """Ids as short as they still tell the runs apart, as ``--explain`` takes them."""
    whole = [printable(record.id) for record in runs]
    short = [run_id[:_SHORT_ID] for run_id in whole]
    return short if len(set(short)) == len(set(whole)) else whole


def health_mark(passed: bool | None, symbols: Symbols) -> Text:
    """Healthy, unhealthy, or neither, as a mark."""
    if passed is None:
        return Text(symbols.undecided, style=_QUIET)
    return Text(symbols.passed, style=_GOOD) if passed else Text(symbols.failed, style=_BAD)


def health_text(passed: bool | None, symbols: Symbols) -> Text:
    """Healthy, unhealthy, or neither, as a mark and in words."""
    return health_mark(passed, symbols).append(f" {words.verdict(passed)}")


def chart(scores: Sequence[float | None], threshold: float, symbols: Symbols) -> str:
    """Scores as a small chart as high as the threshold, or in figures where that cannot be shown."""
    shown = scores[-_CHART_SCORES:]
    if not symbols.steps:
        return " ".join("-" if score is None else f"{score:g}" for score in shown)
    steps = len(symbols.steps) - 1
    return "".join(" " if s is None else symbols.steps[round(_share(s, threshold) * steps)] for s in shown)


def duration(seconds: float) -> str:
    """A duration in the unit that suits it."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.1f} ms"  # noqa: PLR2004
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"  # noqa: PLR2004


def run_tree(stored: Replayed, runs: StoredRuns, symbols: Symbols) -> Tree:
    """A run's trace: its iterations with scores and guard events, and the runs and spans inside it."""
    painter = _Painter(runs, symbols)
    if stored.root is None:
        tree = Tree(
            painter.run_label(Text(f"{printable(stored.run.agent)} (its root span is missing)"), stored)
        )
        for iteration in stored.run.iterations:
            score = "no score" if iteration.score is None else f"score {iteration.score:g}"
            tree.add(Text(f"iteration {iteration.number}  {score}"))
        return tree
    tree = Tree(painter.run_label(Text(printable(stored.root.name), style="bold"), stored))
    painter.paint(tree, stored.root, stored)
    return tree


@dataclass(frozen=True, slots=True)
class _Scale:
    """What the iterations of a run are drawn against."""

    threshold: float
    first_met: int | None
    number_width: int
    score_width: int


class _Painter:
    """Draws the trees of stored runs."""

    def __init__(self, runs: StoredRuns, symbols: Symbols) -> None:
        self._runs = runs
        self._symbols = symbols
        self._drawn: set[tuple[int, int]] = set()  # broken input may have cycles

    def run_label(self, name: Text, stored: Replayed) -> Text:
        """A run in one line, and its verdict, if there is one, in a sentence."""
        verdict = stored.verdict
        facts = f"  {_facts(record_of(stored))}"
        text = Text.assemble(name, "  ", health_text(verdict.passed, self._symbols), (facts, _QUIET))
        if verdict.decided:
            text.append(f"\n{verdict.health.reasoning}", style=_QUIET)
        return text

    def paint(self, tree: Tree, span: SpanData, stored: Replayed | None) -> None:
        """Add what is inside a span."""
        self._drawn.add((span.trace_id, span.span_id))
        for event in span.events:
            if event.name == semconv.EVENT_GUARD:
                tree.add(self._guard_label(event))
        children = [child for child in self._runs.children(span) if not self._says_nothing(child)]
        scale = _scale(stored, children)
        for position, child in _both_ends(children):
            if child is None:
                tree.add(Text(f"{self._symbols.more} {position} more", style=_QUIET))
                continue
            if (child.trace_id, child.span_id) in self._drawn:
                continue
            nested = self._runs.run_of(child)
            if nested is not None:
                label = self.run_label(Text(printable(child.name), style="bold"), nested)
            elif own.is_iteration(child.name):
                before = children[position - 1] if position else None
                label = self._iteration_label(child, before, scale)
            else:
                label = Text.assemble(printable(child.name), (f"  {duration(_seconds(child))}", _QUIET))
                step = about(child)
                if step:
                    label.append(f"  {step}")
            if child.error:
                kind = child.attributes.get(semconv.ERROR_TYPE)
                label.append(f"  {self._symbols.failed} {printable(str(kind or 'error'))}", style=_BAD)
            self.paint(tree.add(label), child, nested)

    def _says_nothing(self, span: SpanData) -> bool:
        """Whether it is a judge's, without calls: the iteration's score tells all of it."""
        return span.name == semconv.SPAN_EVALUATE and not span.error and not self._runs.children(span)

    def _iteration_label(self, span: SpanData, previous: SpanData | None, scale: _Scale) -> Text:
        number = span.attributes.get(semconv.ITERATION_NUMBER)
        shown = str(number) if isinstance(number, int) else "?"
        text = Text(f"iteration {shown:<{scale.number_width}}")
        score = _score(span)
        if score is None:
            return text.append("  no score", style=_QUIET)
        met = score >= scale.threshold
        cells = round(_share(score, scale.threshold) * _BAR_CELLS)
        text.append(f"  {self._symbols.full * cells}", style=_GOOD if met else _ALARM)
        text.append(self._symbols.empty * (_BAR_CELLS - cells), style=_QUIET)
        text.append(f"  {score:>{scale.score_width}g}", style="bold")
        before = None if previous is None else _score(previous)
        text.append("        " if before is None else f"  {score - before:+6.3g}", style=_QUIET)
        text.append(f"  {duration(_seconds(span)):>6}", style=_QUIET)
        if isinstance(number, int) and scale.first_met is not None and number >= scale.first_met:
            first = number == scale.first_met
            text.append("  threshold met" if first else "  wasted", style=_GOOD if first else _BAD)
        return text

    def _guard_label(self, event: SpanEvent) -> Text:
        attributes = event.attributes
        fired = attributes.get(semconv.GUARD_DOOM_LOOP) is True
        text = Text(
            f"{self._symbols.alarm} {'doom loop' if fired else 'guard'}: ", style=_BAD if fired else _ALARM
        )
        text.append(_word(attributes.get(semconv.GUARD_KIND), semconv.KIND_OTHER))
        tool, count = attributes.get(semconv.GUARD_TOOL), attributes.get(semconv.GUARD_COUNT)
        if tool is not None:
            text.append(f" of {_word(tool, '?')}")
        if isinstance(count, int):
            text.append(f", {count} times")
        rule = attributes.get(semconv.GUARD_RULE)
        source = _word(attributes.get(semconv.GUARD_SOURCE), semconv.SOURCE_APPLICATION)
        by = source if rule is None else f"{source}, rule {_word(rule, '?')}"
        text.append(f" ({by})", style=_QUIET)
        return text


def _both_ends(children: Sequence[SpanData]) -> Iterator[tuple[int, SpanData | None]]:
    """The children with their positions; of many the ends, and between them None with how many are left."""
    left_out = len(children) - 2 * _SHOWN_AT_EACH_END
    for position, child in enumerate(children):
        if left_out <= 1 or not _SHOWN_AT_EACH_END <= position < len(children) - _SHOWN_AT_EACH_END:
            yield position, child
        elif position == _SHOWN_AT_EACH_END:
            yield left_out, None


def _scale(stored: Replayed | None, children: Sequence[SpanData]) -> _Scale:
    if stored is None:
        return _Scale(math.inf, None, 1, 1)
    health = stored.verdict.health
    scores = [score for score in map(_score, children) if score is not None]
    converges = stored.run.mode == semconv.MODE_OPTIMIZE and health.converged
    return _Scale(
        health.threshold,
        health.iterations_to_success if converges else None,
        len(str(stored.run.iteration_count)),
        max((len(f"{score:g}") for score in scores), default=1),
    )


def _score(span: SpanData) -> float | None:
    score = span.attributes.get(semconv.ITERATION_SCORE)
    if isinstance(score, int | float) and not isinstance(score, bool) and math.isfinite(score):
        return float(score)
    return None


def _share(score: float, threshold: float) -> float:
    """A score as a share of the threshold, from 0 to 1."""
    if score >= threshold:
        return 1.0
    return max(score / threshold, 0.0) if threshold > 0 else 0.0


def _seconds(span: SpanData) -> float:
    return max(span.end_ns - span.start_ns, 0) / 1e9


def _threshold(record: RunRecord) -> float:
    return math.inf if record.threshold is None else record.threshold


def _best(record: RunRecord) -> str:
    return "" if record.best_score is None else f"{record.best_score:g} of {_threshold(record):g}"


def _facts(record: RunRecord) -> str:
    """Iterations, how it ended if it did not just complete, and duration."""
    number, most = record.iterations, record.max_iterations
    facts = [words.count(number, "iteration") if most is None else f"{number} of {most} iterations"]
    if record.outcome != semconv.OUTCOME_COMPLETED:
        facts.append(record.outcome)
    if record.duration_s is not None:
        facts.append(duration(record.duration_s))
    return ", ".join(facts)


def _word(value: object, default: str) -> str:
    return printable(value) if isinstance(value, str) and value else default
