"""Which JSON messages look alike, so that they can be read as typed columns."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from penstock.converters.json_objects import AlikeObjects, ObjectMessages
from penstock.data import Type
from penstock.pipeline import objects
from penstock.pipeline.objects import members_of
from penstock.pipeline.types import TextBound

FIRST = b'{"n": 1, "real": 1.5, "text": "a", "yes": true, "in": {"b": 1}}'


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "MIN_ROWS", 1)


def found(*messages: bytes | None) -> ObjectMessages | None:
    return AlikeObjects().find(pa.chunked_array([pa.array(messages, pa.binary())]))


def test_members_are_typed_and_in_the_order_of_variant() -> None:
    alike = found(FIRST, b'{"n":-7,"real":-0.5,"text":"","yes":null,"in":{"b":0}}')

    assert alike is not None
    assert {name: one.schema.type for name, one in members_of(alike.side).items()} == {
        "in": Type.STRUCT,
        "n": Type.INT64,
        "real": Type.FLOAT64,
        "text": Type.STRING,
        "yes": Type.BOOLEAN,
    }
    assert list(members_of(alike.side)) == ["in", "n", "real", "text", "yes"]
    assert alike.side.present


def test_messages_without_value_are_among_them() -> None:
    alike = found(FIRST, None)

    assert alike is not None
    assert not alike.side.present


@pytest.mark.parametrize(
    ("text", "bound"),
    [("a", TextBound.CLEAN), ("\\n", TextBound.BMP), ("\\u0041\\uffff", TextBound.BMP), ("😀", TextBound.ANY)],
)
def test_what_is_known_of_their_text(text: str, bound: TextBound) -> None:
    alike = found(FIRST, FIRST.replace(b'"a"', f'"{text}"'.encode()))

    assert alike is not None
    assert members_of(alike.side)["text"].physical.text is bound


def test_they_are_read_as_json_reads_them() -> None:
    messages = [
        FIRST,
        None,
        b' {"n" : -7 ,\n"real":-0.5,"text":"\\u00e4\\t\\"\\u0000\\\\","yes":null,"in":{"b":0}}\r\n',
        '{"n":999999999999999999,"real":123456789012345.12345678901234567,"text":"😀","yes":false,"in":{"b":0}}'.encode(),
        b'{"n":null,"real":null,"text":null,"yes":null,"in":{"b":null}}',
    ]
    column = pa.chunked_array([pa.array(messages[:2], pa.binary()), pa.array(messages[2:], pa.binary())])
    finder = AlikeObjects()
    alike = finder.find(column)

    assert alike is not None
    assert finder.read(column, alike).to_pylist() == [None if one is None else json.loads(one) for one in messages]


@pytest.mark.parametrize(
    "other",
    [
        FIRST.replace(b'"n": 1', b'"n": 1.0'),
        FIRST.replace(b'"n": 1', b'"n": -0'),
        FIRST.replace(b'"n": 1', b'"n": 9223372036854775808'),
        FIRST.replace(b"1.5", b"-0.0"),
        FIRST.replace(b"1.5", b"1e5"),
        FIRST.replace(b"1.5", b"1"),
        FIRST.replace(b'"a"', b'"\\x"'),
        FIRST.replace(b'"a"', b'"\\ud83d"'),
        FIRST.replace(b'"a"', b'"\n"'),
        FIRST.replace(b'"a"', b'"\xff"'),
        FIRST.replace(b"true", b'"true"'),
        FIRST.replace(b'{"b": 1}', b"null"),
        FIRST.replace(b'"n": 1, ', b""),
        FIRST.replace(b'"n"', b'"m"'),
        FIRST[:-1] + b', "n": 2}',
        FIRST + b" {}",
        b"",
        b"[]",
    ],
)
def test_one_other_message_makes_all_of_them_variant(other: bytes) -> None:
    assert found(FIRST, other) is None


@pytest.mark.parametrize("first", [b"{}", b'{"a": null}', b'{"a": []}', b'{"a b": 1}', b'{"a": 1, "a": 2}', b"{", b"1"])
def test_a_first_message_that_tells_nothing_makes_all_of_them_variant(first: bytes) -> None:
    assert found(first, first) is None


def test_after_a_batch_that_differed_some_are_not_looked_at() -> None:
    alike, good = AlikeObjects(), pa.chunked_array([pa.array([FIRST], pa.binary())])

    assert alike.find(pa.chunked_array([pa.array([FIRST, b"[]"], pa.binary())])) is None
    assert [alike.find(good) is None for _ in range(51)] == [True] * 50 + [False]
