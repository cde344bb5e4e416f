"""What a span of anybody's tells of an agent's work, whatever the convention that spells it.

A dialect reads these out of a span; everything behind the dialects knows nothing else of it. A field is
None (or empty) where the span does not tell.
"""

# ruff: noqa: ARG002 - the Protocol names the arguments
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

from otel_loopeval.runs.spans import SpanData
from otel_loopeval.runs.usage import Usage

AGENT: Final = "agent"
"""An agent at work: a run."""
WORKFLOW: Final = "workflow"
"""Something that arranges agents, model calls or tools: a run if there is no agent and it has both others."""
MODEL: Final = "model"
"""A call of a model: a turn."""
TOOL: Final = "tool"
"""A call of a tool: a step."""
EVALUATION: Final = "evaluation"
"""A judgement of the agent's work."""
OTHER: Final = "other"
"""A span of an AI library that tells nothing of a loop: embeddings, retrieval, bookkeeping."""


class Look(NamedTuple):
    """What there is to see of a span that may not have ended.

    Attributes:
        name: Its name.
        scope: Name of its instrumentation scope.
        attributes: Its attributes so far.
    """

    name: str
    scope: str
    attributes: Mapping[str, Any]


def look_of(span: SpanData) -> Look:
    """What there is to see of a span that has ended."""
    return Look(span.name, span.scope, span.attributes)


class Asked(NamedTuple):
    """A tool call that a model asked for.

    Attributes:
        name: Name of the tool.
        arguments: A mapping or text; None where it was not captured.
        id: Identifier of the call.
    """

    name: str
    arguments: Any = None
    id: str | None = None


class Answer(NamedTuple):
    """What a tool call brought, as a message to the model tells it.

    Attributes:
        id: Identifier of the call.
        name: Name of the tool.
        value: The result; None where it was not captured.
        error: What went wrong.
    """

    id: str | None
    name: str | None
    value: Any = None
    error: Any = None


class Message(NamedTuple):
    """One message of a conversation with a model.

    Attributes:
        role: ``"user"``, ``"assistant"``, ``"tool"``, ``"system"``, or None.
        text: Its text.
        asked: The tool calls in it.
        answers: The results of tool calls in it.
    """

    role: str | None = None
    text: str | None = None
    asked: tuple[Asked, ...] = ()
    answers: tuple[Answer, ...] = ()


class ToolUse(NamedTuple):
    """A tool call that a span tells of.

    Attributes:
        name: Name of the tool.
        arguments: A mapping or text; None where it was not captured.
        result: What it brought; None where that was not captured.
        id: Identifier of the call.
        error: What went wrong, where the tool itself says so and its span does not.
    """

    name: str | None = None
    arguments: Any = None
    result: Any = None
    id: str | None = None
    error: Any = None


class Score(NamedTuple):
    """A judgement of the agent's work.

    Attributes:
        value: The score, on the judge's own scale.
        passed: Whether it was good enough, where the judge says so.
    """

    value: float | None
    passed: bool | None


class Dialect(Protocol):
    """How one convention spells these facts.

    To add a dialect, write a class with these methods and put it into
    :data:`otel_loopeval.runs.dialects.reading.DIALECTS`; what its spans can be told by from the outside goes
    into :data:`otel_loopeval.runs.dialects.reading.MARKS`. A dialect that does not know an answer says None
    and the next one is asked, since spans in two dialects at once are common.
    """

    @property
    def tells(self) -> tuple[str, ...]:
        """What the names of the attributes begin with that kind, agent, conversation and tool are told by.

        With none of them, it is not asked, but of spans of :attr:`scopes`; without any, it is always asked.
        """
        ...

    @property
    def scopes(self) -> tuple[str, ...]:
        """Scopes whose spans tell these by their names."""
        ...

    @property
    def tells_usage(self) -> tuple[str, ...]:
        """What the names of the attributes begin with that usage is told by: with none, it is not asked."""
        ...

    @property
    def tells_content(self) -> tuple[str, ...]:
        """The same for output and inputs; of a span with events it is asked all the same."""
        ...

    def kind(self, look: Look) -> str | None:
        """What the span is, one of the constants of this module."""
        ...

    def agent(self, look: Look) -> str | None:
        """Name of the agent or workflow."""
        ...

    def conversation(self, attributes: Mapping[str, Any]) -> str | None:
        """Identifier of the conversation."""
        ...

    def usage(self, attributes: Mapping[str, Any]) -> Usage | None:
        """What a model call used."""
        ...

    def output(self, span: SpanData) -> Message | None:
        """What a model said."""
        ...

    def inputs(self, span: SpanData) -> list[Message] | None:
        """What a model was told, in order."""
        ...

    def tool(self, span: SpanData) -> ToolUse | None:
        """A tool call."""
        ...


class Silent:
    """A dialect that knows no answer: what the others have in common."""

    tells: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    tells_usage: tuple[str, ...] = ()
    tells_content: tuple[str, ...] = ()

    def kind(self, look: Look) -> str | None:
        """See :class:`Dialect`."""
        return None

    def agent(self, look: Look) -> str | None:
        """See :class:`Dialect`."""
        return None

    def conversation(self, attributes: Mapping[str, Any]) -> str | None:
        """See :class:`Dialect`."""
        return None

    def usage(self, attributes: Mapping[str, Any]) -> Usage | None:
        """See :class:`Dialect`."""
        return None

    def output(self, span: SpanData) -> Message | None:
        """See :class:`Dialect`."""
        return None

    def inputs(self, span: SpanData) -> list[Message] | None:
        """See :class:`Dialect`."""
        return None

    def tool(self, span: SpanData) -> ToolUse | None:
        """See :class:`Dialect`."""
        return None
