"""Columns of a file: the fields of the values, and keys, headers and positions of the messages.

Main functions: ``columns_of``; ``metadata_of_schemas`` and ``schema_in`` keep Connect's schemas in the metadata of
files, so that a topic can be restored with its schemas. Pure; any thread.

Source: Penstock's own; the form in which ``JsonConverter`` writes schemas.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.api import SinkFrame
from penstock.api.arrow import is_list, is_variant, one_array
from penstock.api.frames.variant_fields import Variants
from penstock.data import Decimal as DecimalSchema
from penstock.data import Field, Schema, Type
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
    return _without_digits(array, schema)


def _without_digits(array: pa.Array, schema: Schema | None) -> pa.Array:
    kind = array.type
    if not _has_digits(kind):
        return array
    if _is_digits(kind):
        return _decimals(array, schema)
    if pa.types.is_struct(kind):
        schemas = [_field_schema(schema, one.name) for one in kind]
        members = [_without_digits(pc.struct_field(array, [index]), one) for index, one in enumerate(schemas)]
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


_KEYS: Final = {"value": b"penstock.value.schema", "key": b"penstock.key.schema"}


def metadata_of_schemas(value: Schema | None, key: Schema | None) -> dict[bytes, bytes]:
    """The metadata of a file whose rows have these schemas; None: they have none."""
    return {
        _KEYS[side]: json.dumps(_to_json(schema), separators=(",", ":")).encode()
        for side, schema in (("value", value), ("key", key))
        if schema is not None
    }


def schema_in(metadata: Mapping[bytes, bytes] | None, side: str) -> Schema | None:
    """The schema of the values, or of the keys, in a file's metadata; None if there is none.

    >>> from penstock.data import INT8_SCHEMA
    >>> schema_in(metadata_of_schemas(INT8_SCHEMA, None), "value")
    <Schema{INT8}>
    """
    text = (metadata or {}).get(_KEYS[side])
    return None if text is None else _parsed(text)


@lru_cache(maxsize=256)
def _parsed(text: bytes) -> Schema | None:
    try:
        return _of_json(json.loads(text))
    except (ValueError, KeyError, TypeError):
        return None


def _to_json(schema: Schema) -> dict[str, Any]:
    found: dict[str, Any] = {"type": schema.type.name, "optional": schema.optional}
    more = {"name": schema.name, "version": schema.version, "doc": schema.doc}
    found |= {name: value for name, value in more.items() if value is not None}
    if schema.parameters is not None:
        found["parameters"] = dict(schema.parameters)
    if isinstance(schema.default, str | int | float | bool):
        found["default"] = schema.default
    if schema.type is Type.STRUCT:
        found["fields"] = [{"field": one.name, **_to_json(one.schema)} for one in schema.fields]
    if schema.type is Type.MAP and schema.key_schema is not None:
        found["keys"] = _to_json(schema.key_schema)
    if schema.type in (Type.MAP, Type.ARRAY) and schema.value_schema is not None:
        found["values"] = _to_json(schema.value_schema)
    return found


def _of_json(found: Mapping[str, Any]) -> Schema:
    fields = [Field(one["field"], index, _of_json(one)) for index, one in enumerate(found.get("fields", ()))]
    return Schema(
        Type[found["type"]],
        optional=found["optional"],
        default=found.get("default"),
        name=found.get("name"),
        version=found.get("version"),
        doc=found.get("doc"),
        parameters=found.get("parameters"),
        key_schema=_of_json(found["keys"]) if "keys" in found else None,
        value_schema=_of_json(found["values"]) if "values" in found else None,
        fields=fields,
    )
