"""Model calls inside runs, counted as they end: tokens, cost, and the token budget."""

from typing import TYPE_CHECKING

from opentelemetry.context import Context

from otel_loopeval.runs.usage import Spent, Usage
from otel_loopeval.runs.verdict import effective_token_budget

if TYPE_CHECKING:
    from otel_loopeval.otel.pipeline import Pipeline
    from otel_loopeval.runs.nodes import Node
    from otel_loopeval.runs.run import LoopRun


def count_span(
    pipeline: "Pipeline",
    node: "Node",
    span_id: int,
    parent_id: int | None,
    usage: Usage | None,
    ended_ns: int,
    context: Context,
) -> None:
    """Count what a span inside a run reports to have used, if no span inside it reported it.

    Args:
        pipeline: Where the run goes.
        node: The run, iteration or judge that the span is in.
        span_id: The span.
        parent_id: Its parent, if that may report the same usage again.
        usage: What it reports, or None where it reports nothing.
        ended_ns: When it ended, in nanoseconds since the epoch.
        context: A context with the span, for exemplars.
    """
    tracker, run = pipeline.tracker, node.state
    with tracker.lock:
        spent = run.account_span(
            span_id,
            parent_id,
            usage,
            node.iteration_state,
            ended_ns=ended_ns,
            price=tracker.price,
            judging=node.judging,
        )
    if spent is not None:
        announce(pipeline, run, spent, context)


def announce(pipeline: "Pipeline", run: "LoopRun", spent: Spent, context: Context) -> None:
    """Put a model call on the metrics, and tell of the runs that it took over their token budget."""
    pipeline.instruments.spent(run, spent, context)
    over: LoopRun | None = run
    judging = spent.judging
    while over is not None and not judging:
        budget = effective_token_budget(over, pipeline.tracker.policy)
        if budget is not None and over.input_tokens + over.output_tokens > budget:
            with pipeline.tracker.lock:
                told, over.budget_exceeded = over.budget_exceeded, True
            if not told:
                pipeline.instruments.over_budget(over, context)
        judging = over.serves_judge
        over = over.parent
