"""When a batch of JSON can be cut at its quotes, and how its first message is written."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.converters.json_quotes import is_plain, layout_of
from penstock.converters.json_texts import guess


@pytest.mark.parametrize(
    ("messages", "plain"),
    [
        ([], True),
        ([None], True),
        ([b""], True),
        ([b'{"a":1}', None, "Grüße \x7f".encode()], True),
        ([b"a", b"a \\ b"], False),
        ([b"a", b"a \n b"], False),
        ([b"a", b"\x00"], False),
        ([b"a" * 300_000, b"a" * 300_000 + b"\x1f"], False),
        ([b"a" * 600_000], True),
    ],
)
@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_plain_is_without_backslashes_and_control_characters(
    messages: list[bytes | None], plain: bool, kind: pa.DataType
) -> None:
    column = pa.chunked_array([pa.array(messages, kind)])

    assert is_plain(column) is plain
    assert is_plain(pa.chunked_array([*column.chunks, *column.chunks], kind)) is plain


def test_only_the_messages_of_a_slice_count() -> None:
    messages = pa.array([b"\n", b"a", b"b", b"\\"])

    assert is_plain(pa.chunked_array([messages.slice(1, 2)]))
    assert not is_plain(pa.chunked_array([messages.slice(0, 2)]))
    assert not is_plain(pa.chunked_array([messages.slice(2, 2)]))


@pytest.mark.parametrize(
    ("message", "members", "parts"),
    [
        ('{"a":"x"}', {"a": "x"}, ("{", "a", ":", None, "}")),
        ('{"a":1}', {"a": 1}, ("{", "a", (":", "}"))),
        ('{ "a" : true , "b" : "" } ', {"a": True, "b": ""}, ("{ ", "a", (" : ", " , "), "b", " : ", None, " } ")),
    ],
)
def test_a_layout_is_all_but_the_values(message: str, members: dict[str, object], parts: tuple[object, ...]) -> None:
    layout = layout_of(message, members)

    assert layout is not None
    assert layout.parts == parts


@pytest.mark.parametrize(
    "message", ['{"a":"x","a":"y"}', '{"a":1,"a":1}', '{"a":"x","b":1,"a":"x"}', '{"a":1,"a":"y"}']
)
def test_a_name_that_comes_twice_has_no_layout(message: str) -> None:
    found = guess(pa.chunked_array([[message.encode()]]))

    assert found is not None
    assert found.layout is None


def test_messages_that_are_not_plain_have_no_layout() -> None:
    found = guess(pa.chunked_array([[b'{"a":"x"}', b'{"a":"\\n"}']]))

    assert found is not None
    assert found.layout is None
