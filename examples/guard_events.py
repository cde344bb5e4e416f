"""Guards of your own tell the run that they stepped in.

    python guard_events.py

A guard may be anywhere: in a tool, in a callback, in a library. It needs no reference to the run.
"""

from otel_loopeval import iteration, loop, record_guard_event


def search(query: str, already_asked: set[str]) -> str:
    """A tool that refuses to answer the same question twice, and says so."""
    if query in already_asked:
        record_guard_event(
            {"type": "repeated_action", "tool": "search", "action": "block", "reason": "asked twice"}
        )
        return "You have asked this before."
    already_asked.add(query)
    return f"Results for {query}."


with loop("researcher", threshold=8.0, max_iterations=4) as run:
    asked: set[str] = set()
    for query, score in (("doom loops", 4.0), ("doom loops", 4.0), ("loop detection", 8.5)):
        with iteration() as it:
            search(query, asked)
            it.score = score

# The run converged, and yet it is unhealthy: a guard had to step in.
health = run.health
print(f"converged: {health.converged}")
print(f"doom loop fired: {health.doom_loop_fired}")
print(f"passed: {health.passed}")
print(f"verdict: {health.reasoning}")
