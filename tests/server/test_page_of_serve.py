"""The page as ``serve`` has it: what programs send shows there, and is there after kill -9."""

import signal
from base64 import b64encode
from pathlib import Path

from serve_processes import STUCK, Serve, Traffic, await_that, serving

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
    assert ">writer</a>" in listed
    assert "unhealthy" in listed
    address = listed.partition('href="/runs/')[2].partition('"')[0]
    with serving("--store", "runs.db", *link, *QUICK, cwd=tmp_path) as server:
        status, run = page(server, f"/runs/{address}")
    assert status == 200
    assert f'href="http://localhost:16686/trace/{address.partition("-")[0]}"' in run
    assert 'id="repeats"' in run


def test_tokens_are_asked_for_as_a_password(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("red:secret-1\n")
    basic = f"Basic {b64encode(b'me:secret-1').decode()}"
    with serving("--store", "runs.db", "--token-file", "tokens", cwd=tmp_path) as server:
        assert page(server)[0] == 401
        assert page(server, authorization=basic)[0] == 200
        assert page(server, authorization="Bearer secret-1")[0] == 200


def test_another_name_of_the_loopback_is_not_answered(tmp_path: Path) -> None:
    with serving("--store", "runs.db", cwd=tmp_path) as server:
        assert page(server, host="evil.example")[0] == 421
