"""The rows of a frame as changes of one table: rows to write, and keys to delete.

Main types: `TableChanges`, made by `changes_of`; `RowsRefused`, the error for rows that cannot be changes. Pure; any
thread. Needs PyArrow.

Source: io.confluent.connect.jdbc.sink.metadata.FieldsMetadata, for the choice of key fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.api.arrow import one_array
from penstock.connectors.jdbc.sink.settings import InsertMode, JdbcSinkConfig, PkMode
from penstock.data import INT32_SCHEMA, INT64_SCHEMA, STRING_SCHEMA, Field, Schema, Type
from penstock.errors import ConnectException, DataException

_ROW: Final = "penstock row"


class RowsRefused(DataException):
    """Some rows are no changes of the table; the others may be.

    Args:
        text: What is wrong with them.
        rows: A mask of them, or None for all.
        count: How many rows there are.

    Attributes:
        rows: Their numbers.
    """

    def __init__(self, text: str, rows: pa.Array | None, count: int) -> None:
        super().__init__(text)
        everything = np.arange(count)
        self.rows = everything if rows is None else everything[np.asarray(rows.to_numpy(zero_copy_only=False), bool)]


@dataclass(frozen=True, slots=True)
class Target:
    """One column to write.

    Attributes:
        name: Its name.
        schema: The schema of its cells.
        is_key: True if it is part of the primary key.
    """

    name: str
    schema: Schema
    is_key: bool


@dataclass(frozen=True, slots=True)
class TableChanges:
    """Changes of one table, in an order in which none depends on another one.

    Attributes:
        columns: The columns to write, those of the key first.
        rows: The rows to write: a column for each of ``columns``.
        row_numbers: The row of the frame that each of ``rows`` is from.
        deletes: The keys to delete: the columns of the key.
        delete_numbers: The row of the frame that each of ``deletes`` is from.
    """

    columns: tuple[Target, ...]
    rows: pa.Table
    row_numbers: pa.Array
    deletes: pa.Table
    delete_numbers: pa.Array

    def by_missing(self, missing: Mapping[str, np.ndarray]) -> list[TableChanges]:
        """The same changes, in parts whose rows all have the same columns.

        Args:
            missing: For some columns the rows of the frame that are written without it, as a mask.
        """
        if not missing or not self.rows.num_rows:
            return [self]
        names = list(missing)
        numbers = self.row_numbers.to_numpy()
        shapes, group = np.unique(
            np.column_stack([missing[name][numbers] for name in names]), axis=0, return_inverse=True
        )
        parts = []
        for number, shape in enumerate(shapes.tolist()):
            left_out = {name for name, is_missing in zip(names, shape, strict=True) if is_missing}
            rows = pa.array(np.flatnonzero(group.ravel() == number))
            parts.append(
                replace(
                    self,
                    columns=tuple(one for one in self.columns if one.name not in left_out),
                    rows=self.rows.drop_columns(sorted(left_out)).take(rows),
                    row_numbers=self.row_numbers.take(rows),
                    deletes=self.deletes if number == 0 else self.deletes.slice(0, 0),
                    delete_numbers=self.delete_numbers if number == 0 else self.delete_numbers.slice(0, 0),
                )
            )
        return parts

    @property
    def keys(self) -> list[str]:
        """The columns of the primary key."""
        return [one.name for one in self.columns if one.is_key]


def changes_of(
    config: JdbcSinkConfig,
    table: pa.Table,
    origin: pa.Table,
    key_schema: Schema | None,
    value_schema: Schema | None,
    what: str,
    default_keys: Sequence[str] = (),
) -> TableChanges:
    """The changes that the rows of a frame are.

    Args:
        config: The settings.
        table: Columns ``key`` and ``value``, typed by their schemas.
        origin: Columns ``topic``, ``partition`` and ``offset`` of the messages, as read; as many rows.
        key_schema: Schema of the keys.
        value_schema: Schema of the values.
        what: The records, for messages.
        default_keys: The fields of the primary key where ``pk.fields`` names none; empty: all.

    Raises:
        RowsRefused: Records lack a key, a value or a field that the settings need.
    """
    numbers = pa.array(np.arange(table.num_rows), pa.int64())
    # In the chunks in which it came: to join them would copy all values.
    value = table.column("value")
    gone = one_array(value.is_null())
    if not config.delete_enabled and pc.any(gone).as_py():
        raise RowsRefused(
            f"The value of {what}, offset {_first(origin, gone)}, is null: with delete.enabled=true "
            "and pk.mode=record_key it deletes the row of its key; the transform Filter with the predicate "
            "RecordIsTombstone leaves such records out",
            gone,
            len(gone),
        )
    keys = _keys(config, table, origin, key_schema, value_schema, what, default_keys)
    fields = _fields(config, value, value_schema, [target.name for target, _ in keys], what)
    targets = tuple(target for target, _ in [*keys, *fields])
    everything = pa.table([cells for _, cells in [*keys, *fields]], names=[one.name for one in targets])
    names = [target.name for target, _ in keys]
    if names:
        _refuse_null_keys(everything, names, origin, what)
    last = numbers
    if names and config.insert_mode is not InsertMode.INSERT:
        last = _last_of_each_key(everything.select(names))
    kept = last.filter(pc.invert(gone.take(last)))
    deleted = _last_of_each_key(everything.select(names)) if config.delete_enabled else numbers.slice(0, 0)
    deleted = deleted.filter(gone.take(deleted))
    # Kept rows are in order: if there are as many as rows, they are all rows.
    rows = everything if len(kept) == everything.num_rows else everything.take(kept)
    return TableChanges(targets, rows, kept, everything.select(names).take(deleted), deleted)


def _keys(
    config: JdbcSinkConfig,
    table: pa.Table,
    origin: pa.Table,
    key_schema: Schema | None,
    value_schema: Schema | None,
    what: str,
    default_keys: Sequence[str],
) -> list[tuple[Target, pa.Array | pa.ChunkedArray]]:
    if config.pk_mode is PkMode.NONE:
        return []
    if config.pk_mode is PkMode.KAFKA:
        kinds = (STRING_SCHEMA, INT32_SCHEMA, INT64_SCHEMA)
        return [
            (Target(name, kind, True), one_array(origin.column(source)))
            for name, kind, source in zip(config.kafka_keys, kinds, ("topic", "partition", "offset"), strict=True)
        ]
    of_key = config.pk_mode is PkMode.RECORD_KEY
    schema, part = (key_schema, "key") if of_key else (value_schema, "value")
    cells, count = table.column(part), table.num_rows
    if schema is None and cells.null_count == count:
        at = _first(origin, one_array(cells.is_null()))
        raise RowsRefused(
            f"The {part} of {what}, offset {at}, is null: every record needs a key",
            None,
            count,
        )
    if schema is None:
        raise RowsRefused(
            f"The {part} of {what} has no schema, and pk.mode={config.pk_mode.value} needs one: use a converter with "
            "schemas",
            None,
            count,
        )
    if schema.type is not Type.STRUCT:
        if not of_key or len(config.pk_fields) != 1:
            text = "pk.fields has to name one column" if of_key else "pk.mode=record_value needs a struct"
            raise RowsRefused(f"The {part} of {what} is {schema}: {text}", None, count)
        return [(Target(config.name_of(config.pk_fields[0]), schema, True), cells)]
    names = config.pk_fields or default_keys or [field.name for field in schema.fields]
    found = []
    for name in names:
        field = schema.field(name)
        if field is None:
            has = ", ".join(one.name for one in schema.fields)
            raise RowsRefused(f"pk.fields: the {part} of {what} has no field {name!r}; it has {has}", None, count)
        found.append((Target(config.name_of(name), field.schema, True), _child(config, cells, field)))
    return found


def _fields(
    config: JdbcSinkConfig, value: pa.ChunkedArray, schema: Schema | None, keys: Sequence[str], what: str
) -> list[tuple[Target, pa.ChunkedArray]]:
    if value.null_count == len(value) and (schema is None or schema.type is not Type.STRUCT):
        return []
    if schema is None or schema.type is not Type.STRUCT:
        form = "has no schema" if schema is None else f"is {schema}"
        raise RowsRefused(
            f"The value of {what} {form}; a row needs a struct with a schema. Use a converter with schemas "
            "(value.converter.schemas.enable=true, or Avro, Protobuf, JSON Schema), or make a struct of a single value "
            "with the transform HoistField",
            one_array(value.is_valid()),
            len(value),
        )
    wanted = set(config.fields)
    return [
        (Target(config.name_of(field.name), field.schema, False), _child(config, value, field))
        for field in schema.fields
        if config.name_of(field.name) not in keys and (not wanted or field.name in wanted)
    ]


def _child(config: JdbcSinkConfig, cells: pa.ChunkedArray, field: Field) -> pa.ChunkedArray:
    """A field, null where its struct is; a null of its own is the default, if the settings say so."""
    found, default = pc.struct_field(cells, [field.index]), field.schema.default
    if default is None or not config.replace_null_with_default or found.null_count == cells.null_count:
        return found
    if pa.types.is_nested(found.type):
        return found
    filled = pc.fill_null(found, pa.scalar(default, found.type))
    return pc.if_else(cells.is_valid(), filled, pa.scalar(None, found.type)) if cells.null_count else filled


def _refuse_null_keys(table: pa.Table, names: Sequence[str], origin: pa.Table, what: str) -> None:
    for name in names:
        cells = table.column(name)
        if cells.null_count:
            missing = one_array(cells).is_null()
            raise RowsRefused(
                f"The column {name!r} of the primary key is null in {what}, offset {_first(origin, missing)}: "
                "every record needs a key",
                missing,
                len(missing),
            )


def _first(origin: pa.Table, mask: pa.Array) -> str:
    """The offset of the first of the rows of a mask, and how many more there are: one error is reported for all."""
    offset = origin.column("offset")[pc.index(mask, True).as_py()].as_py()
    return and_more(offset, pc.sum(mask).as_py())


def and_more(offset: int, count: int) -> str:
    """An offset, for messages about several records."""
    return str(offset) if count == 1 else f"{offset} and {count - 1} more"


def _last_of_each_key(keys: pa.Table) -> pa.Array:
    """The number of the last row of each key, in order: it overwrites earlier changes of the row."""
    numbered = keys.append_column(_ROW, pa.array(np.arange(keys.num_rows), pa.int64()))
    try:
        grouped = numbered.group_by(list(keys.column_names), use_threads=False).aggregate([(_ROW, "max")])
    except pa.ArrowNotImplementedError as error:
        raise ConnectException(f"A primary key cannot have columns of these types: {keys.schema.types}") from error
    return one_array(grouped.column(f"{_ROW}_max")).sort()
