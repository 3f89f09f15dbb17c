"""Messages without a schema that are alike become structs of what one by one they are; of others none do."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.converters.json.converter import JsonConverter
from penstock.pipeline.plan import map_structs

FIRST = b'{"b":1,"a":"one","o":{"y":true,"x":0.5},"n":null}'
ALIKE = [
    FIRST,
    b'{"b":-12,"a":"","o":{"y":false,"x":123.25},"n":null}',
    b'{"b":null,"a":null,"o":{"y":null,"x":null},"n":null}',
    b' { "b" : 7 , "a" : "\\u00e4\\"\\n" , "o" : { "y" : true , "x" : 0.1 } , "n" : null } ',
    '{"b":123456789012345678,"a":"日本 \U0001f600","o":{"y":true,"x":10.0},"n":null}'.encode(),
]
ODD = [
    b"{",
    b"7",
    b"null",
    b"[]",
    b"{}",
    b'{"b":1.5,"a":"one","o":{"y":true,"x":0.5},"n":null}',
    b'{"b":-0,"a":"one","o":{"y":true,"x":0.5},"n":null}',
    b'{"b":1,"a":"one","o":{"y":true,"x":1},"n":null}',
    b'{"b":1,"a":"one","o":{"y":true,"x":5e-1},"n":null}',
    b'{"b":12345678901234567890,"a":"one","o":{"y":true,"x":0.5},"n":null}',
    b'{"b":1,"a":"one","o":null,"n":null}',
    b'{"b":1,"a":"one","o":{"y":true,"x":0.5}}',
    b'{"a":"one","b":1,"o":{"y":true,"x":0.5},"n":null}',
    b'{"b":1,"b":1,"a":"one","o":{"y":true,"x":0.5},"n":null}',
    b'{"b":1,"a":"\\ud800","o":{"y":true,"x":0.5},"n":null}',
    b'{"b":1,"a":"\xff","o":{"y":true,"x":0.5},"n":null}',
    '{"b":1,"a":"one","o":{"y":true,"x":0.5},"n":null}'.encode("utf-16"),
    b'{"b":1,"a":"one","o":{"y":true,"x":0.5},"n":null}}',
    b'{"b":1,"a":"one","o":{"y":true,"x":0.5},"n":' + b"[" * 1001 + b"]" * 1001 + b"}",
]


@pytest.fixture(autouse=True)
def few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_structs, "MIN_ROWS", 2)


def configured() -> JsonConverter:
    converter = JsonConverter()
    converter.configure({"schemas.enable": "false"}, False)
    return converter


@pytest.mark.parametrize("chunks", [1, 3])
@pytest.mark.parametrize("null_at", [None, 0, 3])
def test_alike_messages_are_what_they_are_one_by_one_with_members_in_their_order(
    chunks: int, null_at: int | None
) -> None:
    messages: list[bytes | None] = [*ALIKE, *ALIKE]
    if null_at is not None:
        messages.insert(null_at, None)
    converter = configured()

    made = converter.read_objects(pa.chunked_array([messages[first::chunks] for first in range(chunks)], pa.binary()))

    assert made is not None
    in_order = [one for first in range(chunks) for one in messages[first::chunks]]
    expected = [converter.to_connect_data("t", one).value for one in in_order]
    assert made.to_pylist() == expected
    assert [list(one) for one in made.to_pylist() if one] == [["b", "a", "o", "n"]] * (2 * len(ALIKE))
    assert made.type.field("o").type.names == ["y", "x"]


@pytest.mark.parametrize("odd", ODD)
def test_with_one_that_is_otherwise_none_is_read(odd: bytes) -> None:
    for place in (0, 2, 5):
        messages = [*ALIKE[:place], odd, *ALIKE[place:], *[FIRST] * 20]

        assert configured().read_objects(pa.chunked_array([messages], pa.binary())) is None


def test_after_a_batch_that_is_not_alike_some_are_not_tried() -> None:
    converter = configured()
    alike = pa.chunked_array([[FIRST] * 4], pa.binary())

    assert converter.read_objects(pa.chunked_array([[FIRST, b"1", b"2", b"{}"]], pa.binary())) is None

    tries = [converter.read_objects(alike) is not None for _ in range(60)]
    assert 0 < tries.index(True) <= 50
    assert all(tries[tries.index(True) :])


def test_a_few_are_read_once_many_were() -> None:
    converter = configured()
    one = pa.chunked_array([[FIRST]], pa.binary())

    assert converter.read_objects(one) is None
    assert converter.read_objects(pa.chunked_array([[FIRST] * 2], pa.binary())) is not None
    assert converter.read_objects(one) is not None


def test_with_schemas_nothing_is_read_so() -> None:
    converter = JsonConverter()
    converter.configure({"schemas.enable": "true"}, False)

    assert converter.read_objects(pa.chunked_array([[FIRST] * 4], pa.binary())) is None
