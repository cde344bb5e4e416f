"""Virtual environments for tests of the installed package: made by uv where it works, else by pip.

Both keep what they download in caches of their own, so that an environment takes seconds to make the second
time.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The checkout."""

FLOOR = (
    "opentelemetry-api==1.40.0",
    "opentelemetry-sdk==1.40.0",
    "opentelemetry-exporter-otlp==1.40.0",
    "opentelemetry-proto==1.40.0",
    "opentelemetry-instrumentation==0.61b0",
    "opentelemetry-distro==0.61b0",
)
"""The lowest supported OpenTelemetry, as constraints; a test holds that pyproject.toml says the same."""

LOWEST_PRAISONAIAGENTS = "1.6.145"
"""The first release with ``LoopEvaluator``; a test holds that pyproject.toml says the same."""


class Environment:
    """A virtual environment.

    Attributes:
        path: Its folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def python(self) -> str:
        """Its interpreter."""
        return self.script("python")

    def script(self, name: str) -> str:
        """A command installed in it."""
        return str(self.path / "bin" / name)

    def run(
        self,
        command: Sequence[str],
        variables: Mapping[str, str] | None = None,
        *,
        cwd: Path,
        timeout_s: float = 180,
    ) -> subprocess.CompletedProcess[str]:
        """Run one of its commands, away from the checkout.

        Args:
            command: Name of the command in the environment, and its arguments.
            variables: Environment variables to add.
            cwd: Working folder.
            timeout_s: When to give up.
        """
        return subprocess.run(
            [self.script(command[0]), *command[1:]],
            env=clean_environment(variables, first_on_path=self.path / "bin"),
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )


def clean_environment(
    variables: Mapping[str, str] | None = None, *, first_on_path: Path | None = None
) -> dict[str, str]:
    """This process's variables without those that would change what the tests are about."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OTEL_", "LOOPEVAL_", "OPENAI_", "PYTHON", "VIRTUAL_ENV", "PYTEST_", "COV_"))
    }
    if first_on_path is not None:
        kept["PATH"] = f"{first_on_path}{os.pathsep}{kept.get('PATH', os.defpath)}"
    return {**kept, **(variables or {})}


def build_wheel(folder: Path) -> Path:
    """Build the wheel of the checkout."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, env=clean_environment(), capture_output=True, check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def make_environment(
    name: str, requirements: Sequence[str], constraints: Sequence[str], scratch: Path
) -> Iterator[Environment]:
    """A virtual environment with this interpreter, as a generator for a fixture.

    What it depends on is kept in the user's cache folder from one time to the next and brought up to date;
    the package itself is installed afresh. While it is in use, others make their own in ``scratch``.

    Args:
        name: What to call it.
        requirements: What to install, the newest there is.
        constraints: Versions to keep to.
        scratch: A folder of the caller's own.
    """
    recipe = [sys.executable, sys.version, *constraints, (ROOT / "pyproject.toml").read_text()]
    key = hashlib.sha256("\n".join(recipe).encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "otel-loopeval-ci"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{name}-{key}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path = cache / f"{name}-{key}"
        except BlockingIOError:
            path = scratch / name
        constraints_file = scratch / f"{name}.constraints.txt"
        constraints_file.write_text("\n".join(constraints) + "\n")
        _install(Environment(path), ["--constraint", str(constraints_file), *requirements])
        yield Environment(path)


def _install(environment: Environment, arguments: Sequence[str]) -> None:
    path, python = environment.path, environment.python
    options = ("install", "--quiet", "--upgrade")
    fresh = ("--reinstall-package", "otel-loopeval")
    made = (Path(python).exists() or _uv("venv", "--quiet", "--python", sys.executable, str(path))) and _uv(
        "pip", *options, *fresh, "--python", python, *arguments
    )
    if made:
        path.touch()  # in use: old ones are cleared away
    else:
        venv.create(path, clear=True, with_pip=True)
        _pip(Path(python), *options, *arguments)


def _uv(*arguments: str) -> bool:
    """Run uv; False if it is not there or fails, as behind an index that only pip is configured for."""
    command = [sys.executable, "-m", "uv", *arguments]
    return subprocess.run(command, env=clean_environment(), capture_output=True, check=False).returncode == 0


def _pip(python: Path, *arguments: str) -> None:
    subprocess.run([str(python), "-m", "pip", *arguments], env=clean_environment(), check=True)
