"""Tables of settings in Markdown, as the pages of the documentation have them.

Main functions: ``markdown``, ``cell``, ``default_of``, ``valid_values``. Thread: pure functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from penstock.config import ConfigKey


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, with the end of its last line."""
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines) + "\n"


def cell(text: str) -> str:
    """A text as the content of a cell.

    >>> cell("a | b\\n  <code>c</code>")
    'a \\\\| b `c`'
    """
    plain = re.sub(r"</?code>", "`", " ".join(text.split()))
    return plain.replace("|", "\\|").replace("<", "\\<")


def default_of(key: ConfigKey) -> str:
    """Returns the default of a setting, as shown."""
    if not key.has_default:
        return "required"
    text = key.default_text()
    return "null" if text is None else '""' if text == "" else f"`{cell(text)}`"


def valid_values(key: ConfigKey) -> str:
    """Returns the text of a setting's validator; empty without one."""
    return "" if key.validator is None else cell(str(key.validator)).rstrip(".")
