"""ProtobufConverter with a registry: what it writes Confluent's own classes read, and the reverse."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import cache
from typing import Any, Protocol

import pytest
from confluent_kafka.schema_registry import Schema as WireSchema
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import message_factory, text_format
from google.protobuf.descriptor_pool import DescriptorPool
from testkit.processes.schema_registry import RegistryStandIn
from tests.unit.converters.registry.connect_values import every_type, every_value

from penstock.converters.registry.converters import ProtobufConverter
from penstock.converters.registry.protobuf.files import FileProto, read_file
from penstock.data import (
    INT32_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Schema,
    SchemaBuilder,
    Struct,
    Type,
)
from penstock.errors import DataException

VALUE = SerializationContext("t", MessageField.VALUE)
OPTIONAL = {"optional.for.nullables": "true"}


@pytest.fixture
def registry() -> Iterator[RegistryStandIn]:
    with RegistryStandIn() as found:
        yield found


@pytest.fixture
def client(registry: RegistryStandIn) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as found:
        yield found


class Make(Protocol):
    def __call__(self, settings: Mapping[str, object] | None = None) -> ProtobufConverter: ...


@pytest.fixture
def converter(registry: RegistryStandIn) -> Iterator[Make]:
    with ExitStack() as stack:

        def make(settings: Mapping[str, object] | None = None) -> ProtobufConverter:
            made = ProtobufConverter()
            made.configure({"schema.registry.url": registry.url, "max.retries": 0, **(settings or {})}, False)
            stack.callback(made.close)
            return made

        yield make


@cache
def message_class(text: str, name: str) -> Any:
    """The class that protoc's Python would have for a message type."""
    return message_factory.GetMessageClass(read_file(text, {}).message_types_by_name[name])


def registered_class(client: SchemaRegistryClient, subject: str, version: int, name: str) -> Any:
    text = client.get_version(subject, version, fmt="serialized").schema.schema_str
    assert text is not None
    return message_class(text, name)


EVERYTHING = every_type(STRING_SCHEMA).build()


def everything() -> Struct:
    return Struct.unchecked(EVERYTHING, every_value(["a", ""]))


def plain(value: Any) -> Any:
    """Values without their schemas."""
    if isinstance(value, Struct):
        return [plain(one) for one in value.values]
    return {key: plain(one) for key, one in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize("settings", [OPTIONAL, {"wrapper.for.nullables": "true"}])
def test_every_type_comes_back_and_confluents_deserializer_reads_it(
    client: SchemaRegistryClient, converter: Make, settings: Mapping[str, object]
) -> None:
    data = converter(settings).from_connect_data("t", EVERYTHING, everything())

    schema, value = converter(settings).to_connect_data("t", data)

    assert plain(value) == plain(everything())
    assert schema is not None
    assert [(one.name, one.schema.type) for one in schema.fields] == [
        (one.name, one.schema.type) for one in EVERYTHING.fields
    ]
    kind = registered_class(client, "t-value", 1, "Everything")
    found: Any = ProtobufDeserializer(kind, {"use.deprecated.format": False}, client)(data, VALUE)
    assert (found.i64, found.s, found.inner.x, found.day.month) == (2**63 - 1, "grün \U0001f600", 7, 2)
    assert (found.amount.value, found.amount.scale, found.HasField("none")) == (b"\xfb\x32", 2, False)


ORDER = """
    syntax = "proto3";
    package app;
    import "google/protobuf/timestamp.proto";
    message Other {}
    message Order {
      message Line { string sku = 1; optional int32 count = 2; }
      enum State { NEW = 0; DONE = 1; }
      int64 id = 1;
      repeated Line lines = 2;
      State state = 3;
      oneof pay { string card = 4; bool cash = 5; }
      google.protobuf.Timestamp at = 6;
      map<string, double> prices = 7;
    }
"""


def test_what_confluents_serializer_writes_is_read(client: SchemaRegistryClient, converter: Make) -> None:
    kind = message_class(ORDER, "Order")
    order = kind(id=5, lines=[{"sku": "a"}, {"sku": "b", "count": 0}], state=1, cash=False, prices={"a": 1.5})
    order.at.seconds = 1
    write = ProtobufSerializer(kind, client, {"use.deprecated.format": False})

    schema, value = converter(OPTIONAL).to_connect_data("t", write(order, VALUE))

    assert schema is not None
    assert (schema.name, schema.version) == ("Order", 1)
    assert isinstance(value, Struct)
    assert plain(value) == [
        [None, False], 5, plain(value.get("lines")), "DONE", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), {"a": 1.5},
    ]  # fmt: skip
    assert [line.values for line in value.get("lines")] == [["a", None], ["b", 0]]  # type: ignore[attr-defined]
    again = converter(OPTIONAL).from_connect_data("u", schema, value)
    assert plain(converter(OPTIONAL).to_connect_data("u", again).value) == plain(value)


def descriptor_of(text: str) -> str:
    return base64.b64encode(message_class(text, "Order").DESCRIPTOR.file.serialized_pb).decode()


@pytest.mark.parametrize("form", [descriptor_of, None, lambda text: "\n\x05Other\x12\x03app"])
def test_a_schema_in_text_is_taken_as_a_descriptor_or_else_compiled(
    registry: RegistryStandIn, client: SchemaRegistryClient, converter: Make, form: Callable[[str], str] | None
) -> None:
    client.register_schema("t-value", WireSchema(ORDER, "PROTOBUF"))
    registry.set_form("serialized", form)
    order = message_class(ORDER, "Order")(id=5)
    made = converter()

    for _ in range(2):
        schema, value = made.to_connect_data("t", b"\0\0\0\0\1\x02\x02" + order.SerializeToString())

    assert schema is not None
    assert (schema.name, value.get("id")) == ("Order", 5)  # type: ignore[attr-defined]
    assert registry.requests[1:] == ["GET /schemas/ids/1", "GET /schemas/ids/1", "GET /schemas/ids/1/versions"]


REFERENCES = (
    'name: "deep.proto" package: "deep" syntax: "proto3" '
    'message_type { name: "Unit" field { name: "name" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL } }',
    'name: "money.proto" package: "shared" syntax: "proto3" dependency: "deep.proto" '
    'message_type { name: "Money" field { name: "n" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL } '
    'field { name: "unit" number: 2 type: TYPE_MESSAGE type_name: ".deep.Unit" label: LABEL_OPTIONAL } }',
    'name: "order.proto" package: "app" syntax: "proto3" dependency: "money.proto" message_type { name: "Order" '
    'field { name: "price" number: 1 type: TYPE_MESSAGE type_name: ".shared.Money" label: LABEL_OPTIONAL } }',
)


def test_references_are_followed_as_confluents_classes_do(client: SchemaRegistryClient, converter: Make) -> None:
    pool = DescriptorPool()
    for text in REFERENCES:
        pool.AddSerializedFile(text_format.Parse(text, FileProto()).SerializeToString())
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("app.Order"))
    write = ProtobufSerializer(kind, client, {"use.deprecated.format": False})

    data = write(kind(price={"n": 3, "unit": {"name": "EUR"}}), VALUE)
    schema, value = converter().to_connect_data("t", data)

    references = client.get_version("t-value", "latest").schema.references
    assert [one.name for one in references or ()] == ["money.proto"]
    assert schema is not None
    assert plain(value) == [[3, ["EUR"]]]


def test_old_and_new_messages_are_read_by_old_and_new_readers(client: SchemaRegistryClient, converter: Make) -> None:
    old = SchemaBuilder.struct().name("app.User").field("name", STRING_SCHEMA).build()
    new = (
        SchemaBuilder.struct()
        .name("app.User")
        .field("name", STRING_SCHEMA)
        .field("age", SchemaBuilder.int32().default_value(18).build())
        .field("mail", OPTIONAL_STRING_SCHEMA)
        .build()
    )
    written = converter(OPTIONAL)
    first = written.from_connect_data("t", old, Struct(old).put("name", "Ada"))
    second = written.from_connect_data("t", new, Struct(new).put("name", "Bob"))
    reader = converter(OPTIONAL)

    seen = [reader.to_connect_data("t", data) for data in (first, second)]

    assert [(one.schema and one.schema.version, plain(one.value)) for one in seen] == [
        (1, ["Ada"]),
        (2, ["Bob", 18, None]),
    ]
    conf = {"use.deprecated.format": False}
    older, newer = (
        ProtobufDeserializer(registered_class(client, "t-value", version, "User"), conf, client) for version in (1, 2)
    )
    assert older(second, VALUE).name == "Bob"
    upgraded = newer(first, VALUE)
    assert (upgraded.name, upgraded.age, upgraded.HasField("mail")) == ("Ada", 0, False)


def test_with_the_latest_version_values_fill_the_fields_of_the_same_names(
    client: SchemaRegistryClient, converter: Make
) -> None:
    client.register_schema("t-value", WireSchema(descriptor_of(ORDER), "PROTOBUF"))
    settings = {"auto.register.schemas": "false", "use.latest.version": "true"}
    latest = converter({**settings, "latest.compatibility.strict": "false"})
    schema = SchemaBuilder.struct().name("Order").field("id", INT32_SCHEMA).field("state", STRING_SCHEMA).build()

    data = latest.from_connect_data("t", schema, Struct(schema).put("id", 3).put("state", "DONE"))

    assert data == b"\0\0\0\0\1\x02\x02\x08\x03\x18\x01"
    with pytest.raises(DataException, match=r"the field state of app\.Order is of another kind there"):
        converter(settings).from_connect_data("t", schema, Struct(schema).put("id", 3).put("state", "DONE"))
    wrong = SchemaBuilder.struct().name("Order").field("colour", INT32_SCHEMA).build()
    with pytest.raises(DataException, match=r"Cannot find field with name colour in the message type app\.Order"):
        latest.from_connect_data("t", wrong, Struct(wrong).put("colour", 3))


def test_keys_and_values_without_parts_are_wrappers(client: SchemaRegistryClient, converter: Make) -> None:
    data = converter().from_connect_data("t", INT32_SCHEMA, 300)

    assert data == b"\0\0\0\0\1\x02\x08\x08\xac\x02"
    assert converter().to_connect_data("t", data).value == 300
    text = client.get_version("t-value", "latest").schema.schema_str
    assert FileProto.FromString(base64.b64decode(text or "")).name == "google/protobuf/wrappers.proto"


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("RecordNameStrategy", "google.protobuf.Int32Value"),
        ("TopicRecordNameStrategy", "t-google.protobuf.Int32Value"),
    ],
)
def test_a_plain_value_has_the_name_of_its_wrapper(
    client: SchemaRegistryClient, converter: Make, strategy: str, subject: str
) -> None:
    made = converter({"value.subject.name.strategy": strategy})

    data = made.from_connect_data("t", INT32_SCHEMA, 300)

    assert client.get_subjects() == [subject]
    assert made.to_connect_data("t", data) == (Schema(Type.INT32, version=1), 300)


def test_bad_messages_are_errors_of_their_own_and_the_next_one_passes(converter: Make) -> None:
    made = converter()
    good = made.from_connect_data("t", EVERYTHING, everything())
    assert good is not None

    for bad, message in (
        (b"\0\0\0\0\1\0\xff", "Cannot read the value of topic t: it is no message of type Everything"),
        (b"\0\0\0\0\1\x02\x06", "of message type"),
        (b"\0\0\0\0\1", "ends within the place of its message type"),
        (b"\0\0\0\0\x63\0", "answers 404"),
        (b"text", "Unknown magic byte"),
    ):
        with pytest.raises(DataException, match=message):
            made.to_connect_data("t", bad)
    assert plain(made.to_connect_data("t", good).value)[:9] == plain(everything())[:9]
    with pytest.raises(DataException, match="writes values with a schema only"):
        made.from_connect_data("t", None, {"a": 1})
    with pytest.raises(DataException, match="field i8: Invalid type for INT8: str"):
        made.from_connect_data("t", EVERYTHING, Struct.unchecked(EVERYTHING, ["x", *everything().values[1:]]))


def test_a_null_is_a_tombstone(converter: Make) -> None:
    made = converter()

    assert made.from_connect_data("t", None, None) is None
    assert made.from_connect_data("t", OPTIONAL_STRING_SCHEMA, None) is None
    assert made.from_connect_data("t", EVERYTHING, None) is None
    assert made.to_connect_data("t", None) == (None, None)
