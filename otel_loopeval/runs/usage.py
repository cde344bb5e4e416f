"""Token usage that a model call's span reports."""

from collections.abc import Mapping
from typing import Any

from otel_loopeval import semconv


def read_usage(attributes: Mapping[str, Any]) -> tuple[int, int] | None:
    """The input and output tokens that a span reports, or None if it reports none.

    Reads ``gen_ai.usage.input_tokens`` and ``gen_ai.usage.output_tokens`` (GenAI semantic conventions).
    """
    input_tokens = attributes.get(semconv.GEN_AI_USAGE_INPUT_TOKENS)
    output_tokens = attributes.get(semconv.GEN_AI_USAGE_OUTPUT_TOKENS)
    if input_tokens is None and output_tokens is None:
        return None
    return _tokens(input_tokens), _tokens(output_tokens)


def _tokens(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
