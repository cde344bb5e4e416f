"""Guard events of any kind of object: nothing raises, nothing is lost."""

import enum
import json
from collections.abc import Iterator
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_loopeval import GuardEvent, LoopEvaluator, iteration, loop, record_guard_event
from otel_loopeval.health import guard_event_of, is_doom_loop_event, tally_guard_events
from otel_loopeval.otel import errors
from otel_loopeval.testing import Capture

FIELDS = (
    "is_loop",
    "loop_type",
    "doom_loop",
    "doom_loop_fired",
    "type",
    "event",
    "kind",
    "source",
    "action",
    "tool",
    "tool_name",
    "count",
    "loop_count",
    "iteration",
    "rule",
    "code",
    "detector",
    "agent",
    "reason",
    "message",
    "severity",
    "key",
    "level",
    "stuck",
    "metadata",
    "recovery_action",
    "timestamp",
    "time_ns",
)


class BrokenError(Exception):
    """What hostile objects raise."""


class Hostile:
    """Raises wherever it is touched: compared, hashed, shown, counted, iterated over, asked for anything."""

    def _break(self, *_: Any, **__: Any) -> Any:
        raise BrokenError

    __eq__ = __hash__ = __bool__ = __len__ = __iter__ = __str__ = __repr__ = __float__ = _break
    __int__ = __index__ = __getattr__ = __getitem__ = __contains__ = __call__ = __format__ = _break


class OddClass:
    """Says that it is of a class that it is not of, or raises when asked."""

    def __init__(self, cls: Any) -> None:
        self._cls = cls

    @property
    def __class__(self) -> Any:
        if self._cls is None:
            raise BrokenError
        return self._cls

    @__class__.setter
    def __class__(self, value: Any) -> None:
        raise BrokenError


class Endless:
    """A collection without end."""

    def __len__(self) -> int:
        return 2**62

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self


class LyingText(str):
    """Text whose methods raise."""

    def lower(self) -> str:
        raise BrokenError

    def __str__(self) -> str:
        raise BrokenError

    __slots__ = ()


class Word(enum.Enum):
    DOOM = "doom_loop"
    NUMBER = 3
    HOSTILE = object()


def recursive() -> Any:
    event: dict[str, Any] = {"type": "doom_loop"}
    event["metadata"] = event["kind"] = event["tool"] = event
    return event


def raising_property(names: frozenset[str], value: Any) -> Any:
    """An object whose fields of these names raise, and whose others are a value."""

    class Event:
        def __getattr__(self, name: str) -> Any:
            if name in names:
                raise BrokenError
            if name in FIELDS:
                return value
            raise AttributeError(name)

    return Event()


class HostileDict(dict[str, Any]):
    """A dict that raises where it is looked into."""

    def __contains__(self, key: object) -> bool:
        raise BrokenError

    def __getitem__(self, key: str) -> Any:
        raise BrokenError

    def get(self, *_: Any) -> Any:
        raise BrokenError


LEAVES: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    2**80,
    10**400,
    float("nan"),
    float("inf"),
    -0.0,
    1j,
    "",
    "doom_loop",
    "DOOM_LOOP",
    "\ud800",
    "\x00",
    "x" * 100_000,
    b"doom_loop",
    "halt",
    "critical",
    LyingText("doom_loop"),
    object(),
    Hostile(),
    OddClass(dict),
    OddClass(GuardEvent),
    OddClass(str),
    OddClass(None),
    Endless(),
    Word.DOOM,
    Word.NUMBER,
    Word.HOSTILE,
    HostileDict(type="doom_loop"),
    int,
    type,
    print,
    [],
    (),
    {},
    memoryview(b"x"),
    BrokenError(),
]

# Recipes, since hypothesis itself hashes, compares and shows what it draws. A recipe is the index of a leaf,
# a list or dict of recipes, or a pair of a way to make something and what to make it of.
Recipe = Any

leaves = st.integers(0, len(LEAVES) - 1)
recipes = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=8,
)
fields = st.dictionaries(st.sampled_from(FIELDS), recipes)
own_fields = st.dictionaries(st.sampled_from(list(GuardEvent.__dataclass_fields__)), recipes)
events = st.one_of(
    recipes,
    fields,
    st.tuples(st.just("object"), fields),
    st.tuples(st.just("own"), own_fields),
    st.tuples(st.just("raising"), st.tuples(st.frozensets(st.sampled_from(FIELDS)), recipes)),
    st.just(("recursive", None)),
)
several = st.lists(events, min_size=1, max_size=3)


def cook(recipe: Recipe) -> Any:
    """What a recipe stands for."""
    if isinstance(recipe, int):
        return LEAVES[recipe]
    if isinstance(recipe, list):
        return [cook(part) for part in cast("list[Recipe]", recipe)]
    if isinstance(recipe, dict):
        return {key: cook(part) for key, part in cast("dict[str, Recipe]", recipe).items()}
    way, of = recipe
    if way == "object":
        return type("Event", (), cook(of))()
    if way == "own":
        return GuardEvent(**cook(of))
    if way == "raising":
        return raising_property(of[0], cook(of[1]))
    return recursive()


thoroughly = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


class Result:
    score_history = (5.0, 9.0)
    threshold = 8.0


@thoroughly
@given(events)
def test_reading_one(recipe: Recipe) -> None:
    event = cook(recipe)
    known = guard_event_of(event)
    assert known.doom_loop in (True, False)
    assert isinstance(known.kind, str)
    assert isinstance(is_doom_loop_event(event), bool)
    for text in (known.tool, known.rule, known.agent, known.reason, known.key):
        assert text is None or type(text) is str


@thoroughly
@given(several | events)
def test_judging_with_them(recipe: Recipe) -> None:
    guard_events = cook(recipe)
    health = LoopEvaluator().run(Result(), guard_events=guard_events)
    count, fired = tally_guard_events(guard_events)
    assert (health.guard_interventions, health.doom_loop_fired) == (count, fired)
    assert health.passed is not fired
    json.loads(health.to_json(), parse_constant=pytest.fail)


@thoroughly
@given(several)
def test_a_generator_of_them_that_raises(recipe: list[Recipe]) -> None:
    guard_events = cook(recipe)

    def generator() -> Iterator[Any]:
        yield from guard_events
        raise BrokenError

    assert LoopEvaluator().run(Result(), guard_events=generator()).guard_interventions == len(guard_events)


@thoroughly
@given(several)
def test_recording_them_on_a_run(recipe: list[Recipe]) -> None:
    guard_events = cook(recipe)
    told: list[Any] = []

    def on_doom_loop(event: Any, run: Any) -> None:
        told.append(event)

    with Capture() as capture:
        capture.instrument(on_doom_loop=on_doom_loop, events="both", detectors=False)
        tracer = capture.tracer_provider.get_tracer("app")
        for event in guard_events:
            record_guard_event(event)  # outside of any run
        with loop("writer", threshold=8.0), iteration() as it:
            for event in guard_events:
                with tracer.start_as_current_span("step"):
                    record_guard_event(event)
            it.score = 9.0
        spans = capture.spans()
        assert [span["name"] for span in spans] == [
            "evaluation_loop writer",
            "evaluation_loop.iteration",
            *["step"] * len(guard_events),
        ]
        root = spans[0]["attributes"]
        assert root["loopeval.health.guard_interventions"] == len(guard_events)
        assert root["loopeval.health.doom_loop_fired"] is bool(told)
        assert capture.value("loopeval.doom_loop.fired") >= len(told)
        assert all(isinstance(event, GuardEvent) for event in told)
    assert dict(errors.counts) == {}


@thoroughly
@given(recipe=events, raised=st.sampled_from([BrokenError, ValueError, RecursionError, MemoryError]))
@pytest.mark.swallows
def test_a_callback_that_raises(recipe: Recipe, raised: type[Exception]) -> None:
    def on_doom_loop(_event: Any, _run: Any) -> None:
        raise raised

    with Capture() as capture:
        capture.instrument(on_doom_loop=on_doom_loop, detectors=False)
        with loop("writer"), iteration():
            record_guard_event(cook(recipe))
            record_guard_event({"type": "doom_loop", "key": "another"})
        assert [span["name"] for span in capture.spans()] == [
            "evaluation_loop writer",
            "evaluation_loop.iteration",
        ]
        assert capture.span("evaluation_loop")["attributes"]["loopeval.health.doom_loop_fired"] is True


def test_an_object_that_only_says_that_it_is_a_guard_event() -> None:
    """As mocks do."""
    claims = OddClass(GuardEvent)
    assert isinstance(claims, GuardEvent)
    assert guard_event_of(claims) == GuardEvent()
