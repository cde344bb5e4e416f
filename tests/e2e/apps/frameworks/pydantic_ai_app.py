"""A Pydantic AI agent with a tool, traced as its documentation says: ``Agent.instrument_all()``."""

import os

from pydantic_ai import Agent, InstrumentationSettings, UsageLimitExceeded, UsageLimits
from weather import TURNS, answer_all, report

Agent.instrument_all(InstrumentationSettings(include_content="PRIVATE" not in os.environ))
agent = Agent("openai-chat:gpt-4o-mini", name="forecaster", instructions="Answer briefly.")
limits = UsageLimits(request_limit=TURNS)


@agent.tool_plain
def get_weather(city: str) -> str:
    """The weather in a city."""
    return report(city)


def ask(question: str) -> str:
    return agent.run_sync(question, usage_limits=limits).output


async def ask_async(question: str) -> str:
    return (await agent.run(question, usage_limits=limits)).output


async def ask_streamed(question: str) -> str:
    async with agent.run_stream(question, usage_limits=limits) as result:
        return await result.get_output()


answer_all(UsageLimitExceeded, ask, ask_async, ask_streamed)
