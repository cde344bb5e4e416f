"""A callback ends a run as soon as it goes round in circles.

    python stop_on_doom_loop.py

The agent below calls one tool over and over. The detector in the run sees the calls; when it is sure,
``on_doom_loop`` is called, and ``StopLoop`` ends the loop at its next seam: here, the next iteration.
"""

from otel_loopeval import GuardEvent, StopLoop, ToolCall, instrument, iteration, loop


def on_doom_loop(event: GuardEvent, _run: object) -> None:
    """Page somebody, count it, or end the run, as here."""
    print(f"doom loop: {event.kind} of {event.tool}")
    raise StopLoop


instrument(on_doom_loop=on_doom_loop)

with loop("searcher", threshold=8.0, max_iterations=50) as run:
    for _ in range(50):
        with iteration() as it:
            run.observe(ToolCall("search", {"query": "the same"}, result="nothing found"))
            it.score = 2.0

# StopLoop has ended the block quietly.
print(f"stopped after {len(run.scores)} of 50 iterations")
