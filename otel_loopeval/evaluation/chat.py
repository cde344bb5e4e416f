"""Asking a model of any OpenAI-compatible endpoint, over the ``openai`` client (extra ``[judge]``).

The client itself retries timeouts, connection errors and the statuses 408, 409, 429 and 5xx, with
exponential backoff and jitter, and honours Retry-After. What is added here: requests shed the options that
an endpoint refuses (a response format, a temperature), and errors say what to do. No content is logged.
"""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias, TypeVar

from otel_loopeval.evaluation.checks import shown
from otel_loopeval.evaluation.errors import JudgeError, UnreadableVerdictError

Messages: TypeAlias = list[dict[str, str]]
T = TypeVar("T")

_INSTALL: Final = 'pip install "otel-loopeval[judge]"'
_REFUSALS: Final = (400, 422, 501)
_OPTIONAL: Final = ("response_format", "temperature")
_TRIES: Final = 2
_REMINDER: Final = "That could not be read. Answer again, with nothing but the JSON object described above."


class ChatModel:
    """A model to ask, from sync and async code, any number of times at once.

    Args:
        model: Name of the model at the endpoint.
        base_url: The endpoint; by default OPENAI_BASE_URL, else OpenAI.
        api_key: The key; by default OPENAI_API_KEY.
        temperature: Sampling temperature; None leaves it to the endpoint.
        max_retries: Retries of the client that is made here.
        timeout: Seconds for each attempt of the client that is made here.
        client: An ``openai.OpenAI`` to use as it is.
        async_client: An ``openai.AsyncOpenAI`` to use as it is.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None,
        api_key: str | None,
        temperature: float | None,
        max_retries: int,
        timeout: float,
        client: Any,
        async_client: Any,
    ) -> None:
        self.model = model
        self._temperature = temperature
        self._options = {
            "base_url": base_url,
            "api_key": api_key,
            "max_retries": max_retries,
            "timeout": timeout,
        }
        self._client = client
        self._async_client = async_client
        self._lock = threading.Lock()  # protects the making of the client
        self._refused: set[str] = set()

    def ask(self, prompt: str, schema: Mapping[str, Any], read: Callable[[str], T | None]) -> T:
        """Ask, read the answer, and ask once more if it cannot be read.

        Args:
            prompt: The user message.
            schema: JSON schema of the answer, as ``response_format`` wants it.
            read: Makes a value of the answer's text; None if it cannot.

        Raises:
            JudgeError: If there is no key, the endpoint fails for good, or neither answer can be read.
            ImportError: If the openai package is missing.
        """
        messages: Messages = [{"role": "user", "content": prompt}]
        client = self._sync()
        for _ in range(_TRIES):
            answer = self._complete(client, self._request(messages, schema))
            value = read(answer)
            if value is not None:
                return value
            messages = _again(messages, answer)
        raise self._unreadable()

    async def ask_async(self, prompt: str, schema: Mapping[str, Any], read: Callable[[str], T | None]) -> T:
        """As :meth:`ask`."""
        messages: Messages = [{"role": "user", "content": prompt}]
        async with self._async() as client:
            for _ in range(_TRIES):
                answer = await self._complete_async(client, self._request(messages, schema))
                value = read(answer)
                if value is not None:
                    return value
                messages = _again(messages, answer)
        raise self._unreadable()

    def _complete(self, client: Any, request: dict[str, Any]) -> str:
        while True:
            try:
                answer = _content(client.chat.completions.create(**request))
            except json.JSONDecodeError:  # noqa: PERF203  # a request costs more; the body is not JSON
                return ""
            except Exception as error:
                if self._shed(request, error):
                    continue
                if not _from_openai(error):
                    raise
                raise self._failure(error) from error
            else:
                self._refused.update(name for name in _OPTIONAL if name not in request)
                return answer

    async def _complete_async(self, client: Any, request: dict[str, Any]) -> str:
        while True:
            try:
                answer = _content(await client.chat.completions.create(**request))
            except json.JSONDecodeError:  # noqa: PERF203  # a request costs more; the body is not JSON
                return ""
            except Exception as error:
                if self._shed(request, error):
                    continue
                if not _from_openai(error):
                    raise
                raise self._failure(error) from error
            else:
                self._refused.update(name for name in _OPTIONAL if name not in request)
                return answer

    def _request(self, messages: Messages, schema: Mapping[str, Any]) -> dict[str, Any]:
        request: dict[str, Any] = {"model": self.model, "messages": messages}
        if self._temperature is not None and "temperature" not in self._refused:
            request["temperature"] = self._temperature
        if "response_format" not in self._refused:
            request["response_format"] = {"type": "json_schema", "json_schema": schema}
        return request

    def _shed(self, request: dict[str, Any], error: Exception) -> bool:
        """Take an option that the endpoint may have refused out of the request; False if none is left."""
        if getattr(error, "status_code", None) not in _REFUSALS:
            return False
        blamed = str(getattr(error, "param", None) or "").split(".")[0]
        sent = [name for name in _OPTIONAL if name in request]
        if not sent or (blamed and blamed not in sent and blamed in request):
            return False
        del request[blamed if blamed in sent else sent[0]]
        return True

    def _sync(self) -> Any:
        if self._client is None:
            with self._lock:
                if self._client is None:
                    self._client = self._make("OpenAI")
        return self._client

    @asynccontextmanager
    async def _async(self) -> AsyncGenerator[Any, None]:
        """The caller's async client, or one for this verdict.

        Connections belong to an event loop, and nobody tells us when a loop ends: a client kept for longer
        would fail in the next loop, or complain when it is collected.
        """
        if self._async_client is not None:
            yield self._async_client
            return
        client = await asyncio.to_thread(self._make, "AsyncOpenAI")  # reading certificates takes its time
        try:
            yield client
        finally:
            await client.close()

    def _make(self, kind: str) -> Any:
        try:
            import openai  # noqa: PLC0415  # an extra, imported when first needed
        except ImportError as error:
            raise ImportError(f"the judge needs the openai package: {_INSTALL}") from error
        try:
            return getattr(openai, kind)(**self._options)
        except openai.OpenAIError as error:
            raise JudgeError(
                "the judge has no API key: pass api_key=..., or set OPENAI_API_KEY (any non-empty value "
                "does for a local endpoint given by base_url or OPENAI_BASE_URL)"
            ) from error

    def _failure(self, error: Exception) -> JudgeError:
        # The client's message may quote content, so it stays on the cause.
        status = getattr(error, "status_code", None)
        what = type(error).__name__ if status is None else f"{type(error).__name__}, status {status}"
        return JudgeError(f"asking the judge model {shown(self.model)} failed: {what}")

    def _unreadable(self) -> UnreadableVerdictError:
        return UnreadableVerdictError(
            f"the judge model {shown(self.model)} gave no verdict that can be read, in {_TRIES} answers"
        )


def _from_openai(error: Exception) -> bool:
    return any(base.__module__.partition(".")[0] == "openai" for base in type(error).__mro__)


def _again(messages: Sequence[dict[str, str]], answer: str) -> Messages:
    return [
        *messages,
        {"role": "assistant", "content": answer},
        {"role": "user", "content": _REMINDER},
    ]


def _content(response: Any) -> str:
    """The text of a response; empty where there is none, as in a refusal or a body of another shape."""
    choices = getattr(response, "choices", None)
    content = getattr(getattr(choices[0], "message", None), "content", None) if choices else None
    return content if isinstance(content, str) else ""
