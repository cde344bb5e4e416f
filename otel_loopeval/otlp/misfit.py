"""Input that is no OTLP: what was expected, and where."""

from typing import Any

_SHOWN = 60


class Misfit(Exception):  # noqa: N818 - a note on its way up to the line that it becomes the error of
    """A JSON value that is not what OTLP has in its place.

    Args:
        expected: What OTLP has there.
        value: What was found.
    """

    def __init__(self, expected: str, value: Any) -> None:
        super().__init__(f"expected {expected}, got {shown(value)}")
        self._places: list[str] = []

    def inside(self, place: str) -> "Misfit":
        """Note the place it is inside of, innermost first: a key, or an index in brackets."""
        self._places.append(place)
        return self

    def __str__(self) -> str:
        where = "".join(p if p.startswith("[") else f".{p}" for p in reversed(self._places)).lstrip(".")
        return f"{where}: {super().__str__()}" if where else super().__str__()


class OtlpError(ValueError):
    """A line that is no OTLP/JSON traces.

    Attributes:
        source: The file, or whatever the lines came from.
        line: Number of the line, from 1.
        problem: Where in the line, what was expected there and what was found.
    """

    def __init__(self, source: str, line: int, problem: str) -> None:
        super().__init__(f"{source}, line {line}: {problem}")
        self.source = source
        self.line = line
        self.problem = problem


def shown(value: Any) -> str:
    """A JSON value in a few words, for an error message."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    # A whole document may be in one string: no more of it is looked at than is shown.
    text = repr(value[: _SHOWN + 1]) if isinstance(value, str | bytes) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
