"""The bad rows of a block of text, found by halving it. Main function: ``isolated``. Pure; any thread.

Source: Penstock's own.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from penstock.connectors.files.source.readers.reader import Bad
from penstock.connectors.files.source.readers.text import rows_of

#: Parses some whole lines: returns their rows, and bad ones.
Parse = Callable[[bytes, int], "tuple[pa.Table, list[Bad]]"]


def isolated(data: bytes, line: int, parse: Parse, quote: int | None = None) -> tuple[pa.Table | None, list[Bad]]:
    """The valid rows, in order, and the bad ones.

    Args:
        data: Whole lines.
        line: The number of the first one; 0 = unknown.
        parse: Reads lines; raises ``ArrowInvalid`` if one of them is bad.
        quote: See ``blocks``.

    Returns:
        None instead of a table if no row is good.
    """
    rows = rows_of(data, quote)
    tables: list[pa.Table] = []
    bad: list[Bad] = []
    count = 0
    # The ranges of rows to try, the first one last.
    todo = [(0, len(rows))]
    while todo:
        first, last = todo.pop()
        if first == last:
            continue
        start, end = rows[first][0], rows[last - 1][1]
        at = line + data.count(b"\n", 0, start) if line else 0
        try:
            table, more = parse(data[start:end], at)
        except pa.ArrowInvalid as error:
            if last - first == 1:
                bad.append(Bad(at, data[start:end].rstrip(b"\r\n"), _reason(error), count))
                continue
            middle = (first + last) // 2
            todo += [(middle, last), (first, middle)]
            continue
        bad += [Bad(one.line, one.text, one.reason, one.before + count) for one in more]
        tables.append(table)
        count += table.num_rows
    return (pa.concat_tables(tables, promote_options="default") if tables else None), bad


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text.removesuffix(" in row 0")
