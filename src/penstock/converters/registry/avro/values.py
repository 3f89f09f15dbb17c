"""Converts between Connect's values and the raw values of fastavro, with functions compiled once for a schema.

Raw values are, for example, the number of days of a date, and a value with the branch of its union.

Source: io.confluent.connect.avro.AvroData.toConnectData, fromConnectData.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from penstock.converters.registry.avro import forms
from penstock.converters.registry.avro.forms import AvroOptions, AvroType
from penstock.converters.registry.formats import INTEGER_BITS, LOGICAL
from penstock.data import Schema, Struct, Type
from penstock.data.structs import map_key
from penstock.errors import DataException
from penstock.pipeline.columns.layout import logical_name

Convert = Callable[[Any], Any]
#: Any other byte is false.
_TRUE: Final = b"\1"
_PYTHON_TYPES: Final[Mapping[str, type]] = {
    "int": int, "long": int, "float": float, "double": float, "bytes": bytes, "string": str,
    "array": list, "map": dict,
}  # fmt: skip


def value_reader(found: AvroType, schema: Schema | None, options: AvroOptions) -> Convert | None:
    """Returns the function from fastavro's values to Connect's, or None if they are the same."""
    if schema is None:
        return _read_anything
    if found.kind == "union":
        return _union_reader(found, schema, options)
    if found.kind == "record":
        return _record_reader(found, schema, options)
    if found.kind in ("array", "map"):
        return _parts_reader(found, schema, options)
    if schema.type in (Type.INT8, Type.INT16):
        half = 1 << (INTEGER_BITS[schema.type] - 1)
        return lambda value: (value + half) % (2 * half) - half
    if found.kind == "boolean":
        return _TRUE.__eq__
    if found.kind == "enum" and found.wire_symbols != found.symbols:
        symbols = dict(zip(found.wire_symbols, found.symbols, strict=True))
        return lambda value: symbols[value]
    logical = LOGICAL.get(logical_name(schema))
    return None if logical is None else lambda value: logical.to_logical(schema, value)


def _same(value: Any) -> Any:
    return value


def _record_reader(found: AvroType, schema: Schema, options: AvroOptions) -> Convert:
    names = [one.name for one in found.fields]
    parts = [
        (place, convert)
        for place, one in enumerate(found.fields)
        if (convert := value_reader(one.type, schema.fields[place].schema, options)) is not None
    ]

    def read(value: Any) -> Any:
        values = [value[name] for name in names]
        for place, convert in parts:
            values[place] = convert(values[place])
        return Struct.unchecked(schema, values)

    return read


def _parts_reader(found: AvroType, schema: Schema, options: AvroOptions) -> Convert | None:
    assert found.items is not None, "arrays and maps have items"
    if schema.type is Type.MAP and found.kind == "array":
        return _entries_reader(found.items, schema, options)
    convert = value_reader(found.items, schema.value_schema, options)
    if convert is None:
        return None
    if found.kind == "array":
        return lambda value: [convert(one) for one in value]
    return lambda value: {key: convert(one) for key, one in value.items()}


def _entries_reader(entry: AvroType, schema: Schema, options: AvroOptions) -> Convert:
    keys, values = forms.entry_types(entry)
    key_of = value_reader(keys, schema.key_schema, options) or _same
    value_of = value_reader(values, schema.value_schema, options) or _same

    def read(value: Any) -> Any:
        return {map_key(key_of(one[forms.KEY_FIELD])): value_of(one[forms.VALUE_FIELD]) for one in value}

    return read


def _union_reader(found: AvroType, schema: Schema, options: AvroOptions) -> Convert | None:
    member = forms.only_member(found, options)
    if member is not None:
        convert = value_reader(member, schema, options)
        if member.read_name is not None:
            inner = convert or _same
            return lambda value: None if value is None else inner(value[1])
        return None if convert is None else lambda value: None if value is None else convert(value)
    table: dict[object, tuple[int, Convert]] = {}
    wide = found.wide_branches
    for place, branch in enumerate(found.branches):
        if branch.kind == "null":
            continue
        field = schema.field(forms.union_field(branch, options, place))
        assert field is not None, "the struct of a union has a field for each type"
        key = branch.kind if branch.kind in wide else branch.read_name or _PYTHON_TYPES[branch.kind]
        table[key] = (field.index, value_reader(branch, field.schema, options) or _same)
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
    """A schemaless value, from a record with one field set."""
    for name, one in value.items():
        if one is None:
            continue
        if name == "array":
            return [_read_anything(part) for part in one]
        if name == "map":
            return {_read_anything(part[forms.KEY_FIELD]): _read_anything(part[forms.VALUE_FIELD]) for part in one}
        return one[1] == _TRUE if name == "boolean" else one
    return None


#: The limit of numbers with a nearest 32-bit float.
_BEYOND_FLOAT: Final = float.fromhex("0x1.ffffffp+127")


def value_writer(schema: Schema | None, found: AvroType, options: AvroOptions, place: str = "the value") -> Convert:
    """Returns the function from Connect's values (of no schema: schemaless) to fastavro's; ``place`` is for messages.

    The function raises ``DataException`` for a value that does not fit its schema.
    """
    if found.kind == "union":
        if schema is not None and forms.is_union(schema):
            return _union_writer(schema, found, options, place)
        return _branch_writer(schema, found, options, place)
    convert = _writer(schema, found, options, place)
    if schema is None:
        return convert

    def write(value: Any) -> Any:
        if value is None:
            raise DataException(f"Found null value for non-optional schema: {place}")
        return convert(value)

    return write


def _branch_writer(schema: Schema | None, found: AvroType, options: AvroOptions, place: str) -> Convert:
    """Values that may be null, or whose type is a union."""
    nullable = any(one.kind == "null" for one in found.branches)
    branch = branch_for(schema, found.branches, options)
    if branch is None:
        raise _cannot(schema, found, place)
    name, convert = branch.branch_name, _writer(schema, branch, options, place)

    def write(value: Any) -> Any:
        if value is None and nullable:
            return None
        if value is None and schema is not None:
            raise DataException(f"Found null value for non-optional schema: {place}")
        return name, convert(value)

    return write


def branch_for(schema: Schema | None, branches: Sequence[AvroType], options: AvroOptions) -> AvroType | None:
    """The branch of a union for values of a schema: the one with its name, or the closest one."""
    fitting = [one for one in branches if fits(schema, one, options)]
    if schema is None or not fitting:
        return fitting[0] if fitting else None
    called = (schema.parameters or {}).get(options.enum_parameter, schema.name)
    full = None if called is None else options.full_name(called)
    kinds = forms.KINDS[schema.type]
    return min(fitting, key=lambda one: (full is None or full not in (one.name, *one.aliases), kinds.index(one.kind)))


def fits(schema: Schema | None, found: AvroType, options: AvroOptions) -> bool:
    """True if non-null values of a schema can be written as a type, which is not a union."""
    if schema is None:
        return found.name == forms.ANYTHING
    if schema.type is Type.MAP and found.kind == "array":
        return found.items is not None and forms.is_map_entry(found.items)
    if schema.type is Type.MAP and found.kind == "map":
        return forms.has_text_keys(schema, options)
    return found.kind in forms.KINDS[schema.type]


def _cannot(schema: Schema | None, found: AvroType, place: str) -> DataException:
    kinds = " or ".join(one.shown for one in found.branches) or found.shown
    what = "schemaless values" if schema is None else f"values of {schema}"
    return DataException(f"{place}: {what} cannot be written as Avro type {kinds}")


def _writer(schema: Schema | None, found: AvroType, options: AvroOptions, place: str) -> Convert:
    """For non-null values, and a type that is not a union."""
    if not fits(schema, found, options):
        raise _cannot(schema, found, place)
    if schema is None:
        return lambda value: _write_anything(value, place)
    if schema.type is Type.STRUCT:
        return _record_writer(schema, found, options, place)
    if schema.type is Type.ARRAY:
        return _array_writer(schema, found, options, place)
    if schema.type is Type.MAP:
        return _map_writer(schema, found, options, place)
    check = _check(schema, found, place)
    logical = LOGICAL.get(logical_name(schema))
    if logical is None:
        return check

    def write(value: Any) -> Any:
        try:
            return check(logical.from_logical(schema, value))
        except (AttributeError, TypeError) as error:
            raise _wrong(schema, value, place) from error

    return write


def _wrong(schema: Schema, value: Any, place: str) -> DataException:
    return DataException(f"Invalid type for {schema.type.name}: a Python {type(value).__name__} ({place})")


def _check(schema: Schema, found: AvroType, place: str) -> Convert:
    """Checks that a value fits its schema: fastavro would write other values as something else."""
    if schema.type in INTEGER_BITS:
        if found.kind in ("float", "double"):
            return _float_check(lambda value: float(_whole_number(schema, value, place)))
        half = 1 << (min(INTEGER_BITS[schema.type], 32 if found.kind == "int" else 64) - 1)

        def whole(value: Any) -> Any:
            _whole_number(schema, value, place)
            if not -half <= value < half:
                raise DataException(f"{value} is out of range for {schema.type.name} ({place})")
            return value

        return whole
    if schema.type is Type.BYTES:
        return _bytes_check(schema, found, place)
    expected = {Type.BOOLEAN: bool, Type.STRING: str}.get(schema.type, float)
    if found.kind == "enum":
        return _enum_check(schema, found, place)

    def checked(value: Any) -> Any:
        if type(value) is not expected and not isinstance(value, expected):
            raise _wrong(schema, value, place)
        return value

    return _float_check(checked) if found.kind == "float" else checked


def _whole_number(schema: Schema, value: Any, place: str) -> Any:
    """Returns the value, which must be a whole number."""
    if type(value) is not int:
        raise _wrong(schema, value, place)
    return value


def _float_check(checked: Convert) -> Convert:
    def write(value: Any) -> Any:
        number = checked(value)
        # As in Java, a number beyond the largest float becomes infinite.
        return number if abs(number) < _BEYOND_FLOAT or not math.isfinite(number) else math.copysign(math.inf, number)

    return write


def _bytes_check(schema: Schema, found: AvroType, place: str) -> Convert:
    size = found.size if found.kind == "fixed" else None
    decimal = logical_name(schema) is not None

    def write(value: Any) -> Any:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise _wrong(schema, value, place)
        data = bytes(value)
        if size is not None and len(data) < size and decimal:
            # The same number in more bytes.
            return data.rjust(size, b"\xff" if data[0] >= 0x80 else b"\0")
        if size is not None and len(data) != size:
            raise DataException(f"The fixed type {found.name} has {size} bytes, and {place} has {len(data)}")
        return data

    return write


def _enum_check(schema: Schema, found: AvroType, place: str) -> Convert:
    symbols = dict(zip(found.symbols, found.wire_symbols, strict=True))

    def write(value: Any) -> Any:
        symbol = symbols.get(value) if isinstance(value, str) else None
        if symbol is None:
            raise DataException(f"{value!r} is not a symbol of the enum {found.name} ({place})")
        return symbol

    return write


def _record_writer(schema: Schema, found: AvroType, options: AvroOptions, place: str) -> Convert:
    parts: list[tuple[str, int, Any, Convert]] = []
    constants: dict[str, Any] = {}
    by_name = {options.name(field.name): field for field in schema.fields}
    for one in found.fields:
        # Aliases count, for a registered schema in which the field was renamed.
        field = next((by_name[name] for name in (one.name, *one.aliases) if name in by_name), None)
        if field is None:
            if one.default is forms.MISSING:
                raise DataException(
                    f"{place} has no field {one.name}, which the Avro record {found.name} requires: it has no default"
                )
            constants[one.name] = _plain_default(one.type, one.default)
            continue
        part = value_writer(field.schema, one.type, options, f"field {one.name} of {place}")
        # As in Java, a null is written as the default of its field, even if null is allowed.
        default = None if options.null_stays and field.schema.optional else field.schema.default
        parts.append((one.name, field.index, default, part))

    def write(value: Any) -> Any:
        if type(value) is not Struct:
            raise _wrong(schema, value, place)
        if value.schema is not schema and value.schema != schema:
            raise DataException(f"Mismatching struct schema: {place}")
        values = value.values
        written = dict(constants)
        for name, index, default, part in parts:
            one = values[index]
            written[name] = part(default if one is None else one)
        return written

    return write


def _array_writer(schema: Schema, found: AvroType, options: AvroOptions, place: str) -> Convert:
    assert found.items is not None, "arrays have items"
    part = value_writer(schema.value_schema, found.items, options, f"an element of {place}")

    def write(value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            raise _wrong(schema, value, place)
        return [part(one) for one in value]

    return write


def _map_writer(schema: Schema, found: AvroType, options: AvroOptions, place: str) -> Convert:
    assert found.items is not None, "maps have items"
    if found.kind == "array":
        keys, values = forms.entry_types(found.items)
        key_of = value_writer(schema.key_schema, keys, options, f"a key of {place}")
        value_of = value_writer(schema.value_schema, values, options, f"a value of {place}")

        def entries(value: Any) -> Any:
            if not isinstance(value, dict):
                raise _wrong(schema, value, place)
            return [{forms.KEY_FIELD: key_of(key), forms.VALUE_FIELD: value_of(one)} for key, one in value.items()]

        return entries
    part = value_writer(schema.value_schema, found.items, options, f"a value of {place}")

    def write(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _wrong(schema, value, place)
        for key in value:
            if not isinstance(key, str):
                raise DataException(f"Invalid type for a map's key: a Python {type(key).__name__} ({place})")
        return {key: part(one) for key, one in value.items()}

    return write


def _union_writer(schema: Schema, found: AvroType, options: AvroOptions, place: str) -> Convert:
    """The struct of a union: its first field that is not null."""
    named = {forms.union_field(one, options, at): one for at, one in enumerate(found.branches) if one.kind != "null"}
    parts: list[tuple[str, Convert]] = []
    for field in schema.fields:
        # As in Java, the type of the field counts if the names differ, such as a struct without its namespace.
        branch = named.get(field.name)
        if branch is None or not fits(field.schema, branch, options):
            branch = branch_for(field.schema, found.branches, options)
        if branch is None:
            raise DataException(f"{place} has a field {field.name} that is no type of the union: {', '.join(named)}")
        parts.append((branch.branch_name, _writer(field.schema, branch, options, f"field {field.name} of {place}")))
    nullable = any(one.kind == "null" for one in found.branches)

    def write(value: Any) -> Any:
        if value is not None:
            if type(value) is not Struct:
                raise _wrong(schema, value, place)
            for (name, part), one in zip(parts, value.values, strict=True):
                if one is not None:
                    return name, part(one)
        if not nullable:
            raise DataException(f"No field of the union is set: {place}")
        return None

    return write


def _write_anything(value: Any, place: str) -> dict[str, Any]:
    """A schemaless value: a record with one field set."""
    if value is None:
        return {}
    if isinstance(value, bool):
        return {"boolean": ("boolean", value)}
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            raise DataException(f"{value} is out of range for INT64 ({place})")
        return {"long": ("long", value)}
    if isinstance(value, float):
        return {"double": ("double", value)}
    if isinstance(value, str):
        return {"string": ("string", value)}
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"bytes": ("bytes", bytes(value))}
    if isinstance(value, list):
        return {"array": ("array", [_write_anything(one, place) for one in value])}
    if isinstance(value, dict):
        entries = [
            {forms.KEY_FIELD: _write_anything(key, place), forms.VALUE_FIELD: _write_anything(one, place)}
            for key, one in value.items()
        ]
        return {"map": ("array", entries)}
    raise DataException(f"Unknown type for schemaless data: a Python {type(value).__name__} ({place})")


def _plain_default(found: AvroType, value: Any) -> Any:
    """A default from the JSON of an Avro schema, for fastavro."""
    if found.kind == "union":
        # Null uses the null branch, any other value the first other branch.
        first = next(one for one in found.branches if (one.kind == "null") == (value is None))
        return None if first.kind == "null" else (first.branch_name, _plain_default(first, value))
    if found.kind in ("bytes", "fixed"):
        return value.encode("latin-1")
    if found.kind in ("float", "double"):
        return float(value)
    if found.kind == "record":
        return {one.name: _plain_default(one.type, value.get(one.name, one.default)) for one in found.fields}
    if found.items is not None and found.kind == "array":
        return [_plain_default(found.items, one) for one in value]
    if found.items is not None:
        return {key: _plain_default(found.items, one) for key, one in value.items()}
    return value
