"""The examples of ``docs/transforms.md`` and ``docs/converters.md`` run, and give what the pages show."""

from __future__ import annotations

import pytest
from tools.reference.examples import (
    ConverterExample,
    TransformExample,
    converter_examples,
    transform_examples,
)
from tools.reference.running import convert, run_chain

from penstock.pipeline.spark.session import SparkRuntime
from penstock.plugins import Plugins

pytestmark = [pytest.mark.java, pytest.mark.slow]

PLUGINS = Plugins.discover()


def name_of(example: TransformExample | ConverterExample) -> str:
    return f"{example.of}: {example.title}"


@pytest.mark.parametrize("example", transform_examples(), ids=name_of)
def test_a_chain_makes_of_the_records_what_the_page_says(
    example: TransformExample, spark_runtime: SparkRuntime
) -> None:
    assert run_chain(spark_runtime, PLUGINS, example) == example.result


@pytest.mark.parametrize("example", converter_examples(), ids=name_of)
def test_a_converter_writes_and_reads_what_the_page_says(
    example: ConverterExample, spark_runtime: SparkRuntime
) -> None:
    written, read = convert(spark_runtime, PLUGINS, example)

    assert written == (None if example.value is None else example.message)
    expected = example.value if example.read is None else example.read
    assert read == (None if example.fails else " ".join((expected or "").split()))
