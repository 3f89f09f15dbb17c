"""Which JSON messages look alike, so that they can be read as typed columns."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from penstock.converters.json import byte_columns
from penstock.converters.json import schemaless as json_objects
from penstock.converters.json.schemaless import AlikeObjects
from penstock.data import Type
from penstock.pipeline.columns.layout import TextBound
from penstock.pipeline.plan import map_structs as objects
from penstock.pipeline.plan.map_structs import members_of
from penstock.pipeline.plan.step import Side, Sorted

FIRST = b'{"n": 1, "real": 1.5, "text": "a", "yes": true, "in": {"b": 1}}'


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "MIN_ROWS", 1)


def column_of(*messages: bytes | None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(messages, pa.binary())])


def found(*messages: bytes | None) -> Side | None:
    """What the messages are if they are all of one kind."""
    made = AlikeObjects().sort(column_of(*messages), read=False)
    hint = made.hints[0]
    assert hint is None or isinstance(hint, Side)
    return hint if made.codes is None else None


def kinds(made: Sorted) -> list[list[str] | None]:
    """The members that each message has by its hint."""
    assert made.codes is not None
    codes = made.codes.tolist()
    hints = [made.hints[code] for code in codes]
    return [list(members_of(one)) if isinstance(one, Side) else None for one in hints]


def test_members_are_typed_and_in_the_order_of_variant() -> None:
    alike = found(FIRST, b'{"n":-7,"real":-0.5,"text":"","yes":null,"in":{"b":0}}')

    assert alike is not None
    assert {name: one.schema.type for name, one in members_of(alike).items()} == {
        "in": Type.STRUCT,
        "n": Type.INT64,
        "real": Type.FLOAT64,
        "text": Type.STRING,
        "yes": Type.BOOLEAN,
    }
    assert list(members_of(alike)) == ["in", "n", "real", "text", "yes"]
    assert alike.present


def test_messages_without_value_are_among_them() -> None:
    alike = found(FIRST, None)

    assert alike is not None
    assert not alike.present


@pytest.mark.parametrize(
    ("text", "bound"),
    [("a", TextBound.CLEAN), ("\\n", TextBound.BMP), ("\\u0041\\uffff", TextBound.BMP), ("😀", TextBound.ANY)],
)
def test_what_is_known_of_their_text(text: str, bound: TextBound) -> None:
    alike = found(FIRST, FIRST.replace(b'"a"', f'"{text}"'.encode()))

    assert alike is not None
    assert members_of(alike)["text"].physical.text is bound


def test_they_are_read_as_json_reads_them() -> None:
    messages = [
        FIRST,
        None,
        b' {"n" : -7 ,\n"real":-0.5,"text":"\\u00e4\\t\\"\\u0000\\\\","yes":null,"in":{"b":0}}\r\n',
        '{"n":999999999999999999,"real":123456789012345.12345678901234567,"text":"😀","yes":false,"in":{"b":0}}'.encode(),
        b'{"n":null,"real":null,"text":null,"yes":null,"in":{"b":null}}',
    ]
    column = pa.chunked_array([pa.array(messages[:2], pa.binary()), pa.array(messages[2:], pa.binary())])

    made = AlikeObjects().sort(column, read=True)

    assert made.codes is None
    assert made.read[0][1].to_pylist() == [None if one is None else json.loads(one) for one in messages]


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
def test_a_message_that_is_other_becomes_variant(other: bytes) -> None:
    assert found(FIRST, other) is None


@pytest.mark.parametrize("first", [b"{}", b'{"a": []}', b'{"a b": 1}', b'{"a": 1, "a": 2}', b"{", b"1"])
def test_messages_that_tell_nothing_become_variant(first: bytes) -> None:
    assert found(first, first) is None


def test_what_a_null_does_not_tell_another_message_does() -> None:
    alike = found(None, b'{"a": null, "b": {"c": 1, "d": null}}', b'{"a": 1, "b": {"c": null, "d": "x"}}')

    assert alike is not None
    assert members_of(alike)["a"].schema.type is Type.INT64
    assert [one.type for one in (field.schema for field in members_of(alike)["b"].schema.fields)] == [
        Type.INT64,
        Type.STRING,
    ]


def test_a_member_of_which_there_are_only_nulls_is_null_and_other_values_of_it_are_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(objects, "MIN_ROWS", 3)
    alike = AlikeObjects()
    nulls = [b'{"a": %d, "none": null, "maybe": %b}' % (row, b"null" if row % 2 else b"5") for row in range(20)]
    others = [b'{"a": 1, "none": "x", "maybe": null}', b'{"a": 1, "none": 2, "maybe": 1}', b'{"a": 1, "maybe": 2}']

    made = alike.sort(column_of(*nulls, *others), read=True)
    later = alike.sort(column_of(*[others[0]] * 20), read=True)

    assert kinds(made) == [["a", "maybe", "none"]] * 20 + [None] * 3
    assert made.read[0][1].to_pylist() == [
        *({"a": row, "maybe": None if row % 2 else 5, "none": None} for row in range(20)),
        *[None] * 3,
    ]
    assert later.read[0][1].to_pylist()[0] == {"a": 1, "maybe": None, "none": "x"}


def test_those_that_are_other_are_told_apart_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "MIN_ROWS", 2)
    messages = [b"[]", None, b'{"a": 1}', b'{"a": "x"}', b'{"a": 2}']

    made = AlikeObjects().sort(column_of(*messages), read=True)

    side, column = made.read[0]
    assert kinds(made) == [None, ["a"], ["a"], None, ["a"]]
    assert not side.present
    assert column.to_pylist() == [None, None, {"a": 1}, None, {"a": 2}]


def test_kinds_of_which_there_are_many_get_a_layout_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "MIN_ROWS", 3)
    messages = [b'{"a": 1}', b'{"b": "x"}', b'{"a": 2}', b'{"b": "y"}', b'{"c": 1}', b'{"a": 3}', b'{"b": "z"}', b"{}"]

    made = AlikeObjects().sort(column_of(*messages), read=True)

    assert kinds(made) == [["a"], ["b"], ["a"], ["b"], None, ["a"], ["b"], None]
    assert [made.read[index][1].drop_null().to_pylist() for index in (0, 1)] == [
        [{"a": 1}, {"a": 2}, {"a": 3}],
        [{"b": "x"}, {"b": "y"}, {"b": "z"}],
    ]
    assert all(made.read[index][0].present for index in (0, 1))


def test_a_small_batch_of_a_kind_that_a_large_one_held_is_read_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "MIN_ROWS", 2)
    alike = AlikeObjects()
    small = [b'{"a": 1}', b'{"a": null}', None, b'{"a": "x"}', b'{"a": 1, "b": 1}', b"1", b"\xff"]

    before = [alike.sort(column_of(one), read=True).read for one in small]
    alike.sort(column_of(b'{"a": 1}', b'{"a": 2}'), read=True)
    after = [alike.sort(column_of(one), read=True).read for one in small]

    assert before == [{}] * len(small)
    assert [one[0][1].to_pylist() if one else None for one in after] == [
        [{"a": 1}],
        [{"a": None}],
        *[None] * 5,
    ]


@pytest.mark.parametrize("turn", [2, 3, 5, 8, 50])
def test_odd_messages_that_come_in_turn_do_not_stand_for_all(turn: int) -> None:
    messages = [b'{"a": 1}' if row % turn else b'{"a": []}' for row in range(8 * turn * 10)]

    made = AlikeObjects().sort(column_of(*messages), read=False)

    assert kinds(made) == [["a"] if row % turn else None for row in range(len(messages))]


def test_so_many_kinds_are_laid_out_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_objects, "_MAX_KINDS", 2)
    monkeypatch.setattr(byte_columns, "_PAUSE", 0)
    alike = AlikeObjects()

    made = [
        alike.sort(column_of(b'{"%s": 1}' % name), read=False).hints != (None,) for name in (b"a", b"b", b"c", b"a")
    ]

    assert made == [True, True, False, True]


def test_after_a_batch_of_none_some_are_not_looked_at() -> None:
    alike, good = AlikeObjects(), column_of(FIRST)

    assert alike.sort(column_of(b"[]"), read=False).hints == (None,)
    assert [alike.sort(good, read=False).hints == (None,) for _ in range(51)] == [True] * 50 + [False]
