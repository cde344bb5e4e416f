"""The stub server that tests and examples run against, through the real openai client."""

import asyncio
import json
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import openai
import pytest
from support import openai_stub
from support.openai_stub import Fault, OpenAIStub, message, prompt_text, tool_call

ASK: Any = [{"role": "user", "content": "Say it now."}]


def client_of(stub: OpenAIStub, **options: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=stub.base_url, api_key="key", **options)


def ask(client: openai.OpenAI, text: str = "Say it now.", **options: Any) -> Any:
    messages: Any = [{"role": "user", "content": text}]
    create: Any = client.chat.completions.create
    return create(model="m", messages=messages, **options)


def test_a_plain_reply_with_its_usage(stub: OpenAIStub):
    response = ask(client_of(stub))

    assert response.choices[0].message.content == "A first draft."
    assert response.choices[0].finish_reason == "stop"
    assert (response.model, response.object) == ("m", "chat.completion")
    assert (response.usage.prompt_tokens, response.usage.completion_tokens) == (3, 3)
    assert response.usage.total_tokens == 6
    assert stub.requests == [{"model": "m", "messages": ASK}]


def test_the_default_agent_repeats_its_last_answer(stub: OpenAIStub):
    client = client_of(stub)

    assert [ask(client).choices[0].message.content for _ in range(4)] == [
        "A first draft.",
        "A better draft.",
        "A good answer.",
        "A good answer.",
    ]


@pytest.mark.parametrize("include_usage", [True, False])
def test_a_streamed_reply(stub: OpenAIStub, include_usage: bool):
    options: Any = {"stream_options": {"include_usage": True}} if include_usage else {}
    chunks = list(ask(client_of(stub), stream=True, **options))

    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "A first draft."
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == [
        "stop"
    ]
    usages = [chunk.usage.total_tokens for chunk in chunks if chunk.usage]
    assert usages == ([6] if include_usage else [])


def test_tool_calls_plain_and_streamed():
    reply = message(None, tool_calls=[tool_call("search", {"q": "x"}), tool_call("stop", "not json", "id-2")])
    with OpenAIStub([reply, reply]) as stub:
        client = client_of(stub)
        choice = ask(client).choices[0]
        deltas: list[Any] = [c.choices[0].delta for c in ask(client, stream=True) if c.choices]

    calls = [(c.id, c.function.name, c.function.arguments) for c in choice.message.tool_calls]
    assert calls == [("call_search", "search", '{"q": "x"}'), ("id-2", "stop", "not json")]
    assert choice.finish_reason == "tool_calls"
    pieces: list[Any] = [call for delta in deltas if delta.tool_calls for call in delta.tool_calls]
    streamed = ["".join(p.function.arguments or "" for p in pieces if p.index == index) for index in (0, 1)]
    assert streamed == ['{"q": "x"}', "not json"]
    assert [piece.function.name for piece in pieces if piece.function.name] == ["search", "stop"]


def test_the_usage_and_the_whole_response_can_be_fixed():
    whole = {
        "id": "mine",
        "object": "chat.completion",
        "created": 1,
        "model": "x",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "w"}, "finish_reason": "length"}
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    }
    with OpenAIStub([message("hi", usage=(100, 20)), whole]) as stub:
        client = client_of(stub)
        first, second = ask(client), ask(client)

    assert (first.usage.prompt_tokens, first.usage.completion_tokens, first.usage.total_tokens) == (
        100,
        20,
        120,
    )
    assert (second.id, second.choices[0].finish_reason) == ("mine", "length")


def test_a_script_is_a_function_of_the_request():
    with OpenAIStub(lambda request: f"you said {prompt_text(request)!r}") as stub:
        assert ask(client_of(stub), "hello").choices[0].message.content == "you said 'hello'"


def test_a_script_list_runs_out_into_the_default():
    with OpenAIStub(["one", None, "three"], answers=["default"]) as stub:
        client = client_of(stub)
        said = [ask(client).choices[0].message.content for _ in range(4)]
        stub.rewind()
        said.append(ask(client).choices[0].message.content)

    assert said == ["one", "default", "three", "default", "one"]


def test_a_judge_gets_scores_and_a_goal_judge_verdicts():
    with OpenAIStub(scores=[4, 9.5], goal_turns=2) as stub:
        client = client_of(stub)
        in_text = ask(client, "Respond in this EXACT format:\nSCORE: ...").choices[0].message.content
        in_json = ask(client, 'Answer: {"score": 1}').choices[0].message.content
        goals = [ask(client, '{"verdict": ...}').choices[0].message.content for _ in range(2)]

    assert in_text == "SCORE: 4\nREASONING: Worth 4.\nSUGGESTIONS:\n- Improve on 4."
    assert json.loads(in_json) == {
        "score": 9.5,
        "reasoning": "Worth 9.5.",
        "suggestions": ["Improve on 9.5."],
    }
    assert [json.loads(goal)["verdict"] for goal in goals] == ["continue", "done"]


def test_text_in_content_blocks_is_seen():
    blocks = [{"type": "text", "text": "one"}, {"type": "image_url", "image_url": {"url": "x"}}]

    assert (
        prompt_text({"messages": [{"content": blocks}, {"content": None}, {"content": "two"}]}) == "one\ntwo"
    )


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault(429), openai.RateLimitError),
        (Fault(500), openai.InternalServerError),
        (Fault(401), openai.AuthenticationError),
        (Fault(400), openai.BadRequestError),
        (Fault(drop=True), openai.APIConnectionError),
        (Fault(malformed=True), json.JSONDecodeError),
    ],
)
def test_faults(fault: Fault, error: type[Exception]):
    with OpenAIStub([fault]) as stub, pytest.raises(error):
        ask(client_of(stub, max_retries=0))


def test_a_fault_says_what_it_was_told_to():
    fault = Fault(429, retry_after=0.25, message="slow down", param="temperature")
    with OpenAIStub([fault]) as stub, pytest.raises(openai.RateLimitError) as caught:
        ask(client_of(stub, max_retries=0))

    assert caught.value.response.headers["retry-after"] == "0.25"
    assert (caught.value.param, caught.value.code) == ("temperature", "429")
    assert "slow down" in str(caught.value)


def test_a_delay_comes_before_the_default_reply():
    with OpenAIStub([Fault(200, delay=0.3), Fault(200, delay=0.001)]) as stub:
        client = client_of(stub, max_retries=0)
        with pytest.raises(openai.APITimeoutError):
            ask(client, timeout=0.05)
        assert ask(client).choices[0].message.content


async def test_many_async_requests_at_once(stub: OpenAIStub):
    async with openai.AsyncOpenAI(base_url=stub.base_url, api_key="key") as client:
        responses = await asyncio.gather(
            *(client.chat.completions.create(model="m", messages=ASK) for _ in range(20))
        )

    assert len({response.id for response in responses}) == 20
    assert len(stub.requests) == 20


def test_models_and_unknown_paths(stub: OpenAIStub):
    client = client_of(stub, max_retries=0)

    assert [model.id for model in client.models.list()] == ["gpt-4o-mini"]
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="m", input="x", encoding_format="float")


def test_a_body_that_is_not_json_is_refused(stub: OpenAIStub):
    request = urllib.request.Request(f"{stub.base_url}/chat/completions", data=b"{", method="POST")

    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=10)
    with caught.value:
        assert caught.value.code == 400


def test_as_a_process_of_its_own():
    command = [
        sys.executable,
        str(Path(openai_stub.__file__)),
        "--port",
        "0",
        "--scores",
        "3",
        "--goal-turns",
        "1",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="key")
        score = ask(client, 'Answer: {"score": 1}').choices[0].message.content
        goal = ask(client, '{"verdict": ...}').choices[0].message.content
    finally:
        process.terminate()
        process.communicate(timeout=20)

    assert json.loads(score)["score"] == 3
    assert json.loads(goal)["verdict"] == "done"


def test_it_listens_on_loopback_only_and_frees_its_port():
    stub = OpenAIStub().start()
    port = stub.port
    assert stub.base_url == f"http://127.0.0.1:{port}/v1"
    stub.close()

    with OpenAIStub(port=port) as again:
        assert again.port == port
