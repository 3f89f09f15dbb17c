"""Columns of a file: the fields of the values, and keys, headers and positions of the messages.

Main function: ``columns_of``. Pure; any thread. Source: Penstock's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.api import SinkFrame
from penstock.api.arrow import is_list, is_variant, one_array
from penstock.api.frames.variant_fields import Variants
from penstock.data import Decimal as DecimalSchema
from penstock.data import Schema, Type
from penstock.errors import DataException
from penstock.files.widening import conform, inferred

#: The possible columns of a file besides the fields of the values.
METADATA: Final = ("key", "headers", "topic", "partition", "offset", "timestamp")
#: The column of values that are no structs.
VALUE: Final = "value"
#: The precision for all numbers of messages: JSON has at most 1,000 digits.
_DIGITS: Final = Context(prec=1100)


def columns_of(frame: SinkFrame, metadata: Sequence[str], prefix: str) -> pa.Table:
    """The rows as columns: those of a struct are its fields, any other value is the column ``value``.

    Args:
        frame: Rows without null values.
        metadata: The columns of ``METADATA`` to add.
        prefix: The beginning of the names of these columns.

    Raises:
        DataException: A field has the name of such a column.
    """
    value = frame.table.column("value")
    if is_variant(value.type) or _has_digits(value.type):
        value = values_of(value, frame.value_schema)
    if pa.types.is_struct(value.type) and value.type.num_fields:
        fields = {one.name: pc.struct_field(value, [index]) for index, one in enumerate(value.type)}
    else:
        fields = {VALUE: value}
    for name, column in metadata_of(frame, metadata):
        if prefix + name in fields:
            raise DataException(
                f'The values have a field "{prefix + name}", which metadata.columns would add: set '
                "metadata.columns.prefix to another text"
            )
        fields[prefix + name] = column
    return pa.table(fields)


def metadata_of(frame: SinkFrame, metadata: Sequence[str]) -> Iterator[tuple[str, pa.Array]]:
    """The columns that are no fields of the values, with their names."""
    for name in metadata:
        match name:
            case "key":
                yield name, values_of(frame.table.column("key"), frame.key_schema)
            case "topic" | "partition" | "offset":
                yield name, one_array(frame.origin.column(name))
            case "timestamp":
                yield name, one_array(frame.table.column(name)).cast(pa.timestamp("ms", "UTC"))
            case _:
                yield name, one_array(frame.table.column(name))


def values_of(column: pa.ChunkedArray, schema: Schema | None) -> pa.Array:
    """Values as plain Arrow types: those without a schema in the types of the values, decimals as decimals."""
    array = one_array(column)
    if is_variant(array.type):
        return inferred(Variants.of(pa.chunked_array([array])).objects())
    return _plain(array, schema)


def _plain(array: pa.Array, schema: Schema | None) -> pa.Array:
    kind = array.type
    if not _has_digits(kind):
        return array
    if _is_digits(kind):
        return _decimals(array, schema)
    if pa.types.is_struct(kind):
        schemas = [_field_schema(schema, one.name) for one in kind]
        members = [_plain(pc.struct_field(array, [index]), one) for index, one in enumerate(schemas)]
        fields = [pa.field(one.name, member.type) for one, member in zip(kind, members, strict=True)]
        return pa.StructArray.from_arrays(members, fields=fields, mask=array.is_null())
    # Decimals inside of lists and maps.
    return inferred([_objects(value, kind) for value in array.to_pylist(maps_as_pydicts="lossy")])


def _decimals(array: pa.Array, schema: Schema | None) -> pa.Array:
    holder = pa.table({"value": pa.StructArray.from_arrays([array], names=["number"])})
    found = one_array(SinkFrame(holder, None, None).fields(["number"]).column(0))
    places = (schema.parameters or {}).get(DecimalSchema.SCALE_FIELD) if schema is not None else None
    if places is None or not pa.types.is_decimal128(found.type):
        return found
    wanted = pa.decimal128(38, int(places))
    try:
        return conform(found, wanted)
    except pa.ArrowException as error:
        raise DataException(f"A decimal does not fit into 38 digits with {places} places: {error}") from error


def _field_schema(schema: Schema | None, name: str) -> Schema | None:
    field = schema.field(name) if schema is not None and schema.type is Type.STRUCT else None
    return None if field is None else field.schema


def _is_digits(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_struct(kind) and kind.names == ["unscaled", "scale"] and pa.types.is_binary(kind.field(0).type)
    )


def _has_digits(kind: pa.DataType) -> bool:
    """True if the type contains a decimal that is stored as digits and scale."""
    if _is_digits(kind):
        return True
    if pa.types.is_struct(kind):
        return any(_has_digits(one.type) for one in kind)
    if pa.types.is_map(kind):
        return _has_digits(kind.item_type)
    return is_list(kind) and _has_digits(kind.value_type)


def _objects(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if _is_digits(kind):
        return Decimal(int.from_bytes(value["unscaled"], "big", signed=True)).scaleb(-value["scale"], _DIGITS)
    if pa.types.is_struct(kind):
        return {one.name: _objects(value[one.name], one.type) for one in kind}
    if pa.types.is_map(kind):
        return {key: _objects(item, kind.item_type) for key, item in value.items()}
    return [_objects(item, kind.value_type) for item in value] if is_list(kind) else value
