"""Readers of the detector benchmark's inputs: public agent runs, and cases from public issue threads.

The data is not part of the project. Where it is comes from ``--corpus`` and ``--cases``, or from the
environment variables ``LOOPEVAL_CORPUS`` and ``LOOPEVAL_CASES``.
"""

import argparse
import gzip
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_loopeval.detect import ModelOutput, ToolCall, UserMessage

Step = ToolCall | ModelOutput | UserMessage


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the corpus.

    Attributes:
        name: Identity of the run.
        dataset: Set that it belongs to.
        system: Agent system that made it.
        task: What it worked on; runs of one task belong into one fold.
        steps: What a detector is shown.
        labels: What people or programs said of it. Never shown to a detector.
        rows: The raw steps, for reports.
    """

    name: str
    dataset: str
    system: str
    task: str
    steps: tuple[Step, ...]
    labels: dict[str, Any]
    rows: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Case:
    """One case from a public issue thread.

    Attributes:
        name: Identity of the case.
        fires: Whether a doom loop must be reported (else none may be).
        by: Number of the step, from 1, at which it must have been reported, if that matters.
        note: What it is about.
        steps: What a detector is shown.
    """

    name: str
    fires: bool
    by: int | None
    note: str
    steps: tuple[Step, ...]


def parse_arguments(description: str | None) -> argparse.Namespace:
    """Read ``--corpus`` and ``--cases`` from the command line, with the environment as default."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--corpus", type=Path, default=_from_environment("LOOPEVAL_CORPUS"), help="folder of the runs"
    )
    parser.add_argument(
        "--cases", type=Path, default=_from_environment("LOOPEVAL_CASES"), help="file of the cases"
    )
    parser.add_argument("--verbose", action="store_true", help="list every event, miss and disagreement")
    return parser.parse_args()


def read_runs(folder: Path, dataset: str) -> list[Run]:
    """Read one set of runs; empty if its file is not there."""
    path = folder / f"{dataset}.jsonl.gz"
    if not path.is_file():
        return []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [_run(json.loads(line)) for line in lines]


def read_cases(path: Path) -> Iterator[Case]:
    """Read the cases."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            case = json.loads(line)
            steps = tuple(step for raw in case["steps"] if (step := _case_step(raw)) is not None)
            yield Case(case["id"], case["expect"] == "fire", case["by"], case["note"], steps)


def _from_environment(name: str) -> Path | None:
    value = os.environ.get(name)
    return Path(value) if value else None


def _run(raw: dict[str, Any]) -> Run:
    meta = raw.get("meta") or {}
    name = raw["trace_id"]
    task = str(meta.get("question_id") or meta.get("task_id") or name.rsplit("/", 1)[-1])
    steps = tuple(_corpus_step(row, index) for index, row in enumerate(raw["steps"]))
    return Run(name, raw["dataset"], raw["agent_system"], task, steps, raw["labels"], tuple(raw["steps"]))


def _corpus_step(row: dict[str, Any], index: int) -> Step:
    kind = row.get("kind") or "tool"
    if kind == "user":
        return UserMessage()
    if kind == "message":
        return ModelOutput(row["args"], row["agent"])
    arguments = row["args"]
    result = row["result"]
    if arguments is None and row["args_sha"] is not None:
        # Structure only: the hashes stand for the contents.
        arguments = {"sha": row["args_sha"]}
    if result is None and row["result_sha"] is not None:
        result = row["result_sha"]
    return ToolCall(row["tool"], arguments, _whole(result, row), agent=row["agent"], turn=index)


def _whole(result: Any, row: dict[str, Any]) -> Any:
    # Texts are cut in the corpus while hashes are over the whole: the hash keeps two long results apart.
    length = row.get("result_len")
    if isinstance(result, str) and length is not None and length > len(result):
        return f"{result}\n{row['result_sha']}"
    return result


def _case_step(raw: dict[str, Any]) -> Step | None:
    start, end = _ns(raw.get("start_s")), _ns(raw.get("end_s"))
    match raw["kind"]:
        case "tool":
            return ToolCall(
                raw["tool"], raw["args"], raw["result"], raw["error"], raw["agent"], raw["turn"], start, end
            )
        case "output":
            return ModelOutput(raw["text"], raw["agent"], raw["turn"], start, end)
        case "user":
            return UserMessage(start)
        case "compaction":
            return None  # the detector is not told of it: it changes nothing
        case other:
            raise ValueError(f"kind of a step must be tool, output, user or compaction, not {other!r}")


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e9)
