"""Protobuf types of a Connect schema and back, values to messages and back, as Confluent's ProtobufData does it."""

from __future__ import annotations

import decimal
from datetime import UTC, date, datetime, time
from typing import Any

import pytest
from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from hypothesis import given
from hypothesis import strategies as st
from tests.generated import examples
from tests.unit.converters.registry.connect_values import finished, primitive_schemas, protobuf_text, structs, values_of

from penstock.converters.registry.protobuf.codec import (
    ProtobufCodec,
)
from penstock.converters.registry.protobuf.files import (
    file_text,
)
from penstock.converters.registry.protobuf.names import (
    ProtobufOptions,
)
from penstock.converters.registry.protobuf.schemas import describe_file
from penstock.data import (
    INT32_SCHEMA,
    INT64_SCHEMA,
    OPTIONAL_INT32_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Date,
    Decimal,
    Schema,
    SchemaBuilder,
    Struct,
    Time,
    Timestamp,
    Type,
)
from penstock.errors import DataException

PLAIN = ProtobufOptions()
OPTIONAL = ProtobufOptions(optional_for_nullables=True)
WRAPPERS = ProtobufOptions(wrapper_for_nullables=True)


def file_of(schema: Schema, options: ProtobufOptions = PLAIN) -> Any:
    return describe_file(schema, options)


def codec_of(schema: Schema, options: ProtobufOptions = PLAIN) -> ProtobufCodec:
    return ProtobufCodec(protobuf_text(file_text(describe_file(schema, options))), options, None)


def compiled(text: str, options: ProtobufOptions = PLAIN, **references: str) -> ProtobufCodec:
    """A codec of fields in Protobuf's text format for descriptors."""
    proto = text_format.Parse(f'syntax: "proto3" {text}', FileDescriptorProto())
    return ProtobufCodec(protobuf_text(file_text(proto), references), options, None)


def trip(schema: Schema, value: object, options: ProtobufOptions = PLAIN) -> Any:
    codec = codec_of(schema, options)
    return codec.decode(codec.encode(schema, value), "a test").value


def struct_of(**fields: Schema) -> Schema:
    builder = SchemaBuilder.struct().name("app.Row")
    for name, schema in fields.items():
        builder.field(name, schema)
    return builder.build()


def row(schema: Schema, *values: object) -> Struct:
    return Struct.unchecked(schema, values)


# ------------------------------------------------------------------------------------------------ schemas written
def test_a_struct_is_a_message_in_the_package_of_its_name_with_fields_in_order() -> None:
    proto = file_of(struct_of(a=Schema(Type.INT8), b=STRING_SCHEMA, c=SchemaBuilder.array(INT64_SCHEMA).build()))

    assert (proto.syntax, proto.package, [one.name for one in proto.message_type]) == ("proto3", "app", ["Row"])
    fields = [(one.name, one.number, one.type, one.label) for one in proto.message_type[0].field]
    kind = FieldDescriptorProto
    assert fields == [
        ("a", 1, kind.TYPE_INT32, kind.LABEL_OPTIONAL),
        ("b", 2, kind.TYPE_STRING, kind.LABEL_OPTIONAL),
        ("c", 3, kind.TYPE_INT64, kind.LABEL_REPEATED),
    ]
    assert list(proto.dependency) == ["confluent/meta.proto"]


def test_nested_structs_and_maps_are_types_inside_of_their_message() -> None:
    inner = SchemaBuilder.struct().name("other.Inner").field("x", INT32_SCHEMA).build()
    proto = file_of(
        struct_of(
            inner=SchemaBuilder.struct().name("inner").field("x", INT32_SCHEMA).build(),
            again=inner,
            more=SchemaBuilder.array(inner).build(),
            counts=SchemaBuilder.map(STRING_SCHEMA, INT32_SCHEMA).name("my_counts").build(),
            plain=SchemaBuilder.map(INT32_SCHEMA, inner).build(),
            unnamed=SchemaBuilder.struct().build(),
        )
    )

    message = proto.message_type[0]
    assert [one.name for one in message.nested_type] == [
        "innerMessage",
        "Inner",
        "MyCountsEntry",
        "ConnectDefault1Entry",
        "ConnectDefault2",
    ]
    assert [one.type_name for one in message.field[:4]] == [
        ".app.Row.innerMessage",
        ".app.Row.Inner",
        ".app.Row.Inner",
        ".app.Row.MyCountsEntry",
    ]


def test_a_struct_without_name_has_the_name_that_confluent_gives_it() -> None:
    proto = file_of(SchemaBuilder.struct().field("a", SchemaBuilder.struct().field("b", INT32_SCHEMA).build()).build())

    message = proto.message_type[0]
    assert (proto.package, message.name, message.nested_type[0].name) == ("", "ConnectDefault1", "ConnectDefault2")


def test_structs_of_one_name_that_differ_become_two_types() -> None:
    one = SchemaBuilder.struct().name("Part").field("x", INT32_SCHEMA).build()
    other = SchemaBuilder.struct().name("Part").field("y", STRING_SCHEMA).build()
    schema = struct_of(a=one, b=other)

    value = row(schema, row(one, 1), row(other, "z"))

    assert [part.values for part in trip(schema, value).values] == [[1], ["z"]]


def test_numbers_of_fields_are_kept_and_new_fields_take_free_ones() -> None:
    codec = compiled(
        'message_type { name: "M" field { name: "a" number: 2 type: TYPE_INT32 label: LABEL_OPTIONAL } '
        'field { name: "b" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL } }'
    )
    schema, _ = codec.decode(b"\0", "a test")
    assert schema is not None
    more = SchemaBuilder.struct().name("M")
    more.field("new", STRING_SCHEMA)
    for field in schema.fields:
        more.field(field.name, field.schema)

    proto = file_of(more.build())

    assert {one.name: one.number for one in proto.message_type[0].field} == {"a": 2, "b": 1, "new": 3}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (SchemaBuilder.array(INT32_SCHEMA).build(), "a struct or a plain value"),
        (Timestamp.SCHEMA, "a struct or a plain value"),
        (struct_of(a=SchemaBuilder.array(SchemaBuilder.array(INT32_SCHEMA).build()).build()), "field a: Array cannot"),
        (struct_of(a=SchemaBuilder.untyped_array()  .build()), "field a: .* of which type its elements are"),
        (struct_of(**{"a-b": INT32_SCHEMA}), "scrub.invalid.names=true"),
        (struct_of(a=SchemaBuilder.int32().parameter("io.confluent.connect.protobuf.Tag", "x").build()), "no number"),
    ],
)  # fmt: skip
def test_what_protobuf_has_no_form_for_is_refused(schema: Schema, message: str) -> None:
    with pytest.raises(DataException, match=message):
        codec_of(schema)


def test_names_can_be_made_valid() -> None:
    options = ProtobufOptions(scrub_names=True)
    schema = (
        SchemaBuilder.struct().name("my-app.the row").field("a-b", INT32_SCHEMA).field("_id", STRING_SCHEMA).build()
    )
    codec = codec_of(schema, options)

    read, value = codec.decode(codec.encode(schema, row(schema, 1, "x")), "a test")

    assert codec.record_name == "my_app.the_row"
    assert read is not None
    assert [field.name for field in read.fields] == ["a_b", "x_id"]
    assert value.values == [1, "x"]  # type: ignore[attr-defined]


def test_names_that_are_one_in_json_are_two_fields() -> None:
    schema = struct_of(f=INT32_SCHEMA, f_=INT32_SCHEMA, a_b=INT32_SCHEMA, aB=INT32_SCHEMA)

    assert trip(schema, row(schema, 1, 2, 3, 4)).values == [1, 2, 3, 4]


# ------------------------------------------------------------------------------------------------ values
LOGICAL = struct_of(amount=Decimal.schema(2), day=Date.SCHEMA, clock=Time.SCHEMA, moment=Timestamp.SCHEMA)


SOME = codec_of(LOGICAL)


def test_logical_types_are_messages_and_come_back() -> None:
    value = row(
        LOGICAL,
        decimal.Decimal("-12.30"),
        date(2024, 2, 29),
        time(23, 59, 59, 999000),
        datetime(1969, 12, 31, 23, 59, 59, 1000, tzinfo=UTC),
    )
    codec = codec_of(LOGICAL)

    schema, read = codec.decode(codec.encode(LOGICAL, value), "a test")

    assert read.values == value.values  # type: ignore[attr-defined]
    assert schema is not None
    assert [field.schema.name for field in schema.fields] == [field.schema.name for field in LOGICAL.fields]
    assert (schema.fields[0].schema.parameters or {})["scale"] == "2"
    types = [one.type_name for one in file_of(LOGICAL).message_type[0].field]
    assert types == [
        ".confluent.type.Decimal",
        ".google.type.Date",
        ".google.type.TimeOfDay",
        ".google.protobuf.Timestamp",
    ]


def test_without_settings_null_is_the_zero_of_proto3_and_all_fields_are_optional() -> None:
    schema = struct_of(a=OPTIONAL_INT32_SCHEMA, b=OPTIONAL_STRING_SCHEMA, c=struct_of(x=INT32_SCHEMA))
    codec = codec_of(schema)

    read, value = codec.decode(codec.encode(schema, row(schema, None, None, None)), "a test")

    assert value.values == [0, "", None]  # type: ignore[attr-defined]
    assert read is not None
    assert [field.schema.optional for field in read.fields] == [True, True, True]
    assert [(field.schema.parameters or {}) for field in read.fields] == [
        {"io.confluent.connect.protobuf.Tag": number} for number in "123"
    ]


@pytest.mark.parametrize("options", [OPTIONAL, WRAPPERS])
def test_null_and_zero_are_told_apart_if_wished_and_required_fields_stay_required(options: ProtobufOptions) -> None:
    schema = struct_of(
        a=OPTIONAL_INT32_SCHEMA, b=OPTIONAL_STRING_SCHEMA, c=INT32_SCHEMA, d=Schema(Type.INT8, optional=True)
    )
    codec = codec_of(schema, options)

    for values in ([None, None, 5, None], [0, "", 0, 0], [7, "x", 1, -3]):
        read, value = codec.decode(codec.encode(schema, row(schema, *values)), "a test")
        assert value.values == values  # type: ignore[attr-defined]
    assert read is not None
    assert [field.schema.optional for field in read.fields] == [True, True, False, True]
    assert read.fields[3].schema.type is Type.INT8


def test_a_null_is_written_as_its_default_unless_that_is_not_wished() -> None:
    schema = struct_of(a=SchemaBuilder.int32().optional().default_value(5).build())

    assert trip(schema, row(schema, None), OPTIONAL).values == [5]
    options = ProtobufOptions(optional_for_nullables=True, ignore_defaults=True)
    assert trip(schema, row(schema, None), options).values == [None]


def test_maps_have_keys_of_any_type_and_arrays_hold_structs() -> None:
    inner = struct_of(x=INT32_SCHEMA)
    schema = struct_of(
        m=SchemaBuilder.map(Schema(Type.FLOAT64), inner).build(),
        l=SchemaBuilder.array(inner).build(),
        e=SchemaBuilder.array(STRING_SCHEMA).build(),
    )

    read = trip(schema, row(schema, {0.5: row(inner, 1)}, [row(inner, 2), row(inner, 0)], []))

    assert read.values[0][0.5].values == [1]
    assert [one.values for one in read.values[1]] == [[2], [0]]
    assert read.values[2] == []


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (Schema(Type.INT8), -5),
        (Schema(Type.INT64), -(2**63)),
        (Schema(Type.FLOAT32), 0.5),
        (Schema(Type.BOOLEAN), True),
        (STRING_SCHEMA, ""),
        (Schema(Type.BYTES), b"\0\xff"),
    ],
)
def test_a_plain_value_is_a_wrapper_message(schema: Schema, value: object) -> None:
    assert trip(schema, value) == value


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (INT32_SCHEMA, "1"),
        (INT32_SCHEMA, True),
        (INT32_SCHEMA, 1 << 40),
        (INT64_SCHEMA, 1 << 70),
        (STRING_SCHEMA, b"x"),
        (Schema(Type.BOOLEAN), 1),
        (Schema(Type.FLOAT64), "x"),
        (Schema(Type.BYTES), "x"),
        (Date.SCHEMA, "x"),
        (Date.SCHEMA, 10**7),
        (Timestamp.SCHEMA, 10**15),
        (Decimal.schema(1), 1.5),
        (Decimal.schema(1), decimal.Decimal("NaN")),
        (Decimal.schema(0), decimal.Decimal("1E+3000000000")),
        (SchemaBuilder.array(INT32_SCHEMA).build(), [1, None]),
        (SchemaBuilder.array(INT32_SCHEMA).build(), 1),
        (SchemaBuilder.map(STRING_SCHEMA, INT32_SCHEMA).build(), []),
        (struct_of(x=INT32_SCHEMA), row(struct_of(y=INT32_SCHEMA), 1)),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_of_its_record_that_names_the_field(
    schema: Schema, value: object
) -> None:
    outer = struct_of(good=INT32_SCHEMA, bad=schema)

    with pytest.raises(DataException, match="field bad: "):
        codec_of(outer).encode(outer, row(outer, 1, value))


# ------------------------------------------------------------------------------------------------ types of others
ONEOF = """
message_type {
  name: "M"
  field { name: "n" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "s" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "p" number: 3 type: TYPE_INT32 label: LABEL_OPTIONAL oneof_index: 1 proto3_optional: true }
  field { name: "color" number: 4 type: TYPE_ENUM type_name: ".M.Color" label: LABEL_OPTIONAL }
  field { name: "u" number: 5 type: TYPE_UINT64 label: LABEL_OPTIONAL }
  field { name: "v" number: 6 type: TYPE_FIXED32 label: LABEL_OPTIONAL }
  oneof_decl { name: "choice" }
  oneof_decl { name: "_p" }
  enum_type { name: "Color" value { name: "RED" number: 0 } value { name: "BLUE" number: 7 } }
}
"""


def test_a_oneof_is_a_struct_of_which_one_field_is_set() -> None:
    codec = compiled(ONEOF)
    schema, _ = codec.decode(b"\0", "a test")
    assert schema is not None
    union = schema.fields[0].schema

    assert (schema.fields[0].name, union.name, union.optional) == (
        "choice_0",
        "io.confluent.connect.protobuf.Union.choice",
        True,
    )
    value = row(schema, row(union, None, ""), 0, "BLUE", -1, 2**32 - 1)
    assert codec.decode(codec.encode(schema, value), "a test").value == value
    own = codec_of(schema)
    assert own.decode(own.encode(schema, value), "a test").value.values[0].values == [None, ""]  # type: ignore[attr-defined]
    nothing = row(schema, None, None, "RED", 0, 0)
    assert codec.decode(codec.encode(schema, nothing), "a test").value == nothing


def test_oneofs_can_be_flat_and_without_index_and_enums_numbers() -> None:
    flat, _ = compiled(ONEOF, ProtobufOptions(flatten_unions=True)).decode(b"\0", "a test")
    plain, _ = compiled(ONEOF, ProtobufOptions(index_for_unions=False)).decode(b"\0", "a test")
    numbers = compiled(ONEOF, ProtobufOptions(int_for_enums=True, full_names=True))

    schema, value = numbers.decode(b"\0\x20\x07", "a test")

    assert flat is not None
    assert [field.name for field in flat.fields] == ["n", "s", "p", "color", "u", "v"]
    assert plain is not None
    assert plain.fields[0].name == "choice"
    assert schema is not None
    color = schema.field("color")
    assert color is not None
    assert (color.schema.type, color.schema.name, value.get("color")) == (Type.INT32, "M.Color", 7)  # type: ignore[attr-defined]
    assert numbers.decode(numbers.encode(schema, value), "a test").value == value


def test_symbols_that_are_not_there_are_named_as_in_java_or_refused() -> None:
    codec = compiled(ONEOF)

    schema, value = codec.decode(b"\0\x20\x09", "a test")

    assert value.get("color") == "UNKNOWN_ENUM_VALUE_Color_9"  # type: ignore[attr-defined]
    assert schema is not None
    with pytest.raises(DataException, match=r"field color: .* is no symbol of the enum M\.Color"):
        codec.encode(schema, value)


def test_built_in_maps_are_maps_and_are_written_as_such() -> None:
    codec = compiled(
        'message_type { name: "M" field { name: "counts" number: 1 type: TYPE_MESSAGE type_name: ".M.CountsEntry" '
        'label: LABEL_REPEATED } nested_type { name: "CountsEntry" options { map_entry: true } '
        'field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL } '
        'field { name: "value" number: 2 type: TYPE_INT32 label: LABEL_OPTIONAL } } }'
    )
    schema, _ = codec.decode(b"\0", "a test")
    assert schema is not None
    assert (schema.fields[0].schema.type, schema.fields[0].schema.name) == (Type.MAP, "counts")

    value = row(schema, {"a": 1, "": 0})

    assert codec.decode(codec.encode(schema, value), "a test").value == value


def test_messages_of_other_types_of_the_file_are_found_by_their_place() -> None:
    codec = compiled(
        'package: "p" message_type { name: "A" } message_type { name: "B" nested_type { name: "C" '
        'field { name: "x" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL } } }'
    )
    inner, value = codec.decode(b"\x04\x02\x00\x08\x05", "a test")

    assert inner is not None
    assert (inner.name, value.values) == ("C", [5])  # type: ignore[attr-defined]
    for place in (b"\x02\x04", b"\x04\x02\x02", b"\x01", b"\x80", b""):
        with pytest.raises(DataException, match="a test"):
            codec.decode(place, "a test")


MEMBERS = """
message_type {
  name: "M"
  field { name: "plain" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "wrapped" number: 2 type: TYPE_MESSAGE type_name: ".google.protobuf.StringValue" label: LABEL_OPTIONAL
          oneof_index: 0 }
  field { name: "color" number: 3 type: TYPE_ENUM type_name: ".M.Color" label: LABEL_OPTIONAL oneof_index: 0 }
  oneof_decl { name: "choice" }
  enum_type { name: "Color" value { name: "RED" number: 0 } value { name: "BLUE" number: 7 } }
}
dependency: "google/protobuf/wrappers.proto"
"""


@pytest.mark.parametrize("general", [False, True])
@pytest.mark.parametrize("flat", [False, True])
def test_members_of_oneofs_keep_their_kind_through_connect(general: bool, flat: bool) -> None:
    options = ProtobufOptions(general_sums=general, flatten_unions=flat, wrapper_for_nullables=True)
    codec = compiled(MEMBERS, options)

    for payload in (b"\0\x0a\x01x", b"\0\x12\x03\x0a\x01x", b"\0\x12\x00", b"\0\x18\x07", b"\0"):
        schema, value = codec.decode(payload, "a test")
        assert schema is not None
        assert codec.encode(schema, value) == payload
        assert flat or codec_of(schema, options).encode(schema, value) == payload


@given(st.binary(max_size=12))
@examples(20)
def test_whatever_the_bytes_a_message_is_read_or_its_record_fails(data: bytes) -> None:
    try:
        _, value = SOME.decode(b"\0" + data, "a test")
    except DataException:
        return
    assert isinstance(value, Struct)
    assert len(value.values) == 4


@pytest.mark.parametrize("payload", [b"\0\xff", b"\0\x08", b"\0\x12\x05a", b"\0\x12\x01\xff"])
def test_bytes_that_are_no_message_are_an_error_of_their_record(payload: bytes) -> None:
    codec = codec_of(struct_of(a=INT32_SCHEMA, b=STRING_SCHEMA))

    with pytest.raises(DataException, match="Cannot read the value of topic t: it is no message of type Row"):
        codec.decode(payload, "the value of topic t")


@pytest.mark.parametrize("payload", [b"\0\x12\0", b"\0\x1a\x02\x08\x18", b"\0\x22\x07\x08\x80\x80\x80\x80\x80\x08"])
def test_dates_and_times_that_are_none_are_an_error_of_their_record(payload: bytes) -> None:
    with pytest.raises(DataException, match=r"Cannot read a test: field (day|clock|moment): .* is no "):
        codec_of(LOGICAL).decode(payload, "a test")


def test_a_type_that_holds_itself_is_refused_and_others_of_its_file_are_not() -> None:
    codec = compiled(
        'message_type { name: "Node" field { name: "next" number: 1 type: TYPE_MESSAGE type_name: ".Node" '
        'label: LABEL_OPTIONAL } } message_type { name: "Leaf" }'
    )

    with pytest.raises(DataException, match="Cannot read a test: The message type Node holds itself"):
        codec.decode(b"\0", "a test")
    schema, _ = codec.decode(b"\x02\x02", "a test")
    assert schema is not None
    assert schema.name == "Leaf"


# ------------------------------------------------------------------------------------------------ texts of others
def test_proto_text_is_compiled_with_what_it_imports() -> None:
    shared = 'syntax = "proto3"; package shared; message Money { int64 units = 1; }'
    text = """
        syntax = "proto3";
        package app;
        import "shared/money.proto";
        import "google/protobuf/timestamp.proto";
        message Order {
          int32 tiny = 1 [(confluent.field_meta) = { params: [{ key: "connect.type", value: "int8" }] }];
          shared.Money price = 2;
          google.protobuf.Timestamp at = 3;
          map<string, int32> counts = 4;
        }
    """
    codec = ProtobufCodec(protobuf_text(text, {"shared/money.proto": shared}), PLAIN, 3)

    schema, _ = codec.decode(b"\0", "a test")

    assert schema is not None
    assert (schema.name, schema.version) == ("Order", 3)
    assert [field.schema.type for field in schema.fields] == [Type.INT8, Type.STRUCT, Type.INT64, Type.MAP]


@pytest.mark.parametrize(
    ("text", "references", "message"),
    [
        (
            'syntax = "proto3"; message M { foo x = 1; }',
            {},
            'protoc refuses the Protobuf schema: .*"foo" is not defined',
        ),
        ('syntax = "proto3"; import "../x.proto";', {"../x.proto": 'syntax = "proto3";'}, "is no name of a file"),
        ("AAAA", {}, "is base64, and no file descriptor"),
    ],
)
def test_text_that_does_not_compile_is_refused_with_protocs_words(
    text: str, references: dict[str, str], message: str
) -> None:
    with pytest.raises(DataException, match=message):
        ProtobufCodec(protobuf_text(text, references), PLAIN, None)


def test_an_import_that_is_not_there_is_named() -> None:
    with pytest.raises(DataException, match=r"imports x\.proto, which is not among the references"):
        compiled('dependency: "x.proto"')


def test_defaults_that_java_writes_into_proto3_files_are_passed_over() -> None:
    codec = compiled(
        'message_type { name: "M" field { name: "a" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL '
        'default_value: "5" } }'
    )

    assert codec.decode(b"\0", "a test").value.values == [0]  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------------------------ everything
def _fields() -> st.SearchStrategy[Schema]:
    leaves = finished(primitive_schemas(), described=False)
    present = leaves.filter(lambda schema: not schema.optional)
    return st.recursive(
        leaves,
        lambda inner: finished(
            present.map(SchemaBuilder.array)
            | st.tuples(present, present).map(lambda pair: SchemaBuilder.map(*pair))
            | structs(inner, lambda: None),
            described=False,
        ),
        max_leaves=4,
    )


@examples(8)
@given(st.data(), st.sampled_from([OPTIONAL, WRAPPERS]))
def test_any_struct_comes_back_with_its_types(data: st.DataObject, options: ProtobufOptions) -> None:
    schema = data.draw(structs(_fields(), lambda: "app.Row")).build()
    value = data.draw(values_of(schema))
    codec = codec_of(schema, options)

    read, found = codec.decode(codec.encode(schema, value), "a test")

    assert read is not None
    assert _plain(found) == _plain(value)
    assert [field.schema.type for field in read.fields] == [field.schema.type for field in schema.fields]
    again = codec_of(read, options)
    assert again.decode(again.encode(read, found), "a test") == (read, found)


def _plain(value: Any) -> Any:
    """The value without schemas; arrays and maps that are null are empty in Protobuf."""
    if isinstance(value, Struct):
        return [
            [] if one is None and field.schema.type in (Type.ARRAY, Type.MAP) else _plain(one)
            for field, one in zip(value.schema.fields, value.values, strict=True)
        ]
    if isinstance(value, dict):
        return [(_plain(key), _plain(one)) for key, one in value.items()]
    return [_plain(one) for one in value] if isinstance(value, list) else value
