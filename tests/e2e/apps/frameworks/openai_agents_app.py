"""An agent of the OpenAI Agents SDK with a tool; OpenInference instruments it by its entry point."""

from agents import Agent, MaxTurnsExceeded, OpenAIResponsesModel, Runner, function_tool
from openai import AsyncOpenAI
from weather import TURNS, answer_all, report


@function_tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return report(city)


def forecaster(client: AsyncOpenAI) -> Agent:
    """The agent. A client belongs to the event loop that it is first used in."""
    model = OpenAIResponsesModel("gpt-4o-mini", client)
    return Agent(name="forecaster", instructions="Answer briefly.", model=model, tools=[get_weather])


agent = forecaster(AsyncOpenAI())


def ask(question: str) -> str:
    return Runner.run_sync(agent, question, max_turns=TURNS).final_output


async def ask_async(question: str) -> str:
    async with AsyncOpenAI() as client:
        return (await Runner.run(forecaster(client), question, max_turns=TURNS)).final_output


async def ask_streamed(question: str) -> str:
    async with AsyncOpenAI() as client:
        result = Runner.run_streamed(forecaster(client), question, max_turns=TURNS)
        async for _ in result.stream_events():
            pass
        return result.final_output


answer_all(MaxTurnsExceeded, ask, ask_async, ask_streamed)
