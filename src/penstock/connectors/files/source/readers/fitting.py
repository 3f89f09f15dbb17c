"""Casts columns to a schema. Main function: ``fitted``. Pure; any thread.

Source: Penstock's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.api.arrow import arrow_type, one_array
from penstock.connectors.files.source.readers.reader import Bad, BadFileException, FileRows
from penstock.data import Schema


def fitted(piece: FileRows, schema: Schema, beside: Sequence[str] = ()) -> FileRows:
    """The rows with the fields of a schema, in its order and types; other columns are left out.

    Rows with a value that does not fit are bad.

    Args:
        piece: The rows.
        schema: The schema of the values, a struct.
        beside: Columns that do not change.

    Raises:
        BadFileException: A field that must not be null has no column.
    """
    table = piece.table
    wanted = [(one.name, one.schema) for one in schema.fields]
    lacking = [
        name for name, one in wanted if name not in table.column_names and not one.optional and one.default is None
    ]
    if lacking:
        raise BadFileException(
            f"has no column {', '.join(lacking)}, which value.schema has and which must not be null; it has "
            f"{', '.join(table.column_names) or 'none'}"
        )
    reasons: dict[int, str] = {}
    columns: dict[str, pa.Array] = {}
    for name, one in wanted:
        if name not in table.column_names:
            if one.optional:
                columns[name] = pa.nulls(table.num_rows, arrow_type(one))
            continue
        columns[name] = _cast(one_array(table.column(name)), arrow_type(one), name, reasons)
        if not one.optional and one.default is None:
            for row in np.flatnonzero(pc.is_null(columns[name]).to_numpy(zero_copy_only=False)).tolist():
                reasons.setdefault(row, f'has no value in "{name}", which must not be null')
    columns |= {name: one_array(table.column(name)) for name in beside}
    made = pa.table(columns) if columns else table.select([])
    if not reasons:
        return replace(piece, table=made)
    return _without(made, piece, reasons)


def _without(table: pa.Table, piece: FileRows, reasons: dict[int, str]) -> FileRows:
    rows = sorted(reasons)
    mask = np.ones(table.num_rows, bool)
    mask[rows] = False
    dropped = np.concatenate([[0], np.cumsum(~mask)])
    line = piece.place.line
    # If each row is one line, and none was left out before, the row gives the line.
    exact = bool(line) and piece.next.line - line == table.num_rows + len(piece.bad)
    bad = [
        Bad(
            line + row + sum(one.before <= row for one in piece.bad) + piece.place.rows if exact else 0,
            _text(piece.table, row),
            reasons[row],
            row - int(dropped[row]),
        )
        for row in rows
    ]
    moved = [Bad(one.line, one.text, one.reason, one.before - int(dropped[one.before])) for one in piece.bad]
    both = sorted([*bad, *moved], key=lambda one: one.before)
    return replace(piece, table=table.filter(pa.array(mask)), bad=both)


def _text(table: pa.Table, row: int) -> bytes:
    values: dict[str, Any] = table.slice(row, 1).to_pylist()[0]
    return str(values).encode()


def _cast(array: pa.Array, kind: pa.DataType, name: str, reasons: dict[int, str]) -> pa.Array:
    if array.type == kind:
        return array
    try:
        return _converted(array, kind)
    except (pa.ArrowException, ValueError, TypeError):
        pass
    # The ranges of rows to try, the first one last.
    done: list[pa.Array] = []
    todo = [(0, len(array))]
    while todo:
        first, last = todo.pop()
        part = array.slice(first, last - first)
        try:
            done.append(_converted(part, kind))
        except (pa.ArrowException, ValueError, TypeError) as error:
            if last - first == 1:
                reasons.setdefault(first, f'has a value in "{name}" that is no {kind}: {" ".join(str(error).split())}')
                done.append(pa.nulls(1, kind))
                continue
            middle = (first + last) // 2
            todo += [(middle, last), (first, middle)]
    return pa.concat_arrays(done) if done else pa.nulls(0, kind)


def _converted(array: pa.Array, kind: pa.DataType) -> pa.Array:
    given = array.type
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(kind):
        return array.cast(kind, safe=False)  # What is below a millisecond has no room in Connect.
    if pa.types.is_nested(given) and not given.equals(kind):
        return pa.array(array.to_pylist(maps_as_pydicts=None), kind)
    return array.cast(kind)
