"""The ``otel-loopeval`` command: its arguments, its subcommands and its exit status.

Each subcommand is a module of this package with ``SUMMARY``, ``add_arguments(parser)`` and
``run(arguments) -> int``. What a subcommand needs to run, it imports when it runs, so that ``--help`` is
quick.
"""

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Final

from otel_loopeval.cli.errors import (
    EXIT_BROKEN_PIPE,
    EXIT_FAILURE,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    CommandError,
)
from otel_loopeval.version import __version__

PROGRAM: Final = "otel-loopeval"
COMMANDS: Final = ("demo", "score", "doctor", "serve")

_DESCRIPTION: Final = """\
Loop health for LLM agents in OpenTelemetry: did each run converge, what did it waste, did a doom loop fire.
"""
_EXIT_STATUSES: Final = """\
exit status: 0 success; 1 the command could not do its work (a file or endpoint refused); 2 unknown command
or bad option; 3 the input cannot be read; 130 interrupted. The help of score tells its own.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: Command line after the program's name; the process's own if None.

    Returns:
        The exit status.

    Raises:
        SystemExit: After ``--help`` and ``--version``, and on a bad command line, as argparse has it.
    """
    _make_streams_robust()
    try:
        try:
            status = _run(arguments)
        finally:
            sys.stdout.flush()
    except CommandError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)  # noqa: T201 - a command talks to its user
        return error.status
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return EXIT_BROKEN_PIPE
    except OSError as error:
        # Commands name the files they fail on; what is left is the output itself, such as a full disk.
        _discard_output()
        print(f"{PROGRAM}: cannot write the output: {error.strerror or error}", file=sys.stderr)  # noqa: T201
        return EXIT_FAILURE
    return status


def _run(arguments: Sequence[str] | None) -> int:
    modules = {name: import_module(f"otel_loopeval.cli.{name}") for name in COMMANDS}
    parser = _parser(modules)
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help(sys.stderr)
        return EXIT_USAGE
    return modules[options.command].run(options)


def _parser(modules: dict[str, ModuleType]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description=_DESCRIPTION, epilog=_EXIT_STATUSES, allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="<command>", title="commands")
    for name, module in modules.items():
        subparser = subparsers.add_parser(
            name, help=module.SUMMARY, description=module.__doc__, allow_abbrev=False
        )
        module.add_arguments(subparser)
    return parser


def _make_streams_robust() -> None:
    """Let no character that the terminal has not, and no closed stream, end a command."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - for as long as the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    """Keep the interpreter from writing what is left in standard output, and from failing at it."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):  # no real file behind it
        return
