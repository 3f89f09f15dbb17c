"""Names in Spark's SQL: ``quoted``. Pure; any thread. Source: Spark's SQL reference, identifiers."""

from __future__ import annotations


def quoted(name: str) -> str:
    """A name in SQL.

    >>> quoted("a`b")
    '`a``b`'
    """
    return f"`{name.replace('`', '``')}`"
