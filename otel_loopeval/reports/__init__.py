"""Reports on judged runs: what is told of each, sums over many, a gate, and the forms to write them in."""

from otel_loopeval.reports import words
from otel_loopeval.reports.as_github import GithubWriter
from otel_loopeval.reports.as_json import JsonLinesWriter, JsonWriter
from otel_loopeval.reports.as_junit import JunitWriter
from otel_loopeval.reports.as_markdown import MarkdownWriter, source_notes
from otel_loopeval.reports.baseline import Baseline, BaselineRule, read_baseline
from otel_loopeval.reports.forms import Report, Source, Writer
from otel_loopeval.reports.gate import Failure, Gate, GateKeeper, Outcome
from otel_loopeval.reports.outlines import outline
from otel_loopeval.reports.records import RunRecord, record_of
from otel_loopeval.reports.shortlist import Shortlist
from otel_loopeval.reports.summary import AgentTotals, Summary

__all__ = [
    "AgentTotals",
    "Baseline",
    "BaselineRule",
    "Failure",
    "Gate",
    "GateKeeper",
    "GithubWriter",
    "JsonLinesWriter",
    "JsonWriter",
    "JunitWriter",
    "MarkdownWriter",
    "Outcome",
    "Report",
    "RunRecord",
    "Shortlist",
    "Source",
    "Summary",
    "Writer",
    "outline",
    "read_baseline",
    "record_of",
    "source_notes",
    "words",
]
