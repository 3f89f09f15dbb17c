"""A frame goes through a chain with a user's transform in it as its rows do one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa
import pytest

from penstock.api import BaseTransformation, ConnectRecord, Predicate, SourceFrame, Transformation
from penstock.api.transform import R
from penstock.config import ConfigDef
from penstock.converters.json.converter import JsonConverter
from penstock.converters.string import SimpleHeaderConverter
from penstock.data import STRING_SCHEMA, Schema
from penstock.pipeline.batch.batches import WIRE_HEADERS, PipelineSpec, TransformStage
from penstock.pipeline.batch.source.frame_input import frame_to_records
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.spark.session import SparkRuntime
from penstock.transforms.extraction import HoistFieldValue
from penstock.transforms.headers import InsertHeader
from penstock.transforms.predicates import Filter, RecordIsTombstone
from penstock.transforms.topics import TimestampRouter
from penstock.transforms.types import CastValue

pytestmark = [pytest.mark.java, pytest.mark.slow]

ROWS = 8
VALUES = ["1", "x", None, "4", "5", "6", "7", "bad"]


class Double(Transformation):
    """Doubles numbers; drops a five, fails for a seven."""

    def configure(self, props: Mapping[str, object]) -> None: ...

    def config(self) -> ConfigDef:
        return ConfigDef()

    def apply(self, record: R) -> R | None:
        number = cast("int", record.value)
        if number == 5:
            return None
        if number == 7:
            raise ValueError("a seven")
        return cast("R", cast("ConnectRecord", record).new_record(value=2 * number))


def stage(transform: BaseTransformation, predicate: Predicate | None = None, **settings: Any) -> TransformStage:
    transform.configure({name.replace("_", "."): value for name, value in settings.items()})
    return TransformStage("t", transform, predicate)


def chain() -> list[TransformStage]:
    return [
        stage(Filter(), RecordIsTombstone()),
        stage(CastValue(), spec="int32"),
        stage(TimestampRouter(), topic_format="${topic}-${timestamp}", timestamp_format="yyyy"),
        stage(InsertHeader(), header="added", value_literal="1"),
        stage(Double()),
        stage(HoistFieldValue(), field="number"),
    ]


def frame(schema: Schema | None, **columns: pa.Array) -> SourceFrame:
    table = pa.table({"value": pa.array(VALUES), **columns})
    return SourceFrame(table, "frames", schema, {"file": "f"}, {"position": 9}, timestamp=1_000, partition=2)


OWN_COLUMNS = {
    "key": pa.array([f"k{row}" for row in range(ROWS)]),
    "topic": pa.array(["a", "b"] * (ROWS // 2)),
    "partition": pa.array([None, *range(ROWS - 1)], pa.int32()),
    "timestamp": pa.array([row * 31_600_000_000 for row in range(ROWS)]),
    "headers": pa.array([[{"key": "h", "value": b"1"}], *[None] * (ROWS - 1)], WIRE_HEADERS),
}


@pytest.mark.parametrize("columns", [{}, OWN_COLUMNS], ids=["constants", "columns"])
@pytest.mark.parametrize("schema", [STRING_SCHEMA, None], ids=["typed", "schemaless"])
def test_rows_of_a_frame_are_the_records_they_would_be(
    schema: Schema | None, columns: Mapping[str, pa.Array], spark_runtime: SparkRuntime
) -> None:
    key, value, header = JsonConverter(), JsonConverter(), SimpleHeaderConverter()
    for converter, is_key in ((key, True), (value, False)):
        converter.configure({"schemas.enable": "false"}, is_key)
    header.configure({})
    pipeline = SourcePipeline(spark_runtime, PipelineSpec(key, value, header, chain()))
    given = frame(schema, **columns)
    if columns:
        given = replace(given, key_schema=schema)

    made = pipeline.run(given)
    by_records = pipeline.run(frame_to_records(given, given.data))

    sent = [row for row in made.table.to_pylist() if not row["dropped"]]
    assert sent == [row for row in by_records.table.to_pylist() if not row["dropped"]]
    assert [row["value"] for row in sent if row["seq"] not in made.errors] == [
        b'{"number":2}',
        b'{"number":8}',
        b'{"number":12}',
    ]
    assert {seq: (one.stage, one.exception_class, one.message) for seq, one in made.errors.items()} == {
        seq: (one.stage, one.exception_class, one.message) for seq, one in by_records.errors.items()
    }
    assert sorted(made.errors) == [1, 6, 7]
    assert made.errors[6].message == "a seven"
