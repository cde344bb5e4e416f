"""What is recognised in real spans of many frameworks: a line a trace, then what it takes to read a span.

The spans are not part of the project: the environment variable ``LOOPEVAL_CORPUS`` names the folder that has
``otel_spans.jsonl.gz``. Without it the benchmark says so and ends well.
"""

import sys
from collections import Counter
from pathlib import Path
from time import process_time_ns

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support import otel_corpus

from otel_loopeval.runs.dialects.facts import AGENT, MODEL, TOOL, WORKFLOW, look_of
from otel_loopeval.runs.following import kind_of
from otel_loopeval.runs.reconstruct import Replayed, replay
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.runs.tracker import Tracker

_ROUNDS = 50
_COLUMNS = (
    f"{'trace':27} {'framework':14} {'spans':>5} {'agents':>6} {'flows':>5} {'models':>6} {'tools':>5} "
    f"{'runs':>4} {'turns':>5} {'in':>5} {'out':>5} {'conversation':12} {'evidence':9} {'verdict':9} loops"
)


def _line(name: str, spans: list[SpanData], runs: list[Replayed]) -> str:
    kinds = Counter(kind_of(look_of(span)) for span in spans)
    outermost = [replayed for replayed in runs if replayed.run.parent is None]
    verdicts = {
        {True: "healthy", False: "unhealthy", None: replayed.verdict.outcome}[replayed.verdict.passed]
        for replayed in runs
    }
    conversation = next((r.run.conversation_id for r in runs if r.run.conversation_id), "-")
    return (
        f"{name:27} {'/'.join(sorted({r.run.framework for r in runs})) or 'no run':14} {len(spans):5} "
        f"{kinds[AGENT]:6} {kinds[WORKFLOW]:5} {kinds[MODEL]:6} {kinds[TOOL]:5} {len(runs):4} "
        f"{sum(r.run.iteration_count for r in runs if r.run.turns is None):5} "
        f"{sum(r.run.input_tokens for r in outermost):5} {sum(r.run.output_tokens for r in outermost):5} "
        f"{conversation[:12]:12} {'/'.join(sorted({r.run.evidence for r in runs})):9} "
        f"{'/'.join(sorted(verdicts)):9} {sum(r.verdict.health.doom_loop_fired for r in runs)}"
    )


def main() -> None:
    """Print the table."""
    if not otel_corpus.is_there():
        print(f"No corpus: set {otel_corpus.VARIABLE} to the folder of otel_spans.jsonl.gz.")
        return
    traces = list(otel_corpus.traces())
    print(_COLUMNS)
    for name, spans in traces:
        print(_line(name, spans, replay(spans, Tracker())))
    every = [spans for _, spans in traces]
    best = float("inf")
    for _ in range(_ROUNDS):
        start = process_time_ns()
        for spans in every:
            replay(spans, Tracker())
        best = min(best, process_time_ns() - start)
    count = sum(map(len, every))
    print(f"\n{count} spans, replayed in {best / count / 1_000:.1f} µs a span (best of {_ROUNDS})")


if __name__ == "__main__":
    main()
