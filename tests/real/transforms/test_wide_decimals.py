"""Decimals of more digits than Spark's decimals have: no transform or converter loses one."""

from __future__ import annotations

import decimal
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN
from typing import Any

import pytest

from penstock.api import BaseTransformation, Converter
from penstock.converters.as_json import JsonConverter
from penstock.converters.as_string import StringConverter
from penstock.converters.headers import SimpleHeaderConverter
from penstock.data import Decimal, Schema, SchemaBuilder, Struct
from penstock.pipeline.batches import PipelineSpec, SourceRecords
from penstock.pipeline.jobs import SparkJobs
from penstock.pipeline.session import SparkRuntime
from penstock.pipeline.source import SourcePipeline
from penstock.testing.chains import configured, record, stages
from penstock.transforms.cast import CastValue
from penstock.transforms.mask_field import MaskFieldValue

pytestmark = [pytest.mark.java, pytest.mark.slow]

EXACT = decimal.Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
DIGITS = [0, 7, -7, 10**38 - 1, 10**38, -(10**38), 10**39 - 1, -(10**45), 2**255, -(2**255), 10**1000 - 1]
NINES = "9" * 39


def schema_of(scale: int) -> Schema:
    return SchemaBuilder.struct().field("a", Decimal.schema(scale)).build()


def struct_of(digits: int, scale: int) -> Struct:
    return Struct(schema_of(scale)).put("a", decimal.Decimal(digits).scaleb(-scale, EXACT))


def sent(
    runtime: SparkRuntime, batch: SourceRecords, converter: Converter, *chain: BaseTransformation, alone: bool = False
) -> list[Any]:
    """The values that are sent, or the messages of errors: from columns, or record by record."""
    spec = PipelineSpec(converter, converter, SimpleHeaderConverter(), stages(*chain), "wide", without_spark=alone)
    made = SourcePipeline(spec, SparkJobs(runtime)).run(batch)
    values = made.table.column("value").to_pylist()
    return [made.errors[row].message if row in made.errors else one for row, one in enumerate(values)]


@pytest.mark.parametrize("target", ["string", "int8", "int32", "int64", "float32", "float64", "boolean"])
def test_a_cast_looks_at_every_digit(target: str, spark_runtime: SparkRuntime) -> None:
    text = configured(JsonConverter(), {"schemas.enable": "false"})
    for scale in (0, 2, 45, -3, -50, -70):
        batch = SourceRecords([record(struct_of(one, scale), schema=schema_of(scale)) for one in DIGITS])
        cast = configured(CastValue(), {"spec": f"a:{target}"})

        found = sent(spark_runtime, batch, text, cast)

        assert found == sent(spark_runtime, batch, text, cast, alone=True), scale
        assert b'{"a":null}' not in found


def test_a_cast_gives_what_java_gives(spark_runtime: SparkRuntime) -> None:
    text = configured(JsonConverter(), {"schemas.enable": "false"})
    batch = SourceRecords([record(struct_of(int(NINES), 0), schema=schema_of(0))])
    expected = {"string": f'"{NINES}"', "int64": "6873995514006732799", "float64": "1.0E39", "boolean": "true"}
    for target, value in expected.items():
        cast = configured(CastValue(), {"spec": f"a:{target}"})
        assert sent(spark_runtime, batch, text, cast) == [f'{{"a":{value}}}'.encode()]
    batch = SourceRecords([record(struct_of(1, -50), schema=schema_of(-50))])
    cast = configured(CastValue(), {"spec": "a:boolean"})
    assert sent(spark_runtime, batch, text, cast) == [b'{"a":true}']


def test_wide_decimals_are_written_as_text_and_as_json(spark_runtime: SparkRuntime) -> None:
    wide = decimal.Decimal(NINES)
    alone = SourceRecords([record(wide, schema=Decimal.schema(0))])
    plain = SourceRecords([record({"a": wide, "b": ["{", wide]})])
    string = configured(StringConverter(), {})
    json = configured(JsonConverter(), {"schemas.enable": "false", "decimal.format": "NUMERIC"})

    assert sent(spark_runtime, alone, string) == [NINES.encode()]
    assert sent(spark_runtime, alone, json) == [NINES.encode()]
    assert sent(spark_runtime, plain, string) == [f"{{a={NINES}, b=[{{, {NINES}]}}".encode()]


def test_a_decimal_that_is_too_long_for_a_column_is_written_as_text(spark_runtime: SparkRuntime) -> None:
    values = [struct_of(10**1000, 0), struct_of(5, 0)]
    batch = SourceRecords([record(one, schema=schema_of(0)) for one in values])

    found = sent(spark_runtime, batch, configured(StringConverter(), {}))

    assert found == [b"Struct{a=1%s}" % (b"0" * 1000), b"Struct{a=5}"]


@pytest.mark.parametrize(
    "mask", ["12345678901234567890123456789012", "9" * 38, NINES, "-0.1234567890123456789012345678"]
)
def test_a_decimal_is_masked_with_all_digits_of_the_replacement(mask: str, spark_runtime: SparkRuntime) -> None:
    masking = configured(MaskFieldValue(), {"fields": "a", "replacement": mask})
    typed = SourceRecords([record(struct_of(1, 0), schema=schema_of(0))])
    plain = SourceRecords([record({"a": decimal.Decimal(1)})])
    string = configured(StringConverter(), {})

    assert sent(spark_runtime, typed, string, masking) == [f"Struct{{a={mask}}}".encode()]
    assert sent(spark_runtime, plain, string, masking) == [f"{{a={mask}}}".encode()]
