"""Text for sinks that write text: short cuts give what the long way gives, for any message."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pytest

from penstock.api import ValueForm
from penstock.converters.as_json import JsonConverter
from penstock.converters.headers import SimpleHeaderConverter
from penstock.converters.json_quotes import is_plain
from penstock.converters.json_texts import MatchJsonText
from penstock.pipeline.batch.batches import CONSUMED_SCHEMA, ConsumedBatch, PipelineSpec, SinkBatch
from penstock.pipeline.batch.sink import SinkPipeline
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


def consumed(values: Sequence[bytes | None]) -> ConsumedBatch:
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
    return ConsumedBatch(pa.table(columns, schema=CONSUMED_SCHEMA))


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


def texts(
    spark_runtime: SparkRuntime,
    values: Sequence[bytes | None],
    *,
    schemas: bool,
    short: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> list[object]:
    with monkeypatch.context() as patch:
        if not short:
            patch.setattr(JsonConverter, "reading_text", lambda self, side, hint: None)
        batch = pipeline_of(spark_runtime, schemas=schemas).run(consumed(values))
    return texts_of(batch, len(values))


@pytest.mark.parametrize("schemas", [False, True])
@pytest.mark.parametrize("escapes", [False, True])
def test_a_short_cut_gives_the_text_that_parsing_gives(
    spark_runtime: SparkRuntime, schemas: bool, escapes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [one for one in PLAIN if escapes or one is None or is_plain(pa.chunked_array([[one]]))]
    values = in_envelopes(given) if schemas else given
    quick = texts(spark_runtime, values, schemas=schemas, short=True, monkeypatch=monkeypatch)
    slow = texts(spark_runtime, values, schemas=schemas, short=False, monkeypatch=monkeypatch)
    assert quick == slow
    expected = "Struct{a=one,b=1,c=true}" if schemas else "{a=one, b=1, c=true}"
    assert quick[0] == expected


def test_a_batch_without_a_common_form_is_read_all_the_same(
    spark_runtime: SparkRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [b"[1,2]", *PLAIN]
    assert texts(spark_runtime, values, schemas=False, short=True, monkeypatch=monkeypatch) == texts(
        spark_runtime, values, schemas=False, short=False, monkeypatch=monkeypatch
    )


@pytest.mark.parametrize("schemas", [False, True])
@pytest.mark.parametrize("short", [False, True])
def test_a_message_that_is_not_utf8_changes_nothing_for_the_others(
    spark_runtime: SparkRuntime, schemas: bool, short: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    utf8 = [value for value in PLAIN if value is None or _is_utf8(value)]
    values, broken = list(utf8), [*utf8, b'{"a":"\xff","b":1,"c":true}']
    if schemas:
        values, broken = in_envelopes(values), in_envelopes(broken)
    alone = texts(spark_runtime, values, schemas=schemas, short=short, monkeypatch=monkeypatch)
    beside = texts(spark_runtime, broken, schemas=schemas, short=short, monkeypatch=monkeypatch)
    assert beside[:-1] == alone
    assert beside[-1] == "org.apache.kafka.connect.errors.DataException"


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_two_ways_to_write_an_object_are_read_by_the_pattern(spark_runtime: SparkRuntime) -> None:
    values = [b'{"a":"one","b":%d}' % n if n % 2 else b'{"a": "one", "b": %d}' % n for n in range(40)]
    expected = [f"{{a=one, b={n}}}" for n in range(40)]
    pipeline = pipeline_of(spark_runtime, schemas=False)

    forms = []
    for _ in range(2):
        groups, _ = pipeline._sorted(consumed(values).table)
        steps = pipeline._quick_steps(groups)
        assert steps is not None
        forms.append(steps[-1].step)
        assert texts_of(pipeline.run(consumed(values)), len(values)) == expected

    assert [isinstance(form, MatchJsonText) and form.layout is None for form in forms] == [False, True]
