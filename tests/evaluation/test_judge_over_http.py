"""The judge, over the real openai client, against the stub server."""

import asyncio
import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

import openai
import pytest
from loop_parts import partial_of, series
from support.openai_stub import Fault, JsonObject, OpenAIStub, prompt_text

from otel_loopeval.evaluation import EvaluationLoop, Judge, JudgeError, JudgeResult
from otel_loopeval.evaluation.errors import UnreadableVerdictError

Ask = Callable[..., JudgeResult]


def ask_sync(judge: Judge, output: str = "an output", **kwargs: Any) -> JudgeResult:
    return judge.run(output, **kwargs)


def ask_async(judge: Judge, output: str = "an output", **kwargs: Any) -> JudgeResult:
    return asyncio.run(judge.run_async(output, **kwargs))


both_asked = pytest.mark.parametrize("ask", [ask_sync, ask_async], ids=["run", "run_async"])


def judge_at(stub: OpenAIStub, **options: Any) -> Judge:
    return Judge(options.pop("criteria", "is clear"), base_url=stub.base_url, api_key="key", **options)


def options_of(request: JsonObject) -> set[str]:
    return set(request) - {"model", "messages"}


@both_asked
def test_a_verdict(ask: Ask, stub: OpenAIStub):
    verdict = ask(judge_at(stub, model="judge-model"))

    assert verdict == JudgeResult(5.0, "Worth 5.", ["Improve on 5."])
    (request,) = stub.requests
    assert request["model"] == "judge-model"
    assert request["temperature"] == 0.1
    assert request["response_format"]["type"] == "json_schema"
    assert request["response_format"]["json_schema"]["strict"] is True
    assert stub.headers[0]["authorization"] == "Bearer key"
    text = prompt_text(request)
    assert "CRITERIA: is clear" in text
    assert "<<<OUTPUT\nan output\nOUTPUT>>>" in text


@both_asked
def test_criteria_of_the_call_come_before_the_judges_own(ask: Ask, stub: OpenAIStub):
    judge = judge_at(stub)
    ask(judge, criteria="is short")
    ask(judge, criteria="")
    ask(judge_at(stub, criteria=""), expected="42", input="What is it?")

    texts = [prompt_text(request) for request in stub.requests]
    assert "CRITERIA: is short" in texts[0]
    assert "CRITERIA: is clear" in texts[1]
    assert "CRITERIA: The output is correct, complete, clear and relevant." in texts[2]
    assert "WHAT THE AGENT WAS ASKED:\nWhat is it?" in texts[2]
    assert "EXPECTED OUTPUT (compare the meaning):\n42" in texts[2]


@both_asked
def test_an_empty_output_scores_zero_without_a_request(ask: Ask, stub: OpenAIStub):
    assert ask(judge_at(stub), " \n") == JudgeResult(0.0, "There is no output to judge.", [])
    assert stub.requests == []


@both_asked
@pytest.mark.parametrize(
    "fault",
    [
        Fault(429, retry_after=0.01),
        Fault(500, retry_after=0.01),
        Fault(503, retry_after=0.01),
        Fault(drop=True),
    ],
    ids=["429", "500", "503", "dropped"],
)
def test_passing_faults_are_retried(ask: Ask, fault: Fault):
    with OpenAIStub([fault]) as stub:
        assert ask(judge_at(stub)).score == 5.0
        assert len(stub.requests) == 2


@both_asked
def test_retries_end(ask: Ask):
    with OpenAIStub([Fault(429, retry_after=0.01)] * 3) as stub, pytest.raises(JudgeError) as caught:
        ask(judge_at(stub, max_retries=2))

    assert len(stub.requests) == 3
    assert str(caught.value) == "asking the judge model 'gpt-4o-mini' failed: RateLimitError, status 429"
    assert isinstance(caught.value.__cause__, openai.RateLimitError)


@both_asked
def test_a_timeout_is_a_judge_error(ask: Ask):
    with OpenAIStub([Fault(200, delay=0.5)]) as stub, pytest.raises(JudgeError) as caught:
        ask(judge_at(stub, timeout=0.05, max_retries=0))

    assert str(caught.value) == "asking the judge model 'gpt-4o-mini' failed: APITimeoutError"


@both_asked
def test_a_wrong_key_is_a_judge_error_without_retries(ask: Ask):
    with OpenAIStub([Fault(401, message="bad key: an output")]) as stub, pytest.raises(JudgeError) as caught:
        ask(judge_at(stub))

    assert len(stub.requests) == 1
    assert str(caught.value) == "asking the judge model 'gpt-4o-mini' failed: AuthenticationError, status 401"


@both_asked
@pytest.mark.parametrize("first", [Fault(malformed=True), "no verdict", {"content": None}, '{"score": 85}'])
def test_an_answer_that_cannot_be_read_is_asked_for_once_more(ask: Ask, first: Any):
    with OpenAIStub([first]) as stub:
        assert ask(judge_at(stub)).score == 5.0

    assert len(stub.requests) == 2
    again = stub.requests[1]["messages"]
    assert [message["role"] for message in again] == ["user", "assistant", "user"]
    assert again[0] == stub.requests[0]["messages"][0]
    assert again[2]["content"].startswith("That could not be read.")


@both_asked
def test_two_answers_that_cannot_be_read_are_an_error(ask: Ask):
    with OpenAIStub(["It is good.", "Really good."]) as stub, pytest.raises(UnreadableVerdictError) as caught:
        ask(judge_at(stub))

    assert len(stub.requests) == 2
    assert str(caught.value) == (
        "the judge model 'gpt-4o-mini' gave no verdict that can be read, in 2 answers"
    )


@both_asked
def test_a_text_verdict_is_read_where_there_is_no_json(ask: Ask):
    with OpenAIStub(["**SCORE:** 7/10\nREASONING: Fine.\nSUGGESTIONS:\n- More."]) as stub:
        assert ask(judge_at(stub)) == JudgeResult(7.0, "Fine.", ["More."])


@both_asked
@pytest.mark.parametrize(
    ("unsupported", "param", "sent"),
    [
        (["response_format"], "response_format", [{"temperature", "response_format"}, {"temperature"}]),
        (
            ["response_format"],
            "response_format.json_schema",
            [{"temperature", "response_format"}, {"temperature"}],
        ),
        (["response_format"], None, [{"temperature", "response_format"}, {"temperature"}]),
        (["temperature"], "temperature", [{"temperature", "response_format"}, {"response_format"}]),
        (
            ["response_format", "temperature"],
            None,
            [{"temperature", "response_format"}, {"temperature"}, set[str]()],
        ),
    ],
)
def test_options_that_an_endpoint_refuses_are_dropped_for_good(
    ask: Ask, unsupported: list[str], param: str | None, sent: list[set[str]]
):
    def reply(request: JsonObject) -> Fault | None:
        return Fault(400, param=param) if any(option in request for option in unsupported) else None

    with OpenAIStub(reply) as stub:
        judge = judge_at(stub)
        assert [ask(judge).score, ask(judge).score] == [5.0, 7.0]

    assert [options_of(request) for request in stub.requests] == [*sent, sent[-1]]


@both_asked
def test_a_request_that_is_refused_for_another_reason_is_an_error(ask: Ask):
    with OpenAIStub(lambda _: Fault(400, param="messages")) as stub, pytest.raises(JudgeError) as caught:
        ask(judge_at(stub))

    assert len(stub.requests) == 1
    assert str(caught.value) == "asking the judge model 'gpt-4o-mini' failed: BadRequestError, status 400"


def test_a_refused_request_that_never_succeeds_drops_nothing_for_the_next():
    with OpenAIStub([Fault(400), Fault(400), Fault(400)]) as stub:
        judge = judge_at(stub)
        with pytest.raises(JudgeError):
            judge.run("too long")
        judge.run("an output")

    assert options_of(stub.requests[-1]) == {"temperature", "response_format"}


def test_no_temperature_is_sent_without_one(stub: OpenAIStub):
    judge_at(stub, temperature=None).run("an output")

    assert options_of(stub.requests[0]) == {"response_format"}


@both_asked
def test_without_a_key(ask: Ask, monkeypatch: pytest.MonkeyPatch):
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(JudgeError) as caught:
        ask(Judge())

    assert "the judge has no API key: pass api_key=..., or set OPENAI_API_KEY" in str(caught.value)


@both_asked
def test_without_the_package(ask: Ask, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "openai", None)

    with pytest.raises(ImportError) as caught:
        ask(Judge(api_key="key"))

    assert str(caught.value) == 'the judge needs the openai package: pip install "otel-loopeval[judge]"'


@both_asked
def test_the_environment_names_the_endpoint(ask: Ask, stub: OpenAIStub, monkeypatch: pytest.MonkeyPatch):
    for name, value in stub.environment().items():
        monkeypatch.setenv(name, value)

    assert ask(Judge()).score == 5.0
    assert stub.headers[0]["authorization"] == "Bearer stub-key"


def test_the_callers_clients_are_used_as_they_are(stub: OpenAIStub):
    client = openai.OpenAI(base_url=stub.base_url, api_key="mine", max_retries=0)

    assert Judge(client=client).run("an output").score == 5.0

    async def main() -> float:
        async with openai.AsyncOpenAI(base_url=stub.base_url, api_key="mine too") as async_client:
            return (await Judge(async_client=async_client).run_async("an output")).score

    assert asyncio.run(main()) == 7.0
    assert [headers["authorization"] for headers in stub.headers] == ["Bearer mine", "Bearer mine too"]


@both_asked
def test_errors_of_a_callers_client_pass_as_they_are(ask: Ask):
    error = ValueError("mine")

    class Completions:
        def create(self, **request: Any) -> Any:
            raise error

    class Client:
        completions = Completions()

        @property
        def chat(self) -> Any:
            return self

    client = Client()
    with pytest.raises(ValueError) as caught:
        ask(Judge(client=client, async_client=client))

    assert caught.value is error
    assert error.__cause__ is None


def test_one_judge_works_in_many_threads_and_loops(stub: OpenAIStub):
    judge = judge_at(stub)
    scores: list[float] = []

    def work(ask: Ask) -> None:
        scores.append(ask(judge).score)

    threads = [threading.Thread(target=work, args=(ask,)) for ask in (ask_sync, ask_async) * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(scores) == [5.0, 7.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0]


async def test_many_verdicts_at_once_in_one_loop(stub: OpenAIStub):
    judge = judge_at(stub)

    verdicts = await asyncio.gather(*(judge.run_async("an output") for _ in range(5)))

    assert sorted(verdict.score for verdict in verdicts) == [5.0, 7.0, 9.0, 9.0, 9.0]


@both_asked
def test_no_content_is_logged(ask: Ask, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    with OpenAIStub(["unreadable secret"] * 2) as stub, pytest.raises(JudgeError):
        ask(judge_at(stub), "the secret output")

    ours = [r.getMessage() for r in caplog.records if r.name.startswith("otel_loopeval")]
    assert not any("secret" in message for message in ours)


def test_the_default_judge_of_a_loop(stub: OpenAIStub, monkeypatch: pytest.MonkeyPatch):
    for name, value in stub.environment().items():
        monkeypatch.setenv(name, value)
    prompts: list[str] = []

    def agent(prompt: str) -> str:
        prompts.append(prompt)
        return f"draft {len(prompts)}"

    result = EvaluationLoop(agent, "is a good draft").run("Write.")

    assert (result.score_history, result.success) == ([5.0, 7.0, 9.0], True)
    assert prompts[1] == ("Write.\n\nPrevious feedback to address:\nWorth 5.\nSuggestions:\n- Improve on 5.")
    assert all("is a good draft" in prompt_text(request) for request in stub.requests)


def test_a_judge_that_fails_ends_the_loop_with_its_partial_result():
    def reply(request: JsonObject) -> Fault | None:
        return Fault(401) if "draft 2" in prompt_text(request) else None

    with OpenAIStub(reply) as stub:
        loop = EvaluationLoop(series("draft 1", "draft 2"), "", judge=judge_at(stub))
        with pytest.raises(JudgeError) as caught:
            loop.run("Write.")

    assert partial_of(caught.value).score_history == [5.0]
