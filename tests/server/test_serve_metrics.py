"""/metrics of ``serve``: valid, named as ever, and bounded whatever spans say."""

import re
import socket
import subprocess
from pathlib import Path

import pytest
from server.serve_processes import Traffic, await_that, serving
from support.backends import need

from otel_loopeval import semconv
from otel_loopeval.server.verdicts import MAX_KINDS

NAMES = sorted(
    value
    for name, value in vars(semconv).items()
    if name.isupper() and isinstance(value, str) and value.startswith(("loopeval.", "gen_ai."))
)
SERVES = {
    "loopeval_serve_already_judged_total",
    "loopeval_serve_dropped_total",
    "loopeval_serve_held_bytes",
    "loopeval_serve_marked_spans_total",
    "loopeval_serve_requests_total",
    "loopeval_serve_spans_total",
    "loopeval_serve_traces_closed_total",
    "loopeval_serve_traces_open",
    "loopeval_serve_verdicts_lost_total",
}


def hostile(batch: int) -> bytes:
    """A hundred agents, each with a name of its own, that say whatever they like of themselves."""
    traffic = Traffic(f'shop"\\\n\u2028{{}} {batch}' + "x" * 100_000)
    tracer = traffic.provider.get_tracer('somebody"\n.genai')
    for number in range(100):
        word = f'"\\\n}} \u202e {"abcdefghij"[batch]}{"abcdefghij"[number // 10]}{"abcdefghij"[number % 10]}'
        said = {name: word for position, name in enumerate(NAMES) if (position + number) % 3 == 0}
        said |= {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": word + "x" * 10_000}
        with tracer.start_as_current_span(f"invoke_agent {word}", attributes=said) as span:
            span.add_event("loopeval.guard", dict.fromkeys(NAMES, word))
            tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": word}
            with tracer.start_as_current_span("execute_tool", attributes=tool):
                pass
    return traffic.body()


def test_metrics_are_valid_and_bounded_whatever_spans_say(tmp_path: Path) -> None:
    promtool = need("promtool")
    (tmp_path / "tokens").write_text('re"d\\:secret-1\n')
    with serving("--store", "runs.db", "--token-file", "tokens", "--grace", "0s", cwd=tmp_path) as server:
        for batch in range(3):
            assert server.send(hostile(batch), authorization="Bearer secret-1") == 200
        assert server.send(b"", authorization="Bearer \xff") == 401
        await_that(lambda: server.metrics()["loopeval_serve_traces_open"] == 0, "all of them judged")
        _, headers, text = server.request("GET", "/metrics")
    checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")
    assert headers["content-type"].startswith("text/plain")
    assert len(text) < 2_000_000

    values: dict[str, set[str]] = {}
    names: set[str] = set()
    for line in text.decode().split("\n"):
        if line and not line.startswith("#"):
            names.add(line.partition("{")[0].partition(" ")[0])
            for label, value in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', line):
                values.setdefault(label, set()).add(value)
    assert {name for name in names if name.startswith("loopeval_serve_")} == SERVES
    assert not {name for name in names if name.endswith("_created")}
    assert len(values["gen_ai_agent_name"]) == 101
    assert "_other" in values["gen_ai_agent_name"]
    assert max(map(len, values["gen_ai_agent_name"])) < 250  # with what is escaped
    assert len(values["job"]) == 3
    assert values["loopeval_serve_tenant"] == {"", 're\\"d\\\\'}
    assert values["loopeval_run_mode"] == {"agent"}
    assert values["loopeval_guard_kind"] == {"other"}
    assert values["loopeval_guard_action"] == {"observe"}


def kinds(service: str, agents: int) -> bytes:
    """Runs of a service, each of another agent in a framework of its own."""
    traffic = Traffic(service)
    tracer = traffic.provider.get_tracer("otel_loopeval")
    for number in range(agents):
        said = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": f"agent {number}",
            "loopeval.run.framework": f"framework {service} {number}",
        }
        with tracer.start_as_current_span(f"evaluation_loop agent {number}", attributes=said):
            pass
    return traffic.body()


def test_many_kinds_of_runs_fill_no_memory_and_keep_nobody_waiting(tmp_path: Path) -> None:
    agents = 90
    services = MAX_KINDS // agents + 5
    with serving("--store", "runs.db", "--grace", "0s", cwd=tmp_path) as server:
        for number in range(services):
            assert server.send(kinds(f"service {number}", agents)) == 200
        await_that(lambda: server.metrics()["loopeval_serve_traces_open"] == 0, "all of them judged")
        runs = {name: count for name, count in server.metrics().items() if name.startswith("loopeval_runs_")}
        assert sum(runs.values()) == services * agents
        assert len(runs) == MAX_KINDS + 1
        (others,) = (count for name, count in runs.items() if 'job="_other"' in name)
        assert others == services * agents - MAX_KINDS
        assert len({re.search(r'framework="([^"]*)"', name)[1] for name in runs}) == 101  # type: ignore[index]

        with (
            socket.create_connection(("127.0.0.1", server.port)) as scraper,
            socket.create_connection(("127.0.0.1", server.port)) as other,
        ):
            scraper.sendall(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n")
            other.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            assert other.recv(1_000).startswith(b"HTTP/1.1 200")
            scraper.setblocking(False)
            with pytest.raises(BlockingIOError):  # the metrics are not there yet
                scraper.recv(1)
            scraper.setblocking(True)
            assert scraper.recv(1_000).startswith(b"HTTP/1.1 200")
