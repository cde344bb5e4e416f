"""What happened to the spans and traces that were followed."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Counts:
    """What happened so far.

    Attributes:
        spans: Spans that came in.
        marked: Spans of interest among them.
        late: Spans of interest that came after their trace was over.
        repeated: Spans that came again.
        forgotten: Spans around runs that there was no room for.
        closed: Traces that are over, by reason.
        judged_before: Runs that came with a verdict: neither told of nor counted again.
        unreadable: Spans around runs that could not be decoded.
    """

    spans: int = 0
    marked: int = 0
    late: int = 0
    repeated: int = 0
    forgotten: int = 0
    closed: dict[str, int] = field(default_factory=dict[str, int])
    judged_before: int = 0
    unreadable: int = 0
