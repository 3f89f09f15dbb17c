"""Schemaless values as rows of an existing table, whose columns define their types.

Main function: `typed_by`. Pure; any thread. Needs SQLAlchemy and PyArrow.

Source: Penstock's own; the Java connector does not support schemaless values.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.sql.sqltypes import _Binary  # BLOB of MySQL is no LargeBinary.

from penstock.api import SinkFrame
from penstock.api.arrow import connect_schema, is_variant, one_array
from penstock.api.frames.variant_fields import OBJECT, Variants
from penstock.connectors.jdbc.sink.changes import RowsRefused, and_more
from penstock.connectors.jdbc.tables import Table
from penstock.data import Schema
from penstock.errors import DataException


def is_schemaless(column: pa.ChunkedArray, schema: Schema | None) -> bool:
    """True if the values have no schema, and are not all null."""
    return schema is None and column.null_count < len(column)


def typed_by(
    table: Table, part: SinkFrame, wanted: Collection[str], others: Collection[str]
) -> tuple[SinkFrame, Mapping[str, np.ndarray]]:
    """The same rows, whose values are structs of columns of the table.

    A field that is missing is null, unless its column has a default: that column is left out of the row. A column that
    takes JSON gets values of any kind as text; other columns take what fits their type, and what is text for a column
    of dates, times, UUIDs and the like is parsed by the database.

    Args:
        table: The table.
        part: Rows with values that have no schema.
        wanted: ``fields.include.list``: the fields to write; empty: all.
        others: Columns that come from elsewhere: from the key, or from where the message was read.

    Returns:
        The rows, and for each column with a default the rows that have no such field, as a mask.

    Raises:
        RowsRefused: Values are no objects, or have fields that are no columns.
        DataException: A value does not fit the type of its column.
    """
    column = part.table.column("value")
    gone = column.is_null().to_numpy()
    other = ~gone & ~_are_objects(column)
    if other.any():
        raise _refused(part, other, "is no object, and a row needs one: HoistField makes an object of a single value")
    fields = {name: part.present(f"`{name}`").to_numpy(zero_copy_only=False) for name in part.field_names()}
    written = {name for name in fields if not wanted or name in wanted}
    unknown = sorted(written - set(table.types))
    if unknown:
        raise _refused(
            part,
            np.logical_or.reduce([fields[name] for name in unknown]),
            f"has the field {', '.join(unknown)}, and the table {table.name} has no such column. Values "
            "without a schema add none: add it to the table, or name the fields to write in fields.include.list",
        )
    nullable = {
        one.name
        for one in table.columns
        if one.schema.optional and one.name not in table.defaulted and (not wanted or one.name in wanted)
    }
    names = [one.name for one in table.columns if one.name in written or (one.name in nullable - set(others))]
    cells = [_cells(part, name, table.types[name]) for name in names]
    struct = pa.StructArray.from_arrays(cells, names=names, mask=pa.array(gone))
    typed = part.table.set_column(part.table.column_names.index("value"), "value", struct)
    missing = {name: ~fields[name] for name in names if name in table.defaulted and not fields[name].all()}
    return replace(part, table=typed, value_schema=connect_schema(struct.type)), missing


def typed_keys(table: Table, part: SinkFrame, names: Sequence[str]) -> SinkFrame:
    """The same rows, whose keys, objects without a schema, are structs of columns of the table.

    Raises:
        DataException: A key does not fit the type of its column.
    """
    cells = [_cells(part, name, table.types[name], "key") for name in names if name in table.types]
    struct = pa.StructArray.from_arrays(cells, names=[one for one in names if one in table.types])
    typed = part.table.set_column(part.table.column_names.index("key"), "key", struct)
    return replace(part, table=typed, key_schema=connect_schema(struct.type))


#: Digits of a whole number in JSON, at most.
_MOST_DIGITS = 1000


def json_texts(values: Sequence[object]) -> pa.Array:
    """Values as JSON; None stays null."""
    texts = [None if one is None else json.dumps(one, default=_plain, ensure_ascii=False) for one in values]
    return pa.array(texts, pa.string())


def _plain(value: object) -> object:
    if isinstance(value, Decimal):
        if value != value.to_integral_value():
            return float(value)
        # As an integer a number like 1E+999999999 would have a billion digits.
        return int(value) if value.adjusted() < _MOST_DIGITS else str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)


def _are_objects(column: pa.ChunkedArray) -> np.ndarray:
    """True for the values that are objects."""
    if is_variant(column.type):
        found: np.ndarray = Variants.of(column).kinds() == OBJECT
        return found
    return np.full(len(column), pa.types.is_struct(column.type))


def _refused(part: SinkFrame, mask: np.ndarray, text: str) -> RowsRefused:
    at = part.origin.slice(int(np.flatnonzero(mask)[0]), 1).to_pylist()[0]
    offset = and_more(at["offset"], int(mask.sum()))
    place = f"topic {at['topic']}, partition {at['partition']}, offset {offset}"
    return RowsRefused(f"The value of the message of {place} {text}", pa.array(mask), len(mask))


def _cells(
    part: SinkFrame, name: str, kind: sa.types.TypeEngine[Any], of: Literal["value", "key"] = "value"
) -> pa.Array:
    path = f"`{name}`"
    if isinstance(kind, sa.JSON):
        return json_texts(part.objects(path, of=of))
    if isinstance(kind, (sa.Date, sa.Time)) and _are_only(int, part, path, of):
        return _counted(part, name, kind, one_array(part.fields({path: pa.int64()}, of=of).column(0)))
    if isinstance(kind, _Binary) and _are_only(str, part, path, of):
        return _decoded(part, name, part.objects(path, of=of))
    wanted = pa.string() if _parsed(kind) and _are_only(str, part, path, of) else _arrow(kind)
    if isinstance(kind, mysql.TINYINT) and _are_only(bool, part, path, of):
        wanted = pa.bool_()  # BOOLEAN is another name of that type.
    try:
        cells = one_array(part.fields({path: wanted}, of=of).column(0))
    except DataException:
        # JSON has no number for these.
        values = [_FLOATS.get(one, one) if isinstance(one, str) else one for one in part.objects(path, of=of)]
        if wanted != pa.float64() or not {*map(type, values)} <= {int, float, type(None)}:
            raise
        return pa.array(values, wanted)
    return cells.cast(pa.float64()) if pa.types.is_null(cells.type) else cells


def _counted(part: SinkFrame, name: str, kind: sa.types.TypeEngine[Any], numbers: pa.Array) -> pa.Array:
    """Days since 1970 as dates, or milliseconds since midnight as times: the numbers of Connect's Date and Time."""
    is_date = isinstance(kind, sa.Date)
    low, high = (_FIRST_DAY, _LAST_DAY) if is_date else (0, _DAY_MS - 1)
    outside = pc.invert(pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high)))
    mask = pc.fill_null(outside, False).to_numpy(zero_copy_only=False)
    if mask.any():
        what = "days since 1970, and no date" if is_date else "milliseconds since midnight, and no time of a day"
        raise _refused(part, mask, f"has a number in the field {name} that is {what}")
    days_or_ms = numbers.cast(pa.int32())
    return days_or_ms.cast(pa.date32()) if is_date else days_or_ms.cast(pa.time32("ms")).cast(pa.time64("us"))


def _decoded(part: SinkFrame, name: str, texts: Sequence[object]) -> pa.Array:
    """The bytes of base64, as JsonConverter writes them."""
    found: list[bytes | None] = []
    mask = np.zeros(len(texts), np.bool_)
    for place, text in enumerate(texts):
        try:
            found.append(None if text is None else base64.b64decode(str(text), validate=True))
        except ValueError:
            found.append(None)
            mask[place] = True
    if mask.any():
        raise _refused(part, mask, f"has a text in the field {name} that is no base64, which bytes are in JSON")
    return pa.array(found, pa.binary())


#: As JsonConverter writes them.
_FLOATS: Final = {text: float(text) for text in ("NaN", "Infinity", "-Infinity")}

#: Of the years 1 and 9999.
_FIRST_DAY: Final = -719_162
_LAST_DAY: Final = 2_932_896
_DAY_MS: Final = 86_400_000


def _are_only(kind: type, part: SinkFrame, path: str, of: Literal["value", "key"]) -> bool:
    """True if there are only values of this class, and nulls."""
    return {*map(type, part.objects(path, of=of))} <= {kind, type(None)}


def _parsed(kind: sa.types.TypeEngine[Any]) -> bool:
    """True if the database reads values of the type from text."""
    return isinstance(kind, (sa.DateTime, sa.Date, sa.Time))


def _arrow(kind: sa.types.TypeEngine[Any]) -> pa.DataType | None:
    """The type of cells for a column; None: that of the values."""
    if isinstance(kind, postgresql.DOMAIN):
        return _arrow(kind.data_type)
    if isinstance(kind, sa.ARRAY):
        return pa.list_(_arrow(kind.item_type) or pa.float64())
    if isinstance(kind, (sa.Numeric, sa.types.NullType)) and not isinstance(kind, sa.Float):
        return None
    for classes, arrow in _ARROW:
        if isinstance(kind, classes):
            return arrow
    return pa.string()


_ARROW: Final[tuple[tuple[type[Any], pa.DataType], ...]] = (
    (sa.Boolean, pa.bool_()),
    (sa.Integer, pa.int64()),
    (sa.Float, pa.float64()),
    (sa.DateTime, pa.timestamp("us", "UTC")),
    (sa.Date, pa.date32()),
    (sa.Time, pa.time64("us")),
    (_Binary, pa.binary()),
)
