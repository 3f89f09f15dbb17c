"""Java's regular expressions on columns; the JVM's own engine runs them.

Main function: ``matches``. Patterns are checked when a configuration is (``penstock.config.java_regex``).

Thread: pure functions that build expressions.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column

_COMMENTS_ON: Final = re.compile(r"\(\?[a-zA-Z]*x")
_QUOTED: Final = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.", re.DOTALL)


def matches(column: Column, pattern: str) -> Column:
    """Whether a text matches from end to end, as Java's ``Matcher.matches``; false for null."""
    return F.coalesce(column.rlike(whole(pattern)), F.lit(False))


def whole(pattern: str) -> str:
    r"""A pattern that finds what ``pattern`` matches from end to end.

    >>> whole("a|ab"), whole(r"\Qa.b")
    ('\\A(?:a|ab)\\z', '\\A(?:\\Qa.b\\E)\\z')
    """
    quotes = [found for found in _QUOTED.findall(pattern) if found.startswith("\\Q")]
    if quotes and not quotes[-1].endswith("\\E"):
        pattern += "\\E"
    if _COMMENTS_ON.search(pattern):
        # A comment would swallow what follows it.
        pattern += "\n"
    return rf"\A(?:{pattern})\z"
