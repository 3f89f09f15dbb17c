"""Converts Protobuf message types to Connect schemas and back, as Confluent's converter does.

Fields are optional unless the settings ``optional.for.nullables`` or ``wrapper.for.nullables`` distinguish them; a
oneof is an optional struct with a field for each member; an enum is a string whose parameters are its symbols. A field
keeps its number as the parameter ``Tag``; other fields get free numbers in order, so a transform may add fields.
Recursive message types are rejected, because a Connect schema is a value here and cannot contain itself.

A written file has one message, with the messages of nested structs, maps and enums inside the message that uses them.
Maps are repeated messages of key and value, not ``map<>`` fields: those allow few types of keys. Options of the field
express what Protobuf has no type for: ``connect.type`` for int8 and int16, ``precision`` and ``scale`` of decimals.
proto3 has no defaults: a null is written as its default.

Source: io.confluent.connect.protobuf.ProtobufData.toConnectSchema, fromConnectSchema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor, OneofDescriptor

from penstock.converters.registry.formats import key_part, shape, value_part
from penstock.converters.registry.protobuf import names
from penstock.converters.registry.protobuf.files import (
    DECIMAL_FILE,
    META_FILE,
    FileProto,
    all_messages,
    field_meta,
    field_options,
    is_map,
    known_files,
    name_for_json,
    real_name,
    real_oneofs,
    real_symbol,
    says_optional,
)
from penstock.converters.registry.protobuf.names import ProtobufOptions
from penstock.converters.registry.settings import GENERAL_ENUM, GENERAL_UNION
from penstock.data import LOGICAL_NAMES, Date, Decimal, Schema, SchemaBuilder, Time, Timestamp, Type
from penstock.errors import DataException

#: The integer types of Protobuf that may be written for a Connect type.
_INTEGER_TYPES: Final = {
    Type.INT32: frozenset({"int32", "sint32", "sfixed32", "uint32", "fixed32"}),
    Type.INT64: frozenset({"int64", "sint64", "sfixed64", "uint64", "fixed64", "uint32", "fixed32"}),
}
#: The other scalar types, and those of small integers.
_SCALARS: Final = {
    Type.INT8: "int32",
    Type.INT16: "int32",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "bool",
    Type.STRING: "string",
    Type.BYTES: "bytes",
}
_READ: Final[Mapping[str, Type]] = {
    **{name: kind for kind, name in _SCALARS.items()},
    **{name: kind for kind, names in _INTEGER_TYPES.items() for name in names},
    "int32": Type.INT32,
}
_PROTO: Final = descriptor_pb2.FieldDescriptorProto
_NARROW: Final = {"int8": Type.INT8, "int16": Type.INT16}
_LOGICAL: Final[Mapping[str, Callable[[], SchemaBuilder]]] = {
    names.DATE: Date.builder,
    names.TIME: Time.builder,
    names.TIMESTAMP: Timestamp.builder,
}


def connect_schema(message: Descriptor, options: ProtobufOptions, version: int | None) -> Schema:
    """The Connect schema of a message type."""
    if options.wrapper_for_primitives and message.full_name in names.WRAPPED:
        return Schema(names.WRAPPED[message.full_name], version=version)
    return _Schemas(options).of_message(message).version(version).build()


def parts(message: Descriptor, options: ProtobufOptions) -> Iterator[tuple[str, Any, bool]]:
    """The fields of the struct for a message type: name, field or oneof, and True for a member of a oneof."""
    oneofs = real_oneofs(message)
    for oneof in oneofs:
        if options.flatten_unions:
            yield from ((field.name, field, True) for field in oneof.fields)
        else:
            yield f"{oneof.name}_{oneof.index}" if options.index_for_unions else oneof.name, oneof, False
    inside = {field.name for oneof in oneofs for field in oneof.fields}
    yield from ((field.name, field, False) for field in message.fields if field.name not in inside)


class _Schemas:
    """Builds the schema of a message type and of all types that it uses."""

    def __init__(self, options: ProtobufOptions) -> None:
        self._options = options
        self._open: list[str] = []
        #: The number of the field that first used a message type; None in an array.
        self._first_tags: dict[str, int | None] = {}

    def of_message(self, message: Descriptor) -> SchemaBuilder:
        """A builder of a message type's schema."""
        if message.full_name in self._open:
            raise DataException(
                f"The message type {message.full_name} holds itself ({' -> '.join([*self._open, message.full_name])}); "
                "such types have no finite Connect schema"
            )
        self._open.append(message.full_name)
        builder = SchemaBuilder.struct().name(self._name(message))
        for name, part, member in parts(message, self._options):
            of_oneof = isinstance(part, OneofDescriptor)
            builder.field(name, self._of_oneof(part) if of_oneof else self._of_field(part, member=member))
        self._open.pop()
        return builder

    def _name(self, thing: Descriptor | OneofDescriptor) -> str:
        return real_name(thing.full_name) if self._options.full_names else str(thing.name)

    def _of_oneof(self, oneof: OneofDescriptor) -> Schema:
        builder = SchemaBuilder.struct().optional()
        if self._options.general_sums:
            builder.name(oneof.name).parameter(GENERAL_UNION, oneof.name)
        else:
            builder.name(f"{names.UNION}.{self._name(oneof)}")
        for field in oneof.fields:
            builder.field(field.name, self._of_field(field, member=True))
        return builder.build()

    def _of_field(self, field: FieldDescriptor, *, member: bool = False) -> Schema:
        options = self._options
        builder = self._plain(field)
        array = field.is_repeated and not is_map(field)
        if array:
            tag = self._first_tag(field, builder, array=True)
            if tag is not None:
                builder.parameter(names.TAG, str(tag))
            builder = SchemaBuilder.array(builder.optional().build()).optional()
        else:
            self._first_tag(field, builder, array=False)
        if member:
            builder.optional()
            if options.wrapper_for_nullables and field.message_type is None and field.enum_type is None:
                # Otherwise it would be written as a wrapper, because it is optional.
                builder.parameter(names.WRAPPER, "false")
        elif options.optional_for_nullables:
            if says_optional(field, proto2=True):
                builder.optional()
        elif not options.wrapper_for_nullables:
            builder.optional()
        return builder.parameter(names.TAG, str(field.number)).build()

    def _first_tag(self, field: FieldDescriptor, builder: SchemaBuilder, *, array: bool) -> int | None:
        """As in Java, a message type that an array uses again keeps the number of its first field."""
        if field.message_type is None or is_map(field) or builder.build().name != self._name(field.message_type):
            return None
        name = field.message_type.full_name
        if name in self._first_tags:
            return self._first_tags[name]
        self._first_tags[name] = None if array else field.number
        return None

    def _plain(self, field: FieldDescriptor) -> SchemaBuilder:
        if field.enum_type is not None:
            return self._of_enum(field)
        if field.message_type is not None:
            return self._of_message_field(field).optional()
        name = _PROTO.Type.Name(field.type).removeprefix("TYPE_").lower()
        kind = _READ[name]
        if kind is Type.INT32:
            kind = _narrowed(field, kind)
        builder = SchemaBuilder.type(kind)
        if kind in (Type.INT32, Type.INT64) and name != kind.value:
            builder.parameter(names.TYPE, name)
        return builder

    def _of_enum(self, field: FieldDescriptor) -> SchemaBuilder:
        enum = field.enum_type
        builder = SchemaBuilder.int32() if self._options.int_for_enums else SchemaBuilder.string()
        parameter = self._options.enum_parameter
        builder.name(self._name(enum)).parameter(parameter, enum.name).optional()
        for value in enum.values:
            builder.parameter(f"{parameter}.{real_symbol(value.name)}", str(value.number))
        return builder

    def _of_message_field(self, field: FieldDescriptor) -> SchemaBuilder:
        message = field.message_type
        if message.full_name == names.DECIMAL:
            return _decimal(field)
        if message.full_name in _LOGICAL:
            return _LOGICAL[message.full_name]()
        unwraps = self._options.wrapper_for_nullables or self._options.wrapper_for_primitives
        if unwraps and message.full_name in names.WRAPPED:
            return SchemaBuilder.type(_narrowed(field, names.WRAPPED[message.full_name]))
        if is_map(field):
            key, value = (self._of_field(one) for one in message.fields)
            return SchemaBuilder.map(key, value).name(names.map_name(self._name(message)))
        return self.of_message(message)


def _narrowed(field: FieldDescriptor, kind: Type) -> Type:
    """The type that the options of a field name, for integers of fewer bits than Protobuf has."""
    return _NARROW.get(field_meta(field).get(names.CONNECT_TYPE, ""), kind)


def _decimal(field: FieldDescriptor) -> SchemaBuilder:
    said = field_meta(field)
    builder = Decimal.builder(_number(said.get("scale")) or 0)
    precision = _number(said.get("precision"))
    return builder if precision is None else builder.parameter(names.CONNECT_PRECISION, str(precision))


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


#: Prefixes of parameters that make schemas with the same name different types.
_SHAPING: Final = (names.TYPE, names.WRAPPER, names.CONNECT_PRECISION, names.ENUM, GENERAL_ENUM, GENERAL_UNION)


def enum_symbols(schema: Schema, options: ProtobufOptions) -> dict[str, int]:
    """The symbols of an enum with their numbers."""
    prefix = f"{options.enum_parameter}."
    found = {}
    for name, text in (schema.parameters or {}).items():
        if name.startswith(prefix):
            try:
                found[name.removeprefix(prefix)] = int(text)
            except ValueError:
                raise DataException(f"the symbol {name} of an enum has the number {text!r}") from None
    return found


def element_schema(schema: Schema) -> Schema:
    """The schema of an array's elements."""
    part = value_part(schema)
    if part.type in (Type.ARRAY, Type.MAP) or names.is_union(part):
        kind = part.type.name.lower()
        raise DataException(f"Array cannot be nested: Protobuf has no array of {kind}s; put them into structs")
    return part


def scalar_type(schema: Schema) -> Any:
    """Protobuf's type for a schema without parts: its original one, or the type of its width."""
    name = _SCALARS.get(schema.type, schema.type.value)
    own = (schema.parameters or {}).get(names.TYPE)
    if own is not None and own in _INTEGER_TYPES.get(schema.type, ()):
        name = own
    return _PROTO.Type.Value(f"TYPE_{name.upper()}")


def field_number(schema: Schema) -> int | None:
    """The original number of a field in Protobuf."""
    text = (schema.parameters or {}).get(names.TAG)
    try:
        return None if text is None else int(text)
    except ValueError:
        raise DataException(f"The parameter {names.TAG} is no number: {text!r}") from None


def free_numbers(schema: Schema) -> Iterator[int]:
    """Numbers for fields without an original number."""
    taken: set[int | None] = set()
    for field in schema.fields:
        members = field.schema.fields if names.is_union(field.schema) else (field,)
        taken.update(field_number(member.schema) for member in members)
    # Protobuf reserves 19000 to 19999.
    return (number for number in range(1, 1 << 29) if number not in taken and not 19000 <= number < 20000)


def _next(schema: Schema, numbers: Iterator[int]) -> int:
    own = field_number(schema)
    return next(numbers) if own is None else own


_WRAPPERS_FILE: Final = "google/protobuf/wrappers.proto"
#: Messages of logical types, with their files.
_LOGICAL_FILES: Final[Mapping[str | None, tuple[str, str]]] = {
    Decimal.LOGICAL_NAME: (names.DECIMAL, DECIMAL_FILE),
    Date.LOGICAL_NAME: (names.DATE, "google/type/date.proto"),
    Time.LOGICAL_NAME: (names.TIME, "google/type/timeofday.proto"),
    Timestamp.LOGICAL_NAME: (names.TIMESTAMP, "google/protobuf/timestamp.proto"),
}


def describe_file(schema: Schema, options: ProtobufOptions) -> FileProto:
    """The file to register for values of a Connect schema."""
    if schema.type is Type.STRUCT and not names.is_union(schema):
        return _File(options).described(schema)
    if schema.type in names.WRAPPERS and schema.name not in LOGICAL_NAMES:
        return known_files()[_WRAPPERS_FILE]
    raise DataException(
        f"A Protobuf message is a struct or a plain value, not {schema}: put it into a field, with HoistField for one"
    )


def as_java_writes(proto: FileProto) -> FileProto:
    """A file as Confluent's converter registers it: with short names for its own types, and without the import of the
    options' file, so that a registry normalizes both to the same text.
    """
    made = FileProto.FromString(proto.SerializeToString())
    if META_FILE in made.dependency:
        made.dependency.remove(META_FILE)
    known = {f".{name}" for name, _ in _LOGICAL_FILES.values()} | {f".{name}" for name in names.WRAPPED}
    for message in all_messages(made):
        for field in message.field:
            full = field.type_name
            if full:
                field.type_name = full[1:] if full in known else full.rpartition(".")[2]
    return made


def root_name(schema: Schema, options: ProtobufOptions) -> str:
    """The full name of the message type of values of a schema."""
    if schema.type is not Type.STRUCT:
        return names.WRAPPERS[schema.type]
    return ".".join(options.name(part) for part in (schema.name or f"{names.DEFAULT_NAME}1").split("."))


@dataclass(frozen=True)
class _Scope:
    """A message type under construction: its full name, and the schemas of the types inside it."""

    message: Any
    full: str
    nested: dict[str, Schema]


class _File:
    """A file under construction."""

    def __init__(self, options: ProtobufOptions) -> None:
        self._options = options
        self._unnamed = 0
        self._imports: dict[str, None] = {}

    def described(self, schema: Schema) -> FileProto:
        """The file with the message of a schema."""
        if not schema.name:
            self._unnamed = 1
        package, _, name = root_name(schema, self._options).rpartition(".")
        proto = FileProto(syntax="proto3", package=package)
        full = f".{package}.{name}" if package else f".{name}"
        self._message(_Scope(proto.message_type.add(name=name), full, {}), schema)
        proto.dependency.extend(self._imports)
        return proto

    def _message(self, scope: _Scope, schema: Schema) -> None:
        message, numbers = scope.message, free_numbers(schema)
        single = []
        for field in schema.fields:
            if names.is_union(field.schema):
                # As in Java it uses up a number, although only its members have numbers.
                next(numbers)
                message.oneof_decl.add(name=self._union_name(field.schema))
                for member in field.schema.fields:
                    number = _next(member.schema, numbers)
                    made = self._field(scope, member.schema, member.name, number, member=True)
                    made.oneof_index = len(message.oneof_decl) - 1
                continue
            made = self._field(scope, field.schema, field.name, _next(field.schema, numbers))
            repeated = made.label == _PROTO.LABEL_REPEATED
            if self._options.optional_for_nullables and field.schema.optional and not repeated:
                single.append(made)
        # Each optional field is a separate oneof; these follow all others.
        for made in single:
            made.proto3_optional = True
            made.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{made.name}")
        name_for_json(message)

    def _entry(self, scope: _Scope, schema: Schema) -> None:
        for number, side, part in ((1, names.KEY, key_part(schema)), (2, names.VALUE, value_part(schema))):
            self._field(scope, part, side, number)

    def _field(self, scope: _Scope, schema: Schema, name: str, number: int, *, member: bool = False) -> Any:
        """Adds one field, with the types it needs, and returns it."""
        field = scope.message.field.add(name=self._options.name(name), number=number, label=_PROTO.LABEL_OPTIONAL)
        try:
            if schema.type in (Type.ARRAY, Type.MAP):
                field.label = _PROTO.LABEL_REPEATED
                if member:
                    raise DataException("a oneof has no arrays and maps")
            if schema.type is Type.ARRAY:
                schema = element_schema(schema)
            self._type(field, scope, schema)
        except DataException as error:
            raise DataException(f"field {name}: {error}") from error
        return field

    def _type(self, field: Any, scope: _Scope, schema: Schema) -> None:
        logical = _LOGICAL_FILES.get(schema.name)
        if logical is not None:
            self._of_message(field, *logical)
            if schema.name == Decimal.LOGICAL_NAME:
                self._options_of_decimal(field, schema)
        elif names.is_enum(schema):
            field.type = _PROTO.TYPE_ENUM
            field.type_name = f"{scope.full}.{self._enum(scope.message, schema)}"
        elif schema.type is Type.STRUCT or schema.type is Type.MAP:
            self._nested(field, scope, schema)
        elif self._options.wraps(schema):
            self._of_message(field, self._wrapper(schema), _WRAPPERS_FILE)
            self._options_of_width(field, schema)
        else:
            field.type = scalar_type(schema)
            self._options_of_width(field, schema)

    def _of_message(self, field: Any, name: str, file: str) -> None:
        field.type = _PROTO.TYPE_MESSAGE
        field.type_name = f".{name}"
        self._imports[file] = None

    def _nested(self, field: Any, scope: _Scope, schema: Schema) -> None:
        name = self._own_name(schema.name)
        if schema.type is Type.MAP:
            name = names.map_entry_name(name)
        elif name == field.name:
            # A message type and a field with the same name would conflict.
            name = f"{name}Message"
        plain, place = name, 2
        # Structs with the same name and shape share one type, even if other properties differ; the first use counts.
        while name in scope.nested and shape(scope.nested[name], _SHAPING) != shape(schema, _SHAPING):
            name, place = f"{plain}_{place}", place + 1
        field.type = _PROTO.TYPE_MESSAGE
        field.type_name = f"{scope.full}.{name}"
        if name in scope.nested:
            return
        scope.nested[name] = schema
        inside = _Scope(scope.message.nested_type.add(name=name), field.type_name, {})
        describe = self._entry if schema.type is Type.MAP else self._message
        describe(inside, schema)

    def _enum(self, message: Any, schema: Schema) -> str:
        parameter = self._options.enum_parameter
        parameters = schema.parameters or {}
        known = parameters.get(parameter) or parameters.get(GENERAL_ENUM)
        name = self._options.name(known) if known else self._own_name(schema.name)
        if any(one.name == name for one in message.enum_type):
            return name
        symbols = sorted(enum_symbols(schema, self._options).items(), key=lambda one: one[1] != 0)
        if not symbols or symbols[0][1] != 0:
            raise DataException(f"the enum {name} has no symbol with the number 0, which proto3 requires")
        made = message.enum_type.add(name=name)
        for symbol, number in symbols:
            made.value.add(name=symbol, number=number)
        if len({number for _, number in symbols}) < len(symbols):
            made.options.allow_alias = True
        return name

    def _wrapper(self, schema: Schema) -> str:
        kind = (schema.parameters or {}).get(names.TYPE)
        if schema.type is Type.INT64 and kind in ("uint32", "fixed32"):
            return "google.protobuf.UInt32Value"
        if schema.type is Type.INT64 and kind in ("uint64", "fixed64"):
            return "google.protobuf.UInt64Value"
        return names.WRAPPERS[schema.type]

    def _options_of_width(self, field: Any, schema: Schema) -> None:
        if schema.type in (Type.INT8, Type.INT16):
            self._say(field, {names.CONNECT_TYPE: schema.type.value})

    def _options_of_decimal(self, field: Any, schema: Schema) -> None:
        parameters = schema.parameters or {}
        said = {"precision": names.CONNECT_PRECISION, "scale": Decimal.SCALE_FIELD}
        self._say(field, {name: parameters[own] for name, own in said.items() if own in parameters})

    def _say(self, field: Any, said: Mapping[str, str]) -> None:
        if said:
            field.options.MergeFromString(field_options(said))
            self._imports[META_FILE] = None

    def _own_name(self, name: str | None) -> str:
        """The last part of a name, or a generated name."""
        if not name:
            self._unnamed += 1
            name = f"{names.DEFAULT_NAME}{self._unnamed}"
        return self._options.name(name.rpartition(".")[2])

    def _union_name(self, schema: Schema) -> str:
        parameters = schema.parameters or {}
        if self._options.general_sums and GENERAL_UNION in parameters:
            return self._options.name(parameters[GENERAL_UNION])
        return self._own_name((schema.name or "").removeprefix(f"{names.UNION}."))
