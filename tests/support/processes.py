"""Programs as processes of their own."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from support import openai_stub
from support.environments import Environment


def this_environment() -> Environment:
    """The environment that the tests run in."""
    return Environment(Path(sys.prefix))


class StubProcess:
    """The stub of the OpenAI API as a process of its own. A context manager."""

    def __init__(self) -> None:
        command = [sys.executable, str(openai_stub.__file__)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def __enter__(self) -> "StubProcess":  # noqa: PYI034  # Self needs Python 3.11
        return self

    def __exit__(self, *_exc: object) -> None:
        self._process.terminate()
        self._process.wait(10)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def environment(self) -> dict[str, str]:
        """Variables with which OpenAI clients use it and nothing else."""
        return openai_stub.environment_for(self.port)


def run_python(
    arguments: Sequence[str], variables: Mapping[str, str] | None = None, *, cwd: Path
) -> subprocess.CompletedProcess[str]:
    """Run this interpreter in a folder."""
    return this_environment().run(["python", *arguments], variables, cwd=cwd)
