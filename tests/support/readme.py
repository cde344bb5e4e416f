"""The fenced blocks of README.md, for the tests and for ``.ci/run``.

``python tests/support/readme.py N`` prints the N-th block of shell commands, from 1, as written.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"

_BLOCK = re.compile(
    r"^(?:<!-- (?P<note>.+?) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block.

    Attributes:
        language: What follows the fence.
        note: The comment on the line above, or None.
        text: What is inside.
        line: Line of the fence, from 1.
    """

    language: str
    note: str | None
    text: str
    line: int


def blocks(language: str) -> list[Block]:
    """The blocks in a language, in order."""
    page = README.read_text(encoding="utf-8")
    return [
        Block(match["language"], match["note"], match["text"], page.count("\n", 0, match.start("text")))
        for match in _BLOCK.finditer(page)
        if match["language"] == language
    ]


if __name__ == "__main__":
    print(blocks("bash")[int(sys.argv[1]) - 1].text, end="")
