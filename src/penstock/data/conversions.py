"""Conversions of values: to another type (``Values``), and to a compatible schema (``SchemaProjector``).

Owning thread: none; pure functions.
"""

from __future__ import annotations

import base64
import decimal
import math
from datetime import date, datetime, time
from typing import Any, Final, cast

from penstock.data.logical import Date, Decimal, FarDate, FarMoment, FarTime, FarTimestamp, Time, Timestamp
from penstock.data.parser import infer_schema, parse_decimal, parse_string
from penstock.data.schema import Schema, SchemaAndValue, Type
from penstock.data.structs import Struct
from penstock.data.text import (
    MILLIS_PER_DAY,
    Float32,
    format_millis,
    in_order,
    java_decimal,
    java_double,
    java_float,
    nearest_float32,
    round_to_float32,
    to_java_text,
)
from penstock.errors import DataException, SchemaProjectorException

_TEMPORAL_NAMES: Final = frozenset({Date.LOGICAL_NAME, Time.LOGICAL_NAME, Timestamp.LOGICAL_NAME})
_INT64_MAX: Final = (1 << 63) - 1


class Values:
    """Conversions between types. Each takes the value and its schema (None: unknown) and returns null for null.

    Numbers wrap when they are narrowed and floats saturate, as in Java. Texts are read as ``parse_string`` reads them.

    >>> Values.convert_to_long(None, "12"), Values.convert_to_byte(None, 300), Values.convert_to_boolean(None, "true")
    (12, 44, True)

    Source: org.apache.kafka.connect.data.Values. Every conversion raises DataException for a value it cannot convert.
    """

    infer_schema = staticmethod(infer_schema)
    parse_string = staticmethod(parse_string)

    @staticmethod
    def convert_to_boolean(schema: Schema | None, value: object) -> bool | None:
        """Converts to BOOLEAN: numbers are true unless zero; the texts ``true`` and ``false`` are parsed."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            parsed = _parsed(value)
            if isinstance(parsed, bool):
                return parsed
        return _as_long(schema, value) != 0

    @staticmethod
    def convert_to_byte(schema: Schema | None, value: object) -> int | None:
        """Converts to INT8."""
        return None if value is None else wrap(_as_long(schema, value), 8)

    @staticmethod
    def convert_to_short(schema: Schema | None, value: object) -> int | None:
        """Converts to INT16."""
        return None if value is None else wrap(_as_long(schema, value), 16)

    @staticmethod
    def convert_to_integer(schema: Schema | None, value: object) -> int | None:
        """Converts to INT32."""
        return None if value is None else wrap(_as_long(schema, value), 32)

    @staticmethod
    def convert_to_long(schema: Schema | None, value: object) -> int | None:
        """Converts to INT64; dates and times with a schema become days or milliseconds."""
        return None if value is None else _as_long(schema, value)

    @staticmethod
    def convert_to_float(schema: Schema | None, value: object) -> float | None:
        """Converts to FLOAT32."""
        return None if value is None else round_to_float32(_as_double(schema, value))

    @staticmethod
    def convert_to_double(schema: Schema | None, value: object) -> float | None:
        """Converts to FLOAT64."""
        return None if value is None else _as_double(schema, value)

    @staticmethod
    def convert_to_string(schema: Schema | None, value: object) -> str | None:
        """Converts to STRING: nearly the text that ``parse_string`` reads; bytes in base64."""
        return None if value is None else value_text(value, schema)

    @staticmethod
    def convert_to_list(schema: Schema | None, value: object) -> list[object]:
        """Converts a list, or the text of a list, to ARRAY. Rejects null."""
        found = _parsed(value) if isinstance(value, str) else value
        if isinstance(found, list):
            return found
        raise _cannot(value, "Schema{ARRAY}")

    @staticmethod
    def convert_to_map(schema: Schema | None, value: object) -> dict[object, object]:
        """Converts a dict, or the text of a map, to MAP. Rejects null."""
        found = _parsed(value) if isinstance(value, str) else value
        if isinstance(found, dict):
            return found
        raise _cannot(value, "Schema{MAP}")

    @staticmethod
    def convert_to_struct(schema: Schema | None, value: object) -> Struct:
        """Returns a struct; rejects any other value."""
        if isinstance(value, Struct):
            return value
        raise _cannot(value, "Schema{STRUCT}")

    @staticmethod
    def convert_to_date(schema: Schema | None, value: object) -> date | int | None:
        """Converts to Date: numbers are days, a timestamp loses its time."""
        if value is None:
            return None
        value, schema = _read_temporal(value, schema)
        millis = _timestamp_millis(value, schema)
        if millis is not None:
            # Java divides towards zero here, so a moment before 1970 becomes the day after.
            days = -(-millis // MILLIS_PER_DAY) if millis < 0 else millis // MILLIS_PER_DAY
            return Date.to_logical(Date.SCHEMA, wrap(days, 32))
        if _is_moment(value, schema) and (isinstance(value, (date, FarDate)) or _is_named(schema, Date.LOGICAL_NAME)):
            return cast("date | int", value)
        return Date.to_logical(Date.SCHEMA, wrap(_as_long(schema, value), 32))

    @staticmethod
    def convert_to_time(schema: Schema | None, value: object) -> time | int | None:
        """Converts to Time: numbers are milliseconds of the day, a timestamp loses its date."""
        if value is None:
            return None
        value, schema = _read_temporal(value, schema)
        millis = _timestamp_millis(value, schema)
        if millis is not None:
            return Time.to_logical(Time.SCHEMA, millis % MILLIS_PER_DAY)
        if _is_moment(value, schema) and (isinstance(value, (time, FarTime)) or _is_named(schema, Time.LOGICAL_NAME)):
            return cast("time | int", value)
        return Time.to_logical(Time.SCHEMA, wrap(_as_long(schema, value), 32))

    @staticmethod
    def convert_to_timestamp(schema: Schema | None, value: object) -> datetime | int | None:
        """Converts to Timestamp: numbers are milliseconds, a date becomes midnight, a time is on 1 January 1970."""
        if value is None:
            return None
        value, schema = _read_temporal(value, schema)
        if isinstance(value, (datetime, FarTimestamp)):
            return value
        return Timestamp.to_logical(Timestamp.SCHEMA, _millis_of(schema, value))

    @staticmethod
    def convert_to_decimal(schema: Schema | None, value: object, scale: int) -> decimal.Decimal | None:
        """Converts to Decimal: bytes are decoded with the given scale; numbers and texts keep their own scale."""
        match value:
            case None:
                return None
            case bytes() | bytearray() | memoryview():
                return Decimal.to_logical(Decimal.schema(scale), bytes(value))
            case decimal.Decimal():
                return value
            case int() | float() if not isinstance(value, bool):
                # Through the text of a double, as in Java.
                found = parse_decimal(java_double(float(value)))
            case str():
                found = parse_decimal(value)
            case _:
                found = None
        if found is None:
            raise _cannot(value, Decimal.LOGICAL_NAME)
        return found


def value_text(value: object, schema: Schema | None = None, *, embedded: bool = False) -> str:
    """Prints a value as header text.

    Args:
        value: The value.
        schema: Its schema, if any: identifies a FLOAT32, and a raw number of days or milliseconds.
        embedded: True inside a list, map or struct, where strings are quoted.

    Raises:
        DataException: Values of this class have no text.

    >>> value_text({"a": [1.5, None, "x"]})
    '{"a":[1.5,null,"x"]}'
    """
    match value:
        case None:
            return "null"
        case str():
            return _quoted(value) if embedded else value
        case bool():
            return "true" if value else "false"
        case FarMoment():
            return format_millis(value.millis)
        case int():
            if schema is not None and schema.name in _TEMPORAL_NAMES:
                return format_millis(_millis_of(schema, value))
            return str(int(value))
        case float():
            single = value.__class__ is Float32 if schema is None else schema.type is Type.FLOAT32
            return java_float(value) if single else java_double(value)
        case decimal.Decimal():
            return java_decimal(value)
        case bytes() | bytearray() | memoryview():
            text = base64.b64encode(value).decode("ascii")
            return f'"{text}"' if embedded else text
        case datetime() | date() | time():
            return format_millis(_millis_of(None, value))
        case list() | tuple():
            items = schema._value_schema if schema is not None else None
            return "[" + ",".join(value_text(item, items, embedded=True) for item in value) + "]"
        case dict():
            return "{" + ",".join(_entry_texts(value, schema)) + "}"
        case Struct():
            return "{" + ",".join(_field_texts(value)) + "}"
        case _:
            raise DataException(f"Failed to serialize unexpected value type {type(value).__name__}: {value}")


def _field_texts(value: Struct) -> list[str]:
    return [
        f"{_quoted(field.name)}:{value_text(value.get(field), field.schema, embedded=True)}"
        for field in value.schema.fields
    ]


def _entry_texts(value: dict[Any, Any], schema: Schema | None) -> list[str]:
    keys = schema._key_schema if schema is not None else None
    items = schema._value_schema if schema is not None else None
    pairs = value.items() if schema is not None else in_order(value)
    return [f"{value_text(key, keys, embedded=True)}:{value_text(item, items, embedded=True)}" for key, item in pairs]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _parsed(text: str) -> object:
    found = parse_string(text)
    return None if found is None else found.value


def _read_temporal(value: object, schema: Schema | None) -> tuple[object, Schema | None]:
    """Parses a text first; the schema that this infers then applies."""
    if not isinstance(value, str):
        return value, schema
    found: SchemaAndValue | None = parse_string(value)
    if found is None or isinstance(found.value, str):
        return value, schema
    return found.value, found.schema


def _is_moment(value: object, schema: Schema | None) -> bool:
    if isinstance(value, (date, time, FarMoment)):
        return True
    return type(value) is int and schema is not None and schema.name in _TEMPORAL_NAMES


def _is_named(schema: Schema | None, name: str) -> bool:
    return schema is not None and schema.name == name


def _timestamp_millis(value: object, schema: Schema | None) -> int | None:
    """The milliseconds of a timestamp; None for any other value."""
    is_timestamp = isinstance(value, (datetime, FarTimestamp)) or _is_named(schema, Timestamp.LOGICAL_NAME)
    if not (is_timestamp and _is_moment(value, schema)):
        return None
    return Timestamp.from_logical(Timestamp.SCHEMA, cast("datetime | int", value))


def _millis_of(schema: Schema | None, value: object) -> int:
    """Milliseconds since 1970 of a date, time or datetime, or of a raw number."""
    match value:
        case datetime():
            return Timestamp.from_logical(Timestamp.SCHEMA, value)
        case date():
            return Date.from_logical(Date.SCHEMA, value) * MILLIS_PER_DAY
        case time():
            return Time.from_logical(Time.SCHEMA, value)
        case FarMoment():
            return value.millis
    number = _as_long(schema, value)
    return number * MILLIS_PER_DAY if schema is not None and schema.name == Date.LOGICAL_NAME else number


def _as_long(schema: Schema | None, value: object) -> int:
    """Narrows a value to a 64-bit integer as Java does."""
    match value:
        case bool():
            pass
        case int():
            return wrap(int(value), 64)
        case float():
            return _saturate(value)
        case decimal.Decimal():
            return wrap(_whole(value), 64)
        case str():
            number = parse_decimal(value)
            if number is not None:
                return wrap(_whole(number), 64)
        case datetime() if schema is not None and schema.name == Timestamp.LOGICAL_NAME:
            return Timestamp.from_logical(schema, value)
        case date() if schema is not None and schema.name == Date.LOGICAL_NAME:
            return Date.from_logical(schema, value)
        case time() if schema is not None and schema.name == Time.LOGICAL_NAME:
            return Time.from_logical(schema, value)
    raise _cannot(value, "a number" if schema is None else str(schema))


def _saturate(value: float) -> int:
    if math.isnan(value):
        return 0
    if abs(value) >= 2.0**63:
        return _INT64_MAX if value > 0 else -_INT64_MAX - 1
    return int(value)


def _whole(number: decimal.Decimal) -> int:
    """The integer part; modulo 2**64 for numbers so large that only zeros remain."""
    if not number.is_finite() or number.adjusted() < 0:
        return 0
    exponent = number.as_tuple().exponent
    # 10**64 is a multiple of 2**64.
    return 0 if isinstance(exponent, int) and exponent >= 64 else int(number)


def _as_double(schema: Schema | None, value: object) -> float:
    if isinstance(value, (float, decimal.Decimal)):
        return float(value)
    if isinstance(value, str):
        number = parse_decimal(value)
        if number is not None:
            return float(number)
    return float(_as_long(schema, value))


def wrap(number: int, bits: int) -> int:
    """Narrows an integer to the given number of bits, as Java does.

    >>> wrap(300, 8), wrap(-129, 8)
    (44, 127)
    """
    half = 1 << (bits - 1)
    return (number + half) % (1 << bits) - half


def _cannot(value: object, target: str) -> DataException:
    return DataException(f"Unable to convert {value} ({type(value).__name__}) to {target}")


#: From narrow to wide; a value may be projected to any later type.
_PROMOTIONS: Final = (Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.FLOAT32, Type.FLOAT64)


class SchemaProjector:
    """Projects values between schemas.

    Versions are not compared. Source: org.apache.kafka.connect.data.SchemaProjector.
    """

    @staticmethod
    def project(source: Schema, value: object, target: Schema) -> object:
        """Returns the value converted to the target schema.

        Numbers are widened; fields of structs are matched by name; missing fields get the target's default.

        Raises:
            SchemaProjectorException: The types, names or parameters are incompatible, a required field is missing, or
                null may come where the target has neither null nor a default.

        >>> from penstock.data import FLOAT64_SCHEMA, INT32_SCHEMA
        >>> SchemaProjector.project(INT32_SCHEMA, 5, FLOAT64_SCHEMA)
        5.0
        """
        _check_compatible(source, target)
        if source.optional and not target.optional:
            if target.default is None:
                raise SchemaProjectorException(
                    "Writer schema is optional, however, target schema does not provide a default value."
                )
            if value is None:
                return target.default
        return None if value is None else _project_present(source, value, target)


def _check_compatible(source: Schema, target: Schema) -> None:
    if source.type is not target.type and not _promotable(source.type, target.type):
        raise SchemaProjectorException(
            f"Schema type mismatch. source type: {source.type.name} and target type: {target.type.name}"
        )
    if source.name != target.name:
        raise SchemaProjectorException(
            "Schema name mismatch. "
            f"source name: {to_java_text(source.name)} and target name: {to_java_text(target.name)}"
        )
    if source.parameters != target.parameters:
        raise SchemaProjectorException(
            "Schema parameters not equal. "
            f"source parameters: {_parameters(source)} and target parameters: {_parameters(target)}"
        )


def _promotable(source: Type, target: Type) -> bool:
    return source in _PROMOTIONS and target in _PROMOTIONS and _PROMOTIONS.index(source) <= _PROMOTIONS.index(target)


def _parameters(schema: Schema) -> str:
    return to_java_text(None if schema.parameters is None else dict(schema.parameters))


def _project_present(source: Schema, value: Any, target: Schema) -> object:
    match target.type:
        case Type.STRUCT:
            return _project_struct(source, cast("Struct", value), target)
        case Type.ARRAY:
            return [_project_part(source.value_schema, item, target.value_schema) for item in value]
        case Type.MAP:
            return {
                _project_part(source.key_schema, key, target.key_schema): _project_part(
                    source.value_schema, item, target.value_schema
                )
                for key, item in value.items()
            }
        case Type.FLOAT32 if type(value) is int:
            return nearest_float32(value)
        case Type.FLOAT64 if type(value) is int:
            return float(value)
        case _:
            return cast("object", value)


def _project_part(source: Schema | None, value: object, target: Schema | None) -> Any:
    if source is None or target is None:
        raise SchemaProjectorException("Elements without a schema cannot be projected")
    return SchemaProjector.project(source, value, target)


def _project_struct(source: Schema, value: Struct, target: Schema) -> Struct:
    result = Struct(target)
    for field in target.fields:
        origin = source.field(field.name)
        if origin is not None:
            try:
                result.put(field, SchemaProjector.project(origin.schema, value.get(field.name), field.schema))
            except SchemaProjectorException as problem:
                raise SchemaProjectorException(f"Error projecting {field.name}") from problem
        elif field.schema.default is not None:
            result.put(field, field.schema.default)
        elif not field.schema.optional:
            raise SchemaProjectorException(f"Required field `{field.name}` is missing from source schema: {source}")
    return result
