"""Each example runs as a program of its own and says what its comments promise."""

from pathlib import Path

import pytest
from support.environments import ROOT
from support.otlp import OtlpReceiver
from support.processes import StubProcess, run_python, this_environment

EXAMPLES = ROOT / "examples"


def test_every_example_has_a_test_and_a_line_in_the_list() -> None:
    names = {path.name for path in EXAMPLES.glob("*.py")}

    assert names == {
        "ci_gate.py",
        "guard_events.py",
        "hand_written_loop.py",
        "praisonai_tour.py",
        "praisonai_zero_code.py",
        "spark_fleet.py",
        "stop_on_doom_loop.py",
    }
    listed = (EXAMPLES / "README.md").read_text()
    assert all(f"[{name}]({name})" in listed for name in names)


def test_hand_written_loop(tmp_path: Path) -> None:
    done = run_python([str(EXAMPLES / "hand_written_loop.py")], cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "scores: [1.0, 7.0, 10.0]",
        "verdict: Converged in 3 iteration(s).",
    ]
    assert done.stderr.startswith("loopeval: HEALTHY explainer [optimize] 3 iteration(s), best 10 of 8, ")
    assert len(done.stderr.splitlines()) == 1


def test_guard_events(tmp_path: Path) -> None:
    done = run_python([str(EXAMPLES / "guard_events.py")], cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "converged: True",
        "doom loop fired: True",
        "passed: False",
        "verdict: Converged in 3 iteration(s). Doom-loop guard fired. 1 guard intervention(s).",
    ]
    assert done.stderr.startswith("loopeval: UNHEALTHY researcher ")


def test_stop_on_doom_loop(tmp_path: Path) -> None:
    done = run_python([str(EXAMPLES / "stop_on_doom_loop.py")], cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    first, last = done.stdout.splitlines()
    assert first == "doom loop: repeated_action of search"
    assert last == "stopped after 4 of 50 iterations"
    assert done.stderr.startswith("loopeval: UNHEALTHY searcher ")


@pytest.mark.parametrize(
    ("arguments", "status", "last_line"),
    [
        ([], 0, None),
        (
            ["--doom-loop"],
            1,
            "Loop unhealthy: Converged in 3 iteration(s). Doom-loop guard fired. 1 guard intervention(s).",
        ),
    ],
)
def test_ci_gate(tmp_path: Path, arguments: list[str], status: int, last_line: str | None) -> None:
    done = run_python([str(EXAMPLES / "ci_gate.py"), *arguments], {"PYTHONUTF8": "1"}, cwd=tmp_path)

    assert done.returncode == status, done.stderr
    assert done.stderr == ""
    assert ("UNHEALTHY" if status else "✅ HEALTHY") in done.stdout
    if last_line is not None:
        assert done.stdout.splitlines()[-1] == last_line


def test_praisonai_zero_code(tmp_path: Path) -> None:
    """On a stub of the model, with a real receiver in place of the backend."""
    with StubProcess() as stub, OtlpReceiver() as receiver:
        done = this_environment().run(
            ["opentelemetry-instrument", "python", str(EXAMPLES / "praisonai_zero_code.py")],
            {**stub.environment(), **receiver.environment("grpc"), "OTEL_SERVICE_NAME": "writer"},
            cwd=tmp_path,
        )
        received = receiver.received()

    assert done.returncode == 0, done.stderr
    assert "**Final Score**: 9.0/10" in done.stdout
    root = received.span("evaluation_loop writer")
    assert root["attributes"]["loopeval.health.passed"] is True
    scores = [span["attributes"]["loopeval.iteration.score"] for span in received.children(root)]
    assert scores == [5.0, 7.0, 9.0]
    assert received.total("loopeval.runs") == 1
