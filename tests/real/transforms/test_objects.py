"""Schemaless maps that look alike travel as structs; what comes out must be what they are one by one."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import pytest

from penstock.api import BaseTransformation, SourceRecord, ValueForm
from penstock.converters.as_string import StringConverter
from penstock.converters.headers import SimpleHeaderConverter
from penstock.pipeline import objects
from penstock.pipeline.batches import PipelineSpec, SourceRecords
from penstock.pipeline.session import SparkRuntime
from penstock.pipeline.source import build_source_pipeline
from penstock.testing.chains import Chain, configured, record, sent, stages
from penstock.transforms.cast import CastKey, CastValue
from penstock.transforms.extract_field import ExtractFieldValue
from penstock.transforms.flatten import FlattenValue
from penstock.transforms.header_from import HeaderFromValue
from penstock.transforms.hoist_field import HoistFieldValue
from penstock.transforms.insert_field import InsertFieldValue
from penstock.transforms.mask_field import MaskFieldValue
from penstock.transforms.regex_router import RegexRouter
from penstock.transforms.replace_field import ReplaceFieldValue
from penstock.transforms.timestamp_converter import TimestampConverterValue
from penstock.transforms.value_to_key import ValueToKey

pytestmark = [pytest.mark.java, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _none_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_known", {})


SCALARS: list[object] = [
    {"z": 1, "text": 'ä "q" \\ 😀', "number": "-12", "real": 1.5, "yes": True, "at": 0, "day": "2024-02-29"},
    {"z": -(2**63), "text": "", "number": "0x", "real": -0.0, "yes": False, "at": 1_700_000_000_123, "day": "x"},
    {"z": None, "text": None, "number": None, "real": None, "yes": None, "at": None, "day": None},
    {"z": 300, "text": "true", "number": "1e3", "real": 1e300, "yes": True, "at": -1, "day": "1900-01-01"},
    {"z": 70_000, "text": "NaN", "number": "99999999999", "real": -3.99, "yes": True, "at": 2**62, "day": "2024-2-3"},
]
NESTED: list[object] = [
    {"b": {"y": 1, "x": {"deep": "a", "n": 2.5}}, "a": "t", "a.b": 1},
    {"b": {"y": None, "x": {"deep": None, "n": -1.0}}, "a": None, "a.b": 2},
]
CLASHING: list[object] = [{"a": {"b": 1}, "a.b": 2}]

_ALL = ("z", "number", "real", "yes", "no")
#: What is cast. How a large float32 prints is the JVM's affair in columns, and not in rows.
NAMES = {"int8": _ALL, "float32": ("z", "real", "yes", "no"), "boolean": _ALL, "string": _ALL}
#: What is done, and to which values.
CHAINS: dict[str, tuple[list[BaseTransformation], list[object]]] = {
    "nothing": ([configured(RegexRouter(), {"regex": "t", "replacement": "u"})], [*SCALARS, None]),
    "nothing, nested": ([configured(RegexRouter(), {"regex": "t", "replacement": "u"})], NESTED),
    **{
        f"cast to {kind}": (
            [configured(CastValue(), {"spec": ",".join(f"{name}:{kind}" for name in NAMES[kind])})],
            [*SCALARS, None],
        )
        for kind in NAMES
    },
    "cast a map": ([configured(CastValue(), {"spec": "b:string"})], NESTED),
    "mask": ([configured(MaskFieldValue(), {"fields": "z,text,real,yes,no"})], [*SCALARS, None]),
    "mask by text": ([configured(MaskFieldValue(), {"fields": "text,z,yes", "replacement": "77"})], SCALARS),
    "mask a map": ([configured(MaskFieldValue(), {"fields": "b"})], NESTED),
    "exclude": ([configured(ReplaceFieldValue(), {"exclude": "text,no"})], [*SCALARS, None]),
    "include": ([configured(ReplaceFieldValue(), {"include": "text,no", "renames": "text:z"})], SCALARS),
    "exclude all": ([configured(ReplaceFieldValue(), {"exclude": "a,b,a.b"})], NESTED),
    "rename onto another": ([configured(ReplaceFieldValue(), {"renames": "text:z"})], SCALARS),
    "to text": (
        [configured(TimestampConverterValue(), {"field": "at", "target.type": "string", "format": "yyyy-MM-dd HH:mm"})],
        [*SCALARS, None],
    ),
    "from text": (
        [configured(TimestampConverterValue(), {"field": "day", "target.type": "unix", "format": "yyyy-MM-dd"})],
        SCALARS,
    ),
    "missing moment": (
        [configured(TimestampConverterValue(), {"field": "no", "target.type": "unix", "unix.precision": "seconds"})],
        SCALARS,
    ),
    "no moment": ([configured(TimestampConverterValue(), {"field": "yes", "target.type": "unix"})], SCALARS),
    "key": (
        [configured(ValueToKey(), {"fields": "z,no,text"}), configured(CastKey(), {"spec": "z:string"})],
        [*SCALARS, None],
    ),
    "headers, copied": (
        [configured(HeaderFromValue(), {"fields": "z,no,text", "headers": "h,i,j", "operation": "copy"})],
        [*SCALARS, None],
    ),
    "headers, moved": (
        [configured(HeaderFromValue(), {"fields": "b,a", "headers": "h,i", "operation": "move"})],
        NESTED,
    ),
    "extract": ([configured(ExtractFieldValue(), {"field": "real"})], [*SCALARS, None]),
    "extract below": ([configured(ExtractFieldValue(), {"field": "b.x", "field.syntax.version": "V2"})], NESTED),
    "extract missing": ([configured(ExtractFieldValue(), {"field": "no"})], SCALARS),
    "hoist": ([configured(HoistFieldValue(), {"field": "all"}), configured(FlattenValue())], [*SCALARS, None]),
    "hoist and flatten": ([configured(HoistFieldValue(), {"field": "all"}), configured(FlattenValue())], NESTED),
    "flatten": ([configured(FlattenValue(), {"delimiter": "_"})], NESTED),
    "flatten onto another": ([configured(FlattenValue())], CLASHING),
    "insert": (
        [configured(InsertFieldValue(), {"static.field": "z", "static.value": '"é', "topic.field": "topic"})],
        [*SCALARS, None],
    ),
    "insert what may be null": (
        [configured(InsertFieldValue(), {"partition.field": "p", "timestamp.field": "t"})],
        SCALARS,
    ),
}


def results(runtime: SparkRuntime, chain: list[BaseTransformation], values: list[object]) -> list[Any]:
    """Keys, values, headers and errors of what is sent."""
    # Each combination of what a record need not have.
    times, partitions = cycle([5, None]), cycle([None, None, 1, 1])
    records = [SourceRecord({}, {}, "t", value, timestamp=next(times), partition=next(partitions)) for value in values]
    made = Chain(runtime, stages(*chain)).source(records)
    table = made.table.select(["topic", "key", "value", "headers"]).to_pylist()
    errors = {seq: (error.stage, error.exception_class, error.message) for seq, error in made.errors.items()}
    return [errors.get(row, one) for row, one in enumerate(table)]


@pytest.mark.parametrize("name", CHAINS)
def test_objects_come_out_as_they_do_one_by_one(
    name: str, spark_runtime: SparkRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain, values = CHAINS[name]
    one_by_one = results(spark_runtime, chain, values)
    monkeypatch.setattr(objects, "MIN_ROWS", 1)
    assert objects.object_array(values) is not None

    assert results(spark_runtime, chain, values) == one_by_one


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
    batch = SourceRecords([record(value) for value in [*SCALARS[:1], *SCALARS[2:], None]])
    one_by_one = build_source_pipeline(spark_runtime, spec).run(batch).table.column("value")
    monkeypatch.setattr(objects, "MIN_ROWS", 1)

    assert build_source_pipeline(spark_runtime, spec).run(batch).table.column("value") == one_by_one


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
