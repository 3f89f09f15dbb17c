"""JSON messages with a schema that are read in front of the plan: what they are to the plan and one by one."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

import pytest
from testkit.doubles.chains import configured, consumed, stages

from penstock.api import SinkRecord, ValueForm
from penstock.converters.json.converter import JsonConverter
from penstock.converters.json.structs import PlainPayloads
from penstock.converters.string import SimpleHeaderConverter
from penstock.errors import DataException, SerializationException
from penstock.pipeline.batch.batches import PipelineSpec, SinkBatch
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.plan import map_structs as objects
from penstock.pipeline.spark.session import SparkRuntime
from penstock.transforms.field_values import InsertFieldValue

pytestmark = [pytest.mark.java, pytest.mark.slow]

#: Of each field what a writer makes of it, and what is not read in front of the plan.
FIELDS: list[tuple[dict[str, object], list[str], list[str]]] = [
    ({"field": "tiny", "type": "int8"}, ["0", "-9", "99"], ["100", "-0", "1.5", '"1"', "300"]),
    ({"field": "short", "type": "int16", "optional": True}, ["null", "9999", "-1"], ["32767", "1e2"]),
    ({"field": "int", "type": "int32"}, ["0", "999999999", "-5"], ["2147483648", "true"]),
    ({"field": "long", "type": "int64"}, ["0", "-999999999999999999"], ["9223372036854775807", "12345678901234567890"]),
    (
        {"field": "wide", "type": "double", "optional": True},
        ["null", "0.0", "1.0E7", "-1.25E-7", "3", "0.1", "123456789012345.12345678901234567"],
        ["-0.0", "-0", "1e5", "1.0E300", '"NaN"'],
    ),
    (
        {"field": "narrow", "type": "float"},
        ["0.1", "16777217", "1.0E10", "0.30000001192092896", "1.17549435E-38"],
        ["-0.0", "1e5"],
    ),
    ({"field": "yes", "type": "boolean"}, ["true", "false"], ["null", '"true"']),
    (
        {"field": "text", "type": "string", "optional": True},
        ["null", '""', '"ä 😀 {}},"', '"\\u00e4\\ud7ff \\u0000 \\" \\\\ \\/ \\b\\f\\n\\r\\t"'],
        ['"\\ud83d\\ude00"', "5", "{}"],
    ),
    ({"field": "given", "type": "string", "optional": True, "default": "d"}, ['"x"'], ["null"]),
    (
        {"field": "at", "type": "int64", "name": "org.apache.kafka.connect.data.Timestamp", "version": 1},
        ["0", "1700000000123", "-1"],
        ["null"],
    ),
    (
        {"field": "day", "type": "int32", "name": "org.apache.kafka.connect.data.Date", "version": 1},
        ["0", "19000"],
        ["1.0"],
    ),
    (
        {
            "field": "in",
            "type": "struct",
            "optional": True,
            "fields": [{"field": "a", "type": "int32", "optional": True}, {"field": "b", "type": "string"}],
        },
        ["null", '{"a":1,"b":"x"}', '{ "a" : null , "b" : "" }'],
        ['{"b":"x"}', '{"b":"x","a":1}', '{"a":1,"b":"x","c":1}', '{"a":1,"a":2,"b":"x"}', "[]"],
    ),
    (
        {"field": "ids", "type": "array", "optional": True, "items": {"type": "int32"}},
        ["null", "[]", "[ 1 , -5,999999999 ]"],
        ["[1.0]", "[null]", "[2147483648]", "{}", "[[1]]", "[true]"],
    ),
    (
        {"field": "tags", "type": "array", "items": {"type": "string", "optional": True}},
        ["[]", '["a",null,"],[\\u00e4 😀"]'],
        ["null", '["\\ud83d\\ude00"]', "[5]", '"a"'],
    ),
    (
        {
            "field": "parts",
            "type": "array",
            "items": {
                "type": "struct",
                "optional": True,
                "fields": [
                    {"field": "f", "type": "float", "optional": True},
                    {"field": "rows", "type": "array", "items": {"type": "array", "items": {"type": "int64"}}},
                ],
            },
        },
        ["[]", '[null,{"f":0.1,"rows":[]},{"f":null,"rows":[[],[1,2]]}]'],
        [
            '[{"rows":[]}]',
            '[{"f":1e5,"rows":[]}]',
            '[{"f":1,"rows":[null]}]',
            '[{"f":1,"rows":[[9223372036854775807]]}]',
        ],
    ),
]
SCHEMA = json.dumps({"type": "struct", "fields": [field for field, _, _ in FIELDS]})
OTHERS: list[bytes | None] = [
    None,
    b"",
    b"{",
    b"[]",
    b'{"schema":{"type":"int8"},"payload":1}',
    f'{{"schema":{SCHEMA},"payload":null}}'.encode(),
    f'{{"schema":{SCHEMA},"payload":{{}}}} x'.encode(),
]


def message(values: Sequence[str], *, envelope: bool) -> bytes:
    members = ",".join(f' "{field["field"]}": {value}' for (field, _, _), value in zip(FIELDS, values, strict=True))
    return (f'{{"schema":{SCHEMA},"payload":{{{members}}} }}\n' if envelope else f"{{{members}}}").encode()


def messages(*, envelope: bool) -> list[bytes | None]:
    choice = random.Random(7)
    made: list[bytes | None] = []
    for _ in range(200):
        made.append(message([choice.choice(plain) for _, plain, _ in FIELDS], envelope=envelope))
    for place, (_, plain, odd) in enumerate(FIELDS):
        values = [choice.choice(one) for _, one, _ in FIELDS]
        made += [message([*values[:place], one, *values[place + 1 :]], envelope=envelope) for one in [*plain, *odd]]
    made += OTHERS
    choice.shuffle(made)
    return made


def converter(settings: dict[str, object]) -> JsonConverter:
    made = JsonConverter()
    made.configure({"schemas.enable": "true", **settings}, False)
    return made


def run(
    runtime: SparkRuntime,
    settings: dict[str, object],
    values: Sequence[bytes | None],
    *,
    in_front: bool,
    transformed: bool = False,
    form: ValueForm | None = None,
) -> SinkBatch:
    chain = [configured(InsertFieldValue(), {"static.field": "new", "static.value": "v"})] if transformed else []
    spec = PipelineSpec(
        converter(settings),
        converter(settings),
        SimpleHeaderConverter(),
        stages(*chain),
        "payloads",
        value_form=form,
        nothing_beside_spark=not in_front,
    )
    return SinkPipeline(runtime, spec).run(consumed(values))


def told(record: SinkRecord | None) -> object:
    return None if record is None else (record.value_schema, repr(record.value))


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "MIN_ROWS", 1)


#: Each two of them in each combination.
@pytest.mark.parametrize(
    ("transformed", "defaults", "content"),
    [(False, "true", False), (False, "false", True), (True, "true", True), (True, "false", False)],
)
def test_messages_are_what_they_are_to_the_plan(
    transformed: bool, defaults: str, content: bool, spark_runtime: SparkRuntime
) -> None:
    settings: dict[str, object] = {"replace.null.with.default": defaults}
    if content:
        settings["schema.content"] = SCHEMA
    values = messages(envelope=not content)

    found = run(spark_runtime, settings, values, in_front=True, transformed=transformed)
    expected = run(spark_runtime, settings, values, in_front=False, transformed=transformed)

    assert found.records is not None
    assert expected.records is not None
    assert list(map(told, found.records)) == list(map(told, expected.records))
    assert {row: (one.stage, one.message) for row, one in found.errors.items()} == {
        row: (one.stage, one.message) for row, one in expected.errors.items()
    }
    assert len(found.errors) > 8


def test_messages_are_what_the_converter_makes_of_each(spark_runtime: SparkRuntime) -> None:
    values = messages(envelope=True)

    found = run(spark_runtime, {}, values, in_front=True)

    alone = converter({})
    assert found.records is not None
    for row, value in enumerate(values):
        if row in found.errors:
            with pytest.raises((DataException, SerializationException)):
                alone.to_connect_data("t", value)
        else:
            expected = alone.to_connect_data("t", value)
            assert told(found.records[row]) == (expected.schema, repr(expected.value))


def test_most_messages_are_read_in_front_of_the_plan(
    spark_runtime: SparkRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    reading = PlainPayloads.read

    def noted(self: object, *args: object) -> object:
        found = reading(self, *args)  # type: ignore[arg-type]
        read.extend(column.length() - column.null_count for _, column in found.read.values())
        return found

    monkeypatch.setattr(PlainPayloads, "read", noted)
    run(spark_runtime, {}, messages(envelope=True), in_front=True, form=ValueForm.TEXT, transformed=True)

    # Keys are read there, too.
    assert max(read) > 200
