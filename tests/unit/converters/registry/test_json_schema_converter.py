"""JsonSchemaConverter with a registry: what it writes Confluent's own classes read, and the reverse."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Protocol

import pytest
from confluent_kafka.schema_registry import Schema as WireSchema
from confluent_kafka.schema_registry import SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from testkit.processes.schema_registry import RegistryStandIn
from tests.unit.converters.registry.connect_values import every_type, every_value

from penstock.converters.registry.converters import JsonSchemaConverter
from penstock.data import (
    INT32_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    SchemaBuilder,
    Struct,
)
from penstock.errors import DataException

VALUE = SerializationContext("t", MessageField.VALUE)


@pytest.fixture
def registry() -> Iterator[RegistryStandIn]:
    with RegistryStandIn() as found:
        yield found


@pytest.fixture
def client(registry: RegistryStandIn) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as found:
        yield found


class Make(Protocol):
    def __call__(self, settings: Mapping[str, object] | None = None) -> JsonSchemaConverter: ...


@pytest.fixture
def converter(registry: RegistryStandIn) -> Iterator[Make]:
    with ExitStack() as stack:

        def make(settings: Mapping[str, object] | None = None) -> JsonSchemaConverter:
            made = JsonSchemaConverter()
            made.configure({"schema.registry.url": registry.url, "max.retries": 0, **(settings or {})}, False)
            stack.callback(made.close)
            return made

        yield make


EVERYTHING = every_type(OPTIONAL_STRING_SCHEMA).version(1).doc("all types").build()


def everything() -> Struct:
    return Struct.unchecked(EVERYTHING, every_value(["a", None]))


@pytest.mark.parametrize("settings", [{}, {"decimal.format": "numeric"}, {"json.fail.invalid.schema": "true"}])
def test_every_type_comes_back_and_confluents_deserializer_reads_it(
    client: SchemaRegistryClient, converter: Make, settings: Mapping[str, object]
) -> None:
    data = converter(settings).from_connect_data("t", EVERYTHING, everything())

    schema, value = converter().to_connect_data("t", data)

    assert schema == EVERYTHING
    assert value == everything()
    text = client.get_version("t-value", "latest").schema.schema_str
    found: Any = JSONDeserializer(text, schema_registry_client=client)(data, VALUE)
    assert (found["i64"], found["s"], found["inner"], found["none"]) == (2**63 - 1, "grün \U0001f600", {"x": 7}, None)
    assert (found["moment"], found["numbered"]) == (1709208000123, [{"key": 1, "value": {"x": 7}}])
    assert found["amount"] == (-12.3 if settings.get("decimal.format") else "+zI=")


ORDER = {
    "type": "object",
    "title": "app.Order",
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": "number"},
        "note": {"type": ["null", "string"]},
        "state": {"type": "string", "enum": ["NEW", "DONE"]},
        "lines": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["id"],
}


def test_what_confluents_serializer_writes_is_read(client: SchemaRegistryClient, converter: Make) -> None:
    order = {"id": 5, "price": 1.5, "note": None, "state": "DONE", "lines": ["a"]}
    data = JSONSerializer(json.dumps(ORDER), client)(order, VALUE)

    schema, value = converter().to_connect_data("t", data)

    assert schema is not None
    assert (schema.name, schema.version) == ("app.Order", 1)
    assert isinstance(value, Struct)
    assert value.values == [5, 1.5, None, "DONE", ["a"]]


def test_references_are_followed_as_confluents_classes_do(client: SchemaRegistryClient, converter: Make) -> None:
    address = {"type": "object", "title": "app.Address", "properties": {"zip": {"type": "string"}}}
    client.register_schema("address", WireSchema(json.dumps(address), "JSON"))
    person = {"type": "object", "title": "app.Person", "properties": {"home": {"$ref": "address.json"}}}
    text = WireSchema(json.dumps(person), "JSON", [SchemaReference("address.json", "address", 1)])
    data = JSONSerializer(text, client)({"home": {"zip": "10115"}}, VALUE)

    schema, value = converter().to_connect_data("t", data)

    assert schema is not None
    assert schema.fields[0].schema.name == "app.Address"
    assert isinstance(value, Struct)
    assert value.values[0].values == ["10115"]  # type: ignore[attr-defined]


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
    written = converter()
    first = written.from_connect_data("t", old, Struct(old).put("name", "Ada"))
    second = written.from_connect_data("t", new, Struct(new).put("name", "Bob").put("age", 40))
    reader = converter()

    seen = [reader.to_connect_data("t", data) for data in (first, second)]

    assert [(one.schema and one.schema.version, one.value.values) for one in seen] == [  # type: ignore[attr-defined]
        (1, ["Ada"]),
        (2, ["Bob", 40, None]),
    ]
    texts = [client.get_version("t-value", version).schema.schema_str for version in (1, 2)]
    assert JSONDeserializer(texts[0], schema_registry_client=client)(second, VALUE)["name"] == "Bob"
    assert JSONDeserializer(texts[1], schema_registry_client=client)(first, VALUE) == {"name": "Ada"}


def test_with_the_latest_version_values_are_written_under_its_id(client: SchemaRegistryClient, converter: Make) -> None:
    client.register_schema("t-value", WireSchema(json.dumps(ORDER), "JSON"))
    settings = {"auto.register.schemas": "false", "use.latest.version": "true"}
    latest = converter({**settings, "latest.compatibility.strict": "false"})
    schema = SchemaBuilder.struct().name("app.Order").field("id", INT32_SCHEMA).build()

    with pytest.raises(DataException, match="field id of the value is required there"):
        converter(settings).from_connect_data("t", schema, Struct(schema).put("id", 3))
    data = latest.from_connect_data("t", schema, Struct(schema).put("id", 3))

    assert data == b'\0\0\0\0\1{"id":3}'


def test_values_that_the_schema_does_not_allow_are_errors_if_wished(
    client: SchemaRegistryClient, converter: Make
) -> None:
    narrow = {"type": "object", "properties": {"id": {"type": "integer", "minimum": 10}}}
    client.register_schema("t-value", WireSchema(json.dumps(narrow), "JSON"))
    data = b'\0\0\0\0\1{"id":3}'

    assert converter().to_connect_data("t", data).value is not None
    with pytest.raises(DataException, match=r"does not allow \$\.id: 3 is less than the minimum of 10"):
        converter({"json.fail.invalid.schema": "true"}).to_connect_data("t", data)


#: Python's engine would be at it for years; what names its version, or refers to itself, is no way around.
HOSTILE = {"type": "string", "pattern": "^(a+)+$"}
INTEGER = {"type": "integer"}
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
LETTERS = "a" * 60
HOSTILE_CASES: list[tuple[dict[str, object], dict[str, object]]] = [
    ({"properties": {"s": HOSTILE}}, {"s": f"{LETTERS}b"}),
    ({"properties": {"s": {"type": "string", "pattern": r"^(a|aa)+\b(?!b)c"}}}, {"s": LETTERS}),
    ({"properties": {"s": {"$schema": DRAFT_7, "$id": "http://h/s", **HOSTILE}}}, {"s": f"{LETTERS}b"}),
    (
        {"properties": {"s": {"$ref": "#/definitions/s"}}, "definitions": {"s": {"$schema": DRAFT_7, **HOSTILE}}},
        {"s": f"{LETTERS}b"},
    ),
    ({"patternProperties": {"^(a+)+$": {"type": "integer"}, "b$": False}}, {f"{LETTERS}b": 1}),
    ({"properties": {"t": INTEGER}, "patternProperties": {"^(a+)+c": {}}, "additionalProperties": False}, {LETTERS: 1}),
]


@pytest.mark.parametrize(("schema", "value"), HOSTILE_CASES, ids=range(len(HOSTILE_CASES)))
def test_a_pattern_of_a_schema_ends_and_so_does_the_check_of_its_values(
    client: SchemaRegistryClient, converter: Make, schema: Mapping[str, object], value: object
) -> None:
    client.register_schema("t-value", WireSchema(json.dumps({"type": "object", **schema}), "JSON"))
    strict = converter({"json.fail.invalid.schema": "true"})
    begun = time.monotonic()

    with pytest.raises(DataException, match=r"The JSON Schema does not allow|took longer than 50 ms"):
        strict.to_connect_data("t", b"\0\0\0\0\1" + json.dumps(value).encode())

    assert time.monotonic() - begun < 5


def test_a_pattern_is_javas_and_a_wrong_one_is_told(client: SchemaRegistryClient, converter: Make) -> None:
    strict = converter({"json.fail.invalid.schema": "true"})
    client.register_schema("t-value", WireSchema('{"type": "string", "pattern": "^\\\\p{Lu}"}', "JSON"))
    client.register_schema("u-value", WireSchema('{"type": "string", "pattern": "\\\\X"}', "JSON"))

    assert strict.to_connect_data("t", b'\0\0\0\0\1"Z"').value == "Z"
    with pytest.raises(DataException, match=r"does not allow \$: 'z' does not match '\^\\\\p\{Lu\}'"):
        strict.to_connect_data("t", b'\0\0\0\0\1"z"')
    with pytest.raises(DataException, match="Not supported here"):
        strict.to_connect_data("u", b'\0\0\0\0\2"z"')


def test_unevaluated_properties_beside_patterns_are_refused(client: SchemaRegistryClient, converter: Make) -> None:
    schema = {"type": "object", "unevaluatedProperties": False, "patternProperties": {"(a+)+b": {}}}
    client.register_schema("t-value", WireSchema(json.dumps(schema), "JSON"))

    with pytest.raises(DataException, match="unevaluatedProperties and patternProperties"):
        converter({"json.fail.invalid.schema": "true"}).to_connect_data("t", b"\0\0\0\0\1{}")


def test_bad_messages_are_errors_of_their_own_and_the_next_one_passes(converter: Make) -> None:
    made = converter()
    good = made.from_connect_data("t", EVERYTHING, everything())
    assert good is not None

    for bad, message in (
        (b"\0\0\0\0\1{", "Cannot read the value of topic t: The message is not JSON"),
        (b"\0\0\0\0\1[]", "Cannot read the value of topic t: Structs should be encoded as JSON objects"),
        (b"\0\0\0\0\x63{}", "answers 404"),
        (b"{}", "Unknown magic byte"),
    ):
        with pytest.raises(DataException, match=message):
            made.to_connect_data("t", bad)
    assert made.to_connect_data("t", good).value == everything()
    with pytest.raises(DataException, match="writes values with a schema only"):
        made.from_connect_data("t", None, {"a": 1})
    with pytest.raises(DataException, match="field i8: Invalid type for INT8: str"):
        made.from_connect_data("t", EVERYTHING, Struct.unchecked(EVERYTHING, ["x", *everything().values[1:]]))


def test_a_schema_without_connect_form_is_an_error_of_its_messages_and_can_be_written_with(
    client: SchemaRegistryClient, converter: Make
) -> None:
    tree = {"title": "Tree", "type": "object", "properties": {"next": {"$ref": "#"}, "id": {"type": "integer"}}}
    client.register_schema("t-value", WireSchema(json.dumps(tree), "JSON"))

    with pytest.raises(DataException, match=r"Cannot read the value of topic t: .* holds itself by way of #"):
        converter().to_connect_data("t", b'\0\0\0\0\1{"id":3}')
    latest = converter(
        {"auto.register.schemas": "false", "use.latest.version": "true", "latest.compatibility.strict": "false"}
    )
    schema = SchemaBuilder.struct().field("id", INT32_SCHEMA).build()
    assert latest.from_connect_data("t", schema, Struct(schema).put("id", 3)) == b'\0\0\0\0\1{"id":3}'


def test_a_null_is_a_tombstone(converter: Make) -> None:
    made = converter()

    assert made.from_connect_data("t", None, None) is None
    assert made.from_connect_data("t", OPTIONAL_STRING_SCHEMA, None) is None
    assert made.to_connect_data("t", None) == (None, None)


def test_a_null_is_its_default_or_a_tombstone(converter: Make) -> None:
    made = converter()
    text = SchemaBuilder.string().default_value("d").build()

    assert made.from_connect_data("t", STRING_SCHEMA, None) is None
    assert made.from_connect_data("t", None, None) is None
    assert made.from_connect_data("t", text, None) == b'\0\0\0\0\1"d"'
    assert converter({"ignore.default.for.nullables": "true"}).from_connect_data("t", text, None) is None
