"""Schemaless maps with keys that are no strings: their other fields are found, and nothing of the inner form shows."""

import base64
import json
from typing import cast

import pytest
from conformance.vectors.adapter import ConverterInput, PipelineAdapter
from conformance.vectors.model import Failure, Outcome, Success
from testkit.doubles.chains import Chain, configured, put, sent, stages

from penstock.api import SinkRecord, SourceRecord, Transformation
from penstock.api.transform import R
from penstock.config import ConfigDef
from penstock.data import Schema, Type
from penstock.pipeline.spark.session import SparkRuntime
from penstock.plugins import Plugins
from penstock.transforms.field_values import MaskFieldValue

pytestmark = pytest.mark.java

ODD = {1: 2, "a": 3}


def transformed(spark_runtime: SparkRuntime, cls: str, config: dict[str, str], value: object = ODD) -> Outcome:
    record = SinkRecord("t", 0, 0, value)
    return PipelineAdapter(spark_runtime, Plugins.discover()).apply_transform([record], cls, config)[0]


def written(spark_runtime: SparkRuntime, cls: str, *values: object, schema: Schema | None = None) -> list[str]:
    inputs = [ConverterInput(schema, value) for value in values]
    config = {"schemas.enable": "false"} if cls == "JsonConverter" else {}
    outcomes = PipelineAdapter(spark_runtime, Plugins.discover()).from_connect(inputs, cls, config, is_key=False)
    assert all(isinstance(one, Success) for one in outcomes), outcomes
    return [base64.b64decode(one.data["base64"]).decode() for one in outcomes if isinstance(one, Success)]


@pytest.mark.parametrize(
    ("cls", "config", "value"),
    [
        ("MaskField$Value", {"fields": "a"}, {"$map": [[1, 2], ["a", 0]]}),
        ("Cast$Value", {"spec": "a:string"}, {"$map": [[1, 2], ["a", "3"]]}),
        ("InsertField$Value", {"static.field": "b", "static.value": "x"}, {"$map": [[1, 2], ["a", 3], ["b", "x"]]}),
        ("ExtractField$Value", {"field": "a"}, 3),
    ],
)
def test_a_field_beside_other_keys_is_found(
    spark_runtime: SparkRuntime, cls: str, config: dict[str, str], value: object
) -> None:
    outcome = transformed(spark_runtime, cls, config)

    assert isinstance(outcome, Success), outcome
    assert outcome.data["record"]["value"] == value


def test_a_moved_field_leaves_the_map(spark_runtime: SparkRuntime) -> None:
    outcome = transformed(
        spark_runtime, "HeaderFrom$Value", {"fields": "a", "headers": "h", "operation": "move"}, {1: 2, "a": "secret"}
    )

    assert isinstance(outcome, Success), outcome
    assert outcome.data["record"]["headers"] == [{"key": "h", "schema": None, "value": "secret"}]
    assert outcome.data["record"]["value"] == {"$map": [[1, 2]]}


def test_a_step_that_looks_at_every_key_refuses_the_map(spark_runtime: SparkRuntime) -> None:
    outcome = transformed(spark_runtime, "ReplaceField$Value", {"exclude": "a"})

    assert isinstance(outcome, Failure)
    assert outcome.error == "ClassCastException"


def test_text_and_json_show_maps_at_any_depth(spark_runtime: SparkRuntime) -> None:
    values = [{1: {"a": {True: [1, {2: "x"}]}}}, {"a": {2: 0.5}}]

    assert written(spark_runtime, "StringConverter", *values) == ["{1={a={true=[1, {2=x}]}}}", "{a={2=0.5}}"]
    assert written(spark_runtime, "JsonConverter", *values) == ['[[1,{"a":[[true,[1,[[2,"x"]]]]]}]]', '{"a":[[2,0.5]]}']


def test_half_of_a_surrogate_pair_is_written_as_a_question_mark(spark_runtime: SparkRuntime) -> None:
    assert written(spark_runtime, "StringConverter", "a\ud83db", "c", schema=Schema(Type.STRING)) == ["a?b", "c"]


def test_a_source_masks_them_beside_other_records(spark_runtime: SparkRuntime) -> None:
    masks = configured(MaskFieldValue(), {"fields": "a"})
    values = [{"a": "secret", "n": 1}, {1: 2, "a": "secret"}, {"a": "secret", "n": {2: "a"}}]

    batch = Chain(spark_runtime, stages(masks)).source([SourceRecord(None, None, "t", one) for one in values])

    assert not batch.errors
    assert [json.loads(one) for one in sent(batch)] == [
        {"a": "", "n": 1},
        [[1, 2], ["a", ""]],
        {"a": "", "n": [[2, "a"]]},
    ]


class Renumbered(Transformation):
    """Gives each value a key that is no string."""

    def apply(self, record: R) -> R:
        value = cast("dict[object, object]", record.value)
        return cast("R", record.new_record(value={7: 1, **value}))

    def config(self) -> ConfigDef:
        return ConfigDef()


def test_a_source_masks_them_in_front_of_a_transform_in_python(spark_runtime: SparkRuntime) -> None:
    masks = configured(MaskFieldValue(), {"fields": "a"})
    values: list[object] = [{1: 2, "a": "secret"}, {"a": "secret"}, {1: 2, "a": {"b": 1}}, {2: 2}]

    batch = Chain(spark_runtime, stages(masks, Renumbered())).source(
        [SourceRecord(None, None, "t", one) for one in values]
    )

    assert not batch.errors
    assert [json.loads(one) for one in sent(batch)] == [
        [[7, 1], [1, 2], ["a", ""]],
        [[7, 1], ["a", ""]],
        [[7, 1], [1, 2], ["a", {}]],
        [[7, 1], [2, 2], ["a", None]],
    ]


def test_a_sink_masks_what_a_transform_in_python_has_made(spark_runtime: SparkRuntime) -> None:
    masks = configured(MaskFieldValue(), {"fields": "a"})
    chain = Chain(spark_runtime, stages(Renumbered(), masks))

    batch = chain.sink([b'{"a":"secret"}', b'{"a":1}', b"no json"])

    assert put(batch) == [{7: 1, "a": ""}, {7: 1, "a": 0}]
    assert set(batch.errors) == {2}
