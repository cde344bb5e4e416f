"""Options of the telemetry: arguments first, then ``LOOPEVAL_*`` variables, then defaults."""

import logging
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any

from otel_loopeval import semconv
from otel_loopeval.evaluation.calls import is_async
from otel_loopeval.evaluation.checks import shown
from otel_loopeval.health.wire import MAX_INT
from otel_loopeval.runs.tracker import DEFAULT_MAX_RUNS
from otel_loopeval.runs.verdict import Policy

_logger = logging.getLogger("otel_loopeval")

EVENTS_SPAN = "span"
EVENTS_LOG = "log"
EVENTS_BOTH = "both"

OnDoomLoop = Callable[[Any, Any], object]


_DEFAULTS = {"threshold": semconv.DEFAULT_THRESHOLD, "max_wasted_iterations": 0}
"""What an option comes to that has no value."""


@dataclass(frozen=True, slots=True)
class Options:
    """How runs are judged and what is emitted.

    Attributes:
        threshold: Threshold of runs that bring none, on the judge's scale; None for 8.0.
        max_wasted_iterations: Wasted iterations tolerated before a run is unhealthy. None for the default: 0
            for loops with scores; the turns that an agent wastes do not decide unless this is given.
        token_budget: Input plus output tokens a run may use; None for no limit.
        events: Where scores and guard events go: ``"span"`` events, ``"log"`` events or ``"both"``.
        iteration_metrics: Whether to record the two histograms per iteration.
        detectors: Whether our own detectors look at what the run does.
        on_doom_loop: Called as ``on_doom_loop(event, run)`` when a doom loop fires.
        console: Whether to print a line per run on stderr; None to do so only without a backend.
        max_open_runs: Open runs followed at once.
        max_idle_s: Seconds without news after which an open run is no longer followed; None for never.
        sigterm: Whether to record open runs when the process gets SIGTERM.
    """

    threshold: float | None = None
    max_wasted_iterations: int | None = None
    token_budget: int | None = None
    events: str = EVENTS_SPAN
    iteration_metrics: bool = False
    detectors: bool = True
    on_doom_loop: OnDoomLoop | None = None
    console: bool | None = None
    max_open_runs: int = DEFAULT_MAX_RUNS
    max_idle_s: float | None = None
    sigterm: bool = True

    @property
    def policy(self) -> Policy:
        """The part that decides the verdict."""
        return Policy(self.threshold, self.max_wasted_iterations, self.token_budget)

    @classmethod
    def of(cls, given: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> "Options":
        """Options from arguments and the environment.

        Args:
            given: Arguments by name; None means not given.
            environment: Variables to read, ``os.environ`` if None. A bad value there is a warning and the
                default: it may come from a deployment far from the code.

        Raises:
            ValueError: An argument is out of its range.
            TypeError: An argument is of the wrong type.
        """
        environment = os.environ if environment is None else environment
        values: dict[str, Any] = {}
        for field in fields(cls):
            check = _CHECKS[field.name]
            argument = given.get(field.name)
            if argument is not None:
                values[field.name] = check(field.name, argument)
                continue
            variable = semconv.ENV_PREFIX + field.name.upper()
            text = environment.get(variable, "").strip()
            if text:
                try:
                    values[field.name] = check(variable, _parse(field.name, variable, text))
                except (TypeError, ValueError) as error:
                    default = _DEFAULTS.get(field.name, field.default)
                    _logger.warning("otel-loopeval: %s; using the default, %r", error, default)
        return cls(**values)


def captures_content(*, on_logs: bool = False) -> bool:
    """Whether the user lets content leave the process.

    ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`` of the GenAI instrumentations: ``true``, or one
    of their modes, ``span_only``, ``event_only`` and ``span_and_event``, where an event is a log record.

    Args:
        on_logs: Whether it would leave on a log record, and not on a span.
    """
    value = os.environ.get(semconv.ENV_CAPTURE_CONTENT, "").strip().lower()
    return value in {"true", "1", "span_and_event", "event_only" if on_logs else "span_only"}


def checked_number(name: str, value: Any) -> float:
    """A finite number, as a float.

    Raises:
        TypeError: It is no number.
        ValueError: It is not finite, or beyond the floats.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a finite number, got {shown(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number, got {shown(value)}")
    return number


def checked_count(name: str, value: Any, least: int = 0) -> int:
    """A whole number of at least ``least`` that OTLP can carry.

    Raises:
        TypeError: It is no whole number.
        ValueError: It is below ``least``, or has more than 64 bits.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number of at least {least}, got {shown(value)}")
    if value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {shown(value)}")
    if value > MAX_INT:
        raise ValueError(f"{name} must be a whole number below 2**63, got {shown(value)}")
    return value


def checked_choice(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """One of the allowed strings.

    Raises:
        ValueError: It is none of them.
    """
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
    return value


def checked_positive(name: str, value: Any) -> int:
    """A whole number of at least 1.

    Raises:
        TypeError: It is no whole number.
        ValueError: It is below 1.
    """
    return checked_count(name, value, least=1)


def _checked_seconds(name: str, value: Any) -> float:
    number = checked_number(name, value)
    if number <= 0:
        raise ValueError(f"{name} must be a number of seconds above 0, got {value!r}")
    return number


def _checked_flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return value


def _checked_events(name: str, value: Any) -> str:
    return checked_choice(name, value, (EVENTS_SPAN, EVENTS_LOG, EVENTS_BOTH))


def _checked_callback(name: str, value: Any) -> OnDoomLoop:
    if not callable(value):
        raise TypeError(f"{name} must be callable as {name}(event, run), got {shown(value)}")
    if is_async(value):
        # It is called from wherever a guard steps in, where nobody could await it.
        raise TypeError(f"{name} must be a function that is not async, got {shown(value)}")
    return value


def check_provider(name: str, value: Any, method: str) -> None:
    """Raise if a provider is not one.

    Raises:
        TypeError: It is neither None nor has the method that makes a provider one.
    """
    if value is not None and not callable(getattr(value, method, None)):
        kind = "".join(part.capitalize() for part in name.split("_"))
        raise TypeError(f"{name} must be a {kind} or None, got {shown(value)}")


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "threshold": checked_number,
    "max_wasted_iterations": checked_count,
    "token_budget": checked_count,
    "events": _checked_events,
    "iteration_metrics": _checked_flag,
    "detectors": _checked_flag,
    "on_doom_loop": _checked_callback,
    "console": _checked_flag,
    "max_open_runs": checked_positive,
    "max_idle_s": _checked_seconds,
    "sigterm": _checked_flag,
}

_FLAGS = {
    "true": True,
    "1": True,
    "yes": True,
    "on": True,
    "false": False,
    "0": False,
    "no": False,
    "off": False,
}


def _parse(option: str, variable: str, text: str) -> Any:
    """The value that a variable's text means."""
    check = _CHECKS[option]
    if check is _checked_flag:
        flag = _FLAGS.get(text.lower())
        if flag is None:
            raise ValueError(f"{variable} must be true or false, got {text!r}")
        return flag
    if check in (checked_count, checked_positive):
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"{variable} must be a whole number, got {text!r}") from None
    if check in (checked_number, _checked_seconds):
        try:
            return float(text)
        except ValueError:
            raise ValueError(f"{variable} must be a number, got {text!r}") from None
    if check is _checked_callback:
        return _DeferredCallback(variable, text)
    return text.lower()


class _DeferredCallback:
    """``package.module:function``, imported when it is first called.

    Importing it at once would import the user's program before the program itself runs.
    """

    def __init__(self, variable: str, text: str) -> None:
        self._module, _, self._name = text.partition(":")
        if not self._module or not self._name:
            raise ValueError(f"{variable} must be 'package.module:function', got {text!r}")

    def __call__(self, event: Any, run: Any) -> object:
        return getattr(import_module(self._module), self._name)(event, run)
