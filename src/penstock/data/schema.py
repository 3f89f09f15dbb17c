"""Schemas, which describe values: ``Schema`` and its ``SchemaBuilder``, ``Field``, ``Type``, constants for primitives.

A ``Schema`` is an immutable value: schemas with the same content are equal and hash alike, so a schema can be a
dictionary key, and any thread may use it. Make it with ``SchemaBuilder``, once, on one thread, and keep it: building is
slow, and comparing a schema with itself is free.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, NoReturn

from penstock.errors import DataException, SchemaBuilderException


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
        state = {name: getattr(self, name) for name in ("type", "optional", "default", "name", "version", "doc")}
        state["parameters"] = None if self.parameters is None else dict(self.parameters)
        inside = {"key_schema": self._key_schema, "value_schema": self._value_schema, "fields": self._fields}
        return _restore, (state | inside,)

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


def _restore(state: Mapping[str, Any]) -> Schema:
    return Schema(**state)


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


class SchemaBuilder:
    """Builds a ``Schema``. Every method except ``build`` returns the builder.

    >>> schema = SchemaBuilder.struct().name("com.example.Point").field("x", SchemaBuilder.int32().build()).build()
    >>> [field.name for field in schema.fields]
    ['x']

    A property can be set once; setting the same value again is allowed, another value is an error.

    Raises:
        SchemaBuilderException: A property changes, two fields have the same name, or a default does not fit.

    Source: org.apache.kafka.connect.data.SchemaBuilder.
    """

    def __init__(self, kind: Type) -> None:
        if kind is None:
            raise SchemaBuilderException("type cannot be null")
        self._type = kind
        self._optional: bool | None = None
        self._default: object = None
        self._name: str | None = None
        self._version: int | None = None
        self._doc: str | None = None
        self._parameters: dict[str, str] | None = None
        self._key_schema: Schema | None = None
        self._value_schema: Schema | None = None
        self._fields: dict[str, Field] = {}

    # -- what to build

    @classmethod
    def type(cls, kind: Type) -> SchemaBuilder:
        """A builder for a schema of this type."""
        return cls(kind)

    @classmethod
    def int8(cls) -> SchemaBuilder:
        """A builder for INT8."""
        return cls(Type.INT8)

    @classmethod
    def int16(cls) -> SchemaBuilder:
        """A builder for INT16."""
        return cls(Type.INT16)

    @classmethod
    def int32(cls) -> SchemaBuilder:
        """A builder for INT32."""
        return cls(Type.INT32)

    @classmethod
    def int64(cls) -> SchemaBuilder:
        """A builder for INT64."""
        return cls(Type.INT64)

    @classmethod
    def float32(cls) -> SchemaBuilder:
        """A builder for FLOAT32."""
        return cls(Type.FLOAT32)

    @classmethod
    def float64(cls) -> SchemaBuilder:
        """A builder for FLOAT64."""
        return cls(Type.FLOAT64)

    @classmethod
    def boolean(cls) -> SchemaBuilder:
        """A builder for BOOLEAN."""
        return cls(Type.BOOLEAN)

    @classmethod
    def string(cls) -> SchemaBuilder:
        """A builder for STRING."""
        return cls(Type.STRING)

    @classmethod
    def bytes(cls) -> SchemaBuilder:
        """A builder for BYTES."""
        return cls(Type.BYTES)

    @classmethod
    def struct(cls) -> SchemaBuilder:
        """A builder for STRUCT; add fields with ``field``."""
        return cls(Type.STRUCT)

    @classmethod
    def array(cls, value_schema: Schema) -> SchemaBuilder:
        """A builder for ARRAY with elements of a schema."""
        if value_schema is None:
            raise SchemaBuilderException("valueSchema cannot be null.")
        return cls.untyped_array(value_schema)

    @classmethod
    def map(cls, key_schema: Schema, value_schema: Schema) -> SchemaBuilder:
        """A builder for MAP with keys and values of a schema."""
        if key_schema is None:
            raise SchemaBuilderException("keySchema cannot be null.")
        if value_schema is None:
            raise SchemaBuilderException("valueSchema cannot be null.")
        return cls.untyped_map(key_schema, value_schema)

    @classmethod
    def untyped_array(cls, value_schema: Schema | None = None) -> SchemaBuilder:
        """A builder for an ARRAY whose elements may have no common type, as parsed from header text."""
        builder = cls(Type.ARRAY)
        builder._value_schema = value_schema
        return builder

    @classmethod
    def untyped_map(cls, key_schema: Schema | None = None, value_schema: Schema | None = None) -> SchemaBuilder:
        """A builder for a MAP whose keys or values may have no common type, as parsed from header text."""
        builder = cls(Type.MAP)
        builder._key_schema = key_schema
        builder._value_schema = value_schema
        return builder

    # -- properties

    def optional(self) -> SchemaBuilder:
        """Allows null."""
        return self._set("optional", True)

    def required(self) -> SchemaBuilder:
        """Rejects null (the default)."""
        return self._set("optional", False)

    def default_value(self, value: object) -> SchemaBuilder:
        """Sets the default, which replaces a null field.

        Raises:
            SchemaBuilderException: It was set before, or the value does not fit the schema as built so far.
        """
        if self._default is not None and self._default != value:
            return self._set("default", value)
        # Structs are made of schemas, so this module can import them only after both are loaded.
        from penstock.data.structs import validate_value

        try:
            validate_value(self.build(), value)
        except DataException as problem:
            raise SchemaBuilderException("Invalid default value") from problem
        return self._set("default", value)

    def name(self, name: str | None) -> SchemaBuilder:
        """Names the schema."""
        return self._set("name", name)

    def version(self, version: int | None) -> SchemaBuilder:
        """Gives the schema a version."""
        return self._set("version", version)

    def doc(self, doc: str | None) -> SchemaBuilder:
        """Documents the schema."""
        return self._set("doc", doc)

    def parameter(self, name: str, value: str) -> SchemaBuilder:
        """Adds one parameter; a later value replaces an earlier one."""
        self._parameters = {**(self._parameters or {}), name: value}
        return self

    def parameters(self, parameters: Mapping[str, str]) -> SchemaBuilder:
        """Adds parameters; later values replace earlier ones."""
        # As in Java: adding no parameters leaves None, not an empty map.
        if not parameters:
            return self
        self._parameters = {**(self._parameters or {}), **parameters}
        return self

    def field(self, name: str, schema: Schema) -> SchemaBuilder:
        """Appends a field to a struct.

        Raises:
            SchemaBuilderException: This is not a struct, or it already has a field with this name.
        """
        if self._type is not Type.STRUCT:
            raise SchemaBuilderException(f"Cannot create fields on type {self._type.name}")
        if not name:
            raise SchemaBuilderException("fieldName cannot be null.")
        if schema is None:
            raise SchemaBuilderException(f"fieldSchema for field {name} cannot be null.")
        if name in self._fields:
            raise SchemaBuilderException(f"Cannot create field because of field name duplication {name}")
        self._fields[name] = Field(name, len(self._fields), schema)
        return self

    def has_field(self, name: str) -> bool:
        """True if the builder has a field with this name."""
        return name in self._fields

    def build(self) -> Schema:
        """The schema as described so far; the builder stays usable."""
        return Schema(
            self._type,
            optional=bool(self._optional),
            default=self._default,
            name=self._name,
            version=self._version,
            doc=self._doc,
            parameters=self._parameters,
            key_schema=self._key_schema,
            value_schema=self._value_schema,
            fields=tuple(self._fields.values()),
        )

    def _set(self, what: str, new: object) -> SchemaBuilder:
        current = getattr(self, f"_{what}")
        if current is not None and current != new:
            raise SchemaBuilderException(f"Invalid SchemaBuilder call: {what} has already been set.")
        setattr(self, f"_{what}", new)
        return self
