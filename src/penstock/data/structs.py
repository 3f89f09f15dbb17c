"""``Struct``: a value with named, typed fields.

Owning thread: the one that built it; a struct is mutable until it is handed over and must not be changed after that.
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from datetime import date, datetime, time
from typing import Final, cast

from penstock.data.schema import Field, Schema, Type
from penstock.data.text import to_java_text
from penstock.data.validate import check_value
from penstock.errors import DataException

_STRUCT: Final = Type.STRUCT


class Struct:
    """A value of a STRUCT schema.

    ``put`` checks each value as it is stored; a field that was never put is null, and is found by ``validate``.

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
        """A struct of these values, one for each field in order, without looking at them.

        For code that has the values in the right types already; ``put`` is for everybody else.
        """
        struct = cls.__new__(cls)
        struct.schema = schema
        struct.values = list(values)
        return struct

    def put(self, field: str | Field, value: object) -> Struct:
        """Stores a field's value and returns this struct.

        Raises:
            DataException: There is no such field, or the value does not fit its schema. Null fits an optional field
                alone: one with a default is left out to have it.
        """
        # This is what a transform in Python does most: what fits by its class alone is looked at no further.
        try:
            index, exact, ends, _ = self.schema._places[field if isinstance(field, str) else field.name]
        except KeyError:
            raise _no_field(field) from None
        fits = type(value) is exact and (ends is None or ends[0] <= value <= ends[1])  # type: ignore[operator]
        if not fits:
            found = self._field(field)
            check_value(found.schema, value, f'field: "{found.name}"')
        self.values[index] = value
        return self

    def get(self, field: str | Field) -> object:
        """A field's value; its default (which may be None) when the value is null.

        Raises:
            DataException: There is no such field.
        """
        try:
            place = self.schema._places[field if isinstance(field, str) else field.name]
        except KeyError:
            raise _no_field(field) from None
        value = self.values[place[0]]
        return place[3] if value is None else value

    def copy(self) -> Struct:
        """A struct of the same schema and values, which can be changed: how a transform changes fields.

        The values are shared, not copied: so are nested structs, lists and maps.

        >>> from penstock.data import STRING_SCHEMA, SchemaBuilder
        >>> schema = SchemaBuilder.struct().field("name", STRING_SCHEMA).field("city", STRING_SCHEMA).build()
        >>> struct = Struct(schema).put("name", "Ada").put("city", "London")
        >>> print(struct.copy().put("city", "Paris"), struct)
        Struct{name=Ada,city=Paris} Struct{name=Ada,city=London}
        """
        return Struct.unchecked(self.schema, self.values)

    def get_without_default(self, field: str | Field) -> object:
        """A field's value as it was put, None when it was not.

        Raises:
            DataException: There is no such field.
        """
        return self.values[self._field(field).index]

    def get_int8(self, field: str) -> int | None:
        """The value of an INT8 field.

        Raises:
            DataException: There is no such field, or it is of another type; so for all the typed getters.
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
        for field in self.schema.fields:
            value = self.values[field.index]
            if value is None and (field.schema.optional or field.schema.default is not None):
                continue
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
        # By value, as in Java: a struct can be the key of a map, and is not changed any more once it is one.
        return hash((self.schema, *map(_hash_of, self.values)))

    def __str__(self) -> str:
        return to_java_text(self)

    def __repr__(self) -> str:
        return str(self)


def _hash_of(value: object) -> int:
    """A hash that values which are equal have in common; a dict's keys have no order."""
    if isinstance(value, (list, tuple)):
        return hash(tuple(map(_hash_of, value)))
    if isinstance(value, dict):
        return hash(frozenset((_hash_of(key), _hash_of(one)) for key, one in value.items()))
    return hash(bytes(value) if isinstance(value, (bytearray, memoryview)) else value)


def _no_field(field: str | Field) -> DataException:
    return DataException(f"{field if isinstance(field, str) else field.name} is not a valid field name")
