"""Exit statuses, and the error that ends a command."""

from typing import Final

EXIT_OK: Final = 0
EXIT_FAILURE: Final = 1
"""The command could not do its work: a file or an endpoint refused."""
EXIT_USAGE: Final = 2
"""The command was called with what it does not know, on its command line or in its environment."""
EXIT_UNREADABLE: Final = 3
"""What the command was given to read cannot be read."""
EXIT_INTERRUPTED: Final = 130
EXIT_BROKEN_PIPE: Final = 141
"""Whoever read the output went away, as shells report it of programs that die of SIGPIPE."""


class CommandError(Exception):
    """A command cannot go on; the message is for the user, and says what to do.

    Args:
        message: What went wrong.
        status: The exit status.
    """

    def __init__(self, message: str, status: int = EXIT_FAILURE) -> None:
        super().__init__(message)
        self.status = status
