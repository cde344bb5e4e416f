"""What can be imported from where, and what an import brings along."""

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import otel_loopeval

PACKAGE = Path(otel_loopeval.__file__).parent
PUBLIC = [
    "AutonomyResult",
    "DoomLoopDetector",
    "EvaluationLoop",
    "EvaluationLoopResult",
    "GoalCriteria",
    "GuardEvent",
    "IterationResult",
    "Judge",
    "LoopEvaluator",
    "LoopHealthProcessor",
    "LoopHealthResult",
    "ModelOutput",
    "StopLoop",
    "ToolCall",
    "UserMessage",
    "__version__",
    "current_run",
    "instrument",
    "iteration",
    "loop",
    "record_guard_event",
    "run_until",
    "run_until_async",
    "uninstrument",
]


RUN_A_LOOP = """
from otel_loopeval import EvaluationLoop
EvaluationLoop(lambda prompt: "x", "", metric=lambda output: 9).run("p")
"""


def modules() -> list[str]:
    return [
        "otel_loopeval",
        *(module.name for module in pkgutil.walk_packages([str(PACKAGE)], "otel_loopeval.")),
    ]


def in_a_new_process(program: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_public_names() -> None:
    assert otel_loopeval.__all__ == PUBLIC
    assert dir(otel_loopeval) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_can_be_imported(name: str) -> None:
    value = getattr(otel_loopeval, name)
    assert value is not None
    assert getattr(otel_loopeval, name) is value
    if name != "__version__":
        assert value.__doc__, "a public name is documented"


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'otel_loopeval' has no attribute 'Loop'"):
        _ = otel_loopeval.Loop  # type: ignore[attr-defined]


def test_type_checkers_see_the_same_names() -> None:
    """The imports for type checkers and the table for the interpreter are written down separately."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    seen = {
        (node.module, alias.name)
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == {(room, name) for room, names in otel_loopeval._ROOMS.items() for name in names}
    assert {name for _, name in seen} | {"__version__"} == set(PUBLIC)


def import_of(module: str) -> ModuleType:
    """A module; the test is skipped where that is for Spark, and there is none."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name in ("pyspark", "msgspec") and module.startswith("otel_loopeval.spark"):
            pytest.skip(f"{error.name} is not installed (the extra [spark])")
        raise


@pytest.mark.parametrize("module", modules())
def test_all_is_sorted_complete_and_true(module: str) -> None:
    imported = import_of(module)
    names = getattr(imported, "__all__", None)
    if names is None:
        return
    assert list(names) == sorted(names)
    assert len(set(names)) == len(names)
    for name in names:
        assert hasattr(imported, name)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("__init__.py")), ids=lambda path: path.parent.name)
def test_packages_hold_no_logic(path: Path) -> None:
    """Only the root does more than re-export: it imports lazily."""
    if path.parent == PACKAGE:
        return
    for node in ast.parse(path.read_text()).body:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_all = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        assert is_docstring or is_all or isinstance(node, (ast.Import, ast.ImportFrom)), ast.unparse(node)


@pytest.mark.parametrize("module", modules())
def test_every_module_says_what_it_is(module: str) -> None:
    assert (import_of(module).__doc__ or "").strip(' ."'), module


def test_the_import_is_lazy() -> None:
    loaded = in_a_new_process(
        "import sys, otel_loopeval; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    heavy = {
        "openai",
        "rich",
        "praisonaiagents",
        "litellm",
        "opentelemetry",
        "wrapt",
        "httpx",
        "pydantic",
        "google",
        "grpc",
    }
    assert heavy & set(loaded) == set()
    mine = in_a_new_process(
        "import sys, otel_loopeval; print(*sorted(n for n in sys.modules if n.startswith('otel_loopeval')))"
    )
    assert mine == ["otel_loopeval", "otel_loopeval.version"]


@pytest.mark.parametrize(
    "use",
    [
        "from otel_loopeval import *",
        "import otel_loopeval; otel_loopeval.instrument()",
        "from otel_loopeval import loop, iteration\nwith loop('a'), iteration() as it: it.score = 9",
        RUN_A_LOOP,
    ],
)
def test_using_it_imports_no_framework(use: str) -> None:
    loaded = in_a_new_process(f"import sys\n{use}\nprint(*{{name.split('.')[0] for name in sys.modules}})")
    assert {"praisonaiagents", "openai", "litellm", "rich", "httpx", "google", "grpc"} & set(loaded) == set()


@pytest.mark.parametrize(
    "use",
    [
        "from otel_loopeval import LoopEvaluator; LoopEvaluator().run(None)",
        "from otel_loopeval import DoomLoopDetector, ToolCall; DoomLoopDetector().observe(ToolCall('t', {}))",
        RUN_A_LOOP,
        "import otel_loopeval.runs.reconstruct",
    ],
)
def test_the_core_runs_without_opentelemetry(use: str) -> None:
    """Not merely unused: absent."""
    program = f"import sys\nsys.modules['opentelemetry'] = None\n{use}\nprint('fine')"
    assert in_a_new_process(program) == ["fine"]


def test_the_package_is_typed() -> None:
    assert (PACKAGE / "py.typed").exists()
