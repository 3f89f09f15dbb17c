"""Columns by the names of tables, as ``timestamp.column.mapping`` says: `ColumnMapping`. Pure; any thread.

Source: the settings timestamp.column.mapping and incrementing.column.mapping of
io.confluent.connect.jdbc.JdbcSourceConnector.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from penstock.config.java_pattern import compile_java
from penstock.errors import ConfigException, ConnectException


class ColumnMapping:
    """Patterns of tables, each with columns. Exactly one has to match the whole of a table's name.

    Args:
        setting: The name of the setting, for errors.
        entries: ``PATTERN:[COLUMN|COLUMN]`` or ``PATTERN:COLUMN``.
        most: How many columns an entry may have.

    Raises:
        ConfigException: An entry has another form, or its pattern is none.

    >>> mapping = ColumnMapping("timestamp.column.mapping", [r".*\\.orders:[changed|made]", r".*\\.people:[at]"], 9)
    >>> mapping.columns_of("public.orders", "shop"), mapping.columns_of("public.people", "shop")
    (('changed', 'made'), ('at',))
    """

    def __init__(self, setting: str, entries: Iterable[str], most: int) -> None:
        self._setting = setting
        self._entries = []
        for entry in entries:
            pattern, colon, text = entry.rpartition(":")
            text = text.strip()
            inside = text[1:-1] if text.startswith("[") and text.endswith("]") else text
            columns = tuple(one.strip() for one in inside.split("|"))
            if not (colon and pattern.strip() and all(columns)) or len(columns) > most:
                form = "PATTERN:COLUMN" if most == 1 else "PATTERN:[COLUMN|COLUMN]"
                raise ConfigException(f"{setting}: an entry has the form {form}, got {entry!r}")
            self._entries.append((compile_java(pattern.strip(), name=setting), columns))

    def __bool__(self) -> bool:
        return bool(self._entries)

    def columns_of(self, table: str, database: str) -> tuple[str, ...]:
        """The columns of a table.

        Args:
            table: Its name with its schema, if it has one; patterns may name the database in front of it.
            database: The name of the database.

        Raises:
            ConnectException: No pattern matches, or several do.
        """
        names = (table, f"{database}.{table}")
        found = [(one, columns) for one, columns in self._entries if any(map(one.matches, names))]
        if len(found) != 1:
            which = ", ".join(repr(one.java) for one, _ in found) or "none"
            raise ConnectException(
                f"{self._setting}: exactly one pattern has to match the table {table}, and {which} does. Write one for "
                f"the whole name, as {re.escape(table)!r}, or leave the table out of table.include.list"
            )
        return found[0][1]
