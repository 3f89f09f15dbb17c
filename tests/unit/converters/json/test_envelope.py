"""Messages with their schema are sorted by it, and leave what comes before the payload behind."""

from __future__ import annotations

import json

import pyarrow as pa

from penstock.converters.json.envelope import NO_MESSAGE, Envelope, Envelopes, UnreadableMessages
from penstock.data import Schema, Type
from penstock.pipeline.plan.step import Sorted

INT: bytes = b'{"type":"int32","optional":false}'
TEXT: bytes = b'{"type":"string","optional":true}'


def sorted_messages(*chunks: list[bytes | None]) -> Sorted:
    return Envelopes(10, defaults=True).sort(pa.chunked_array([pa.array(chunk, pa.binary()) for chunk in chunks]))


def hint_of(found: Sorted, row: int) -> object:
    return found.hints[0 if found.codes is None else found.codes[row]]


def rest_of(found: Sorted) -> list[bytes | None]:
    assert found.column is not None
    rest: list[bytes | None] = found.column.to_pylist()
    return rest


def test_a_batch_of_one_schema_is_one_group_of_payloads() -> None:
    found = sorted_messages([b'{"schema":%s,"payload":%d}' % (INT, number) for number in range(100)])
    assert found.codes is None
    assert found.hints == (Envelope(Schema(Type.INT32)),)
    assert rest_of(found) == [b"%d}" % number for number in range(100)]


def test_each_message_loses_the_head_that_it_has() -> None:
    spaced = b' { "schema" : %s , "payload" : 7 } ' % INT
    found = sorted_messages(
        [b'{"schema":%s,"payload":1}' % INT, None, b'{"schema":%s,"payload":"a"}' % TEXT], [spaced, b"no JSON"]
    )
    assert rest_of(found) == [b"1}", None, b'"a"}', b" 7 } ", b"no JSON"]
    assert [hint_of(found, row) for row in (0, 1, 3)] == [
        Envelope(Schema(Type.INT32)),
        NO_MESSAGE,
        Envelope(Schema(Type.INT32)),
    ]
    assert hint_of(found, 2) == Envelope(Schema(Type.STRING, optional=True))
    assert isinstance(hint_of(found, 4), UnreadableMessages)


def test_a_payload_before_its_schema_is_found_between_others() -> None:
    usual = b'{"schema":%s,"payload":1}' % INT
    turned = b'{"payload": [2, "}"] ,"schema":%s}' % INT
    found = sorted_messages([turned, usual], [usual, turned])
    assert rest_of(found) == [b'[2, "}"]}', b"1}", b"1}", b'[2, "}"]}']
    assert found.codes is None


def test_a_slice_of_a_larger_column_is_cut_where_its_own_messages_begin() -> None:
    message = b'{"schema":%s,"payload":%d}'
    column = pa.chunked_array([pa.array([message % (INT, number) for number in range(10)] + [None], pa.binary())])
    found = Envelopes(10, defaults=True).sort(column.slice(4))
    assert rest_of(found) == [*(b"%d}" % number for number in range(4, 10)), None]


def test_more_schemas_than_passes_are_cut_too() -> None:
    schemas = [json.dumps({"type": "int32", "name": f"n{number}"}).encode() for number in range(200)]
    found = sorted_messages([b'{"schema":%s,"payload":%d}' % pair for pair in zip(schemas, range(200), strict=True)])
    assert len(found.hints) == 200
    assert rest_of(found) == [b"%d}" % number for number in range(200)]
