"""Reading stored spans for ``score``: locations → traces whose runs are judged, one at a time."""

import argparse
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from otel_loopeval.cli.console import is_live, make_console, printable
from otel_loopeval.cli.errors import EXIT_UNREADABLE, EXIT_USAGE, CommandError
from otel_loopeval.pricing import prices_of_stored_calls
from otel_loopeval.reports import RunRecord, Source, record_of
from otel_loopeval.runs.assembly import Bounds, Trace, TraceAssembler
from otel_loopeval.runs.reconstruct import Replayed, replay_trace
from otel_loopeval.runs.resume import Segments
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.runs.tracker import Tracker
from otel_loopeval.runs.verdict import Policy
from otel_loopeval.sources import Query, SourceError, open_source

_TOLD: Final = 20
"""Faults of the input that are told one by one."""

OnProgress = Callable[[int, int | None], object]


class JudgedTrace(NamedTuple):
    """A trace and its runs.

    Attributes:
        trace_id: Its id.
        spans: Its spans.
        runs: The runs in it that were asked for, in the order in which they began.
    """

    trace_id: int
    spans: tuple[SpanData, ...]
    runs: list[Replayed]


class Reading:
    """Reads what the options ask for, once.

    Args:
        options: The command's options.

    Raises:
        CommandError: They contradict each other.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._locations: list[str] = options.locations
        self._strict: bool = options.strict
        self._agent: str | None = options.agent
        try:
            self._query = Query(
                service=options.service,
                since=options.since,
                until=options.until,
                limit=options.limit,
                agent=options.agent,
            )
        except ValueError as error:
            raise CommandError(str(error), EXIT_USAGE) from error
        self._policy = policy_of(options)
        self._price = prices_of_stored_calls()
        self._segments = Segments()  # a run that paused goes on in another trace
        self._assembler = TraceAssembler(Bounds(max_spans=options.max_spans))
        self._spans = self._traces = self._cut = self._errors = 0

    @property
    def source(self) -> Source:
        """What has been read so far."""
        return Source(self._spans, self._traces, self._cut, self._assembler.late_spans, self._errors)

    def traces(self) -> Iterator[JudgedTrace]:
        """The traces, as they become whole.

        Raises:
            CommandError: A location cannot be read, or, under ``--strict``, a part of one.
        """
        with _progress() as on_progress:
            for trace in self._assembled(on_progress):
                if not self._query.selects(trace.spans):
                    continue
                self._traces += 1
                self._cut += trace.cut
                yield JudgedTrace(trace.trace_id, trace.spans, self._judge(trace))
                if self._traces == self._query.limit:
                    return
        if self._errors and not self._spans:
            raise CommandError("cannot read any of the input", EXIT_UNREADABLE)

    def records(self) -> Iterator[RunRecord]:
        """The runs of the traces, as these become whole.

        Raises:
            CommandError: As :meth:`traces`.
        """
        for judged in self.traces():
            for replayed in judged.runs:
                yield record_of(replayed, judged.trace_id)

    def _assembled(self, on_progress: OnProgress) -> Iterator[Trace]:
        for location in self._locations:
            for span in self._read(location, on_progress):
                self._spans += 1
                yield from self._assembler.add(span)
        yield from self._assembler.finish()

    def _read(self, location: str, on_progress: OnProgress) -> Iterable[SpanData]:
        on_error = None if self._strict else self._tell
        try:
            yield from open_source(location, query=self._query, on_error=on_error, on_progress=on_progress)
        except SourceError as error:
            raise CommandError(f"cannot read {printable(str(error))}", EXIT_UNREADABLE) from error

    def _tell(self, error: SourceError) -> None:
        self._errors += 1
        if self._errors <= _TOLD:
            print(f"otel-loopeval: skipped {printable(str(error))}", file=sys.stderr)  # noqa: T201
        elif self._errors == _TOLD + 1:
            print("otel-loopeval: more that cannot be read is skipped silently", file=sys.stderr)  # noqa: T201

    def _judge(self, trace: Trace) -> list[Replayed]:
        tracker = Tracker(self._policy, price=self._price, segments=self._segments)
        runs = replay_trace(trace.spans, tracker, cut=trace.cut)
        if self._agent is not None:
            runs = [replayed for replayed in runs if replayed.run.agent == self._agent]
        return runs


def policy_of(options: argparse.Namespace) -> Policy:
    """What the options say is healthy, where a run does not say itself."""
    given = {
        name: value
        for name in ("threshold", "max_wasted_iterations", "token_budget")
        if (value := getattr(options, name)) is not None
    }
    return Policy(**given)


@contextmanager
def _progress() -> Generator[OnProgress, None, None]:
    """A progress bar on standard error, if that is a terminal."""
    console = make_console(file=sys.stderr)
    if not is_live(console):
        yield lambda _done, _total: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - only there

    columns = (
        TextColumn("reading"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as progress:
        task = progress.add_task("reading", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
