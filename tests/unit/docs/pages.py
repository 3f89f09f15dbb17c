"""The pages of documentation, and what they are made of."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

_BLOCK = re.compile(r"(?:^<!-- (?P<mark>.+?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A block of code: its language, its text, and the mark in the line before it."""

    page: str
    line: int
    language: str
    mark: str | None
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(page.name, text[: found.start("text")].count("\n") + 1, found["language"], found["mark"], found["text"])
        for found in _BLOCK.finditer(text)
    ]


def without_code(page: Path) -> str:
    """The page without blocks of code and code in lines."""
    return re.sub(r"`[^`\n]*`", "``", _BLOCK.sub("", page.read_text(encoding="utf-8")))


def anchors(page: Path) -> set[str]:
    """What links may point at inside of a page: headings, as GitHub spells them."""
    headings = re.findall(r"^#+ (.+)$", _BLOCK.sub("", page.read_text(encoding="utf-8")), re.M)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}
