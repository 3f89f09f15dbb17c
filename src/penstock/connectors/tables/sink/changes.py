"""Converts the rows of a frame to rows of a table: their columns, their keys, and the deletions.

Main function: ``rows_of``; ``last_of_each_key`` leaves out changes that later ones overwrite. Pure; any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.api import SinkFrame
from penstock.api.arrow import is_text, is_variant, one_array
from penstock.connectors.files.columns import VALUE, columns_of, values_of
from penstock.connectors.tables.types import fitted
from penstock.data import Schema, Type
from penstock.errors import ConnectException, DataException

_DELETES: Final = pa.array(["d", "delete", "true"])
_ROW: Final = "__penstock_row"


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows for a table.

    Attributes:
        table: Their columns, including those of the key.
        gone: True if the row of the key shall be deleted; None for no deletions.
        keys: The columns of the key; empty to only add rows.
    """

    table: pa.Table
    gone: np.ndarray | None = None
    keys: tuple[str, ...] = ()


def rows_of(
    part: SinkFrame, metadata: Sequence[str], prefix: str, *, upserts: bool, keys: Sequence[str], cdc_field: str
) -> TableRows:
    """Converts a frame to rows of a table.

    Args:
        part: The frame; without null values, unless it ``upserts``.
        metadata: The columns to add to the fields, see ``columns_of``.
        prefix: The beginning of their names.
        upserts: True to replace and delete rows by key.
        keys: The columns of the key; empty: the fields of the record's key.
        cdc_field: The field with the kind of a change; empty for none.

    Raises:
        DataException: A record is no row, or has no key.
    """
    nulls = part.table.column("value").is_null().to_numpy()
    if not upserts:
        return TableRows(_columns(part, metadata, prefix))
    columns = _columns(part, metadata, prefix)
    if nulls.all():
        columns = columns.select([one for one in columns.column_names if one != VALUE])
    gone = nulls
    if cdc_field and not nulls.all():
        gone = nulls | _deletes(part, cdc_field)
    if not part.num_rows and not keys and part.key_schema is None:
        return TableRows(columns)  # The fields of keys without a schema are known only from rows.
    names = list(keys) or _fields_of(part.key_schema, part)
    for name in names:
        cells = _key_cells(part, columns, name, nulls, alone=len(names) == 1)
        if cells.null_count:
            raise DataException(
                f'The column "{name}" of the key is null: with write.mode=upsert every record needs its key, in the '
                "value or in the key of the message"
            )
        field = pa.field(name, cells.type, False)
        at = columns.schema.get_field_index(name)
        columns = columns.append_column(field, cells) if at < 0 else columns.set_column(at, field, cells)
    return TableRows(columns, gone, tuple(names))


def last_of_each_key(keys: pa.Table) -> np.ndarray:
    """The numbers of the last rows of each key, in order.

    Raises:
        ConnectException: A column has a type that no key can have.
    """
    numbered = keys.append_column(_ROW, pa.array(np.arange(keys.num_rows)))
    try:
        grouped = numbered.group_by(list(keys.column_names), use_threads=False).aggregate([(_ROW, "max")])
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise ConnectException(f"A key cannot have columns of these types: {keys.schema.types}") from error
    return np.sort(grouped.column(f"{_ROW}_max").to_numpy())


def _columns(part: SinkFrame, metadata: Sequence[str], prefix: str) -> pa.Table:
    """The columns of the values; one whose schema is required may not be null."""
    found = columns_of(part, metadata, prefix)
    schema = part.value_schema
    if schema is None or schema.type is not Type.STRUCT:
        return found
    fields = []
    for one in found.schema:
        of_value = schema.field(one.name)
        # A default replaces a missing value, so that such a field is never null either.
        fields.append(one if of_value is None else one.with_nullable(of_value.schema.optional))
    return pa.table(found.columns, schema=pa.schema(fields))


def _deletes(part: SinkFrame, name: str) -> np.ndarray:
    cells = one_array(part.fields([name]).column(0))
    if pa.types.is_boolean(cells.type):
        cells = cells.cast(pa.string())
    if not is_text(cells.type):
        raise DataException(f'The field "{name}" (cdc.field) is {cells.type}, and says the change by text: c, u, d')
    found: np.ndarray = pc.is_in(pc.utf8_lower(cells), _DELETES).to_numpy(zero_copy_only=False)
    return found


def _fields_of(schema: Schema | None, part: SinkFrame) -> list[str]:
    names: list[str] = []
    if schema is not None and schema.type is Type.STRUCT:
        names = [one.name for one in schema.fields]
    elif schema is None and pa.types.is_struct(part.table.column("key").type):
        names = part.field_names(of="key")
    if not names:
        raise DataException(
            "The key of the message has no fields: name the columns of the table's key in id.columns "
            "(write.mode=upsert)"
        )
    return names


def _key_cells(part: SinkFrame, columns: pa.Table, name: str, nulls: np.ndarray, *, alone: bool) -> pa.Array:
    there = one_array(columns.column(name)) if name in columns.column_names else None
    if there is not None and not nulls.any():
        return there
    of_key = _of_key(part, name, alone=alone)
    if of_key is None:
        if there is not None:
            return there  # Null where the value is, which is an error of these rows.
        raise DataException(f'Neither the value nor the key of the message has the field "{name}" of id.columns')
    if there is None:
        return of_key
    return pc.if_else(pa.array(nulls), fitted(of_key, there.type, name), there)


def _of_key(part: SinkFrame, name: str, *, alone: bool) -> pa.Array | None:
    keys = part.table.column("key")
    if is_variant(keys.type):
        return one_array(part.fields([f"`{name}`"], of="key").column(0))
    if pa.types.is_struct(keys.type) and name in keys.type.names:
        return one_array(part.fields([f"`{name}`"], of="key").column(0))
    if alone and not pa.types.is_nested(keys.type) and not pa.types.is_null(keys.type):
        return values_of(keys, part.key_schema)
    return None
