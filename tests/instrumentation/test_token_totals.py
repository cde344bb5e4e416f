"""What runs count is what was served: to the token, however the package calls the model, many loops at once.

In processes of their own, since the package reads its environment when it is imported.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        importlib.util.find_spec("litellm") is None, reason="praisonaiagents' judge needs litellm"
    ),
]

APP = Path(__file__).with_name("token_totals_app.py")
OPENAI, RESPONSES, LITELLM = "gpt-4o-mini", "openai/gpt-4o-mini", "openai/custom"
"""Through the OpenAI SDK; through LiteLLM and the Responses API; through LiteLLM and the SDK."""


def told(**case: Any) -> dict[str, Any]:
    """What the program printed."""
    done = subprocess.run(
        [sys.executable, str(APP), json.dumps(case)],
        env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("TOLD ")]
    assert lines, done.stderr[-4000:]
    return json.loads(lines[0].removeprefix("TOLD "))


@pytest.mark.parametrize(
    "case",
    [
        {"model": OPENAI, "loops": 3},
        {"model": OPENAI, "loops": 3, "stream": True, "sampler": "ratio"},
        {"model": OPENAI, "loops": 3, "how": "achat"},
        {"model": OPENAI, "loops": 3, "how": "achat", "stream": True, "sampler": "always_off"},
        {"model": RESPONSES, "loops": 3, "sampler": "always_off"},
        {"model": RESPONSES, "loops": 3, "how": "achat", "stream": True},
        {"model": LITELLM, "loops": 3, "sampler": "ratio"},
        {"model": LITELLM, "loops": 3, "how": "achat"},
        {"model": LITELLM, "loops": 3, "how": "iter_stream"},
        {"model": OPENAI, "loops": 50, "sampler": "ratio"},
        {"model": OPENAI, "loops": 50, "how": "achat", "stream": True, "sampler": "always_off"},
    ],
    ids=lambda case: "-".join(str(value) for value in case.values()),
)
def test_runs_and_iterations_count_what_was_served(case: dict[str, Any]) -> None:
    got = told(**case)
    assert got["counted"] == got["served"]
    assert len(got["served"]) == case["loops"]
    for of in got["served"].values():
        assert len(of["iterations"]) == 2
        assert all(sum(tokens) > 100 for tokens in of["iterations"])
        assert of["judge"][0] > 200
    totals = [sum(map(sum, (of[kind] for of in got["served"].values()))) for kind in ("run", "judge")]
    assert [got["tokens"], got["judge_tokens"]] == totals
    assert got["errors"] == {}


def test_the_spans_of_a_loop() -> None:
    (root,) = told(traced=True)["tree"]
    assert [child["name"] for child in root["children"]] == ["evaluation_loop.iteration"] * 2
    for it in root["children"]:
        assert [span["name"] for span in it["children"]] == [
            "chat gpt-4o-mini",
            "execute_tool look_up",
            "execute_tool look_up",
            "chat gpt-4o-mini",
            "evaluate",
        ]
        assert [span["name"] for span in it["children"][-1]["children"]] == ["chat gpt-4o-mini"]


def test_streams_of_which_nobody_says_what_they_used_count_nothing() -> None:
    """The package asks LiteLLM for no usage of streams, and what is not asked for is not made up."""
    got = told(model=LITELLM, stream=True)
    assert got["counted"] == got["served"]
    assert got["served"]["conversation-0"]["run"] == [0, 0]
    assert got["tokens"] == 0
