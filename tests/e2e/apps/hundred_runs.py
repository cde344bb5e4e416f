"""A hundred runs, every tenth of which goes into a doom loop that is reported three times."""

from otel_loopeval import iteration, loop

for number in range(100):
    with loop("worker", threshold=8.0) as run:
        for score in (5.0, 9.0):
            with iteration() as it:
                it.score = score
        if number % 10 == 0:
            for _ in range(3):
                run.record_guard_event({"type": "repeated_action"})
