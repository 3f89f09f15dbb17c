"""Schemaless maps that look alike travel as structs; what comes out must be what they are one by one."""

from __future__ import annotations

import pytest
from testkit.doubles.chains import Chain, configured, record, sent, stages
from tests.real.transforms.cases import SCALARS

from penstock.api import ValueForm
from penstock.converters.string import SimpleHeaderConverter, StringConverter
from penstock.pipeline.batch.batches import PipelineSpec
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.plan import map_structs as objects
from penstock.pipeline.spark.session import SparkRuntime
from penstock.transforms.field_values import InsertFieldValue
from penstock.transforms.topics import RegexRouter
from penstock.transforms.types import CastValue

pytestmark = [pytest.mark.java, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _none_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_known", {})


def test_a_large_batch_with_other_maps_in_it_goes_one_by_one_and_comes_out_alike(spark_runtime: SparkRuntime) -> None:
    values: list[object] = [{"b": number, "a": "t"} for number in range(objects.MIN_ROWS)]
    chain = Chain(spark_runtime, stages(configured(CastValue(), {"spec": "b:string"})))

    alike = sent(chain.source([record(value) for value in values]))
    mixed = sent(chain.source([record(value) for value in [*values, {"a": 1}]]))

    assert alike == [b'{"a":"t","b":"%d"}' % number for number in range(objects.MIN_ROWS)]
    assert mixed == [*alike, b'{"a":1,"b":null}']


ALIKE = [
    b'{"n": %d, "real": %s, "text": "%s", "yes": true, "in": {"b": 1, "a": 2}}' % (n, real, text)
    for n, real, text in [
        (0, b"0.0", "ä 😀".encode()),
        (-(10**17), b"-0.5", b"{},:"),
        (5, b"123456789012345.12345678901234567", b""),
        (7, b"0.1", b'\\u00e4\\ud7ff \\u0000 \\" \\\\ \\/ \\b\\f\\n\\r\\t'),
    ]
]
OTHERS = [
    b'{"n": 1, "real": 1.5, "text": "\\ud83d", "yes": true, "in": {"b": 1, "a": 2}}',
    b'{"n": 1, "real": 1.5, "text": "\\ud83d\\ude00", "yes": true, "in": {"b": 1, "a": 2}}',
    b'{"n": 1.0, "real": 1.5, "text": "", "yes": true, "in": {"b": 1, "a": 2}}',
    b'{"n": 1, "real": -0.0, "text": "", "yes": true, "in": {"b": 1, "a": 2}}',
    b'{"n": 9223372036854775808, "real": 1.5, "text": "", "yes": true, "in": {"b": 1, "a": 2}}',
    b'{"n": 1, "real": 1.5, "text": "", "yes": true, "in": null}',
    b"[]",
    b"{",
]


@pytest.mark.parametrize("messages", [[*ALIKE, None], *([*ALIKE, one] for one in OTHERS)])
def test_messages_that_look_alike_are_read_as_any_others(
    messages: list[bytes | None], spark_runtime: SparkRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = Chain(spark_runtime, stages(configured(RegexRouter(), {"regex": "t", "replacement": "u"})))
    expected = chain.sink(messages)
    monkeypatch.setattr(objects, "MIN_ROWS", 1)
    found = chain.sink(messages)

    assert found.records == expected.records
    assert {row: one.message for row, one in found.errors.items()} == {
        row: one.message for row, one in expected.errors.items()
    }


def test_the_text_of_an_object_is_that_of_a_map_alone(
    spark_runtime: SparkRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = StringConverter()
    text.configure({}, False)
    spec = PipelineSpec(text, text, SimpleHeaderConverter())
    batch = [record(value) for value in [*SCALARS[:1], *SCALARS[2:], None]]
    one_by_one = SourcePipeline(spark_runtime, spec).run(batch).table.column("value")
    monkeypatch.setattr(objects, "MIN_ROWS", 1)

    assert SourcePipeline(spark_runtime, spec).run(batch).table.column("value") == one_by_one


def test_messages_of_several_kinds_in_one_batch_keep_their_order(
    spark_runtime: SparkRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [
        one
        for number in range(40)
        for one in (b'{"a": %d}' % number, b'{"b": "%d", "c": null}' % number, OTHERS[number % len(OTHERS)])
    ]
    chain = Chain(spark_runtime, stages(configured(CastValue(), {"spec": "a:string,b:int64"})))
    expected = chain.sink(messages)
    monkeypatch.setattr(objects, "MIN_ROWS", 10)
    found = chain.sink([*messages, b'{"b": "1", "c": 1}'])

    assert found.records is not None
    assert found.records[:-1] == expected.records
    assert {row: one.message for row, one in found.errors.items()} == {
        row: one.message for row, one in expected.errors.items()
    }


def test_messages_of_several_kinds_end_in_one_frame(
    spark_runtime: SparkRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "MIN_ROWS", 10)
    messages = [one for number in range(20) for one in (b'{"a": %d}' % number, b'{"b": 1}', b'{"c": []}')]
    chain = Chain(spark_runtime, stages(configured(InsertFieldValue(), {"static.field": "z", "static.value": "s"})))

    found = chain.sink(messages, form=ValueForm.TEXT)

    assert found.frames is not None
    assert [frame.table.column("value").to_pylist() for frame in found.frames] == [
        [one for number in range(20) for one in (f"{{a={number}, z=s}}", "{b=1, z=s}", "{c=[], z=s}")]
    ]
