"""Fingerprints of steps on spans, so that stored traces can be judged whose content was not captured."""

import os
from functools import cache
from secrets import token_bytes
from typing import TYPE_CHECKING, Any

from otel_loopeval import semconv
from otel_loopeval.detect.fingerprint import Fingerprints
from otel_loopeval.otel import _sdk
from otel_loopeval.runs.dialects import reading
from otel_loopeval.runs.dialects.facts import TOOL, look_of
from otel_loopeval.runs.following import kind_of

if TYPE_CHECKING:
    from otel_loopeval.otel.options import Options
    from otel_loopeval.runs.spans import SpanData


@cache
def _fingerprints() -> Fingerprints:
    """Under ``LOOPEVAL_FINGERPRINT_KEY``, else under a random key of this process."""
    key = os.environ.get(semconv.ENV_FINGERPRINT_KEY, "").strip()
    return Fingerprints(key.encode("utf-8", "backslashreplace") if key else token_bytes(16))


def step_attributes(name: str, arguments: Any, result: Any = None, error: Any = None) -> dict[str, Any]:
    """The fingerprints of a tool call, as attributes for its span.

    Args:
        name: Name of the tool.
        arguments: Its arguments; None where they are not known, and then there are no fingerprints.
        result: What it returned; None where that is not known.
        error: What went wrong, or None.
    """
    if arguments is None:
        return {}
    made = _fingerprints()
    attributes: dict[str, Any] = {semconv.STEP_FINGERPRINT: made.step(name, arguments)}
    if result is not None or error is not None:
        attributes[semconv.STEP_RESULT_FINGERPRINT] = made.result(result, error)
    return attributes


def put_on(options: "Options", span: Any, neutral: "SpanData") -> None:
    """Put the fingerprints of a tool call on its span, which is about to end and shows its arguments."""
    attributes = neutral.attributes
    if not options.detectors or semconv.STEP_FINGERPRINT in attributes or kind_of(look_of(neutral)) != TOOL:
        return
    use = reading.tool_of(neutral)
    error = reading.error_of(neutral) or use.error
    found = step_attributes(use.name or neutral.name, use.arguments, use.result, error)
    if found:
        _sdk.set_on_ending(span, found)
