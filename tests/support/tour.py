"""The model that the tour of PraisonAI's loops talks to: what each of its agents is answered."""

from typing import Any

from support.openai_stub import (
    JsonObject,
    OpenAIStub,
    asks_about_goal,
    asks_for_score,
    message,
    prompt_text,
    tool_call,
)


def tour_stub() -> OpenAIStub:
    """A stub that plays the tour's models and judges. Not started."""
    answers = iter(range(1, 1000))

    def reply(request: JsonObject) -> Any:
        if asks_for_score(request) or asks_about_goal(request):
            return None
        text = prompt_text(request)
        called = request["messages"][-1]["role"] == "tool"
        if "You operate" in text:
            arguments = {"title": "Fix a typo"}
            return "Opened #1." if called else message(tool_calls=[tool_call("open_pull_request", arguments)])
        if "You work alone" in text:
            arguments = {"query": "manual"}
            answer = "Here it is. The task is completed."
            return answer if called else message(tool_calls=[tool_call("search_web", arguments)])
        if "You insist" in text or "You search" in text:
            arguments = {"query": "moon"}
            answer = f"Not found yet, try {next(answers)}."
            return answer if called else message(tool_calls=[tool_call("search_web", arguments)])
        return None

    # Two iterations of the writer; four of the searcher; two of the polisher.
    return OpenAIStub(reply, scores=[6, 9, 2, 2, 2, 2, 3, 4], goal_turns=1)
