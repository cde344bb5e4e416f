"""Loops and the guards that the lowest supported praisonaiagents has, in one program, and prints them."""

import json
from types import SimpleNamespace
from typing import Any

from praisonaiagents import Agent
from praisonaiagents.agent import loop_detection as tool_loops
from praisonaiagents.agent.autonomy import DoomLoopTracker
from praisonaiagents.agent.loop_detection import LoopDetectionConfig
from praisonaiagents.escalation.doom_loop import DoomLoopDetector
from praisonaiagents.escalation.loop_guard import LoopGuard
from praisonaiagents.escalation.observability import EventType, ObservabilityHooks
from praisonaiagents.eval import EvalSuite, LoopEvaluator
from praisonaiagents.eval.loop import EvaluationLoop
from praisonaiagents.hooks.events import BeforeToolInput
from praisonaiagents.permissions.doom_loop import DoomLoopDetector as PermissionsDetector
from praisonaiagents.plugins import loop_detection_plugin

from otel_loopeval import loop
from otel_loopeval.suite import LoopHealthEvaluator
from otel_loopeval.testing import Capture

capture = Capture()
capture.instrument(detectors=False)


class Judge:
    """Scores in order."""

    def __init__(self, *scores: float) -> None:
        self._scores = iter(scores)

    def run(self, **_kwargs: Any) -> Any:
        return SimpleNamespace(score=next(self._scores), reasoning="", suggestions=[])


class Stuck:
    """An agent whose own guard fires in its third turn."""

    name = "stuck"

    def __init__(self) -> None:
        self.detector = DoomLoopDetector()

    def chat(self, _prompt: str) -> str:
        self.detector.record_action("read_file", {"path": "a.py"}, "content", success=True)
        return f"answer {len(self.detector._actions)}"


def evaluation_loop(agent: Any, *scores: float) -> Any:
    return EvaluationLoop(agent, "is thorough", judge=Judge(*scores), max_iterations=len(scores))


def guards() -> None:
    tracker = DoomLoopTracker()
    for _ in range(3):
        tracker.record("bash", {}, "content", True)
    guard = LoopGuard()
    for _ in range(7):
        guard.check("bash", {})
        guard.record("bash", {}, True)
    permissions = PermissionsDetector()
    for _ in range(4):
        permissions.record_and_check("bash", {})
    history: list[Any] = []
    config = LoopDetectionConfig(enabled=True, warn_threshold=2, critical_threshold=3)
    for _ in range(3):
        tool_loops.record_tool_call(history, "bash", {}, config)
        tool_loops.detect_tool_loop(history, "bash", {}, config)
    call = BeforeToolInput("s", "/", "before_tool", "0", tool_name="bash", tool_input={})
    for _ in range(11):
        loop_detection_plugin._loop_detection_hook(call)
    agent = Agent(name="writer", instructions="Write.", autonomy=True, output="silent")
    for _ in range(3):
        agent._record_action("chat", {}, "the same", True)
    agent._get_doom_recovery()
    ObservabilityHooks().emit(EventType.STEP_END, {"doom_loop": True})


class Worker(Agent):
    """An agent that is done at its second turn, which nothing of this version announces but the question."""

    answers = iter(["Step 1 of the work", "All done."])

    def chat(self, prompt: str, *_: Any, **__: Any) -> str:
        return next(self.answers)


healthy = evaluation_loop(SimpleNamespace(name="healthy", chat=lambda prompt: prompt), 5.0, 9.0).run("task")
stuck = evaluation_loop(Stuck(), 5.0, 5.0, 9.0).run("task")
with loop("guarded"):
    guards()
autonomy = {"level": "full_auto", "mode": "iterative", "track_changes": False}
worker = Worker(name="worker", instructions="Work.", autonomy=autonomy, output="silent")
worker.run_autonomous("Refactor the whole auth module and then write the tests and the docs")

suite = EvalSuite([LoopHealthEvaluator(healthy), LoopHealthEvaluator(stuck)]).run(print_summary=False)
print(
    "TOLD "
    + json.dumps(
        {
            "runs": [
                [
                    span["name"],
                    span["attributes"]["loopeval.health.passed"],
                    span["attributes"]["loopeval.run.iterations"],
                    span["attributes"].get("loopeval.run.final_score"),
                ]
                for span in capture.spans()
                if "loopeval.run.iterations" in span["attributes"]
            ],
            "guards": [
                " ".join(
                    event["attributes"][f"loopeval.guard.{name}"] for name in ("source", "kind", "action")
                )
                for span in capture.spans()
                for event in span["events"]
                if event["name"] == "loopeval.guard"
            ],
            "evaluators": [LoopEvaluator().run(result).passed for result in (healthy, stuck)],
            "suite": [suite.success, suite.errors],
            "errors": capture.points("loopeval.tracker.errors"),
        }
    )
)
