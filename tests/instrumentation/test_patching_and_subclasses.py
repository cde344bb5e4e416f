"""Patches of loop classes: any order of imports, any subclass, and everything back where it was."""

import asyncio
import gc
import inspect
import subprocess
import sys
import textwrap
import weakref
from typing import Any

import pytest
from instrumented_loops import Agent, Family, both_ways, series

from otel_loopeval import EvaluationLoop, current_run, uninstrument
from otel_loopeval.instrumentation.patches import Patches
from otel_loopeval.testing import Capture

METHODS = (
    "run",
    "run_async",
    "_get_agent_output",
    "_get_agent_output_async",
    "_score",
    "_score_async",
    "__init_subclass__",
)


def methods_of(cls: Any) -> dict[str, Any]:
    return {name: vars(cls).get(name) for name in METHODS}


def scores_of(capture: Capture) -> list[list[Any]]:
    """The scores of each run's iterations."""
    return [
        [child["attributes"].get("loopeval.iteration.score") for child in root["children"]]
        for root in capture.tree()
    ]


def numbers_of(capture: Capture) -> list[int]:
    return [
        span["attributes"]["loopeval.iteration.number"] for span in capture.spans("evaluation_loop.iteration")
    ]


# There and back -----------------------------------------------------------------------------------


def test_uninstrument_restores_the_originals(plain_capture: Capture, family: Family) -> None:
    class Before(family.loop):
        def _score(self, output: str) -> Any:
            return super()._score(output)

    before = methods_of(family.loop), methods_of(Before)
    plain_capture.instrument()

    class During(family.loop):
        def run(self, prompt: str) -> Any:
            return super().run(prompt)

    patched = vars(During)["run"]
    assert methods_of(family.loop)["run"] is not before[0]["run"]
    assert methods_of(Before)["_score"] is not before[1]["_score"]
    assert hasattr(patched, "__wrapped__")
    uninstrument()
    assert (methods_of(family.loop), methods_of(Before)) == before
    assert vars(During)["run"] is patched.__wrapped__


def test_a_method_that_was_inherited_is_inherited_again() -> None:
    class Base:
        def act(self) -> str:
            return "acted"

    class Heir(Base):
        pass

    patches = Patches()
    patches.wrap(Heir, "act", lambda method: lambda self: f"patched, {method(self)}")
    assert (Heir().act(), Base().act()) == ("patched, acted", "acted")
    patches.restore()
    assert "act" not in vars(Heir)
    assert Heir().act() == "acted"


def test_instrument_twice_patches_once(plain_capture: Capture, family: Family) -> None:
    original = family.loop.run
    for _ in range(3):
        plain_capture.instrument()
    assert family.loop.run.__wrapped__ is original
    family.make(9.0).run("task")
    assert plain_capture.value("loopeval.runs") == 1
    uninstrument()
    assert family.loop.run is original


def test_many_rounds_leave_no_layers(plain_capture: Capture, family: Family) -> None:
    original = family.loop.run
    for _ in range(5):
        plain_capture.instrument()
        uninstrument()
    assert family.loop.run is original


def test_a_patch_of_somebody_elses_on_top_of_ours_stays(plain_capture: Capture, family: Family) -> None:
    plain_capture.instrument()
    ours = family.loop.run
    calls: list[str] = []

    def theirs(self: Any, prompt: str) -> Any:
        calls.append(prompt)
        return ours(self, prompt)

    family.loop.run = theirs
    try:
        uninstrument()
        assert family.loop.run is theirs
        family.make(9.0).run("inert")
        assert plain_capture.spans() == []
        plain_capture.instrument()
        family.make(9.0).run("seen")
        assert len(plain_capture.spans("evaluation_loop")) == 1
        uninstrument()
    finally:
        family.loop.run = ours.__wrapped__
    assert calls == ["inert", "seen"]


def test_uninstrument_in_mid_run(capture: Capture, family: Family) -> None:
    class Agent3(Agent):
        def chat(self, prompt: str) -> str:
            answer = super().chat(prompt)
            if answer.startswith("answer 2"):
                uninstrument()
            return answer

    result = family.loop(Agent3(), "", metric=series(5.0, 6.0, 9.0)).run("task")
    assert result.score_history == [5.0, 6.0, 9.0]
    root = capture.span("evaluation_loop")["attributes"]
    assert root["loopeval.run.outcome"] == "completed"
    assert root["loopeval.run.iterations"] == 3
    assert root["loopeval.run.final_score"] == 9.0
    assert capture.value("loopeval.runs") == 1
    assert current_run() is None


def test_instrument_in_mid_run(plain_capture: Capture, family: Family) -> None:
    class Agent3(Agent):
        def chat(self, prompt: str) -> str:
            plain_capture.instrument()
            return super().chat(prompt)

    family.loop(Agent3(), "", metric=series(5.0, 9.0)).run("task")
    assert plain_capture.spans() == []
    family.make(9.0).run("task")
    assert len(plain_capture.spans("evaluation_loop")) == 1


# Subclasses ---------------------------------------------------------------------------------------


@both_ways
def test_a_subclass_that_overrides_everything_with_super(capture: Capture, family: Family, run: Any) -> None:
    class Loud(family.loop):
        def run(self, prompt: str) -> Any:
            return super().run(prompt)

        async def run_async(self, prompt: str) -> Any:
            return await super().run_async(prompt)

        def _get_agent_output(self, prompt: str, iteration: int, feedback: str = "") -> str:
            return super()._get_agent_output(prompt, iteration, feedback).upper()

        async def _get_agent_output_async(self, prompt: str, iteration: int, feedback: str = "") -> str:
            return (await super()._get_agent_output_async(prompt, iteration, feedback)).upper()

        def _score(self, output: str) -> Any:
            return super()._score(output)

        async def _score_async(self, output: str) -> Any:
            return await super()._score_async(output)

    run(family.make(5.0, 9.0, base=Loud))
    assert scores_of(capture) == [[5.0, 9.0]]
    assert numbers_of(capture) == [1, 2]
    assert capture.value("loopeval.runs") == 1


class Verdict:
    """What a subclass's own scoring may return."""

    def __init__(self, score: float) -> None:
        self.score = score
        self.reasoning = "own"
        self.suggestions = ["shorter"]


@both_ways
def test_a_subclass_that_overrides_parts_without_super(capture: Capture, family: Family, run: Any) -> None:
    class Own(family.loop):
        def _get_agent_output(self, prompt: str, iteration: int, feedback: str = "") -> str:
            return f"own answer {iteration}"

        async def _get_agent_output_async(self, prompt: str, iteration: int, feedback: str = "") -> str:
            return f"own answer {iteration}"

        def _score(self, output: str) -> Any:
            return Verdict(5.0 if output.endswith("1") else 9.0)

        async def _score_async(self, output: str) -> Any:
            return self._score(output)

    run(family.make(base=Own))
    assert scores_of(capture) == [[5.0, 9.0]]
    findings = {
        span["attributes"]["loopeval.iteration.findings_count"]
        for span in capture.spans("evaluation_loop.iteration")
    }
    assert findings == {1}


@both_ways
def test_a_subclass_that_runs_its_own_loop_with_the_parts(capture: Capture, family: Family, run: Any) -> None:
    """No super().run(): the iterations are seen at the parts that it calls."""

    class Backwards(family.loop):
        def run(self, prompt: str) -> Any:
            scores = [self._score(self._get_agent_output(prompt, number)).score for number in (1, 2, 3)]
            return scores[::-1]

        async def run_async(self, prompt: str) -> Any:
            return [
                (await self._score_async(await self._get_agent_output_async(prompt, number))).score
                for number in (1, 2, 3)
            ]

    result = run(family.make(4.0, 5.0, 9.0, base=Backwards))
    assert sorted(result) == [4.0, 5.0, 9.0]
    assert scores_of(capture) == [[4.0, 5.0, 9.0]]
    assert capture.span("evaluation_loop")["attributes"]["loopeval.run.outcome"] == "completed"


def test_a_subclass_that_shares_no_part(capture: Capture, family: Family) -> None:
    class Stranger(family.loop):
        def run(self, prompt: str) -> Any:
            return "something else altogether"

    assert family.make(base=Stranger).run("task") == "something else altogether"
    root = capture.span("evaluation_loop")["attributes"]
    assert (root["loopeval.run.iterations"], root["loopeval.health.passed"]) == (0, False)


def test_a_subclass_whose_loop_is_only_told_by_its_result(capture: Capture, family: Family) -> None:
    class Result:
        success = True
        score_history = (5.0, float("nan"), 10**400, "8", 9.0)
        metadata = None

    class Opaque(family.loop):
        def run(self, prompt: str) -> Any:
            return Result()

    family.make(base=Opaque).run("task")
    root = capture.span("evaluation_loop")["attributes"]
    assert root["loopeval.run.iterations"] == 5
    assert root["loopeval.health.iterations_to_success"] == 5
    assert root["loopeval.run.final_score"] == 9.0


@pytest.mark.swallows
def test_a_result_that_cannot_be_read(
    capture: Capture, family: Family, swallowed: list[tuple[str, Exception]]
) -> None:
    class Hostile:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

    result = Hostile()

    class Opaque(family.loop):
        def run(self, prompt: str) -> Any:
            return result

    assert family.make(base=Opaque).run("task") is result
    assert len(capture.spans("evaluation_loop")) == 1
    assert [place for place, _ in swallowed] == ["seams.close_run"]


@both_ways
def test_a_subclass_of_a_subclass_and_a_mixin(capture: Capture, family: Family, run: Any) -> None:
    class Mixin:
        def run(self, prompt: str) -> Any:
            return super().run(prompt)  # type: ignore[misc]

    class Middle(family.loop):
        async def run_async(self, prompt: str) -> Any:
            return await super().run_async(prompt)

    class Leaf(Mixin, Middle):
        def _score(self, output: str) -> Any:
            return super()._score(output)

    run(family.make(5.0, 9.0, base=Leaf))
    assert scores_of(capture) == [[5.0, 9.0]]
    assert capture.value("loopeval.runs") == 1


@both_ways
def test_a_subclass_that_was_defined_before(plain_capture: Capture, family: Family, run: Any) -> None:
    class Early(family.loop):
        def _score(self, output: str) -> Any:
            return Verdict(9.0)

        async def _score_async(self, output: str) -> Any:
            return Verdict(9.0)

    plain_capture.instrument()
    run(family.make(base=Early))
    assert scores_of(plain_capture) == [[9.0]]


def test_a_subclass_with_its_own_init_subclass(capture: Capture, family: Family) -> None:
    registered: list[str] = []

    class Registering(family.loop):
        def __init_subclass__(cls, label: str = "", **kwargs: Any) -> None:
            super().__init_subclass__(**kwargs)
            registered.append(label)

    class Labelled(Registering, label="mine"):
        def _score(self, output: str) -> Any:
            return Verdict(9.0)

    family.make(base=Labelled).run("task")
    assert registered == ["mine"]
    assert scores_of(capture) == [[9.0]]


def test_a_subclass_that_retries_its_run(capture: Capture, family: Family) -> None:
    class Retrying(family.loop):
        def run(self, prompt: str) -> Any:
            super().run(prompt)
            return super().run(prompt)

    family.make(4.0, 5.0, 6.0, 9.0, base=Retrying, max_iterations=2).run("task")
    assert scores_of(capture) == [[4.0, 5.0, 6.0, 9.0]]
    assert capture.value("loopeval.runs") == 1


def test_a_sync_run_that_calls_the_async_one(capture: Capture, family: Family) -> None:
    class Bridged(family.loop):
        def run(self, prompt: str) -> Any:
            return asyncio.run(self.run_async(prompt))

    family.make(5.0, 9.0, base=Bridged).run("task")
    assert scores_of(capture) == [[5.0, 9.0]]
    assert capture.value("loopeval.runs") == 1


@both_ways
def test_parts_with_a_timeout_run_in_tasks_of_their_own(capture: Capture, family: Family, run: Any) -> None:
    """wait_for makes a task, which works on a copy of the context."""

    class Timed(family.loop):
        async def _get_agent_output_async(self, prompt: str, iteration: int, feedback: str = "") -> str:
            return await asyncio.wait_for(super()._get_agent_output_async(prompt, iteration, feedback), 10)

        async def _score_async(self, output: str) -> Any:
            return await asyncio.create_task(super()._score_async(output))

    run(family.make(5.0, 9.0, base=Timed))
    assert scores_of(capture) == [[5.0, 9.0]]
    assert numbers_of(capture) == [1, 2]


def test_parts_called_outside_of_a_run_are_not_traced(capture: Capture, family: Family) -> None:
    loop = family.make(9.0)
    assert loop._score(loop._get_agent_output("task", 1)).score == 9.0
    assert capture.spans() == []


def test_best_of_three_answers_in_one_iteration(capture: Capture, family: Family) -> None:
    """A subclass that scores several answers: the last verdict of the iteration is the one that counts."""

    class BestOf(family.loop):
        def _score(self, output: str) -> Any:
            return max(
                (super(BestOf, self)._score(output) for _ in range(3)), key=lambda verdict: verdict.score
            )

    family.make(9.0, 1.0, 2.0, base=BestOf).run("task")
    assert scores_of(capture) == [[9.0]]


@both_ways
def test_a_verdict_that_an_override_throws_away_is_none(capture: Capture, family: Family, run: Any) -> None:
    """What the loop gets is what counts, and it gets nothing."""

    class Strict(family.loop):
        def _score(self, output: str) -> Any:
            raise ArithmeticError(super()._score(output))

        async def _score_async(self, output: str) -> Any:
            raise ArithmeticError(await super()._score_async(output))

    with pytest.raises(ArithmeticError):
        run(family.make(9.0, base=Strict))
    assert scores_of(capture) == [[None]]


@both_ways
def test_an_async_method_that_is_a_plain_one(capture: Capture, family: Family, run: Any) -> None:
    class Passing(family.loop):
        def run_async(self, prompt: str) -> Any:
            return super().run_async(prompt)

        def _get_agent_output_async(self, *args: Any, **kwargs: Any) -> Any:
            return super()._get_agent_output_async(*args, **kwargs)

        def _score_async(self, output: str) -> Any:
            return super()._score_async(output)

    run(family.make(5.0, 9.0, base=Passing))
    assert scores_of(capture) == [[5.0, 9.0]]
    assert capture.value("loopeval.runs") == 1


def test_plain_methods_return_what_they_return(capture: Capture, family: Family) -> None:
    """A task goes on without being awaited, and some methods have async names only."""

    class Plain(family.loop):
        def run_async(self, prompt: str) -> Any:
            return asyncio.ensure_future(super().run_async(prompt))

        def _score_async(self, output: str) -> Any:
            return self._score(output)

    class Blocking(family.loop):
        def run_async(self, prompt: str) -> Any:
            return self.run(prompt)

    async def go() -> Any:
        loop = family.make(9.0, 5.0, base=Plain)
        assert loop._score_async("answer").score == 9.0
        task = loop.run_async("task")
        assert isinstance(task, asyncio.Task)
        await asyncio.wait([task])

    asyncio.run(go())
    assert family.make(9.0, base=Blocking).run_async("task").score_history == [9.0]
    assert capture.value("loopeval.runs") == 2


def test_a_run_that_is_a_generator_is_left_alone(capture: Capture, family: Family) -> None:
    """Its iterations happen when the call has long returned: followed, it would seem to have none."""

    class Stepwise(family.loop):
        def run(self, prompt: str) -> Any:
            for number in (1, 2):
                yield self._score(self._get_agent_output(prompt, number)).score

        async def run_async(self, prompt: str) -> Any:
            yield self._score(prompt).score

    loop = family.make(5.0, 9.0, base=Stepwise)
    assert inspect.isgeneratorfunction(Stepwise.run)
    assert inspect.isasyncgenfunction(Stepwise.run_async)
    assert list(loop.run("task")) == [5.0, 9.0]
    assert capture.spans() == []


def test_a_run_that_is_a_generator_is_told_of(capture: Capture, caplog: pytest.LogCaptureFixture) -> None:
    class Streaming(EvaluationLoop):
        def run(self, prompt: str) -> Any:
            yield prompt

    complaints = [record.getMessage() for record in caplog.records]
    assert complaints == [f"otel-loopeval: {Streaming.run.__qualname__} is a generator and is not followed"]


def test_classes_that_are_made_as_the_program_goes_are_garbage_again(
    capture: Capture, family: Family
) -> None:
    def use_a_class() -> "weakref.ref[type]":
        class Passing(family.loop):
            def run(self, prompt: str) -> Any:
                return super().run(prompt)

        family.make(9.0, base=Passing).run("task")
        return weakref.ref(Passing)

    made = use_a_class()
    gc.collect()
    assert made() is None
    assert capture.value("loopeval.runs") == 1


# Orders of imports --------------------------------------------------------------------------------

PROGRAM = """
    import sys
    from otel_loopeval.testing import Capture
    capture = Capture()

    {before}

    class Agent:
        name = "writer"
        def chat(self, prompt):
            return "answer"

    scores = iter([5.0, 9.0])
    EvaluationLoop(Agent(), "", metric=lambda output: next(scores)).run("task")
    print(capture.outline().count("iteration"), capture.value("loopeval.runs"))
"""
ORDERS = {
    "praisonaiagents after": """
    capture.instrument()
    assert not [name for name in sys.modules if name.startswith("praisonaiagents")]
    from praisonaiagents.eval import EvaluationLoop
    """,
    "praisonaiagents before": """
    from praisonaiagents.eval import EvaluationLoop
    capture.instrument()
    """,
    "praisonaiagents before, uninstrumented meanwhile": """
    capture.instrument()
    from otel_loopeval import instrument, uninstrument
    uninstrument()
    from praisonaiagents.eval.loop import EvaluationLoop
    capture.instrument()
    """,
    "ours after": """
    capture.instrument()
    from otel_loopeval import EvaluationLoop
    """,
    "ours before": """
    from otel_loopeval import EvaluationLoop
    capture.instrument()
    """,
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
def test_orders_of_imports(order: str) -> None:
    program = textwrap.dedent(PROGRAM).format(before=textwrap.dedent(order))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("2 1", 0), done.stderr


def test_a_framework_of_another_shape_is_left_alone_with_a_warning() -> None:
    """A version that has no seams where we look for them loses this part, and the program runs."""
    program = """
        import logging, sys, types
        logging.basicConfig(format="%(message)s")
        from importlib.machinery import ModuleSpec
        from importlib.abc import Loader, MetaPathFinder
        from otel_loopeval import instrument

        class Fake(MetaPathFinder, Loader):
            def find_spec(self, name, path=None, target=None):
                if name.startswith("praisonaiagents"):
                    return ModuleSpec(name, self, is_package=True)
            def create_module(self, spec):
                return types.ModuleType(spec.name)
            def exec_module(self, module):
                module.__path__ = []

        sys.meta_path.insert(0, Fake())
        instrument()
        import praisonaiagents.eval.loop, praisonaiagents.escalation.doom_loop
        print("goes on")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.returncode) == ("goes on", 0), done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("otel-loopeval")]
    assert [line.split(":")[1].partition(" is not followed in its ")[2] for line in lines] == [
        "evaluation loops",
        "escalation detectors",
    ]
