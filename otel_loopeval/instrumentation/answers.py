"""What a model answered, read from the objects of the OpenAI SDK and of LiteLLM, whole or in chunks.

Both hand out chat completions, their chunks, and responses of the Responses API, as models or plain
dictionaries. Nothing here changes or keeps them.
"""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from otel_loopeval.health.wire import as_text
from otel_loopeval.runs.usage import Usage, tokens_of

MAX_TEXT = 1_000_000
"""Characters of a streamed message that are kept: enough to compare it, and no more than that."""


class Call:
    """A tool call that the model asked for.

    Attributes:
        id: The model's identifier of it, or None.
        name: The tool.
        arguments: Its arguments as the model wrote them, usually JSON.
    """

    __slots__ = ("arguments", "id", "name")

    def __init__(self, call_id: str | None, name: str | None, arguments: str) -> None:
        self.id = call_id
        self.name = name
        self.arguments = arguments


class Answer:
    """What a model answered, as far as it is known; the chunks of a stream are added one by one.

    Attributes:
        id: The provider's identifier, or None.
        model: The model that answered, or None.
        usage: What it used, as the provider says; None where it says nothing. Its model is the one that
            answered; ``provider`` is left to whoever knows.
        calls: Tool calls of the first choice.
        keeps_text: Whether the text of a stream is kept.
    """

    __slots__ = ("_length", "_reasons", "_texts", "calls", "id", "keeps_text", "model", "usage")

    def __init__(self, *, keeps_text: bool = True) -> None:
        self.id: str | None = None
        self.model: str | None = None
        self.usage: Usage | None = None
        self.calls: list[Call] = []
        self.keeps_text = keeps_text
        self._reasons: dict[Any, str] = {}
        self._texts: list[str] = []
        self._length = 0

    @property
    def finish_reasons(self) -> list[str]:
        """Why it stopped, one per choice."""
        return list(self._reasons.values())

    @property
    def text(self) -> str:
        """The text of the first choice."""
        return "".join(self._texts)

    def add(self, part: Any) -> None:
        """Take in a whole answer, a chunk of one, or an event of the Responses API."""
        inner = field(part, "response")
        if inner is not None and field(part, "choices") is None:  # an event that carries the response so far
            self.read_response(inner)
            return
        if field(part, "output") is not None and field(part, "choices") is None:
            self.read_response(part)
            return
        self._read_head(part)
        for choice in _items(field(part, "choices")):
            reason = as_text(field(choice, "finish_reason"))
            index = field(choice, "index")
            index = index if isinstance(index, int) else 0
            if reason is not None:
                self._reasons[index] = reason
            if index == 0:
                delta = field(choice, "delta")
                self._read_message(field(choice, "message") if delta is None else delta)

    def read_response(self, response: Any) -> None:
        """Take in an answer of the Responses API: the last one stands for all before."""
        self._read_head(response)
        status = as_text(field(response, "status"))
        self._texts, self._length, self.calls = [], 0, []
        for item in _items(field(response, "output")):
            if field(item, "type") == "function_call":
                name, arguments = as_text(field(item, "name")), as_text(field(item, "arguments"))
                self.calls.append(Call(as_text(field(item, "call_id")), name, arguments or ""))
            for block in _items(field(item, "content")):
                self._add_text(field(block, "text"))
        if status in ("completed", "incomplete", "failed"):
            why = field(field(response, "incomplete_details"), "reason")
            done = "tool_calls" if self.calls else "stop"
            self._reasons = {0: done if status == "completed" else as_text(why) or status}

    def _read_head(self, part: Any) -> None:
        self.id = as_text(field(part, "id")) or self.id
        self.model = as_text(field(part, "model")) or self.model
        usage = field(part, "usage")
        if usage is not None:
            self.usage = read_usage(usage, self.model) or self.usage
        elif self.usage is not None and self.usage.model is None:
            self.usage = self.usage._replace(model=self.model)

    def _read_message(self, message: Any) -> None:
        if message is None:
            return
        self._add_text(field(message, "content"))
        for call in _items(field(message, "tool_calls")):
            position = field(call, "index")
            function = field(call, "function")
            call_id, name = as_text(field(call, "id")), as_text(field(function, "name"))
            text = field(function, "arguments")
            arguments = text if isinstance(text, str) else ""
            if isinstance(position, int) and 0 <= position < len(self.calls):  # a call goes on
                known = self.calls[position]
                known.id, known.name = known.id or call_id, known.name or name
                known.arguments += arguments
            else:
                self.calls.append(Call(call_id, name, arguments))

    def _add_text(self, text: Any) -> None:
        if self.keeps_text and isinstance(text, str) and text and self._length < MAX_TEXT:
            self._texts.append(text)
            self._length += len(text)


def read_usage(usage: Any, model: str | None) -> Usage | None:
    """What a provider says that a call used, in the names of either API; None where it says nothing.

    Args:
        usage: The ``usage`` of an answer.
        model: The model that answered.
    """
    input_tokens, output_tokens = field(usage, "prompt_tokens"), field(usage, "completion_tokens")
    if input_tokens is None and output_tokens is None:
        input_tokens, output_tokens = field(usage, "input_tokens"), field(usage, "output_tokens")
    if input_tokens is None and output_tokens is None:
        return None
    read = _first(usage, "prompt_tokens_details", "input_tokens_details")
    written = _first(usage, "completion_tokens_details", "output_tokens_details")
    cached = field(read, "cached_tokens")
    return Usage(
        tokens_of(input_tokens),
        tokens_of(output_tokens),
        tokens_of(field(usage, "cache_read_input_tokens") if cached is None else cached),
        tokens_of(field(usage, "cache_creation_input_tokens")),
        tokens_of(field(written, "reasoning_tokens")),
        model,
    )


def field(thing: Any, name: str) -> Any:
    """A field of a model or a dictionary; None where it has none."""
    if isinstance(thing, Mapping):
        return cast("Mapping[str, Any]", thing).get(name)
    return getattr(thing, name, None)


def _first(thing: Any, *names: str) -> Any:
    for name in names:
        value = field(thing, name)
        if value is not None:
            return value
    return None


def _items(value: Any) -> Iterable[Any]:
    return cast("Iterable[Any]", value) if isinstance(value, (list, tuple)) else ()
