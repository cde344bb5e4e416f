"""Costs against the published prices of the day, written out by hand."""

import subprocess
import sys
from datetime import datetime, timezone

import pytest

from otel_loopeval.pricing import known_prices, price
from otel_loopeval.runs.usage import Usage, read_usage

genai_prices = pytest.importorskip("genai_prices", reason="the extra [cost] is not installed")

from genai_prices.data_snapshot import get_snapshot  # noqa: E402 - it is there
from genai_prices.types import TieredPrices  # noqa: E402

LATE_2026 = int(datetime(2026, 11, 1, tzinfo=timezone.utc).timestamp() * 1e9)


@pytest.mark.parametrize(
    ("provider", "address", "paid"),
    [
        ("openai", "api.openai.com", "openai"),
        ("openai", "eu.api.openai.com", "openai"),
        ("openai", None, "openai"),
        ("openai", "127.0.0.1", None),
        ("openai", "gateway.example.com", None),
        ("openai", "notopenai.com", None),
        ("groq", "gateway.example.com", "groq"),
        (None, "api.openai.com", None),
    ],
)
def test_who_speaks_the_api_of_openai_need_not_be_openai(
    provider: str | None, address: str | None, paid: str | None
) -> None:
    attributes = {"gen_ai.usage.input_tokens": 1, "gen_ai.provider.name": provider, "server.address": address}
    usage = read_usage(attributes)
    assert usage is not None
    assert usage.provider == paid


def test_the_price_list_is_found_where_it_is_installed() -> None:
    assert known_prices() is price


@pytest.mark.parametrize(
    "beginning",
    [
        "otel_loopeval.instrument(console=False)",
        "otel_loopeval.LoopHealthProcessor()",
        "with otel_loopeval.loop('writer'): pass",
    ],
)
def test_the_price_list_is_loaded_before_anything_is_priced(beginning: str) -> None:
    """Loaded later, it breaks calls that the program makes through the OpenAI SDK in other threads."""
    program = f"import sys, otel_loopeval\n{beginning}\nprint('genai_prices' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "True\n"


@pytest.mark.parametrize(
    ("usage", "usd"),
    [
        # gpt-4o-mini: 0.15 USD a million input tokens, 0.60 output, 0.075 cached
        (Usage(1_000_000, 0, model="gpt-4o-mini", provider="openai"), 0.15),
        (Usage(0, 1_000_000, model="gpt-4o-mini", provider="openai"), 0.60),
        (Usage(1_000, 100, 500, model="gpt-4o-mini", provider="openai"), 0.0001725),
        (Usage(1_000, 100, model="gpt-4o-mini-2024-07-18", provider="openai"), 0.00021),
        (Usage(1_000, 100, model="openai/gpt-4o-mini", provider="openai"), 0.00021),
        (Usage(1_000, 100, model="openai/gpt-4o-mini"), 0.00021),
        # reasoning tokens are a part of the output
        (Usage(1_000, 100, reasoning_tokens=80, model="gpt-4o-mini", provider="openai"), 0.00021),
        # claude-sonnet-4-5: 3 USD a million input tokens, 15 output
        (Usage(1_000, 100, model="claude-sonnet-4-5", provider="anthropic"), 0.0045),
        (Usage(1_000, 100, model="mistral-large-latest", provider="mistral_ai"), 0.0026),
        (Usage(1_000, 100, model="gpt-4o", provider="azure.ai.openai"), 0.0035),
        (Usage(0, 0, model="gpt-4o-mini", provider="openai"), 0.0),
    ],
)
def test_known_models_cost_what_their_provider_asks(usage: Usage, usd: float) -> None:
    assert price(usage, LATE_2026) == pytest.approx(usd, rel=1e-9)


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        (None, "openai"),
        ("stub-model", "openai"),
        ("gpt-4o-mini", None),  # anybody may serve a model of this name
        ("gpt-4o-mini", "my-gateway"),
        ("gpt-4o-mini", "not.openai.com"),  # a list that guesses would find "openai" in it
        ("ft:gpt-4o-mini:acme::1", "openai"),
        ("llama3", "ollama"),
        ("", "openai"),
        ("/", "openai"),
        ("gpt-4o-mini/", None),
    ],
)
def test_unknown_models_and_providers_have_no_cost(model: str | None, provider: str | None) -> None:
    assert price(Usage(1_000, 100, model=model, provider=provider), LATE_2026) is None


def test_more_cached_tokens_than_there_are_give_no_cost() -> None:
    assert price(Usage(10, 1, 500, model="gpt-4o-mini", provider="openai"), LATE_2026) is None


def test_a_cost_is_what_the_list_itself_computes_for_every_model_at_any_time() -> None:
    """Prices that are the same for each token are asked for once; tiers and times of day are minded."""
    kinds = {"of a time": 0, "tiered": 0}
    for provider in get_snapshot().providers:
        for model in provider.models[:40]:
            for usage in (
                Usage(1_234, 567, 89, 12, model=model.id, provider=provider.id),
                Usage(2_345_678, 98_765, 1_000_000, model=model.id, provider=provider.id),
            ):
                for ended_ns in (1_735_700_000_000_000_000, 1_780_000_000_000_000_000):
                    assert price(usage, ended_ns) == asked(usage, ended_ns), (usage, ended_ns)
            if isinstance(model.prices, list):
                kinds["of a time"] += 1
            elif any(isinstance(part, TieredPrices) for part in vars(model.prices).values()):
                kinds["tiered"] += 1
    assert min(kinds.values()) > 3  # of each there were some


def asked(usage: Usage, ended_ns: int) -> float | None:
    counted = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cached_tokens or None,
        cache_write_tokens=usage.cache_write_tokens or None,
    )
    at = datetime.fromtimestamp(ended_ns / 1e9, timezone.utc)
    model = usage.model or ""
    try:
        return float(
            genai_prices.calc_price(
                counted, model, provider_id=usage.provider, genai_request_timestamp=at
            ).total_price
        )
    except (LookupError, ValueError):
        return None
