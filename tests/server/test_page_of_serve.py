"""The page as ``serve`` has it: what programs send shows there, and is there after kill -9."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
from base64 import b64encode
from pathlib import Path

from serve_processes import STUCK, Serve, Sink, Traffic, await_that, serving

QUICK = ("--grace", "200ms")


def page(server: Serve, path: str = "/", **headers: str) -> tuple[int, str]:
    status, _, body = server.request("GET", path, headers=headers)
    return status, body.decode()


def test_what_a_program_sends_shows_on_the_page_and_survives_kill_nine(tmp_path: Path) -> None:
    traffic = Traffic()
    traffic.agent("writer", turns=STUCK)
    link = ("--trace-url", "http://localhost:16686/trace/{trace_id}")
    with serving("--store", "runs.db", *link, *QUICK, cwd=tmp_path) as server:
        assert "No runs yet" in page(server)[1]
        for body in traffic.taken():
            assert server.send(body) == 200
        await_that(lambda: "/runs/" in page(server)[1], "the run")
        listed = page(server)[1]
        server.end(signal.SIGKILL)
    assert ">writer</bdi></a>" in listed
    assert "unhealthy" in listed
    address = listed.partition('href="/runs/')[2].partition('"')[0]
    with serving("--store", "runs.db", *link, *QUICK, cwd=tmp_path) as server:
        status, run = page(server, f"/runs/{address}")
    assert status == 200
    assert f'href="http://localhost:16686/trace/{address.partition("-")[0]}"' in run
    assert 'id="repeats"' in run


def test_of_traces_that_are_over_no_span_is_kept_as_open(tmp_path: Path) -> None:
    with serving("--store", "runs.db", *QUICK, cwd=tmp_path) as server:
        for number in range(1, 4):  # one after another: the server's clock has ticked meanwhile
            traffic = Traffic()
            traffic.agent("writer", turns=STUCK)
            *first, root = traffic.taken()
            for body in first:
                assert server.send(body) == 200
            assert "1 trace under way" in page(server)[1]
            assert server.send(root) == 200
            await_that(lambda expected=number: page(server)[1].count('href="/runs/') == expected, "the run")
            await_that(lambda: "under way" not in page(server)[1], "the end of the trace")
        assert server.end() == 0
    connection = sqlite3.connect(tmp_path / "runs.db")
    assert connection.execute("SELECT count(*) FROM open_spans").fetchone() == (0,)
    connection.close()


def test_runs_that_come_with_their_verdict_show_too_and_are_not_counted_again(tmp_path: Path) -> None:
    with Sink() as sink, serving("--forward", sink.url, "--store", "runs.db", *QUICK, cwd=tmp_path) as server:
        there = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.port}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        }
        done = subprocess.run(
            [sys.executable, "-m", "otel_loopeval", "demo"],
            env={**os.environ, **there},
            cwd=tmp_path,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        await_that(lambda: page(server)[1].count('href="/runs/') == 3, "the demo's three runs")
        listed = page(server)[1]
        metrics = server.metrics()
        assert server.end() == 0
        assert sink.verdicts() == []

    assert sorted(re.findall(r"<bdi>(\w+)</bdi></a>", listed)) == ["polisher", "researcher", "writer"]
    assert re.findall(r'<span class="count">([^<]*)</span>', listed) == ["3", "2", "1", "1", "0"]
    assert metrics["loopeval_serve_already_judged_total"] == 3
    assert [name for name in metrics if name.startswith("loopeval_runs")] == []


def test_tokens_are_asked_for_as_a_password(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("red:secret-1\n")
    basic = f"Basic {b64encode(b'me:secret-1').decode()}"
    with serving("--store", "runs.db", "--token-file", "tokens", cwd=tmp_path) as server:
        assert page(server)[0] == 401
        assert page(server, authorization=basic)[0] == 200
        assert page(server, authorization="Bearer secret-1")[0] == 200


def test_the_same_trace_of_two_tenants_is_a_run_of_each_also_after_kill_nine(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("red:secret-1\nblue:secret-2\n*:secret-3\n")
    red, blue, of_all = ({"authorization": f"Bearer secret-{number}"} for number in (1, 2, 3))
    traffic = Traffic()
    traffic.agent("writer", turns=STUCK)
    *first, last = traffic.taken()
    arguments = ("--store", "runs.db", "--token-file", "tokens", *QUICK)

    def addresses(server: Serve, token: dict[str, str]) -> set[str]:
        return set(re.findall(r'href="(/runs/[^"]*)"', page(server, **token)[1]))

    with serving(*arguments, cwd=tmp_path) as server:
        for body in first:
            assert server.send(body, **red) == server.send(body, **blue) == 200
        assert "1 trace under way" in page(server, **red)[1]
        assert "2 traces under way" in page(server, **of_all)[1]
        server.end(signal.SIGKILL)
    with serving(*arguments, cwd=tmp_path) as server:
        assert server.send(last, **red) == 200
        await_that(lambda: addresses(server, red), "the run of red")
        assert "1 trace under way" in page(server, **blue)[1]
        assert addresses(server, blue) == set()
        assert server.send(last, **blue) == 200
        await_that(lambda: addresses(server, blue), "the run of blue")
        of_red, of_blue = addresses(server, red), addresses(server, blue)
        assert addresses(server, of_all) == of_red | of_blue
        assert len(of_red | of_blue) == 2
        assert "spans missing" not in page(server, **of_all)[1]
        (address,) = of_blue
        assert page(server, address, **blue)[0] == page(server, address, **of_all)[0] == 200
        unknown = page(server, "/runs/unknown", **red)
        assert page(server, address, **red) == unknown
        assert unknown[0] == 404
        assert server.end() == 0
    connection = sqlite3.connect(tmp_path / "runs.db")
    assert connection.execute("SELECT count(*) FROM open_spans").fetchone() == (0,)
    connection.close()


def test_another_name_of_the_loopback_is_not_answered(tmp_path: Path) -> None:
    with serving("--store", "runs.db", cwd=tmp_path) as server:
        assert page(server, host="evil.example")[0] == 421
