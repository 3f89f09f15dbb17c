"""`RowColumns` converts frames to the written columns; `joined` joins tables that are written together.

Pure; the task's thread. Source: Penstock's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.api import SinkFrame
from penstock.api.arrow import one_array
from penstock.connectors.files.columns import columns_of, metadata_of, values_of
from penstock.errors import DataException

#: Additional columns: whether the row deletes, and its position.
DELETES: Final = "__penstock_deletes"
PLACE: Final = "__penstock_place"


class RowColumns:
    """Makes the columns of a frame.

    Args:
        types: The columns and their types from the settings; None: from the values.
        metadata: The metadata columns to add.
        prefix: The prefix of their names.
        key: The columns that identify a row, which may come from a record's key; none: not used.
    """

    def __init__(
        self, types: Mapping[str, pa.DataType] | None, metadata: Sequence[str], prefix: str, key: Sequence[str]
    ) -> None:
        self._types, self._metadata, self._prefix, self._key = types, metadata, prefix, key

    def of(self, frame: SinkFrame) -> pa.Table:
        """The columns of rows that have values.

        Raises:
            DataException: A value does not fit its type, or a row has no key.
        """
        if self._types is None:
            table = columns_of(frame, self._metadata, self._prefix)
        else:
            table = frame.fields(self._types)
            for name, column in metadata_of(frame, self._metadata):
                table = table.append_column(self._prefix + name, column)
        # A field without any value so far has no type: formats do not accept such columns.
        typed = [one.name for one in table.schema if not pa.types.is_null(one.type)]
        table = table.select(typed)
        if not table.column_names:
            raise DataException("The values have no field with a value: there is no column to write")
        return self._with_keys(table, frame) if self._key else table

    def of_deleted(self, frame: SinkFrame) -> pa.Table:
        """The key columns of rows without values.

        Raises:
            DataException: A row has no key.
        """
        return self._checked(pa.table({name: self._of_key(name, frame) for name in self._key}))

    def _with_keys(self, table: pa.Table, frame: SinkFrame) -> pa.Table:
        for name in self._key:
            if name not in table.column_names:
                table = table.append_column(name, self._of_key(name, frame))
        return self._checked(table)

    def _of_key(self, name: str, frame: SinkFrame) -> pa.Array:
        key = values_of(frame.table.column("key"), frame.key_schema)
        if pa.types.is_struct(key.type):
            if name in key.type.names:
                return one_array(pc.struct_field(key, name))
        elif len(self._key) == 1 and not pa.types.is_null(key.type):
            return key
        raise DataException(
            f"key.columns: neither the value nor the key of the records has the column {name}; the key is {key.type}"
        )

    def _checked(self, table: pa.Table) -> pa.Table:
        for name in self._key:
            if table.column(name).null_count:
                raise DataException(f"The column {name} of key.columns is null: the row has no key")
        return table


def joined(tables: Sequence[tuple[int, pa.Table]]) -> Iterator[tuple[int, pa.Table]]:
    """Joins consecutive tables if their columns have the same types; missing columns are null.

    Args:
        tables: The tables, each with the number of its frame.

    Returns:
        Tables, each with the number of the last frame that it contains completely.

    >>> one, two, three = pa.table({"a": [1]}), pa.table({"a": [2], "b": ["x"]}), pa.table({"a": ["text"]})
    >>> [(last, table.num_rows) for last, table in joined([(0, one), (1, two), (2, three)])]
    [(1, 2), (2, 1)]
    """
    waiting: list[pa.Table] = []
    types: dict[str, pa.DataType] = {}
    last = 0
    for number, table in tables:
        new = {one.name: one.type for one in table.schema}
        if waiting and any(types.get(name, kind) != kind for name, kind in new.items()):
            yield last, pa.concat_tables(waiting, promote_options="default")
            waiting, types = [], {}
        waiting.append(table)
        types |= new
        last = number
    if waiting:
        yield last, pa.concat_tables(waiting, promote_options="default")


def with_marks(rows: pa.Table, *, deletes: bool) -> pa.Table:
    """Rows with a mark whether they delete."""
    return rows.append_column(DELETES, pa.array(np.full(rows.num_rows, deletes)))
