"""Has this call been seen before, and did it bring the same? The step's identity, and its place in memory."""

from collections.abc import Callable
from typing import Any, Final, cast

from otel_loopeval.detect.identity import PLAIN, arguments_hash, arguments_text, canonical, hash_plain
from otel_loopeval.detect.lane import Lane
from otel_loopeval.detect.memory import Sightings
from otel_loopeval.detect.normalise import normalise, normalise_arguments
from otel_loopeval.detect.outcomes import looks_failed
from otel_loopeval.detect.sighting import MASK64, Sighting
from otel_loopeval.detect.steps import ToolCall

Identity = Callable[[ToolCall], Any]
"""Says what identifies a call or its result; ``None`` where the detector is to decide."""

_MEMORY: Final = 256


class Recognised:
    """A call, as far as it was recognised. One object, reused for every call of the run.

    Attributes:
        blind: Neither arguments nor an identity are known, so that the call equals no other.
        tool: Name of the tool.
        given: The arguments as they were given.
        text: Text of the result or error.
        known: Whether there is a result or error.
        error: Whether an error was given.
        raw: Hash of the result as it is; 0 where it is not known.
        got: Hash of the result by which it is compared (normalised for a call whose results vary).
        key: Key of the call in memory.
        own_key: The same, by its arguments as they are; it differs where ``key`` rests on normalised ones.
        sighting: The earlier sightings, or ``None``.
        same: The call was seen before and brought the same now.
        normalised: Sameness rests on normalised arguments or results.
        volatile: Results of this call are compared in normalised form from now on.
    """

    __slots__ = (
        "_brought",
        "_failed",
        "_sampled",
        "blind",
        "error",
        "given",
        "got",
        "key",
        "known",
        "normalised",
        "own_key",
        "raw",
        "same",
        "sighting",
        "text",
        "tool",
        "volatile",
    )

    def __init__(self) -> None:
        self.blind = self.known = self.same = self.normalised = self.volatile = self.error = False
        self.tool = self.text = ""
        self.given: Any = None
        self._brought: Any = None
        self.raw = self.got = self.key = self.own_key = 0
        self.sighting: Sighting | None = None
        self._failed: bool | None = None
        self._sampled = False

    @property
    def failed(self) -> bool:
        """Whether the call failed: an error was given, or the result reads like one."""
        if self._failed is None:
            self._failed = self.error or looks_failed(self.text)
        return self._failed

    @property
    def arguments(self) -> str:
        """Canonical text of the arguments."""
        return arguments_text(self.given)

    def release(self) -> None:
        """Let go of all content."""
        self.text = ""
        self.given = self._brought = None

    def bring(self, result: object, error: object) -> None:
        """Take in what the call brought.

        Args:
            result: The result, or what the application says identifies it.
            error: The error, if one was given.
        """
        self._failed = None
        self._sampled = False
        self.known = True
        self.error = error is not None
        self._brought = result if error is None else error
        if error is not None:
            self.text, self._sampled = canonical(error)
            # An error is not the same as a result that reads like it. Odd: never the 0 of an unknown result.
            self.got = self.raw = hash((0, self.text)) & MASK64 | 1
            return
        if type(result) is str and len(result) <= PLAIN:
            self.text = result
        elif result is not None:
            self.text, self._sampled = canonical(result)
        else:
            self.known = False
            self.text = ""
            self.got = self.raw = 0
            return
        self.got = self.raw = hash(self.text) & MASK64 | 1

    def identify_result(self, step: ToolCall, identity: object) -> None:
        """Take in what the call brought, by the application's word for it.

        Args:
            step: The call.
            identity: What identifies its result, or ``None``.
        """
        if identity is None:
            self.bring(step.result, step.error)
        elif step.error is None:
            self.bring(identity, None)
        else:
            self.bring(None, identity)

    def compare(self, sighting: Sighting) -> None:
        """Compare with what the call brought before.

        Args:
            sighting: Its earlier sightings.
        """
        self.sighting = sighting
        self.volatile = sighting.volatile
        if not self.known:
            self.same = sighting.got == 0
            return
        if sighting.got == self.raw and not (sighting.volatile or self._sampled):
            self.same = True
            return
        # Suspicion: the same call with another result, or with one that was not read in full.
        if self._sampled:
            self.text = canonical(self._brought, full=True)[0]
        self.got = hash((self.error, normalise(self.text))) & MASK64 | 1
        self.normalised = self.volatile = True
        self.same = sighting.volatile and sighting.got == self.got


class Recogniser:
    """Recognises the calls of a run.

    Args:
        tool_identity: The application's word on what identifies a call.
        result_identity: The application's word on what identifies a result.

    Attributes:
        seen: The calls seen before.
    """

    __slots__ = ("_call", "_result_identity", "_tool_identity", "seen")

    def __init__(self, tool_identity: Identity | None, result_identity: Identity | None) -> None:
        self._tool_identity = tool_identity
        self._result_identity = result_identity
        self._call = Recognised()
        self.seen = Sightings(_MEMORY)

    def recognise(self, step: ToolCall, lane: Lane, *, joins: bool) -> Recognised:
        """Recognise a call.

        Args:
            step: The call.
            lane: Lane of its agent.
            joins: Whether it joins the newest unit, rather than beginning one.

        Returns:
            What is known of it: valid until the next call of this method.
        """
        call = self._call
        tool = step.name
        if type(tool) is not str:
            tool = canonical(tool)[0]
        call.tool = tool
        call.given = step.arguments
        call.same = call.normalised = call.volatile = call.blind = False
        call.sighting = None
        if self._result_identity is None:
            call.bring(step.result, step.error)
        else:
            call.identify_result(step, _ask(self._result_identity, step))
        identity = _ask(self._tool_identity, step) if self._tool_identity else None
        sampled = False
        if identity is not None:
            call.key = hash((lane.number, canonical(identity)[0]))
        elif step.arguments is None:
            call.blind = True
            call.own_key = 0
            return call
        else:
            given: object = step.arguments
            identified = hash_plain(cast("dict[Any, Any]", given)) if type(given) is dict else None
            if identified is None:
                identified, sampled = arguments_hash(cast("object", given))
            call.key = hash((lane.number, tool, identified))
        call.own_key = call.key
        packed = self.seen.young.get(call.key)
        if packed is None:
            packed = self.seen.old.get(call.key)
            if packed is None:
                if call.raw != lane.got or tool != lane.tools.unit.tool or joins or not call.known:
                    return call
                packed = self._suspect(call, lane) if identity is None else None
        elif sampled:
            # Suspicion: what was only sampled seems to come back, so it is read in full from now on.
            call.own_key = call.key = hash((lane.number, tool, arguments_hash(call.given, full=True)[0]))
            packed = self.seen.get(call.key)
        if packed is not None:
            call.compare(Sighting.unpack(packed))
        return call

    def _suspect(self, call: Recognised, lane: Lane) -> int | None:
        # The same tool brought the same thing under other arguments: are they other but for references?
        try:
            reduced = normalise_arguments(call.given)
        except Exception:  # noqa: BLE001 - the mapping's own methods may raise anything
            return None
        if reduced is None:
            return None
        call.normalised = True
        call.key = hash((lane.number, call.tool, "normalised", reduced))
        return self.seen.get(call.key)


def _ask(identity: Identity, step: ToolCall) -> Any:
    try:
        return identity(step)
    except Exception:  # noqa: BLE001 - the application's function must not break the application through us
        return None
