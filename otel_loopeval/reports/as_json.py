"""Reports for programs: one JSON document, or JSON lines."""

import json
from typing import Any, Final, TextIO

from otel_loopeval.reports.forms import Report, sums
from otel_loopeval.reports.records import SCHEMA_VERSION, RunRecord
from otel_loopeval.reports.spool import Spool
from otel_loopeval.version import __version__

GENERATOR: Final = f"otel-loopeval {__version__}"


class JsonWriter:
    """One document: ``schema_version``, ``generator``, the sums, then ``runs``.

    ``report.schema.json`` beside this module describes it.

    Args:
        out: Where to write.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._runs = Spool()

    def run(self, record: RunRecord, failed: tuple[str, ...]) -> None:
        """See :class:`~otel_loopeval.reports.forms.Writer`."""
        self._runs.write(",\n    " if self._runs.written else "\n    ")
        self._runs.write(_dumped(_run(record, failed)))

    def finish(self, report: Report) -> None:
        """See :class:`~otel_loopeval.reports.forms.Writer`."""
        head = {"schema_version": SCHEMA_VERSION, "generator": GENERATOR, **sums(report)}
        document = json.dumps(head, ensure_ascii=False, allow_nan=False, indent=2)
        self._out.write(f'{document.removesuffix("}").rstrip()},\n  "runs": [')
        written = self._runs.written
        self._runs.pour(self._out)
        self._out.write("\n  ]\n}\n" if written else "]\n}\n")


class JsonLinesWriter:
    """A line for each run as soon as it is known (``"type": "run"``), and one with the sums at the end.

    Args:
        out: Where to write.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def run(self, record: RunRecord, failed: tuple[str, ...]) -> None:
        """See :class:`~otel_loopeval.reports.forms.Writer`."""
        self._line("run", _run(record, failed))

    def finish(self, report: Report) -> None:
        """See :class:`~otel_loopeval.reports.forms.Writer`."""
        self._line("summary", {"generator": GENERATOR, **sums(report)})

    def _line(self, kind: str, values: dict[str, Any]) -> None:
        self._out.write(_dumped({"type": kind, "schema_version": SCHEMA_VERSION, **values}) + "\n")


def _run(record: RunRecord, failed: tuple[str, ...]) -> dict[str, Any]:
    return {**record.to_dict(), "failed_on": failed}


def _dumped(values: dict[str, Any]) -> str:
    return json.dumps(values, ensure_ascii=False, allow_nan=False)
