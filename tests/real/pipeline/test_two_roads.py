"""Records of one batch that take both roads, columns and rows: they meet again in order, with what became of each."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from testkit.doubles.chains import Chain, configured, put, record, sent, stages

from penstock.api import SourceFrame, SourceRecord, Transformation, ValueForm
from penstock.api.transform import R
from penstock.config import ConfigDef
from penstock.converters.json.converter import JsonConverter
from penstock.converters.string import SimpleHeaderConverter
from penstock.data import INT32_SCHEMA, STRING_SCHEMA, SchemaBuilder, Struct
from penstock.pipeline.batch.batches import PipelineSpec, TransformStage
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.columns.records import to_arrow
from penstock.pipeline.plan import map_structs as objects
from penstock.pipeline.spark.session import SparkRuntime
from penstock.transforms.headers import InsertHeader
from penstock.transforms.predicates import Filter, RecordIsTombstone
from penstock.transforms.restructuring import ReplaceFieldValue
from penstock.transforms.topics import RegexRouter
from penstock.transforms.types import CastValue

pytestmark = pytest.mark.java

SCHEMA = SchemaBuilder.struct().field("a", INT32_SCHEMA).field("b", STRING_SCHEMA).build()


@pytest.fixture(autouse=True)
def _small_batches_look_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_known", {})
    monkeypatch.setattr(objects, "MIN_ROWS", 2)


class Seen(Transformation):
    """Notes the values that come by."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def apply(self, record: R) -> R:
        self.values.append(record.value)
        return record

    def config(self) -> ConfigDef:
        return ConfigDef()


def records() -> list[SourceRecord]:
    """Structs, and between them schemaless values of mixed kinds."""
    found: list[SourceRecord] = []
    for number in range(4):
        found.append(record(Struct(SCHEMA).put("a", number).put("b", "x"), schema=SCHEMA))
        found.append(record({"a": number, "b": [number]}))
    found.insert(3, record({"a": "no number"}))
    found.insert(5, record(None))
    return found


TO_INTEGER = {"spec": "a:int64"}


def test_a_source_sends_them_in_order(spark_runtime: SparkRuntime) -> None:
    seen = Seen()
    drop = TransformStage("drop", configured(Filter()), configured(RecordIsTombstone()))
    first = TransformStage("cast", configured(CastValue(), TO_INTEGER))
    last = TransformStage("leave", configured(ReplaceFieldValue(), {"exclude": "b"}))
    chain = Chain(spark_runtime, [first, drop, TransformStage("seen", seen), last])

    batch = chain.source(records())

    assert {seq: error.message for seq, error in batch.errors.items()} == {
        3: "Value (no number) was out of range for requested data type"
    }
    assert [json.loads(one)["a"] for one in sent(batch)] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert all(json.loads(one).keys() == {"a"} for one in sent(batch))
    assert [one.get("a") for one in seen.values] == [0, 0, 1, 1, 2, 2, 3, 3]
    dropped = batch.table.column("dropped").to_pylist()
    assert [row for row, one in enumerate(dropped) if one] == [5]


def test_a_source_sends_what_is_beside_their_values(spark_runtime: SparkRuntime) -> None:
    chain = Chain(
        spark_runtime,
        stages(
            configured(RegexRouter(), {"regex": "t", "replacement": "u"}),
            configured(InsertHeader(), {"header": "h", "value.literal": "1"}),
            configured(ReplaceFieldValue(), {"exclude": "b"}),
        ),
    )

    batch = chain.source(records())

    assert not batch.errors
    assert batch.table.column("topic").to_pylist() == ["u"] * 10
    assert batch.table.column("headers").to_pylist() == [[{"key": "h", "value": b"1"}]] * 10


def test_a_sink_gets_them_in_order(spark_runtime: SparkRuntime) -> None:
    alike = [b'{"a": %d}' % number for number in range(4)]
    messages = [*alike, b'{"a": 1, "b": [1]}', b"no json", None, *alike, b'["a"]']
    chain = Chain(spark_runtime, stages(configured(CastValue(), {"spec": "a:string"})))

    batch = chain.sink(messages)

    assert put(batch) == [
        *({"a": str(number)} for number in range(4)), {"a": "1", "b": [1]}, None,
        *({"a": str(number)} for number in range(4)),
    ]  # fmt: skip
    assert set(batch.errors) == {5, 11}


@pytest.mark.parametrize("form", ValueForm)
def test_a_frame_of_mixed_values_has_what_transforms_made_beside_them(
    form: ValueForm, spark_runtime: SparkRuntime
) -> None:
    chain = Chain(
        spark_runtime,
        stages(
            configured(RegexRouter(), {"regex": "t", "replacement": "u"}),
            configured(InsertHeader(), {"header": "h", "value.literal": "1"}),
            configured(CastValue(), {"spec": "a:string"}),
        ),
    )

    batch = chain.sink([b'{"a": 1, "b": [1]}', b'{"a": 2.5}'], form=form)

    assert batch.frames is not None
    table = batch.frames[0].table
    values = table["value"].to_pylist() if form is ValueForm.TEXT else batch.frames[0].objects()
    objects: list[object] = [{"a": "1", "b": [1]}, {"a": "2.5"}]
    assert values == (["{a=1, b=[1]}", "{a=2.5}"] if form is ValueForm.TEXT else objects)
    assert table["topic"].to_pylist() == ["u", "u"]
    assert table["headers"].to_pylist() == [[{"key": "h", "value": b"1"}]] * 2


def test_a_source_frame_with_variant_is_sent_row_by_row(spark_runtime: SparkRuntime) -> None:
    values: list[object] = [{"b": 1, "a": [1]}, "text", None, 1.5]
    column, errors, _ = to_arrow(values, None)
    assert not errors
    converter = JsonConverter()
    converter.configure({"schemas.enable": "false"}, False)
    pipeline = SourcePipeline(spark_runtime, PipelineSpec(converter, converter, SimpleHeaderConverter()))
    table = pa.table({"value": column})
    frame = SourceFrame(table, topic="t", value_schema=None, source_partition={"p": "1"}, source_offset={"o": 1})

    batch = pipeline.run(frame)

    assert batch.table.column("value").to_pylist() == [b'{"a":[1],"b":1}', b'"text"', None, b"1.5"]
