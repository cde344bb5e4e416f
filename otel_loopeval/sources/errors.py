"""Why stored spans could not be read."""


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
