"""The pages of documentation, and what they are made of."""

from __future__ import annotations

import re
from pathlib import Path

from tools.reference.blocks import BLOCK, Block
from tools.reference.blocks import blocks as blocks_of

ROOT = Path(__file__).parents[3]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    return blocks_of(page.name, page.read_text(encoding="utf-8"))


def without_code(page: Path) -> str:
    """The page without blocks of code and code in lines."""
    return re.sub(r"`[^`\n]*`", "``", BLOCK.sub("", page.read_text(encoding="utf-8")))


def anchors(page: Path) -> set[str]:
    """What links may point at inside of a page: headings, as GitHub spells them."""
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", page.read_text(encoding="utf-8")), re.M)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}
