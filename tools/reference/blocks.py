"""The blocks of code on a page of documentation, and the marks in the line before each.

Main type: ``Block``; ``blocks`` finds them. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

BLOCK: Final = re.compile(r"(?:^<!-- (?P<mark>.+?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A block of code: its language, its text, and the mark in the line before it."""

    page: str
    line: int
    language: str
    mark: str | None
    text: str
    #: Where the text begins in the page.
    start: int

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    def marked(self, kind: str) -> str | None:
        """Returns the content of a mark of this kind (``file: a.txt``), or None if the block has none."""
        if self.mark is None or not self.mark.startswith(f"{kind}: "):
            return None
        return self.mark.removeprefix(f"{kind}: ")


def blocks(page: str, text: str) -> list[Block]:
    """The blocks of a page, in order.

    >>> (one,) = blocks("a.md", "<!-- run -->\\n```python\\n1\\n```\\n")
    >>> one.line, one.language, one.mark, one.text
    (3, 'python', 'run', '1\\n')
    """
    return [
        Block(
            page,
            text[: found.start("text")].count("\n") + 1,
            found["language"],
            found["mark"],
            found["text"],
            found.start("text"),
        )
        for found in BLOCK.finditer(text)
    ]
