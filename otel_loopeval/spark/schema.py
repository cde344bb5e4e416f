"""The columns of the tables: what is shuffled, and what comes out."""

from datetime import date
from typing import Any, Final

from otel_loopeval.reports.records import RunRecord

VERDICT_COLUMNS: Final = {
    "day": "date",
    "id": "string",
    "trace_id": "string",
    "span_id": "string",
    "agent": "string",
    "service": "string",
    "conversation_id": "string",
    "mode": "string",
    "framework": "string",
    "nested": "boolean",
    "started": "string",
    "duration_s": "double",
    "outcome": "string",
    "completion_reason": "string",
    "passed": "boolean",
    "converged": "boolean",
    "reasons": "array<string>",
    "reasoning": "string",
    "threshold": "double",
    "iterations": "bigint",
    "max_iterations": "bigint",
    "max_wasted_iterations": "bigint",
    "iterations_to_success": "bigint",
    "wasted_iterations": "bigint",
    "scores": "array<double>",
    "final_score": "double",
    "best_score": "double",
    "best_iteration": "bigint",
    "doom_loop_fired": "boolean",
    "doom_loop_kinds": "array<string>",
    "guard_interventions": "bigint",
    "evidence": "string",
    "input_tokens": "bigint",
    "output_tokens": "bigint",
    "judge_tokens": "bigint",
    "wasted_tokens": "bigint",
    "over_token_budget": "boolean",
    "cost_usd": "double",
    "wasted_cost_usd": "double",
}
"""The verdict table: name → type in Spark SQL.

``day`` is the day (UTC) on which the run began, and what to partition by. All others are the fields of
:class:`~otel_loopeval.reports.records.RunRecord`, as the JSON report has them: a run is the same row here
and there.
"""

PACK_COLUMNS: Final = {
    "trace_id": "binary",
    "place": "bigint",
    "telling": "boolean",
    "rooted": "boolean",
    "spans": "bigint",
    "payload": "binary",
}
"""What is shuffled: spans of one trace that were read together."""

JUDGED_COLUMNS: Final = {
    "lane": "bigint",
    "began": "bigint",
    "trace_id": "binary",
    "record": "string",
    "payloads": "array<binary>",
}
"""What is shuffled of judged traces: a run (in JSON), or a whole trace that depends on others."""


def ddl(columns: dict[str, str]) -> str:
    """Columns in the words of Spark SQL."""
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


_INT64: Final = range(-(2**63), 2**63)


def row_of(record: dict[str, Any]) -> dict[str, Any]:
    """The row of a run in the verdict table, from the fields of its record."""
    row = dict(record)
    for name, kind in VERDICT_COLUMNS.items():
        # Numbers of iterations and tokens are whatever a span says; a table has 64 bits for them.
        if kind == "bigint" and row[name] is not None and row[name] not in _INT64:
            row[name] = None
    for name in _LISTS:
        row[name] = list(row[name])
    row["day"] = date.fromisoformat(record["started"][:10])
    return row


def record_of_row(row: dict[str, Any]) -> RunRecord:
    """The run of a row in the verdict table."""
    fields = {name: row[name] for name in RunRecord.__dataclass_fields__}
    for name in _LISTS:
        fields[name] = tuple(fields[name])
    return RunRecord(**fields)


_LISTS: Final = ("reasons", "scores", "doom_loop_kinds")
