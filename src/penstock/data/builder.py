"""``SchemaBuilder``: makes schemas step by step, checking each step.

Owning thread: the building thread; any thread may use the built ``Schema``.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.data.schema import Field, Schema, Type
from penstock.data.structs import validate_value
from penstock.errors import DataException, SchemaBuilderException


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
        self._once("optional", self._optional, True)
        self._optional = True
        return self

    def required(self) -> SchemaBuilder:
        """Rejects null (the default)."""
        self._once("optional", self._optional, False)
        self._optional = False
        return self

    def default_value(self, value: object) -> SchemaBuilder:
        """Sets the default, which replaces a null field.

        Raises:
            SchemaBuilderException: It was set before, or the value does not fit the schema as built so far.
        """
        self._once("default", self._default, value)
        self._check_default(value)
        self._default = value
        return self

    def name(self, name: str | None) -> SchemaBuilder:
        """Names the schema."""
        self._once("name", self._name, name)
        self._name = name
        return self

    def version(self, version: int | None) -> SchemaBuilder:
        """Gives the schema a version."""
        self._once("version", self._version, version)
        self._version = version
        return self

    def doc(self, doc: str | None) -> SchemaBuilder:
        """Documents the schema."""
        self._once("doc", self._doc, doc)
        self._doc = doc
        return self

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

    def _check_default(self, value: object) -> None:
        try:
            validate_value(self.build(), value)
        except DataException as problem:
            raise SchemaBuilderException("Invalid default value") from problem

    @staticmethod
    def _once(what: str, current: object, new: object) -> None:
        if current is not None and current != new:
            raise SchemaBuilderException(f"Invalid SchemaBuilder call: {what} has already been set.")
