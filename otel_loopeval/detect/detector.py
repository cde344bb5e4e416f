"""The detector: steps in, observations out."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from otel_loopeval import semconv
from otel_loopeval.detect.steps import ModelOutput, Step, ToolCall, UserMessage
from otel_loopeval.health.guards import GuardEvent


@dataclass(frozen=True, slots=True)
class Observation:
    """What the detector makes of one step.

    Attributes:
        redundant: The step did the same work as the step before it in its agent, and nothing new was learned.
        repeats: Earlier sightings of the same step in its agent, as far back as the detector remembers.
        evidence: Name of the evidence behind ``redundant`` or ``event``, or ``None``.
        event: What to report, when a streak crosses a severity with this step.
    """

    redundant: bool = False
    repeats: int = 0
    evidence: str | None = None
    event: GuardEvent | None = None


_NOTHING = Observation()
_LEVELS = {2: "notice", 3: "warning", 4: "doom_loop"}


class DoomLoopDetector:
    """Watches the steps of one run for loops.

    Args:
        tool_identity: Says what identifies a call, in place of its name and arguments.
        result_identity: Says what identifies a result.
        user_resets: Whether a message of the user starts the counting anew.
    """

    def __init__(
        self,
        tool_identity: Callable[[ToolCall], Any] | None = None,
        result_identity: Callable[[ToolCall], Any] | None = None,
        user_resets: bool = True,
    ) -> None:
        self._tool_identity = tool_identity
        self._result_identity = result_identity
        self._user_resets = user_resets
        self._last: dict[tuple[str | None, str], tuple[str, int, int]] = {}
        self._index = -1

    def observe(self, step: Step) -> Observation:
        """Judge the next step of the run.

        Args:
            step: The step, after it ended.

        Returns:
            What the step repeats, and the event to report if a streak grew worse with it.
        """
        self._index += 1
        if isinstance(step, UserMessage):
            if self._user_resets:
                self._last.clear()
            return _NOTHING
        if isinstance(step, ModelOutput):
            if not step.text:
                return _NOTHING
            return self._streak(step, "output", step.text, semconv.KIND_REPEATED_OUTPUT, None)
        if step.arguments is None and self._tool_identity is None:
            self._last.pop((step.agent, "tool"), None)
            return _NOTHING
        call = self._tool_identity(step) if self._tool_identity else [step.name, step.arguments]
        got = self._result_identity(step) if self._result_identity else [step.result, step.error]
        kind = semconv.KIND_REPEATED_FAILURE if step.error is not None else semconv.KIND_REPEATED_ACTION
        return self._streak(step, "tool", [call, got], kind, step.name)

    def _streak(
        self, step: ToolCall | ModelOutput, what: str, identity: object, kind: str, tool: str | None
    ) -> Observation:
        key = hashlib.blake2b(
            json.dumps(identity, sort_keys=True, default=repr).encode(), digest_size=8
        ).hexdigest()
        before, first, count = self._last.get((step.agent, what), ("", 0, 0))
        if before != key:
            first, count = self._index, 0
        count += 1
        self._last[step.agent, what] = (key, first, count)
        if count == 1:
            return _NOTHING
        rule = "exact" if what == "tool" else "output"
        level = _LEVELS.get(count)
        event = level and GuardEvent(
            kind=kind,
            doom_loop=level == "doom_loop",
            source=semconv.SOURCE_DETECTOR,
            action=semconv.ACTION_OBSERVE,
            tool=tool,
            count=count,
            rule=rule,
            agent=step.agent,
            severity=level,
            key=f"{rule}:{step.agent}:{first}",
            first_step=first,
            last_step=self._index,
        )
        return Observation(redundant=True, repeats=count - 1, evidence=rule, event=event or None)
