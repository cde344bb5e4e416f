"""Each of our functions made to raise, one by one, while programs run: the programs must not notice.

The functions are enumerated, not listed. What cannot raise, or whose raising is its purpose, is in a table
with its reason, and so is what no scenario reaches because it does not run inside the user's program.
"""

import ast
import contextlib
import fnmatch
import functools
import gc
import inspect
import logging
import textwrap
from collections import Counter
from collections.abc import Generator, Iterator
from typing import Any

import fault_agents  # noqa: F401  # pyright: ignore[reportUnusedImport] # registers its scenarios
import pytest
from fault_injection import (
    PACKAGE,
    Injection,
    Target,
    counting_calls,
    find_targets,
    raising_calls,
    raising_line,
)
from fault_scenarios import SCENARIOS, armed, play

from otel_loopeval.otel import errors

pytestmark = pytest.mark.swallows

TARGETS = find_targets()

STORES_ONLY = {
    "otel.loops:Loop.__init__": "assigns slots",
    "otel.iterations:Iteration.__init__": "assigns slots",
    "otel.judging:Judging.__init__": "assigns slots",
}
"""Constructors that the program calls, directly or by a class of its own, and that call nothing: there is
no object to fall back on without them, and nothing in them that could raise."""

ENTRIES = {
    "otel.loops:Loop.__call__": "hands the program's function to decorate(), which is guarded",
    "otel.iterations:Iteration.__call__": "hands the program's function to decorate(), which is guarded",
}
"""Functions that the program calls, though by way of ``loop()`` and ``iteration()``."""

MEANT_TO_RAISE = {
    "otel.options:checked_*": "tells the program about an argument that makes no sense",
    "otel.loops:_checked_text": "tells the program about an argument that makes no sense",
}
"""Functions whose exceptions are for the program."""

THE_GUARD_ITSELF = {
    "otel.errors:swallow": "what catches errors; its own body is one try",
    "otel.errors:warn_once": "logs for what catches errors",
}

RESTORES_THE_CONTEXT = {
    "otel.node:leave": "calls nothing of ours; where it fails, the context is what could not be restored",
}

CALLS_GUARDS_ONLY = {
    "instrumentation.model_calls:ModelCall.failed": "ends the call while the program's exception passes",
    "instrumentation.praisonai.calls:_call": "stands in the place of the SDK's function",
    "instrumentation.praisonai.calls:_call_async": "stands in the place of the SDK's coroutine",
    "instrumentation.seams:LoopSeams._follow": "stands in the place of the program's own coroutine",
}
"""Functions that make the program's own call, or are called while its exception passes, outside of any guard.
All that they call of ours is a guard, so nothing in them could raise but what is the program's."""

SPARED = {
    **STORES_ONLY,
    **ENTRIES,
    **MEANT_TO_RAISE,
    **THE_GUARD_ITSELF,
    **RESTORES_THE_CONTEXT,
    **CALLS_GUARDS_ONLY,
}

FALLS_BACK = {
    "health.guards:*": "reads an object of somebody else's, and a field that cannot be read is absent",
    "detect.*": "an identity or a normal form that cannot be had is passed over",
}
"""Functions whose callers have another way if they raise: then nothing is lost and nothing is counted."""

OUTSIDE_OF_THE_PROGRAM = {
    "instrumentation.evaluation:seams": "called by instrument()",
    "instrumentation.praisonai.guards.alarms:Alarms.__init__": "called when the package is imported",
    "instrumentation.praisonai.guards.alarms:Alarms.clear": "called by uninstrument()",
    "instrumentation.patches:Patches.__init__": "called by instrument()",
    "instrumentation.patches:Patches.restore": "called by uninstrument()",
    "instrumentation.seams:LoopSeams.restore": "called by uninstrument()",
    "instrumentation.setup:_watch_imports": "called by instrument()",
    "instrumentation.setup:instrument": "sets things up, and its errors are for the program",
    "instrumentation.setup:uninstrument": "takes things back, and its errors are for the program",
    "otel.errors:reset": "for tests",
    "otel.options:Options.*": "called by instrument(), whose errors are for the program",
    "otel.options:check_provider": "called by instrument(), whose errors are for the program",
    "otel.options:_checked_*": "called by instrument(), whose errors are for the program",
    "otel.options:_parse": "called by instrument()",
    "otel.pipeline:Registry._attach": "called by instrument()",
    "otel.pipeline:Registry.configure": "called by instrument()",
    "otel.pipeline:Registry.deactivate": "called by uninstrument()",
    "otel.pipeline:inert_pipeline": "called when the package is imported, and by uninstrument()",
    "otel.processor:LoopHealthProcessor.__init__": "sets things up, and its errors are for the program",
    "otel._sdk:*robe*": "looks at the SDK when the package is imported",
    "otel._sdk:PublicHooks.*": "for an SDK with other private fields; the same code as ProbedHooks",
    "otel.lifecycle:after_fork_in_child": "called when the package is imported",
    "otel.options:_DeferredCallback.__init__": "called by instrument(), whose errors are for the program",
    "otel.pipeline:Registry.__init__": "called when the package is imported",
    "otel.pipeline:Registry.reset": "for tests",
    "instrumentation.instrumentor:*": "called by opentelemetry-instrument",
    "instrumentation.setup:_State.__init__": "called when the package is imported",
    "runs.dialects.*": "reads stored spans, and other dialects than those of the scenarios",
    "otel._sdk:_copy_of": "for an SDK with other private fields",
    "otel.fingerprints:_fingerprints": "called once",
    "runs.neutral*": "reads stored spans",
    "runs.nodes:Node.*": "a Protocol",
    "runs.nodes:Opening.see": "for stored spans; LiveOpening.see is its twin",
    "runs.following:Following.abandoned": "reads stored spans",
    "runs.following:Following.incomplete": "reads stored spans",
    "runs.reconstruct:*": "reads stored spans",
    "runs.verdict:Verdict.converged.get": "for reports",
    "instrumentation.setup:is_instrumented": "calls nothing",
    "instrumentation.streams:Watcher.*": "a Protocol",
    "otel.complaints:*": "for the tools of the command line",
    "otel.errors:guarded": "called when our modules are imported",
    "otel.errors:guarded.decorate": "called when our modules are imported",
    "runs.assembly:*": "reads stored spans",
    "runs.resume:Segments.*": "reads stored spans",
    "runs.sizes:*": "bounds the memory of stored spans",
    "runs.turns:_is_word": "looked at until a step shows all, which the first one does in the scenarios",
    "runs.run:IterationState.*_tokens.get": "for who looks at a run that was read",
}
"""Functions that no scenario calls, since they do not run inside the program's own calls."""

AT_OUR_BOUNDARIES = ("otel", "instrumentation")
"""Where functions raise in every scenario that reaches them, and, besides on every call, on the first one
alone: an error after which things go on is another one than an error without end. The functions behind
them are behind the same few guards, so the first scenarios that reach them will do."""

SCENARIOS_BEHIND = 3


def listed(table: dict[str, str], name: str) -> bool:
    """Whether a table has an entry for a function."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in table)


@functools.cache
def calls_in(scenario: str) -> Counter[str]:
    """How often a scenario calls each of our functions when nothing is wrong."""
    play(scenario)  # what happens only once in a process is not counted
    calls: list[Counter[str]] = []

    @contextlib.contextmanager
    def count() -> Generator[None]:
        with counting_calls(TARGETS) as counted:
            calls.append(counted)
            yield

    with armed(count):
        play(scenario)
    return calls[0]


def reached_in(scenario: str) -> list[str]:
    """The functions that faults go into in a scenario."""
    patterns, only = SCENARIOS[scenario].in_children, SCENARIOS[scenario].only
    if not patterns:
        called = list(calls_in(scenario))
        return [name for name in called if any(fnmatch.fnmatchcase(name, each) for each in only or "*")]
    found = [[name for name in TARGETS if fnmatch.fnmatchcase(name, pattern)] for pattern in patterns]
    assert all(found), f"no function of ours is called {patterns[found.index([])]}"
    return [name for names in found for name in names]


def faults_in(target: Target, scenario: str) -> Iterator[tuple[str, Any]]:
    """The faults that a function has in a scenario: what they are called, and a context manager for each."""
    at_boundary = target.room in AT_OUR_BOUNDARIES
    if not SCENARIOS[scenario].in_children and (not at_boundary or target.guarded_lines):
        reaching = [name for name in SCENARIOS if target.name in calls_in(name)]
        if scenario not in reaching[:SCENARIOS_BEHIND]:
            return
    if target.guarded_lines:
        for line in target.guarded_lines:
            yield f"line {line}", functools.partial(raising_line, target, line)
    elif target.function is not None:
        yield "every call", functools.partial(raising_calls, target, None, spare=is_the_program)
        if at_boundary and calls_in(scenario)[target.name] > 1:
            yield "first call", functools.partial(raising_calls, target, 1, spare=is_the_program)


def is_the_program(caller: str) -> bool:
    """Whether a function was called by the program (or for it, by a library) and not by us.

    Such a function is an entry: it has nobody to catch what it raises, so the fault is put into everything
    that it calls instead. That it does little else is what the table of entries is for.
    """
    return not caller.startswith(PACKAGE)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_program_does_not_notice_that_we_fail(scenario: str) -> None:
    swallowed: list[str] = []

    def listen(place: str, error: Exception) -> None:
        swallowed.append(place)

    noticed: list[str] = []
    raised = 0
    errors.listeners.append(listen)
    logging.disable(logging.CRITICAL)
    if SCENARIOS[scenario].in_children:
        gc.collect()
        gc.freeze()  # what there is now is not looked through again before each play
    try:
        for name in reached_in(scenario):
            target = TARGETS[name]
            if listed(SPARED, name):
                continue
            for fault, inject in faults_in(target, scenario):
                swallowed.clear()
                injections: list[Injection] = []

                @contextlib.contextmanager
                def arm(inject: Any = inject, injections: list[Injection] = injections) -> Generator[None]:
                    with inject() as injection:
                        injections.append(injection)
                        yield

                try:
                    with armed(arm):
                        play(scenario)
                except BaseException as error:
                    noticed.append(f"{name}, {fault}: {type(error).__name__}: {error}")
                    continue
                raised += injections[0].raised
                counted = swallowed or SCENARIOS[scenario].in_children or listed(FALLS_BACK, name)
                if injections[0].raised and not counted:
                    noticed.append(f"{name}, {fault}: was not counted")
    finally:
        logging.disable(logging.NOTSET)
        errors.listeners.remove(listen)
        gc.unfreeze()
    assert not noticed, "\n".join(noticed)
    assert raised > 0


def test_constructors_that_cannot_fail_call_nothing() -> None:
    for name in STORES_ONLY:
        function = TARGETS[name].function
        assert function is not None
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        assert not [
            ast.unparse(node) for node in ast.walk(tree) if isinstance(node, (ast.Call, ast.Raise))
        ], name


def test_functions_outside_of_any_guard_call_guards_and_the_program() -> None:
    guards = {name.rpartition(".")[2].rpartition(":")[2] for name in TARGETS if TARGETS[name].guarded_lines}
    # The program's own call, a getter, a tuple of defaults.
    others = {"begin", "original", "get_current"}
    for name in CALLS_GUARDS_ONLY:
        function = TARGETS[name].function
        assert function is not None
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        called = {
            ast.unparse(node.func).rpartition(".")[2] for node in ast.walk(tree) if isinstance(node, ast.Call)
        }
        assert called - others <= guards, name
        assert called & guards, name


def test_every_function_of_the_telemetry_is_reached_or_known_not_to_run_in_the_program() -> None:
    reached: set[str] = set()
    for scenario in SCENARIOS:
        reached.update(reached_in(scenario))
    unreached = {
        name
        for name in TARGETS.keys() - reached
        if name.startswith(("otel.", "instrumentation.", "runs."))
        and not listed(OUTSIDE_OF_THE_PROGRAM, name)
        and name.rpartition(".")[2] not in GENERATED
    }
    listing = "\n  ".join(sorted(unreached))
    assert not unreached, (
        f"no scenario calls these, and OUTSIDE_OF_THE_PROGRAM does not say why:\n  {listing}"
    )


GENERATED = {"__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__"}
"""Methods that dataclasses have and we do not call."""
