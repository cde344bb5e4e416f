"""A verdict for people: a rich table, or plain lines where rich is not installed."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from otel_loopeval.health.result import LoopHealthResult

_TITLE = "Loop Health Summary"
_SHOWN_DELTAS = 10


def print_summary(result: "LoopHealthResult", file: TextIO | None = None) -> None:
    """Print the result to ``file`` (standard output if ``None``).

    Every cell says in words what its colour and symbol say. Symbols are left out where the stream's
    encoding has none; colours are left out unless the stream is a terminal. Long cells are folded, never
    cut.
    """
    stream = sys.stdout if file is None else file
    symbols = _can_write_symbols(stream)
    rows = _rows(result, symbols=symbols)
    try:
        from rich.console import Console  # noqa: PLC0415 - optional at run time, and slow to import
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415
    except ImportError:
        stream.write("".join([f"{_TITLE}\n", *(f"  {name}: {value}\n" for name, value in rows)]))
        return
    table = Table(title=_TITLE)
    table.add_column("Metric", style="cyan", overflow="fold")
    table.add_column("Value", style="green" if result.success else "red", overflow="fold")
    for name, value in rows:
        table.add_row(Text(name), Text(value))
    # file=None and not stream: rich then shows the table as HTML in a notebook.
    Console(file=file).print(table)


def _rows(result: "LoopHealthResult", *, symbols: bool) -> list[tuple[str, str]]:
    def mark(symbol: str, words: str) -> str:
        return f"{symbol} {words}" if symbols else words

    rows = [
        ("Status", mark("✅", "HEALTHY") if result.success else mark("❌", "UNHEALTHY")),
        ("Converged", mark("✅", "yes") if result.converged else mark("❌", "no")),
        ("Iterations to Success", str(result.iterations_to_success)),
        ("Wasted Iterations", str(result.wasted_iterations)),
        ("Doom-Loop Fired", mark("⚠️", "YES") if result.doom_loop_fired else "no"),
        ("Guard Interventions", str(result.guard_interventions)),
        ("Threshold", f"{result.threshold:g}"),
        ("Duration", f"{result.total_duration_s:.2f}s"),
    ]
    if result.score_delta_per_iteration:
        rows.append(("Score Deltas", _deltas(result.score_delta_per_iteration, symbols=symbols)))
    if result.reasoning:
        rows.append(("Reasoning", result.reasoning))
    return rows


def _deltas(deltas: Sequence[float | None], *, symbols: bool) -> str:
    shown = ["n/a" if delta is None else _signed(delta) for delta in deltas[-_SHOWN_DELTAS:]]
    earlier = len(deltas) - len(shown)
    line = (" → " if symbols else " -> ").join(shown)
    return f"({earlier} earlier) {line}" if earlier else line


def _signed(delta: float) -> str:
    try:
        return f"{delta:+g}"
    except OverflowError:  # an int beyond the floats
        return f"{delta:+d}" if isinstance(delta, int) else str(delta)


def _can_write_symbols(stream: TextIO) -> bool:
    try:
        "✅❌⚠️→".encode(getattr(stream, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
