"""How good the detectors are, beside what other tools do, over public agent runs and cases.

Run it as ``python tests/benchmarks/bench_detectors.py --corpus DIR --cases FILE`` (or with the environment
variables ``LOOPEVAL_CORPUS`` and ``LOOPEVAL_CASES``). Without the data it says so and ends well. Labels are
read only after the detector has answered.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from detector_baselines import BASELINES, Baseline
from detector_corpus import Run, Step, parse_arguments, read_cases, read_runs

from otel_loopeval.detect import DoomLoopDetector, ModelOutput, Observation, ToolCall, UserMessage
from otel_loopeval.health.guards import GuardEvent

REPETITION = "Repetition"
_FOLDS = 5
_STREAK = 3
_GRACE = 3
_LONG = 5


@dataclass(frozen=True, slots=True)
class Score:
    """Counts of a binary prediction."""

    hits: int = 0
    false: int = 0
    missed: int = 0

    @property
    def precision(self) -> float:
        return self.hits / (self.hits + self.false) if self.hits + self.false else 0.0

    @property
    def recall(self) -> float:
        return self.hits / (self.hits + self.missed) if self.hits + self.missed else 0.0

    @property
    def f1(self) -> float:
        total = 2 * self.hits + self.false + self.missed
        return 2 * self.hits / total if total else 0.0

    def __str__(self) -> str:
        return (
            f"P {self.precision:.3f}  R {self.recall:.3f}  F1 {self.f1:.3f}"
            f"  ({self.hits} hit, {self.false} false, {self.missed} missed)"
        )


def score(pairs: Iterable[tuple[bool, bool]]) -> Score:
    """Count predictions, given as (predicted, true)."""
    counts = Counter(pairs)
    return Score(counts[True, True], counts[True, False], counts[False, True])


def observe(steps: Sequence[Step], **options: Any) -> list[Observation]:
    """Show the steps of one run to a new detector."""
    detector = DoomLoopDetector(**options)
    return [detector.observe(step) for step in steps]


def loops(seen: Sequence[Observation]) -> list[tuple[int, GuardEvent]]:
    """Doom-loop events, with the index of the step at which each came."""
    return [(at, one.event) for at, one in enumerate(seen) if one.event is not None and one.event.doom_loop]


def raised(steps: Sequence[Step], name: str) -> list[bool]:
    """What a baseline says of each step, each agent judged apart."""
    rules: dict[str | None, Baseline] = defaultdict(BASELINES[name])
    said: list[bool] = []
    for step in steps:
        if isinstance(step, UserMessage):
            for rule in rules.values():
                rule.raises(step)
            said.append(False)
        else:
            said.append(rules[step.agent].raises(step))
    return said


def report_pairs(runs: Sequence[Run], verbose: bool) -> None:
    """Redundant steps against people's Repetition label of neighbouring actions."""
    title("tar_study: pairs of neighbouring actions labelled Repetition (human)")
    predicted = {run.name: [one.redundant for one in observe(run.steps)] for run in runs}
    table: dict[str, Score] = {"detector (redundant)": score(_pairs(runs, predicted))}
    for name in BASELINES:
        table[name] = score(_pairs(runs, {run.name: raised(run.steps, name) for run in runs}))
    for name, result in table.items():
        print(f"  {name:22} {result}")
    print("  by agent system")
    for system in sorted({run.system for run in runs}):
        print(f"    {system:20} {score(_pairs([r for r in runs if r.system == system], predicted))}")
    print("  recall by length of the labelled streak")
    by_length: dict[str, list[bool]] = defaultdict(list)
    for run in runs:
        for first, last in streaks(run):
            by_length[str(last - first) if last - first < _LONG else f"{_LONG}+"] += predicted[run.name][
                first + 1 : last + 1
            ]
    for length, hit in sorted(by_length.items()):
        print(f"    {length:2} {sum(hit) / len(hit):.2f}  ({sum(hit)} of {len(hit)})")
    print(f"  {_FOLDS} folds by task (nothing is fitted: how much the figure depends on the tasks)")
    folds = [score(_pairs([r for r in runs if fold(r.task) == n], predicted)) for n in range(_FOLDS)]
    print("    F1 " + "  ".join(f"{each.f1:.2f}" for each in folds))
    print("    P  " + "  ".join(f"{each.precision:.2f}" for each in folds))
    _report_missed(runs, predicted, verbose)


def _pairs(runs: Sequence[Run], predicted: dict[str, list[bool]]) -> Iterable[tuple[bool, bool]]:
    for run in runs:
        for at, label in enumerate(run.labels["pair_action"]):
            yield predicted[run.name][at + 1], label == REPETITION


def _report_missed(runs: Sequence[Run], predicted: dict[str, list[bool]], verbose: bool) -> None:
    reasons: Counter[str] = Counter()
    for run in runs:
        for at, label in enumerate(run.labels["pair_action"]):
            now = predicted[run.name][at + 1]
            if now == (label == REPETITION):
                continue
            reason = f"{'false' if now else 'missed'}: {_difference(run, at)}"
            reasons[reason] += 1
            if verbose:
                print(f"      {run.name} pair {at} {label:10} {reason}")
    print("  what is missed or false, and why")
    for reason, count in reasons.most_common():
        print(f"    {count:4} {reason}")


def _difference(run: Run, at: int) -> str:
    a, b = run.rows[at], run.rows[at + 1]
    if a["tool"] != b["tool"]:
        return "another tool"
    arguments = "the same arguments" if a["args_sha"] == b["args_sha"] else "other arguments"
    result = "the same" if a["result_sha"] == b["result_sha"] else "another"
    return f"{arguments}, {result} {'failure' if b['error'] else 'result'}"


def streaks(run: Run) -> list[tuple[int, int]]:
    """Streaks of labelled repetitions, as (index of the first step, index of the last step)."""
    found: list[tuple[int, int]] = []
    at = 0
    for label, group in groupby(run.labels["pair_action"]):
        length = len(list(group))
        if label == REPETITION:
            found.append((at, at + length))
        at += length
    return found


def report_streaks(runs: Sequence[Run]) -> None:
    """Are streaks of three or more met by an event, and how late?"""
    title("tar_study: streaks of three or more labelled repetitions")
    named: dict[str, Callable[[Run], list[tuple[int, int]]]] = {
        "detector": lambda run: [(at, e.first_step or 0) for at, e in loops(observe(run.steps))]
    }
    for name in ("three identical", "OpenHands", "gemini-cli"):
        named[name] = _raises_at(name)
    for name, events in named.items():
        met = same = same_met = 0
        lags: list[int] = []
        total = 0
        for run in runs:
            at = events(run)
            for first, last in streaks(run):
                if last - first < _STREAK:
                    continue
                total += 1
                one_result = len({run.rows[n]["result_sha"] for n in range(first, last + 1)}) == 1
                same += one_result
                hits = [step for step, began in at if began <= last and first < step <= last + _GRACE]
                if hits:
                    met += 1
                    same_met += one_result
                    lags.append(hits[0] - (first + _STREAK))
        lag = f"{median(lags):.0f}" if lags else "-"
        print(f"  {name:16} met {met} of {total}; with one result {same_met} of {same}; median lag {lag}")


def _raises_at(name: str) -> Callable[[Run], list[tuple[int, int]]]:
    return lambda run: [(at, at) for at, now in enumerate(raised(run.steps, name)) if now]


def report_events(runs: Sequence[Run]) -> None:
    """Do doom-loop events touch a labelled repetition?"""
    title("tar_study: doom_loop events")
    total = touching = 0
    rules: Counter[str] = Counter()
    for run in runs:
        labels = run.labels["pair_action"]
        for at, event in loops(observe(run.steps)):
            span = labels[event.first_step : at]
            total += 1
            rules[event.rule or ""] += 1
            touches = REPETITION in span
            touching += touches
            if not touches:
                print(
                    f"    touches none: {run.name} steps {event.first_step}-{at} {event.rule} x{event.count}"
                )
                for n in sorted({event.first_step or 0, at - 1, at}):
                    row = run.rows[n]
                    print(
                        f"        {n} {row['tool']} {str(row['args'])[:150]} => {str(row['result'])[-90:]!r}"
                    )
    print(f"  {touching} of {total} touch one ({touching / max(total, 1):.0%}); by rule {dict(rules)}")


def report_alarms(folder: Path) -> None:
    """Doom loops in runs that succeeded."""
    title("alarms on runs that succeeded")
    sets: dict[str, Callable[[dict[str, Any]], bool]] = {
        "multi_swe_java_structure": lambda labels: bool(labels["resolved"]),
        "tau_airline": lambda labels: bool(labels["success"]),
        "swe_agent_demo": lambda _: True,
        "tar_study": lambda labels: bool(labels["resolved"]),
    }
    succeeded = [run for name, good in sets.items() for run in read_runs(folder, name) if good(run.labels)]
    alarmed = 0
    for run in succeeded:
        events = loops(observe(run.steps))
        alarmed += bool(events)
        for at, event in events:
            print(f"    {run.name} steps {event.first_step}-{at} {event.rule} {event.tool} x{event.count}")
            row = run.rows[at]
            print(f"        {str(row['args'])[:120]} => {str(row['result'])[:90]!r}")
    print(f"  detector             {alarmed} of {len(succeeded)} ({alarmed / max(len(succeeded), 1):.1%})")
    for name in ("three identical", "OpenHands", "PraisonAI", "gemini-cli"):
        count = sum(any(raised(run.steps, name)) for run in succeeded)
        print(f"  {name:20} {count} of {len(succeeded)} ({count / max(len(succeeded), 1):.1%})")


def report_ledger(runs: Sequence[Run]) -> None:
    """Rounds that a running ledger (an LLM's) calls a loop: a trend only."""
    title("magentic_ledger: rounds that an LLM's ledger calls a loop")
    signals: dict[str, Callable[[Run], list[bool]]] = {
        "seen before (repeats)": lambda run: [one.repeats > 0 for one in observe(run.steps)],
        "redundant": lambda run: [one.redundant for one in observe(run.steps)],
    }
    for name in ("same as previous", "OpenHands", "gemini-cli"):
        signals[name] = lambda run, name=name: raised(run.steps, name)
    for name, signal in signals.items():
        print(f"  {name:22} {score(pair for run in runs for pair in _rounds(run, signal(run)))}")


def _rounds(run: Run, signal: list[bool]) -> Iterable[tuple[bool, bool]]:
    before = -1
    for entry in run.labels["ledger"]:
        after = entry["after_step"]
        if after >= 0:
            yield any(signal[before + 1 : after + 1]), bool(entry["is_in_loop"])
        before = max(before, after)


def report_cases(path: Path, verbose: bool) -> None:
    """Cases from public issue threads."""
    title("cases from public issue threads")
    cases = list(read_cases(path))
    right = 0
    for case in cases:
        events = loops(observe(case.steps))
        at = events[0][0] + 1 if events else None
        ok = at is not None and (case.by is None or at <= case.by) if case.fires else at is None
        right += ok
        if verbose or not ok:
            verdict = "right" if ok else "WRONG"
            wanted = f"fire by {case.by}" if case.fires else "hold"
            got = f"fired at {at}" if at else "held"
            print(f"    {verdict} {case.name}: {wanted}, {got}")
    print(f"  detector             {right} of {len(cases)}")
    for name in BASELINES:
        count = 0
        for case in cases:
            at = next((n + 1 for n, now in enumerate(raised(case.steps, name)) if now), None)
            count += at is not None and (case.by is None or at <= case.by) if case.fires else at is None
        print(f"  {name:20} {count} of {len(cases)}")


def report_unit_tests(folder: Path) -> None:
    """Agreement with the assertions of other projects' unit tests."""
    title("other projects' unit tests")
    for name, options in (("openhands_unit", {"user_resets": False}), ("gemini_unit", {})):
        for joined in (False, True) if name == "gemini_unit" else (False,):
            runs = read_runs(folder, name)
            agreed = 0
            for run in runs:
                steps = join_chunks(run.steps) if joined else run.steps
                events = loops(observe(steps, **options))
                agrees = bool(events) == bool(run.labels["loop"])
                agreed += agrees
                if not agrees:
                    expected = run.labels["loop_type"] or "no loop"
                    said = f"{events[0][1].rule} x{events[0][1].count}" if events else "no loop"
                    print(f"    disagrees: {run.name} expects {expected}, we say {said}")
            how = " (chunks of a stream joined to messages)" if joined else ""
            print(f"  {name}{how}: {agreed} of {len(runs)}")


def join_chunks(steps: Sequence[Step]) -> list[Step]:
    """Join neighbouring messages, which are chunks of one stream, to whole messages."""
    whole: list[Step] = []
    for is_text, group in groupby(steps, key=lambda step: isinstance(step, ModelOutput)):
        members = list(group)
        if is_text:
            text = "".join(step.text or "" for step in members if isinstance(step, ModelOutput))
            whole.append(ModelOutput(text))
        else:
            whole += members
    return whole


def fold(task: str) -> int:
    """Fold of a task."""
    return blake2b(task.encode(), digest_size=2).digest()[0] % _FOLDS


def title(text: str) -> None:
    """Print a heading."""
    print(f"\n{text}\n{'-' * len(text)}")


def main() -> int:
    """Print the figures."""
    options = parse_arguments(__doc__)
    if options.corpus is None or not options.corpus.is_dir():
        print("No corpus: give --corpus DIR or set LOOPEVAL_CORPUS.")
    else:
        tar = read_runs(options.corpus, "tar_study")
        steps = sum(isinstance(step, ToolCall) for run in tar for step in run.steps)
        print(f"tar_study: {len(tar)} runs, {steps} steps")
        report_pairs(tar, options.verbose)
        report_streaks(tar)
        report_events(tar)
        report_alarms(options.corpus)
        report_ledger(read_runs(options.corpus, "magentic_ledger"))
        report_unit_tests(options.corpus)
    if options.cases is None or not options.cases.is_file():
        print("\nNo cases: give --cases FILE or set LOOPEVAL_CASES.")
    else:
        report_cases(options.cases, options.verbose)
    return 0


if __name__ == "__main__":
    sys.exit(main())
