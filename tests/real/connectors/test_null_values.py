"""Nulls through columnar connectors: behind each converter and each transform, batches of nulls only and mixed ones.

What is expected is what each message or record becomes by itself, by methods that know nothing of columns.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
import pytest
from testkit.doubles.chains import consumed
from testkit.processes.schema_registry import RegistryStandIn

from penstock.api import Converter, SinkRecord, SourceFrame, SourceRecord, Transformation, ValueForm
from penstock.connectors.file import FileStreamSinkTask
from penstock.converters.string import SimpleHeaderConverter
from penstock.data import STRING_SCHEMA, Schema, SchemaBuilder
from penstock.data.text import to_java_text
from penstock.errors import ConnectException
from penstock.pipeline.batch.batches import PipelineSpec, TransformStage
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.batch.source.frame_input import frame_to_records
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.plan.jobs import SparkJobs
from penstock.pipeline.spark.session import SparkRuntime
from penstock.plugins import PluginKind, Plugins
from penstock.plugins.kinds import simple_name
from penstock.plugins.stock import STOCK

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

PLUGINS: Final = Plugins.discover()
OPTIONAL_TEXT: Final = SchemaBuilder.string().optional().build()
AFTER: Final = (
    SchemaBuilder.struct()
    .field("id", SchemaBuilder.int32().build())
    .field("after", SchemaBuilder.struct().field("a", OPTIONAL_TEXT).optional().build())
    .build()
)
ENVELOPE: Final = {
    "type": "struct",
    "optional": True,
    "fields": [
        {"field": "id", "type": "int32"},
        {
            "field": "after",
            "type": "struct",
            "optional": True,
            "fields": [{"field": "a", "type": "string", "optional": True}],
        },
    ],
}


def enveloped(payload: object) -> bytes:
    return json.dumps({"schema": ENVELOPE, "payload": payload}).encode()


ENVELOPED: Final = enveloped(None)
ROWS: Final = [{"id": 1, "after": {"a": "x"}}, {"id": 2, "after": None}, {"id": 3, "after": {"a": None}}]
#: By converter: settings, messages that it can read.
CONVERTERS: Final[dict[str, tuple[Mapping[str, str], Sequence[bytes]]]] = {
    "json.JsonConverter": ({"schemas.enable": "true"}, [*map(enveloped, ROWS), ENVELOPED]),
    "json.JsonConverter without schemas": (
        {"schemas.enable": "false"},
        [json.dumps(row).encode() for row in ROWS] + [b"null", b'"text"', b"[null]"],
    ),
    "storage.StringConverter": ({}, [b"seven", b""]),
    "converters.ByteArrayConverter": ({}, [b"\x00\x07"]),
    "converters.BooleanConverter": ({}, [b"\x01"]),
    "converters.ShortConverter": ({}, [b"\x00\x07"]),
    "converters.IntegerConverter": ({}, [b"\x00\x00\x00\x07"]),
    "converters.LongConverter": ({}, [b"\xff" * 8]),
    "converters.FloatConverter": ({}, [b"\x3f\xc0\x00\x00"]),
    "converters.DoubleConverter": ({}, [b"\x3f\xf8\x00\x00\x00\x00\x00\x00"]),
}
REGISTERED: Final = ("avro.AvroConverter", "json.JsonSchemaConverter", "protobuf.ProtobufConverter")
#: By transform of values or keys: settings with which it takes the rows above.
TRANSFORMS: Final[dict[str, Mapping[str, str]]] = {
    "Cast": {"spec": "id:string"},
    "DropHeaders": {"headers": "h"},
    "ExtractField": {"field": "after"},
    "ExtractNewRecordState": {},
    "Filter": {},
    "Flatten": {},
    "HeaderFrom": {"fields": "after", "headers": "h", "operation": "move"},
    "HoistField": {"field": "f"},
    "InsertField": {"topic.field": "t"},
    "InsertHeader": {"header": "h", "value.literal": "1"},
    "MaskField": {"fields": "id"},
    "RegexRouter": {"regex": "t", "replacement": "u"},
    "ReplaceField": {"exclude": "after"},
    "SetSchemaMetadata": {"schema.name": "n"},
    "TimestampConverter": {"field": "id", "target.type": "string", "format": "yyyy"},
    "TimestampRouter": {"timestamp.format": "yyyy"},
    "ValueToKey": {"fields": "after"},
}
#: Whole values that are null, for those that work on whole values too.
WHOLE: Final[dict[str, Mapping[str, str]]] = {
    "Cast": {"spec": "string"},
    "TimestampConverter": {"target.type": "unix", "format": "yyyy"},
    "ExtractField": {"field": "after.a", "field.syntax.version": "V2"},
}


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with RegistryStandIn() as found:
        yield found.url


def made(label: str, settings: Mapping[str, str]) -> Converter:
    name = label.partition(" ")[0]
    prefix = "io.confluent.connect." if name in REGISTERED else "org.apache.kafka.connect."
    converter: Any = PLUGINS.new(PluginKind.CONVERTER, prefix + name)
    converter.configure({**settings, "converter.type": "value"}, False)
    return converter  # type: ignore[no-any-return]


KEYS: Final = made("converters.ByteArrayConverter", {})


def transform(name: str, settings: Mapping[str, str]) -> Transformation:
    package = "io.debezium" if name == "ExtractNewRecordState" else "org.apache.kafka.connect"
    found = PLUGINS.new(PluginKind.TRANSFORMATION, f"{package}.transforms.{name}")
    assert isinstance(found, Transformation)
    found.configure(settings)
    return found


def batches(messages: Sequence[bytes]) -> Iterator[list[bytes | None]]:
    yield [None, None]
    yield [one for message in messages for one in (message, None)]


def by_itself(converter: Converter, chain: Sequence[Transformation], message: bytes | None) -> str | None:
    """What the sink writes of one message; None where it fails or is dropped."""
    try:
        schema, value = converter.to_connect_data("t", message)
        key, _ = KEYS.to_connect_data("t", None)
        record: SinkRecord | None = SinkRecord("t", 0, 0, value, value_schema=schema, key_schema=key, timestamp=5)
        for one in chain:
            record = None if record is None else one.apply(record)
    except ConnectException:
        return None
    if record is None:
        return None
    return "null" if record.value is None else to_java_text(record.value, record.value_schema)


def sunk(pipeline: SinkPipeline, values: Sequence[bytes | None], file: Path) -> list[str]:
    """What the file sink writes of a batch."""
    file.unlink(missing_ok=True)
    made = pipeline.run(consumed(values))
    task = FileStreamSinkTask()
    task.start({"file": str(file)})
    with closing(_Stopped(task)):
        for frame in made.frames or ():
            assert frame.table.column("value").type == pa.string()
            task.put(frame)
        task.flush({})
    return file.read_text().splitlines()


class _Stopped:
    def __init__(self, task: FileStreamSinkTask) -> None:
        self.close = task.stop


def sink_pipeline(
    runtime: SparkRuntime, converter: Converter, chain: Sequence[Transformation], form: ValueForm | None
) -> SinkPipeline:
    stages = [TransformStage(str(index), one) for index, one in enumerate(chain)]
    spec = PipelineSpec(KEYS, converter, SimpleHeaderConverter(), stages, value_form=form)
    return SinkPipeline(runtime, spec, SparkJobs(runtime))


def ensure_equal(
    runtime: SparkRuntime, converter: Converter, chain: Sequence[Transformation], messages: Sequence[bytes], file: Path
) -> None:
    as_text, as_columns = (
        sink_pipeline(runtime, converter, chain, form) for form in (ValueForm.TEXT, ValueForm.COLUMNS)
    )
    # Batches of nulls only are the same to both JSON converters; without a transform each converter has them.
    for values in list(batches(messages))[1 if chain and ENVELOPED in messages else 0 :]:
        expected = [text for text in (by_itself(converter, chain, one) for one in values) if text is not None]
        assert sunk(as_text, values, file) == expected
        given = as_columns.run(consumed(values))
        assert sum(frame.num_rows for frame in given.frames or ()) == len(expected)
        nulls = sum(frame.table.column("value").null_count for frame in given.frames or ())
        assert nulls == expected.count("null") or b"null" in messages


def test_every_stock_converter_and_transform_is_here() -> None:
    def names(kind: PluginKind) -> set[str]:
        return {simple_name(one.name).partition("$")[0] for one in STOCK if one.kind is kind}

    assert {label.partition(" ")[0].partition(".")[2] for label in [*CONVERTERS, *REGISTERED]} == names(
        PluginKind.CONVERTER
    )
    assert set(TRANSFORMS) == names(PluginKind.TRANSFORMATION) - {"Sql"}


@pytest.mark.parametrize("label", CONVERTERS)
def test_a_sink_of_text_writes_nulls_as_each_would_be_written(
    label: str, spark_runtime: SparkRuntime, tmp_path: Path
) -> None:
    settings, messages = CONVERTERS[label]
    ensure_equal(spark_runtime, made(label, settings), (), messages, tmp_path / "out")


@pytest.mark.parametrize("label", REGISTERED)
def test_nulls_of_registry_converters(label: str, registry: str, spark_runtime: SparkRuntime, tmp_path: Path) -> None:
    converter: Any = made(label, {"schema.registry.url": registry})
    with closing(converter):
        message = converter.from_connect_data("t", STRING_SCHEMA, "text")
        ensure_equal(spark_runtime, converter, (), [message], tmp_path / "out")


SETUPS: Final = [
    *((name, settings) for name, settings in TRANSFORMS.items()),
    *((name, settings) for name, settings in WHOLE.items()),
]
ONE_SIDED: Final = (
    *("DropHeaders", "ExtractNewRecordState", "Filter", "InsertHeader"),
    *("RegexRouter", "TimestampRouter", "ValueToKey"),
)


@pytest.mark.parametrize("schemas", ["true", "false"])
@pytest.mark.parametrize(("name", "settings"), SETUPS)
def test_nulls_in_front_of_and_behind_each_transform_on_the_way_to_a_sink(
    name: str, settings: Mapping[str, str], schemas: str, spark_runtime: SparkRuntime, tmp_path: Path
) -> None:
    label = "json.JsonConverter" if schemas == "true" else "json.JsonConverter without schemas"
    converter = made(label, CONVERTERS[label][0])
    chain = [transform(name if name in ONE_SIDED else f"{name}$Value", settings)]
    ensure_equal(spark_runtime, converter, chain, CONVERTERS[label][1], tmp_path / "out")


@pytest.mark.parametrize("name", [*(label for label in CONVERTERS), *REGISTERED])
def test_nulls_of_a_source_are_written_as_each_would_be(
    name: str, registry: str, spark_runtime: SparkRuntime, request: pytest.FixtureRequest
) -> None:
    settings = {"schema.registry.url": registry} if name in REGISTERED else CONVERTERS[name][0]
    converter = made(name, settings)
    if name in REGISTERED:
        request.addfinalizer(cast("Any", converter).close)
    pipeline = SourcePipeline(spark_runtime, PipelineSpec(converter, converter, SimpleHeaderConverter()))
    for schema in (None, OPTIONAL_TEXT):
        expected: list[object]
        try:
            expected = [converter.from_connect_data("t", schema, None)] * 3
        except ConnectException as error:
            expected = [str(error)] * 3
        table = pa.table({"key": pa.nulls(3), "value": pa.nulls(3)})
        frame = SourceFrame(table, "t", schema, {"p": 1}, {"o": 1}, key_schema=schema)
        assert written(pipeline.run(frame)) == expected
        records = [SourceRecord({}, {}, "t", None, value_schema=schema, key=None, key_schema=schema)] * 3
        assert written(pipeline.run(records)) == expected


@pytest.mark.parametrize("schema", [None, AFTER], ids=["schemaless", "typed"])
@pytest.mark.parametrize(("name", "settings"), SETUPS)
def test_nulls_in_front_of_and_behind_each_transform_on_the_way_from_a_source(
    name: str, settings: Mapping[str, str], schema: Schema | None, spark_runtime: SparkRuntime
) -> None:
    converter = made("json.JsonConverter", {"schemas.enable": "false"})
    after = pa.struct([("a", pa.string())])
    tables = [
        pa.table({"value": pa.nulls(3)}),
        pa.table({"value": pa.array([ROWS[1]] * 3, pa.struct([("id", pa.int32()), ("after", pa.null())]))}),
        pa.table({"value": pa.array([*ROWS, None], pa.struct([("id", pa.int32()), ("after", after)]))}),
    ]
    one = transform(name if name in ONE_SIDED else f"{name}$Value", settings)
    spec = PipelineSpec(converter, converter, SimpleHeaderConverter(), [TransformStage("t", one)])
    pipeline = SourcePipeline(spark_runtime, spec)
    for table in tables:
        frame = SourceFrame(table, "t", schema, {"p": 1}, {"o": 1}, timestamp=5)
        try:
            records = frame_to_records(frame, table)
        except ConnectException:
            with pytest.raises(ConnectException):
                pipeline.run(frame)
            continue
        expected = [told for record in records if (told := sent_by_itself(converter, one, record)) is not DROPPED]
        assert written(pipeline.run(frame)) == expected
        assert written(pipeline.run(records)) == expected


DROPPED: Final = object()


def sent_by_itself(converter: Converter, one: Transformation, record: SourceRecord) -> object:
    """The value that is sent of one record, or the message of its error."""
    try:
        passed = one.apply(record)
        return DROPPED if passed is None else converter.from_connect_data("t", passed.value_schema, passed.value)
    except ConnectException as error:
        return str(error)


def written(made: Any) -> list[object]:
    """The values that are sent, and the messages of errors."""
    rows = made.table.to_pylist()
    return [
        made.errors[row["seq"]].message if row["seq"] in made.errors else row["value"]
        for row in rows
        if row["seq"] in made.errors or not row["dropped"]
    ]
