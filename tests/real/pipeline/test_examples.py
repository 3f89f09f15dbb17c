"""The transform and the converter of the documentation, in the pipeline of a task, beside Spark's columns."""

from __future__ import annotations

import pyarrow as pa
import pytest
from examples.csv_converter import CsvConverter
from examples.mask_transform import Mask

from penstock.api import SourceRecord
from penstock.converters.string import SimpleHeaderConverter, StringConverter
from penstock.data import INT32_SCHEMA, STRING_SCHEMA, SchemaBuilder, Struct
from penstock.pipeline.batch.batches import CONSUMED_SCHEMA, PipelineSpec, TransformStage
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.spark.session import SparkRuntime
from penstock.transforms.field_values import InsertFieldValue

pytestmark = [pytest.mark.java, pytest.mark.slow]

PERSON = SchemaBuilder.struct().field("id", INT32_SCHEMA).field("card", STRING_SCHEMA).build()


def spec(*transforms: TransformStage) -> PipelineSpec:
    key, header = StringConverter(), SimpleHeaderConverter()
    key.configure({}, True)
    header.configure({})
    return PipelineSpec(key, CsvConverter(), header, transforms, "c", 0, None)


def test_they_work_before_and_behind_a_stock_transform(spark_runtime: SparkRuntime) -> None:
    mask, insert = Mask(), InsertFieldValue()
    mask.configure({"field": "card"})
    insert.configure({"static.field": "origin", "static.value": "shop"})
    pipeline = SourcePipeline(spark_runtime, spec(TransformStage("mask", mask), TransformStage("insert", insert)))
    values = [Struct(PERSON).put("id", 1).put("card", "1234567890"), "no card"]

    batch = pipeline.run(
        [
            SourceRecord(None, None, "t", value, value_schema=schema)
            for value, schema in zip(values, (PERSON, STRING_SCHEMA), strict=True)
        ]
    )

    assert batch.table.column("value").to_pylist() == [b"1,******7890,shop", None]
    assert {seq: error.stage for seq, error in batch.errors.items()} == {1: "TRANSFORMATION"}


def test_messages_are_read_with_them(spark_runtime: SparkRuntime) -> None:
    pipeline = SinkPipeline(spark_runtime, spec())
    rows = [
        {"topic": "t", "partition": 0, "offset": offset, "timestamp_type": -1, "value": value}
        for offset, value in enumerate([b"a,b", b"\xff", None])
    ]

    batch = pipeline.run(pa.Table.from_pylist(rows, schema=CONSUMED_SCHEMA))

    assert batch.records is not None
    assert [None if record is None else record.value for record in batch.records] == [["a", "b"], None, None]
    assert set(batch.errors) == {1}
