"""Connect schemas and Avro schemas, both ways: the text that Confluent's AvroData writes, and what it reads."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal as Number
from typing import Any

import pytest

from penstock.converters.registry.avro.forms import AvroOptions, read_avro
from penstock.converters.registry.avro.schemas import avro_text, connect_schema
from penstock.converters.registry.avro.values import value_reader, value_writer
from penstock.converters.registry.client import Reference, SchemaText
from penstock.data import (
    BYTES_SCHEMA,
    FLOAT32_SCHEMA,
    FLOAT64_SCHEMA,
    INT8_SCHEMA,
    INT16_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    OPTIONAL_INT64_SCHEMA,
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

PLAIN = AvroOptions()
ENHANCED = AvroOptions(enhanced=True)


def written(schema: Schema | None, options: AvroOptions = PLAIN) -> Any:
    return json.loads(avro_text(schema, options))


def read(node: Any, options: AvroOptions = PLAIN, version: int | None = None) -> Schema | None:
    return connect_schema(read_avro(SchemaText("AVRO", json.dumps(node))), options, version)


def record(*fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "namespace": "app", "fields": list(fields), **more}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (INT8_SCHEMA, '{"type":"int","connect.type":"int8"}'),
        (INT16_SCHEMA, '{"type":"int","connect.type":"int16"}'),
        (INT32_SCHEMA, '"int"'),
        (OPTIONAL_INT64_SCHEMA, '["null","long"]'),
        (FLOAT32_SCHEMA, '"float"'),
        (FLOAT64_SCHEMA, '"double"'),
        (BYTES_SCHEMA, '"bytes"'),
        (SchemaBuilder.string().optional().default_value("x").build(),
         '[{"type":"string","connect.default":"x"},"null"]'),
        (SchemaBuilder.boolean().doc("d").version(2).parameter("p", "v").name("N").build(),
         '{"type":"boolean","connect.doc":"d","connect.version":2,"connect.parameters":{"p":"v"},"connect.name":"N"}'),
        (Date.SCHEMA, '{"type":"int","connect.version":1,"connect.name":"org.apache.kafka.connect.data.Date",'
         '"logicalType":"date"}'),
        (Time.SCHEMA, '{"type":"int","connect.version":1,"connect.name":"org.apache.kafka.connect.data.Time",'
         '"logicalType":"time-millis"}'),
        (Timestamp.SCHEMA, '{"type":"long","connect.version":1,"connect.name":'
         '"org.apache.kafka.connect.data.Timestamp","logicalType":"timestamp-millis"}'),
        (Decimal.builder(2).build(), '{"type":"bytes","scale":2,"precision":64,"connect.version":1,'
         '"connect.parameters":{"scale":"2"},"connect.name":"org.apache.kafka.connect.data.Decimal","logicalType":"decimal"}'),
        (SchemaBuilder.array(OPTIONAL_STRING_SCHEMA).build(), '{"type":"array","items":["null","string"]}'),
        (SchemaBuilder.map(STRING_SCHEMA, INT64_SCHEMA).build(), '{"type":"map","values":"long"}'),
        (SchemaBuilder.map(INT32_SCHEMA, STRING_SCHEMA).build(),
         '{"type":"array","items":{"type":"record","name":"MapEntry","namespace":"io.confluent.connect.avro","fields":['
         '{"name":"key","type":"int"},{"name":"value","type":"string"}]}}'),
        (SchemaBuilder.struct().name("app.User").version(1)
         .field("id", INT64_SCHEMA)
         .field("name", OPTIONAL_STRING_SCHEMA)
         .field("age", SchemaBuilder.int32().default_value(7).build()).build(),
         '{"type":"record","name":"User","namespace":"app","fields":[{"name":"id","type":"long"},{"name":"name","type":'
         '["null","string"],"default":null},{"name":"age","type":{"type":"int","connect.default":7},"default":7}],'
         '"connect.version":1,"connect.name":"app.User"}'),
        (SchemaBuilder.struct().field("x", INT32_SCHEMA).optional().build(),
         '["null",{"type":"record","name":"ConnectDefault","namespace":"io.confluent.connect.avro","fields":'
         '[{"name":"x","type":"int"}]}]'),
    ],
)  # fmt: skip
def test_a_connect_schema_has_the_text_that_java_writes(schema: Schema, text: str) -> None:
    assert avro_text(schema, PLAIN) == text
    assert connect_schema(read_avro(SchemaText("AVRO", text)), PLAIN) == schema


def test_a_struct_that_comes_twice_is_defined_once_and_named_after_that() -> None:
    inner = SchemaBuilder.struct().name("app.Inner").field("x", INT32_SCHEMA).build()
    optional = SchemaBuilder.struct().name("app.Inner").field("x", INT32_SCHEMA).optional().build()
    outer = SchemaBuilder.struct().name("app.Outer").field("a", inner).field("b", optional).build()

    first, second = written(outer)["fields"]

    assert first["type"]["name"] == "Inner"
    assert second["type"] == ["null", "Inner"]


def test_structs_without_name_and_of_one_name_do_not_collide() -> None:
    def of(name: str | None, field: str) -> Schema:
        return SchemaBuilder.struct().name(name).field(field, INT32_SCHEMA).build()

    keyed = SchemaBuilder.map(INT32_SCHEMA, INT32_SCHEMA).build()
    other = SchemaBuilder.map(INT64_SCHEMA, INT32_SCHEMA).build()
    parts = {"a": of(None, "x"), "b": of(None, "y"), "c": of("app.N", "x"), "d": of("app.N", "y")}
    builder = SchemaBuilder.struct().field("e", keyed).field("f", other)
    for name, schema in parts.items():
        builder.field(name, schema)
    outer = builder.build()

    assert read(written(outer)) == outer


def test_structs_without_name_are_numbered_as_java_numbers_them() -> None:
    inner = SchemaBuilder.struct().field("x", INT32_SCHEMA).build()
    other = SchemaBuilder.struct().field("y", inner).build()
    outer = SchemaBuilder.struct().field("a", other).field("b", inner).build()

    node = written(outer)

    assert node["name"] == "ConnectDefault"
    assert node["fields"][0]["type"]["name"] == "ConnectDefault2"
    assert node["fields"][0]["type"]["fields"][0]["type"]["name"] == "ConnectDefault3"
    assert node["fields"][1]["type"] == "ConnectDefault3"


def test_without_metadata_connects_own_words_stay_out() -> None:
    bare = AvroOptions(metadata=False)
    schema = SchemaBuilder.struct().name("app.R").doc("d").version(3).field("x", INT8_SCHEMA).build()

    node = written(schema, bare)

    assert node == record({"name": "x", "type": "int"})


def test_enums_are_texts_with_parameters_and_enums_again_with_enhanced_support() -> None:
    node = {
        "type": "enum",
        "name": "Suit",
        "namespace": "app",
        "doc": "of cards",
        "symbols": ["A", "B"],
        "default": "A",
    }

    schema = read(node, ENHANCED)

    assert schema is not None
    assert (schema.type.name, schema.name) == ("STRING", "app.Suit")
    assert schema.parameters == {
        "io.confluent.connect.avro.enum.doc.Suit": "of cards",
        "io.confluent.connect.avro.enum.default.Suit": "A",
        "io.confluent.connect.avro.Enum": "app.Suit",
        "io.confluent.connect.avro.Enum.A": "A",
        "io.confluent.connect.avro.Enum.B": "B",
    }
    again = written(schema, ENHANCED)
    assert {name: again[name] for name in node} == node
    assert written(schema)["type"] == "string"


def test_fixed_is_bytes_with_its_size_and_fixed_again() -> None:
    node = {"type": "fixed", "name": "Hash", "namespace": "app", "size": 4}

    schema = read(node)

    assert schema is not None
    assert (schema.type.name, schema.name, schema.parameters) == ("BYTES", "app.Hash", {"connect.fixed.size": "4"})
    again = written(schema)
    assert {name: again[name] for name in node} == node


@pytest.mark.parametrize(("options", "name"), [(PLAIN, "R"), (ENHANCED, "app.R")])
def test_a_union_of_several_types_is_a_struct_with_a_field_for_each(options: AvroOptions, name: str) -> None:
    node = ["null", "int", "string", record({"name": "x", "type": "long"})]

    schema = read(node, options)

    assert schema is not None
    assert (schema.name, schema.optional) == ("io.confluent.connect.avro.Union", True)
    assert [field.name for field in schema.fields] == ["int", "string", name]
    assert all(field.schema.optional for field in schema.fields)
    assert written(schema, options)[:3] == node[:3]


def test_a_decimal_keeps_its_scale_and_precision_also_as_fixed() -> None:
    node = {"type": "fixed", "name": "D", "size": 8, "logicalType": "decimal", "precision": 10, "scale": 3}

    schema = read(node)

    assert schema is not None
    assert schema.name == Decimal.LOGICAL_NAME
    assert schema.parameters is not None
    assert (schema.parameters["scale"], schema.parameters["connect.decimal.precision"]) == ("3", "10")
    again = written(schema)
    assert [again[name] for name in ("type", "size", "logicalType", "precision", "scale")] == [
        "fixed",
        8,
        "decimal",
        10,
        3,
    ]


def test_a_default_that_is_none_is_left_out_with_a_word_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    schema = read(record({"name": "x", "type": "bytes", "default": 7}))

    assert schema is not None
    assert schema.fields[0].schema.default is None
    assert "A default of the Avro schema bytes is left out: Invalid default for Avro type bytes: 7" in caplog.text


def test_docs_of_records_and_fields_are_parameters_and_docs_again() -> None:
    node = record({"name": "x", "type": "int", "doc": "the x"}, doc="the record")

    schema = read(node)

    assert schema is not None
    assert schema.parameters == {
        "io.confluent.connect.avro.record.doc": "the record",
        "io.confluent.connect.avro.field.doc.x": "the x",
    }
    again = written(schema)
    assert (again["doc"], again["fields"][0]["doc"]) == ("the record", "the x")


def test_the_version_of_the_registry_counts_where_the_schema_says_none() -> None:
    own = read(record(**{"connect.version": 7}), version=2)
    registered = read(record(), version=2)

    assert own is not None
    assert registered is not None
    assert (own.version, registered.version) == (7, 2)


def test_defaults_of_every_kind_are_read() -> None:
    inner = record({"name": "y", "type": "string", "default": "q"})
    schema = read(
        {"type": "record", "name": "D", "fields": [
            {"name": "b", "type": "bytes", "default": "\u00ff"},
            {"name": "d", "type": {"type": "int", "logicalType": "date"}, "default": 1},
            {"name": "m", "type": {"type": "map", "values": "int"}, "default": {"k": 1}},
            {"name": "a", "type": {"type": "array", "items": "string"}, "default": ["s"]},
            {"name": "r", "type": inner, "default": {}},
            {"name": "u", "type": ["int", "string"], "default": 5},
            {"name": "f", "type": {"type": "double", "connect.default": "NaN"}},
            {"name": "n", "type": {"type": "bytes", "logicalType": "decimal", "scale": 1}, "default": "\u000f"},
        ]}
    )  # fmt: skip

    assert schema is not None
    found = {field.name: field.schema.default for field in schema.fields}
    assert (found["b"], found["d"], found["m"], found["a"]) == (b"\xff", date(1970, 1, 2), {"k": 1}, ["s"])
    assert (found["n"], found["f"] != found["f"]) == (Number("1.5"), True)
    # A default that only the field has is marked, so that it is not written as connect.default.
    date_schema = schema.fields[1].schema
    assert date_schema.parameters == {"io.confluent.connect.avro.field.default": "true"}
    assert "connect.default" not in written(schema)["fields"][1]["type"]
    assert isinstance(found["r"], Struct)
    assert found["r"].get("y") == "q"
    assert isinstance(found["u"], Struct)
    assert found["u"].get("int") == 5


def test_a_name_of_the_references_is_found_with_what_it_needs_itself() -> None:
    inner = SchemaText("AVRO", json.dumps({"type": "enum", "name": "app.E", "symbols": ["X"]}))
    middle = SchemaText("AVRO", json.dumps(record({"name": "e", "type": "E"})), (Reference("app.E", "e", 1, inner),))
    outer = SchemaText(
        "AVRO",
        json.dumps({"type": "record", "name": "O", "namespace": "app", "fields": [{"name": "r", "type": "R"}]}),
        (Reference("app.R", "r", 1, middle),),
    )

    schema = connect_schema(read_avro(outer), PLAIN)

    assert schema is not None
    assert schema.fields[0].schema.fields[0].schema.name == "app.E"


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (record({"name": "next", "type": ["null", "R"]}), "the record app.R contains itself"),
        ("null", "Standalone null schemas are not supported"),
        (
            record({"name": "x", "type": "app.Missing"}),
            "names app.Missing, which is neither in it nor in its references",
        ),
        ({"type": "array"}, "has no items"),
        (["int", record(), {"type": "record", "name": "other.R", "fields": []}], "Multiple union schemas map"),
        ({"type": "int", "connect.type": "int7"}, "Connect type annotation"),
        ({"type": "int", "connect.version": "1"}, "Invalid Connect version"),
        ({"type": "int", "connect.parameters": {"a": 1}}, "Expected schema parameter values to be strings"),
        (7, "has 7 where a type should be"),
    ],
)
def test_what_has_no_connect_schema_says_why(node: Any, message: str) -> None:
    with pytest.raises(DataException, match=message):
        read(node)


def test_what_has_no_avro_schema_says_why_and_what_to_do() -> None:
    with pytest.raises(DataException, match=r"no field of the name 'a-b'.*ReplaceField"):
        written(SchemaBuilder.struct().field("a-b", INT32_SCHEMA).build())
    with pytest.raises(DataException, match=r"no schema of the name 'app.my-R'.*SetSchemaMetadata"):
        written(SchemaBuilder.struct().name("app.my-R").field("a", INT32_SCHEMA).build())


def test_names_that_java_takes_are_written_and_others_are_scrubbed_if_wished() -> None:
    schema = SchemaBuilder.struct().name("server-1.gr\u00fcn.R\u00e4").field("\u00e4_1", INT32_SCHEMA).build()
    scrub = AvroOptions.parse({"scrub.invalid.names": "true"})

    assert written(schema) == {
        "type": "record",
        "name": "R\u00e4",
        "namespace": "server-1.gr\u00fcn",
        "fields": [{"name": "\u00e4_1", "type": "int"}],
        "connect.name": "server-1.gr\u00fcn.R\u00e4",
    }
    scrubbed = json.loads(avro_text(schema, scrub))
    assert (scrubbed["namespace"], scrubbed["name"]) == ("server_1.gr_C3_BCn", "R_C3_A4")
    assert scrubbed["fields"] == [{"name": "_C3_A4_1", "type": "int"}]
    assert scrubbed["connect.name"] == "server-1.gr\u00fcn.R\u00e4"


def test_a_default_of_32_bits_has_few_digits_beside_the_type_and_all_beside_the_field() -> None:
    schema = SchemaBuilder.float32().default_value(0.1).build()
    text = avro_text(SchemaBuilder.struct().name("R").field("a", schema).build(), PLAIN)

    assert '"connect.default":0.1},"default":0.10000000149011612}' in text
    assert '{"type":"double","connect.default":1.0E7}' in avro_text(
        SchemaBuilder.float64().default_value(1e7).build(), PLAIN
    )


def test_one_struct_is_one_type_however_it_is_used() -> None:
    def inner() -> SchemaBuilder:
        return SchemaBuilder.struct().name("a.In").field("x", INT32_SCHEMA)

    schema = (
        SchemaBuilder.struct()
        .name("a.R")
        .field("first", inner().build())
        .field("second", inner().optional().build())
        .field("third", inner().doc("other").version(3).build())
        .field("all", SchemaBuilder.array(inner().optional().parameter("p", "q").build()).build())
        .field("else", SchemaBuilder.struct().name("a.In").field("y", INT32_SCHEMA).build())
    )
    fields = {one["name"]: one["type"] for one in written(schema.build())["fields"]}

    assert fields["first"]["name"] == "In"
    assert fields["second"] == ["null", "In"]
    assert fields["third"] == "In"
    assert fields["all"] == {"type": "array", "items": ["null", "In"]}
    assert fields["else"]["name"] == "In2"


@pytest.mark.parametrize(("allowed", "kind"), [("true", "map"), ("false", "array")])
def test_maps_with_optional_text_keys_are_avro_maps_if_allowed(allowed: str, kind: str) -> None:
    schema = SchemaBuilder.map(Schema(Type.STRING, optional=True), INT32_SCHEMA).build()
    options = AvroOptions.parse({"allow.optional.map.keys": allowed})

    text = avro_text(schema, options)

    assert json.loads(text)["type"] == kind
    found = read_avro(SchemaText("AVRO", text))
    assert value_writer(schema, found, options)({"a": 1}) == ({"a": 1} if kind == "map" else [
        {"key": ("string", "a"), "value": 1}
    ])  # fmt: skip


def test_unions_of_one_type_are_that_type_unless_told_otherwise() -> None:
    structs = AvroOptions.parse({"flatten.singleton.unions": "false"})

    assert connect_schema(read_avro(SchemaText("AVRO", '["string"]')), AvroOptions.parse({})) == Schema(Type.STRING)
    found = connect_schema(read_avro(SchemaText("AVRO", '["string"]')), structs)
    assert found is not None
    assert (found.name, [one.name for one in found.fields]) == ("io.confluent.connect.avro.Union", ["string"])


def test_enums_and_unions_have_general_names_if_wished() -> None:
    options = AvroOptions.parse({"generalized.sum.type.support": "true"})
    enum = {"type": "enum", "name": "a.E", "symbols": ["X", "Y"]}
    node = {"type": "record", "name": "a.R", "fields": [
        {"name": "u", "type": ["null", "int", enum]},
        {"name": "v", "type": ["int", "string"]},
    ]}  # fmt: skip
    found = read_avro(SchemaText("AVRO", json.dumps(node)))

    schema = connect_schema(found, options)

    assert schema is not None
    assert [one.schema.name for one in schema.fields] == ["connect_union_0", "connect_union_1"]
    fields = schema.fields[0].schema.fields
    assert [one.name for one in fields] == ["connect_union_field_1", "connect_union_field_2"]
    general = "org.apache.kafka.connect.data.Enum"
    assert fields[1].schema.parameters == {general: "a.E", f"{general}.X": "0", f"{general}.Y": "1"}
    value = {"u": ("a.E", "Y"), "v": "text"}
    read = value_reader(found, schema, options)
    assert read is not None
    assert value_writer(schema, found, options)(read(value)) == {"u": ("a.E", "Y"), "v": ("string", "text")}
    again = json.loads(avro_text(schema, options))["fields"]
    assert [one["type"] if isinstance(one, dict) else one for one in again[0]["type"]] == ["null", "int", "enum"]
