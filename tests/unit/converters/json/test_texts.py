"""Texts that are made of many messages at once are those of messages that are read and printed one by one."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.converters.json.test_plain_bytes import TOO_DEEP_FOR_PYTHON
from tests.unit.converters.json.test_schemaless_columns import MESSAGES, plain

from penstock.converters.json.converter import JsonConverter
from penstock.converters.string import StringConverter
from penstock.data import SchemaAndValue
from penstock.data.text import to_java_text
from penstock.errors import DataException
from penstock.pipeline.columns.sizes import make_room
from penstock.pipeline.plan.map_structs import MIN_ROWS
from penstock.pipeline.plan.step import TextsAtOnce

NUMBERS = (
    0,
    1,
    -1,
    7,
    10**6,
    10**7,
    2**53,
    2**63 - 1,
    0.5,
    -0.5,
    1.0,
    1e7,
    9999999.5,
    1e-3,
    1e-4,
    123456.75,
    1e22,
    -2.5e-7,
)
TEXTS = (
    "",
    "plain",
    "two words",
    "a=b, {c}",
    "%s %%",
    "Gr\u00fc\u00dfe",
    "\U0001f600",
    'a "quote"',
    "back\\slash",
    "\t",
    "null",
)


def texts_of(messages: Sequence[bytes | None], converter: JsonConverter) -> TextsAtOnce:
    found = converter.texts_at_once(pa.chunked_array([messages], pa.binary()))
    assert found is not None
    assert len(found.texts) == len(messages)
    assert list(found.odd) == sorted(set(found.odd))
    return found


def one_by_one(message: bytes | None, converter: JsonConverter) -> str | None:
    read: SchemaAndValue = converter.to_connect_data("t", message)
    return None if read.value is None else to_java_text(read.value)


def check(messages: Sequence[bytes | None], *, odd: int | None = None) -> None:
    """Compares both ways; `odd`: so many may be left to the other one."""
    converter = plain()
    found = texts_of(messages, converter)
    left = set(found.odd)
    for row, (message, text) in enumerate(zip(messages, found.texts.to_pylist(), strict=True)):
        expected = None if row in left else one_by_one(message, converter)
        assert text == expected, message
    if odd is not None:
        assert len(left) <= odd


def flat(chance: random.Random) -> dict[str, Any]:
    return {
        "id": chance.randrange(10**12),
        "name": chance.choice(["Ann", "Bob", ""]),
        "amount": chance.choice([1.0, 12.5, 758.95, 0.25, 9999999.5, 12345678.25]),
        "active": chance.random() < 0.5,
        "none": None,
        "maybe": chance.choice([None, 1, 2]),
        "a%b": "100 %",
    }


def any_value(chance: random.Random, levels: int) -> Any:
    kind = chance.randrange(8 if levels else 6)
    if kind < 2:
        return chance.choice(NUMBERS)
    if kind < 4:
        return chance.choice(TEXTS)
    if kind < 6:
        return chance.choice([None, True, False])
    if kind == 6:
        return [any_value(chance, levels - 1) for _ in range(chance.randrange(4))]
    names = chance.sample(string.ascii_letters, chance.choice([0, 1, 3, 15]))
    return {name: any_value(chance, levels - 1) for name in names}


def written(value: Any, chance: random.Random) -> bytes:
    separators = chance.choice([(",", ":"), (", ", ": ")])
    return json.dumps(value, ensure_ascii=chance.random() < 0.5, separators=separators).encode()


def test_messages_of_all_kinds_have_the_texts_that_they_have_by_themselves() -> None:
    make_room()
    messages: list[bytes | None] = [*MESSAGES, None]
    random.Random(3).shuffle(messages)

    check([message for message in messages if not is_bad(message)])


def is_bad(message: bytes | None) -> bool:
    """True if nothing reads it, or Python has no room for its text by itself."""
    if message is not None and message.count(b"[") >= TOO_DEEP_FOR_PYTHON:
        return True
    try:
        one_by_one(message, plain())
    except DataException:
        return True
    return False


def test_a_message_of_as_many_levels_as_there_may_be_has_a_text() -> None:
    make_room()
    message = b"[" * 1000 + b"]" * 1000

    assert texts_of([message, b"1"], plain()).texts.to_pylist() == [message.decode(), "1"]


def test_what_cannot_be_read_at_once_is_left_to_who_reads_one_message() -> None:
    found = texts_of([b"-0.0", b"1.5", b"{", None, b"null", b'{"a":[2.0]}', b"[" * 1001 + b"]" * 1001], plain())

    assert list(found.odd) == [0, 2, 6]
    assert found.texts.to_pylist() == [None, "1.5", None, None, None, "{a=[2.0]}", None]


@pytest.mark.parametrize("rows", [3, MIN_ROWS, 3 * MIN_ROWS])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.1, 0.5, 1.0])
def test_odd_messages_among_ones_that_look_alike_stand_in_their_places(rows: int, share: float) -> None:
    chance = random.Random(rows)
    messages: list[bytes | None] = []
    for _ in range(rows):
        value = any_value(chance, 3) if chance.random() < share else flat(chance)
        messages.append(None if chance.random() < 0.01 else written(value, chance))

    # Numbers that a parser may read in another way are some of the odd ones.
    check(messages, odd=int(rows * share))


def test_a_converter_that_has_seen_other_objects_before_prints_these() -> None:
    chance, converter = random.Random(1), plain()
    kinds: list[Callable[[], Any]] = [
        lambda: flat(chance),
        lambda: {"id": 1, "who": {"b": 1.5, "a": chance.choice(["x", "y"])}},
        lambda: {"id": 1, "tags": [chance.choice(TEXTS), None], "in": {"deep": {"x": []}}},
        lambda: {f"field{chance.randrange(500)}": 1},
    ]
    for _ in range(2):
        for kind in kinds:
            messages = [written(kind(), chance) for _ in range(MIN_ROWS + 10)]

            found = texts_of(messages, converter)

            assert not found.odd
            assert found.texts.to_pylist() == [one_by_one(message, converter) for message in messages]


def test_new_fields_in_every_batch_cost_no_row_its_text() -> None:
    chance = random.Random(4)
    for batch in range(5):
        check([written({f"f{batch}": row, "x": None}, chance) for row in range(MIN_ROWS)], odd=0)


def test_a_column_of_slices_has_the_texts_of_its_rows() -> None:
    chance = random.Random(8)
    messages = [written(flat(chance), chance) for _ in range(2 * MIN_ROWS)]
    whole = pa.array([b"{}", *messages, b"7"], pa.binary())
    column = pa.chunked_array([whole.slice(1, 10), whole.slice(11, len(messages) - 10)])

    found = plain().texts_at_once(column)

    assert found is not None
    assert found.texts.to_pylist() == [one_by_one(message, plain()) for message in messages]


def test_messages_with_schemas_have_their_texts_made_by_a_plan() -> None:
    assert JsonConverter().texts_at_once(pa.chunked_array([[b"1"]], pa.binary())) is None


def test_texts_stay_what_they_are_if_all_are_utf_8() -> None:
    converter = StringConverter()
    converter.configure({}, is_key=False)

    def read(*values: bytes | None) -> list[object] | None:
        found = converter.sort(pa.chunked_array([values], pa.binary()), worked_on=True, beside_spark=True)
        return found.read[0][1].to_pylist() if found.read else None

    assert read(b"a", None, "\u00e4".encode()) == ["a", None, "\u00e4"]
    assert read(b"a", b"\xff") is None
    converter.configure({"converter.encoding": "ISO-8859-1"}, is_key=False)
    assert read(b"a") is None
