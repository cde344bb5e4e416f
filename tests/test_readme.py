"""Every Python example of the README runs as it is; what it says of names and options is true.

The blocks of shell commands run in ``e2e/test_readme_commands.py`` and, the one that runs the tests, in CI.
"""

import argparse
import re
from dataclasses import fields
from pathlib import Path

import pytest
from support.environments import ROOT
from support.processes import StubProcess, run_python, this_environment
from support.readme import README, Block, blocks

from otel_loopeval import semconv
from otel_loopeval.cli import serve
from otel_loopeval.otel.options import Options

OUTPUTS = {
    "Loops of your own, 1": ["True Converged in 3 iteration(s)."],
    "Loops of your own, 2": ["True"],
    "Loops of your own, 3": ["[5.0, 9.0] True"],
    "Loops of your own, 4": ["True 1.0 [0.3333333333333333, 0.6666666666666666, 1.0]"],
    "Loops of your own, 5": ["9.0", "goal_met"],
    "Guards and doom loops, 1": ["True True False"],
    "Tokens and cost, 1": ["False"],
    "Guards and doom loops, 2": ["doom loop: repeated_action of search", "stopped after 4 iterations"],
}
"""What the examples that say little print, by section and number in it."""


def examples() -> list[tuple[str, Block]]:
    """The Python blocks that stand for themselves, named by section."""
    lines = README.read_text(encoding="utf-8").splitlines()
    named: list[tuple[str, Block]] = []
    for block in blocks("python"):
        if block.note is not None:
            continue
        section = next(line[3:] for line in reversed(lines[: block.line]) if line.startswith("## "))
        number = 1 + sum(name.startswith(section) for name, _ in named)
        named.append((f"{section}, {number}", block))
    return named


@pytest.mark.parametrize(("name", "block"), [pytest.param(*e, id=e[0]) for e in examples()])
def test_example(name: str, block: Block, tmp_path: Path) -> None:
    program = tmp_path / "example.py"
    program.write_text(block.text, encoding="utf-8")
    with StubProcess() as stub:
        done = run_python([str(program)], {**stub.environment(), "PYTHONUTF8": "1"}, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    if name in OUTPUTS:
        assert done.stdout.splitlines() == OUTPUTS[name]
    elif name.startswith("In CI"):
        assert "HEALTHY" in done.stdout
    else:
        assert '"loopeval.health.passed": true' in done.stdout


def test_all_outputs_belong_to_an_example() -> None:
    assert OUTPUTS.keys() <= {name for name, _ in examples()}


def test_the_zero_code_program_is_the_one_in_the_examples() -> None:
    (block,) = (block for block in blocks("python") if block.note == "file: app.py")

    example = (ROOT / "examples" / "praisonai_zero_code.py").read_text(encoding="utf-8")
    assert example.endswith(f'"""\n\n{block.text}')


def test_the_test_with_a_marker(tmp_path: Path) -> None:
    (block,) = (block for block in blocks("python") if block.note == "file: test_writer.py")
    (tmp_path / "test_writer.py").write_text(block.text, encoding="utf-8")
    done = run_python(["-m", "pytest", "-q", "-p", "no:cacheprovider", "test_writer.py"], cwd=tmp_path)

    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_the_two_commands() -> None:
    demo, tests, zero_code, *_ = (block.text for block in blocks("bash"))

    assert demo == "pip install . && otel-loopeval demo\n"
    assert tests == 'pip install -e ".[dev]" && pytest\n'
    assert zero_code.splitlines()[-1] == "opentelemetry-instrument python app.py"


def test_the_demo_shows_what_the_readme_shows(tmp_path: Path) -> None:
    done = this_environment().run(["otel-loopeval", "demo"], {"PYTHONUTF8": "1"}, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    (block,) = (block for block in blocks("text") if block.note == "demo")
    assert without_times(block.text) in without_times(done.stdout)


def without_times(text: str) -> str:
    """The demo's output without its durations and the blanks that line them up."""
    lines = (re.sub(r" +[\d.]+ m?s\b", " TIME", line).rstrip() for line in text.splitlines())
    return "\n".join(lines)


_SAID_OTHERWISE = {"threshold": 8.0, "max_wasted_iterations": "0 (agent runs: any)"}
"""Defaults of None that mean something else to a run."""


def test_the_configuration_table_has_every_option_and_its_default() -> None:
    rows: dict[str, str] = {}
    for line in README.read_text(encoding="utf-8").splitlines():
        match = re.match(r"\| (?:`\w+`)? ?\| `(LOOPEVAL_\w+)` \| (.+?) \|", line)
        if match:
            rows[match[1]] = match[2].strip("`")

    said = {"none": None, "without an SDK": None, "never": None, "true": True, "false": False}
    for field in fields(Options):
        stated = rows.pop(semconv.ENV_PREFIX + field.name.upper())
        default = _SAID_OTHERWISE.get(field.name, field.default)
        assert said.get(stated, stated) == (str(default) if stated not in said else default), field.name
    assert rows == {}


_UNITS = {"s": 1, "h": 3_600, "d": 86_400, "MiB": 2**20, "GiB": 2**30}


def test_the_table_of_the_server_s_limits_is_true() -> None:
    pytest.importorskip("starlette", reason="the extra [server] is not installed")
    from otel_loopeval.server.options import ServeOptions  # noqa: PLC0415
    from otel_loopeval.server.run_metrics import MAX_KINDS  # noqa: PLC0415
    from otel_loopeval.server.store.unwritten import MAX_RUNS  # noqa: PLC0415
    from otel_loopeval.server.traces.limits import Limits  # noqa: PLC0415 - needs the extra

    section = README.read_text(encoding="utf-8").partition("`serve`\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([a-z].*?) \| ([\d,]+) ?(\w*) \| (?:`(--[\w-]+)`)? ?\|", section, re.MULTILINE)
    stated = {what: int(n.replace(",", "")) * _UNITS.get(unit, 1) for what, n, unit, _ in rows}
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)
    defaults = vars(parser.parse_args([]))
    for what, _, _, option in rows:
        if option:
            assert stated.pop(what) == defaults[option[2:].replace("-", "_")], what

    limits = Limits()
    assert stated == {
        "requests in work at once": ServeOptions().max_inflight,
        "traces with runs under way": limits.max_traces,
        "kinds of runs at `/metrics`: service, version, agent, …": MAX_KINDS,
        "runs that wait for a store that fails": MAX_RUNS,
        "spans of one trace": limits.max_trace_spans,
        "closed traces that are remembered": limits.remembered,
    }
    assert len(rows) == 12


def test_options_of_the_server_in_the_readme_exist() -> None:
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)
    section = README.read_text(encoding="utf-8").partition("`serve`\n")[2].partition("\n## ")[0]
    mentioned = set(re.findall(r"--[a-z][\w-]+", section))
    assert mentioned >= {"--forward", "--store", "--grace", "--insecure"}
    assert mentioned <= set(re.findall(r"--[a-z][\w-]+", parser.format_help()))


def test_names_in_the_readme_exist() -> None:
    page = README.read_text(encoding="utf-8")
    names = {value for value in vars(semconv).values() if isinstance(value, str)}
    names |= {value.name for value in vars(semconv).values() if isinstance(value, semconv.Metric)}

    for mentioned in re.findall(r"`(loopeval\.[\w.]+)`", page):
        assert mentioned in names, mentioned


def test_links_lead_somewhere() -> None:
    for page in (README, ROOT / "examples" / "README.md", ROOT / "collector-config" / "README.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), (page.name, target)
