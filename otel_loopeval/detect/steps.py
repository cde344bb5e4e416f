"""Steps of an agent run: what a detector is shown, one at a time, in the order in which they ended.

A step says what the agent did and what it learned from it. Times are nanoseconds since the epoch (any
monotone origin will do: only differences are used), and every field beyond the name may be missing, since
telemetry often carries less than the whole.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

from otel_loopeval import semconv


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool, with its result or error.

    Attributes:
        name: Name of the tool.
        arguments: Arguments as a mapping, as a raw string (usually JSON, perhaps malformed), or any other
            object. ``None`` means that they were not captured: such a call is never held to be the same as
            another one. A call without arguments has ``{}``.
        result: What the tool returned, any object; ``None`` where it was not captured.
        error: What went wrong (message or exception), or ``None`` if nothing did.
        agent: Agent that made the call; agents are judged apart.
        turn: Model turn that asked for the call, any equatable and hashable value. Calls of one agent that
            share a turn were asked for in parallel and are judged as one unit.
        start_ns: When the call began, in nanoseconds.
        end_ns: When the call ended, in nanoseconds.
    """

    name: str
    arguments: Any
    result: Any = None
    error: Any = None
    agent: str | None = None
    turn: Any = None
    start_ns: int | None = None
    end_ns: int | None = None

    @property
    def shows(self) -> str:
        """How much of the call can be seen, one of ``semconv.EVIDENCE_*``."""
        if self.arguments is None:
            return semconv.EVIDENCE_NONE
        if self.result is None and self.error is None:
            return semconv.EVIDENCE_ARGUMENTS
        return semconv.EVIDENCE_FULL


@dataclass(frozen=True, slots=True)
class ModelOutput:
    """One whole message of the model (not a chunk of a stream).

    Attributes:
        text: The message; ``None`` where it was not captured.
        agent: Agent that spoke.
        turn: Model turn that the message belongs to.
        start_ns: When the model was called, in nanoseconds. With ``end_ns`` it tells thinking from waiting.
        end_ns: When the model answered, in nanoseconds.
    """

    text: str | None = None
    agent: str | None = None
    turn: Any = None
    start_ns: int | None = None
    end_ns: int | None = None

    @property
    def shows(self) -> str:
        """How much of the message can be seen, one of ``semconv.EVIDENCE_*``."""
        return semconv.EVIDENCE_NONE if self.text is None else semconv.EVIDENCE_FULL


@dataclass(frozen=True, slots=True)
class UserMessage:
    """The user spoke: a repetition after it may be what was asked for.

    Attributes:
        start_ns: When, in nanoseconds.
    """

    start_ns: int | None = None

    @property
    def shows(self) -> str:
        """Nothing: a user's message resets the detectors and is not looked into."""
        return semconv.EVIDENCE_NONE


Step: TypeAlias = ToolCall | ModelOutput | UserMessage
