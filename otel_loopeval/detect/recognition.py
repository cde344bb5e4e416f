"""Has this call been seen before, and did it bring the same? The step's identity, and its place in memory."""

from collections.abc import Callable
from typing import Any, Final

from otel_loopeval.detect.identity import canonical, canonical_arguments
from otel_loopeval.detect.lane import Lane
from otel_loopeval.detect.memory import Sightings
from otel_loopeval.detect.normalise import normalise, normalise_arguments
from otel_loopeval.detect.sighting import MASK64, Sighting
from otel_loopeval.detect.steps import ToolCall

Identity = Callable[[ToolCall], Any]
"""Says what identifies a call or its result; ``None`` where the detector is to decide."""

_MEMORY: Final = 320


class Recognised:
    """A call, as far as it was recognised. One object, reused for every call of the run.

    Attributes:
        blind: Neither arguments nor an identity are known, so that the call equals no other.
        tool: Name of the tool.
        arguments: Canonical text of the arguments.
        text: Text of the result or error.
        known: Whether there is a result or error.
        raw: Hash of the result as it is.
        got: Hash of the result by which it is compared (normalised for a call whose results vary).
        key: Key of the call in memory.
        sighting: The earlier sightings, or ``None``.
        same: The call was seen before and brought the same now.
        normalised: Sameness rests on normalised arguments or results.
        volatile: Results of this call are compared in normalised form from now on.
    """

    __slots__ = (
        "arguments",
        "blind",
        "got",
        "key",
        "known",
        "normalised",
        "raw",
        "same",
        "sighting",
        "text",
        "tool",
        "volatile",
    )

    def __init__(self) -> None:
        self.blind = self.known = self.same = self.normalised = self.volatile = False
        self.tool = self.arguments = self.text = ""
        self.raw = self.got = self.key = 0
        self.sighting: Sighting | None = None


class Recogniser:
    """Recognises the calls of a run.

    Args:
        tool_identity: The application's word on what identifies a call.
        result_identity: The application's word on what identifies a result.
    """

    __slots__ = ("_result_identity", "_tool_identity", "call", "seen")

    def __init__(self, tool_identity: Identity | None, result_identity: Identity | None) -> None:
        self._tool_identity = tool_identity
        self._result_identity = result_identity
        self.seen = Sightings(_MEMORY)
        self.call = Recognised()

    def recognise(self, step: ToolCall, lane: Lane, *, joins: bool) -> Recognised:
        """Recognise a call.

        Args:
            step: The call.
            lane: Lane of its agent.
            joins: Whether it joins the newest unit, rather than beginning one.

        Returns:
            What is known of it: valid until the next call of this method.
        """
        call = self.call
        tool = step.name
        call.tool = tool = tool if type(tool) is str else canonical(tool)[0]
        call.same = call.normalised = call.volatile = call.blind = False
        call.sighting = None
        self._result(step, call)
        identity = _ask(self._tool_identity, step)
        sampled = False
        if identity is not None:
            call.arguments = canonical(identity)[0]
            call.key = hash((lane.number, call.arguments))
        elif step.arguments is None:
            call.blind = True
            call.arguments = ""
            return call
        else:
            call.arguments, sampled = canonical_arguments(step.arguments)
            call.key = hash((lane.number, tool, call.arguments))
        packed = self.seen.get(call.key)
        if packed is None:
            if joins or identity is not None or not call.known:
                return call
            if call.raw != lane.got or tool != lane.tools.unit.tool:
                return call
            # Suspicion: the same tool brought the same thing under other arguments.
            reduced = normalise_arguments(step.arguments)
            if reduced is None:
                return call
            call.normalised = True
            call.arguments = reduced
            call.key = hash((lane.number, tool, "normalised", reduced))
            packed = self.seen.get(call.key)
        elif sampled:
            # Suspicion: what was only sampled seems to come back, so it is read in full from now on.
            call.key = hash((lane.number, tool, canonical_arguments(step.arguments, full=True)[0]))
            packed = self.seen.get(call.key)
        if packed is not None:
            self._compare(call, Sighting.unpack(packed))
        return call

    def _compare(self, call: Recognised, sighting: Sighting) -> None:
        call.sighting = sighting
        call.volatile = sighting.volatile
        if not call.known:
            call.same = sighting.got == 0
            return
        if not sighting.volatile and sighting.got == call.raw:
            call.same = True
            return
        # Suspicion: the same call with another result.
        call.got = hash(normalise(call.text)) & MASK64
        call.normalised = call.volatile = True
        call.same = sighting.volatile and sighting.got == call.got

    def _result(self, step: ToolCall, call: Recognised) -> None:
        identity = _ask(self._result_identity, step)
        call.known = True
        if identity is not None:
            call.text = canonical(identity)[0]
            call.got = call.raw = hash(call.text) & MASK64 | 1
        elif step.error is not None:
            call.text = canonical(step.error)[0]
            call.got = call.raw = hash(("error", call.text)) & MASK64 | 1
        elif step.result is not None:
            call.text = canonical(step.result)[0]
            call.got = call.raw = hash(call.text) & MASK64 | 1
        else:
            call.known = False
            call.text = ""
            call.got = call.raw = 0


def _ask(identity: Identity | None, step: ToolCall) -> object:
    if identity is None:
        return None
    try:
        return identity(step)
    except Exception:  # noqa: BLE001 - the application's function must not break the application through us
        return None
