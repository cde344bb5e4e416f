"""Evidence *normalised*: in a row, the same call with the same result but for ids, times and the like."""

from otel_loopeval.detect.exact import Exact


class Normalised(Exact):
    """The same call with the same result in a row, where only ids, times, counters or references differ.

    The first sight of a changed result cannot be told from news; counting starts with it, so that this
    evidence comes one step later than *exact*.

    Args:
        ladder: Units in a row for each severity.
    """

    name = "normalised"
    _normalised = True
