"""What importing the room costs: nothing but the standard library."""

import subprocess
import sys

import pytest

import otel_loopeval.evaluation as room


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "use",
    [
        "",
        "EvaluationLoop(str.upper, '', metric=len).run('x')",
        "Judge('is clear')",
        "GoalLoop(str.upper, 'g', judge=lambda o: True).run('x')",
    ],
    ids=["import", "metric loop", "making a judge", "goal loop"],
)
def test_only_the_standard_library_is_imported(use: str):
    code = (
        "import sys; before = set(sys.modules)\n"
        "from otel_loopeval.evaluation import EvaluationLoop, GoalLoop, Judge\n"
        f"{use}\n"
        "roots = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(roots - sys.stdlib_module_names))"
    )

    assert run_python(code) == "['otel_loopeval']\n"


def test_nothing_else_of_the_project_is_imported():
    code = (
        "import otel_loopeval.evaluation, sys\n"
        "print(sorted(n for n in sys.modules if n.startswith('otel_loopeval.')"
        " and not n.startswith('otel_loopeval.evaluation')))"
    )

    assert run_python(code) == "['otel_loopeval.version']\n"


def test_the_exported_names_are_complete_and_sorted():
    assert room.__all__ == [
        "AutonomyResult",
        "EvaluationLoop",
        "EvaluationLoopResult",
        "GoalCriteria",
        "GoalLoop",
        "IterationResult",
        "Judge",
        "JudgeError",
        "JudgeResult",
        "StopLoop",
        "run_until",
        "run_until_async",
    ]
    assert all(hasattr(room, name) for name in room.__all__)
