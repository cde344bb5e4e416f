"""PraisonAI's loops, one after the other: what each looks like as a trace.

    pip install "otel-loopeval[auto,praisonai]"
    export OPENAI_API_KEY=...
    export OTEL_SERVICE_NAME=tour OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4317
    opentelemetry-instrument python praisonai_tour.py

The first four chapters have no line of telemetry in them. The others use what the package adds: a stop when a
doom loop fires, health in an evaluation suite, and a run that waits for a person and goes on later.
"""

from praisonaiagents import Agent
from praisonaiagents.eval import EvalSuite, EvaluationLoop, LoopEvaluator
from praisonaiagents.goal import GoalCriteria

from otel_loopeval import GuardEvent, StopLoop, instrument, iteration, loop
from otel_loopeval.suite import LoopHealthEvaluator


def search_web(query: str) -> str:
    """Search the web."""
    return f"Nothing found for {query}."


def open_pull_request(title: str) -> str:
    """Open a pull request."""
    return f"Opened #1: {title}"


def improve() -> None:
    """An agent improves its answer until a judge is content."""
    agent = Agent(name="writer", instructions="You write.")
    result = agent.run_until("Describe the product", criteria="It is vivid", threshold=8.0, max_iterations=5)
    print("improve:", result.score_history)

    health = LoopEvaluator().run(result)
    print("  healthy:", health.passed)


def mark(_answer: str) -> float:
    """A mark from 0 to 1."""
    return 0.7


def review() -> None:
    """All iterations run, and a function scores them."""
    agent = Agent(name="reviewer", instructions="You review.")
    review_loop = EvaluationLoop(
        agent=agent, criteria="", threshold=0.5, max_iterations=2, mode="review", metric=mark
    )
    print("review:", review_loop.run("Review the product page").score_history)


def reach_a_goal() -> None:
    """An agent with tools works until an independent judge says that the goal is met."""
    agent = Agent(name="ops", instructions="You operate.", tools=[open_pull_request], autonomy=True)
    result = agent.run_until(
        "Fix the typo",
        goal="A pull request is open",
        goal_criteria=GoalCriteria(outcome="PR open", verification="PR number is told"),
        max_iterations=5,
    )
    print("goal:", result.completion_reason)


def work_alone() -> None:
    """An autonomous agent calls a tool, and answers."""
    agent = Agent(name="worker", instructions="You work alone.", tools=[search_web], autonomy=True)
    print("autonomous:", agent.run_autonomous("Find the manual").completion_reason)


def go_in_circles() -> None:
    """An autonomous agent repeats itself until the package's own guard gives up on it."""
    agent = Agent(name="insister", instructions="You insist.", tools=[search_web], autonomy=True)
    result = agent.run_autonomous("Refactor the whole module, then write tests", max_iterations=9)
    print("in circles:", result.completion_reason, "after", result.iterations, "iterations")


def stop_in_circles() -> None:
    """A callback ends a loop whose agent asks the same thing over and over."""

    def stop(event: GuardEvent, _run: object) -> None:
        print("  doom loop:", event.kind, "of", event.tool)
        raise StopLoop

    instrument(on_doom_loop=stop)
    agent = Agent(name="searcher", instructions="You search.", tools=[search_web])
    try:
        agent.run_until("Find the moon", criteria="It is found", threshold=8.0, max_iterations=9)
    except StopLoop as stopped:
        print("stopped after", stopped.partial.num_iterations, "of 9 iterations")


def judge_in_a_suite() -> None:
    """An unhealthy loop fails an evaluation suite."""
    agent = Agent(name="polisher", instructions="You polish.")
    polishing = EvaluationLoop(agent=agent, criteria="It shines", threshold=8.0, max_iterations=2)
    report = EvalSuite([LoopHealthEvaluator(polishing, "Polish the page")]).run()
    print("suite passed:", report.success)


def wait_for_a_person() -> None:
    """A run pauses for an approval, and another process may go on with it."""
    with loop("approver", id="order-7", threshold=8.0) as run:
        with iteration() as it:
            it.score = 5.0
        run.paused("approval")
    kept = run.resume_token  # with the rest of the program's state

    with loop("approver", threshold=8.0, resume=kept), iteration() as it:
        it.score = 9.0
    print("resumed:", run.id)


if __name__ == "__main__":
    improve()
    review()
    reach_a_goal()
    work_alone()
    go_in_circles()
    stop_in_circles()
    judge_in_a_suite()
    wait_for_a_person()
