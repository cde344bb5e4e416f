"""Runs open when the process ends are recorded as interrupted, and the process ends as it would have."""

import json
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from lifecycle_programs import Program
from support.otlp import OtlpReceiver

pytestmark = pytest.mark.e2e

ON_THE_MAIN_THREAD = """
telemetry()
from otel_loopeval import instrument, iteration, loop
instrument()
with loop("finished"), iteration() as it:
    it.score = 9.0
loop("open").__enter__()
iteration().__enter__()
"""
ON_A_DAEMON_THREAD = """
telemetry()
import threading, time
from otel_loopeval import instrument, iteration, loop
instrument()
with loop("finished"), iteration() as it:
    it.score = 9.0
began = threading.Event()
def work():
    with loop("open"), iteration():
        began.set()
        time.sleep(3600)
threading.Thread(target=work, daemon=True).start()
began.wait()
"""
OPEN_RUNS = {"main thread": ON_THE_MAIN_THREAD, "daemon thread": ON_A_DAEMON_THREAD}

ENDS = {
    "plain exit": ("", 0),
    "sys.exit(3)": ("import sys; sys.exit(3)", 3),
    "an unhandled exception": ("raise RuntimeError('by hand')", 1),
    "an unhandled KeyboardInterrupt": ("raise KeyboardInterrupt", -signal.SIGINT),
}


@pytest.mark.parametrize("where", OPEN_RUNS)
@pytest.mark.parametrize("end", ENDS)
def test_open_runs_at_exit(tmp_path: Path, end: str, where: str) -> None:
    statement, status = ENDS[end]
    ended = Program(OPEN_RUNS[where] + statement, tmp_path).ended()
    assert ended.status == status, ended.stderr
    assert ended.outcomes() == ["completed", "interrupted"]
    assert len(ended.spans("evaluation_loop.iteration")) == 2
    [(pid, interrupted)] = ended.counted(outcome="interrupted").items()
    assert interrupted == 1
    assert ended.counted() == {pid: 2}
    assert "otel-loopeval" not in ended.stderr


@pytest.mark.parametrize("where", OPEN_RUNS)
def test_open_runs_at_sigterm(tmp_path: Path, where: str) -> None:
    source = OPEN_RUNS[where] + "import time; print('ready', flush=True); time.sleep(3600)"
    ended = Program(source, tmp_path).terminate()
    assert ended.status == -signal.SIGTERM
    assert ended.outcomes() == ["completed", "interrupted"]
    [counted] = ended.counted(outcome="interrupted").values()
    assert counted == 1
    assert ended.stderr == ""


def test_sigterm_while_a_loop_runs_on_the_main_thread(tmp_path: Path) -> None:
    source = """
    telemetry()
    import time
    from otel_loopeval import EvaluationLoop, instrument
    instrument()
    def agent(prompt):
        print("ready", flush=True)
        time.sleep(3600)
    EvaluationLoop(agent, "", metric=lambda _: 1).run("prompt")
    """
    ended = Program(source, tmp_path).terminate()
    assert ended.status == -signal.SIGTERM
    assert ended.outcomes() == ["interrupted"]
    assert [
        span["attributes"]["loopeval.iteration.number"] for span in ended.spans("evaluation_loop.it")
    ] == [1]


def test_sigterm_where_the_first_run_began_on_a_thread(tmp_path: Path) -> None:
    source = """
    telemetry()
    import threading, time
    from otel_loopeval import instrument, loop
    instrument()
    def work():
        with loop("open"):
            print("ready", flush=True)
            time.sleep(3600)
    threading.Thread(target=work, daemon=True).start()
    time.sleep(3600)
    """
    ended = Program(source, tmp_path).terminate()
    assert ended.status == -signal.SIGTERM
    assert ended.outcomes() == ["interrupted"]


def test_a_handler_of_the_programs_own_is_respected(tmp_path: Path) -> None:
    source = """
    telemetry()
    import os, signal, sys, time
    def handler(signum, frame):
        os.write(1, b"handled\\n")  # printing is refused while a print is under way
        sys.exit(7)
    signal.signal(signal.SIGTERM, handler)
    from otel_loopeval import instrument, loop
    instrument()
    with loop("open"):
        assert signal.getsignal(signal.SIGTERM) is handler
        print("ready", flush=True)
        time.sleep(3600)
    """
    ended = Program(source, tmp_path).terminate()
    assert (ended.status, ended.stdout) == (7, "handled\n")
    assert ended.outcomes() == ["interrupted"]


def test_a_handler_that_the_program_sets_later_is_respected(tmp_path: Path) -> None:
    source = """
    telemetry()
    import os, signal, sys, time
    from otel_loopeval import instrument, loop
    instrument()
    loop("open").__enter__()
    def handler(signum, frame):
        os.write(1, b"handled\\n")  # printing is refused while a print is under way
        sys.exit(7)
    signal.signal(signal.SIGTERM, handler)
    with loop("another"):
        assert signal.getsignal(signal.SIGTERM) is handler
    print("ready", flush=True)
    time.sleep(3600)
    """
    ended = Program(source, tmp_path).terminate()
    assert (ended.status, ended.stdout) == (7, "handled\n")
    assert ended.outcomes() == ["completed", "interrupted"]


@pytest.mark.parametrize("disposition", ["SIG_IGN", "SIG_DFL"])
def test_a_disposition_is_left_alone(tmp_path: Path, disposition: str) -> None:
    """A program that ignores SIGTERM goes on doing so; ``LOOPEVAL_SIGTERM=false`` opts out of our handler."""
    source = f"""
    telemetry()
    import signal
    signal.signal(signal.SIGTERM, signal.{disposition})
    from otel_loopeval import instrument, loop
    instrument()
    with loop("run"):
        pass
    assert signal.getsignal(signal.SIGTERM) is signal.{disposition}
    """
    variables = {} if disposition == "SIG_IGN" else {"LOOPEVAL_SIGTERM": "false"}
    ended = Program(source, tmp_path, **variables).ended()
    assert ended.status == 0, ended.stderr


def test_sigterm_without_our_handler_loses_what_is_open(tmp_path: Path) -> None:
    source = OPEN_RUNS["main thread"] + "import time; print('ready', flush=True); time.sleep(3600)"
    ended = Program(source, tmp_path, LOOPEVAL_SIGTERM="false").terminate()
    assert ended.status == -signal.SIGTERM
    assert ended.records == []


def test_os_exit_loses_what_is_open(tmp_path: Path) -> None:
    ended = Program(OPEN_RUNS["main thread"] + "import os; os._exit(4)", tmp_path).ended()
    assert ended.status == 4
    assert ended.records == []


def test_sigterm_while_the_main_thread_holds_the_trackers_lock(tmp_path: Path) -> None:
    source = """
    telemetry()
    import time
    from otel_loopeval import instrument, loop
    instrument()
    from otel_loopeval.otel.pipeline import registry
    loop("open").__enter__()
    with registry.current().tracker.lock:
        print("ready", flush=True)
        time.sleep(3600)
    """
    ended = Program(source, tmp_path).terminate()
    assert ended.status == -signal.SIGTERM
    assert ended.seconds < 20  # the bound is 5; without one it would be an hour


def test_sigterm_while_the_main_thread_holds_the_batch_processors_lock(tmp_path: Path) -> None:
    source = """
    telemetry()
    import time
    from opentelemetry.sdk.trace.export import SpanExporter
    from otel_loopeval import instrument, loop
    instrument()
    run = loop("open").__enter__()
    with run.span._lock:
        print("ready", flush=True)
        time.sleep(3600)
    """
    ended = Program(source, tmp_path).terminate()
    assert ended.status == -signal.SIGTERM
    assert ended.seconds < 20


def test_a_second_sigterm_while_the_first_is_handled(tmp_path: Path) -> None:
    source = """
    telemetry()
    import os, signal, threading, time
    from otel_loopeval import instrument, loop
    instrument()
    from otel_loopeval.otel.pipeline import registry
    loop("open").__enter__()
    with registry.current().tracker.lock:  # makes the first one wait
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
        print("ready", flush=True)
        time.sleep(3600)
    """
    ended = Program(source, tmp_path).terminate()
    assert ended.status == -signal.SIGTERM
    assert ended.seconds < 20


# Under opentelemetry-instrument ----------------------------------------------------------------------------

ZERO_CODE = """
import os, sys, time
from otel_loopeval import EvaluationLoop
def agent(prompt):
    print("ready", flush=True)
    {end}
try:
    EvaluationLoop(agent, "", metric=lambda _: 1).run("prompt")
finally:
    sys.stdout.flush()
"""


def documents(text: str) -> list[dict[str, Any]]:
    """The JSON documents in a text, among lines that are none."""
    decoder, found, position = json.JSONDecoder(), [], text.find("{")
    while position >= 0:
        try:
            document, end = decoder.raw_decode(text, position)
            found.append(document)
        except ValueError:
            end = position + 1
        position = text.find("{", end)
    return found


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("time.sleep(3600)", -signal.SIGTERM),
        ("sys.exit(3)", 3),
        ("raise KeyboardInterrupt", -signal.SIGINT),
    ],
)
def test_zero_code_with_console_exporters(tmp_path: Path, end: str, status: int) -> None:
    command = Path(sys.executable).with_name("opentelemetry-instrument")
    exporters = ["--traces_exporter", "console", "--metrics_exporter", "console", "--logs_exporter", "none"]
    program = Program(ZERO_CODE.format(end=end), tmp_path, str(command), *exporters, sys.executable)
    ended = program.terminate() if status == -signal.SIGTERM else program.ended()
    assert ended.status == status, ended.stderr
    exported = documents(ended.stdout)
    roots = [span for span in exported if span.get("name") == "evaluation_loop agent"]
    assert [root["attributes"]["loopeval.run.outcome"] for root in roots] == ["interrupted"]
    iterations = [span for span in exported if span.get("name") == "evaluation_loop.iteration"]
    assert [span["parent_id"] for span in iterations] == [roots[0]["context"]["span_id"]]
    points = [
        (point["attributes"]["loopeval.run.outcome"], point["value"])
        for export in exported
        for resource in export.get("resource_metrics", ())
        for scope in resource["scope_metrics"]
        for metric in scope["metrics"]
        if metric["name"] == "loopeval.runs"
        for point in metric["data"]["data_points"]
    ]
    assert points == [("interrupted", 1)]


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_zero_code_with_otlp_exporters_and_sigterm(tmp_path: Path, protocol: str) -> None:
    command = Path(sys.executable).with_name("opentelemetry-instrument")
    source = ZERO_CODE.format(end="time.sleep(3600)")
    with OtlpReceiver() as receiver:
        variables = receiver.environment(protocol)
        ended = Program(source, tmp_path, str(command), sys.executable, **variables).terminate()
        assert ended.status == -signal.SIGTERM
        received = receiver.wait_for(2)
    root = received.span("evaluation_loop agent")
    assert root["attributes"]["loopeval.run.outcome"] == "interrupted"
    assert [child["name"] for child in received.children(root)] == ["evaluation_loop.iteration"]
    assert received.total("loopeval.runs", loopeval__run__outcome="interrupted") == 1


def test_sigterm_while_the_endpoint_is_down(tmp_path: Path) -> None:
    """Exporters that retry do not keep the process from dying for longer than the bound."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    command = Path(sys.executable).with_name("opentelemetry-instrument")
    source = ZERO_CODE.format(end="time.sleep(3600)")
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
    }
    ended = Program(source, tmp_path, str(command), sys.executable, **variables).terminate()
    assert ended.status == -signal.SIGTERM
    assert ended.seconds < 20
