"""Text that is not Unicode, as Java reads and writes it."""

from __future__ import annotations

import pytest

from penstock.converters.registry.formats import REPLACE, without_halves
from penstock.data import STRING_SCHEMA, SchemaBuilder, Struct


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"a\xffb", "a\ufffdb"),
        (b"\xed\xa0\x80", "\ufffd"),
        (b"\xed\xa0", "\ufffd\ufffd"),
        (b"\xc3\x28", "\ufffd("),
        (b"\xe2\x82", "\ufffd"),
        (b"\xf0\x9f\x98\x80", "\U0001f600"),
    ],
)
def test_bad_bytes_are_replaced(data: bytes, text: str) -> None:
    assert data.decode("utf-8", REPLACE) == text


def test_halves_of_pairs_are_question_marks_at_every_depth() -> None:
    schema = SchemaBuilder.struct().field("a", STRING_SCHEMA).build()
    value = Struct(schema).put("a", "\ud800x")

    assert without_halves([("b", {"\udc00": value}), "\U0001f600", 3]) == [
        ("b", {"?": Struct(schema).put("a", "?x")}),
        "\U0001f600",
        3,
    ]
