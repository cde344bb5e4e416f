"""A tool loop by hand around the OpenAI client, in a span as a web server's request or a job has one."""

import json
from typing import Any

from openai import AsyncOpenAI, OpenAI
from opentelemetry import trace
from weather import TURNS, answer_all, report

TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather in a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]
tracer = trace.get_tracer("forecaster")


class OutOfTurnsError(Exception):
    """The loop's own limit."""


class Conversation:
    """What was said so far."""

    def __init__(self, question: str) -> None:
        self.messages: list[Any] = [{"role": "user", "content": question}]

    def request(self) -> Any:
        return {"model": "gpt-4o-mini", "messages": self.messages, "tools": TOOLS}

    def take(self, message: Any) -> bool:
        """Add what the model said, and the results of the tools that it calls. Whether it was the answer."""
        self.messages.append(message)
        for call in message.tool_calls or ():
            result = report(**json.loads(call.function.arguments))
            self.messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        return not message.tool_calls


@tracer.start_as_current_span("forecast", kind=trace.SpanKind.SERVER)
def ask(question: str) -> str:
    talk = Conversation(question)
    with OpenAI() as client:
        for _ in range(TURNS):
            message = client.chat.completions.create(**talk.request()).choices[0].message
            if talk.take(message):
                return message.content
    raise OutOfTurnsError


@tracer.start_as_current_span("forecast", kind=trace.SpanKind.SERVER)
async def ask_async(question: str) -> str:
    talk = Conversation(question)
    async with AsyncOpenAI() as client:
        for _ in range(TURNS):
            message = (await client.chat.completions.create(**talk.request())).choices[0].message
            if talk.take(message):
                return message.content
    raise OutOfTurnsError


@tracer.start_as_current_span("forecast", kind=trace.SpanKind.SERVER)
async def ask_streamed(question: str) -> str:
    talk = Conversation(question)
    async with AsyncOpenAI() as client:
        for _ in range(TURNS):
            request = {**talk.request(), "stream_options": {"include_usage": True}}
            async with client.chat.completions.stream(**request) as stream:
                message = (await stream.get_final_completion()).choices[0].message
            if talk.take(message):
                return message.content
    raise OutOfTurnsError


answer_all(OutOfTurnsError, ask, ask_async, ask_streamed)
