"""An error counts whatever becomes of the result: headers that no frame shows, keys, fields and records that go later.

What is expected is what Kafka Connect does with each message: key, value, headers, then one transform after another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pyarrow as pa
import pytest

from penstock.api import (
    BaseTransformation,
    ConnectRecord,
    Converter,
    HeaderConverter,
    Predicate,
    SinkRecord,
    SourceRecord,
    Transformation,
    ValueForm,
)
from penstock.api.transform import R
from penstock.config import ConfigDef
from penstock.data import ConnectHeaders
from penstock.errors import java_class_name
from penstock.pipeline.batch.batches import (
    CONSUMED_SCHEMA,
    PipelineSpec,
    Stage,
    TransformStage,
)
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.plan import map_structs as objects
from penstock.pipeline.spark.session import SparkRuntime
from penstock.plugins import PluginKind, Plugins

pytestmark = [pytest.mark.java, pytest.mark.slow]

PLUGINS = Plugins.discover()
CONNECT = "org.apache.kafka.connect"


class Pass(Transformation):
    """A user's transform that changes nothing."""

    def configure(self, props: Mapping[str, object]) -> None: ...

    def config(self) -> ConfigDef:
        return ConfigDef()

    def apply(self, record: R) -> R | None:
        return record


def transform(name: str, **settings: str) -> BaseTransformation:
    made: Any = PLUGINS.new(PluginKind.TRANSFORMATION, f"{CONNECT}.transforms.{name}")
    made.configure({key.replace("_", "."): value for key, value in settings.items()})
    return cast("BaseTransformation", made)


def predicate(cls: str, **settings: str) -> Predicate:
    made: Any = PLUGINS.new(PluginKind.PREDICATE, f"{CONNECT}.transforms.predicates.{cls}")
    made.configure(settings)
    return cast("Predicate", made)


def chain(*links: BaseTransformation | tuple[BaseTransformation, Predicate, bool]) -> list[TransformStage]:
    stages = []
    for index, link in enumerate(links):
        one, condition, negate = link if isinstance(link, tuple) else (link, None, False)
        stages.append(TransformStage(f"t{index}", one, condition, negate))
    return stages


def converter(name: str, *, key: bool = False, **settings: str) -> Any:
    made: Any = PLUGINS.new(PluginKind.CONVERTER, f"{CONNECT}.{name}")
    made.configure({key.replace("_", "."): value for key, value in settings.items()}, key)
    return made


CAST = transform("Cast$Value", spec="a:int32")
CHAINS: dict[str, list[TransformStage]] = {
    "nothing": [],
    "drops headers": chain(transform("DropHeaders", headers="h")),
    "drops all": chain(transform("Filter")),
    "drops tombstones": chain((transform("Filter"), predicate("RecordIsTombstone"), False)),
    "asks for a header": chain((transform("Filter"), predicate("HasHeaderKey", name="h"), False)),
    "another key": chain(transform("ValueToKey", fields="b")),
    "a field that goes": chain(CAST, transform("ReplaceField$Value", exclude="a")),
    "a value that goes": chain(CAST, transform("ExtractField$Value", field="b")),
    "a record that goes": chain(CAST, transform("Filter")),
    "a record that went": chain((transform("Filter"), predicate("RecordIsTombstone"), True), CAST),
    "a masked field": chain(CAST, transform("MaskField$Value", fields="a")),
    "a user's": chain(CAST, Pass(), transform("Filter")),
    "a user's behind": chain(transform("Filter"), Pass()),
}
VALUES = [b'{"a":"1","b":"x"}', b'{"a":"no number","b":"y"}', b"{", None, b'{"a":"2","b":"z"}', b'{"a":"","b":""}']
KEYS = [b"\0\0\0\0\0\0\0\7", b"bad", None, b"\1" * 8, b"", b"\0" * 8]
HEADERS: list[list[tuple[str, bytes | None]] | None] = [
    None,
    [("h", b"abc")],
    [("h", b"\0\0\0\1")],
    [("i", b"\0\0\0\2"), ("h", None)],
    [("i", b"")],
    [("h", b"\0\0\0\1"), ("h", b"x")],
]
ROWS = [(key, value, headers) for key in KEYS for value in VALUES for headers in HEADERS]


def consumed(rows: Sequence[tuple[Any, Any, Any]]) -> pa.Table:
    count = len(rows)
    headers = [None if one is None else [{"key": key, "value": value} for key, value in one] for _, _, one in rows]
    columns: dict[str, Sequence[object]] = {
        "topic": ["t" if index % 2 else "u" for index in range(count)],
        "partition": [0] * count,
        "offset": range(count),
        "timestamp": [5] * count,
        "timestamp_type": [0] * count,
        "key": [key for key, _, _ in rows],
        "value": [value for _, value, _ in rows],
        "headers": headers,
    }
    return pa.table([pa.array(columns[one.name], one.type) for one in CONSUMED_SCHEMA], schema=CONSUMED_SCHEMA)


def by_itself(
    row: tuple[Any, Any, Any], key: Converter, value: Converter, header: HeaderConverter, stages: list[TransformStage]
) -> object:
    """The stage and class of a message's error, or if it arrives."""
    stage = Stage.KEY_CONVERTER
    try:
        key_schema, key_value = key.to_connect_data("t", row[0])
        stage = Stage.VALUE_CONVERTER
        schema, found = value.to_connect_data("t", row[1])
        stage = Stage.HEADER_CONVERTER
        headers = ConnectHeaders()
        for name, data in row[2] or ():
            header_schema, content = header.to_connect_header("t", name, data)
            headers.add(name, content, header_schema)
        stage = Stage.TRANSFORMATION
        record: ConnectRecord = SinkRecord(
            "t", 0, 0, found, value_schema=schema, key=key_value, key_schema=key_schema, headers=headers, timestamp=5
        )
        return after(record, stages) is not None
    except Exception as error:
        return stage, java_class_name(error)


def after(record: ConnectRecord, stages: list[TransformStage]) -> ConnectRecord | None:
    for one in stages:
        if one.predicate is None or one.predicate.test(record) is not one.negate:
            made = cast("Transformation", one.transformation).apply(record)
            if made is None:
                return None
            record = made
    return record


@pytest.mark.parametrize("schemas", ["true", "false"])
@pytest.mark.parametrize("form", [None, ValueForm.COLUMNS, ValueForm.TEXT])
@pytest.mark.parametrize("name", CHAINS)
def test_each_message_for_a_sink_fails_where_it_fails_by_itself(
    name: str, form: ValueForm | None, schemas: str, spark_runtime: SparkRuntime
) -> None:
    key = converter("converters.LongConverter", key=True)
    value = converter("json.JsonConverter", schemas_enable=schemas)
    header = converter("converters.IntegerConverter")
    rows = ROWS
    if schemas == "true":
        fields = '[{"field":"a","type":"string"},{"field":"b","type":"string"}]'
        head = b'{"schema":{"type":"struct","optional":true,"fields":' + fields.encode() + b'},"payload":'
        rows = [(one, two if two is None else head + two + b"}", three) for one, two, three in ROWS]
    spec = PipelineSpec(key, value, header, CHAINS[name], value_form=form)

    made = SinkPipeline(spark_runtime, spec).run(consumed(rows))

    found: list[object] = [False] * len(rows)
    for frame in made.frames or ():
        for offset in frame.table["offset"].to_pylist():
            found[offset] = True
    for index, record in enumerate(made.records or ()):
        found[index] = record is not None
    for index, error in made.errors.items():
        assert found[index] is False
        found[index] = error.stage, error.exception_class
    assert found == [by_itself(row, key, value, header, CHAINS[name]) for row in rows]


def test_headers_of_a_large_batch_are_looked_at(spark_runtime: SparkRuntime) -> None:
    rows = [(None, b'{"a":"1"}', [("h", b"\0\0\0\1" if row % 7 else b"bad")]) for row in range(2 * objects.MIN_ROWS)]
    value = converter("json.JsonConverter", schemas_enable="false")
    spec = PipelineSpec(value, value, converter("converters.IntegerConverter"), value_form=ValueForm.TEXT)

    made = SinkPipeline(spark_runtime, spec).run(consumed(rows))

    assert sorted(made.errors) == list(range(0, len(rows), 7))
    assert {error.stage for error in made.errors.values()} == {Stage.HEADER_CONVERTER}
    assert sum(frame.num_rows for frame in made.frames or ()) == len(rows) - len(made.errors)


@pytest.mark.parametrize("schemas", ["true", "false"])
@pytest.mark.parametrize("name", CHAINS)
def test_each_record_of_a_source_fails_where_it_fails_by_itself(
    name: str, schemas: str, spark_runtime: SparkRuntime
) -> None:
    key = converter("converters.LongConverter", key=True)
    value = converter("json.JsonConverter", schemas_enable=schemas)
    header = converter("converters.IntegerConverter")
    values = [{"a": "1", "b": "x"}, {"a": "no number", "b": "y"}, None]
    given = [
        SourceRecord({}, {}, "t", one, key=key_value, headers=ConnectHeaders().add("h", content, None), timestamp=5)
        for one in values
        for key_value in (7, "text", None)
        for content in (1, "text", None)
    ]

    def alone(record: SourceRecord) -> object:
        stage = Stage.TRANSFORMATION
        try:
            one = after(record, CHAINS[name])
            if one is None:
                return False
            stage = Stage.HEADER_CONVERTER
            for entry in one.headers:
                header.from_connect_header("t", entry.key, entry.schema, entry.value)
            stage = Stage.KEY_CONVERTER
            key.from_connect_data("t", one.key_schema, one.key)
            stage = Stage.VALUE_CONVERTER
            value.from_connect_data("t", one.value_schema, one.value)
        except Exception as error:
            return stage, java_class_name(error)
        return True

    made = SourcePipeline(spark_runtime, PipelineSpec(key, value, header, CHAINS[name])).run(given)

    found: list[object] = [not dropped for dropped in made.table["dropped"].to_pylist()]
    for index, error in made.errors.items():
        found[index] = error.stage, error.exception_class
    assert found == [alone(record) for record in given]
