"""The real servers of the end-to-end tests: found on the machine, or built from Go modules and cached.

    with collector_of_the_tests as process: ...   # see support.servers for starting them
    need("promtool")                              # the path of a program, else the test skips (in CI: fails)

Which version of which server: Prometheus and Alertmanager are Debian's packages ``prometheus`` and
``prometheus-alertmanager``; the Collector and Jaeger are what ``tests/e2e/backends/<name>/go.mod`` requires.
``python tests/support/backends.py`` builds what is not there yet.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

try:
    from support.environments import ROOT
except ImportError:  # run as a script
    from environments import ROOT  # type: ignore[reportMissingImports, no-redef]

MODULES = ROOT / "tests" / "e2e" / "backends"
"""One Go module for each server that is built: its folder's name, and the package that is its command."""

BUILT = {"collector": ".", "jaeger": "github.com/jaegertracing/jaeger/cmd/jaeger"}
PACKAGED = {
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "prometheus-alertmanager": "prometheus-alertmanager",
    "amtool": "prometheus-alertmanager",
}
"""Programs, and the Debian packages that they come in."""


class MissingError(Exception):
    """A server is not on this machine; the message says how to get it."""


def in_ci() -> bool:
    """Whether everything is required."""
    return os.environ.get("CI", "").lower() in {"1", "true"}


def need(name: str) -> str:
    """The path of a server's program.

    Without it the test is skipped with the reason, in CI it fails. In CI what can be built is built.

    Args:
        name: One of :data:`BUILT` or :data:`PACKAGED`.
    """
    try:
        return str(find(name, build=in_ci()))
    except MissingError as error:
        if in_ci():
            raise
        pytest.skip(str(error))


def find(name: str, *, build: bool) -> Path:
    """The path of a server's program.

    Args:
        name: One of :data:`BUILT` or :data:`PACKAGED`.
        build: Whether to build it if it can be built and is not there.

    Raises:
        MissingError: If it is not on this machine.
    """
    if name in PACKAGED:
        found = shutil.which(name)
        if found is None:
            raise MissingError(f"{name} is not installed: apt-get install {PACKAGED[name]}")
        return Path(found)
    program = cached(name)
    if program.exists():
        os.utime(program)  # in use: old ones are cleared away
        return program
    if not build:
        raise MissingError(f"{name} is not built: python tests/support/backends.py {name}")
    _build(name, program)
    return program


def cached(name: str) -> Path:
    """Where a built server is kept: outside the checkout, by what it is made of."""
    folder = MODULES / name
    recipe = hashlib.sha256()
    for part in (*sorted(folder.glob("*.go")), folder / "go.mod", folder / "go.sum"):
        recipe.update(part.name.encode() + b"\0" + part.read_bytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "otel-loopeval-ci"
    return cache / f"{name}-{recipe.hexdigest()[:12]}"


def _build(name: str, program: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise MissingError(f"{name} is not built, and there is no go to build it with (Go 1.26 or newer)")
    program.parent.mkdir(parents=True, exist_ok=True)
    with program.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if program.exists():
            return  # somebody else built it meanwhile
        unfinished = program.with_suffix(".unfinished")
        options = ("-mod=readonly", "-buildvcs=false", "-ldflags=-s -w")
        command = [go, "build", *options, "-o", str(unfinished), BUILT[name]]
        done = subprocess.run(command, cwd=MODULES / name, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise MissingError(f"{name} does not build:\n{done.stderr[-4000:]}")
        unfinished.rename(program)


if __name__ == "__main__":
    import sys

    for wanted in sys.argv[1:] or BUILT:
        print(find(wanted, build=True), flush=True)
