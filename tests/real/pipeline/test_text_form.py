"""Text for sinks that write text: the same for any message, whichever road it takes."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pytest

from penstock.api import ValueForm
from penstock.converters.json.converter import JsonConverter
from penstock.converters.string import SimpleHeaderConverter
from penstock.data.text import to_java_text
from penstock.errors import DataException
from penstock.pipeline.batch.batches import CONSUMED_SCHEMA, PipelineSpec, SinkBatch
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.plan import map_structs as objects
from penstock.pipeline.plan.jobs import SparkJobs
from penstock.pipeline.spark.session import SparkRuntime

pytestmark = pytest.mark.java

FIRST = b'{"a":"one","b":1,"c":true}'
#: Names whose order in a HashMap is that of the alphabet. Each message differs in one thing from what a pattern of the
#: first one takes, or just still fits it.
PLAIN = [
    FIRST,
    b'{"a":"two words, with = and {braces}","b":-12,"c":false}',
    b' { "a" : "spaced" ,\t"b" : 0 , "c" : true } ',
    b'{"a":"","b":123456789012345678,"c":true}',
    '{"a":"Grüße 日本 \U0001f600","b":1,"c":true}'.encode(),
    b'{"a":"$1 and \\\\ a backslash","b":1,"c":true}',
    b'{"a":"an \\"escape\\"","b":1,"c":true}',
    b'{"a":"one","b":-0,"c":true}',
    b'{"a":"one","b":01,"c":true}',
    b'{"a":"one","b":1.5,"c":true}',
    b'{"a":"one","b":10.0,"c":true}',
    b'{"a":"one","b":12345678901234567890,"c":true}',
    b'{"a":"one","b":"1","c":true}',
    b'{"a":null,"b":1,"c":true}',
    b'{"b":1,"a":"another order","c":true}',
    b'{"a":"one","b":1}',
    b'{"a":"one","b":1,"c":true,"d":[1,{"a":"b"}]}',
    b'{"a":"one","a":"twice","b":1,"c":true}',
    b'{"a":"one","b":1,"c":true} trailing',
    b'{"a":"one","b":1,"c":true',
    b'{"a":"raw \x01 control","b":1,"c":true}',
    b'{"a":"not \xff UTF-8","b":1,"c":true}',
    b"{a=one, b=1, c=true}",
    b'"text"',
    b"17",
    b"",
    None,
]
ENVELOPE = {
    "type": "struct",
    "optional": False,
    "fields": [
        {"field": "a", "type": "string", "optional": True},
        {"field": "b", "type": "int32", "optional": True},
        {"field": "c", "type": "boolean", "optional": True},
    ],
}


def in_envelopes(payloads: Sequence[bytes | None]) -> list[bytes | None]:
    head = b'{"schema":' + json.dumps(ENVELOPE).encode() + b',"payload":'
    return [None if payload is None else head + payload + b"}" for payload in payloads]


def consumed(values: Sequence[bytes | None]) -> pa.Table:
    rows = len(values)
    columns = {
        "topic": pa.array(["t"] * rows),
        "partition": pa.array([0] * rows, pa.int32()),
        "offset": pa.array(range(rows), pa.int64()),
        "timestamp": pa.array([1] * rows, pa.int64()),
        "timestamp_type": pa.array([0] * rows, pa.int8()),
        "key": pa.nulls(rows, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "headers": pa.nulls(rows, CONSUMED_SCHEMA.field("headers").type),
    }
    return pa.table(columns, schema=CONSUMED_SCHEMA)


def pipeline_of(spark_runtime: SparkRuntime, *, schemas: bool) -> SinkPipeline:
    key, value = JsonConverter(), JsonConverter()
    for converter, use in ((key, "key"), (value, "value")):
        converter.configure({"schemas.enable": str(schemas).lower(), "converter.type": use})
    spec = PipelineSpec(key, value, SimpleHeaderConverter(), value_form=ValueForm.TEXT)
    return SinkPipeline(spark_runtime, spec, SparkJobs(spark_runtime))


def texts_of(batch: SinkBatch, rows: int) -> list[object]:
    """What each message became: its text, or the class of its error."""
    found: list[object] = [batch.errors[row].exception_class if row in batch.errors else None for row in range(rows)]
    for frame in batch.frames or ():
        for offset, text in zip(frame.table["offset"].to_pylist(), frame.table["value"].to_pylist(), strict=True):
            found[offset] = text
    return found


def one_by_one(values: Sequence[bytes | None], *, schemas: bool) -> list[object]:
    """What each message becomes by the methods of the converter for one value."""
    converter = JsonConverter()
    converter.configure({"schemas.enable": str(schemas).lower(), "converter.type": "value"})
    found: list[object] = []
    for value in values:
        try:
            schema, read = converter.to_connect_data("t", value)
        except DataException as error:
            found.append(error.java_name)
        else:
            found.append(None if read is None else to_java_text(read, schema))
    return found


@pytest.mark.parametrize("schemas", [False, True])
@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("utf8", [False, True])
def test_each_message_is_the_text_that_it_is_by_itself(
    spark_runtime: SparkRuntime, schemas: bool, many: bool, utf8: bool
) -> None:
    given = [one for one in PLAIN if one is None or not utf8 or _is_utf8(one)]
    values: list[bytes | None] = in_envelopes(given) if schemas else list(given)
    if many:
        alike = [b'{"a":"%d","b":%d,"c":true}' % (number, number) for number in range(objects.MIN_ROWS)]
        values += in_envelopes(alike) if schemas else alike

    pipeline = pipeline_of(spark_runtime, schemas=schemas)
    expected = one_by_one(values, schemas=schemas)

    assert texts_of(pipeline.run(consumed(values)), len(values)) == expected
    assert texts_of(pipeline.run(consumed(values)), len(values)) == expected
    assert expected[0] == ("Struct{a=one,b=1,c=true}" if schemas else "{a=one, b=1, c=true}")


def test_maps_have_the_order_of_a_hash_map_however_they_are_read(spark_runtime: SparkRuntime) -> None:
    alike = [b'{"source":"%d","line":"x"}' % number for number in range(objects.MIN_ROWS)]
    odd = b'{"source":"s","line":[1.50]}'
    pipeline = pipeline_of(spark_runtime, schemas=False)

    for values in ([odd], [*alike, odd], alike[:3]):
        found = texts_of(pipeline.run(consumed(values)), len(values))
        assert found == one_by_one(values, schemas=False)
        assert all(str(text).startswith("{line=") for text in found)


def test_texts_made_in_both_ways_are_one_frame(spark_runtime: SparkRuntime) -> None:
    values = [b'{"a":"%d"}' % number if number % 3 else b"[%d]" % number for number in range(2 * objects.MIN_ROWS)]

    made = pipeline_of(spark_runtime, schemas=False).run(consumed(values))

    assert made.frames is not None
    assert [frame.num_rows for frame in made.frames] == [len(values)]
    assert texts_of(made, len(values)) == one_by_one(values, schemas=False)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
