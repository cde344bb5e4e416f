"""A program whose loops fill every panel of the dashboards; started under ``opentelemetry-instrument``."""

from opentelemetry import trace

from otel_loopeval import ToolCall, current_run, instrument, iteration, loop

MILLION = 1_000_000


def broken(*_: object) -> None:
    """A callback that fails: an error that is kept from the program, and counted."""
    raise RuntimeError("on purpose")


def chat() -> None:
    """A model call, as an instrumentation of a client shows it: 0.75 USD at known prices."""
    with trace.get_tracer("somebody.else").start_as_current_span("chat gpt-4o-mini") as span:
        span.set_attributes(
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": "openai",
                "gen_ai.request.model": "gpt-4o-mini",
                "gen_ai.usage.input_tokens": MILLION,
                "gen_ai.usage.output_tokens": MILLION,
            }
        )


def scored(agent: str, scores: list[float], token_budget: int | None = None) -> None:
    """A run with a judge whose scores are given."""
    with loop(agent, threshold=8.0, max_iterations=5, token_budget=token_budget):
        for score in scores:
            with iteration() as it:
                chat()
                with it.evaluating():
                    chat()
                it.score = score


def stuck(agent: str) -> None:
    """A run that makes the same call again and again."""
    with loop(agent, threshold=8.0, max_iterations=8) as run:
        for _ in range(8):
            with iteration() as it:
                chat()
                run.observe(ToolCall("search", {"query": "moon"}, result="nothing found"))
                it.score = 2.0
            if run.doom_loop_fired:
                break


def late(agent: str) -> None:
    """A run with a span that ends after it."""
    stragglers: list[trace.Span] = []
    with loop(agent, threshold=8.0), iteration() as it:
        stragglers.append(trace.get_tracer("somebody.else").start_span("download"))
        it.score = 9.0
    stragglers[0].end()


def nested(depth: int) -> None:
    """Runs inside runs, more than are followed at once."""
    with loop(f"level-{depth}", mode="agent"):
        assert current_run() is not None
        if depth > 1:
            nested(depth - 1)


if __name__ == "__main__":
    instrument(iteration_metrics=True, on_doom_loop=broken)
    for name in ("writer", "researcher"):
        scored(name, [6.0, 9.0])
        scored(name, [9.0, 7.0, 9.5])  # two wasted
        scored(name, [5.0, 6.0], token_budget=3 * MILLION)  # goes over it
        stuck(name)
    late("writer")
    nested(6)
