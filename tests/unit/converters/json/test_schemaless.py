"""Messages without a schema are parsed together to what each of them is by itself, but for those that are left."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.generated import examples

from penstock.converters.json import schemaless
from penstock.converters.json.schemaless import read_schemaless_column
from penstock.converters.json.values import read_schemaless

NUMBERS = [
    "0",
    "-0",
    "-0.5",
    "7",
    "-12",
    "1e5",
    "1E5",
    "2.5e-3",
    "123456789012345678",
    "-1234567890123456789",
    "9" * 23,
]
TEXTS = ['"a"', '"1e5"', '"-0"', '"8e12"', '"00000000000000000000"', '"e"', "null", "true", '"' + "9" * 40 + '"']
MESSAGES = st.lists(st.sampled_from([*NUMBERS, *TEXTS]), max_size=6).map(lambda items: f"[{','.join(items)}]".encode())


def check(chunks: Sequence[Sequence[bytes | None]], start: int = 0) -> list[int]:
    column = pa.chunked_array([pa.array(chunk, pa.binary()) for chunk in chunks], pa.binary()).slice(start)
    values, odd = read_schemaless_column(column)
    messages = column.to_pylist()
    for row, message in enumerate(messages):
        if row not in odd:
            assert repr(values[row]) == repr(None if message is None else read_schemaless(message))
    return odd


@examples(60)
@given(chunks=st.lists(st.lists(st.none() | MESSAGES, max_size=12), min_size=1, max_size=3), data=st.data())
def test_whatever_numbers_are_among_them(chunks: list[list[bytes | None]], data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schemaless, "_LOOKED_AT", data.draw(st.integers(1, 80)))
        patch.setattr(schemaless, "_AT_A_TIME", data.draw(st.integers(1, 5)))
        check(chunks, data.draw(st.integers(0, 3)))


@pytest.mark.parametrize("message", NUMBERS)
@pytest.mark.parametrize("before", [0, 1, 2, 65_530])
def test_a_number_that_a_parser_changes_is_left_wherever_it_is(message: str, before: int) -> None:
    usual = b'{"text":"%b"}' % (b"x" * max(0, before - 11))
    messages = [usual, b"[%b]" % message.encode(), usual]

    assert check([messages]) == ([] if message in ("0", "7", "-12", "123456789012345678") else [1])


def test_what_is_no_json_is_left() -> None:
    assert check([[b"{}", b"{", b"", None], [b"[1", b"1]"]]) == [1, 2, 4, 5]
