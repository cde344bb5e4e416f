"""PraisonAI's model calls where the app has an instrumentation of its own: its spans stay, ours stay out."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.environments import ROOT, Environment, build_wheel, make_environment

APP = ROOT / "tests" / "instrumentation" / "token_totals_app.py"
OURS = "otel_loopeval.instrumentation.praisonaiagents"
OPENAI, RESPONSES, LITELLM = "gpt-4o-mini", "openai/gpt-4o-mini", "openai/custom"
GENAI = "opentelemetry.util.genai.handler"
OPENLLMETRY = "opentelemetry.instrumentation.openai.v1"
OPENINFERENCE = "openinference.instrumentation.openai"
OPENINFERENCE_LITELLM = "openinference.instrumentation.litellm"


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """An environment with the instrumentations of others; no version of ours depends on them."""
    scratch = tmp_path_factory.mktemp("others")
    requirements = [
        f"{build_wheel(scratch)}[praisonai]",
        "opentelemetry-instrumentation-openai-v2",
        "opentelemetry-instrumentation-openai",
        "openinference-instrumentation-openai",
        "openinference-instrumentation-litellm",
    ]
    # openai-v2 imports a module that its dependency has dropped since, and asks for no older one.
    constraints = ["opentelemetry-util-genai<1.2"]
    yield from make_environment("others", requirements, constraints, scratch)


def told(environment: Environment, tmp_path: Path, case: dict[str, Any]) -> dict[str, Any]:
    """What the program printed."""
    variables = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    done = environment.run(["python", str(APP), json.dumps(case)], variables, cwd=tmp_path, timeout_s=300)
    lines = [line for line in done.stdout.splitlines() if line.startswith("TOLD ")]
    assert lines, done.stderr[-4000:]
    return json.loads(lines[0].removeprefix("TOLD "))


def scopes(spans: list[dict[str, Any]]) -> list[str]:
    """Scopes of the spans that are neither tools' nor judges' own."""
    return [span["scope"] for span in spans if not span["name"].startswith(("execute_tool", "evaluate"))]


@pytest.mark.parametrize(
    ("case", "agents", "judges"),
    [
        ({"others": ["openai-v2"]}, GENAI, GENAI),
        ({"others": ["openai-v2"], "late": True, "stream": True}, GENAI, GENAI),
        ({"others": ["openai-v2"], "model": LITELLM}, GENAI, GENAI),
        # The Responses API of LiteLLM does without the SDK, so that nobody else records it.
        ({"others": ["openai-v2"], "model": RESPONSES}, OURS, GENAI),
        ({"others": ["openllmetry"]}, OPENLLMETRY, OPENLLMETRY),
        ({"others": ["openllmetry"], "late": True, "how": "achat"}, OPENLLMETRY, OPENLLMETRY),
        ({"others": ["openinference-openai"], "how": "achat", "stream": True}, OPENINFERENCE, OPENINFERENCE),
        ({"others": ["openinference-litellm"], "model": LITELLM}, *[OPENINFERENCE_LITELLM] * 2),
        (
            {"others": ["openinference-litellm"], "model": RESPONSES, "late": True},
            *[OPENINFERENCE_LITELLM] * 2,
        ),
        ({"others": ["openinference-litellm"]}, OURS, OPENINFERENCE_LITELLM),
        ({"others": ["openai-v2", "openinference-litellm"], "model": LITELLM}, *[OPENINFERENCE_LITELLM] * 2),
        ({"others": ["litellm-callback"], "model": LITELLM, "request_span": True}, "litellm", "litellm"),
        ({"others": ["litellm-callback"], "model": RESPONSES, "stream": True}, "litellm", OURS),
        # It writes on the current span, and makes none: ours is that span, and it does not get at it.
        ({"others": ["litellm-callback"], "model": LITELLM}, OURS, OURS),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_each_call_is_recorded_once_where_it_belongs_and_counted_once(
    others: Environment, tmp_path: Path, case: dict[str, Any], agents: str, judges: str
) -> None:
    got = told(others, tmp_path, {**case, "traced": True})
    assert got["counted"] == got["served"]
    assert sum(got["served"]["conversation-0"]["run"]) == got["tokens"] > 400
    assert sum(got["served"]["conversation-0"]["judge"]) == got["judge_tokens"]
    (root,) = got["tree"]
    iterations = root["children"]
    assert [span["name"] for span in iterations] == ["evaluation_loop.iteration"] * 2
    assert set(scopes([span for it in iterations for span in it["children"]])) == {agents}
    evaluated = [span for it in iterations for span in it["children"] if span["name"] == "evaluate"]
    assert [scopes(span["children"]) for span in evaluated] == [[judges], [judges]]
    # Nothing of what others say about a call is on a span of the loop.
    told_of_calls = [key for span in (root, *iterations, *evaluated) for key in span["attributes"]]
    assert not [key for key in told_of_calls if key.startswith(("gen_ai.usage", "gen_ai.response", "llm."))]
    assert got["errors"] == {}


@pytest.mark.parametrize("name", ["openai-v2", "openllmetry", "openinference-openai", "litellm-callback"])
def test_tokens_are_counted_where_the_sampler_drops_the_spans_of_others(
    others: Environment, tmp_path: Path, name: str
) -> None:
    case = {"others": [name], "model": LITELLM, "loops": 3, "sampler": "always_off", "traced": True}
    got = told(others, tmp_path, case)
    assert got["counted"] == got["served"]
    assert sum(sum(of["run"]) for of in got["served"].values()) == got["tokens"]
    assert (got["tree"], got["errors"]) == ([], {})
