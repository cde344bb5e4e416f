"""What model calls cost, from the price list of ``genai-prices`` (extra ``[cost]``).

A price is told only for a provider and a model that the list has: an unknown one gives no cost, never a
wrong one. The list comes with the package; nothing is fetched.
"""

from collections.abc import Callable
from datetime import datetime, timezone
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from otel_loopeval.runs.usage import Price, Usage

_LIST = "genai_prices"

_PROVIDERS = {
    # `gen_ai.provider.name` and what other conventions and libraries call the same → the list's name
    "aws.bedrock": "aws",
    "bedrock": "aws",
    "bedrock_converse": "aws",
    "amazon_bedrock": "aws",
    "azure.ai.inference": "azure",
    "azure.ai.openai": "azure",
    "azure_ai": "azure",
    "azure_openai": "azure",
    "cohere_chat": "cohere",
    "fireworks_ai": "fireworks",
    "gcp.gemini": "google",
    "gcp.gen_ai": "google",
    "gcp.vertex_ai": "google",
    "gemini": "google",
    "google_genai": "google",
    "google-gla": "google",
    "google-vertex": "google",
    "vertex_ai": "google",
    "vertexai": "google",
    "mistral_ai": "mistral",
    "mistralai": "mistral",
    "together_ai": "together",
    "x_ai": "x-ai",
    "xai": "x-ai",
}


def known_prices() -> Price | None:
    """Tells what a call cost; None where the extra ``[cost]`` is not installed.

    The list itself is loaded by :func:`load_prices`, or else when the first call is priced.
    """
    return price if find_spec(_LIST) is not None else None


def load_prices() -> None:
    """Load the list, if it is installed: as the process starts, and not while the program is at work.

    It imports an HTTP client, which the OpenAI SDK uses too as soon as ``sys.modules`` has it: calls that the
    program makes in other threads fail while the import goes on.
    """
    if find_spec(_LIST) is not None:
        _snapshot()


def prices_of_stored_calls() -> Price | None:
    """As :func:`known_prices`; whatever a stored span says, it does not raise."""
    known = known_prices()
    if known is None:
        return None

    def stored_price(usage: Usage, ended_ns: int) -> float | None:
        try:
            return known(usage, ended_ns)
        except Exception:  # noqa: BLE001 - a model, a number or a time that the list cannot take
            return None

    return stored_price


def price(usage: Usage, ended_ns: int) -> float | None:
    """The cost of a call in USD, or None where its provider or model is not on the list.

    Args:
        usage: What the call used.
        ended_ns: When it ended, in nanoseconds since the epoch: prices change. 0 for now.
    """
    if usage.model is None:
        return None
    cost = _price_of(usage.provider, usage.model)
    return None if cost is None else cost(usage, ended_ns)


@lru_cache(maxsize=256)
def _price_of(provider: str | None, model: str) -> Callable[[Usage, int], float | None] | None:
    """Tells what calls of a model cost; None if it is not on the list."""
    genai_prices: Any = import_module(_LIST)
    named, _, rest = model.partition("/")
    if provider is None:
        provider = named if rest else ""
    provider_id = _list_name(provider)
    if rest and _list_name(named) == provider_id:
        model = rest  # "openai/gpt-4o-mini", as routers write it
    if all(entry.id != provider_id for entry in _snapshot().providers):  # it would guess
        return None

    def cost(usage: Usage, ended_ns: int) -> float | None:
        at = datetime.fromtimestamp(ended_ns / 1e9, timezone.utc) if ended_ns > 0 else None
        try:
            found: Any = genai_prices.calc_price(
                genai_prices.Usage(
                    input_tokens=usage.input_tokens,
                    output_tokens=usage.output_tokens,
                    cache_read_tokens=usage.cached_tokens or None,
                    cache_write_tokens=usage.cache_write_tokens or None,
                ),
                model,
                provider_id=provider_id,
                genai_request_timestamp=at,
            )
        except (LookupError, ValueError):  # an unknown model; more cached tokens than there are
            return None
        return float(found.total_price)

    return cost


def _snapshot() -> Any:
    return import_module(_LIST + ".data_snapshot").get_snapshot()


def _list_name(provider: str) -> str:
    name = provider.lower()
    return _PROVIDERS.get(name, name)
