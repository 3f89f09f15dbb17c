"""What is known of required values makes smaller plans, and no other results."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from testkit.doubles.chains import configured, stages

from penstock.api import BaseTransformation, SourceFrame
from penstock.converters.json.converter import JsonConverter
from penstock.converters.string import SimpleHeaderConverter
from penstock.data import STRING_SCHEMA, SchemaBuilder
from penstock.pipeline.batch.batches import PipelineSpec
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.columns.json_text import JsonText
from penstock.pipeline.columns.layout import default_physical
from penstock.pipeline.plan import step
from penstock.pipeline.plan.jobs import SparkJobs
from penstock.pipeline.spark.session import SparkRuntime
from penstock.transforms.extraction import ExtractFieldValue, HoistFieldValue
from penstock.transforms.field_values import InsertFieldValue, MaskFieldValue
from penstock.transforms.headers import HeaderFromValue
from penstock.transforms.restructuring import FlattenValue, ReplaceFieldValue, ValueToKey
from penstock.transforms.timestamp_converter import TimestampConverterValue
from penstock.transforms.types import CastValue, SetSchemaMetadataValue

pytestmark = [pytest.mark.java, pytest.mark.slow]

INNER = SchemaBuilder.struct().field("text", SchemaBuilder.string().build()).optional().build()
OUTER = (
    SchemaBuilder.struct()
    .field("plain", SchemaBuilder.string().build())
    .field("some", SchemaBuilder.string().optional().build())
    .field("instead", SchemaBuilder.string().default_value("d").build())
    .field("inner", INNER)
    .field("list", SchemaBuilder.array(SchemaBuilder.int32().build()).build())
    .build()
)
WHOLE = {"plain": "p", "some": None, "instead": "i", "inner": {"text": "t"}, "list": [1, 2]}
#: Rows with a null each, in what is required and in what is not.
ROWS: dict[str, dict[str, Any] | None] = {
    "whole": WHOLE,
    "null": None,
    "plain": {**WHOLE, "plain": None},
    "instead": {**WHOLE, "instead": None},
    "inner": {**WHOLE, "inner": None},
    "inner text": {**WHOLE, "inner": {"text": None}},
    "list": {**WHOLE, "list": None},
    "element": {**WHOLE, "list": [1, None]},
}
CHAINS: dict[str, list[BaseTransformation]] = {
    "none": [],
    "hoist": [configured(HoistFieldValue(), {"field": "it"})],
    "insert": [configured(InsertFieldValue(), {"static.field": "new", "static.value": "v", "topic.field": "from!"})],
    "insert time": [configured(InsertFieldValue(), {"timestamp.field": "at!", "partition.field": "part!"})],
    "replace": [configured(ReplaceFieldValue(), {"exclude": "list"})],
    "extract": [configured(ExtractFieldValue(), {"field": "inner"})],
    "extract and hoist": [
        configured(ExtractFieldValue(), {"field": "inner"}),
        configured(HoistFieldValue(), {"field": "it"}),
    ],
    "flatten": [configured(ReplaceFieldValue(), {"exclude": "list"}), configured(FlattenValue())],
    "metadata": [configured(SetSchemaMetadataValue(), {"schema.name": "it"})],
    "cast": [configured(CastValue(), {"spec": "instead:boolean"})],
    "mask": [configured(MaskFieldValue(), {"fields": "plain", "replacement": "*"})],
    "time": [configured(TimestampConverterValue(), {"field": "plain", "target.type": "unix", "format": "'p'"})],
    "header": [configured(HeaderFromValue(), {"fields": "some", "headers": "some", "operation": "move"})],
    "key": [configured(ValueToKey(), {"fields": "plain,inner"})],
    "two": [
        configured(MaskFieldValue(), {"fields": "plain", "replacement": "*"}),
        configured(ReplaceFieldValue(), {"renames": "plain:other"}),
    ],
}


@pytest.mark.parametrize(("schemas", "defaults"), [("true", "true"), ("false", "false")])
def test_results_are_the_same_where_nothing_is_known(
    schemas: str, defaults: str, spark_runtime: SparkRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = SparkJobs(spark_runtime)
    batches: list[list[dict[str, Any] | None]] = [[WHOLE, WHOLE], [WHOLE, ROWS["inner text"]], [*ROWS.values()]]
    # What defaults do to messages without schemas is the same whatever is known.
    for name, chain in list(CHAINS.items())[:: 1 if schemas == "true" else 3]:
        json = configured(JsonConverter(), {"schemas.enable": schemas, "replace.null.with.default": defaults})
        spec = PipelineSpec(json, json, SimpleHeaderConverter(), stages(*chain), "required")
        known = [results(SourcePipeline(spark_runtime, spec, jobs), rows) for rows in batches]
        with monkeypatch.context() as patch:
            patch.setattr(step, "has_all_required", lambda *_: False)
            unknown = [results(SourcePipeline(spark_runtime, spec, jobs), rows) for rows in batches]

        assert known == unknown, name


def test_a_null_number_in_an_array_does_not_fail_a_large_batch(spark_runtime: SparkRuntime) -> None:
    json = configured(JsonConverter(), {"schemas.enable": "false"})
    spec = PipelineSpec(json, json, SimpleHeaderConverter(), (), "required")

    written = results(SourcePipeline(spark_runtime, spec), [WHOLE, ROWS["element"]] * 2000)

    assert [isinstance(text, str) for text in written] == [False, True] * 2000


def test_a_null_in_a_required_field_is_the_error_of_its_record(spark_runtime: SparkRuntime) -> None:
    json = configured(JsonConverter(), {"schemas.enable": "false"})
    spec = PipelineSpec(json, json, SimpleHeaderConverter(), (), "required")

    written = results(SourcePipeline(spark_runtime, spec), list(ROWS.values()))

    wrong = {name for name, text in zip(ROWS, written, strict=True) if isinstance(text, str)}
    assert wrong == {"null", "plain", "inner text", "list", "element"}


def test_nothing_is_checked_in_values_that_are_known_to_be_whole(spark_runtime: SparkRuntime) -> None:
    spark_runtime.session()
    schema = SchemaBuilder.struct().field("line", STRING_SCHEMA).build()
    value, layout = F.col("value"), default_physical(schema)

    assert JsonText(complete=True).problem(value, schema, layout, present=True) is None
    assert JsonText(complete=True).problem(value, schema, layout) is not None
    assert JsonText().problem(value, schema, layout, present=True) is not None


def results(pipeline: SourcePipeline, rows: list[dict[str, Any] | None]) -> list[Any]:
    """Keys and values that are sent, or the message of the error."""
    kind = pa.struct(
        [
            ("plain", pa.string()),
            ("some", pa.string()),
            ("instead", pa.string()),
            ("inner", pa.struct([("text", pa.string())])),
            ("list", pa.list_(pa.int32())),
        ]
    )
    made = pipeline.run(
        SourceFrame(
            data=pa.table({"value": pa.array(rows, kind)}),
            topic="t",
            value_schema=OUTER,
            source_partition={},
            source_offset={},
        )
    )
    errors = {seq: error.message for seq, error in made.errors.items()}
    return [errors.get(row, one) for row, one in enumerate(made.table.select(["key", "value"]).to_pylist())]
