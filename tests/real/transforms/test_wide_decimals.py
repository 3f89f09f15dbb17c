"""Decimals of more digits than Spark's decimals have: no transform or converter loses one."""

from __future__ import annotations

import decimal
from typing import Any

import pytest
from testkit.doubles.chains import configured, record, stages
from tests.real.transforms.cases import NINES, schema_of, struct_of

from penstock.api import BaseTransformation, Converter
from penstock.converters.json.converter import JsonConverter
from penstock.converters.string import SimpleHeaderConverter, StringConverter
from penstock.data import Decimal
from penstock.pipeline.batch.batches import PipelineSpec, PolledBatch
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.spark.session import SparkRuntime
from penstock.transforms.field_values import MaskFieldValue
from penstock.transforms.types import CastValue

pytestmark = [pytest.mark.java, pytest.mark.slow]


def sent(runtime: SparkRuntime, batch: PolledBatch, converter: Converter, *chain: BaseTransformation) -> list[Any]:
    """The values that are sent, or the messages of errors."""
    spec = PipelineSpec(converter, converter, SimpleHeaderConverter(), stages(*chain), "wide")
    made = SourcePipeline(runtime, spec).run(batch)
    values = made.table.column("value").to_pylist()
    return [made.errors[row].message if row in made.errors else one for row, one in enumerate(values)]


def test_a_cast_gives_what_java_gives(spark_runtime: SparkRuntime) -> None:
    text = configured(JsonConverter(), {"schemas.enable": "false"})
    batch = [record(struct_of(int(NINES), 0), schema=schema_of(0))]
    expected = {"string": f'"{NINES}"', "int64": "6873995514006732799", "float64": "1.0E39", "boolean": "true"}
    for target, value in expected.items():
        cast = configured(CastValue(), {"spec": f"a:{target}"})
        assert sent(spark_runtime, batch, text, cast) == [f'{{"a":{value}}}'.encode()]
    batch = [record(struct_of(1, -50), schema=schema_of(-50))]
    cast = configured(CastValue(), {"spec": "a:boolean"})
    assert sent(spark_runtime, batch, text, cast) == [b'{"a":true}']


def test_wide_decimals_are_written_as_text_and_as_json(spark_runtime: SparkRuntime) -> None:
    wide = decimal.Decimal(NINES)
    alone = [record(wide, schema=Decimal.schema(0))]
    plain = [record({"a": wide, "b": ["{", wide]})]
    string = configured(StringConverter(), {})
    json = configured(JsonConverter(), {"schemas.enable": "false", "decimal.format": "NUMERIC"})

    assert sent(spark_runtime, alone, string) == [NINES.encode()]
    assert sent(spark_runtime, alone, json) == [NINES.encode()]
    assert sent(spark_runtime, plain, string) == [f"{{a={NINES}, b=[{{, {NINES}]}}".encode()]


def test_a_decimal_that_is_too_long_for_a_column_is_written_as_text(spark_runtime: SparkRuntime) -> None:
    values = [struct_of(10**1000, 0), struct_of(5, 0)]
    batch = [record(one, schema=schema_of(0)) for one in values]

    found = sent(spark_runtime, batch, configured(StringConverter(), {}))

    assert found == [b"Struct{a=1%s}" % (b"0" * 1000), b"Struct{a=5}"]


@pytest.mark.parametrize(
    "mask", ["12345678901234567890123456789012", "9" * 38, NINES, "-0.1234567890123456789012345678"]
)
def test_a_decimal_is_masked_with_all_digits_of_the_replacement(mask: str, spark_runtime: SparkRuntime) -> None:
    masking = configured(MaskFieldValue(), {"fields": "a", "replacement": mask})
    typed = [record(struct_of(1, 0), schema=schema_of(0))]
    plain = [record({"a": decimal.Decimal(1)})]
    string = configured(StringConverter(), {})

    assert sent(spark_runtime, typed, string, masking) == [f"Struct{{a={mask}}}".encode()]
    assert sent(spark_runtime, plain, string, masking) == [f"{{a={mask}}}".encode()]
