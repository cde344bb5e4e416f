"""The lowest supported praisonaiagents, with the built wheel: loops, guards, and what it has not yet."""

import json
import re
from collections.abc import Iterator
from importlib.metadata import requires, version
from pathlib import Path

import pytest
from support.environments import LOWEST_PRAISONAIAGENTS, Environment, make_environment

APP = Path(__file__).with_name("apps") / "lowest_praisonaiagents.py"

VARIABLES = {"OPENAI_API_KEY": "none", "PRAISONAI_TELEMETRY_DISABLED": "true", "DO_NOT_TRACK": "true"}

MISSING = [
    "scores while loops run: type object 'EvaluationLoop' has no attribute '_score'",
    "goal loops: Agent.run_goal",
    "permission gates: type object 'Agent' has no attribute '_check_permission_manager_doom_loop'",
    "approval of tool loops: type object 'Agent' has no attribute '_ensure_loop_detector'",
]
"""What it has not, each with one line in the log."""

UNHEALTHY = (
    "LoopHealthEvaluator_1 failed: unhealthy loop, 0.0/10: Converged in 3 iteration(s). "
    "Doom-loop guard fired. 1 guard intervention(s)."
)


@pytest.fixture(scope="module")
def lowest(wheel: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """The wheel with that version."""
    yield from make_environment(
        "lowest-praisonaiagents",
        [f"{wheel}[praisonai]"],
        [f"praisonaiagents=={LOWEST_PRAISONAIAGENTS}"],
        tmp_path_factory.mktemp("environment"),
    )


def test_the_lowest_is_what_the_package_asks_for() -> None:
    asked = [re.match(r"praisonaiagents\[llm\]>=([\w.]+)", item) for item in requires("otel-loopeval") or []]

    assert {match[1] for match in asked if match} == {LOWEST_PRAISONAIAGENTS}


def test_the_newest_is_not_the_lowest() -> None:
    """The other tests run on another version, or one of the two would be untested."""
    assert tuple(map(int, version("praisonaiagents").split("."))) >= (1, 7, 17)


def test_loops_guards_and_what_is_missing(lowest: Environment, tmp_path: Path) -> None:
    done = lowest.run(["python", str(APP)], VARIABLES, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.partition("TOLD ")[2].splitlines()[0])
    assert told == {
        "runs": [
            ["evaluation_loop healthy", True, 2, 9.0],
            ["evaluation_loop stuck", False, 3, 9.0],
            ["evaluation_loop guarded", False, 0, None],
            ["agent_loop worker", True, 2, None],
        ],
        "guards": [
            "praisonaiagents.escalation repeated_action recover",
            "praisonaiagents.autonomy repeated_action recover",
            "praisonaiagents.loop_guard repeated_action warn",
            "praisonaiagents.loop_guard no_progress warn",
            "praisonaiagents.permissions repeated_action observe",
            "praisonaiagents.loop_detection repeated_action warn",
            "praisonaiagents.loop_detection repeated_action block",
            "praisonaiagents.loop_detection_plugin repeated_action warn",
            "praisonaiagents.autonomy repeated_action recover",
            "praisonaiagents.observability loop_detected observe",
        ],
        "evaluators": [True, False],
        "suite": [False, [UNHEALTHY]],
        "errors": [],
    }
    lines = re.findall(r"this version of praisonaiagents is not followed in its (.*)", done.stderr)
    assert sorted(lines) == sorted(MISSING)
