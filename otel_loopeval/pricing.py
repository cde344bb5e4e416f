"""What model calls cost, from the price list of ``genai-prices`` (extra ``[cost]``).

A price is told only for a provider and a model that the list has: an unknown one gives no cost, never a
wrong one. The list comes with the package; nothing is fetched.
"""

from collections.abc import Callable
from datetime import datetime, timezone
from decimal import Decimal
from functools import lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

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
    # The list may be exchanged while we run. What comes of one keeps it alive, so that no other gets its id.
    return _cost_of(usage.provider, usage.model, id(_snapshot()))(usage, ended_ns)


@lru_cache(maxsize=256)
def _cost_of(provider: str | None, model: str, _list: int) -> Callable[[Usage, int], float | None]:
    """Tells what calls of a model cost."""
    named, _, rest = model.partition("/")
    if provider is None:
        provider = named if rest else ""
    provider_id = _list_name(provider)
    snapshot = _snapshot()
    if all(entry.id != provider_id for entry in snapshot.providers):  # it would guess
        return partial(_no_cost, snapshot)
    found = _find(snapshot, provider_id, model)
    if found is None and rest and _list_name(named) == provider_id:
        model = rest  # "openai/gpt-4o-mini", as routers write it
        found = _find(snapshot, provider_id, model)
    if found is None:
        return partial(_no_cost, snapshot)
    lines: dict[int, tuple[Any, _Line | None]] = {}  # by the prices of a time, which are kept alive

    def cost(usage: Usage, ended_ns: int) -> float | None:
        at = datetime.fromtimestamp(ended_ns / 1e9, timezone.utc) if ended_ns > 0 else None
        prices = found.get_prices(at or datetime.now(timezone.utc))
        known = lines.get(id(prices))
        if known is None:
            if len(lines) >= _MAX_LINES:
                lines.clear()
            known = lines[id(prices)] = prices, _line(prices)
        _, line = known
        if line is not None and min(usage[:4]) >= 0 and usage.input_tokens >= sum(usage[2:4]):
            return float(line.at(usage))
        try:
            return float(snapshot.calc(_counted(usage), model, provider_id, None, at).total_price)
        except (LookupError, ValueError):  # more cached tokens than there are
            return None

    return cost


def _no_cost(_list: Any, _usage: Usage, _ended_ns: int) -> None:
    """The cost of calls of a model that is not on the list."""


def _find(snapshot: Any, provider_id: str, model: str) -> Any:
    try:
        return snapshot.find_provider_model(model, None, provider_id, None)[1]
    except LookupError:
        return None


class _Line(NamedTuple):
    """Prices of a model that are the same for each token, however many there are; all in USD."""

    call: Decimal
    fresh: Decimal
    output: Decimal
    cached: Decimal
    cache_write: Decimal

    def at(self, usage: Usage) -> Decimal:
        """The cost of a call."""
        cached, written = usage.cached_tokens, usage.cache_write_tokens
        return (
            self.call
            + self.fresh * (usage.input_tokens - cached - written)
            + self.output * usage.output_tokens
            + self.cached * cached
            + self.cache_write * written
        )


_MANY = 1_000_000
_MAX_LINES = 100
"""Prices of a model that are remembered: it has a few, unless a later list makes new ones each time."""
_PROBES = (Usage(7, 5, 3, 2), Usage(9_876_543, 8_765_432, 3_456_789, 1_234_567))


def _line(prices: Any) -> _Line | None:
    """The prices as a line, by asking for points of it; None if they are none, as with tiers.

    To ask the list takes a hundred times as long as to multiply, and it is asked within the user's program.
    """

    def ask(usage: Usage) -> Decimal:
        return prices.calc_price(_counted(usage))["total_price"]

    try:
        call = ask(Usage(0, 0))
        points = (Usage(_MANY, 0), Usage(0, _MANY), Usage(_MANY, 0, _MANY), Usage(_MANY, 0, 0, _MANY))
        line = _Line(call, *((ask(point) - call) / _MANY for point in points))
        return line if all(line.at(probe) == ask(probe) for probe in _PROBES) else None
    except Exception:  # noqa: BLE001 - whatever a later list answers: then it is asked each time
        return None


def _counted(usage: Usage) -> Any:
    return import_module(_LIST).Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cached_tokens or None,
        cache_write_tokens=usage.cache_write_tokens or None,
    )


def _snapshot() -> Any:
    return import_module(_LIST + ".data_snapshot").get_snapshot()


def _list_name(provider: str) -> str:
    name = provider.lower()
    return _PROVIDERS.get(name, name)
