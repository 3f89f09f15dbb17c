"""Messages of a registry read as columns are what they are one by one: values and schemas; errors are left."""

from __future__ import annotations

import io
import json
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from testkit.processes.schema_registry import RegistryStandIn
from tests.generated import examples

from penstock.converters.registry import wire
from penstock.converters.registry.avro.codec import AvroCodec
from penstock.converters.registry.client import SchemaText
from penstock.converters.registry.converters import (
    AvroConverter,
    AvroConverterConfig,
    JsonSchemaConverter,
    ProtobufConverter,
    RegistryConverter,
)
from penstock.converters.registry.wire import frame, read_columns, unframe
from penstock.data import Schema, SchemaAndValue
from penstock.errors import DataException
from penstock.pipeline.columns.layout import arrow_type
from penstock.pipeline.columns.records import from_arrow, to_arrow
from penstock.pipeline.plan.step import Sorted

ID = 7
WHERE = "the value of topic t"
#: A long of ten bytes whose last one has more than the 64th bit, one of eleven bytes, one that never ends.
LONG_VARINTS = (b"\xff" * 9 + b"\x02", b"\xff" * 10 + b"\x01", b"\xff" * 12)


@pytest.fixture(autouse=True)
def few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MIN_ROWS", 1)


def codec_of(schema: Any) -> AvroCodec:
    options = AvroConverterConfig.parse({"schema.registry.url": "http://localhost:1", "converter.type": "value"})
    return AvroCodec(SchemaText("AVRO", json.dumps(schema)), options, 1)


def written(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return stream.getvalue()


def sorted_of(codec: AvroCodec, bodies: Sequence[bytes | None]) -> Sorted:
    messages = [None if one is None else frame(ID, one) for one in bodies]
    topics = pa.chunked_array([pa.array(["t"] * len(bodies), pa.string())])
    column = pa.chunked_array([pa.array(messages, pa.binary())])
    return read_columns(column, topics, lambda schemas, rows: True, lambda *_: codec.columns())


def one_by_one(codec: AvroCodec, body: bytes) -> SchemaAndValue | str:
    try:
        return codec.decode(body, WHERE)
    except DataException as error:
        return str(error)


def check(codec: AvroCodec, bodies: Sequence[bytes]) -> list[int]:
    """Compares both ways; returns the rows that columns leave to the other way."""
    found = sorted_of(codec, bodies)
    assert found.codes is not None
    values: dict[int, object] = {}
    for code in {*found.codes.tolist()} - {-1}:
        rows = np.flatnonzero(found.codes == code)
        places: list[int] = rows.tolist()
        side, column = found.read_rows(code, rows)
        assert side.schema is not None
        assert column.type == arrow_type(side.schema, side.physical)
        for chunk in column.chunks:
            chunk.validate(full=True)
        values |= dict(zip(places, from_arrow(column, side.schema, side.physical), strict=True))
        singles = [codec.decode(bodies[row], WHERE) for row in places]
        assert {one.schema for one in singles} == {side.schema}
        expected, errors, _ = to_arrow([one.value for one in singles], side.schema)
        assert not errors
        assert column.combine_chunks().equals(expected) or str(column.to_pylist()) == str(expected.to_pylist())
    for row, value in values.items():
        single = one_by_one(codec, bodies[row])
        assert isinstance(single, SchemaAndValue)
        assert repr(value) == repr(single.value)
    return [row for row in range(len(bodies)) if row not in values]


# ------------------------------------------------------------------------------------------------------ any schema
def _number(kind: str, low: int, high: int) -> st.SearchStrategy[tuple[Any, st.SearchStrategy[Any]]]:
    return st.just((kind, st.integers(low, high)))


def _named(make: Callable[[str], tuple[Any, st.SearchStrategy[Any]]]) -> st.SearchStrategy[Any]:
    return st.uuids().map(lambda one: make(f"T{one.hex}"))


DECIMAL = {"logicalType": "decimal", "precision": 20, "scale": 3}
DIGITS = st.integers(-(10**20) + 1, 10**20 - 1).map(lambda n: n.to_bytes(9, "big", signed=True))
SCALARS = st.one_of(
    _number("int", -(2**31), 2**31 - 1),
    _number("long", -(2**63), 2**63 - 1),
    st.just(("boolean", st.booleans())),
    st.just(("float", st.floats(width=32))),
    st.just(("double", st.floats())),
    st.just(("string", st.text(max_size=20))),
    st.just(("bytes", st.binary(max_size=20))),
    st.just(({"type": "int", "logicalType": "date"}, st.integers(-(2**31), 2**31 - 1))),
    st.just(({"type": "int", "logicalType": "time-millis"}, st.integers(0, 86_400_000))),
    st.just(({"type": "long", "logicalType": "time-micros"}, st.integers(0, 86_400_000_000))),
    st.just(({"type": "long", "logicalType": "timestamp-millis"}, st.integers(-(2**63), 2**63 - 1))),
    st.just(({"type": "long", "logicalType": "timestamp-micros"}, st.integers(-(2**63), 2**63 - 1))),
    st.just(({"type": "int", "connect.type": "int8"}, st.integers(-128, 300))),
    st.just(({"type": "int", "connect.type": "int16"}, st.integers(-(2**15), 2**17))),
    st.just(({"type": "bytes", **DECIMAL}, DIGITS)),
    _named(lambda name: ({"type": "fixed", "name": name, "size": 9, **DECIMAL}, DIGITS)),
    _named(lambda name: ({"type": "fixed", "name": name, "size": 3}, st.binary(min_size=3, max_size=3))),
    _named(lambda name: ({"type": "enum", "name": name, "symbols": ["A", "B", "C"]}, st.sampled_from("ABC"))),
)


def _bare(schema: Any) -> Any:
    """A schema without logical types, as values are written here as they are on the wire."""
    if isinstance(schema, dict):
        return {name: _bare(one) for name, one in schema.items() if name != "logicalType"}
    return [_bare(one) for one in schema] if isinstance(schema, list) else schema


def _record(parts: list[Any]) -> st.SearchStrategy[Any]:
    names = [f"f{place}" for place in range(len(parts))]
    fields = [{"name": name, "type": part[0]} for name, part in zip(names, parts, strict=True)]
    values = st.fixed_dictionaries({name: part[1] for name, part in zip(names, parts, strict=True)})
    return _named(lambda name: ({"type": "record", "name": name, "fields": fields}, values))


def _records(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, min_size=1, max_size=5).flatmap(_record)


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def optional(part: Any, first: bool) -> Any:
        if isinstance(part[0], list):
            return part
        return (["null", part[0]] if first else [part[0], "null"], st.none() | part[1])

    return st.one_of(
        _records(inner),
        st.builds(optional, inner, st.booleans()),
        inner.map(lambda part: ({"type": "array", "items": part[0]}, st.lists(part[1], max_size=8))),
        inner.map(
            lambda part: ({"type": "map", "values": part[0]}, st.dictionaries(st.text(max_size=3), part[1], max_size=8))
        ),
    )


ANY = st.recursive(SCALARS, _nested, max_leaves=6)
RECORDS = _records(ANY)


@examples(20)
@given(data=st.data())
def test_any_values_are_what_they_are_one_by_one(data: st.DataObject) -> None:
    schema, values = data.draw(RECORDS)
    codec = codec_of(schema)
    assume(codec.columns() is not None)  # is not nested too deeply
    bodies = [written(_bare(schema), one) for one in data.draw(st.lists(values, min_size=1, max_size=8))]
    assert check(codec, bodies) == []


@examples(20)
@given(data=st.data())
def test_damaged_messages_are_left_and_their_neighbours_read(data: st.DataObject) -> None:
    schema, values = data.draw(RECORDS)
    good = [written(_bare(schema), one) for one in data.draw(st.lists(values, min_size=2, max_size=5))]
    codec, bodies = codec_of(schema), []
    for one in good:
        kind = data.draw(st.sampled_from(["good", "cut", "long", "byte", "varint", "any"]))
        place = data.draw(st.integers(0, len(one)))
        if kind == "cut":
            one = one[:place]
        elif kind == "long":
            one += data.draw(st.binary(min_size=1, max_size=30))
        elif kind == "byte":
            one = one[:place] + bytes([data.draw(st.integers(0, 255))]) + one[place + 1 :]
        elif kind == "varint":
            one = one[:place] + data.draw(st.sampled_from(LONG_VARINTS)) + one[place:]
        elif kind == "any":
            one = data.draw(st.binary(max_size=40))
        bodies.append(one)
    check(codec, bodies)


@pytest.mark.parametrize("kind", ["int", "long", "string", "double", "boolean", ["null", "string"], ["int", "null"]])
def test_values_that_are_no_records_are_read_as_well(kind: Any) -> None:
    values: dict[str, Any] = {"int": 1, "long": 2**40, "string": "x", "double": 0.5, "boolean": True}
    plain = next(one for one in (kind if isinstance(kind, list) else [kind]) if one != "null")
    bodies = [written(kind, values[plain])] * 3 + ([written(kind, None)] if isinstance(kind, list) else [])
    assert check(codec_of(kind), bodies) == []


# ------------------------------------------------------------------------------------------------------ one fault each
def record(*kinds: Any) -> Any:
    fields = [{"name": f"f{place}", "type": kind} for place, kind in enumerate(kinds)]
    return {"type": "record", "name": "R", "fields": fields}


STRINGS = {"type": "array", "items": "string"}
TIME = {"type": "int", "logicalType": "time-millis"}
ENUM = {"type": "enum", "name": "E", "symbols": ["A"]}


@pytest.mark.parametrize(
    ("kind", "value", "body"),
    [
        ("string", "good", b"\x08abc"),
        ("string", "good", b"\x01"),
        ("string", "good", b"\x04\xff\xfe"),
        ("string", "good", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        ("bytes", b"good", b"\x08abc"),
        ("bytes", b"good", b"\x03"),
        ("long", 5, LONG_VARINTS[0]),
        ("long", 5, LONG_VARINTS[1]),
        ("long", 5, LONG_VARINTS[2]),
        ("long", 5, b""),
        ("int", 5, b"\x80\x80\x80\x80\x80\x01"),
        ("double", 5.0, b"1234567"),
        ("float", 5.0, b"123"),
        ("boolean", True, b""),
        (["null", "long"], 5, b"\x04\x02"),
        (["null", "long"], 5, b"\x01\x02"),
        (ENUM, "A", b"\x02"),
        (ENUM, "A", b"\x01"),
        (TIME, 5, b"\x01"),
        (STRINGS, ["good"], b"\x80\x80\x80\x80\x80\x80\x80\x80\x01"),
        (STRINGS, ["good"], b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x02"),
        (STRINGS, ["good"], b"\x02\x02a"),
        ({"type": "map", "values": "int"}, {"a": 1}, b"\x04\x02a\x02\x02a\x04\x00"),
        ({"type": "fixed", "name": "X", "size": 4}, b"good", b"bad"),
    ],
)
def test_a_message_with_a_fault_is_left_and_no_other(kind: Any, value: Any, body: bytes) -> None:
    schema = record(kind, "string")
    good = written(_bare(schema), {"f0": value, "f1": "behind"})
    behind = written("string", "behind") if body.endswith(b"\x00") else b""
    assert check(codec_of(schema), [good, body + behind, good, good]) == [1]


def test_every_byte_but_one_is_false() -> None:
    codec = codec_of(record("boolean"))
    assert check(codec, [bytes([byte]) for byte in (0, 1, 5, 255)]) == []
    _, column = sorted_of(codec, [b"\x05", b"\x01"]).read_rows(0, None)
    assert column.to_pylist() == [{"f0": False}, {"f0": True}]


def test_blocks_with_their_size_and_several_blocks_are_one_array() -> None:
    # Two items with the size of the block, one without, and the end.
    body = b"\x03\x08\x02a\x02b" + b"\x02\x02c" + b"\x00"
    codec = codec_of(record(STRINGS))
    assert check(codec, [body, b"\x00", body]) == []


def test_a_count_that_a_message_only_claims_takes_no_memory() -> None:
    codec = codec_of(record(STRINGS))
    claims = written("long", 2**30) + b"\x00" * 10
    bodies = [written(record(STRINGS), {"f0": ["a"]}) for _ in range(200)]
    bodies[100] = claims
    sorted_of(codec, bodies)
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    found = sorted_of(codec, bodies)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.codes is not None
    assert np.flatnonzero(found.codes < 0).tolist() == [100]
    assert most < 2**20
    assert pa.total_allocated_bytes() - before < 2**20


def test_a_message_with_many_more_items_than_others_is_left() -> None:
    schema = record(STRINGS)
    bodies = [written(schema, {"f0": ["a"] * count}) for count in (1, 2, 5000, 3)]
    assert check(codec_of(schema), bodies) == [2]


@pytest.mark.parametrize("digits", [10**38 - 1, -(10**38) + 1, 0, -1])
@pytest.mark.parametrize("size", [16, 17])
def test_decimals_have_all_digits_of_a_column(digits: int, size: int) -> None:
    codec = codec_of(record({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 4}))
    body = written("bytes", digits.to_bytes(16, "big", signed=True))
    assert check(codec, [body, written("bytes", b"\x05")]) == []
    wide = written("bytes", (10**38).to_bytes(size, "big", signed=True))
    # A wider column than the narrowest one is for all values of a frame.
    assert check(codec, [body, wide]) == [0, 1]
    assert check(codec, [written("bytes", (-(10**38)).to_bytes(size, "big", signed=True))]) == [0]


RECURSIVE = {
    "type": "record",
    "name": "L",
    "fields": [{"name": "v", "type": "int"}, {"name": "next", "type": ["null", "L"]}],
}


@pytest.mark.parametrize(
    "schema",
    [
        record(["null", "int", "string"]),
        record({"type": "record", "name": "Empty", "fields": []}),
        record({"type": "array", "items": {"type": "fixed", "name": "None", "size": 0}}),
        record({"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 40}),
        "bytes",
    ],
)
def test_schemas_without_columns_are_read_one_by_one(schema: Any) -> None:
    assert codec_of(schema).columns() is None
    found = sorted_of(codec_of(schema), [b"\x00", b"\x02"])
    assert found.codes is not None
    assert found.codes.tolist() == [-1, -1]


def test_a_schema_that_connect_does_not_have_leaves_the_error_to_each_message() -> None:
    codec = codec_of(RECURSIVE)
    with pytest.raises(DataException, match="contains itself"):
        codec.columns()
    column, topics = pa.chunked_array([[frame(ID, b"\x00\x00")] * 2]), pa.chunked_array([["t"] * 2])
    found = read_columns(column, topics, lambda *_: True, lambda *_: codec.columns())
    assert found.codes is not None
    assert found.codes.tolist() == [-1, -1]


# ------------------------------------------------------------------------------------------------------ the whole batch
def test_messages_of_several_schemas_topics_and_kinds_find_their_columns() -> None:
    schemas = {1: record("int"), 2: record("string"), 3: record(["null", "int", "string"])}
    codecs = {number: codec_of(schema) for number, schema in schemas.items()}
    given: list[tuple[str, bytes | None]] = [
        ("a", frame(1, b"\x02")),
        ("b", frame(2, b"\x02x")),
        ("a", None),
        ("a", b"\x00\x00"),
        ("a", b'{"json": 1}'),
        ("b", frame(1, b"\x04")),
        ("a", frame(1, b"\x06")),
        ("a", frame(3, b"\x02\x02")),
        ("a", frame(2**32 - 1, b"\x02")),
        ("b", b""),
    ]
    asked: list[tuple[str, int, bytes]] = []

    def reader_of(topic: str, number: int, payload: bytes) -> Any:
        asked.append((topic, number, payload))
        if number not in codecs:
            raise DataException("no such schema")
        return codecs[number].columns()

    topics = pa.chunked_array([[topic for topic, _ in given[:4]], [topic for topic, _ in given[4:]]])
    column = pa.chunked_array([pa.array([one for _, one in given[:3]], pa.binary()), [one for _, one in given[3:]]])
    found = read_columns(column, topics, lambda schemas, rows: (schemas, rows) == (5, 10), reader_of)
    assert found.codes is not None
    assert [row for row, code in enumerate(found.codes.tolist()) if code < 0] == [3, 4, 7, 8, 9]
    assert sorted(asked) == [
        ("a", 1, b"\x02"), ("a", 3, b"\x02\x02"), ("a", 2**32 - 1, b"\x02"), ("b", 1, b"\x04"), ("b", 2, b"\x02x"),
    ]  # fmt: skip
    for row, (topic, message) in enumerate(given):
        code = int(found.codes[row])
        if code < 0:
            continue
        side, values = found.read_rows(code, np.array([row]))
        if message is None:
            assert side.absent
            continue
        single = codecs[unframe(message, topic)[0]].decode(message[5:], WHERE)
        assert repr(from_arrow(values, side.schema)) == repr([single.value])


def test_many_schemas_and_few_messages_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    codec = codec_of(record("int"))
    column, topics = pa.chunked_array([[frame(ID, b"\x02")] * 4]), pa.chunked_array([["t"] * 4])
    none = read_columns(column, topics, lambda *_: False, lambda *_: codec.columns())
    assert none.codes is not None
    assert none.codes.tolist() == [-1] * 4
    monkeypatch.setattr(wire, "MIN_ROWS", 5)
    few = read_columns(column, topics, lambda *_: True, lambda *_: codec.columns())
    assert few.codes is not None
    assert few.codes.tolist() == [-1] * 4
    assert not few.read


def test_slices_and_empty_batches_are_read() -> None:
    codec = codec_of(record("string"))
    messages = pa.array([frame(ID, written("string", str(number))) for number in range(10)], pa.binary())
    column, topics = pa.chunked_array([messages.slice(3, 4)]), pa.chunked_array([["t"] * 4])
    side, values = read_columns(column, topics, lambda *_: True, lambda *_: codec.columns()).read_rows(0, None)
    assert values.to_pylist() == [{"f0": "3"}, {"f0": "4"}, {"f0": "5"}, {"f0": "6"}]
    assert side.present
    empty = read_columns(column.slice(0, 0), topics.slice(0, 0), lambda *_: True, lambda *_: codec.columns())
    assert empty.codes is not None
    assert not len(empty.codes)


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryStandIn]:
    with RegistryStandIn() as found:
        yield found


@pytest.mark.parametrize("kind", [AvroConverter, ProtobufConverter, JsonSchemaConverter])
def test_converters_read_what_they_have_written(
    kind: Callable[[], RegistryConverter], registry: RegistryStandIn
) -> None:
    converter = kind()
    converter.configure({"schema.registry.url": registry.url}, False)
    try:
        schema: Schema = codec_of(record("int", "string")).decode(b"\x02\x02a", WHERE).schema  # type: ignore[assignment]
        value = codec_of(record("int", "string")).decode(b"\x02\x02a", WHERE).value
        data = converter.from_connect_data("t", schema, value)
        column, topics = pa.chunked_array([[data] * 3]), pa.chunked_array([["t"] * 3])
        found = converter.read_columns(column, topics, lambda *_: True)
        single = converter.to_connect_data("t", data)
        assert found.codes is not None
        if kind is JsonSchemaConverter:
            assert found.codes.tolist() == [-1] * 3
            return
        side, values = found.read_rows(0, None)
        assert side.schema == single.schema
        assert from_arrow(values, side.schema) == [single.value] * 3
    finally:
        converter.close()
