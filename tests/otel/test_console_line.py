"""Without a backend, a run says on stderr how it went."""

import io
import re
import sys

import pytest

from otel_loopeval import instrument, iteration, loop, record_guard_event
from otel_loopeval.testing import Capture


def run_scores(*scores: float, doom: bool = False, mode: str = "optimize", agent: str = "writer") -> None:
    with loop(agent, threshold=8, mode=mode):
        for score in scores:
            with iteration() as it:
                it.score = score
        if doom:
            record_guard_event({"type": "doom_loop"})


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    return re.sub(r"\d+\.\d\d s", "N s", captured.err)


def test_a_healthy_run(capsys: pytest.CaptureFixture[str]) -> None:
    instrument()
    run_scores(5, 9)
    assert printed(capsys) == "loopeval: HEALTHY writer [optimize] 2 iteration(s), best 9 of 8, N s\n"


def test_an_unhealthy_run_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    instrument()
    run_scores(9, 5, doom=True)
    assert printed(capsys) == (
        "loopeval: UNHEALTHY writer [optimize] 2 iteration(s), best 9 of 8, N s: "
        "Converged in 1 iteration(s). 1 wasted iteration(s) after threshold. "
        "Doom-loop guard fired. 1 guard intervention(s).\n"
    )


def test_a_run_without_a_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    instrument()
    with loop("writer") as run:
        run.paused()
    assert printed(capsys) == "loopeval: NO VERDICT writer [optimize] 0 iteration(s), N s, paused\n"


def test_it_needs_no_instrument_call(capsys: pytest.CaptureFixture[str]) -> None:
    run_scores(9)
    assert printed(capsys).startswith("loopeval: HEALTHY writer")


def test_none_with_a_backend(capture: Capture, capsys: pytest.CaptureFixture[str]) -> None:
    run_scores(9)
    assert printed(capsys) == ""


@pytest.mark.parametrize("wanted", [True, False])
def test_the_option_decides(plain_capture: Capture, capsys: pytest.CaptureFixture[str], wanted: bool) -> None:
    plain_capture.instrument(console=wanted)
    run_scores(9)
    assert (printed(capsys) != "") is wanted


def test_off_without_a_backend(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPEVAL_CONSOLE", "off")
    instrument()
    run_scores(9)
    assert printed(capsys) == ""


class Broken(io.StringIO):
    """A stream of a terminal that is gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


@pytest.mark.swallows
def test_a_broken_stderr_is_no_reason_to_fail(
    monkeypatch: pytest.MonkeyPatch, swallowed: list[tuple[str, Exception]]
) -> None:
    instrument()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", Broken())
        run_scores(9)
        patch.setattr(sys, "stderr", None)
        run_scores(9)
    assert [(place, type(error)) for place, error in swallowed] == [("console", BrokenPipeError)]


def test_an_ascii_stderr_and_a_name_that_is_not(
    monkeypatch: pytest.MonkeyPatch, swallowed: list[tuple[str, Exception]]
) -> None:
    instrument()
    raw = io.BytesIO()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", io.TextIOWrapper(raw, "ascii"))
        run_scores(9, agent="schreiber-für-alles")
        sys.stderr.flush()
        line = raw.getvalue()
    assert line.startswith(b"loopeval: HEALTHY schreiber-f\\xfcr-alles [optimize]")
    assert swallowed == []
