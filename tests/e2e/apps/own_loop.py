"""A hand-written loop of two iterations."""

from otel_loopeval import iteration, loop

with loop("writer", threshold=8.0, max_iterations=5) as run:
    for score in (6.0, 8.5):
        with iteration() as it:
            it.score = score
