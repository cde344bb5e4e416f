"""LoopEvaluator: saving, printing, async use, threads, and inside an evaluation suite."""
# pyright: reportMissingTypeStubs=false
# praisonaiagents ships no types.

import asyncio
import errno
import json
import os
import pickle
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from praisonaiagents.eval import EvalSuite

from otel_loopeval.health import LoopEvaluator, LoopHealthResult, SaveResultsError

HEALTHY = SimpleNamespace(
    score_history=[5.0, 9.0], threshold=8.0, total_duration_seconds=1.0, mode="optimize", success=True
)


# --- names --------------------------------------------------------------------------------------------


def test_an_evaluator_has_an_id_and_is_named_after_it() -> None:
    evaluator = LoopEvaluator()
    assert len(evaluator.eval_id) == 8
    assert int(evaluator.eval_id, 16) >= 0
    assert evaluator.name == f"eval_{evaluator.eval_id}"
    assert evaluator.eval_id != LoopEvaluator().eval_id
    assert repr(evaluator) == f"LoopEvaluator(name='{evaluator.name}', eval_id='{evaluator.eval_id}')"


def test_a_given_name_stays() -> None:
    evaluator = LoopEvaluator(name="nightly")
    assert evaluator.name == "nightly"
    evaluator.name = "weekly"
    assert evaluator.name == "weekly"


def test_threads_that_ask_at_once_get_the_same_id() -> None:
    for _ in range(50):
        evaluator = LoopEvaluator()
        barrier = threading.Barrier(4)

        def ask(evaluator: LoopEvaluator = evaluator, barrier: threading.Barrier = barrier) -> str:
            barrier.wait()
            return evaluator.eval_id

        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(ask) for _ in range(4)]
        assert {future.result() for future in asked} == {evaluator.eval_id}


# --- saving -------------------------------------------------------------------------------------------


def test_the_verdict_is_saved_under_its_names_in_folders_that_are_made(tmp_path: Path) -> None:
    template = str(tmp_path / "deep" / "{name}" / "{eval_id}.json")
    evaluator = LoopEvaluator(name="nightly", save_results_path=template)
    health = evaluator.run(HEALTHY, [{"type": "info"}])
    saved = tmp_path / "deep" / "nightly" / f"{evaluator.eval_id}.json"
    assert json.loads(saved.read_text()) == health.to_dict()
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_a_relative_path_and_a_path_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    LoopEvaluator(save_results_path="health.json").run(HEALTHY)
    LoopEvaluator(save_results_path=Path("a") / "health.json").run(HEALTHY)
    assert json.loads((tmp_path / "health.json").read_text())["success"] is True
    assert json.loads((tmp_path / "a" / "health.json").read_text())["success"] is True


def test_a_second_run_replaces_the_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "health.json"
    path.write_text("x" * 100_000)
    with path.open() as reader:  # someone who reads while it is replaced
        LoopEvaluator(save_results_path=path).run(HEALTHY)
        assert reader.read() == "x" * 100_000
    assert json.loads(path.read_text())["success"] is True


def test_the_file_is_readable_as_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        LoopEvaluator(save_results_path=tmp_path / "health.json").run(HEALTHY)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "health.json").stat().st_mode) == 0o640


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target = tmp_path / "real.json"
    target.write_text("old")
    link = tmp_path / "link.json"
    link.symlink_to(target)
    LoopEvaluator(save_results_path=link).run(HEALTHY)
    assert link.is_symlink()
    assert json.loads(target.read_text())["success"] is True


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(fifo.read_text()))
    reader.start()
    LoopEvaluator(save_results_path=fifo).run(HEALTHY)
    reader.join(10)
    assert json.loads(read[0])["success"] is True
    assert stat.S_ISFIFO(fifo.stat().st_mode)


def test_a_failure_names_path_and_cause_and_keeps_the_verdict(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    path = str(tmp_path / "file" / "health.json")
    with pytest.raises(SaveResultsError) as raised:
        LoopEvaluator(save_results_path=path).run(HEALTHY)
    error = raised.value
    assert isinstance(error, OSError)
    assert str(error) in (
        f"cannot save the results to {path!r}: Not a directory",
        f"cannot save the results to {path!r}: File exists",
    )
    assert error.path == path
    assert error.result == LoopEvaluator().run(HEALTHY)
    assert isinstance(error.__cause__, OSError)


def test_a_failure_survives_a_worker_process(tmp_path: Path) -> None:
    with pytest.raises(SaveResultsError) as raised:
        LoopEvaluator(save_results_path=tmp_path).run(HEALTHY)
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (str(copy), copy.path) == (str(raised.value), str(tmp_path))
    assert (copy.result, copy.errno) == (raised.value.result, errno.EISDIR)


def test_a_folder_in_the_place_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(SaveResultsError, match="Is a directory"):
        LoopEvaluator(save_results_path=tmp_path).run(HEALTHY)
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_no_file_can_have() -> None:
    with pytest.raises(SaveResultsError, match="null") as raised:
        LoopEvaluator(save_results_path="a\0b").run(HEALTHY)
    assert raised.value.result is not None


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 300 + ".json")
    with pytest.raises(SaveResultsError, match="name too long"):
        LoopEvaluator(save_results_path=path).run(HEALTHY)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{nmae}.json", "save_results_path='{nmae}.json': unknown placeholder {nmae}; allowed are"),
        ("{}.json", "unknown placeholder {}; allowed are {name} and {eval_id}"),
        ("{0}", "unknown placeholder {0};"),
        ("{name.__class__}", "unknown placeholder {name.__class__};"),
        ("{name[0]}", "unknown placeholder {name[0]};"),
        ("{name:{nmae}}", "unknown placeholder {nmae};"),
        ("{name", ": expected '}' before end of string; allowed are {name} and {eval_id}"),
        ("a}b", ": Single '}' encountered in format string; allowed are"),
        ("{name:d}", ": Unknown format code 'd' for object of type 'str'; allowed are"),
        ("{name!x}", "nknown conversion specifier"),
    ],
)
def test_a_wrong_placeholder_is_refused_before_anything_runs(template: str, message: str) -> None:
    with pytest.raises(ValueError) as raised:
        LoopEvaluator(save_results_path=template)
    assert message in str(raised.value)


def test_a_wrong_placeholder_set_later_keeps_the_verdict() -> None:
    evaluator = LoopEvaluator()
    evaluator.save_results_path = "{nmae}.json"
    with pytest.raises(
        SaveResultsError, match=r"unknown placeholder \{nmae\}; allowed are \{name\} and"
    ) as raised:
        evaluator.run(HEALTHY)
    assert raised.value.result == LoopEvaluator().run(HEALTHY)


def test_doubled_braces_and_format_specs_are_allowed(tmp_path: Path) -> None:
    LoopEvaluator(name="n", save_results_path=f"{tmp_path}/{{{{x}}}}-{{name:>3}}.json").run(HEALTHY)
    assert (tmp_path / "{x}-  n.json").exists()


@pytest.mark.parametrize("path", [3, b"health.json", ["health.json"]])
def test_a_path_of_another_type_is_refused(path: Any) -> None:
    with pytest.raises(TypeError, match=r"save_results_path=.* must be a str, a path of str, or None"):
        LoopEvaluator(save_results_path=path)


def test_many_writers_of_one_file_leave_one_whole_file(tmp_path: Path) -> None:
    evaluator = LoopEvaluator(save_results_path=tmp_path / "health.json")
    with ThreadPoolExecutor(4) as pool:
        verdicts = list(pool.map(evaluator.run, [HEALTHY] * 40))
    assert json.loads((tmp_path / "health.json").read_text()) == verdicts[0].to_dict()
    assert len(list(tmp_path.iterdir())) == 1


# --- verbose ------------------------------------------------------------------------------------------


def test_verbose_prints_the_summary(capsys: pytest.CaptureFixture[str]) -> None:
    LoopEvaluator(verbose=True).run(HEALTHY)
    assert "HEALTHY" in capsys.readouterr().out
    LoopEvaluator().run(HEALTHY)
    assert capsys.readouterr().out == ""


def test_verbose_prints_the_verdict_that_could_not_be_saved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SaveResultsError):
        LoopEvaluator(verbose=True, save_results_path=tmp_path).run(HEALTHY)
    assert "HEALTHY" in capsys.readouterr().out


# --- async --------------------------------------------------------------------------------------------


async def test_run_async_gives_the_same_verdict(tmp_path: Path) -> None:
    guards = [{"type": "doom_loop"}]
    expected = LoopEvaluator().run(HEALTHY, guards)
    assert await LoopEvaluator().run_async(HEALTHY, guard_events=guards) == expected
    path = tmp_path / "health.json"
    assert await LoopEvaluator(save_results_path=path).run_async(HEALTHY, guards, extra=1) == expected
    assert json.loads(path.read_text()) == expected.to_dict()


async def test_saving_does_not_block_the_event_loop(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)  # opening it blocks until someone reads
    saving = asyncio.create_task(LoopEvaluator(save_results_path=fifo).run_async(HEALTHY))
    done, _ = await asyncio.wait([saving], timeout=0.05)
    assert done == set()
    read = await asyncio.to_thread(fifo.read_text)
    assert json.loads(read) == (await saving).to_dict()


async def test_run_async_raises_what_run_raises(tmp_path: Path) -> None:
    with pytest.raises(SaveResultsError) as raised:
        await LoopEvaluator(save_results_path=tmp_path).run_async(HEALTHY)
    assert raised.value.result == LoopEvaluator().run(HEALTHY)


# --- in the package's suite ---------------------------------------------------------------------------


def test_other_evaluators_arguments_are_ignored() -> None:
    assert LoopEvaluator().run(HEALTHY, print_summary=False).success is True


def test_a_subclass_that_knows_its_loop_runs_in_the_packages_suite() -> None:
    class HealthOfOneRun(LoopEvaluator):
        def run(
            self, loop_result: Any = HEALTHY, guard_events: Any = None, **kwargs: Any
        ) -> LoopHealthResult:
            return super().run(loop_result, guard_events, **kwargs)

    suite = EvalSuite([HealthOfOneRun()]).run(print_summary=False)
    assert suite.errors == []
    assert suite.evaluator_results["HealthOfOneRun_0"].passed is True
