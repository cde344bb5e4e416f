"""How a ``chat`` and an ``execute_tool`` span are spelled, after the GenAI semantic conventions v0.1.0."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, cast
from urllib.parse import urlsplit

from otel_loopeval import semconv
from otel_loopeval.health.wire import as_float, as_text, encodable
from otel_loopeval.instrumentation.answers import Answer, field

Attributes = dict[str, Any]

_PROVIDERS: Final = {
    "azure": "azure.ai.openai",
    "azure_ai": "azure.ai.inference",
    "bedrock": "aws.bedrock",
    "bedrock_converse": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "text-completion-openai": "openai",
    "vertex_ai": "gcp.vertex_ai",
    "vertex_ai_beta": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
}
"""Names of providers in LiteLLM that the conventions spell otherwise."""

_HOSTS: Final = (
    ("openai.azure.com", "azure.ai.openai"),
    ("services.ai.azure.com", "azure.ai.inference"),
    ("api.groq.com", "groq"),
    ("api.deepseek.com", "deepseek"),
    ("api.x.ai", "x_ai"),
    ("api.mistral.ai", "mistral_ai"),
    ("api.perplexity.ai", "perplexity"),
    ("api.anthropic.com", "anthropic"),
    ("generativelanguage.googleapis.com", "gcp.gemini"),
)
"""Who serves the OpenAI API at a host other than OpenAI's."""


class Request(NamedTuple):
    """What a model was asked.

    Attributes:
        model: The model that was asked for.
        provider: Who serves it, as ``gen_ai.provider.name`` has it; None where unknown.
        messages: The messages, or what the Responses API takes for them; None where there are none.
        temperature: Temperature, or None.
        top_p: Nucleus sampling, or None.
        max_tokens: Most tokens to generate, or None.
        address: Host of the API, or None.
        port: Port of the API, or None.
    """

    model: str | None
    provider: str | None
    messages: Any = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    address: str | None = None
    port: int | None = None


def provider_of_litellm(name: str | None) -> str | None:
    """The conventions' name of a provider that LiteLLM names."""
    return None if not name else _PROVIDERS.get(name, name)


def provider_at(host: str | None) -> str:
    """The provider that serves the OpenAI API at a host; ``openai`` where the host tells nothing."""
    for suffix, provider in _HOSTS:
        if host is not None and (host == suffix or host.endswith("." + suffix)):
            return provider
    return "openai"


def server_of(url: Any) -> tuple[str | None, int | None]:
    """Host and port of an API's base URL; None where it has none."""
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        host, port = parts.hostname, parts.port
    except ValueError:
        return None, None
    return host, None if host is None else port or (80 if parts.scheme == "http" else 443)


def read_request(
    arguments: Mapping[str, Any],
    *,
    model: str | None,
    provider: str | None,
    address: str | None = None,
    port: int | None = None,
) -> Request:
    """Read the arguments of a call in the shape of the OpenAI SDK.

    Args:
        arguments: The keyword arguments of the call.
        model: The model, without its provider.
        provider: Who serves it, as the conventions have it.
        address: Host of the API.
        port: Port of the API.
    """
    most: Any = None
    for name in ("max_completion_tokens", "max_tokens", "max_output_tokens"):
        most = most if isinstance(most, int) else arguments.get(name)
    messages = arguments.get("messages")
    return Request(
        model,
        provider,
        arguments.get("input") if messages is None else messages,
        as_float(arguments.get("temperature")),
        as_float(arguments.get("top_p")),
        most if isinstance(most, int) and not isinstance(most, bool) else None,
        address,
        port,
    )


def chat_name(request: Request) -> str:
    """Name of a ``chat`` span."""
    return f"{semconv.OPERATION_CHAT} {request.model}" if request.model else semconv.OPERATION_CHAT


def request_attributes(request: Request, *, content: bool) -> Attributes:
    """What a ``chat`` span carries from its creation.

    Args:
        request: What the model was asked.
        content: Whether the messages may leave the process.
    """
    attributes: Attributes = {semconv.GEN_AI_OPERATION_NAME: semconv.OPERATION_CHAT}
    for name, value in (
        (semconv.GEN_AI_PROVIDER_NAME, request.provider),
        (semconv.GEN_AI_REQUEST_MODEL, request.model),
        (semconv.GEN_AI_REQUEST_TEMPERATURE, request.temperature),
        (semconv.GEN_AI_REQUEST_TOP_P, request.top_p),
        (semconv.GEN_AI_REQUEST_MAX_TOKENS, request.max_tokens),
        (semconv.SERVER_ADDRESS, request.address),
        (semconv.SERVER_PORT, request.port),
    ):
        if value is not None:
            attributes[name] = value
    if content and request.messages is not None:
        attributes[semconv.GEN_AI_INPUT_MESSAGES] = as_json(_input_messages(request.messages))
    return attributes


def answer_attributes(answer: Answer, *, content: bool) -> Attributes:
    """What a ``chat`` span carries of the answer, its usage included.

    Args:
        answer: What the model answered.
        content: Whether the answer may leave the process.
    """
    attributes: Attributes = {}
    if answer.id is not None:
        attributes[semconv.GEN_AI_RESPONSE_ID] = answer.id
    if answer.model is not None:
        attributes[semconv.GEN_AI_RESPONSE_MODEL] = answer.model
    if answer.finish_reasons:
        attributes[semconv.GEN_AI_RESPONSE_FINISH_REASONS] = tuple(answer.finish_reasons)
    usage = answer.usage
    if usage is not None:
        attributes[semconv.GEN_AI_USAGE_INPUT_TOKENS] = usage.input_tokens
        attributes[semconv.GEN_AI_USAGE_OUTPUT_TOKENS] = usage.output_tokens
        for name, value in (
            (semconv.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS, usage.cached_tokens),
            (semconv.GEN_AI_USAGE_CACHE_WRITE_INPUT_TOKENS, usage.cache_write_tokens),
            (semconv.GEN_AI_USAGE_REASONING_OUTPUT_TOKENS, usage.reasoning_tokens),
        ):
            if value:
                attributes[name] = value
    if content:
        attributes[semconv.GEN_AI_OUTPUT_MESSAGES] = as_json([_output_message(answer)])
    return attributes


def tool_name(name: str) -> str:
    """Name of an ``execute_tool`` span."""
    return f"{semconv.OPERATION_EXECUTE_TOOL} {name}"


def tool_attributes(name: str, call_id: str | None, arguments: Any, *, content: bool) -> Attributes:
    """What an ``execute_tool`` span carries from its creation.

    Args:
        name: The tool.
        call_id: The model's identifier of the call, or None.
        arguments: Arguments of the call.
        content: Whether they may leave the process.
    """
    attributes: Attributes = {
        semconv.GEN_AI_OPERATION_NAME: semconv.OPERATION_EXECUTE_TOOL,
        semconv.GEN_AI_TOOL_NAME: name,
        semconv.GEN_AI_TOOL_TYPE: semconv.TOOL_TYPE_FUNCTION,
    }
    if call_id is not None:
        attributes[semconv.GEN_AI_TOOL_CALL_ID] = call_id
    if content and arguments is not None:
        attributes[semconv.GEN_AI_TOOL_CALL_ARGUMENTS] = as_json(arguments)
    return attributes


def as_json(value: Any) -> str:
    """A value as strict JSON; what JSON has not, and what is not finite, as text."""
    try:
        text = json.dumps(value, default=str, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = json.dumps(str(value), ensure_ascii=False)
    return encodable(text)


def _input_messages(messages: Any) -> list[Attributes]:
    if isinstance(messages, str):
        return [{"role": "user", "parts": [_text_part(messages)]}]
    if not isinstance(messages, Sequence):
        return []
    return [_input_message(message) for message in cast("Sequence[Any]", messages)]


def _input_message(message: Any) -> Attributes:
    role = as_text(field(message, "role")) or "user"
    if role == "tool":
        part = {
            "type": "tool_call_response",
            "id": field(message, "tool_call_id"),
            "response": field(message, "content"),
        }
        return {"role": role, "parts": [part]}
    parts: list[Attributes] = []
    content = field(message, "content")
    if isinstance(content, str):
        if content:
            parts.append(_text_part(content))
    elif isinstance(content, Sequence):
        for block in cast("Sequence[Any]", content):
            text = field(block, "text")
            kind = as_text(field(block, "type")) or "unknown"
            parts.append(_text_part(text) if isinstance(text, str) else {"type": kind})
    calls = field(message, "tool_calls")
    if isinstance(calls, Sequence):
        for call in cast("Sequence[Any]", calls):
            function = field(call, "function")
            parts.append(_call_part(field(call, "id"), field(function, "name"), field(function, "arguments")))
    return {"role": role, "parts": parts}


def _output_message(answer: Answer) -> Attributes:
    parts = [_text_part(answer.text)] if answer.text else []
    parts.extend(_call_part(call.id, call.name, call.arguments) for call in answer.calls)
    message: Attributes = {"role": "assistant", "parts": parts}
    if answer.finish_reasons:
        message["finish_reason"] = answer.finish_reasons[0]
    return message


def _text_part(text: str) -> Attributes:
    return {"type": "text", "content": text}


def _call_part(call_id: Any, name: Any, arguments: Any) -> Attributes:
    return {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}
