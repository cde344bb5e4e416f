"""Costs against the published prices of the day, written out by hand."""

import subprocess
import sys
from datetime import datetime, timezone

import pytest

from otel_loopeval.pricing import known_prices, price
from otel_loopeval.runs.usage import Usage, read_usage

pytest.importorskip("genai_prices", reason="the extra [cost] is not installed")

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
