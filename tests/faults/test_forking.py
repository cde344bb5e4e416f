"""Forked processes: each counts its own runs, and a child never ends its parent's."""

import os
import signal
from pathlib import Path

import pytest
from lifecycle_programs import Program

pytestmark = pytest.mark.e2e

WORK = """
def work(agent, runs):
    from otel_loopeval import iteration, loop
    for _ in range(runs):
        with loop(agent), iteration() as it:
            it.score = 9.0
"""
WARNING = "this process was forked from one that had recorded runs"


def test_a_server_that_preloads_its_application(tmp_path: Path) -> None:
    """As gunicorn does it: everything is set up before the workers are forked, which end by ``sys.exit``."""
    source = (
        WORK
        + """
import os, sys
telemetry()
from otel_loopeval import instrument
instrument()
workers = []
for number in range(3):
    pid = os.fork()
    if pid == 0:
        work("worker", 10 + number)
        sys.exit(number)
    workers.append(pid)
for number, pid in enumerate(workers):
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == number
work("master", 1)
"""
    )
    program = Program(source, tmp_path)
    ended = program.ended()
    assert (ended.status, ended.stderr) == (0, "")
    counted = ended.counted()
    assert counted.pop(program.process.pid) == 1
    assert sorted(counted.values()) == [10, 11, 12]
    assert len(ended.spans("evaluation_loop worker")) == 33
    assert len(ended.spans("evaluation_loop master")) == 1


def test_a_server_that_sets_up_in_each_worker(tmp_path: Path) -> None:
    """As Celery's documentation has it: ``instrument()`` in the parent, the SDK in the workers."""
    source = (
        WORK
        + """
import multiprocessing, sys
from opentelemetry import metrics, trace
from otel_loopeval import instrument
instrument()
def worker(number):
    telemetry()
    work("worker", 10 + number)
    trace.get_tracer_provider().force_flush()  # multiprocessing ends a child by os._exit
    metrics.get_meter_provider().force_flush()
context = multiprocessing.get_context("fork")
workers = [context.Process(target=worker, args=(number,)) for number in range(2)]
for process in workers:
    process.start()
for process in workers:
    process.join()
    assert process.exitcode == 0
"""
    )
    ended = Program(source, tmp_path).ended()
    assert (ended.status, ended.stderr) == (0, "")
    assert sorted(ended.counted().values()) == [10, 11]
    assert len(ended.spans("evaluation_loop worker")) == 21


@pytest.mark.parametrize("end", ["sys.exit(0)", "os.kill(os.getpid(), 15)"])
def test_workers_that_are_stopped_with_a_run_open(tmp_path: Path, end: str) -> None:
    source = (
        WORK
        + f"""
import os, sys
telemetry()
from otel_loopeval import instrument, loop
instrument()
pid = os.fork()
if pid == 0:
    loop("open").__enter__()
    {end}
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
sys.exit(0 if status == {0 if "exit" in end else -signal.SIGTERM} else 1)
"""
    )
    ended = Program(source, tmp_path).ended()
    assert (ended.status, ended.stderr) == (0, "")
    assert ended.outcomes() == ["interrupted"]


def test_a_fork_after_runs_warns_once_and_counts_nothing_twice(tmp_path: Path) -> None:
    source = (
        WORK
        + """
import os, sys
telemetry()
from otel_loopeval import instrument
instrument()
work("parent", 5)
pid = os.fork()
if pid == 0:
    work("child", 2)
    work("child", 1)
    sys.exit(0)
os.waitpid(pid, 0)
"""
    )
    program = Program(source, tmp_path)
    ended = program.ended()
    assert ended.status == 0
    assert ended.stderr.count(WARNING) == 1
    parent = program.process.pid
    assert [span["pid"] for span in ended.spans("evaluation_loop parent")] == [parent] * 5
    children = {span["pid"] for span in ended.spans("evaluation_loop child")}
    assert len(children) == 1
    assert parent not in children
    assert len(ended.spans("evaluation_loop child")) == 3
    [child] = children
    own = [r["value"] for r in ended.records if r["name"] == "loopeval.runs" and r["pid"] == child]
    agents = {
        r["attributes"]["gen_ai.agent.name"]: r["value"]
        for r in ended.records
        if r["name"] == "loopeval.runs" and r["pid"] == child
    }
    # The 5 are the parent's, which the SDK of the child exports again: that is what the warning says.
    assert agents == {"parent": 5, "child": 3}
    assert len(own) == 2
    assert ended.counted()[parent] == 5


def test_a_child_that_is_forked_inside_a_run_does_not_end_it(tmp_path: Path) -> None:
    source = """
    import os, sys
    telemetry()
    from otel_loopeval import current_run, instrument, iteration, loop, record_guard_event
    instrument()
    with loop("parent") as run:
        with iteration() as it:
            pid = os.fork()
            if pid:
                os.waitpid(pid, 0)
            else:
                record_guard_event({"type": "doom_loop"})
                with loop("child"), iteration() as own:
                    own.score = 9.0
            it.score = 9.0
    if pid:
        assert run.health.success
        assert current_run() is None
    """
    program = Program(source, tmp_path)
    ended = program.ended()
    assert ended.status == 0, ended.stderr
    parent = program.process.pid
    [root] = ended.spans("evaluation_loop parent")
    assert root["pid"] == parent
    assert root["attributes"]["loopeval.run.outcome"] == "completed"
    assert root["attributes"]["loopeval.health.passed"] is True
    assert root["attributes"]["loopeval.health.guard_interventions"] == 0
    [child] = ended.spans("evaluation_loop child")
    assert child["pid"] != parent
    assert child["attributes"]["loopeval.health.passed"] is True
    iterations = [span["pid"] for span in ended.spans("evaluation_loop.iteration")]
    assert sorted(iterations) == sorted([parent, child["pid"]])


def test_a_child_that_leaves_by_sys_exit_inside_a_run(tmp_path: Path) -> None:
    source = """
    import os, sys
    telemetry()
    from otel_loopeval import instrument, loop
    instrument()
    with loop("parent"):
        pid = os.fork()
        if pid == 0:
            sys.exit(5)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    """
    program = Program(source, tmp_path)
    ended = program.ended()
    assert ended.status == 0, ended.stderr
    assert [span["pid"] for span in ended.spans("evaluation_loop parent")] == [program.process.pid]
    assert ended.outcomes() == ["completed"]


def test_a_fork_while_another_thread_holds_our_locks(tmp_path: Path) -> None:
    source = """
    import os, sys, threading, time
    telemetry()
    from otel_loopeval import instrument, iteration, loop
    from otel_loopeval.otel import lifecycle
    from otel_loopeval.otel.pipeline import registry
    instrument()
    with loop("before"):
        pass
    held = threading.Event()
    def hold():
        with registry.current().tracker.lock, lifecycle._installed, registry._lock:
            held.set()
            time.sleep(2)
    threading.Thread(target=hold, daemon=True).start()
    held.wait()
    pid = os.fork()
    if pid == 0:
        instrument()
        with loop("child"), iteration() as it:
            it.score = 9.0
        sys.exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    """
    ended = Program(source, tmp_path).ended()
    assert ended.status == 0, ended.stderr
    assert len(ended.spans("evaluation_loop child")) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_pools_of_forked_processes(tmp_path: Path) -> None:
    source = (
        WORK
        + """
import multiprocessing
telemetry()
from opentelemetry import metrics, trace
from otel_loopeval import instrument
instrument()
def job(number):
    work("job", 1)
    trace.get_tracer_provider().force_flush()
    metrics.get_meter_provider().force_flush()
    return number
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(job, range(20)) == list(range(20))
"""
    )
    ended = Program(source, tmp_path).ended()
    assert ended.status == 0, ended.stderr
    assert ended.stderr == ""
    assert sum(ended.counted().values()) == 20
    assert len(ended.spans("evaluation_loop job")) == 20
