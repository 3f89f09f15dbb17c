"""AvroConverter with a registry: others read what it writes, and the reverse; errors are of one record alone.

Which Avro schemas can read data of another one; what Java says is among the recorded answers.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, date, datetime, time
from decimal import Decimal as Number
from typing import Any

import fastavro
import pytest
from confluent_kafka.schema_registry import Schema as WireSchema
from confluent_kafka.schema_registry import SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given
from hypothesis import strategies as st
from testkit.processes.schema_registry import AvroJudge, RegistryStandIn
from tests.generated import examples

from penstock.converters.registry.avro.codec import AvroCodec, cannot_read
from penstock.converters.registry.avro.forms import read_avro
from penstock.converters.registry.client import SchemaText
from penstock.converters.registry.converters import AvroConverter, AvroConverterConfig
from penstock.converters.registry.settings import RegistryConfig
from penstock.data import (
    BOOLEAN_SCHEMA,
    BYTES_SCHEMA,
    FLOAT32_SCHEMA,
    FLOAT64_SCHEMA,
    INT8_SCHEMA,
    INT16_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    OPTIONAL_INT32_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Date,
    Decimal,
    Schema,
    SchemaAndValue,
    SchemaBuilder,
    SchemaProjector,
    Struct,
    Time,
    Timestamp,
    Type,
)
from penstock.errors import ConfigException, DataException

VALUE_OF_T = SerializationContext("t", MessageField.VALUE)
INNER = SchemaBuilder.struct().name("app.Inner").field("z", STRING_SCHEMA).build()
EVERYTHING = (
    SchemaBuilder.struct()
    .name("app.Everything")
    .version(1)
    .field("int8", INT8_SCHEMA)
    .field("int16", INT16_SCHEMA)
    .field("int32", INT32_SCHEMA)
    .field("int64", INT64_SCHEMA)
    .field("float32", FLOAT32_SCHEMA)
    .field("float64", FLOAT64_SCHEMA)
    .field("boolean", BOOLEAN_SCHEMA)
    .field("string", STRING_SCHEMA)
    .field("bytes", BYTES_SCHEMA)
    .field("decimal", Decimal.builder(2).build())
    .field("date", Date.SCHEMA)
    .field("time", Time.SCHEMA)
    .field("timestamp", Timestamp.SCHEMA)
    .field("array", SchemaBuilder.array(OPTIONAL_STRING_SCHEMA).build())
    .field("map", SchemaBuilder.map(STRING_SCHEMA, FLOAT64_SCHEMA).build())
    .field("entries", SchemaBuilder.map(INT32_SCHEMA, INNER).build())
    .field("optional", OPTIONAL_INT32_SCHEMA)
    .field("default", SchemaBuilder.string().default_value("d").build())
    .field("inner", INNER)
    .build()
)
VALUES: Mapping[str, Any] = {
    "int8": -128,
    "int16": 32767,
    "int32": -(1 << 31),
    "int64": (1 << 63) - 1,
    "float32": 1.5,
    "float64": -2.5e300,
    "boolean": True,
    "string": "Grüße",
    "bytes": b"\x00\xff",
    "decimal": Number("-12.34"),
    "date": date(2024, 2, 29),
    "time": time(23, 59, 59, 999000),
    "timestamp": datetime(1969, 12, 31, 23, 59, 59, 1000, tzinfo=UTC),
    "array": ["a", None, ""],
    "map": {"k": 1.0},
    "entries": {7: Struct(INNER).put("z", "seven")},
    "optional": None,
    "default": "given",
    "inner": Struct(INNER).put("z", "zed"),
}

Make = Callable[..., AvroConverter]


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryStandIn]:
    with RegistryStandIn() as found:
        yield found


@pytest.fixture
def converter(registry: RegistryStandIn) -> Iterator[Make]:
    with ExitStack() as stack:

        def make(more: Mapping[str, object] | None = None, *, is_key: bool = False) -> AvroConverter:
            made = AvroConverter()
            given = {"schema.registry.url": registry.url, "retries.wait.ms": "0", "missing.id.cache.ttl.sec": "0"}
            made.configure({**given, **(more or {})}, is_key)
            stack.callback(made.close)
            return made

        yield make


@pytest.fixture
def client(registry: RegistryStandIn) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url, "ssl.ca.location": False}) as found:
        yield found


def everything() -> Struct:
    value = Struct(EVERYTHING)
    for name, one in VALUES.items():
        value.put(name, one)
    return value


def test_all_types_come_back_as_they_were(converter: Make) -> None:
    both = converter()
    value = everything()

    sent = both.from_connect_data("all", EVERYTHING, value)

    assert both.to_connect_data("all", sent) == SchemaAndValue(EVERYTHING, value)


def test_confluents_deserializer_reads_what_is_written(converter: Make, client: SchemaRegistryClient) -> None:
    sent = converter().from_connect_data("t", EVERYTHING, everything())
    assert sent is not None

    found = AvroDeserializer(client)(sent, VALUE_OF_T)

    same = {name: one for name, one in VALUES.items() if name not in ("inner", "entries", "timestamp")}
    assert {name: found[name] for name in same} == same
    assert found["inner"] == {"z": "zed"}
    assert found["entries"] == [{"key": 7, "value": {"z": "seven"}}]
    assert found["timestamp"] == VALUES["timestamp"]


@pytest.mark.parametrize("value", [b"\x00\x01raw", "text", 7, 2.5])
def test_plain_values_are_read_by_confluents_deserializer(
    converter: Make, client: SchemaRegistryClient, value: object
) -> None:
    kind = {bytes: BYTES_SCHEMA, str: STRING_SCHEMA, int: INT64_SCHEMA, float: FLOAT64_SCHEMA}[type(value)]
    topic = f"plain-{kind.type.value}"
    both = converter()

    sent = both.from_connect_data(topic, kind, value)

    assert sent is not None
    assert AvroDeserializer(client)(sent, SerializationContext(topic, MessageField.VALUE)) == value
    assert both.to_connect_data(topic, sent).value == value


def test_what_confluents_serializer_writes_is_read(converter: Make, client: SchemaRegistryClient) -> None:
    schema = {
        "type": "record", "name": "Order", "namespace": "shop", "fields": [
            {"name": "id", "type": "long"},
            {"name": "paid", "type": {"type": "int", "logicalType": "date"}},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "DONE"]}},
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "which", "type": ["int", "long", "string", {"type": "fixed", "name": "F", "size": 2}]},
            {"name": "micros", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        ],
    }  # fmt: skip
    value = {
        "id": 7, "paid": date(2024, 1, 2), "price": Number("1.50"), "state": "DONE", "note": "n", "which": ("long", 5),
        "micros": datetime(2024, 1, 1, tzinfo=UTC),
    }  # fmt: skip
    sent = AvroSerializer(client, json.dumps(schema))(value, SerializationContext("orders", MessageField.VALUE))

    found_schema, found = converter().to_connect_data("orders", sent)

    assert found_schema is not None
    assert (found_schema.name, found_schema.version) == ("shop.Order", 1)
    assert isinstance(found, Struct)
    assert [found.get(name) for name in ("id", "paid", "price", "state", "note")] == [
        7, date(2024, 1, 2), Number("1.50"), "DONE", "n",
    ]  # fmt: skip
    which = found.get("which")
    assert isinstance(which, Struct)
    assert (which.get("long"), which.get("int")) == (5, None)
    assert found.get("micros") == 1_704_067_200_000_000


def test_schemas_that_refer_to_others_are_read_and_written(converter: Make, client: SchemaRegistryClient) -> None:
    inner = WireSchema(json.dumps({"type": "record", "name": "ref.In", "fields": [{"name": "x", "type": "int"}]}))
    client.register_schema("ref-inner", inner)
    outer = {"type": "record", "name": "ref.Out", "fields": [{"name": "i", "type": "ref.In"}]}
    schema = WireSchema(json.dumps(outer), "AVRO", [SchemaReference("ref.In", "ref-inner", 1)])
    context = SerializationContext("refs", MessageField.VALUE)
    sent = AvroSerializer(client, schema)({"i": {"x": 5}}, context)

    found_schema, value = converter().to_connect_data("refs", sent)
    latest = converter({"auto.register.schemas": "false", "use.latest.version": "true",
                        "latest.compatibility.strict": "false"})  # fmt: skip
    again = latest.from_connect_data("refs", found_schema, value)

    assert isinstance(value, Struct)
    assert isinstance(value.get("i"), Struct)
    assert again == sent
    assert AvroDeserializer(client)(again, context) == {"i": {"x": 5}}


def of_version(version: int, **fields: Schema) -> Schema:
    builder = SchemaBuilder.struct().name("app.Evolving").version(version)
    for name, schema in fields.items():
        builder.field(name, schema)
    return builder.build()


@pytest.mark.parametrize("level", ["BACKWARD", "FULL"])
def test_a_reader_sees_old_and_new_values_when_a_schema_evolves(
    registry: RegistryStandIn, converter: Make, client: SchemaRegistryClient, level: str
) -> None:
    topic = f"evolving-{level}"
    registry.set_level(f"{topic}-value", level)
    old = of_version(1, id=INT64_SCHEMA)
    new = of_version(2, id=INT64_SCHEMA, name=SchemaBuilder.string().default_value("?").build())
    both = converter()
    first = both.from_connect_data(topic, old, Struct(old).put("id", 1))
    second = both.from_connect_data(topic, new, Struct(new).put("id", 2).put("name", "b"))

    read = [converter().to_connect_data(topic, one) for one in (first, second)]

    assert [schema for schema, _ in read] == [old, new]
    projected = [SchemaProjector.project(schema, value, new) for schema, value in read if schema is not None]
    assert [one.get("name") for one in projected if isinstance(one, Struct)] == ["?", "b"]
    # Confluent's reader resolves the writer's schema with its own.
    with_new = AvroDeserializer(client, client.get_version(f"{topic}-value", 2).schema)
    context = SerializationContext(topic, MessageField.VALUE)
    assert [with_new(one, context)["name"] for one in (first, second)] == ["?", "b"]
    with_old = AvroDeserializer(client, client.get_version(f"{topic}-value", 1).schema)
    assert with_old(second, context) == {"id": 2}


def test_a_schema_that_the_subjects_rule_forbids_is_refused_with_the_registrys_reason(
    registry: RegistryStandIn, converter: Make
) -> None:
    old, new = of_version(1, id=INT64_SCHEMA), of_version(2, id=INT64_SCHEMA, more=STRING_SCHEMA)
    both = converter()
    both.from_connect_data("forbidden", old, Struct(old).put("id", 1))

    with pytest.raises(ConfigException, match=r"under subject forbidden-value.*answers 409: .*incompatible"):
        both.from_connect_data("forbidden", new, Struct(new).put("id", 1).put("more", ""))


def test_the_latest_schema_fills_new_fields_with_its_defaults(converter: Make) -> None:
    old = of_version(1, id=INT64_SCHEMA)
    note = SchemaBuilder.string().optional().default_value("-").build()
    new = of_version(2, id=INT64_SCHEMA, note=note, tag=OPTIONAL_STRING_SCHEMA)
    first = converter()
    first.from_connect_data("latest", old, Struct(old).put("id", 1))
    first.from_connect_data("latest", new, Struct(new).put("id", 1))
    latest = converter({"auto.register.schemas": "false", "use.latest.version": "true"})

    sent = latest.from_connect_data("latest", old, Struct(old).put("id", 7))

    assert latest.to_connect_data("latest", sent).value == Struct(new).put("id", 7).put("note", "-")


def test_the_latest_schema_has_to_fit_unless_told_otherwise(converter: Make) -> None:
    old, other = of_version(1, id=INT64_SCHEMA), of_version(1, label=STRING_SCHEMA)
    converter().from_connect_data("strict", old, Struct(old).put("id", 1))
    latest = {"auto.register.schemas": "false", "use.latest.version": "true"}
    value = Struct(other).put("label", "x")

    with pytest.raises(DataException, match="not compatible with the latest one of subject strict-value, version 1"):
        converter(latest).from_connect_data("strict", other, value)
    with pytest.raises(DataException, match=r"has no field id, which the Avro record app\.Evolving requires"):
        converter({**latest, "latest.compatibility.strict": "false"}).from_connect_data("strict", other, value)


def test_null_is_a_tombstone_both_ways(converter: Make) -> None:
    both = converter()

    assert both.from_connect_data("t", OPTIONAL_STRING_SCHEMA, None) is None
    assert both.from_connect_data("t", None, None) is None
    assert both.to_connect_data("t", None) == SchemaAndValue(None, None)


def test_optional_values_at_the_top_carry_their_branch(converter: Make, client: SchemaRegistryClient) -> None:
    schema = SchemaBuilder.struct().name("app.Top").field("x", INT32_SCHEMA).optional().build()
    both = converter()
    value = Struct(schema).put("x", 3)

    sent = both.from_connect_data("top", schema, value)

    assert both.to_connect_data("top", sent) == SchemaAndValue(schema, value)
    assert sent is not None
    assert AvroDeserializer(client)(sent, SerializationContext("top", MessageField.VALUE)) == {"x": 3}


@pytest.mark.parametrize("value", [None, True, 5, -2.5, "x", b"y", [1, None, ["z"]], {"a": {"b": 1}, 7: None}])
def test_schemaless_values_come_back_inside_of_a_list(converter: Make, value: object) -> None:
    both = converter()

    sent = both.from_connect_data("schemaless", None, [value])

    assert both.to_connect_data("schemaless", sent) == SchemaAndValue(None, [value])


def test_a_null_is_written_as_the_default_of_its_field_unless_told_otherwise(converter: Make) -> None:
    default = SchemaBuilder.string().optional().default_value("d").build()
    schema = SchemaBuilder.struct().name("app.Nulls").field("x", default).build()

    def back(both: AvroConverter) -> object:
        value = both.to_connect_data("nulls", both.from_connect_data("nulls", schema, Struct(schema))).value
        assert isinstance(value, Struct)
        return value.get_without_default("x")

    assert back(converter()) == "d"
    assert back(converter({"ignore.default.for.nullables": "true"})) is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a": 1}', r"begins with 0x7b.*Is it JSON\? Set value\.converter=org\.apache\.kafka\.connect\.json\.Json"),
        (b"plain", r"begins with 0x70.*Set value\.converter to what wrote it"),
        (b"\0\0\0", "has 3 bytes; a message of a schema registry begins with a zero byte"),
        (b"", "has 0 bytes"),
        (b"\0\0\0\x0f\xff", "schema 4095 of the value of topic t.*answers 404.*Schema 4095 not found"),
    ],
)
def test_a_message_of_another_kind_says_what_to_set(converter: Make, data: bytes, message: str) -> None:
    with pytest.raises(DataException, match=message):
        converter().to_connect_data("t", data)


@pytest.mark.parametrize("number", ["1.5", "-0.1", "0.0", "-999.9"])
def test_decimals_of_fixed_size_fill_their_bytes(converter: Make, client: SchemaRegistryClient, number: str) -> None:
    node = {"type": "fixed", "name": "Money", "size": 2, "logicalType": "decimal", "precision": 4, "scale": 1}
    bills = SerializationContext("bills", MessageField.VALUE)
    schema = {"type": "record", "name": "Bill", "fields": [{"name": "sum", "type": node}]}
    sent = AvroSerializer(client, json.dumps(schema))({"sum": Number(number)}, bills)
    both = converter()

    found_schema, found = both.to_connect_data("bills", sent)
    again = both.from_connect_data("bills-copy", found_schema, found)

    assert isinstance(found, Struct)
    assert found.get("sum") == Number(number)
    assert again is not None
    assert again[5:] == sent[5:]


def test_whole_numbers_of_small_types_keep_their_low_bits_as_in_java(converter: Make) -> None:
    """Somebody else's writer may put larger ones into an Avro int that is said to be an int8."""
    both = converter()
    sent = both.from_connect_data("small", INT8_SCHEMA, 72)
    assert sent is not None

    found = both.to_connect_data("small", sent[:5] + b"\x90\x03")

    assert found.value == 200 - 256


def test_damaged_avro_is_that_messages_error(converter: Make) -> None:
    both = converter()
    sent = both.from_connect_data("all", EVERYTHING, everything())
    assert sent is not None

    for end in range(5, len(sent)):
        with pytest.raises(
            DataException, match=r"The value of topic all cannot be read with its Avro schema app\.Every"
        ):
            both.to_connect_data("all", sent[:end])
    assert both.to_connect_data("all", sent).value == everything()


@given(st.binary(max_size=64))
@examples(25)
def test_any_bytes_are_a_value_or_a_data_exception(payload: bytes) -> None:
    codec = codec_of(EVERYTHING)[1]

    try:
        found = codec.decode(payload, "the value of topic t")
    except DataException:
        return

    assert isinstance(found.value, Struct)


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        (INT8_SCHEMA, 128, "128 is out of range for INT8"),
        (INT32_SCHEMA, True, "Invalid type for INT32: a Python bool"),
        (STRING_SCHEMA, b"x", "Invalid type for STRING: a Python bytes"),
        (FLOAT64_SCHEMA, 1, "Invalid type for FLOAT64: a Python int"),
        (Date.SCHEMA, "today", "Invalid type for INT32: a Python str"),
        (Decimal.builder(1).build(), Number("1.25"), "mismatching scale"),
        (SchemaBuilder.array(STRING_SCHEMA).build(), ["a", 1], "a Python int .an element of the value"),
        (SchemaBuilder.map(STRING_SCHEMA, INT32_SCHEMA).build(), {1: 1}, "for a map's key: a Python int"),
        (INNER, Struct(INNER), "null value for non-optional schema: field z of the value"),
        (INNER, {"z": "x"}, "Invalid type for STRUCT: a Python dict"),
    ],
)
def test_a_value_that_is_not_of_its_schema_is_refused(
    converter: Make, schema: Schema, value: object, message: str
) -> None:
    with pytest.raises(DataException, match=message):
        converter().from_connect_data(f"wrong-{schema.type.value}-{schema.name}", schema, value)


def test_enums_and_unions_come_back_with_enhanced_support(converter: Make, client: SchemaRegistryClient) -> None:
    schema = {
        "type": "record", "name": "e.R", "fields": [
            {"name": "suit", "type": ["null", {"type": "enum", "name": "e.Suit", "symbols": ["A", "B"]}]},
            {"name": "which", "type": ["null", "int", {"type": "record", "name": "e.P", "fields": []}, "e.Suit"]},
            {"name": "hash", "type": {"type": "fixed", "name": "e.F", "size": 2}},
        ],
    }  # fmt: skip
    context = SerializationContext("enhanced", MessageField.VALUE)
    both = converter({"enhanced.avro.schema.support": "true"})
    branches: list[Any] = [("e.P", {}), ("e.Suit", "B"), ("int", 4), None]
    for which in branches:
        value = {"suit": "A", "which": which, "hash": b"ab"}
        sent = AvroSerializer(client, json.dumps(schema))(value, context)

        found_schema, found = both.to_connect_data("enhanced", sent)
        again = both.from_connect_data("enhanced-copy", found_schema, found)

        assert again is not None
        assert again[5:] == sent[5:]
        # Not equal as structs: that null is the default of the union's field is said now, and was not before.
        assert str(both.to_connect_data("enhanced-copy", again).value) == str(found)


def test_settings_are_checked_with_name_and_rule() -> None:
    for wrong, message in (
        ({"schema.registry.url": "localhost:8081"}, "schema.registry.url: It is no address of the form http://host"),
        ({"schema.registry.url": ""}, "The address of a schema registry is missing"),
        ({"value.subject.name.strategy": "com.acme.Mine"}, "must be one of TopicNameStrategy"),
        ({"basic.auth.credentials.source": "SASL_INHERIT"}, "put the same user and password in basic.auth.user.info"),
        ({"basic.auth.credentials.source": "USER_INFO"}, "basic.auth.user.info must be user:password"),
        ({"proxy.host": "proxy"}, "configuration proxy.port: proxy.host needs it"),
        ({"bearer.auth.credentials.source": "STATIC_TOKEN"}, "bearer.auth.token is missing"),
        ({"schema.registry.ssl.truststore.location": "/nowhere.jks"}, "It cannot be read"),
        ({"schema.registry.ssl.keystore.location": __file__ + "x"}, "It cannot be read"),
    ):
        with pytest.raises(ConfigException, match=message):
            AvroConverter().configure({"schema.registry.url": "http://localhost:8081", **wrong}, False)


def test_a_java_key_store_is_refused_with_the_way_to_convert_it(tmp_path: Any) -> None:
    store = tmp_path / "trust.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed")

    with pytest.raises(ConfigException, match=r"write it as PEM \(openssl pkcs12"):
        AvroConverter().configure(
            {"schema.registry.url": "https://localhost", "schema.registry.ssl.truststore.location": str(store)}, False
        )


def test_secrets_are_passwords() -> None:
    keys = RegistryConfig.definition().keys

    secret = {name for name in keys if any(word in name for word in ("password", "secret", "user.info", ".token"))}

    assert {keys[name].type.value for name in secret} == {"PASSWORD"}


# ---------------------------------------------------------------------- any schema, any value
_PLAIN: list[tuple[Schema, st.SearchStrategy[Any]]] = [
    (INT8_SCHEMA, st.integers(-128, 127)),
    (INT16_SCHEMA, st.integers(-(1 << 15), (1 << 15) - 1)),
    (INT32_SCHEMA, st.integers(-(1 << 31), (1 << 31) - 1)),
    (INT64_SCHEMA, st.integers(-(1 << 63), (1 << 63) - 1)),
    (FLOAT32_SCHEMA, st.floats(width=32, allow_nan=False)),
    (FLOAT64_SCHEMA, st.floats(allow_nan=False)),
    (BOOLEAN_SCHEMA, st.booleans()),
    (STRING_SCHEMA, st.text(st.characters(exclude_categories=["Cs"]), max_size=5)),
    (BYTES_SCHEMA, st.binary(max_size=5)),
    (Decimal.builder(3).build(), st.integers(-(10**20), 10**20).map(lambda one: Number(one).scaleb(-3))),
    (Date.SCHEMA, st.dates()),
    (Time.SCHEMA, st.integers(0, 86_399_999).map(lambda one: Time.to_logical(Time.SCHEMA, one))),
    (Timestamp.SCHEMA, st.integers(-(10**13), 10**13).map(lambda one: Timestamp.to_logical(Timestamp.SCHEMA, one))),
]
_NAMES = st.sampled_from([None, None, "app.A", "app.B", "C"])


@st.composite
def schemas(draw: st.DrawFn, depth: int = 2) -> tuple[Schema, st.SearchStrategy[Any]]:
    """A schema and its values that are not null."""
    kind = draw(st.sampled_from(["plain", "plain", "array", "map", "entries", "struct"] if depth else ["plain"]))
    optional = draw(st.booleans())
    if kind == "plain":
        schema, values = draw(st.sampled_from(_PLAIN))
        builder = (
            SchemaBuilder(schema.type).name(schema.name).version(schema.version).parameters(schema.parameters or {})
        )
        if draw(st.booleans()):
            builder.doc("a doc").default_value(draw(values))
    elif kind == "array":
        inner, items = draw(schemas(depth - 1))
        builder, values = SchemaBuilder.array(inner), st.lists(_of(inner, items), max_size=3)
    elif kind == "map":
        inner, items = draw(schemas(depth - 1))
        builder = SchemaBuilder.map(STRING_SCHEMA, inner)
        values = st.dictionaries(st.text(st.characters(codec="ascii"), max_size=3), _of(inner, items), max_size=3)
    elif kind == "entries":
        key, keys = draw(st.sampled_from([one for one in _PLAIN if one[0].type is not Type.STRING]))
        inner, items = draw(schemas(depth - 1))
        builder = SchemaBuilder.map(key, inner)
        values = st.dictionaries(keys, _of(inner, items), max_size=3)
    else:
        parts = draw(st.lists(schemas(depth - 1), max_size=3))
        builder = SchemaBuilder.struct().name(draw(_NAMES)).version(draw(st.sampled_from([None, 1])))
        for place, (inner, _) in enumerate(parts):
            builder.field(f"f{place}", inner)
        fields = st.tuples(*[_of(inner, items, default=True) for inner, items in parts])
    if optional:
        builder.optional()
    schema = builder.build()
    if kind == "struct":
        values = fields.map(lambda found: Struct.unchecked(schema, found))
    return schema, values


def _of(schema: Schema, values: st.SearchStrategy[Any], *, default: bool = False) -> st.SearchStrategy[Any]:
    # A null field with a default is written as the default.
    nullable = schema.optional and not (default and schema.default is not None)
    return st.none() | values if nullable else values


@given(st.data())
@examples(25)
def test_any_value_of_any_schema_comes_back(data: st.DataObject) -> None:
    schema, values = data.draw(schemas())
    value = data.draw(values)
    text, codec = codec_of(schema)
    payload = codec.encode(schema, value)
    found = codec.decode(payload, "the value of topic t")

    assert found.schema == schema
    assert found.value == value
    # Others take the schema and read the bytes, too.
    assert AvroJudge().check(text, {}) is None
    if codec.found.kind != "bytes":
        stream = io.BytesIO(payload)
        fastavro.schemaless_reader(stream, json.loads(text), None)
        assert stream.read() == b""


def codec_of(schema: Schema) -> tuple[str, AvroCodec]:
    options = AvroConverterConfig.parse({"schema.registry.url": "http://localhost", "converter.type": "value"})
    text = AvroCodec.text_of(schema, options)
    return text, AvroCodec(SchemaText("AVRO", text), options, None)


def why(reader: Any, writer: Any) -> str | None:
    return cannot_read(*(read_avro(SchemaText("AVRO", json.dumps(one))) for one in (reader, writer)))


def record(*fields: tuple[str, Any], name: str = "a.R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": one, "type": kind} for one, kind in fields], **more}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


NODE = record(("next", ["null", "a.R"]), ("value", "long"))


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        ("long", "int"), ("double", "long"), ("string", "bytes"), (["null", "long"], "int"), (["int", "string"], "int"),
        (record(("x", "long")), record(("x", "int"), ("y", "int"))),
        (record(("x", "int"), name="b.R"), record(("x", "int"))),
        (record(("x", "int"), name="b.S", aliases=["a.R"]), record(("x", "int"))),
        (enum("A", "B"), enum("A")), (enum("A", default="A"), enum("A", "B")),
        ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}),
        (NODE, record(("next", ["null", "a.R"]), ("value", "int"))),
    ],
)  # fmt: skip
def test_wider_types_read_narrower_ones(reader: Any, writer: Any) -> None:
    assert why(reader, writer) is None


@pytest.mark.parametrize(
    ("reader", "writer", "reason"),
    [
        ("int", "long", "the value is of type int there, and long here"),
        ("int", ["null", "int"], "the value is of type int there, and null here"),
        (["null", "string"], "int", "the value is no int there, but one of null, string"),
        (record(("x", "int"), ("y", "int")), record(("x", "int")), "the value has a field y there, not here"),
        (record(("x", "int"), name="S"), record(("x", "int")), "the value is called S there, and a.R here"),
        (enum("A"), enum("A", "B"), "the value has no symbol B there"),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "string"}, "an element of the value is of type"),
        ({"type": "fixed", "name": "F", "size": 2}, {"type": "fixed", "name": "F", "size": 3}, "the value has 2 bytes"),
        (NODE, record(("next", ["null", "a.R"]), ("value", "string")), "field value of the value is of type long"),
    ],
)
def test_others_do_not_and_the_place_is_named(reader: Any, writer: Any, reason: str) -> None:
    assert (why(reader, writer) or "").startswith(reason)
