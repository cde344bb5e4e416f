"""Model calls through the OpenAI SDK: what is recorded, and what it never changes.

The calls are made by functions that stand in the package's own module, since that is what tells its calls
from the program's; client, server and instrumentation are the real ones. Calls of real agents, LiteLLM
among them, are in ``test_token_totals.py``.
"""

import asyncio
import gc
import json
import threading
from collections.abc import Iterator
from typing import Any

import openai
import praisonaiagents
import pytest
from openai.resources.chat.completions import Completions
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from support.openai_stub import Fault, OpenAIStub, message, tool_call

from otel_loopeval import Judge, current_run, iteration, loop, uninstrument
from otel_loopeval.instrumentation.model_calls import ENDING
from otel_loopeval.testing import Capture

CALLERS = """
def ask(client, **arguments):
    return client.chat.completions.create(model="gpt-4o-mini", **arguments)

async def ask_async(client, **arguments):
    return await client.chat.completions.create(model="gpt-4o-mini", **arguments)

def respond(client, **arguments):
    return client.responses.create(model="gpt-4o-mini", **arguments)
"""
package: dict[str, Any] = {"__name__": f"{praisonaiagents.__name__}.somewhere"}
exec(CALLERS, package)  # as if it stood there
ask, ask_async, respond = package["ask"], package["ask_async"], package["respond"]

HELLO = [{"role": "user", "content": "Hello?"}]
ANSWER = {
    "content": "A fine answer.",
    "usage": {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 64},
        "completion_tokens_details": {"reasoning_tokens": 8},
    },
}


@pytest.fixture
def stub() -> Iterator[OpenAIStub]:
    with OpenAIStub(lambda _: dict(ANSWER)) as stub:
        yield stub


@pytest.fixture
def client(stub: OpenAIStub) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=stub.base_url, api_key="any", max_retries=0) as client:
        yield client


def usage_attributes() -> dict[str, Any]:
    return {
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 64,
        "gen_ai.usage.reasoning.output_tokens": 8,
    }


def test_a_call_outside_of_any_run_is_a_span(
    capture: Capture, stub: OpenAIStub, client: openai.OpenAI
) -> None:
    answer = ask(client, messages=HELLO, temperature=0.5, max_tokens=50)
    assert answer.choices[0].message.content == "A fine answer."
    (span,) = capture.spans()
    assert (span["name"], span["kind"], span["status"]) == ("chat gpt-4o-mini", "CLIENT", "UNSET")
    assert span["attributes"] == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o-mini",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 50,
        "gen_ai.response.id": "chatcmpl-stub-0",
        "gen_ai.response.model": "gpt-4o-mini",
        "gen_ai.response.finish_reasons": ["stop"],
        "server.address": "127.0.0.1",
        "server.port": stub.port,
        **usage_attributes(),
    }
    assert stub.requests == [
        {"messages": HELLO, "model": "gpt-4o-mini", "temperature": 0.5, "max_tokens": 50}
    ]


def test_the_programs_own_calls_are_none_of_ours(capture: Capture, client: openai.OpenAI) -> None:
    client.chat.completions.create(model="gpt-4o-mini", messages=HELLO)  # type: ignore[arg-type]
    for name in ({"__name__": None}, {}):
        nameless: dict[str, Any] = dict(name)
        exec(CALLERS, nameless)
        assert nameless["ask"](client, messages=HELLO).choices[0].message.content == "A fine answer."
    assert capture.spans() == []


def test_a_call_in_a_run_is_counted_in_its_iteration(capture: Capture, client: openai.OpenAI) -> None:
    with loop("writer") as run, iteration() as it:
        ask(client, messages=HELLO)
        with it.evaluating():
            ask(client, messages=HELLO)
    assert (run.state.input_tokens, run.state.output_tokens) == (100, 20)
    root, iterated, chat, evaluate, judging = capture.spans()
    assert [span["name"] for span in capture.spans()] == [
        "evaluation_loop writer",
        "evaluation_loop.iteration",
        "chat gpt-4o-mini",
        "evaluate",
        "chat gpt-4o-mini",
    ]
    assert (chat["parent_id"], judging["parent_id"]) == (iterated["id"], evaluate["id"])
    assert {key: value for key, value in root["attributes"].items() if "tokens" in key} == {
        "loopeval.run.tokens.input": 100,
        "loopeval.run.tokens.output": 20,
        "loopeval.run.judge_tokens.input": 100,
        "loopeval.run.judge_tokens.output": 20,
    }
    assert capture.value("loopeval.tokens") == 120
    assert capture.value("loopeval.judge_tokens") == 120


async def test_async_calls_belong_to_the_iterations_that_make_them(
    capture: Capture, stub: OpenAIStub
) -> None:
    async with openai.AsyncOpenAI(base_url=stub.base_url, api_key="any") as client:

        async def one(number: int) -> int:
            async with loop(f"writer {number}") as run:
                for _ in range(number):
                    async with iteration():
                        await ask_async(client, messages=HELLO)
            return run.state.input_tokens

        assert await asyncio.gather(*map(one, (1, 2, 3))) == [100, 200, 300]
    assert capture.value("loopeval.tokens") == 720


def test_who_speaks_the_api_of_openai_is_not_paid_like_openai(
    capture: Capture, client: openai.OpenAI
) -> None:
    pytest.importorskip("genai_prices", reason="the extra [cost] is not installed")
    with loop("writer"), iteration():
        ask(client, messages=HELLO)
    root = capture.span("evaluation_loop")["attributes"]
    assert root["loopeval.run.tokens.input"] == 100
    assert "loopeval.run.cost_usd" not in root


def test_tokens_are_counted_where_nothing_is_sampled(client: openai.OpenAI) -> None:
    with Capture(sampler=ALWAYS_OFF) as capture:
        capture.instrument()
        with loop("writer") as run, iteration():
            ask(client, messages=HELLO)
            assert current_run() is run
        assert capture.spans() == []
        assert (run.state.input_tokens, capture.value("loopeval.tokens")) == (100, 120)


# Streams ---------------------------------------------------------------------------------------------------


def test_a_stream_is_passed_on_as_it_is(capture: Capture, stub: OpenAIStub, client: openai.OpenAI) -> None:
    words: list[str | None] = []
    with loop("writer") as run, iteration():
        stream = ask(client, messages=HELLO, stream=True, stream_options={"include_usage": True})
        assert isinstance(stream, openai.Stream)
        assert stream.response.status_code == 200
        assert capture.spans() == []
        words += [chunk.choices[0].delta.content for chunk in stream if chunk.choices]
    assert "".join(filter(None, words)) == "A fine answer."
    (span,) = capture.spans("chat")
    assert usage_attributes().items() <= span["attributes"].items()
    assert span["attributes"]["gen_ai.response.finish_reasons"] == ["stop"]
    assert run.state.input_tokens == 100


def test_nothing_is_asked_for_that_the_package_does_not_ask_for(
    capture: Capture, stub: OpenAIStub, client: openai.OpenAI
) -> None:
    with loop("writer") as run, iteration():
        list(ask(client, messages=HELLO, stream=True))
    assert stub.requests == [{"messages": HELLO, "model": "gpt-4o-mini", "stream": True}]
    assert run.state.spending is None  # nobody said what it used
    assert "gen_ai.usage.input_tokens" not in capture.spans("chat")[0]["attributes"]


def test_a_stream_that_is_closed_or_given_up_ends_its_span(capture: Capture, client: openai.OpenAI) -> None:
    stream = ask(client, messages=HELLO, stream=True)
    next(stream)
    stream.close()
    assert len(capture.spans()) == 1
    with ask(client, messages=HELLO, stream=True) as stream:
        next(stream)
    assert len(capture.spans()) == 2
    for _ in ask(client, messages=HELLO, stream=True):
        break
    gc.collect()
    assert len(capture.spans()) == 3
    assert {span["status"] for span in capture.spans()} == {"UNSET"}


def test_a_stream_that_becomes_garbage_while_a_span_ends(capture: Capture, client: openai.OpenAI) -> None:
    """The collector may run while this very thread holds a lock of the SDK or of an exporter."""
    blocked: list[bool] = []

    class Locking(SpanProcessor):
        lock = threading.Lock()

        def on_end(self, span: ReadableSpan) -> None:
            if not self.lock.acquire(timeout=10):
                blocked.append(True)
                return
            gc.collect()
            self.lock.release()

    capture.tracer_provider.add_span_processor(Locking())
    circle: list[Any] = [ask(client, messages=HELLO, stream=True)]
    circle.append(circle)
    gc.disable()
    try:
        del circle
        with capture.tracer_provider.get_tracer("somebody.else").start_as_current_span("work"):
            pass
    finally:
        gc.enable()
    for thread in threading.enumerate():
        if thread.name == ENDING:
            thread.join()
    assert blocked == []
    assert sorted(span["name"] for span in capture.spans()) == ["chat gpt-4o-mini", "work"]


async def test_an_async_stream(capture: Capture, stub: OpenAIStub) -> None:
    asked = {"messages": HELLO, "stream": True, "stream_options": {"include_usage": True}}
    words: list[str | None] = []
    client = openai.AsyncOpenAI(base_url=stub.base_url, api_key="any")
    async with client, loop("writer") as run, iteration():
        stream = await ask_async(client, **asked)
        assert isinstance(stream, openai.AsyncStream)
        words += [chunk.choices[0].delta.content async for chunk in stream if chunk.choices]
        abandoned = await ask_async(client, **asked)
        await abandoned.close()
    assert "".join(filter(None, words)) == "A fine answer."
    assert run.state.input_tokens == 100
    assert len(capture.spans("chat")) == 2


# What goes wrong -------------------------------------------------------------------------------------------


def test_an_error_is_on_the_span_and_reaches_the_package(capture: Capture) -> None:
    with OpenAIStub(lambda _: Fault(500, message="a secret")) as stub:
        client = openai.OpenAI(base_url=stub.base_url, api_key="any", max_retries=0)
        with loop("writer"), iteration(), pytest.raises(openai.InternalServerError, match="a secret"):
            ask(client, messages=HELLO)
    (span,) = capture.spans("chat")
    assert (span["status"], span["description"], span["events"]) == ("ERROR", None, [])
    assert span["attributes"]["error.type"] == "openai.InternalServerError"
    assert "a secret" not in repr(capture.tree())


async def test_a_cancelled_call_ends_its_span_without_an_error(capture: Capture) -> None:
    asked, loop_here = asyncio.Event(), asyncio.get_running_loop()

    def late(_: Any) -> Fault:
        loop_here.call_soon_threadsafe(asked.set)
        return Fault(200, delay=2)

    with OpenAIStub(late) as stub:
        async with openai.AsyncOpenAI(base_url=stub.base_url, api_key="any") as client:
            task = asyncio.create_task(ask_async(client, messages=HELLO))
            await asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    (span,) = capture.spans()
    assert span["status"] == "UNSET"


def test_nothing_is_recorded_once_it_is_taken_back(capture: Capture, client: openai.OpenAI) -> None:
    patched = Completions.create
    uninstrument()
    assert Completions.create is not patched
    ask(client, messages=HELLO)
    assert capture.spans() == []
    for _ in range(2):
        capture.instrument()
        ask(client, messages=HELLO)
    assert len(capture.spans()) == 2


def test_a_stream_that_outlives_its_run_is_not_counted_in_it(capture: Capture, client: openai.OpenAI) -> None:
    stream: Any = ()
    with loop("writer") as run, iteration():
        stream = ask(client, messages=HELLO, stream=True, stream_options={"include_usage": True})
    list(stream)
    assert run.state.spending is None
    assert capture.value("loopeval.tracker.late_spans") == 1
    assert capture.spans("chat")[0]["attributes"]["gen_ai.usage.input_tokens"] == 100


# Content ---------------------------------------------------------------------------------------------------


def test_messages_are_recorded_only_if_content_is(monkeypatch: pytest.MonkeyPatch, capture: Capture) -> None:
    asked = message("Let me see.", tool_calls=[tool_call("look_up", {"what": "it"}, "call-1")])
    said = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is it?"}, {"type": "image_url"}]},
        {"role": "assistant", "content": None, "tool_calls": [tool_call("look_up", "{}", "call-0")]},
        {"role": "tool", "tool_call_id": "call-0", "content": "Nothing."},
    ]
    with OpenAIStub(lambda _: dict(asked)) as stub:
        client = openai.OpenAI(base_url=stub.base_url, api_key="any")
        ask(client, messages=said)
        assert "brief" not in repr(capture.tree())
        monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
        ask(client, messages=said)
    attributes = capture.spans()[-1]["attributes"]
    assert json.loads(attributes["gen_ai.input.messages"]) == [
        {"role": "system", "parts": [{"type": "text", "content": "Be brief."}]},
        {"role": "user", "parts": [{"type": "text", "content": "What is it?"}, {"type": "image_url"}]},
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "call-0", "name": "look_up", "arguments": "{}"}],
        },
        {
            "role": "tool",
            "parts": [{"type": "tool_call_response", "id": "call-0", "response": "Nothing."}],
        },
    ]
    assert json.loads(attributes["gen_ai.output.messages"]) == [
        {
            "role": "assistant",
            "parts": [
                {"type": "text", "content": "Let me see."},
                {"type": "tool_call", "id": "call-1", "name": "look_up", "arguments": '{"what": "it"}'},
            ],
            "finish_reason": "tool_calls",
        }
    ]


# The Responses API -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_the_responses_api(capture: Capture, client: openai.OpenAI, stream: bool) -> None:
    with loop("writer") as run, iteration():
        answer = respond(client, input="Hello?", stream=stream)
        if stream:
            assert [event.type for event in answer][-1] == "response.completed"
    attributes = capture.spans("chat")[0]["attributes"]
    assert usage_attributes().items() <= attributes.items()
    assert attributes["gen_ai.response.finish_reasons"] == ["stop"]
    assert (run.state.input_tokens, run.state.output_tokens) == (100, 20)


def test_our_own_judge_is_left_alone(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """It calls the SDK too, which is no call of PraisonAI's."""
    with OpenAIStub(scores=[9]) as stub:
        for name, value in stub.environment().items():
            monkeypatch.setenv(name, value)
        assert Judge(criteria="is fine").run(output="It is.").score == 9.0
    assert capture.spans() == []
