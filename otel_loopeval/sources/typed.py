"""Attribute values of stores that keep them as texts."""

import json
import math
from typing import Any, cast

from otel_loopeval import semconv

_LONGEST = 10_000
_OURS = semconv.RUN_MODE.split(".", 1)[0] + "."
# Every name of ours but these is of a flag, a number or a list.
_TEXTS = frozenset(
    {
        semconv.RUN_MODE,
        semconv.RUN_FRAMEWORK,
        semconv.RUN_ID,
        semconv.RUN_OUTCOME,
        semconv.RUN_COMPLETION_REASON,
        semconv.RUN_STAGE,
        semconv.HEALTH_REASONING,
        semconv.HEALTH_EVIDENCE,
        semconv.ITERATION_STAGE,
        semconv.STEP_FINGERPRINT,
        semconv.STEP_RESULT_FINGERPRINT,
        semconv.GUARD_KIND,
        semconv.GUARD_SOURCE,
        semconv.GUARD_ACTION,
        semconv.GUARD_TOOL,
        semconv.GUARD_RULE,
        semconv.GUARD_REASON,
    }
)
# Of other people's names, those that verdicts are made of.
_TYPED = (
    _OURS,
    semconv.GEN_AI_USAGE_INPUT_TOKENS.rpartition(".")[0],
    semconv.LLM_TOKEN_COUNT_PROMPT.rpartition(".")[0],
    semconv.LLM_USAGE_PROMPT_TOKENS.rpartition(".")[0],
    semconv.VERCEL_USAGE_PROMPT.rpartition(".")[0],
    semconv.GEN_AI_EVALUATION_SCORE_VALUE,
    semconv.GEN_AI_RESPONSE_FINISH_REASONS,
)


def typed(key: str, text: str) -> Any:
    """The value of an attribute that a store has as text.

    Where the name says that the value is a flag, a number or a list, it is read as that; any other text
    stays one, since a text may well look like a number.

    Args:
        key: Name of the attribute.
        text: Its value.
    """
    if len(text) > _LONGEST or not key.startswith(_TYPED) or key in _TEXTS:
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return tuple(items) if all(isinstance(item, str | bool | int | float) for item in items) else text
    if isinstance(value, float) and not math.isfinite(value):
        return text
    return value if isinstance(value, bool | int | float) else text
