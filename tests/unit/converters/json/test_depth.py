"""JSON messages that are nested too deeply are found before anything parses them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.converters.json.converter import JsonConverter, levels, without_deep
from penstock.errors import DataException

DEEP = b"[" * 1001 + b"]" * 1001
UNFINISHED = b'{"a":' * 1001
DEEP_ENOUGH = b"[" * 1000 + b"]" * 1000
WIDE = b"[" + b",".join([b'{"a":[]}'] * 2000) + b"]"
IN_TEXT = b'{"a":"' + b"[" * 5000 + b'"}'
HIDDEN = b'["]]]]\\"", ' * 1001


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (DEEP, 1001),
        (UNFINISHED, 1001),
        (DEEP_ENOUGH, 1000),
        (WIDE, 3),
        (IN_TEXT, 1),
        (HIDDEN, 1001),
        (b'"never ends [[[', 0),
        (b"]]]]", 0),
        (b"", 0),
    ],
)
def test_brackets_outside_of_strings_count(message: bytes, expected: int) -> None:
    assert levels(message) == expected


def test_deep_messages_are_taken_out_of_a_column() -> None:
    column = pa.chunked_array([[b"1", DEEP, None], [WIDE, UNFINISHED, IN_TEXT, DEEP_ENOUGH]], pa.binary())

    shallow, deep = without_deep(column)

    assert deep is not None
    assert deep.tolist() == [1, 4]
    assert shallow.to_pylist() == [b"1", None, None, WIDE, None, IN_TEXT, DEEP_ENOUGH]


def test_a_column_without_them_stays_as_it_is() -> None:
    column = pa.chunked_array([[b"1", None, WIDE]], pa.binary())
    shallow, deep = without_deep(column)
    assert shallow is column
    assert deep is None


@pytest.mark.parametrize("enable", ["true", "false"])
def test_one_deep_message_is_an_error_of_its_own(enable: str) -> None:
    converter = JsonConverter()
    converter.configure({"schemas.enable": enable}, False)
    with pytest.raises(DataException, match="more than 1000 levels of nesting"):
        converter.to_connect_data("t", DEEP)


@pytest.mark.parametrize("enable", ["true", "false"])
def test_deep_messages_are_sorted_apart_from_their_neighbours(enable: str) -> None:
    converter = JsonConverter()
    converter.configure({"schemas.enable": enable}, False)
    good = b'{"schema":{"type":"string"},"payload":"x"}'

    found = converter.sort(
        pa.chunked_array([[good, DEEP, good, UNFINISHED]], pa.binary()), worked_on=False, beside_spark=True
    )

    assert found.codes is not None
    hints = [found.hints[code] for code in found.codes.tolist()]
    assert hints[0] == hints[2] != hints[1]
    assert hints[1] == hints[3]
