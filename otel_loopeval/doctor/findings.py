"""What a check found."""

from dataclasses import dataclass
from typing import Any, Final

GOOD: Final = "good"
NOTE: Final = "note"
"""Nothing wrong, but worth knowing."""
WARNING: Final = "warning"
"""It works, but not as most people want it."""
BAD: Final = "bad"
"""Something will not be seen."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found.

    Attributes:
        level: One of ``GOOD``, ``NOTE``, ``WARNING`` and ``BAD``.
        check: What was looked at, in a word or two.
        text: What was found.
        advice: What to do about it; empty where there is nothing to do.
    """

    level: str
    check: str
    text: str
    advice: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The finding, in the types of JSON."""
        return {"level": self.level, "check": self.check, "text": self.text, "advice": self.advice}
