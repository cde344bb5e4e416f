"""Why stored spans could not be read."""

from collections.abc import Callable


class SourceError(ValueError):
    """A source, or a part of one, that cannot be read.

    Attributes:
        source: The file or address, without a password.
        place: The part: ``"line 3"``, ``"frame 2"``, ``"trace 5b8e…"``; empty for the whole source.
        problem: What is wrong with it.
    """

    def __init__(self, source: str, place: str, problem: str) -> None:
        super().__init__(f"{source}, {place}: {problem}" if place else f"{source}: {problem}")
        self.source = source
        self.place = place
        self.problem = problem


Reporter = Callable[[SourceError], object]
"""Is told of a part that cannot be read, and raises where that is the end."""


def reporter(on_error: Callable[[SourceError], object] | None) -> Reporter:
    """The given callback, or one that raises."""
    return on_error if on_error is not None else _raise


def _raise(error: SourceError) -> None:
    raise error from None
