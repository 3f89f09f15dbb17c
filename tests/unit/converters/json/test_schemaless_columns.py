"""Messages that are read all at once are what they are one by one."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from penstock.converters.json.converter import JsonConverter
from penstock.converters.primitives import BooleanConverter
from penstock.converters.string import StringConverter
from penstock.data import OPTIONAL_STRING_SCHEMA
from penstock.pipeline.columns.sizes import make_room

NUMBERS = [
    *(
        b"0",
        b"-0",
        b"-0.0",
        b"0.0",
        b"0.000",
        b"-0.5",
        b"1.5",
        b"-0e5",
        b"0E0",
        b"1e2",
        b"-1.5E+3",
        b"1e-400",
        b"-1E-400",
    ),
    *(b"9223372036854775807", b"9223372036854775808", b"-9223372036854775808", b"-9223372036854775809"),
    *(b"18446744073709551615", b"18446744073709551616", b"99999999999999999999999", b"-99999999999999999999999.5"),
    *(b"9223372036854775808.0", b"-9223372036854775809.25", b"007", b"-007", b"0.1234567890123456789012", b"1e400"),
    b"-1E-400",
    b"-0." + b"0" * 400 + b"1",
]
FRAMES = [b"%b", b" %b", b"\n%b\t", b"[%b]", b"[1,%b]", b"[1 , %b ]", b'{"a":%b}', b'{"a" :\r\n%b,"b":[{"c":%b}]}']
OTHERS = [
    *(b"", b" ", b"null", b"true", b'"text"', b'"\\ud83d\\ude00"', b'"\\ud83d"', b'"\xff"', b"\xef\xbb\xbf1", b"nul"),
    *(b'{"a":1,"a":-0.0}', b'{"a":1}{"b":2}', b"1,2", b"[1", b"2]", b'{"at": "12: 5e3, -0 and 12345678901234567890"}'),
    *(
        b"[" * 1000 + b"]" * 1000,
        b"[" * 1001 + b"]" * 1001,
        b"[" * 1023 + b"]" * 1023,
        b'"' + b"[" * 5000 + b'"',
        b"NaN",
        *(b'{"%b":1}' % (b"n" * size) for size in (49_999, 50_000, 50_001)),
        *(b"0.%b" % (b"1" * size) for size in (999, 1_000, 1_001)),
        *(
            '{"a":"\u00e4"}'.encode(encoding)
            for encoding in ("utf-16", "utf-16-le", "utf-32-be", "latin-1", "utf-8-sig")
        ),
        *(b'"\xc0\x80"', b'"\xed\xa0\x80"', b'{"a":"\\ud800"}', b'{"\\ud800\\udc00":1}', b'"\x00"', b"1\x00"),
    ),
]
MESSAGES = [frame.replace(b"%b", number) for frame in FRAMES for number in NUMBERS] + OTHERS


def plain() -> JsonConverter:
    converter = JsonConverter()
    converter.configure({"schemas.enable": "false"}, is_key=False)
    return converter


def spelt(value: object) -> tuple[int, str]:
    """The text of a value, which tells -0.0 from 0.0 and 1 from 1.0; arrays around it are counted, however many."""
    levels = 0
    while isinstance(value, list) and len(value) == 1:
        value, levels = value[0], levels + 1
    return levels, repr(value)


@pytest.mark.parametrize("nulls", [False, True])
def test_values_are_those_of_messages_that_are_read_one_by_one(nulls: bool) -> None:
    messages: list[bytes | None] = [*MESSAGES, *([None] * 20 if nulls else [])]
    random.Random(5).shuffle(messages)
    middle = len(messages) // 2
    column = pa.chunked_array([messages[:middle], messages[middle:]], pa.binary())
    converter = plain()
    make_room()  # for calls of the other reader, as every pipeline does

    found = converter.read_at_once(column)

    assert found is not None
    assert found.schema is None
    assert len(found.values) == len(messages)
    assert list(found.odd) == sorted(set(found.odd))
    for row, message in enumerate(messages):
        if row in found.odd:
            assert found.values[row] is None
        else:
            assert spelt(found.values[row]) == spelt(converter.to_connect_data("t", message).value), message


def test_what_only_the_other_reader_takes_or_refuses_is_left_to_it() -> None:
    column = pa.chunked_array([[b"-0.0", b"1.5", b"{", None, b'{"a":[2]}', b"[" * 1001 + b"]" * 1001]], pa.binary())

    found = plain().read_at_once(column)

    assert found is not None
    assert list(found.odd) == [0, 2, 5]
    assert found.values == [None, 1.5, None, None, {"a": [2]}, None]


@pytest.mark.parametrize("chunks", [[], [[]], [[None, None]]])
def test_columns_without_messages_have_no_odd_ones(chunks: list[list[None]]) -> None:
    found = plain().read_at_once(pa.chunked_array(chunks, pa.binary()))

    assert found is not None
    assert (list(found.values), list(found.odd)) == ([None] * sum(map(len, chunks)), [])


def test_messages_with_schemas_are_read_one_by_one() -> None:
    assert JsonConverter().read_at_once(pa.chunked_array([[b"1"]], pa.binary())) is None
    assert BooleanConverter().read_at_once(pa.chunked_array([[b"1"]], pa.binary())) is None


def test_texts_are_read_at_once_if_all_are_utf_8() -> None:
    converter = StringConverter()
    converter.configure({}, is_key=True)

    found = converter.read_at_once(pa.chunked_array([[b"a", None], ["\u00e4".encode()]], pa.binary()))

    assert found is not None
    assert (found.schema, found.values, list(found.odd)) == (OPTIONAL_STRING_SCHEMA, ["a", None, "\u00e4"], [])
    assert converter.read_at_once(pa.chunked_array([[b"a", b"\xff"]], pa.binary())) is None
    converter.configure({"converter.encoding": "ISO-8859-1"}, is_key=True)
    assert converter.read_at_once(pa.chunked_array([[b"a"]], pa.binary())) is None
