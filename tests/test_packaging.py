"""What the wheel holds and declares."""

import re
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from support.environments import ROOT, build_wheel

from otel_loopeval import __version__


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())

    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "otel_loopeval").rglob("*.py")}
    page = ROOT / "otel_loopeval" / "server" / "page"
    pages = {
        str(path.relative_to(ROOT))
        for folder in ("static", "templates")
        for path in (page / folder).iterdir()
    }
    dist_info = f"otel_loopeval-{__version__}.dist-info"
    assert names == modules | pages | {
        "otel_loopeval/py.typed",
        "otel_loopeval/reports/report.schema.json",
        f"{dist_info}/METADATA",
        f"{dist_info}/RECORD",
        f"{dist_info}/WHEEL",
        f"{dist_info}/entry_points.txt",
        f"{dist_info}/licenses/LICENSE",
    }


def test_entry_points(wheel: Path) -> None:
    text = zipfile.ZipFile(wheel).read(f"otel_loopeval-{__version__}.dist-info/entry_points.txt").decode()

    assert text.split() == [
        "[console_scripts]",
        "otel-loopeval",
        "=",
        "otel_loopeval.cli.main:main",
        "[opentelemetry_instrumentor]",
        "loopeval",
        "=",
        "otel_loopeval.instrumentation.instrumentor:LoopEvalInstrumentor",
        "[pytest11]",
        "loopeval",
        "=",
        "otel_loopeval.pytest_plugin",
    ]


def test_metadata(wheel: Path) -> None:
    name = f"otel_loopeval-{__version__}.dist-info/METADATA"
    metadata = Parser().parsestr(zipfile.ZipFile(wheel).read(name).decode())

    assert metadata["Version"] == __version__
    assert metadata["Requires-Python"] == ">=3.10"
    assert metadata["License-Expression"] == "Apache-2.0"
    requires = metadata.get_all("Requires-Dist") or []
    plain = {re.split(r"[>=<; ]", item)[0] for item in requires if "extra ==" not in item}
    assert plain == {
        "opentelemetry-api",
        "opentelemetry-exporter-otlp",
        "opentelemetry-instrumentation",
        "opentelemetry-sdk",
        "rich",
        "wrapt",
    }
    assert set(metadata.get_all("Provides-Extra") or []) >= {"auto", "judge", "praisonai", "dev"}


def test_the_changelog_has_this_version() -> None:
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
