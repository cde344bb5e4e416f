"""A loop that you wrote yourself, in any framework or none.

    python hand_written_loop.py

Without a telemetry backend the verdict is a line on stderr. Under ``opentelemetry-instrument``, or with an
SDK that the program sets up, it is on the run's root span and in the metrics.
"""

from otel_loopeval import iteration, loop

DRAFTS = [
    "HTTPS is HTTP, but secure.",
    "HTTPS is HTTP over TLS: the server proves who it is with a certificate.",
    "HTTPS is HTTP over TLS: the server proves who it is with a certificate, and what follows is encrypted.",
]


def agent(feedback: str) -> str:
    """Stands for a call of your agent: the more feedback, the better the draft."""
    return DRAFTS[min(len(feedback), len(DRAFTS) - 1)]


def judge(draft: str) -> float:
    """Stands for your judge, from 0 to 10."""
    return 3.0 * sum(word in draft for word in ("TLS", "certificate", "encrypted")) + 1.0


with loop("explainer", threshold=8.0, max_iterations=5) as run:
    feedback = ""
    for _ in range(5):
        with iteration() as it:
            it.output = agent(feedback)
            it.score = judge(it.output)
            feedback += "+"
        # A good score ends the loop; so does a doom loop: the detector saw the outputs above.
        if it.score >= run.threshold or run.doom_loop_fired:
            break

print(f"scores: {run.scores}")
print(f"verdict: {run.health.reasoning}")
