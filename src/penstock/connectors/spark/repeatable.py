"""Finds queries that are not repeatable. Main function: `doubts`. Pure; any thread.

After a failure a source skips the number of rows that were delivered, so the query has to return the same rows in the
same order. Source: Penstock's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

#: Functions of Spark that depend on chance, on the moment, or on which rows come first.
_CHANCE: Final = ("rand", "random", "randn", "randstr", "uniform", "shuffle", "uuid")
_MOMENT: Final = ("now", "current_timestamp", "current_date", "current_time", "localtimestamp", "curdate")
_ORDER: Final = ("monotonically_increasing_id", "spark_partition_id", "any_value", "first", "first_value", "last")
_QUOTED: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|--[^\n]*|/\*.*?\*/", re.DOTALL)
_WITHOUT_BRACKETS: Final = re.compile(
    r"\b(current_timestamp|current_date|current_time|localtimestamp)\b", re.IGNORECASE
)
_SAMPLE: Final = re.compile(r"\btablesample\b", re.IGNORECASE)
_LIMIT: Final = re.compile(r"\blimit\b", re.IGNORECASE)
_SORTED: Final = re.compile(r"\border\s+by\b", re.IGNORECASE)


def doubts(query: str) -> Iterator[str]:
    """The reasons why a query may give other rows when it is run again; a clause for people each.

    >>> list(doubts("SELECT id FROM t WHERE rand() < 0.1"))
    ['rand() gives another value each time']
    >>> list(doubts("SELECT * FROM t LIMIT 10"))
    ['LIMIT without ORDER BY takes other rows each time']
    >>> list(doubts("SELECT 'rand()', now FROM t ORDER BY id LIMIT 10"))
    []
    """
    text = _QUOTED.sub(" ", query)
    for names, why in (
        (_CHANCE, "gives another value each time"),
        (_MOMENT, "is another moment each time"),
        (_ORDER, "depends on the order in which rows are read"),
    ):
        for name in names:
            if re.search(rf"\b{name}\s*\(", text, re.IGNORECASE):
                yield f"{name}() {why}"
    for name in dict.fromkeys(one.lower() for one in _WITHOUT_BRACKETS.findall(text)):
        if not re.search(rf"\b{name}\s*\(", text, re.IGNORECASE):
            yield f"{name} is another moment each time"
    if _SAMPLE.search(text) and not re.search(r"\brepeatable\s*\(", text, re.IGNORECASE):
        yield "TABLESAMPLE without REPEATABLE takes other rows each time"
    if _LIMIT.search(text) and not _SORTED.search(text):
        yield "LIMIT without ORDER BY takes other rows each time"
