"""Any object, any order, any number: it never raises, says the same of the same, and stays small."""

import gc
import json
import os
import random
import subprocess
import sys
import tracemalloc
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

import pytest
from detect_steps import Step, fired, observe
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_loopeval.detect import DoomLoopDetector, ModelOutput, Observation, ToolCall, UserMessage
from otel_loopeval.semconv import GUARD_KINDS


class Hostile:
    """An object whose every method raises."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __repr__(self) -> str:
        raise RuntimeError("repr")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("eq")

    def __hash__(self) -> int:
        raise RuntimeError("hash")

    def __bool__(self) -> bool:
        raise RuntimeError("bool")

    def __len__(self) -> int:
        raise RuntimeError("len")


class HostileMapping(Mapping[str, Any]):
    """A mapping that cannot be read."""

    def __getitem__(self, key: str) -> Any:
        raise RuntimeError(key)

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("iter")

    def __len__(self) -> int:
        return 3


class Plain:
    """An object that prints its address."""

    def __init__(self, value: int) -> None:
        self.value = value


@dataclass
class Point:
    x: int


def cycle() -> dict[str, Any]:
    """A mapping that holds itself, twice."""
    mapping: dict[str, Any] = {"a": 1}
    mapping["self"] = mapping
    mapping["list"] = [mapping, mapping]
    return mapping


def doubling() -> list[Any]:
    """A value whose text would have 2**60 parts."""
    value: list[Any] = ["x"]
    for _ in range(60):
        value = [value, value]
    return value


def deep() -> list[Any]:
    """A value 100,000 levels deep."""
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


STRANGE: dict[str, Any] = {
    "hostile": Hostile(),
    "hostile mapping": HostileMapping(),
    "hostile inside": {"a": Hostile(), "b": [HostileMapping()]},
    "cyclic": cycle(),
    "doubling": doubling(),
    "deep": deep(),
    "deep JSON": "[" * 100_000,
    "huge text": "x" * 5_000_000,
    "huge list": list(range(300_000)),
    "huge mapping": {str(n): n for n in range(300_000)},
    "nan": {"a": float("nan"), "b": float("inf")},
    "bytes": b"\xff\x00" * 100,
    "surrogates": "\ud800 \udfff",
    "large int": {"n": 10**5000},
    "mixed keys": {1: "a", "1": "b", None: "c", (1, 2): "d"},
    "set": {3, 1, 2},
    "exception": ValueError("x"),
    "class": Plain,
    "object": Plain(3),
    "dataclass": Point(3),
    "datetime": datetime(2024, 5, 1, tzinfo=timezone.utc),
    "ordered": OrderedDict(a=1),
    "number": 3.5,
    "true": True,
}


@pytest.mark.parametrize("name", STRANGE)
def test_any_object_is_taken_anywhere(name: str):
    strange = STRANGE[name]
    detector = DoomLoopDetector(tool_identity=lambda step: step.result)
    for _ in range(5):
        detector.observe(ToolCall("t", strange, strange, strange, turn=strange))
        detector.observe(ToolCall(strange, strange, strange))
        detector.observe(ToolCall("t", {"value": strange}, [strange], agent=strange))
        detector.observe(ModelOutput(strange, turn=strange, start_ns=strange, end_ns=strange))
        detector.observe(UserMessage(strange))


@pytest.mark.parametrize("name", [name for name in STRANGE if "hostile" not in name])
def test_an_object_equals_one_that_says_the_same(name: str):
    assert fired([ToolCall("t", STRANGE[name], "r") for _ in range(6)])[0][0] in (4, 5)
    assert fired([ToolCall("t", {"n": 1}, STRANGE[name]) for _ in range(6)])[0][0] in (4, 5)


def test_objects_are_compared_by_their_fields_and_not_their_addresses():
    assert fired([ToolCall("t", Plain(3), Point(1)) for _ in range(4)]) == [(4, "exact")]
    assert fired([ToolCall("t", Plain(n), Point(1)) for n in range(20)]) == []


text = st.text(max_size=12) | st.sampled_from(
    ["ok", "Error: no", "HTTP 429", "10:00:01", "ref=e1", "x" * 300]
)
value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | text | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text | st.integers(), inner, max_size=3),
    max_leaves=6,
)
moment = st.none() | st.integers(min_value=-(10**20), max_value=10**20)
agent = st.sampled_from([None, "a", "b"])
turn = st.none() | st.integers(0, 3) | st.tuples(st.integers(0, 2))
few = st.sampled_from([{"p": 1}, {"p": 2}, {"ref": "e1", "label": "x"}, '{"p": 1}', "{", None])
said = st.sampled_from(["a", "b", "Error: no", "at 10:00:01", "at 10:00:02", None])
step = (
    st.builds(
        ToolCall,
        st.sampled_from(["read", "edit", "bash", "wait"]),
        few,
        said,
        st.none(),
        agent,
        turn,
        moment,
        moment,
    )
    | st.builds(ToolCall, text, value, value, st.none() | text, agent, turn, moment, moment)
    | st.builds(ModelOutput, st.none() | text, agent, turn, moment, moment)
    | st.builds(UserMessage, moment)
)


@settings(deadline=None, max_examples=300)
@given(st.lists(step, max_size=60), st.booleans())
def test_every_stream_is_judged_alike_each_time_and_every_event_is_sound(
    steps: list[Step], user_resets: bool
):
    seen = observe(steps, user_resets=user_resets)
    assert seen == observe(steps, user_resets=user_resets)
    levels = {"notice", "warning", "doom_loop"}
    for at, one in enumerate(seen):
        assert one.repeats >= 0
        if one.event is None:
            continue
        event = one.event
        assert event.kind in GUARD_KINDS
        assert event.severity in levels
        assert event.doom_loop is (event.severity == "doom_loop")
        assert event.last_step == at
        assert event.first_step is not None
        assert 0 <= event.first_step <= at
        assert event.count is not None
        assert event.count >= 1
        assert one.evidence == event.rule
        assert event.key


@settings(deadline=None, max_examples=100)
@given(st.lists(step, max_size=40))
def test_what_one_agent_does_changes_nothing_for_another(steps: list[Step]):
    def of(name: str | None) -> list[Step]:
        return [each for each in steps if isinstance(each, UserMessage) or each.agent == name]

    # Idle time is the run's, so without times.
    steps = [timeless(each) for each in steps]
    together = observe(steps)
    alone = iter(observe(of("a")))
    for one, s in zip(together, steps, strict=True):
        if isinstance(s, UserMessage) or s.agent == "a":
            other = next(alone)
            assert (one.redundant, one.repeats) == (other.redundant, other.repeats)


def timeless(each: Step) -> Step:
    """The step without its times."""
    return UserMessage() if isinstance(each, UserMessage) else replace(each, start_ns=None, end_ns=None)


def test_observations_do_not_depend_on_the_seed_of_hashing():
    program = """
import json, random
from otel_loopeval.detect import DoomLoopDetector, ModelOutput, ToolCall
chance = random.Random(4)
detector = DoomLoopDetector()
seen = []
for n in range(3000):
    if chance.random() < 0.2:
        step = ModelOutput(f"text {chance.randrange(3)}", agent=f"a{chance.randrange(3)}")
    else:
        result = chance.choice(["x", "y", f"at 10:00:{n % 60:02d}", "Error: bad"])
        tool, agent = chance.choice(["read", "edit"]), f"a{chance.randrange(3)}"
        step = ToolCall(tool, {"p": chance.randrange(4)}, result, agent=agent)
    seen.append(repr(detector.observe(step)))
print(json.dumps(seen))
"""
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    assert sum("doom_loop=True" in one for one in json.loads(outputs[0])) > 3


def test_a_long_run_of_many_agents_stays_within_256_kilobytes():
    chance = random.Random(7)
    names = [f"agent-{n}" for n in range(64)]

    def make(n: int) -> Step:
        name = names[n % 64]
        kind = chance.random()
        if kind < 0.2:
            return ModelOutput(f"text {chance.randrange(4)}", agent=name)
        if kind < 0.4:
            return ToolCall("get", {"id": n}, error=f"missing {n}", agent=name)
        return ToolCall(
            "read", {"p": chance.randrange(6)}, f"r{chance.randrange(3)}", agent=name, turn=n // 3
        )

    warm = DoomLoopDetector()
    for n in range(2000):
        warm.observe(make(n))
    del warm
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        detector = DoomLoopDetector()
        for n in range(12_000):
            detector.observe(make(n))
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert held < 256 * 1024


def test_agents_beyond_64_are_still_judged():
    steps = [ToolCall("ls", {}, "x", agent=f"agent {n}") for n in range(300) for _ in range(4)]
    assert len(fired(steps)) == 300


def test_nothing_of_a_step_is_kept():
    class Content(dict[str, Any]):
        pass

    content = Content(a="x")
    alive = weakref.ref(content)
    detector = DoomLoopDetector()
    for _ in range(5):
        detector.observe(ToolCall("t", content, content, turn=1))
    del content
    gc.collect()
    assert alive() is None


def test_a_new_detector_knows_nothing_of_another():
    first = DoomLoopDetector()
    for _ in range(3):
        first.observe(ToolCall("ls", {}, "x"))
    assert DoomLoopDetector().observe(ToolCall("ls", {}, "x")) == Observation()
