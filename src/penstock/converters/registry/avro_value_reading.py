"""What fastavro reads, as Connect's values: one function for each schema, made once.

Main function: ``reader``. fastavro reads carried values, such as the number of days of a date, and tells the branch of
a union.

Thread: pure functions.
Source: io.confluent.connect.avro.AvroData.toConnectData.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.converters.registry.avro_forms import FROM_CARRIED, entry_types, logical_name, union_field
from penstock.converters.registry.avro_names import KEY_FIELD, VALUE_FIELD, AvroOptions
from penstock.converters.registry.avro_types import ALIKE, AvroType
from penstock.data import Schema, Struct, Type
from penstock.data.validate import map_key

Convert = Callable[[Any], Any]

_BITS: Final = {Type.INT8: 8, Type.INT16: 16}
_PYTHON_TYPES: Final[Mapping[str, type]] = {
    "boolean": bool, "int": int, "long": int, "float": float, "double": float, "bytes": bytes, "string": str,
    "array": list, "map": dict,
}  # fmt: skip


def reader(found: AvroType, schema: Schema | None, options: AvroOptions) -> Convert | None:
    """What makes Connect's values of fastavro's; None = they are the same.

    Args:
        found: The type they were written with.
        schema: ``connect_schema`` of it.
        options: The converter's settings.
    """
    if schema is None:
        return _read_anything
    if found.kind == "union":
        return _union_reader(found, schema, options)
    if found.kind == "record":
        return _record_reader(found, schema, options)
    if found.kind in ("array", "map"):
        return _parts_reader(found, schema, options)
    if schema.type in _BITS:
        half = 1 << (_BITS[schema.type] - 1)
        return lambda value: (value + half) % (2 * half) - half
    logical = FROM_CARRIED.get(logical_name(schema) or "")
    return None if logical is None else lambda value: logical(schema, value)


def _same(value: Any) -> Any:
    return value


def _record_reader(found: AvroType, schema: Schema, options: AvroOptions) -> Convert:
    parts = [
        (one.name, reader(one.type, schema.fields[place].schema, options)) for place, one in enumerate(found.fields)
    ]
    if all(convert is None for _, convert in parts):
        names = [name for name, _ in parts]
        return lambda value: Struct.unchecked(schema, [value[name] for name in names])
    return lambda value: Struct.unchecked(
        schema, [value[name] if convert is None else convert(value[name]) for name, convert in parts]
    )


def _parts_reader(found: AvroType, schema: Schema, options: AvroOptions) -> Convert | None:
    assert found.items is not None, "arrays and maps have items"
    if schema.type is Type.MAP and found.kind == "array":
        return _entries_reader(found.items, schema, options)
    convert = reader(found.items, schema.value_schema, options)
    if convert is None:
        return None
    if found.kind == "array":
        return lambda value: [convert(one) for one in value]
    return lambda value: {key: convert(one) for key, one in value.items()}


def _entries_reader(entry: AvroType, schema: Schema, options: AvroOptions) -> Convert:
    keys, values = entry_types(entry)
    key_of = reader(keys, schema.key_schema, options) or _same
    value_of = reader(values, schema.value_schema, options) or _same

    def read(value: Any) -> Any:
        return {map_key(key_of(one[KEY_FIELD])): value_of(one[VALUE_FIELD]) for one in value}

    return read


def _union_reader(found: AvroType, schema: Schema, options: AvroOptions) -> Convert | None:
    member = found.branches[0] if len(found.branches) == 1 else found.nullable
    if member is not None:
        convert = reader(member, schema, options)
        if member.name is not None:
            inner = convert or _same
            return lambda value: None if value is None else inner(value[1])
        return None if convert is None else lambda value: None if value is None else convert(value)
    table: dict[object, tuple[int, Convert]] = {}
    kinds = {one.kind for one in found.branches}
    for branch in found.branches:
        if branch.kind == "null":
            continue
        field = schema.field(union_field(branch, options))
        assert field is not None, "the struct of a union has a field for each type"
        wide = any(pair <= kinds and branch.kind in pair and branch.kind in ("long", "double") for pair in ALIKE)
        key = branch.branch_name if branch.name is not None or wide else _PYTHON_TYPES[branch.kind]
        table[key] = (field.index, reader(branch, field.schema, options) or _same)
    size = len(schema.fields)

    def read(value: Any) -> Any:
        if value is None:
            return None
        kind = type(value)
        if kind is tuple:
            kind, value = value
        index, convert = table[kind]
        values: list[Any] = [None] * size
        values[index] = convert(value)
        return Struct.unchecked(schema, values)

    return read


def _read_anything(value: Any) -> Any:
    """A schemaless value, from the record of which one field is set."""
    for name, one in value.items():
        if one is None:
            continue
        if name == "array":
            return [_read_anything(part) for part in one]
        if name == "map":
            return {_read_anything(part[KEY_FIELD]): _read_anything(part[VALUE_FIELD]) for part in one}
        return one
    return None
