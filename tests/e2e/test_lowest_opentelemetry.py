"""The tests of telemetry on the lowest supported OpenTelemetry, with the built wheel."""

import re
from importlib.metadata import requires, version
from pathlib import Path

from support.environments import FLOOR, ROOT, Environment

TELEMETRY = [
    str(folder)
    for name in ("otel", "instrumentation", "faults", "runs")
    if (folder := ROOT / "tests" / name).is_dir()
]


def test_the_lowest_is_what_the_package_asks_for() -> None:
    pins = {name: pin for name, _, pin in (item.partition("==") for item in FLOOR)}
    asked: dict[str, str] = {}
    for requirement in requires("otel-loopeval") or []:
        match = re.match(r"(opentelemetry-[a-z-]+)>=([\w.]+)", requirement)
        if match:
            asked[match[1]] = match[2]

    assert asked == {name: pin.removesuffix(".0") for name, pin in pins.items()}


def test_the_newest_is_not_the_lowest() -> None:
    """The other tests run on another OpenTelemetry, or one of the two would be untested."""
    assert int(version("opentelemetry-sdk").split(".")[1]) > 43


def test_telemetry(floor: Environment, tmp_path: Path) -> None:
    done = floor.run(
        # Real processes are tried on the newest: here it is about the SDK.
        [
            "pytest",
            "-q",
            "-m",
            "not e2e",
            "-p",
            "no:cacheprovider",
            "-c",
            str(ROOT / "pyproject.toml"),
            *TELEMETRY,
        ],
        {"HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path)},
        cwd=tmp_path,
        timeout_s=1200,
    )

    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert re.search(r"\d+ passed", done.stdout)
