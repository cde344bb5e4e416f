"""What is seen while the demo's loops run: a moving table on a terminal, a line a loop elsewhere."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from otel_loopeval.cli.console import Symbols, is_live
from otel_loopeval.cli.demo_loops import THRESHOLD, DemoLoop
from otel_loopeval.cli.rendering import chart, health_mark, health_text


class Progress(Protocol):
    """Shows loops at work, one after another."""

    def began(self, shown: DemoLoop) -> None:
        """A loop begins."""
        ...

    def scored(self, score: float) -> None:
        """An iteration of it has its score."""
        ...

    def ended(self, passed: bool | None) -> None:
        """It has ended, healthy or not."""
        ...


@contextmanager
def show_progress(
    console: Console, symbols: Symbols, loops: Sequence[DemoLoop]
) -> Generator[Progress, None, None]:
    """Show progress in the way that the console can."""
    if not is_live(console):
        yield LineProgress(console, symbols, loops)
        return
    progress = LiveProgress(symbols, loops)
    with Live(console=console, get_renderable=progress.table, refresh_per_second=12) as live:
        progress.redraw = live.refresh
        yield progress


class LineProgress:
    """One line for each loop when it has ended."""

    def __init__(self, console: Console, symbols: Symbols, loops: Sequence[DemoLoop]) -> None:
        self._console = console
        self._symbols = symbols
        self._agent_width = max(len(shown.agent) for shown in loops)
        self._story_width = max(len(shown.story) for shown in loops)
        self._loop = loops[0]
        self._scores: list[float] = []

    def began(self, shown: DemoLoop) -> None:
        """See :class:`Progress`."""
        self._loop, self._scores = shown, []

    def scored(self, score: float) -> None:
        """See :class:`Progress`."""
        self._scores.append(score)

    def ended(self, passed: bool | None) -> None:
        """See :class:`Progress`."""
        agent, story = self._loop.agent, self._loop.story
        scores = f" {self._symbols.arrow} ".join(f"{score:g}" for score in self._scores)
        line = f" {agent:<{self._agent_width}}  {story:<{self._story_width}}  {scores}"
        self._console.print(health_mark(passed, self._symbols).append(line, style="default"))


class _Row:
    """What is known of one loop."""

    def __init__(self) -> None:
        self.begun = self.ended = False
        self.passed: bool | None = None
        self.scores: list[float] = []


class LiveProgress:
    """A table with a row for each loop, redrawn as scores come in.

    Attributes:
        redraw: Redraws it.
    """

    def __init__(self, symbols: Symbols, loops: Sequence[DemoLoop]) -> None:
        self._symbols = symbols
        self._rows = {shown.agent: (shown, _Row()) for shown in loops}
        self._row = _Row()
        self._spinner = Spinner("dots" if symbols.steps else "line")
        self.redraw: Callable[[], object] = bool

    def began(self, shown: DemoLoop) -> None:
        """See :class:`Progress`."""
        self._row = self._rows[shown.agent][1]
        self._row.begun = True
        self.redraw()

    def scored(self, score: float) -> None:
        """See :class:`Progress`."""
        self._row.scores.append(score)
        self.redraw()

    def ended(self, passed: bool | None) -> None:
        """See :class:`Progress`."""
        self._row.ended, self._row.passed = True, passed
        self.redraw()

    def table(self) -> Table:
        """The table as it is now."""
        table = Table.grid(padding=(0, 2, 0, 0))
        for _ in range(5):
            table.add_column()
        for shown, row in self._rows.values():
            count = f"{len(row.scores)} of {shown.max_iterations}"
            table.add_row(
                Text(shown.agent, style="bold" if row.begun and not row.ended else ""),
                Text(shown.story, style="dim"),
                Text(count if row.begun else "", style="dim" if row.ended else ""),
                Text(chart(row.scores, THRESHOLD, self._symbols), style="cyan"),
                health_text(row.passed, self._symbols) if row.ended else self._spinner if row.begun else "",
            )
        return table
