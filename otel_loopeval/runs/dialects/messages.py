"""Messages of a conversation with a model, in the shapes that providers and libraries give them.

Known shapes, told by their keys and not by who sent them: OpenAI's chat messages and response items,
Anthropic's and Bedrock's content blocks, Gemini's contents, the parts of the GenAI conventions (v0.1.0), the
Vercel AI SDK's parts, LangChain's serialised messages, and responses that wrap any of these.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from otel_loopeval.runs.dialects.facts import Answer, Asked, Message
from otel_loopeval.runs.dialects.values import MAX_MESSAGES, items_of, mapping_of, parsed, text_of

_ROLES: Final = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
    "system": "system",
    "developer": "system",
}
_WRAPPERS: Final = ("choices", "output", "messages", "generations", "candidates", "message", "data", "kwargs")
_BLOCK_KEYS: Final = frozenset({"function", "toolUse", "toolResult", "functionCall", "function_call"})
_DEPTH: Final = 8
_WRAPPED: Final = ("tool_call_id", '"response"')
_TOOL_MESSAGE: Final = re.compile(
    r"content=(?P<content>.*?)(?: name='[^']*')?(?: id='[^']*')? tool_call_id='(?P<id>[^']*)'"
    r"(?: artifact=.*?)?(?P<failed> status='error')?",
    re.DOTALL,
)


def messages_in(value: Any) -> list[Message]:
    """The messages in a value: one of them, a list, or a response that wraps them; JSON text as well."""
    found: list[Message] = []
    _collect(parsed(value), found, _DEPTH)
    return found


def as_one(messages: Iterable[Message]) -> Message | None:
    """What several messages of one model say together; None if there are none."""
    messages = list(messages)
    if not messages:
        return None
    texts = [message.text for message in messages if message.text]
    return Message(
        messages[0].role,
        "\n".join(texts) if texts else None,
        tuple(asked for message in messages for asked in message.asked),
        tuple(answer for message in messages for answer in message.answers),
    )


def message_of(item: Mapping[str, Any]) -> Message | None:
    """The message that a mapping is, or None if it is none."""
    role = _ROLES.get(str(item.get("role") or item.get("type") or "").lower())
    kind = item.get("type")
    if kind in ("function_call", "function_call_output"):
        return _gathered("assistant" if kind == "function_call" else "tool", [item])
    if item.get("role") is None and role is None:
        return None
    blocks = [*_blocks(item.get("parts")), *_blocks(item.get("content")), *_blocks(item.get("contents"))]
    message = _gathered(role, blocks)
    asked = [call for entry in items_of(parsed(item.get("tool_calls"))) if (call := asked_of(entry))]
    asked += message.asked
    answers = message.answers
    text = message.text
    if role == "tool" and not answers:
        name, identifier = text_of(item.get("name")), text_of(item.get("tool_call_id") or item.get("id"))
        failed = item.get("status") == "error" or item.get("is_error") is True
        content = text if text is not None else item.get("content")
        answers = (Answer(identifier, name, None if failed else content, content if failed else None),)
        text = None
    return Message(role, text, tuple(asked), answers)


def answer_in(result: Any) -> Answer | None:
    """The answer that a tool's result is wrapped in, or None if it is none.

    A message to the model has the call's id in it, which would make equal results look different. Known are
    LangChain's ``ToolMessage``, as JSON or as text, and Gemini's function responses.
    """
    if isinstance(result, str) and not any(mark in result for mark in _WRAPPED):
        return None  # no need to parse it
    if isinstance(result, str) and result.startswith("content="):
        told = _TOOL_MESSAGE.fullmatch(result)
        return None if told is None else _outcome(told["id"], told["content"], failed=bool(told["failed"]))
    item = mapping_of(result)
    for _ in range(_DEPTH):
        if item is None:
            return None
        if set(item) == {"id", "name", "response"}:
            return Answer(text_of(item["id"]), text_of(item["name"]), item["response"])
        if "tool_call_id" in item and "content" in item:
            failed = item.get("status") == "error"
            return _outcome(text_of(item["tool_call_id"]), item["content"], failed=failed)
        inside = (mapping_of(item.get(key)) for key in ("output", "data", "kwargs"))
        item = next((inner for inner in inside if inner is not None), None)
    return None


def _outcome(identifier: str | None, content: Any, *, failed: bool) -> Answer:
    return Answer(identifier, None, None if failed else content, content if failed else None)


def asked_of(entry: Any) -> Asked | None:
    """The tool call that an entry of ``tool_calls`` is."""
    call = mapping_of(entry)
    if call is None:
        return None
    function = mapping_of(call.get("function")) or call
    name = text_of(function.get("name")) or text_of(call.get("toolName"))
    if name is None:
        return None
    arguments = next((function[key] for key in ("arguments", "args", "input") if key in function), None)
    return Asked(name, arguments, _identifier(call, "id", "call_id", "tool_call_id", "toolCallId"))


def _collect(value: Any, found: list[Message], depth: int) -> None:
    if depth <= 0:
        return
    if isinstance(value, (list, tuple)):
        for item in cast("list[Any]", value)[-MAX_MESSAGES:]:
            _collect(parsed(item), found, depth - 1)
        return
    if not isinstance(value, Mapping):
        return
    item = cast("Mapping[str, Any]", value)
    kwargs = mapping_of(item.get("kwargs"))
    if kwargs is not None and "lc" in item and "content" in kwargs:
        item = {"role": _langchain_role(item), **kwargs}
    message = message_of(item)
    if message is not None:
        found.append(message)
        return
    for wrapper in _WRAPPERS:
        inner = parsed(item.get(wrapper))
        if isinstance(inner, (list, tuple, Mapping)):
            _collect(inner, found, depth - 1)
            return
    content = parsed(item.get("content"))
    if isinstance(content, Mapping):  # Gemini: a candidate with its content
        _collect(cast("Mapping[str, Any]", content), found, depth - 1)
    elif content is not None:  # an answer without a role
        found.append(_gathered(None, _blocks(content)))


def _langchain_role(item: Mapping[str, Any]) -> str:
    kind = str((list(items_of(item.get("id"))) or [""])[-1])
    for word, role in (("AI", "assistant"), ("Human", "user"), ("Tool", "tool"), ("System", "system")):
        if kind.startswith(word):
            return role
    return "user"


def _blocks(value: Any) -> list[Any]:
    if isinstance(value, str):
        inner = parsed(value)
        if isinstance(inner, list) and any(_is_call(entry) for entry in cast("list[Any]", inner)):
            return cast("list[Any]", inner)
        return [value] if value else []
    if isinstance(value, Mapping):
        return [value]
    return list(items_of(value))


def _is_call(entry: Any) -> bool:
    """Whether it is a block of content, and not a part of a text that happens to be JSON."""
    return isinstance(entry, Mapping) and not _BLOCK_KEYS.isdisjoint(cast("Mapping[str, Any]", entry))


def _gathered(role: str | None, blocks: Iterable[Any]) -> Message:
    texts: list[str] = []
    asked: list[Asked] = []
    answers: list[Answer] = []
    for block in blocks:
        if isinstance(block, str):
            texts.append(block)
        elif isinstance(block, Mapping):
            _sort_in(cast("Mapping[str, Any]", block), texts, asked, answers)
    return Message(role, "\n".join(texts) if texts else None, tuple(asked), tuple(answers))


def _sort_in(block: Mapping[str, Any], texts: list[str], asked: list[Asked], answers: list[Answer]) -> None:
    kind = str(block.get("type") or block.get("kind") or "").replace("-", "_")
    for key in ("function_call", "functionCall", "toolUse"):  # Gemini, Bedrock: the kind is the key
        inner = mapping_of(block.get(key))
        if inner is not None:
            block, kind = {**inner, "id": inner.get("id") or inner.get("toolUseId")}, "tool_call"
    for key in ("function_response", "functionResponse", "toolResult"):
        inner = mapping_of(block.get(key))
        if inner is not None:
            block, kind = {**inner, "id": inner.get("id") or inner.get("toolUseId")}, "tool_result"
    if kind in ("tool_call", "tool_use", "function_call", "function") or "function" in block:
        call = asked_of(block)
        if call is not None:
            asked.append(call)
    elif kind in ("tool_call_response", "tool_result", "function_call_output", "tool_return"):
        answers.append(_answer(block))
    elif kind in ("reasoning", "thinking", "redacted_thinking"):
        return
    else:
        text = block.get("text", block.get("content"))
        if isinstance(text, str) and text:
            texts.append(text)


def _answer(block: Mapping[str, Any]) -> Answer:
    keys = ("response", "result", "output", "content")
    value = next((block[key] for key in keys if block.get(key) is not None), None)
    failed = block.get("is_error") is True or block.get("isError") is True or block.get("status") == "error"
    inner = mapping_of(value)
    if inner is not None and set(inner) == {"type", "value"}:  # the Vercel AI SDK wraps it once more
        failed = failed or str(inner["type"]).startswith("error")
        value = inner["value"]
    identifier = _identifier(block, "id", "tool_use_id", "tool_call_id", "call_id", "toolCallId")
    name = text_of(block.get("name")) or text_of(block.get("toolName"))
    return Answer(identifier, name, None if failed else value, value if failed else None)


def _identifier(item: Mapping[str, Any], *keys: str) -> str | None:
    # OpenAI's response items have an id of their own beside that of the call.
    if "call_id" in item:
        return text_of(item["call_id"])
    return next((found for key in keys if (found := text_of(item.get(key)))), None)
