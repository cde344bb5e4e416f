"""A guard of the framework fires in a run of our own, and one that the program wrote itself."""

from praisonaiagents.escalation.doom_loop import DoomLoopDetector

from otel_loopeval import iteration, loop, record_guard_event

detector = DoomLoopDetector()
detector.start_session()

with loop("ops", threshold=8.0, max_iterations=3) as run:
    for score in (3.0, 3.5, 4.0):
        with iteration() as it:
            detector.record_action("search", {"query": "canary"}, "nothing found", success=False)
            detector.is_doom_loop()
            it.score = score
    record_guard_event(
        {
            "type": "warning",
            "tool": "shell",
            "action": "block",
            "count": 7,
            "rule": "budget",
            "reason": "canary",
        }
    )
