"""``Struct``: a value with named, typed fields; and ``validate_value``, which checks a value against a schema.

Null fits an optional schema only: a required schema with a default still rejects null (``Struct.put`` and
``Struct.validate`` apply defaults themselves).

Owning thread: the thread that built a struct. The struct must not change after it has been handed over.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from typing import Any, Final, cast

from penstock.data.logical import Date, Decimal, FarDate, FarTime, FarTimestamp, Time, Timestamp
from penstock.data.schema import Field, Schema, Type
from penstock.data.text import to_java_text
from penstock.errors import DataException

_STRUCT: Final = Type.STRUCT
_ARRAY: Final = Type.ARRAY
_MAP: Final = Type.MAP
#: The Python classes of the other types but integers, which are compared by exact class, because bool is an int in
#: Python but not in Connect.
_CLASSES: Final[dict[Type, tuple[type, ...]]] = {
    Type.FLOAT32: (float,),
    Type.FLOAT64: (float,),
    Type.BOOLEAN: (bool,),
    Type.STRING: (str,),
    Type.BYTES: (bytes, bytearray, memoryview),
}

_LOGICAL: Final[dict[str, Callable[[object], bool]]] = {
    Decimal.LOGICAL_NAME: lambda value: isinstance(value, decimal.Decimal),
    # An int is the raw number of days or milliseconds, for values that datetime cannot hold.
    Date.LOGICAL_NAME: lambda value: isinstance(value, date) or type(value) in (int, FarDate),
    Time.LOGICAL_NAME: lambda value: isinstance(value, time) or type(value) in (int, FarTime),
    Timestamp.LOGICAL_NAME: lambda value: isinstance(value, datetime) or type(value) in (int, FarTimestamp),
}


def validate_value(schema: Schema, value: object, name: str | None = None) -> None:
    """Checks that a value fits a schema.

    Args:
        schema: The schema.
        value: The value.
        name: Name of the field, for the message.

    Raises:
        DataException: The value, or a nested one, does not fit.

    >>> from penstock.data import INT8_SCHEMA
    >>> validate_value(INT8_SCHEMA, 127)
    >>> validate_value(INT8_SCHEMA, 128, "age")
    Traceback (most recent call last):
        ...
    penstock.errors.DataException: Invalid value for schema with type INT8: 128 is out of range for field: "age"

    Source: org.apache.kafka.connect.data.ConnectSchema.validateValue.
    """
    check_value(schema, value, "value" if name is None else f'field: "{name}"')


def check_value(schema: Schema, value: object, location: str) -> None:
    """As ``validate_value``, with the full location: ``value`` or ``field: "age"``."""
    if value is None:
        if not schema.optional:
            raise DataException(null_refused(schema, location))
        return
    kind = schema.type
    logical = _LOGICAL.get(schema.name) if schema.name is not None else None
    if logical is not None:
        if not logical(value):
            raise _mismatch(schema, value, location)
    elif kind is _STRUCT:
        _check_struct(schema, value, location)
    elif schema._range is not None:
        if type(value) is not int:
            raise _mismatch(schema, value, location)
        low, high = schema._range
        if not low <= value <= high:
            subject = f"Invalid value for schema{_named(schema)} with type {kind.name}"
            raise DataException(f"{subject}: {value} is out of range for {location}")
    elif kind is _ARRAY:
        if not isinstance(value, list):
            raise _mismatch(schema, value, location)
        place = f"element of array {location}"
        items = _present(schema._value_schema, place)
        # One look at all items, not a call for each: their classes prove that most lists fit.
        if items._range is None and items._exact is not None and set(map(type, value)) <= {items._exact}:
            return
        for item in value:
            check_value(items, item, place)
    elif kind is _MAP:
        if not isinstance(value, dict):
            raise _mismatch(schema, value, location)
        key_place, value_place = f"key of map {location}", f"value of map {location}"
        keys = _present(schema.key_schema, key_place)
        values = _present(schema.value_schema, value_place)
        for key, item in value.items():
            check_value(keys, _as_value(key) if isinstance(key, tuple) else key, key_place)
            check_value(values, item, value_place)
    elif not isinstance(value, _CLASSES[kind]):
        raise _mismatch(schema, value, location)


def null_refused(schema: Schema, location: str) -> str:
    """Returns the message for a null where a value is required; the location as for ``check_value``."""
    return f"Invalid value: null used for required {location}, schema type: {schema.type.name}"


def _check_struct(schema: Schema, value: object, location: str) -> None:
    if not isinstance(value, Struct):
        raise _mismatch(schema, value, location)
    if value.schema is not schema and value.schema != schema:
        raise DataException("Struct schemas do not match.")
    value.validate()


def map_key(key: object) -> Any:
    """Makes a key hashable: an array becomes a tuple, because Python lists have no hash.

    Raises:
        DataException: The key is or contains a map, which has no hashable form.
    """
    if isinstance(key, (list, tuple)):
        return tuple(map(map_key, key))
    if isinstance(key, dict):
        raise DataException("A map cannot be the key of a map")
    return key


def _as_value(key: object) -> object:
    """Turns the tuples of ``map_key`` back into arrays."""
    return [_as_value(item) for item in key] if isinstance(key, tuple) else key


def _present(schema: Schema | None, location: str) -> Schema:
    if schema is None:
        raise DataException(f"No schema defined for {location}")
    return schema


def _mismatch(schema: Schema, value: object, location: str) -> DataException:
    cls = type(value).__name__
    return DataException(
        f"Invalid value for schema{_named(schema)} with type {schema.type.name}: a Python {cls} for {location}"
    )


def _named(schema: Schema) -> str:
    return "" if schema.name is None else f' "{schema.name}"'


class Struct:
    """A value of a STRUCT schema.

    ``put`` checks each value as it is stored; a field that was never put is null, which only ``validate`` reports.

    >>> from penstock.data import BOOLEAN_SCHEMA, INT32_SCHEMA, STRING_SCHEMA, SchemaBuilder
    >>> schema = (
    ...     SchemaBuilder.struct().name("com.example.Person")
    ...     .field("name", STRING_SCHEMA)
    ...     .field("age", INT32_SCHEMA)
    ...     .field("admin", SchemaBuilder.boolean().default_value(False).build())
    ...     .build()
    ... )
    >>> struct = Struct(schema).put("name", "Barbara Liskov").put("age", 75)
    >>> struct.validate()
    >>> struct.get("admin")
    False
    >>> print(struct)
    Struct{name=Barbara Liskov,age=75}

    Raises:
        DataException: The schema is not a STRUCT.

    Source: org.apache.kafka.connect.data.Struct; documentation chapter, "Working with Schemas".
    """

    __slots__ = ("schema", "values")

    schema: Schema
    values: list[object]

    def __init__(self, schema: Schema) -> None:
        if schema.type is not _STRUCT:
            raise DataException(f"Not a struct schema: {schema}")
        self.schema = schema
        self.values = [None] * len(schema._fields)

    @classmethod
    def unchecked(cls, schema: Schema, values: Sequence[object]) -> Struct:
        """A struct with these values, one for each field in order, without any check.

        For code whose values have the right types already; use ``put`` otherwise.
        """
        struct = cls.__new__(cls)
        struct.schema = schema
        struct.values = list(values)
        return struct

    def put(self, field: str | Field, value: object) -> Struct:
        """Stores a field's value and returns this struct.

        Raises:
            DataException: The field does not exist, or the value does not fit its schema. Only optional fields accept
                null; to use a field's default, do not put the field.
        """
        # The hot path of Python transforms: a value whose class already proves that it fits is not checked further.
        try:
            index, exact, ends, _, optional = self.schema._places[field if isinstance(field, str) else field.name]
        except KeyError:
            raise _no_field(field) from None
        if type(value) is exact:
            fits = ends is None or ends[0] <= value <= ends[1]  # type: ignore[operator]
        else:
            fits = optional and value is None
        if not fits:
            found = self._field(field)
            check_value(found.schema, value, f'field: "{found.name}"')
        self.values[index] = value
        return self

    def get(self, field: str | Field) -> object:
        """A field's value; its default (which may be None) when the value is null.

        Raises:
            DataException: The field does not exist.
        """
        try:
            place = self.schema._places[field if isinstance(field, str) else field.name]
        except KeyError:
            raise _no_field(field) from None
        value = self.values[place[0]]
        return place[3] if value is None else value

    def copy(self) -> Struct:
        """A mutable copy with the same schema and values; transforms change fields this way.

        The copy is shallow: nested structs, lists and maps are shared.

        >>> from penstock.data import STRING_SCHEMA, SchemaBuilder
        >>> schema = SchemaBuilder.struct().field("name", STRING_SCHEMA).field("city", STRING_SCHEMA).build()
        >>> struct = Struct(schema).put("name", "Ada").put("city", "London")
        >>> print(struct.copy().put("city", "Paris"), struct)
        Struct{name=Ada,city=Paris} Struct{name=Ada,city=London}
        """
        return Struct.unchecked(self.schema, self.values)

    def get_without_default(self, field: str | Field) -> object:
        """A field's value as it was put; None if it was not.

        Raises:
            DataException: The field does not exist.
        """
        return self.values[self._field(field).index]

    def get_int8(self, field: str) -> int | None:
        """The value of an INT8 field.

        Raises:
            DataException: The field does not exist or has another type; the same holds for all typed getters.
        """
        return cast("int | None", self._typed(field, Type.INT8))

    def get_int16(self, field: str) -> int | None:
        """The value of an INT16 field."""
        return cast("int | None", self._typed(field, Type.INT16))

    def get_int32(self, field: str) -> int | date | time | None:
        """The value of an INT32 field."""
        return cast("int | date | time | None", self._typed(field, Type.INT32))

    def get_int64(self, field: str) -> int | datetime | None:
        """The value of an INT64 field."""
        return cast("int | datetime | None", self._typed(field, Type.INT64))

    def get_float32(self, field: str) -> float | None:
        """The value of a FLOAT32 field."""
        return cast("float | None", self._typed(field, Type.FLOAT32))

    def get_float64(self, field: str) -> float | None:
        """The value of a FLOAT64 field."""
        return cast("float | None", self._typed(field, Type.FLOAT64))

    def get_boolean(self, field: str) -> bool | None:
        """The value of a BOOLEAN field."""
        return cast("bool | None", self._typed(field, Type.BOOLEAN))

    def get_string(self, field: str) -> str | None:
        """The value of a STRING field."""
        return cast("str | None", self._typed(field, Type.STRING))

    def get_bytes(self, field: str) -> bytes | decimal.Decimal | None:
        """The value of a BYTES field."""
        return cast("bytes | decimal.Decimal | None", self._typed(field, Type.BYTES))

    def get_array(self, field: str) -> list[object] | None:
        """The value of an ARRAY field."""
        return cast("list[object] | None", self._typed(field, Type.ARRAY))

    def get_map(self, field: str) -> dict[object, object] | None:
        """The value of a MAP field."""
        return cast("dict[object, object] | None", self._typed(field, Type.MAP))

    def get_struct(self, field: str) -> Struct | None:
        """The value of a STRUCT field."""
        return cast("Struct | None", self._typed(field, Type.STRUCT))

    def validate(self) -> None:
        """Checks that every field that needs a value has one, at every depth.

        Raises:
            DataException: A required field without default is null, or a value does not fit its schema.
        """
        schema = self.schema
        for value, (index, exact, ends, default, optional) in zip(self.values, schema._places.values(), strict=True):
            if type(value) is exact:
                fits = ends is None or ends[0] <= value <= ends[1]  # type: ignore[operator]
            else:
                fits = value is None and (optional or default is not None)
            if not fits:
                field = schema._fields[index]
                check_value(field.schema, value, f'field: "{field.name}"')

    def _field(self, field: str | Field) -> Field:
        found = self.schema._by_name.get(field if isinstance(field, str) else field.name)
        if found is None:
            raise _no_field(field)
        return found

    def _typed(self, name: str, kind: Type) -> object:
        field = self._field(name)
        if field.schema.type is not kind:
            raise DataException(f"Field '{name}' is not of type {kind.name}")
        return self.get(field)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Struct):
            return NotImplemented
        return self.schema == other.schema and self.values == other.values

    def __hash__(self) -> int:
        # By value, as in Java: a struct may be a map key, and must not change after that.
        return hash((self.schema, *map(_hash_of, self.values)))

    def __str__(self) -> str:
        return to_java_text(self)

    def __repr__(self) -> str:
        return str(self)


def _hash_of(value: object) -> int:
    """A hash that is equal for equal values; the order of a dict's keys is ignored."""
    if isinstance(value, (list, tuple)):
        return hash(tuple(map(_hash_of, value)))
    if isinstance(value, dict):
        return hash(frozenset((_hash_of(key), _hash_of(one)) for key, one in value.items()))
    return hash(bytes(value) if isinstance(value, (bytearray, memoryview)) else value)


def _no_field(field: str | Field) -> DataException:
    return DataException(f"{field if isinstance(field, str) else field.name} is not a valid field name")
