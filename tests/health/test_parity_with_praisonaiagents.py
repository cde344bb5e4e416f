# pyright: reportMissingTypeStubs=false
# praisonaiagents ships no types.
"""Our LoopEvaluator beside the real one of praisonaiagents: equal wherever that one gives valid JSON."""

import enum
import json
import math
import os
import types
from collections import UserDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from praisonaiagents.escalation.doom_loop import DoomLoopEvent, DoomLoopType, RecoveryAction
from praisonaiagents.escalation.loop_guard import GuardAction, LoopGuardDecision
from praisonaiagents.eval import LoopEvaluator as PackageEvaluator
from praisonaiagents.eval.loop_eval import LoopHealthResult as PackageResult
from praisonaiagents.eval.results import EvaluationLoopResult as PackageLoopResult
from praisonaiagents.eval.results import IterationResult as PackageIterationResult
from praisonaiagents.permissions.doom_loop import DoomLoopResult

from otel_loopeval.health import LoopEvaluator, LoopHealthResult, guard_event_of, is_doom_loop_event

CI = os.environ.get("CI") == "true"

ABSENT: Any = object()
"""The field is left out."""


class Mode(enum.Enum):
    REVIEW = "review"


class StrMode(str, enum.Enum):
    REVIEW = "review"


class Kind(enum.Enum):
    DOOM_LOOP = "doom_loop"
    NOTICE = "notice"


class StrKind(str, enum.Enum):
    NO_PROGRESS = "no_progress"


class IntKind(enum.IntEnum):
    DOOM_LOOP = 1


class Slotted:
    __slots__ = ("type",)

    def __init__(self, kind: str) -> None:
        self.type = kind


class SubDict(dict[str, Any]):
    pass


class NoDict(UserDict[str, Any]):
    pass


class Raising:
    """An event whose field raises something else than AttributeError."""

    @property
    def loop_type(self) -> str:
        raise RuntimeError("no such loop")


class Lazy:
    """An event whose field is there, but raises AttributeError."""

    type = "repetition"

    @property
    def is_loop(self) -> bool:
        raise AttributeError("not yet")


class ValueRaises:
    @property
    def value(self) -> str:
        raise KeyError("value")


def strict_loads(text: str) -> Any:
    def refuse(constant: str) -> Any:
        raise ValueError(f"not JSON: {constant}")

    return json.loads(text, parse_constant=refuse)


def namespace(**fields: Any) -> SimpleNamespace:
    return SimpleNamespace(**{name: value for name, value in fields.items() if value is not ABSENT})


# --- what is generated ---------------------------------------------------------------------------------

AnyStrategy: TypeAlias = st.SearchStrategy[Any]

grid_scores: AnyStrategy = st.integers(0, 200).map(lambda n: n / 20)
near_tie_scores: AnyStrategy = st.integers(-200_000, 200_000).map(lambda n: n * 0.00005)
finite_scores: AnyStrategy = st.one_of(
    grid_scores,
    grid_scores,
    near_tie_scores,
    st.floats(0, 10),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-5, 15),
    st.booleans(),
)
odd_scores: AnyStrategy = st.one_of(
    st.sampled_from(
        [None, math.nan, math.inf, -math.inf, "9", "", b"9", 2**70, -(10**400), 10**400, [9], 1j, object()]
    ),
    st.decimals(-20, 20, places=3),
    st.fractions(-20, 20),
    st.just(Decimal("sNaN")),
)
histories: AnyStrategy = st.one_of(
    st.lists(grid_scores, max_size=8),
    st.lists(st.integers(120, 200).map(lambda n: n / 20), min_size=1, max_size=4),
    st.lists(finite_scores, max_size=12),
    st.lists(finite_scores, min_size=20, max_size=40),
    st.lists(finite_scores | odd_scores, max_size=5),
)
usual_numbers: AnyStrategy = st.sampled_from([8.0, 8.0, 7.5, 5, 0.3])
numbers: AnyStrategy = st.one_of(
    usual_numbers,
    usual_numbers,
    usual_numbers,
    grid_scores,
    st.integers(0, 12),
    st.sampled_from(
        [ABSENT, None, "7.5", "high", "nan", True, math.nan, math.inf, 10**400, Decimal(3), [8.0]]
    ),
)
modes: AnyStrategy = st.one_of(
    st.sampled_from(["optimize", "review"]),
    st.sampled_from(
        [ABSENT, None, "", "REVIEW", " review", "other", 0, 7, b"review", Mode.REVIEW, StrMode.REVIEW]
    ),
)
successes: AnyStrategy = st.sampled_from([ABSENT, None, True, False, 0, 1, "", "no", math.nan, []])

type_values: AnyStrategy = st.one_of(
    st.sampled_from(
        [
            "doom_loop",
            "doom-loop",
            "doomloop",
            "repetition",
            "loop_detected",
            "repeated_action",
            "repeated_failure",
            "no_progress",
            "circular_plan",
            "resource_exhaustion",
            "repeated_output",
        ]
    ).flatmap(lambda word: st.sampled_from([word, word.upper(), word.title(), f" {word} ", word.encode()])),
    st.sampled_from(
        [
            None,
            "",
            "info",
            0,
            1.5,
            *DoomLoopType,
            Kind.DOOM_LOOP,
            Kind.NOTICE,
            StrKind.NO_PROGRESS,
            IntKind.DOOM_LOOP,
            SimpleNamespace(value="repetition"),
            SimpleNamespace(value=None),
            "İ",
            ["doom_loop"],
            ValueRaises(),
        ]
    ),
)
flags: AnyStrategy = st.sampled_from([None, True, False, 0, 1, "", "false", "False", [], math.nan])
guard_fields: AnyStrategy = st.fixed_dictionaries(
    {},
    optional={
        "is_loop": flags,
        "loop_type": st.sampled_from([None, "", "banana", DoomLoopType.NO_PROGRESS, 0, False]),
        "doom_loop": flags,
        "doom_loop_fired": flags,
        "type": type_values,
        "event": type_values,
        "reason": st.text(max_size=3),
    },
)
sparse_guard_fields: AnyStrategy = st.one_of(
    guard_fields,
    st.fixed_dictionaries({"type": type_values}),
    st.fixed_dictionaries({"event": type_values}),
    st.fixed_dictionaries({"is_loop": flags}, optional={"type": type_values}),
    st.fixed_dictionaries({"doom_loop": flags}, optional={"type": type_values, "doom_loop_fired": flags}),
)
guard_events: AnyStrategy = st.one_of(
    sparse_guard_fields,
    sparse_guard_fields.map(lambda fields: SimpleNamespace(**fields)),
    sparse_guard_fields.map(SubDict),
    sparse_guard_fields.map(types.MappingProxyType),
    sparse_guard_fields.map(NoDict),
    sparse_guard_fields.map(guard_event_of),
    st.sampled_from(list(DoomLoopType)).map(
        lambda kind: DoomLoopEvent(
            loop_type=kind, description="d", action_history=[], recovery_action=RecoveryAction.ABORT
        )
    ),
    st.booleans().map(lambda loop: DoomLoopResult(is_loop=loop, reason="r", loop_count=4, tool_name="t")),
    st.sampled_from(list(GuardAction)).map(lambda action: LoopGuardDecision(action, "code", "message")),
    st.sampled_from(["doom_loop", "repetition", "info"]).map(Slotted),
    st.sampled_from(
        [None, "doom_loop", b"doom_loop", 3, DoomLoopType.NO_PROGRESS, Raising(), Lazy(), object, {}, {1: 2}]
    ),
)


@st.composite
def loop_results(draw: st.DrawFn) -> Callable[[], Any]:
    """A function that makes the same loop result each time, so that both sides read a fresh one."""
    scores = draw(histories)
    threshold, duration, mode, success = draw(numbers), draw(numbers), draw(modes), draw(successes)
    shape = draw(st.sampled_from(["namespace"] * 6 + ["package", "tuple", "generator", "odd", "nothing"]))
    event(f"loop result: {shape}")
    if shape == "package":
        iterations = [PackageIterationResult(n, "output", score, "why") for n, score in enumerate(scores, 1)]
        return lambda: PackageLoopResult(
            iterations=iterations,
            success=success is True,
            total_duration_seconds=2.5 if duration is ABSENT else duration,
            threshold=8.0 if threshold is ABSENT else threshold,
            mode="review" if mode == "review" else "optimize",
        )
    if shape == "nothing":
        nothing = draw(st.sampled_from([None, {}, {"score_history": [9]}, object(), 5, "9"]))
        return lambda: nothing
    rest = {"threshold": threshold, "total_duration_seconds": duration, "mode": mode, "success": success}
    if shape == "tuple":
        return lambda: namespace(score_history=tuple(scores), **rest)
    if shape == "generator":
        return lambda: namespace(score_history=(score for score in scores), **rest)
    if shape == "odd":
        history = draw(st.sampled_from([ABSENT, None, 0, 5, "", "99", {9: 1}, {9.5}, deque([3, 9])]))
        return lambda: namespace(score_history=history, **rest)
    return lambda: namespace(score_history=scores, **rest)


@st.composite
def guard_collections(draw: st.DrawFn) -> Callable[[], Any]:
    """A function that makes the same collection of guard events each time."""
    events = draw(st.lists(guard_events, max_size=4))
    shape = draw(
        st.sampled_from(["list"] * 6 + ["none"] * 4 + ["tuple", "deque", "generator", "single", "text"])
    )
    event(f"guard events: {shape}")
    if shape == "none":
        return lambda: None
    if shape == "generator":
        return lambda: (guard for guard in events)
    if shape == "single":
        return lambda: events[0] if events else ()
    if shape == "text":
        return lambda: "doom"
    made = {"list": list, "tuple": tuple, "deque": deque}[shape](events)
    return lambda: made


def has_infinite_score(loop_result: Any) -> bool:
    try:
        scores = list(getattr(loop_result, "score_history", ()) or ())
    except Exception:
        return False
    for score in scores:
        try:
            if math.isinf(score):
                return True
        except Exception:  # not a number, or an int beyond the floats
            continue
    return False


def run_package(loop_result: Any, guards: Any, **arguments: Any) -> PackageResult | Exception:
    try:
        result = PackageEvaluator(**arguments).run(loop_result, guard_events=guards)
        strict_loads(result.to_json())
    except Exception as error:
        return error
    return result


@settings(max_examples=6_000 if CI else 1_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    make_loop_result=loop_results(),
    make_guards=guard_collections(),
    threshold=st.one_of(st.none(), st.none(), grid_scores, st.integers(-2, 12)),
    max_wasted=st.integers(0, 4),
)
def test_every_verdict_of_the_package_is_ours_too(
    make_loop_result: Callable[[], Any],
    make_guards: Callable[[], Any],
    threshold: float | None,
    max_wasted: int,
) -> None:
    theirs = run_package(
        make_loop_result(), make_guards(), threshold=threshold, max_wasted_iterations=max_wasted
    )
    ours = LoopEvaluator(threshold=threshold, max_wasted_iterations=max_wasted).run(
        make_loop_result(), make_guards()
    )
    parsed = strict_loads(ours.to_json())
    if isinstance(theirs, Exception):
        event("package: raises or gives invalid JSON")
        assert ours.success == (
            ours.converged and not ours.doom_loop_fired and ours.wasted_iterations <= max_wasted
        )
    elif has_infinite_score(make_loop_result()) or isinstance(make_guards(), dict):
        event("package: a difference of the table below")
    else:
        event(f"package: a verdict, success {theirs.success}")
        assert ours.to_dict() == theirs.to_dict()
        assert parsed == strict_loads(theirs.to_json())


@settings(max_examples=3_000 if CI else 500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(guard=guard_events)
def test_every_guard_event_reads_as_in_the_package(guard: Any) -> None:
    ours = is_doom_loop_event(guard)
    try:
        theirs = PackageEvaluator._is_doom_loop_event(guard)
    except Exception:
        event("package: raises")
    else:
        event(f"package: {theirs}")
        assert ours is theirs
    if ours:
        assert guard_event_of(guard).doom_loop is True


# --- the differences, all of them -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Difference:
    """An input for which we differ on purpose: what the package does, why we differ, and our values."""

    reason: str
    package: str
    ours: dict[str, Any]
    loop_result: Callable[[], Any]
    guards: Callable[[], Any] = field(default=lambda: None)
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])


class Broken:
    """A loop result of which only the score history can be read."""

    score_history = (5.0, 9.0)

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"{name} is gone")


def half_broken_guards() -> Any:
    yield {"type": "info"}
    yield {"type": "doom_loop"}
    raise RuntimeError("the guard went away")


def run_of(*scores: Any, **fields: Any) -> Callable[[], Any]:
    return lambda: SimpleNamespace(
        score_history=list(scores), **{"threshold": 8.0, "total_duration_seconds": 1.0, **fields}
    )


DIFFERENCES = {
    "threshold None on the result": Difference(
        reason="a result without a threshold falls back to 8.0, whether the attribute is absent or None",
        package="TypeError",
        loop_result=run_of(5.0, 9.0, threshold=None),
        ours={"converged": True, "iterations_to_success": 2, "threshold": 8.0, "success": True},
    ),
    "threshold that is no number": Difference(
        reason="as a result without one",
        package="ValueError",
        loop_result=run_of(5.0, 9.0, threshold="high"),
        ours={"converged": True, "threshold": 8.0},
    ),
    "threshold NaN": Difference(
        reason="nothing reaches it; JSON has no NaN",
        package="ValueError: not JSON: NaN",
        loop_result=run_of(5.0, 9.0, threshold=math.nan),
        ours={"converged": False, "threshold": None, "reasoning": "Did not converge after 2 iteration(s)."},
    ),
    "duration None": Difference(
        reason="an unknown duration is 0, as where the attribute is absent",
        package="TypeError",
        loop_result=run_of(9.0, total_duration_seconds=None),
        ours={"success": True, "total_duration_s": 0.0},
    ),
    "duration infinite": Difference(
        reason="JSON has no Infinity",
        package="ValueError: not JSON: Infinity",
        loop_result=run_of(9.0, total_duration_seconds=math.inf),
        ours={"success": True, "total_duration_s": None},
    ),
    "NaN among the scores": Difference(
        reason="a judge that answers NaN gave no score: no convergence there, and no delta beside it",
        package="ValueError: not JSON: NaN",
        loop_result=run_of(math.nan, 5.0, 9.0),
        ours={"converged": True, "iterations_to_success": 3, "score_delta_per_iteration": [None, 4.0]},
    ),
    "infinity among the scores": Difference(
        reason="as NaN",
        package="ValueError: not JSON: Infinity",
        loop_result=run_of(5.0, math.inf),
        ours={"converged": False, "wasted_iterations": 0, "score_delta_per_iteration": [None]},
    ),
    "infinity as the only score": Difference(
        reason="as NaN; the package's JSON is valid here by luck, since one score has no deltas",
        package="success True",
        loop_result=run_of(math.inf),
        ours={"converged": False, "success": False, "score_delta_per_iteration": []},
    ),
    "None among the scores": Difference(
        reason="a live run has iterations that nothing scored",
        package="TypeError",
        loop_result=run_of(None, 9.0, 9.5),
        ours={
            "converged": True,
            "iterations_to_success": 2,
            "wasted_iterations": 1,
            "score_delta_per_iteration": [None, 0.5],
        },
    ),
    "a text among the scores": Difference(
        reason="no number, so no score",
        package="TypeError",
        loop_result=run_of("9", 8.5),
        ours={"converged": True, "iterations_to_success": 2, "score_delta_per_iteration": [None]},
    ),
    "decimals": Difference(
        reason="numbers like others; JSON has them as floats",
        package="TypeError",
        loop_result=run_of(Decimal("7.5"), Decimal("8.25")),
        ours={"converged": True, "iterations_to_success": 2, "score_delta_per_iteration": [0.75]},
    ),
    "fractions": Difference(
        reason="numbers like others; JSON has them as floats",
        package="TypeError",
        loop_result=run_of(Fraction(15, 2), Fraction(17, 2)),
        ours={"converged": True, "iterations_to_success": 2, "score_delta_per_iteration": [1.0]},
    ),
    "score history that is no sequence": Difference(
        reason="no iterations can be read",
        package="TypeError",
        loop_result=lambda: SimpleNamespace(score_history=5, threshold=8.0),
        ours={"converged": False, "metadata": {"num_iterations": 0}},
    ),
    "properties that raise": Difference(
        reason="what cannot be read is absent; the rest is judged",
        package="RuntimeError",
        loop_result=Broken,
        ours={"converged": True, "threshold": 8.0, "total_duration_s": 0.0, "iterations_to_success": 2},
    ),
    "a guard event whose property raises": Difference(
        reason="the field is absent, the event counts",
        package="RuntimeError",
        loop_result=run_of(9.0),
        guards=lambda: [Raising()],
        ours={"guard_interventions": 1, "doom_loop_fired": False, "success": True},
    ),
    "guard events from a generator": Difference(
        reason="an iterable of events is as good as a list",
        package="TypeError",
        loop_result=run_of(9.0),
        guards=lambda: ({"type": kind} for kind in ("info", "repetition")),
        ours={"guard_interventions": 2, "doom_loop_fired": True, "success": False},
    ),
    "guard events from a generator that raises": Difference(
        reason="what it gave before did happen",
        package="TypeError",
        loop_result=run_of(9.0),
        guards=half_broken_guards,
        ours={"guard_interventions": 2, "doom_loop_fired": True, "success": False},
    ),
    "a single dict as guard events": Difference(
        reason="the package counts its keys and misses the doom loop: a dangerous answer to an easy slip",
        package="success True",
        loop_result=run_of(9.0),
        guards=lambda: {"type": "doom_loop", "reason": "repeated tool call"},
        ours={"guard_interventions": 1, "doom_loop_fired": True, "success": False},
    ),
    "a single event as guard events": Difference(
        reason="the same slip with an object",
        package="TypeError",
        loop_result=run_of(9.0),
        guards=lambda: DoomLoopResult(is_loop=True),
        ours={"guard_interventions": 1, "doom_loop_fired": True, "success": False},
    ),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_difference(name: str) -> None:
    row = DIFFERENCES[name]
    theirs = run_package(row.loop_result(), row.guards(), **row.arguments)
    if isinstance(theirs, Exception):
        assert f"{type(theirs).__name__}: {theirs}".startswith(row.package)
    else:
        assert f"success {theirs.success}" == row.package
    ours = LoopEvaluator(**row.arguments).run(row.loop_result(), row.guards())
    read = ours.to_dict()
    assert {key: read[key] for key in row.ours} == row.ours
    assert strict_loads(ours.to_json()) == read


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"threshold": math.nan}, ValueError, "threshold=nan must be a finite number or None"),
        ({"threshold": -math.inf}, ValueError, "threshold=-inf must be a finite number or None"),
        ({"threshold": 10**400}, ValueError, "must be a finite number or None"),
        ({"threshold": 8j}, ValueError, "threshold=8j must be a finite number or None"),
        ({"threshold": "8"}, TypeError, "threshold='8' must be a finite number or None"),
        ({"threshold": True}, TypeError, "threshold=True must be a finite number or None"),
        ({"max_wasted_iterations": -1}, ValueError, "max_wasted_iterations=-1 must be an int of at least 0"),
        ({"max_wasted_iterations": 1.5}, TypeError, "max_wasted_iterations=1.5 must be an int of at least 0"),
        (
            {"max_wasted_iterations": None},
            TypeError,
            "max_wasted_iterations=None must be an int of at least 0",
        ),
        (
            {"max_wasted_iterations": True},
            TypeError,
            "max_wasted_iterations=True must be an int of at least 0",
        ),
    ],
)
def test_difference_wrong_arguments_are_refused(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    PackageEvaluator(**arguments)  # takes them, and judges by them
    with pytest.raises(error) as raised:
        LoopEvaluator(**arguments)
    assert message in str(raised.value)


# --- the surface ------------------------------------------------------------------------------------------


def test_results_are_made_with_the_same_arguments() -> None:
    positional: Any = (2, 1, False, 3, 1.5, [4.0], True, False, 7.0, "why", {"num_iterations": 3})
    assert LoopHealthResult(*positional).to_dict() == PackageResult(*positional).to_dict()
    assert LoopHealthResult(0, 0, False, 0, 0.0).to_dict() == PackageResult(0, 0, False, 0, 0.0).to_dict()
    assert list(LoopHealthResult(*positional).to_dict()) == list(PackageResult(*positional).to_dict())


def test_a_result_can_be_amended_like_the_package_s() -> None:
    result = LoopEvaluator().run(run_of(9.0)())
    result.metadata["commit"] = "abc"
    result.success = False
    assert (result.passed, result.to_dict()["metadata"]) == (
        False,
        {"num_iterations": 1, "commit": "abc"},
    )
