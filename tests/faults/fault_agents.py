"""Scenarios of PraisonAI's model and tool calls: real clients, agents and LiteLLM, on a stub in this process.

Clients, and the event loop of the asynchronous ones, are made once and kept: making them takes longer than
all that a scenario does with them. Where the package has a short way to the SDK, calls go that way, since a
whole chat of an agent does much besides.
"""

import asyncio
import atexit
import functools
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

from fault_scenarios import Stage, UserError, environment, raises, scenario
from openai import InternalServerError
from support.openai_stub import (
    Fault,
    JsonObject,
    OpenAIStub,
    asks_about_goal,
    message,
    prompt_text,
    tool_call,
)

from otel_loopeval import StopLoop, iteration, loop

T = TypeVar("T")

CALLS = (
    "instrumentation.answers:*",
    "instrumentation.genai:*",
    "instrumentation.model_calls:*",
    "instrumentation.others:*",
    "instrumentation.praisonai.calls:*",
    "instrumentation.praisonai.tools:*",
    "instrumentation.streams:*",
    "otel._sdk:*",
    "otel.live:Run.observe",
    "otel.live:Run.over_token_budget.get",
    "otel.pipeline:Pipeline.tracer",
    "otel.spending:*",
)
"""Where faults go: what is behind is the same in other scenarios."""

scenario_with_content = functools.partial(
    scenario, only=CALLS, OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT="true"
)

MODEL = "gpt-4o-mini"
ANSWER = "A fine answer."
HELLO: list[JsonObject] = [{"role": "user", "content": "Hello?"}]
BROKEN: list[JsonObject] = [{"role": "user", "content": "Be broken."}]
LONG: list[JsonObject] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "What is it?"}]},
    {"role": "assistant", "content": None, "tool_calls": [tool_call("look_up", {"what": "it"}, "call-0")]},
    {"role": "tool", "tool_call_id": "call-0", "content": "Nothing."},
]
TOOLS: list[JsonObject] = [
    {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}
]


def _reply(request: JsonObject) -> str | JsonObject | Fault:
    if "broken" in prompt_text(request):
        return Fault(500)
    if asks_about_goal(request):
        return '{"verdict": "done", "reason": "met"}'
    if request.get("tools") and request["messages"][-1]["role"] != "tool":
        asked = [tool_call("look_up", {"what": "it"}, "call-1")]
        return message("Let me see.", tool_calls=asked, usage=(10, 5))
    return message(ANSWER, usage=(10, 5))


@functools.cache
def _stub() -> OpenAIStub:
    stub = OpenAIStub(_reply).start()
    atexit.register(stub.close)
    return stub


@functools.cache
def _client(api: str) -> Any:
    """The package's client, which uses the Responses API where the environment alone says who serves it."""
    from praisonaiagents.llm.openai_client import OpenAIClient  # noqa: PLC0415

    with environment(_stub().environment()):
        client = OpenAIClient(api_key="any", base_url=_stub().base_url, max_retries=0)
        if api == "responses":
            client.base_url = None
        assert client.sync_client is not None
        assert client.async_client is not None
        return client


@functools.cache
def _event_loop() -> asyncio.AbstractEventLoop:
    event_loop = asyncio.new_event_loop()
    atexit.register(event_loop.close)
    return event_loop


def _run(program: Coroutine[Any, Any, T]) -> T:
    return _event_loop().run_until_complete(program)


@contextmanager
def _requests(*expected: JsonObject) -> Generator[None]:
    """The block must send these requests, in this order, and no others."""
    stub = _stub()
    stub.requests.clear()
    yield
    assert stub.requests == list(expected)


def _fails(call: Callable[[], object]) -> bool:
    try:
        call()
    except InternalServerError:
        return True
    return False


async def _fails_async(call: Awaitable[object]) -> bool:
    try:
        await call
    except InternalServerError:
        return True
    return False


def _sent(messages: list[JsonObject], **more: Any) -> JsonObject:
    """What the package sends to ask this."""
    return {"model": MODEL, "messages": messages, "temperature": 1.0, "stream": False, **more}


def _text(completion: Any) -> str:
    return completion.choices[0].message.content


@scenario_with_content({"token_budget": 30})
def model_calls(stage: Stage) -> None:
    client = _client("chat")
    with _requests(
        _sent(HELLO), _sent(HELLO, tools=TOOLS), _sent(LONG, temperature=0.5), _sent(BROKEN), _sent(HELLO)
    ):
        with loop("writer") as run, iteration() as it, stage.span("step"):
            assert _text(client.create_completion(HELLO, MODEL)) == ANSWER
            assert run.over_token_budget in (False, None)
            asked = client.create_completion(HELLO, MODEL, tools=TOOLS).choices[0].message
            assert [call.function.name for call in asked.tool_calls] == ["look_up"]
            with it.evaluating():
                assert _text(client.create_completion(LONG, MODEL, temperature=0.5)) == ANSWER
            assert _fails(lambda: client.create_completion(BROKEN, MODEL))
            assert run.over_token_budget in (True, False, None)
        assert _text(client.create_completion(HELLO, MODEL)) == ANSWER


@scenario_with_content()
def model_calls_async(stage: Stage) -> None:
    client = _client("chat")

    async def one() -> str:
        said = ""
        async with loop("writer"), iteration():
            with stage.span("step"):
                said = _text(await client.acreate_completion(HELLO, MODEL))
        return said

    async def program() -> None:
        assert await asyncio.gather(one(), one()) == [ANSWER, ANSWER]
        async with loop("writer"), iteration():
            assert await _fails_async(client.acreate_completion(BROKEN, MODEL))

    with _requests(_sent(HELLO), _sent(HELLO), _sent(BROKEN)):
        _run(program())


@scenario_with_content()
def model_calls_of_the_responses_api(stage: Stage) -> None:
    client = _client("responses")

    async def program() -> None:
        assert _text(await client.acreate_completion(HELLO, MODEL)) == ANSWER

    _stub().requests.clear()
    with loop("writer"), iteration(), stage.span("step"):
        assert _text(client.create_completion(HELLO, MODEL)) == ANSWER
        asked = client.create_completion(HELLO, MODEL, tools=TOOLS).choices[0].message
        assert [call.function["name"] for call in asked.tool_calls] == ["look_up"]
        _run(program())
    assert [request["input"] for request in _stub().requests] == [HELLO, HELLO, HELLO]


@scenario_with_content()
def streams(stage: Stage) -> None:
    client = _client("chat")

    def ask(**more: Any) -> Any:
        return client.create_completion(HELLO, MODEL, stream=True, **more)

    sent = _sent(HELLO, stream=True)
    with _requests(sent, {**sent, "tools": TOOLS}, sent, sent, sent):
        with loop("writer"), iteration(), stage.span("step"):
            words = [chunk.choices[0].delta.content for chunk in ask()]
            assert "".join(filter(None, words)) == ANSWER
            calls = [chunk.choices[0].delta.tool_calls for chunk in ask(tools=TOOLS)]
            assert "".join(call[0].function.arguments for call in calls if call) == '{"what": "it"}'
            given_up = ask()
            assert next(given_up).choices[0].delta.role == "assistant"
            response = given_up.response
            del given_up
            response.close()  # or the SDK does when it is collected, maybe inside a lock of httpcore's
        closed = ask()
        assert next(closed).choices[0].delta.role == "assistant"
        closed.close()
        error = UserError("reading")
        with raises(error), ask() as stream:
            assert next(stream).choices[0].delta.role == "assistant"
            raise error


@scenario(only=CALLS)
def streams_async(stage: Stage) -> None:
    client = _client("chat")
    error = UserError("reading")

    async def program() -> None:
        async def ask() -> Any:
            return await client.acreate_completion(HELLO, MODEL, stream=True)

        async with loop("writer"), iteration():
            with stage.span("step"):
                words = [chunk.choices[0].delta.content async for chunk in await ask()]
                assert "".join(filter(None, words)) == ANSWER
        closed = await ask()
        assert (await closed.__anext__()).choices[0].delta.role == "assistant"
        await closed.close()
        with raises(error):
            async with await ask() as stream:
                assert (await stream.__anext__()).choices[0].delta.role == "assistant"
                raise error

    sent = _sent(HELLO, stream=True)
    with _requests(sent, sent, sent):
        _run(program())


@functools.cache
def _quiet_callback() -> Any:
    """LiteLLM's callback that records spans, which does not."""
    from litellm.integrations.custom_logger import CustomLogger  # noqa: PLC0415 - takes seconds
    from litellm.integrations.opentelemetry import OpenTelemetry  # noqa: PLC0415

    class Quiet(OpenTelemetry):
        def __init__(self) -> None:
            CustomLogger.__init__(self)

    for name, method in vars(CustomLogger).items():
        if name.startswith(("log_", "async_log_")):
            setattr(Quiet, name, method)
    return Quiet()


LITELLM = (
    "instrumentation.genai:provider_of_litellm",
    "instrumentation.model_calls:*",
    "instrumentation.others:*",
    "instrumentation.praisonai.calls:*",
    "otel._sdk:*",
)


@scenario(only=LITELLM)
def model_calls_through_litellm(stage: Stage) -> None:
    callback = _quiet_callback()
    import litellm  # noqa: PLC0415 - takes seconds
    from praisonaiagents.goal.judge import judge_goal  # noqa: PLC0415
    from praisonaiagents.goal.models import GoalState  # noqa: PLC0415
    from praisonaiagents.llm.llm import LLM  # noqa: PLC0415

    callbacks: Any = litellm.callbacks
    for client in litellm.in_memory_llm_clients_cache.cache_dict.values():
        if hasattr(client, "chat"):  # or the methods that it keeps are those that were patched the last time
            vars(client.chat.completions).pop("with_raw_response", None)
    _stub().requests.clear()
    with environment(_stub().environment()), loop("writer"), iteration(), stage.span("step"):
        model = LLM(model=f"openai/{MODEL}")
        assert judge_goal(GoalState("a goal"), ANSWER, judge_model=f"openai/{MODEL}") == ("done", "met")
        assert _run(model.get_response_async("Hello?", verbose=False, stream=False)) == ANSWER
        try:
            litellm.callbacks = [callback]
            assert model.get_response("Hello?", verbose=False, stream=False) == ANSWER
            assert model.get_response("Hello?", verbose=False, stream=True) == ANSWER
        finally:
            litellm.callbacks = callbacks
    sent: JsonObject = {"model": MODEL, "input": HELLO, "messages": HELLO}
    assert _stub().requests[0].keys() == {"model", "messages", "temperature", "max_tokens"}
    assert _stub().requests[1:] == [sent, sent, {**sent, "stream": True}]


# Tools -----------------------------------------------------------------------------------------------------


def _agent(*tools: Callable[..., Any]) -> Any:
    from praisonaiagents import Agent  # noqa: PLC0415

    return Agent(name="writer", instructions="Write", output="silent", tools=list(tools))


@scenario_with_content()
def tool_calls(stage: Stage) -> None:
    from praisonaiagents.errors import ToolExecutionError  # noqa: PLC0415
    from praisonaiagents.tools.retry import RetryPolicy  # noqa: PLC0415

    stop = StopLoop()
    seen: list[object] = []

    def look_up(what: str) -> str:
        seen.append(what)
        return f"All about {what}."

    async def look_up_async(what: str) -> str:
        await asyncio.sleep(0)
        return look_up(what)

    def reports(what: str) -> dict[str, str]:
        return {"error": f"no {what}"}

    def noted() -> dict[str, str]:
        return {"value": "as it is", "_loop_guard": "a note"}

    def breaks() -> None:
        seen.append("broken")
        raise UserError("tool")

    def stops() -> None:
        raise stop

    breaks.retry_policy = RetryPolicy(max_attempts=1)  # type: ignore[attr-defined] # the package looks there
    agent = _agent(look_up, look_up_async, reports, noted, breaks, stops)

    async def program() -> None:
        assert (
            await agent.execute_tool_async("look_up_async", {"what": "that"}, "call-1") == "All about that."
        )
        with raises(stop):
            await agent.execute_tool_async("stops", {})

    with stage.span("request"):
        assert agent.execute_tool("look_up", {"what": "it"}) == "All about it."
    with loop("writer"), iteration(), stage.span("step"):
        assert agent.execute_tool("look_up", {"what": "this"}, tool_call_id="call-0") == "All about this."
        assert agent.execute_tool("reports", {"what": "it"}) == {"error": "no it"}
        assert agent.execute_tool("noted", {}) == {"value": "as it is", "_loop_guard": "a note"}
        with raises(stop):
            agent.execute_tool("stops", {})
        said = ""
        try:
            agent.execute_tool("breaks", {})
        except ToolExecutionError as error:
            said = error.message
        assert said == "tool"
        _run(program())
    assert seen == ["it", "this", "broken", "that"]
    with loop("asked to stop") as run:
        run.stop(stop)
        agent.execute_tool("look_up", {"what": "nothing"})
    # A fault may keep the stop from being seen: the tool is then called as it would have been without us.
    assert seen[4:] in ([], ["nothing"])


@scenario(only=("instrumentation.model_calls:*", "instrumentation.praisonai.*", "otel.live:Run.observe"))
def agent_that_calls_a_tool(stage: Stage) -> None:
    seen: list[str] = []

    def look_up(what: str) -> str:
        """Look something up."""
        seen.append(what)
        return f"All about {what}."

    _stub().requests.clear()
    with environment(_stub().environment()), loop("writer", mode="agent"), stage.span("request"):
        assert _run(_agent(look_up).achat("Hello?")) == ANSWER
    assert seen == ["it"]
    roles = [[each["role"] for each in request["messages"]] for request in _stub().requests]
    assert roles == [["system", "user"], ["system", "user", "assistant", "tool"]]
    assert "All about it." in _stub().requests[1]["messages"][3]["content"]
