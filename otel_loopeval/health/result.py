"""The verdict on one loop run."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import isfinite, nan
from numbers import Integral, Real
from typing import Any, TextIO

from otel_loopeval import semconv


# Not frozen: the package's result is not either, and a frozen one of this size takes four times as long to
# make, a third of a short evaluation.
@dataclass(slots=True)
class LoopHealthResult:
    """Health of one loop run: did it converge, what did it waste, did a doom loop fire.

    Attributes:
        iterations_to_success: Number of the iteration that first met the threshold, from 1, else all
            iterations.
        wasted_iterations: Iterations that ran after the threshold was met; 0 in review mode.
        doom_loop_fired: Whether a guard event said that the run is in a doom loop.
        guard_interventions: Guard events of the run, doom loops included.
        total_duration_s: Wall-clock duration of the loop in seconds.
        score_delta_per_iteration: Change of the score from each iteration to the next, rounded to four
            digits, one fewer than iterations; ``None`` where one of the two has no finite score.
        converged: Whether the loop reached its threshold.
        success: The verdict: converged, no doom loop, waste within its bound.
        threshold: Score threshold that the verdict used.
        reasoning: The verdict in a sentence, generated from the numbers above.
        metadata: Further facts, ``num_iterations`` among them.
    """

    iterations_to_success: int
    wasted_iterations: int
    doom_loop_fired: bool
    guard_interventions: int
    total_duration_s: float
    score_delta_per_iteration: Sequence[float | None] = field(default_factory=list[float | None])
    converged: bool = False
    success: bool = False
    threshold: float = semconv.DEFAULT_THRESHOLD
    reasoning: str = ""
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def passed(self) -> bool:
        """The verdict, under the name that evaluation suites use."""
        return self.success

    def to_dict(self) -> dict[str, Any]:
        """Return the fields and ``passed``; a number that is not finite becomes ``None``."""
        return {
            "iterations_to_success": self.iterations_to_success,
            "wasted_iterations": self.wasted_iterations,
            "doom_loop_fired": self.doom_loop_fired,
            "guard_interventions": self.guard_interventions,
            "total_duration_s": _finite_or_none(self.total_duration_s),
            "score_delta_per_iteration": [_finite_or_none(d) for d in self.score_delta_per_iteration],
            "converged": self.converged,
            "success": self.success,
            "passed": self.success,
            "threshold": _finite_or_none(self.threshold),
            "reasoning": self.reasoning,
            "metadata": dict(self.metadata),
        }

    def to_json(self) -> str:
        """Return strict JSON, indented by two.

        Numbers that are not finite are ``null``, in the metadata too; a metadata value that JSON has no
        form for is written as its ``str()``.
        """
        return json.dumps(_strict(self.to_dict()), indent=2, allow_nan=False)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "LoopHealthResult":
        """Build a result from what :meth:`to_dict` or parsed :meth:`to_json` gave.

        ``passed`` and keys of later versions are ignored. A duration or threshold of ``None`` was not a
        finite number and comes back as NaN.

        Raises:
            TypeError: ``data`` is no mapping, or a value has another type than its field.
            ValueError: A field without a default is missing.
        """
        if not isinstance(data, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - input check
            raise TypeError(f"data={data!r} must be a mapping with the keys of LoopHealthResult.to_dict()")
        missing = [name for name in _REQUIRED if name not in data]
        if missing:
            raise ValueError(f"data has no {', '.join(missing)}: required are {', '.join(_REQUIRED)}")
        return cls(**{name: read(name, data[name]) for name, read in _READERS.items() if name in data})

    def print_summary(self, file: TextIO | None = None) -> None:
        """Print the verdict and its numbers as a table, or as plain lines where rich is not installed.

        Args:
            file: Where to print; standard output if ``None``. Colours only go to a terminal.
        """
        # Imported here: drawing is a room of its own, and most results are never printed.
        from otel_loopeval.health._summary import print_summary  # noqa: PLC0415

        print_summary(self, file)


def _finite_or_none(number: float | None) -> float | None:
    # An int is finite, and may be too large for isfinite() to convert.
    return number if isinstance(number, int) or (number is not None and isfinite(number)) else None


def _strict(value: Any) -> Any:
    """The value with everything replaced that strict JSON cannot say."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return _finite_or_none(float(value))
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - any mapping
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_strict(item) for item in value]  # pyright: ignore[reportUnknownVariableType] - any items
    return str(value)


def _wrong(name: str, value: Any, allowed: str) -> TypeError:
    return TypeError(f"data[{name!r}]={value!r} must be {allowed}")


def _read_int(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(name, value, "an int")
    return value


def _read_bool(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(name, value, "a bool")
    return value


def _read_number(name: str, value: Any) -> float:
    if value is None:
        return nan
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong(name, value, "a number or None")
    return float(value)


def _read_deltas(name: str, value: Any) -> list[float | None]:
    if not isinstance(value, (list, tuple)):
        raise _wrong(name, value, "a list of numbers or None")
    return [None if item is None else _read_number(name, item) for item in value]  # pyright: ignore[reportUnknownVariableType] - checked one by one


def _read_str(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong(name, value, "a str")
    return value


def _read_metadata(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(name, value, "a mapping")
    return {str(key): item for key, item in value.items()}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - any mapping


_READERS: dict[str, Any] = {
    "iterations_to_success": _read_int,
    "wasted_iterations": _read_int,
    "doom_loop_fired": _read_bool,
    "guard_interventions": _read_int,
    "total_duration_s": _read_number,
    "score_delta_per_iteration": _read_deltas,
    "converged": _read_bool,
    "success": _read_bool,
    "threshold": _read_number,
    "reasoning": _read_str,
    "metadata": _read_metadata,
}
_REQUIRED = tuple(f.name for f in fields(LoopHealthResult))[:5]
