"""Names that leave the process are spelled in ``semconv.py`` and nowhere else."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import otel_loopeval
from otel_loopeval import semconv

PACKAGE = Path(otel_loopeval.__file__).parent
MODULES = [path for path in sorted(PACKAGE.rglob("*.py")) if path.name != "semconv.py"]
NAME = re.compile(r"(loopeval|gen_ai)\.")


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """The string literals of a module that are no docstring, parts of f-strings included."""
    tree = ast.parse(path.read_text())
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_other_module_spells_a_name(path: Path) -> None:
    assert [(line, text) for line, text in literals(path) if NAME.match(text)] == []


def test_the_search_finds_what_it_is_for(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""loopeval.run.mode"""\nx = "loopeval.run.mode"\ny = f"gen_ai.{x}"\nz = "see loopeval.x"\n'
    )
    assert [line for line, text in literals(module) if NAME.match(text)] == [2, 3]


def constants() -> dict[str, Any]:
    return {name: value for name, value in vars(semconv).items() if name.isupper()}


def attribute_names() -> dict[str, str]:
    return {
        name: value
        for name, value in constants().items()
        if isinstance(value, str) and NAME.match(value) and not name.endswith("_PREFIX")
    }


def metrics() -> list[semconv.Metric]:
    return [value for value in constants().values() if isinstance(value, semconv.Metric)]


def test_names_are_unique() -> None:
    names = list(attribute_names().values())
    assert len(names) == len(set(names))
    assert len({metric.name for metric in metrics()}) == len(metrics())


@pytest.mark.parametrize(
    "name", sorted({*attribute_names().values(), *(metric.name for metric in metrics())})
)
def test_names_follow_the_naming_rules(name: str) -> None:
    """Dotted lower-case words, as the semantic conventions have them."""
    assert re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+", name)


def test_metrics_are_told_apart_in_prometheus() -> None:
    """Dots become underscores there."""
    prometheus = [metric.name.replace(".", "_") for metric in metrics()]
    assert len(prometheus) == len(set(prometheus))
    assert {"loopeval_doom_loop_fired", "loopeval_runs"} <= set(prometheus)


@pytest.mark.parametrize("metric", metrics(), ids=lambda metric: metric.name)
def test_metrics_have_units_and_descriptions(metric: semconv.Metric) -> None:
    assert metric.unit in {"1", "s", "By", "USD"} or re.fullmatch(r"\{[a-z]+\}", metric.unit)
    assert metric.description
    assert not metric.description.endswith(".")


def test_enumerations_are_lower_case_words() -> None:
    for values in (semconv.MODES, semconv.OUTCOMES, semconv.GUARD_KINDS, semconv.GUARD_ACTIONS):
        assert len(set(values)) == len(values)
        for value in values:
            assert re.fullmatch(r"[a-z_]+", value)
    assert set(semconv.OUTCOMES) > semconv.OUTCOMES_WITHOUT_VERDICT
