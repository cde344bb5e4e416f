"""LoopHealthResult: strict JSON, there and back, and the printed summary."""

import io
import json
import math
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import otel_loopeval
from otel_loopeval.health import LoopHealthResult, assess

UNHEALTHY = assess([5.0, None, 8.25, 8.0], 8.0, guard_count=2, doom_loop_fired=True, total_duration_s=1.234)


def printed(result: LoopHealthResult, **environment: str) -> str:
    """What a process prints whose standard output is a pipe."""
    program = (
        "import sys, json; from otel_loopeval.health import LoopHealthResult;"
        "LoopHealthResult.from_dict(json.loads(sys.argv[1])).print_summary()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, result.to_json()],
        env={"PYTHONIOENCODING": "utf-8", **environment},
        capture_output=True,
        check=True,
    )
    return done.stdout.decode()


def test_the_defaults() -> None:
    result = LoopHealthResult(1, 0, False, 0, 2.0)
    assert result.to_dict() == {
        "iterations_to_success": 1,
        "wasted_iterations": 0,
        "doom_loop_fired": False,
        "guard_interventions": 0,
        "total_duration_s": 2.0,
        "score_delta_per_iteration": [],
        "converged": False,
        "success": False,
        "passed": False,
        "threshold": 8.0,
        "reasoning": "",
        "metadata": {},
    }


def test_passed_is_success() -> None:
    assert LoopHealthResult(1, 0, False, 0, 2.0, success=True).passed is True
    assert LoopHealthResult(1, 0, False, 0, 2.0).passed is False


def test_json_has_null_for_what_is_not_finite() -> None:
    metadata: dict[Any, Any] = {
        "x": math.nan,
        "list": [1, math.inf],
        3: (Decimal("1.5"),),
        "set": {2},
        "other": 1 + 2j,
    }
    result = LoopHealthResult(
        1,
        0,
        False,
        0,
        math.inf,
        [math.nan, 1.5, None],
        threshold=-math.inf,
        metadata=metadata,
    )
    assert json.loads(result.to_json()) == {
        "iterations_to_success": 1,
        "wasted_iterations": 0,
        "doom_loop_fired": False,
        "guard_interventions": 0,
        "total_duration_s": None,
        "score_delta_per_iteration": [None, 1.5, None],
        "converged": False,
        "success": False,
        "passed": False,
        "threshold": None,
        "reasoning": "",
        "metadata": {"x": None, "list": [1, None], "3": ["1.5"], "set": [2], "other": "(1+2j)"},
    }
    assert "NaN" not in result.to_json()
    assert "Infinity" not in result.to_json()


def test_json_is_indented_by_two() -> None:
    assert UNHEALTHY.to_json().startswith('{\n  "iterations_to_success": 3,\n')


def test_to_dict_does_not_share_the_metadata() -> None:
    result = LoopHealthResult(1, 0, False, 0, 2.0, metadata={"a": 1})
    result.to_dict()["metadata"]["a"] = 2
    assert result.metadata == {"a": 1}


def test_there_and_back() -> None:
    assert LoopHealthResult.from_dict(UNHEALTHY.to_dict()) == UNHEALTHY
    assert LoopHealthResult.from_dict(json.loads(UNHEALTHY.to_json())) == UNHEALTHY


@settings(deadline=None)
@given(
    st.builds(
        LoopHealthResult,
        st.integers(0, 50),
        st.integers(0, 50),
        st.booleans(),
        st.integers(0, 50),
        st.floats(),
        st.lists(st.none() | st.floats()),
        st.booleans(),
        st.booleans(),
        st.floats(),
        st.text(),
        st.dictionaries(st.text(), st.none() | st.integers() | st.text() | st.floats()),
    )
)
def test_json_survives_a_round_trip(result: LoopHealthResult) -> None:
    def refuse(constant: str) -> Any:
        raise ValueError(constant)

    text = result.to_json()
    assert LoopHealthResult.from_dict(json.loads(text, parse_constant=refuse)).to_json() == text


def test_from_dict_ignores_what_it_does_not_know() -> None:
    data = {**UNHEALTHY.to_dict(), "passed": True, "novelty": 1}
    assert LoopHealthResult.from_dict(data) == UNHEALTHY


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"doom_loop_fired": "no"}, TypeError, "data['doom_loop_fired']='no' must be a bool"),
        ({"wasted_iterations": 1.5}, TypeError, "data['wasted_iterations']=1.5 must be an int"),
        ({"wasted_iterations": True}, TypeError, "data['wasted_iterations']=True must be an int"),
        ({"threshold": "8"}, TypeError, "data['threshold']='8' must be a number or None"),
        ({"score_delta_per_iteration": 3}, TypeError, "must be a list of numbers or None"),
        ({"score_delta_per_iteration": ["x"]}, TypeError, "data['score_delta_per_iteration']='x' must be"),
        ({"reasoning": None}, TypeError, "data['reasoning']=None must be a str"),
        ({"metadata": []}, TypeError, "data['metadata']=[] must be a mapping"),
    ],
)
def test_from_dict_names_what_is_wrong(change: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        LoopHealthResult.from_dict({**UNHEALTHY.to_dict(), **change})
    assert message in str(raised.value)


def test_from_dict_names_what_is_missing() -> None:
    with pytest.raises(ValueError, match="data has no wasted_iterations, total_duration_s: required are"):
        LoopHealthResult.from_dict(
            {"iterations_to_success": 1, "doom_loop_fired": True, "guard_interventions": 0}
        )
    wrong: Any = [1]
    with pytest.raises(TypeError, match=r"data=\[1\] must be a mapping"):
        LoopHealthResult.from_dict(wrong)


# --- the printed summary ---------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", ["120", "40", "24"])
def test_piped_output_has_every_word_and_no_escape_codes(columns: str) -> None:
    text = printed(UNHEALTHY, COLUMNS=columns)
    assert "\x1b" not in text
    assert max(len(line) for line in text.splitlines()) <= int(columns)
    # A cell goes on in the next line where the table is narrow: read down the columns.
    rows = [line.strip("│").split("│") for line in text.splitlines() if line.startswith("│")]
    names, values = ("".join("".join(column).split()) for column in zip(*rows, strict=True))
    assert names.startswith("StatusConvergedIterationstoSuccessWastedIterationsDoom-LoopFired")
    assert values.startswith("❌UNHEALTHY✅yes31⚠️YES281.23sn/a→n/a→-0.25Convergedin3iteration(s).1wasted")
    assert values.endswith("2guardintervention(s).")
    assert "…" not in text


def test_a_wide_terminal_reads_without_colour() -> None:
    lines = printed(UNHEALTHY, COLUMNS="100").splitlines()
    cells = [[cell.strip() for cell in line.strip("│┃").split("│")] for line in lines if line.startswith("│")]
    assert cells[:9] == [
        ["Status", "❌ UNHEALTHY"],
        ["Converged", "✅ yes"],
        ["Iterations to Success", "3"],
        ["Wasted Iterations", "1"],
        ["Doom-Loop Fired", "⚠️ YES"],
        ["Guard Interventions", "2"],
        ["Threshold", "8"],
        ["Duration", "1.23s"],
        ["Score Deltas", "n/a → n/a → -0.25"],
    ]
    assert cells[9][0] == "Reasoning"
    assert cells[9][1].startswith("Converged in 3 iteration(s). 1 wasted iteration(s) after threshold.")


def test_a_healthy_run_says_so() -> None:
    text = printed(assess([5.0, 9.0], 8.0), COLUMNS="100")
    assert "✅ HEALTHY" in text
    assert "│ no " in text  # no doom loop
    assert "+4" in text


def test_a_stream_without_symbols_gets_words() -> None:
    text = printed(UNHEALTHY, COLUMNS="100", PYTHONIOENCODING="ascii")
    assert text.isascii()
    assert "UNHEALTHY" in text
    assert "n/a -> n/a -> -0.25" in text


def test_a_terminal_gets_colours() -> None:
    assert "\x1b[" in printed(UNHEALTHY, FORCE_COLOR="1", TERM="xterm")


def test_square_brackets_are_no_markup() -> None:
    out = io.StringIO()
    LoopHealthResult(1, 0, False, 0, 1.0, reasoning="[red]tool[/red] [x] :smile:").print_summary(out)
    assert "[red]tool[/red] [x] :smile:" in out.getvalue()


def test_many_deltas_are_not_all_printed() -> None:
    out = io.StringIO()
    assess([float(n % 7) for n in range(1_000)], 8.0).print_summary(out)
    assert "(989 earlier)" in out.getvalue()
    assert len(out.getvalue()) < 3_000


def test_numbers_that_are_not_finite_are_printed() -> None:
    out = io.StringIO()
    LoopHealthResult(
        1, 0, False, 0, math.nan, [10**400, math.inf, math.nan], threshold=math.inf
    ).print_summary(out)
    assert "nans" in out.getvalue()
    assert "+inf" in out.getvalue()


def without_packages(program: str) -> str:
    """What a process prints in which only this project and the standard library can be imported."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": str(Path(otel_loopeval.__file__).parent.parent), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    return done.stdout


def test_without_rich_the_lines_are_plain() -> None:
    text = without_packages(
        "from otel_loopeval.health import assess; assess([9.0], 8.0, total_duration_s=0.5).print_summary()"
    )
    assert text == (
        "Loop Health Summary\n"
        "  Status: ✅ HEALTHY\n"
        "  Converged: ✅ yes\n"
        "  Iterations to Success: 1\n"
        "  Wasted Iterations: 0\n"
        "  Doom-Loop Fired: no\n"
        "  Guard Interventions: 0\n"
        "  Threshold: 8\n"
        "  Duration: 0.50s\n"
        "  Reasoning: Converged in 1 iteration(s).\n"
    )


def test_the_room_needs_only_the_standard_library() -> None:
    text = without_packages(
        "import sys; import otel_loopeval.health;"
        "print(sorted({name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)))"
    )
    assert text in {"['otel_loopeval']\n", "['__main__', 'otel_loopeval']\n"}
