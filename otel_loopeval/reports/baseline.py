"""What agents were, in an earlier report, and whether they have become worse."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from otel_loopeval.reports.records import SCHEMA_VERSION
from otel_loopeval.reports.summary import RATES, AgentTotals

_SHOWN: Final = 5


class Earlier(NamedTuple):
    """An agent in an earlier report.

    Attributes:
        judged: Its runs with a verdict.
        rates: Its rates, by their names; those that are known.
    """

    judged: int
    rates: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class BaselineRule:
    """When an agent counts as worse than it was.

    Only agents with at least ``min_runs`` runs with a verdict in both reports are compared, and only runs
    that are not inside others. An agent has become worse if

    - its health rate fell by more than ``tolerance``,
    - its doom-loop rate (runs with a doom loop among all runs) rose by more than ``tolerance``,
    - its waste (wasted iterations among all iterations) rose by more than ``tolerance``, or
    - its tokens per run rose by more than ``token_tolerance`` of what they were.

    Attributes:
        min_runs: Runs with a verdict that an agent needs in both reports.
        tolerance: For the first three, as a difference of rates from 0 to 1.
        token_tolerance: For tokens, as a share of the earlier ones.
    """

    min_runs: int = 5
    tolerance: float = 0.1
    token_tolerance: float = 0.25


class Regression(NamedTuple):
    """An agent that has become worse.

    Attributes:
        agent: Its name.
        rate: What became worse, one of :data:`~otel_loopeval.reports.summary.RATES`.
        before: The rate in the earlier report.
        now: The rate now.
    """

    agent: str
    rate: str
    before: float
    now: float


class Baseline:
    """An earlier report, to compare with.

    Args:
        agents: Its agents, runs inside other runs left out.
    """

    def __init__(self, agents: Mapping[str, Earlier]) -> None:
        self._agents = agents

    def compare(
        self, agents: Iterable[AgentTotals], rule: BaselineRule
    ) -> tuple[list[Regression], list[str]]:
        """What has become worse.

        Args:
            agents: The agents now.
            rule: When that is so.

        Returns:
            What became worse, by agent; and notes on the agents that could not be compared.
        """
        regressions: list[Regression] = []
        gone, new, few = dict(self._agents), list[str](), list[str]()
        for now in agents:
            if now.nested:
                continue
            before = gone.pop(now.agent, None)
            if before is None:
                new.append(now.agent)
            elif min(now.judged, before.judged) < rule.min_runs:
                few.append(f"{now.agent} ({before.judged} before, {now.judged} now)")
            else:
                regressions.extend(_worse(before, now, rule))
        notes = [
            f"not compared with the baseline, {why}: {_listed(names)}"
            for why, names in (
                ("not in it", new),
                ("no runs now", list(gone)),
                (f"fewer than {rule.min_runs} runs with a verdict", few),
            )
            if names
        ]
        return regressions, notes


def _worse(before: Earlier, now: AgentTotals, rule: BaselineRule) -> Iterable[Regression]:
    for rate in RATES:
        was, is_now = before.rates.get(rate), getattr(now, rate)
        if was is None or is_now is None:
            continue
        if rate == "health_rate":
            worse = was - is_now > rule.tolerance + _ROUNDING
        elif rate == "tokens_per_run":
            worse = is_now > was * (1 + rule.token_tolerance)
        else:
            worse = is_now - was > rule.tolerance + _ROUNDING
        if worse:
            yield Regression(now.agent, rate, was, is_now)


_ROUNDING: Final = 1e-9
"""0.9 - 0.8 is more than 0.1 in floating point."""


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


def read_baseline(path: Path) -> Baseline:
    """Read an earlier report, as ``--format json`` wrote it.

    Raises:
        ValueError: It is no such report; the message says what is wrong, without the file's name.
        OSError: It cannot be read.
    """
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 text ({error.reason})") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(document, dict) or not {"schema_version", "agents"} <= document.keys():
        raise ValueError("it is no report of `score --format json`: that has schema_version and agents")
    report = cast("dict[str, Any]", document)
    version, agents = report["schema_version"], report["agents"]
    if version != SCHEMA_VERSION:
        raise ValueError(f"its schema_version is {version!r}, and this version reads {SCHEMA_VERSION}")
    if not isinstance(agents, list):
        raise ValueError("its agents are no array")  # noqa: TRY004 - one error for all that a file can have
    earlier: dict[str, Earlier] = {}
    for number, item in enumerate(cast("list[Any]", agents)):
        if not isinstance(item, dict) or not isinstance(cast("Any", item).get("agent"), str):
            raise ValueError(f"agents[{number}] has no agent")  # noqa: TRY004 - as above
        agent = cast("dict[str, Any]", item)
        if agent.get("nested") is not True:
            earlier[agent["agent"]] = _earlier(number, agent)
    return Baseline(earlier)


def _earlier(number: int, item: Mapping[str, Any]) -> Earlier:
    judged = sum(_number(number, item, key) or 0 for key in ("healthy", "unhealthy"))
    rates = {rate: _number(number, item, rate) for rate in RATES}
    return Earlier(int(judged), {rate: value for rate, value in rates.items() if value is not None})


def _number(number: int, item: Mapping[str, Any], key: str) -> float | None:
    value = item.get(key)
    if value is None:
        return None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value < 0:
        raise ValueError(f"agents[{number}].{key}={value!r} is no number from 0")
    return value
