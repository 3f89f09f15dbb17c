"""The converters with a schema registry in the pipelines of a source and a sink, with Spark between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from testkit.processes.schema_registry import RegistryStandIn

from penstock.api import SourceFrame, SourceRecord, ValueForm
from penstock.converters.registry import wire
from penstock.converters.registry.converters import (
    AvroConverter,
    JsonSchemaConverter,
    ProtobufConverter,
    RegistryConverter,
)
from penstock.converters.string import SimpleHeaderConverter, StringConverter
from penstock.data import INT64_SCHEMA, OPTIONAL_STRING_SCHEMA, STRING_SCHEMA, SchemaBuilder, Struct
from penstock.pipeline.batch import row_path as row_road
from penstock.pipeline.batch.batches import (
    CONSUMED_SCHEMA,
    PipelineSpec,
    SinkBatch,
    TransformStage,
    Why,
)
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.columns.records import to_arrow
from penstock.pipeline.spark.session import SparkRuntime
from penstock.transforms.field_values import InsertFieldValue

pytestmark = [pytest.mark.java, pytest.mark.slow]

USER = SchemaBuilder.struct().name("app.User").field("id", INT64_SCHEMA).field("name", OPTIONAL_STRING_SCHEMA).build()


@pytest.fixture
def registry() -> Iterator[RegistryStandIn]:
    with RegistryStandIn() as found:
        yield found


@contextmanager
def pipeline(value: RegistryConverter, registry: RegistryStandIn) -> Iterator[PipelineSpec]:
    header = SimpleHeaderConverter()
    header.configure({})
    key = StringConverter()
    key.configure({}, True)
    settings = {"schema.registry.url": registry.url, "max.retries": "0"}
    if isinstance(value, ProtobufConverter):
        # So that a null is told from an empty text.
        settings["optional.for.nullables"] = "true"
    with closing(value):
        value.configure(settings, False)
        insert = InsertFieldValue()
        insert.configure({"static.field": "origin", "static.value": "here"})
        yield PipelineSpec(key, value, header, [TransformStage("insert", insert)])


def user(number: int, name: str | None) -> SourceRecord:
    value = Struct(USER).put("id", number).put("name", name)
    return SourceRecord({}, {}, "users", value, value_schema=USER, key=str(number), key_schema=STRING_SCHEMA)


def messages(values: list[bytes | None]) -> pa.Table:
    rows = len(values)
    columns: dict[str, Any] = {
        "topic": ["users"] * rows,
        "partition": [0] * rows,
        "offset": list(range(rows)),
        "timestamp": [None] * rows,
        "timestamp_type": [-1] * rows,
        "key": [b"k"] * rows,
        "value": values,
        "headers": [None] * rows,
    }
    return pa.table([pa.array(columns[one.name], one.type) for one in CONSUMED_SCHEMA], CONSUMED_SCHEMA)


@pytest.mark.parametrize(
    ("kind", "cut"),
    [
        (AvroConverter, "cannot be read with its Avro schema app.User"),
        (JsonSchemaConverter, "Cannot read the value of topic users: The message is not JSON"),
        (ProtobufConverter, "Cannot read the value of topic users: it is no message of type User"),
    ],
)
def test_records_go_out_and_come_back_and_a_bad_one_is_its_own_error(
    spark_runtime: SparkRuntime,
    registry: RegistryStandIn,
    kind: type[AvroConverter | JsonSchemaConverter | ProtobufConverter],
    cut: str,
) -> None:
    with pipeline(kind(), registry) as spec:
        source = SourcePipeline(spark_runtime, spec)
        sink = SinkPipeline(spark_runtime, replace(spec, transforms=()))

        made = source.run([user(1, "a"), user(2, None), user(3, "c")])
        sent = made.table.column("value").to_pylist()
        read = sink.run(messages([sent[0], b'{"json": 1}', None, sent[1], sent[2][:7], b"\0\0\0\0\x63x", sent[2]]))

    assert not made.errors
    assert {one[:5] for one in sent} == {b"\0\0\0\0\1"}
    found = [None if one is None else one.value for one in read.records or ()]
    assert [one.get("origin") for one in found if isinstance(one, Struct)] == ["here"] * 3
    assert [one and one.get("name") for one in found if one is None or isinstance(one, Struct)] == [
        "a", None, None, None, None, None, "c",
    ]  # fmt: skip
    assert sorted(read.errors) == [1, 4, 5]
    assert {error.stage for error in read.errors.values()} == {"VALUE_CONVERTER"}
    assert {error.executing_class for error in read.errors.values()} == {kind.java_name}
    assert "Is it JSON?" in str(read.errors[1].message)
    assert cut in str(read.errors[4].message)
    assert "Schema 99 not found" in str(read.errors[5].message)
    # One registration, and for reading one schema with its versions; the unknown one once.
    assert len(registry.requests) == 4


def test_an_outage_makes_every_record_retriable_and_costs_one_request(
    spark_runtime: SparkRuntime, registry: RegistryStandIn
) -> None:
    with pipeline(AvroConverter(), registry) as spec:
        source = SourcePipeline(spark_runtime, spec)
        registry.status = 500
        batch = [user(number, "x") for number in range(200)]

        made = source.run(batch)
        registry.status = None

    assert {error.retriable for error in made.errors.values()} == {True}
    assert len(made.errors) == 200
    assert len(registry.requests) <= 3
    assert {error.exception_class for error in made.errors.values()} == {
        "org.apache.kafka.connect.errors.RetriableException"
    }


def rows_of(made: SinkBatch) -> object:
    """What came of a batch: records, or the rows of its frames by their offsets, and the errors."""
    errors = {
        row: (one.stage, one.executing_class, one.exception_class, one.message, one.retriable)
        for row, one in made.errors.items()
    }
    if made.records is not None:
        return [None if one is None else (repr(one.value), one.value_schema) for one in made.records], errors
    assert made.frames is not None
    pairs = {}
    for frame in made.frames:
        for row in frame.table.select(["offset", "value"]).to_pylist():
            pairs[row["offset"]] = (row["value"], frame.value_schema)
    return sorted(pairs.items(), key=lambda pair: pair[0]), errors


@pytest.mark.parametrize("form", [None, ValueForm.COLUMNS, ValueForm.TEXT])
@pytest.mark.parametrize("transformed", [True, False])
def test_messages_of_avro_in_columns_are_what_they_are_one_by_one(
    registry: RegistryStandIn,
    spark_runtime: SparkRuntime,
    monkeypatch: pytest.MonkeyPatch,
    form: ValueForm | None,
    transformed: bool,
) -> None:
    other = SchemaBuilder.struct().name("app.Other").field("text", STRING_SCHEMA).build()
    with pipeline(AvroConverter(), registry) as spec:
        spec = replace(spec, transforms=spec.transforms if transformed else [], value_form=form)
        write = spec.value_converter.from_connect_data
        users = [Struct(USER).put("id", number).put("name", None if number % 3 else "x") for number in range(300)]
        values = [write("users", USER, one) for one in users]
        values += [write("others", other, Struct(other).put("text", "few"))] * 3
        # A null, one that is cut off, one whose text is no UTF-8, one without a head, one of an unknown schema.
        values[10] = None
        values[20] = (values[20] or b"")[:5]
        values[30] = (values[30] or b"")[:-1] + b"\xff"
        values[40] = b"{}"
        values[50] = b"\x00\x00\x00\xff\xff\x02\x00"
        moved: list[Mapping[Why | None, int]] = []
        batch = messages(values)
        columns = SinkPipeline(spark_runtime, spec, moved=moved.append).run(batch)
        monkeypatch.setattr(wire, "MIN_ROWS", 1000)
        rows = SinkPipeline(spark_runtime, spec, moved=moved.append).run(batch)
    assert rows_of(columns) == rows_of(rows)
    assert columns.errors.keys() == {20, 40, 50}
    assert columns.count_dropped == rows.count_dropped
    assert moved == [{None: 296, Why.ONE_BY_ONE: 7}, {Why.ONE_BY_ONE: 302, None: 1}]


@pytest.mark.parametrize("transformed", [True, False])
@pytest.mark.parametrize("framed", [True, False])
def test_values_written_as_avro_in_columns_are_what_they_are_one_by_one(
    registry: RegistryStandIn,
    spark_runtime: SparkRuntime,
    monkeypatch: pytest.MonkeyPatch,
    transformed: bool,
    framed: bool,
) -> None:
    users = [Struct.unchecked(USER, [number, None if number % 3 else f"n{number}"]) for number in range(100)]
    users[7] = Struct.unchecked(USER, [None, "no number"])
    records = [
        SourceRecord({}, {}, "users", one, value_schema=USER, key=f"k{row}", key_schema=STRING_SCHEMA)
        for row, one in enumerate(users)
    ]
    columns = {"key": pa.array([one.key for one in records]), "value": to_arrow(users, USER)[0]}
    frame = SourceFrame(
        pa.table(columns),
        source_partition={},
        source_offset={},
        topic="users",
        key_schema=STRING_SCHEMA,
        value_schema=USER,
    )
    moved: list[Mapping[Why | None, int]] = []
    with pipeline(AvroConverter(), registry) as spec:
        spec = replace(spec, transforms=spec.transforms if transformed else [])
        at_once = SourcePipeline(spark_runtime, spec, moved=moved.append).run(frame if framed else records)
        monkeypatch.setattr(row_road, "MIN_AT_ONCE", 1000)
        alone = SourcePipeline(spark_runtime, spec, moved=moved.append).run(records)
    for name in ("topic", "key", "value"):
        assert at_once.table.column(name).to_pylist() == alone.table.column(name).to_pylist()
    assert [one.message for one in at_once.errors.values()] == [one.message for one in alone.errors.values()]
    assert at_once.errors.keys() == alone.errors.keys() == {7}
    assert at_once.table.column("key")[3].as_py() == b"k3"
    # Behind a transform the wrong one is refused before it is written.
    written = [{None: 100}, {Why.ONE_BY_ONE: 99, None: 1}]
    assert moved == (written if transformed else [{None: 99, Why.ONE_BY_ONE: 1}, {Why.ONE_BY_ONE: 100}])
