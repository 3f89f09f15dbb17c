"""Schemas, which describe values: ``Schema``, ``Field``, ``Type`` and the eighteen constants for primitives.

A ``Schema`` is an immutable value: schemas with the same content are equal and hash alike, so a schema can be a
dictionary key. Make it with ``SchemaBuilder``, once, and keep it: building is slow, and comparing a schema with itself
is free.

Owning thread: none; schemas are immutable and may be shared by threads.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple, NoReturn

from penstock.errors import DataException


class Type(Enum):
    """The twelve types of Connect; ``value`` is the name used in JSON schemas and settings.

    Source: org.apache.kafka.connect.data.Schema.Type.
    """

    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    BOOLEAN = "boolean"
    STRING = "string"
    BYTES = "bytes"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"

    # Enum computes a hash of the name on each call; members are singletons, so the identity hash works and is much
    # faster.
    __hash__ = object.__hash__

    @property
    def is_primitive(self) -> bool:
        """True if values of this type have no nested values."""
        return self not in _COMPOSITE

    def __str__(self) -> str:
        return self.name


_COMPOSITE: Final = frozenset({Type.ARRAY, Type.MAP, Type.STRUCT})
_STRUCT: Final = Type.STRUCT
_WIDTHS: Final = {Type.INT8: 7, Type.INT16: 15, Type.INT32: 31, Type.INT64: 63}
_RANGES: Final = {kind: (-(1 << bits), (1 << bits) - 1) for kind, bits in _WIDTHS.items()}
_EXACT: Final[Mapping[Type, type]] = {
    **dict.fromkeys(_RANGES, int),
    Type.FLOAT32: float,
    Type.FLOAT64: float,
    Type.BOOLEAN: bool,
    Type.STRING: str,
    Type.BYTES: bytes,
}
_LOGICAL_PREFIX: Final = "org.apache.kafka.connect.data."


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct: its name, its position (from 0), its schema.

    Source: org.apache.kafka.connect.data.Field.
    """

    name: str
    index: int
    schema: Schema

    def __str__(self) -> str:
        return f"Field{{name={self.name}, index={self.index}, schema={self.schema}}}"


class Schema:
    """The description of a value: its type, whether it may be null, and its name.

    Authors use ``SchemaBuilder``, which checks its input; this constructor does not.

    Attributes:
        type: The type.
        optional: True if null is allowed.
        default: The value that replaces null, or None.
        name: Name of the schema; gives logical types their meaning.
        version: Version of the schema; carried, never interpreted.
        doc: Text for people.
        parameters: Additional properties, or None.

    Thread: immutable, any thread.
    Source: org.apache.kafka.connect.data.ConnectSchema.
    """

    __slots__ = (
        "_by_name",
        "_exact",
        "_fields",
        "_hash",
        "_key_schema",
        "_places",
        "_range",
        "_same",
        "_value_schema",
        "default",
        "doc",
        "name",
        "optional",
        "parameters",
        "type",
        "version",
    )

    type: Type
    optional: bool
    default: object
    name: str | None
    version: int | None
    doc: str | None
    parameters: Mapping[str, str] | None
    _key_schema: Schema | None
    _value_schema: Schema | None
    _fields: tuple[Field, ...]
    _by_name: Mapping[str, Field]
    #: The properties of a field that `Struct` needs for each value: index, exact class and range (see below), default,
    #: and whether it may be null.
    _places: Mapping[str, tuple[int, builtins.type | None, tuple[int, int] | None, object, bool]]
    _hash: int
    #: An instance of exactly this class fits without a further check if it is in the range. None: no such class; a
    #: range of None: every instance fits.
    _exact: builtins.type | None
    _range: tuple[int, int] | None
    #: The first equal schema, so that schemas made for each record are compared only once. None: this schema itself.
    _same: Schema | None

    def __init__(
        self,
        type: Type,  # noqa: A002 -- the attribute's name
        *,
        optional: bool = False,
        default: object = None,
        name: str | None = None,
        version: int | None = None,
        doc: str | None = None,
        parameters: Mapping[str, str] | None = None,
        key_schema: Schema | None = None,
        value_schema: Schema | None = None,
        fields: Sequence[Field] = (),
    ) -> None:
        put = object.__setattr__
        put(self, "type", type)
        put(self, "optional", optional)
        put(self, "default", default)
        put(self, "name", name)
        put(self, "version", version)
        put(self, "doc", doc)
        put(self, "parameters", None if parameters is None else MappingProxyType(dict(parameters)))
        put(self, "_key_schema", key_schema)
        put(self, "_value_schema", value_schema)
        put(self, "_fields", tuple(fields))
        put(self, "_by_name", {field.name: field for field in fields})
        schemas = [(one.name, one.index, one.schema) for one in fields]
        places = {name: (at, one._exact, one._range, one.default, one.optional) for name, at, one in schemas}
        put(self, "_places", places)
        logical = name is not None and name.startswith(_LOGICAL_PREFIX)
        put(self, "_exact", None if logical else _EXACT.get(type))
        put(self, "_range", _RANGES.get(type))
        put(self, "_same", None)
        # Without the default, which may be a list or dict. Equal schemas still have equal hashes.
        parts = (type, optional, name, version, doc, key_schema, value_schema, self._fields)
        put(self, "_hash", hash((*parts, None if parameters is None else frozenset(parameters.items()))))

    def __setattr__(self, attribute: str, value: object) -> NoReturn:
        raise AttributeError(f"{self} is immutable: {attribute} cannot be set; build another schema with SchemaBuilder")

    def __delattr__(self, attribute: str) -> NoReturn:
        raise AttributeError(f"{self} is immutable: {attribute} cannot be deleted")

    @property
    def key_schema(self) -> Schema | None:
        """The schema of a map's keys (None: the keys have no common type).

        Raises:
            DataException: This is not a map.
        """
        if self.type is not Type.MAP:
            raise DataException("Cannot look up key schema on non-map type")
        return self._key_schema

    @property
    def value_schema(self) -> Schema | None:
        """The schema of a map's values or an array's elements (None: they have no common type).

        Raises:
            DataException: This is neither a map nor an array.
        """
        if self.type is not Type.MAP and self.type is not Type.ARRAY:
            raise DataException("Cannot look up value schema on non-array and non-map type")
        return self._value_schema

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of a struct, in order.

        Raises:
            DataException: This is not a struct.
        """
        if self.type is not _STRUCT:
            raise DataException("Cannot list fields on non-struct type")
        return self._fields

    def field(self, name: str) -> Field | None:
        """The field with this name, or None.

        Raises:
            DataException: This is not a struct.
        """
        if self.type is not _STRUCT:
            raise DataException("Cannot look up fields on non-struct type")
        return self._by_name.get(name)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Schema):
            return NotImplemented
        if self._hash != other._hash:
            return False
        same = self._same or self
        if same is (other._same or other):
            return True
        if not self._says_the_same(other):
            return False
        for one in (self, other):
            object.__setattr__(one, "_same", None if one is same else same)
        return True

    def _says_the_same(self, other: Schema) -> bool:
        return (
            self.type is other.type
            and self.optional == other.optional
            and self.name == other.name
            and self.version == other.version
            and self.doc == other.doc
            and self.parameters == other.parameters
            and self._fields == other._fields
            and self._key_schema == other._key_schema
            and self._value_schema == other._value_schema
            and _same_default(self.default, other.default)
        )

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        # Hashes differ between processes (strings are salted), so unpickling builds the schema again.
        parameters = None if self.parameters is None else dict(self.parameters)
        state = (self.type, self.optional, self.default, self.name, self.version, self.doc, parameters)
        return _restore, (*state, self._key_schema, self._value_schema, self._fields)

    def __str__(self) -> str:
        return f"Schema{{{self.type.name}}}" if self.name is None else f"Schema{{{self.name}:{self.type.name}}}"

    def __repr__(self) -> str:
        return f"<{self}>"


def _same_default(left: object, right: object) -> bool:
    """Equality as for Java's boxed values: 1, 1.0 and True differ, 0.0 and -0.0 differ, and NaN equals itself."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return repr(left) == repr(right)
    return left == right


def _restore(
    kind: Type,
    optional: bool,
    default: object,
    name: str | None,
    version: int | None,
    doc: str | None,
    parameters: Mapping[str, str] | None,
    key_schema: Schema | None,
    value_schema: Schema | None,
    fields: tuple[Field, ...],
) -> Schema:
    return Schema(
        kind,
        optional=optional,
        default=default,
        name=name,
        version=version,
        doc=doc,
        parameters=parameters,
        key_schema=key_schema,
        value_schema=value_schema,
        fields=fields,
    )


INT8_SCHEMA: Final = Schema(Type.INT8)
INT16_SCHEMA: Final = Schema(Type.INT16)
INT32_SCHEMA: Final = Schema(Type.INT32)
INT64_SCHEMA: Final = Schema(Type.INT64)
FLOAT32_SCHEMA: Final = Schema(Type.FLOAT32)
FLOAT64_SCHEMA: Final = Schema(Type.FLOAT64)
BOOLEAN_SCHEMA: Final = Schema(Type.BOOLEAN)
STRING_SCHEMA: Final = Schema(Type.STRING)
BYTES_SCHEMA: Final = Schema(Type.BYTES)
OPTIONAL_INT8_SCHEMA: Final = Schema(Type.INT8, optional=True)
OPTIONAL_INT16_SCHEMA: Final = Schema(Type.INT16, optional=True)
OPTIONAL_INT32_SCHEMA: Final = Schema(Type.INT32, optional=True)
OPTIONAL_INT64_SCHEMA: Final = Schema(Type.INT64, optional=True)
OPTIONAL_FLOAT32_SCHEMA: Final = Schema(Type.FLOAT32, optional=True)
OPTIONAL_FLOAT64_SCHEMA: Final = Schema(Type.FLOAT64, optional=True)
OPTIONAL_BOOLEAN_SCHEMA: Final = Schema(Type.BOOLEAN, optional=True)
OPTIONAL_STRING_SCHEMA: Final = Schema(Type.STRING, optional=True)
OPTIONAL_BYTES_SCHEMA: Final = Schema(Type.BYTES, optional=True)


class SchemaAndValue(NamedTuple):
    """A value with its schema; schema None = schemaless.

    Source: org.apache.kafka.connect.data.SchemaAndValue.
    """

    schema: Schema | None
    value: object


#: Null without a schema.
NULL_VALUE: Final = SchemaAndValue(None, None)
