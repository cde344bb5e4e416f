"""What other tools do about loops, written anew from their published rules, to run on the same rows.

A baseline is shown one step after another and says, for each, whether it would raise at that step. All are
level-triggered, as the originals are.
"""

import json
from collections import deque
from collections.abc import Callable
from difflib import SequenceMatcher
from typing import Protocol

from detector_corpus import Step

from otel_loopeval.detect import ModelOutput, ToolCall, UserMessage
from otel_loopeval.detect.outcomes import looks_failed

_SIMILAR = 0.9
_COMPARED = 3000


class Baseline(Protocol):
    """One rule."""

    def raises(self, step: Step) -> bool:
        """Take the next step in, and say whether the rule raises at it."""
        ...


class SameAsPrevious:
    """The same tool and arguments as in the step before; with ``count`` 3: as in the two before."""

    def __init__(self, count: int = 2) -> None:
        self._count = count
        self._last: object = None
        self._run = 0

    def raises(self, step: Step) -> bool:
        if not isinstance(step, ToolCall):
            return False
        key = _action(step)
        self._run = self._run + 1 if key == self._last else 1
        self._last = key
        return self._run >= self._count


class Similar:
    """The same tool as in the step before, with arguments that are at least 90 % similar."""

    def __init__(self) -> None:
        self._last: ToolCall | None = None

    def raises(self, step: Step) -> bool:
        if not isinstance(step, ToolCall):
            return False
        last, self._last = self._last, step
        if last is None or last.name != step.name:
            return False
        a, b = _text(last.arguments)[:_COMPARED], _text(step.arguments)[:_COMPARED]
        return a == b or SequenceMatcher(None, a, b, autojunk=False).ratio() >= _SIMILAR


class OpenHands:
    """OpenHands' StuckDetector, over the events since the user's last message.

    The same action and observation four times; the same action three times, each failing; the same message
    three times; two actions with their observations in alternation over six steps.
    """

    def __init__(self) -> None:
        self._events: deque[tuple[object, object, bool]] = deque(maxlen=20)
        self._messages: deque[str] = deque(maxlen=3)

    def raises(self, step: Step) -> bool:
        if isinstance(step, UserMessage):
            self._events.clear()
            self._messages.clear()
            return False
        if isinstance(step, ModelOutput):
            self._messages.append(step.text or "")
            return len(self._messages) == 3 and len(set(self._messages)) == 1
        self._messages.clear()
        self._events.append((_action(step), _text(step.result or step.error), _failed(step)))
        events = list(self._events)
        four, three, six = events[-4:], events[-3:], events[-6:]
        return (
            (len(four) == 4 and len({event[:2] for event in four}) == 1)
            or (
                len(three) == 3
                and len({event[0] for event in three}) == 1
                and all(event[2] for event in three)
            )
            or (
                len(six) == 6 and len({e[:2] for e in six[::2]}) == 1 and len({e[:2] for e in six[1::2]}) == 1
            )
        )


class GeminiCli:
    """gemini-cli: a cycle of one to five calls, five times; a chunk of 50 characters, ten times."""

    def __init__(self) -> None:
        self._calls: deque[object] = deque(maxlen=25)
        self._text = ""

    def raises(self, step: Step) -> bool:
        if isinstance(step, UserMessage):
            self._calls.clear()
            self._text = ""
            return False
        if isinstance(step, ModelOutput):
            return self._chants(step.text or "")
        self._text = ""
        self._calls.append(_action(step))
        calls = list(self._calls)
        return any(
            len(calls) >= 5 * period
            and all(calls[-i] == calls[-i - period] for i in range(1, 4 * period + 1))
            for period in range(1, 6)
        )

    def _chants(self, text: str) -> bool:
        if any(mark in text for mark in ("```", "|", "\n- ", "\n* ", "\n#")):
            self._text = ""
            return False
        self._text = (self._text + text)[-5000:]
        chunk = self._text[-50:]
        if len(chunk) < 50:
            return False
        at: list[int] = []
        found = self._text.find(chunk)
        while found >= 0:
            at.append(found)
            found = self._text.find(chunk, found + 1)
        return len(at) >= 10 and (at[-1] - at[-10]) / 9 <= 75


class PraisonAI:
    """PraisonAI: three identical calls, five of one name, three failures, five without progress.

    Arguments count by their first 1,000 characters. A call makes progress if it brings another result than
    the one before.
    """

    def __init__(self) -> None:
        self._last: object = None
        self._name = ""
        self._result: object = None
        self._identical = self._named = self._failures = self._still = 0

    def raises(self, step: Step) -> bool:
        if not isinstance(step, ToolCall):
            return False
        key = (step.name, _text(step.arguments)[:1000])
        result = _text(step.result or step.error)
        self._identical = self._identical + 1 if key == self._last else 1
        self._named = self._named + 1 if step.name == self._name else 1
        self._failures = self._failures + 1 if _failed(step) else 0
        self._still = self._still + 1 if result == self._result else 0
        self._last, self._name, self._result = key, step.name, result
        return self._identical >= 3 or self._named >= 5 or self._failures >= 3 or self._still >= 5


BASELINES: dict[str, Callable[[], Baseline]] = {
    "same as previous": SameAsPrevious,
    "three identical": lambda: SameAsPrevious(3),
    "OpenHands": OpenHands,
    "PraisonAI": PraisonAI,
    "gemini-cli": GeminiCli,
    "arguments .9 similar": Similar,
}
"""The rules by name."""


def _action(step: ToolCall) -> tuple[str, str]:
    return step.name, _text(step.arguments)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=repr)


def _failed(step: ToolCall) -> bool:
    return step.error is not None or looks_failed(_text(step.result))
