"""The console that commands print on, and the symbols that it can show."""

from dataclasses import dataclass
from typing import TextIO

from rich.console import Console


class CommandConsole(Console):
    """A console that prints what it is given, to a reader that may go away."""

    def on_broken_pipe(self) -> None:
        """Leave it to the command: rich would end the process here with a status of its own."""
        raise  # noqa: PLE0704 - rich calls this while it handles the error


@dataclass(frozen=True, slots=True)
class Symbols:
    """Characters that depend on what the output can show.

    Attributes:
        passed: Before a good verdict.
        failed: Before a bad one.
        undecided: Before none.
        alarm: Before a guard event.
        full: A full cell of a bar.
        empty: An empty cell of a bar.
        steps: Heights of a small chart, lowest first; empty where there are none.
        arrow: From one score to the next.
        more: For what is left out.
    """

    passed: str
    failed: str
    undecided: str
    alarm: str
    full: str
    empty: str
    steps: str
    arrow: str
    more: str


UNICODE = Symbols("✔", "✘", "○", "▲", "━", "─", "▁▂▃▄▅▆▇█", "→", "…")
ASCII = Symbols("+", "x", "-", "!", "#", ".", "", "->", "...")


def make_console(*, no_color: bool = False, file: TextIO | None = None) -> Console:
    """A console for standard output.

    Colours only go to a terminal, and not if ``NO_COLOR`` is set.

    Args:
        no_color: No colours in any case.
        file: Where to print instead.
    """
    return CommandConsole(file=file, no_color=no_color or None, markup=False, highlight=False, emoji=False)


def symbols_of(console: Console) -> Symbols:
    """The symbols that a console's encoding has; rich chooses the lines that it draws in the same way."""
    return ASCII if console.options.ascii_only else UNICODE


def is_live(console: Console) -> bool:
    """Whether something may move on the console."""
    return console.is_terminal and not console.is_dumb_terminal


def printable(text: str) -> str:
    """Text of unknown origin, without what could drive a terminal or break a line."""
    return (
        text
        if text.isprintable()
        else "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    )
