"""Objects cut at their quotes are what a parser makes of them; others than those written like the first are left."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.generated import examples

from penstock.converters.json.arrow.structs import (
    BOOLEAN,
    STRING,
    FlatMember,
    ObjectTexts,
    QuoteLayout,
    cut_objects,
    layout_of,
    whole,
)

MEMBERS = (("a", STRING), ("b", whole(18)), ("c", BOOLEAN), ("d", f"null|{STRING}"))
FLAT = ObjectTexts.of(MEMBERS).flat or ()
KIND = pa.struct([("a", pa.string()), ("b", pa.int64()), ("c", pa.bool_()), ("d", pa.string())])
FIRST = '{"a": "one","b":1, "c":true,"d":"four"}'
SAME = [
    FIRST,
    '{"a": "two words, with = and {braces}","b":-12, "c":false,"d":","}',
    '{"a": "","b":123456789012345678, "c":true,"d":""}',
    '{"a": ":","b":0, "c":true,"d":"Grüße 日本 \U0001f600\u2028"}',
    '{"a": "$1","b":1, "c":true,"d":"}"}',
]
#: Read by the pattern and the parser.
READABLE = [
    '{"a":"other space","b":1, "c":true,"d":"four"}',
    '{"a": "one","b": 1, "c":true,"d":"four"}',
    '{"a": "an \\"escape\\" \\\\","b":1, "c":true,"d":"\\u00e4"}',
    '{"a": "one","b":1, "c":true,"d":null}',
    '{"a": "one","b":1, "c":true,"d":"four"} ',
    '\n{"a": "one","b":1, "c":true,"d":"four"}',
]
OTHERS = [
    '{"a": "one","b":-0, "c":true,"d":"four"}',
    '{"a": "one","b":01, "c":true,"d":"four"}',
    '{"a": "one","b":1.5, "c":true,"d":"four"}',
    '{"a": "one","b":1234567890123456789, "c":true,"d":"four"}',
    '{"a": "one","b":"1", "c":true,"d":"four"}',
    '{"a": one,"b":1, "c":true,"d":"four"}',
    '{"a": null,"b":1, "c":true,"d":"four"}',
    '{"a": "one","b":1, "c":maybe,"d":"four"}',
    '{"A": "one","b":1, "c":true,"d":"four"}',
    '{"a": "one","a":1, "c":true,"d":"four"}',
    '{"a": "one","b":1, "c":true,"d":"four","e":"five"}',
    '{"a": "one","b":1, "c":true,"d":"four"',
    '{"a": "one","b":1, "c":true,"d":"four"}}',
    '{"a": "one","b":1, "c":true,"d":"four"} x',
    '{"a": "one","b":1, "c":true}',
    '{"a": "one""b":1, "c":true,"d":"four"}',
    '{"a": "one","b":1, "c":true,"d":"fo\tur"}',
    '["a": "one","b":1, "c":true,"d":"four"}',
    '"',
    "",
]


def cut(texts: pa.StringArray, layout: QuoteLayout | None) -> dict[int, dict[str, object]]:
    """The objects that were cut, by their rows."""
    assert layout is not None
    rows, columns = cut_objects(texts, layout, FLAT, np.ones(len(texts), dtype=bool))
    found = {name: column.to_pylist() for name, column in columns.items()}
    return {int(row): {name: values[index] for name, values in found.items()} for index, row in enumerate(rows)}


def as_texts(message: str) -> dict[str, object]:
    """What a parser makes of a message, each value as it stands there."""
    return {name: one if isinstance(one, str) else json.dumps(one) for name, one in json.loads(message).items()}


@pytest.mark.parametrize("before", [0, 1, 3])
def test_messages_written_like_the_first_are_cut_and_no_others(before: int) -> None:
    texts = pa.array([*OTHERS[:before], *SAME, *OTHERS, None, *READABLE], pa.string()).slice(before)

    assert cut(texts, layout_of(FIRST, FLAT)) == {row: as_texts(one) for row, one in enumerate(SAME)}


@pytest.mark.parametrize("wanted", [[True, False, True], [False, False, False]])
def test_only_wanted_messages_are_cut(wanted: list[bool]) -> None:
    layout = layout_of(FIRST, FLAT)
    assert layout is not None
    rows, _ = cut_objects(pa.array(SAME[:3]), layout, FLAT, np.array(wanted))

    assert rows.tolist() == [row for row in range(3) if wanted[row]]


@pytest.mark.parametrize("message", [*OTHERS, *READABLE])
def test_one_that_is_written_otherwise_is_left_when_it_is_alone(message: str) -> None:
    assert cut(pa.array([message]), layout_of(FIRST, FLAT)) == {}


@pytest.mark.parametrize(
    ("message", "members", "runs"),
    [
        ('{"a":"x"}', [("a", STRING)], (b'{"a":"', b'"}')),
        ('{"a":1}', [("a", whole(2))], (b'{"a":', b"}")),
        ('{ "a" : true , "b" : "" } ', [("a", BOOLEAN), ("b", STRING)], (b'{ "a" : ', b' , "b" : "', b'" } ')),
        ('{"a":1}}', [("a", whole(2))], (b'{"a":', b"}}")),
    ],
)
def test_a_layout_is_all_but_the_values(
    message: str, members: Sequence[tuple[str, str]], runs: tuple[bytes, ...]
) -> None:
    layout = layout_of(message, ObjectTexts.of(members).flat or ())

    assert layout is not None
    assert layout.runs == runs


@pytest.mark.parametrize("message", ['{"a":"x","a":"y"}', '{"b":"x"}', '{"a":"x","b":1}', "[]", ""])
def test_what_has_other_members_has_no_layout(message: str) -> None:
    assert layout_of(message, [FlatMember("a", None)]) is None


@pytest.mark.parametrize("first", [0, len(SAME)])
@pytest.mark.parametrize("chunks", [1, 3])
def test_what_is_not_cut_is_found_by_the_pattern_and_parsed(first: int, chunks: int) -> None:
    messages: list[str | None] = [*SAME, *READABLE, None, *OTHERS]
    messages = [*messages[first:], *messages[:first]]
    texts = pa.chunked_array([messages[part::chunks] for part in range(chunks)], pa.string())

    read = ObjectTexts.of(MEMBERS).read(texts, np.ones(len(texts), dtype=bool), KIND)

    good = {*SAME, *READABLE}
    assert read.rows.tolist() == [one in good for one in texts.to_pylist()]
    assert read.structs.to_pylist() == [json.loads(one) if one in good else None for one in texts.to_pylist()]


PLAIN = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters='"\\'), max_size=8)
OBJECT = st.tuples(PLAIN, st.integers(-(10**18) + 1, 10**18 - 1), st.booleans(), PLAIN).map(
    lambda values: dict(zip("abcd", values, strict=True))
)


@examples(40)
@given(st.lists(OBJECT, min_size=1, max_size=12), st.sampled_from([(",", ":"), (", ", ": "), (" , ", " : ")]))
def test_any_plain_object_is_what_a_parser_makes_of_it(
    found: list[dict[str, object]], separators: tuple[str, str]
) -> None:
    messages = [json.dumps(one, ensure_ascii=False, separators=separators) for one in found]

    made = cut(pa.array(messages), layout_of(messages[0], FLAT))

    assert made == {row: as_texts(message) for row, message in enumerate(messages)}


def test_a_layout_that_is_known_of_objects_is_not_one_of_objects_inside_of_another() -> None:
    texts = ObjectTexts.of(MEMBERS)
    of_objects, of_payloads = pa.chunked_array([SAME]), pa.chunked_array([[f"{one}}}" for one in SAME]])
    wanted = np.ones(len(SAME), dtype=bool)

    for mine, other in [(of_objects, "payload"), (of_payloads, None)] * 2:
        right = None if mine is of_objects else "payload"
        assert texts.read(mine, wanted, KIND, inside=right).rows.all()
        assert not texts.read(mine, wanted, KIND, inside=other).rows.any()
    assert {place for _, place in texts.known} == {None, "payload"}
