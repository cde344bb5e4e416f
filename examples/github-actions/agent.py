"""The agent that is tested: it looks for an answer until its judge is content. Yours calls a model."""

from otel_loopeval import iteration, loop

GOOD = 8.0
ANSWERS = {
    "capital of France": ["Lyon?", "Paris"],
    "largest ocean": ["Pacific"],
}


def judge(answer: str) -> float:
    """A score from 0 to 10. Yours asks a model, or compares with what is expected."""
    return 3.0 if answer.endswith("?") else 9.0


def research(question: str) -> str:
    """Answer a question, in five attempts at most."""
    best = ""
    with loop("researcher", threshold=GOOD, max_iterations=5) as run:
        for answer in ANSWERS[question][:5]:
            with iteration() as it:
                best = answer
                it.score = judge(answer)
            if it.score >= GOOD or run.doom_loop_fired:
                break
    return best
