"""The layers: who may import whom, read from the source so that lazy imports count too."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import otel_loopeval

PACKAGE = Path(otel_loopeval.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
SHARED = frozenset({"semconv", "version"})

# What each room of the package may import of the others.
ALLOWED: dict[str, frozenset[str]] = {
    # core
    "semconv": frozenset(),
    "version": frozenset(),
    "health": SHARED,
    "detect": SHARED | {"health"},
    "runs": SHARED | {"detect", "health"},
    "evaluation": frozenset(),
    "reports": SHARED | {"runs", "health"},
    # edges
    "suite": SHARED | {"health", "evaluation"},
    "pricing": SHARED | {"runs"},
    "otel": SHARED | {"pricing", "runs", "detect", "health", "evaluation"},
    "instrumentation": SHARED | {"otel", "runs", "detect", "health", "evaluation"},
    "otlp": SHARED | {"runs", "detect", "health"},
    "sources": SHARED | {"otlp", "runs", "detect", "health"},
    "server": SHARED | {"otlp", "pricing", "reports", "runs", "detect", "health", "sources"},
    "spark": SHARED | {"otlp", "sources", "server", "pricing", "reports", "runs", "detect", "health"},
    "__main__": frozenset({"cli"}),
    "testing": SHARED
    | {"otel", "otlp", "instrumentation", "reports", "runs", "detect", "health", "evaluation"},
    "pytest_plugin": SHARED | {"testing"},
    "doctor": SHARED | {"otel"},
    "cli": SHARED
    | {
        "doctor",
        "pricing",
        "otel",
        "otlp",
        "instrumentation",
        "sources",
        "server",
        "spark",
        "runs",
        "reports",
        "detect",
        "health",
        "evaluation",
    },
}
CORE = ("semconv", "version", "health", "detect", "runs", "reports", "evaluation")

# What each room may import from outside of the standard library.
OUTSIDE: dict[str, frozenset[str]] = {
    "semconv": frozenset(),
    "version": frozenset(),
    "health": frozenset({"rich"}),  # print_summary, when it is called
    "detect": frozenset(),
    "runs": frozenset(),
    "reports": frozenset(),
    "evaluation": frozenset({"openai", "rich"}),  # the default judge and print_summary, when they are used
    "otel": frozenset({"opentelemetry"}),
    "instrumentation": frozenset({"opentelemetry", "wrapt"}),
    "testing": frozenset({"opentelemetry"}),
    "otlp": frozenset({"google", "msgspec", "opentelemetry"}),  # protobuf and the messages; no SDK
    "sources": frozenset({"chdb"}),
    "server": frozenset(
        {
            "ahocorasick_rs",
            "google",
            "grpc",
            "httptools",
            "jinja2",
            "opentelemetry",  # the messages; no SDK
            "prometheus_client",
            "starlette",
            "uvloop",
        }
    ),
    "pytest_plugin": frozenset({"pytest"}),
}
LAZY_OUTSIDE_ONLY = ("health", "evaluation")


def room_of(path: Path) -> str:
    """The room that a module is in: its folder under the package, or its own name."""
    parts = path.relative_to(PACKAGE).parts
    return parts[0].removesuffix(".py")


def imports_of(path: Path) -> Iterator[tuple[str, bool]]:
    """What a module imports, and whether it does so as it is imported itself."""
    tree = ast.parse(path.read_text())
    for_types_only: set[ast.AST] = set()
    at_top: set[ast.AST] = set()

    def walk(node: ast.AST, *, top: bool) -> None:
        for child in ast.iter_child_nodes(node):
            inside = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                for_types_only.add(child)
            if top and not inside:
                at_top.add(child)
            walk(child, top=top and not inside)

    walk(tree, top=True)
    for node in ast.walk(tree):
        found: list[str] = []
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found = [f"{node.module}.{alias.name}" for alias in node.names]
        elif (
            isinstance(node, ast.Call)
            and ast.unparse(node.func).endswith("import_module")
            and isinstance(node.args[0], ast.Constant)
        ):
            found = [str(node.args[0].value)]
        for name in found:
            yield name, node in at_top and node not in for_types_only


def own_rooms(path: Path) -> set[str]:
    """The rooms that a module imports from; a public name counts as the room that it lives in."""
    homes = {name: home.split(".")[1] for name, home in otel_loopeval._HOME.items()}
    homes["__version__"] = "version"
    return {
        homes.get(name.split(".")[1], name.split(".")[1])
        for name, _ in imports_of(path)
        if name.split(".")[0] == "otel_loopeval" and name.count(".") > 0
    }


def test_the_walk_sees_something() -> None:
    assert len(MODULES) > 50
    assert "otel" in own_rooms(PACKAGE / "instrumentation" / "setup.py")
    assert "opentelemetry" in {name.split(".")[0] for name, _ in imports_of(PACKAGE / "otel" / "live.py")}
    judge = dict(imports_of(PACKAGE / "evaluation" / "loop.py"))
    assert judge["otel_loopeval.evaluation.judge.Judge"] is False, (
        "a lazy import is seen, and seen to be lazy"
    )


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_what_its_room_may(path: Path) -> None:
    if path == PACKAGE / "__init__.py":
        return
    room = room_of(path)
    assert room in ALLOWED, f"{room} is no layer: add it to the table, with what it may import"
    forbidden = own_rooms(path) - ALLOWED[room] - {room}
    assert forbidden == set(), f"{room} must not import {forbidden}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_the_libraries_that_its_room_may(path: Path) -> None:
    room = room_of(path)
    if room not in OUTSIDE:
        return
    for name, eager in imports_of(path):
        library = name.split(".")[0]
        if library in sys.stdlib_module_names or library == "otel_loopeval":
            continue
        assert library in OUTSIDE[room], f"{room} must not import {library}"
        if room in LAZY_OUTSIDE_ONLY:
            assert not eager, f"{library} must be imported when it is used"


def test_what_serve_is_made_of_meets_in_its_core_only() -> None:
    allowed = {
        "traces": {"served", "traces"},
        "store": {"served", "store"},
        "next_hop": {"clock", "http", "next_hop", "served", "tls"},
        "page": {"page", "store", "tokens"},
    }
    for part, others in allowed.items():
        for path in (PACKAGE / "server" / part).glob("*.py"):
            found = {
                name.split(".")[2] for name, _ in imports_of(path) if name.startswith("otel_loopeval.server.")
            }
            assert found <= others, path


def test_otel_and_otlp_never_meet() -> None:
    """Neither directly nor by way of something that both use."""

    def reach(room: str, seen: set[str]) -> set[str]:
        for path in MODULES:
            if room_of(path) == room:
                for other in own_rooms(path) - seen:
                    seen.add(other)
                    reach(other, seen)
        return seen

    assert "otlp" not in reach("otel", set())
    assert "otel" not in reach("otlp", set())
    assert "otel" not in reach("runs", set())


def test_no_framework_is_imported_anywhere() -> None:
    """Instrumentations patch what the program imported."""
    frameworks = {"praisonaiagents", "langchain", "langgraph", "crewai", "autogen", "litellm", "agents"}
    for path in MODULES:
        found = {name.split(".")[0] for name, _ in imports_of(path)} & frameworks
        assert found == set(), path


def test_modules_are_of_a_readable_size() -> None:
    long = {
        str(path.relative_to(PACKAGE)): lines
        for path in MODULES
        if (lines := len(path.read_text().splitlines())) > 500 and path.name != "semconv.py"  # a table
    }
    assert long == {}
