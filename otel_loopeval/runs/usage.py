"""What a model call used, as its span reports it, and what that cost."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from otel_loopeval import semconv


class Usage(NamedTuple):
    """What one model call used.

    Attributes:
        input_tokens: Tokens of the prompt, cached ones included.
        output_tokens: Tokens of the answer, reasoning included.
        cached_tokens: Input tokens that were read from a cache.
        cache_write_tokens: Input tokens that were written to a cache.
        reasoning_tokens: Output tokens that were spent on reasoning.
        model: The model that answered, else the one that was asked for; None where unknown.
        provider: Who served it and is paid for it (``gen_ai.provider.name``), or None where unknown.
    """

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    model: str | None = None
    provider: str | None = None


_DIGITS = 16
_OPENAI = "openai"
_OPENAI_DOMAIN = ".openai.com"

Price = Callable[[Usage, int], "float | None"]
"""The cost in USD of a call that ended at a time (nanoseconds since the epoch); None where it is unknown."""


class Spent(NamedTuple):
    """What was counted of one model call.

    Attributes:
        usage: What it used.
        cost_usd: What it cost, or None where that is unknown.
        judging: Whether a judge made it, not the agent.
    """

    usage: Usage
    cost_usd: float | None
    judging: bool


class Spending:
    """Sums over model calls.

    Attributes:
        input_tokens: Input tokens.
        output_tokens: Output tokens.
        known_cost_usd: Cost of the calls whose cost is known.
        unpriced: Whether there was a call whose cost is not known.
    """

    __slots__ = ("input_tokens", "known_cost_usd", "output_tokens", "unpriced")

    def __init__(self) -> None:
        self.input_tokens = 0
        self.output_tokens = 0
        self.known_cost_usd = 0.0
        self.unpriced = False

    def add(self, usage: Usage, cost_usd: float | None) -> None:
        """Count one call."""
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        if cost_usd is None:
            self.unpriced = True
        else:
            self.known_cost_usd += cost_usd

    @property
    def tokens(self) -> int:
        """Input plus output tokens."""
        return self.input_tokens + self.output_tokens

    @property
    def cost_usd(self) -> float | None:
        """What the calls cost; None if that is unknown of any: a part of the cost would be a wrong cost."""
        return None if self.unpriced else self.known_cost_usd


def read_usage(attributes: Mapping[str, Any]) -> Usage | None:
    """What a span says that it used, or None if it reports no tokens.

    Reads the ``gen_ai.usage.*`` attributes (GenAI semantic conventions v0.1.0, where cached tokens are a
    part of the input and reasoning tokens a part of the output).
    """
    input_tokens = attributes.get(semconv.GEN_AI_USAGE_INPUT_TOKENS)
    output_tokens = attributes.get(semconv.GEN_AI_USAGE_OUTPUT_TOKENS)
    if input_tokens is None and output_tokens is None:
        return None
    cache_write = attributes.get(semconv.GEN_AI_USAGE_CACHE_WRITE_INPUT_TOKENS)
    if cache_write is None:
        cache_write = attributes.get(semconv.GEN_AI_USAGE_CACHE_CREATION_INPUT_TOKENS)
    return Usage(
        tokens_of(input_tokens),
        tokens_of(output_tokens),
        tokens_of(attributes.get(semconv.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS)),
        tokens_of(cache_write),
        tokens_of(attributes.get(semconv.GEN_AI_USAGE_REASONING_OUTPUT_TOKENS)),
        _text(attributes.get(semconv.GEN_AI_RESPONSE_MODEL))
        or _text(attributes.get(semconv.GEN_AI_REQUEST_MODEL)),
        seller(
            _text(attributes.get(semconv.GEN_AI_PROVIDER_NAME))
            or _text(attributes.get(semconv.GEN_AI_SYSTEM)),
            _text(attributes.get(semconv.SERVER_ADDRESS)),
        ),
    )


def seller(provider: str | None, address: str | None) -> str | None:
    """Who is to be paid for a call; None where nobody knows.

    Instrumentations say ``openai`` of whatever speaks OpenAI's API: a gateway, or a server on this machine.

    Args:
        provider: The provider, as ``gen_ai.provider.name`` has it.
        address: Host of the API, or None where that is not told.
    """
    elsewhere = address is not None and not f".{address}".endswith(_OPENAI_DOMAIN)
    return None if provider == _OPENAI and elsewhere else provider


def tokens_of(value: Any) -> int:
    """A number of tokens that somebody reports; 0 for what is none.

    Platforms export attributes as text: a number in decimal digits is one.
    """
    if value.__class__ is int:  # nearly always
        return max(0, value)
    if isinstance(value, str) and value.isdecimal() and len(value) < _DIGITS:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
