"""Objects cut at their quotes are what a parser makes of them; others than those written like the first are left.

Which payloads of a known schema are read in front of the plan, by how many there are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.generated import examples

from penstock.converters.json.converter import JsonConverter
from penstock.converters.json.structs import (
    BOOLEAN,
    STRING,
    FlatMember,
    ObjectTexts,
    QuoteLayout,
    cut_objects,
    quote_layout,
    whole,
)
from penstock.pipeline.columns.records import from_arrow
from penstock.pipeline.plan import map_structs as objects
from penstock.pipeline.plan.step import Shape, SideName, StepPlan

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

    assert cut(texts, quote_layout(FIRST, FLAT)) == {row: as_texts(one) for row, one in enumerate(SAME)}


@pytest.mark.parametrize("wanted", [[True, False, True], [False, False, False]])
def test_only_wanted_messages_are_cut(wanted: list[bool]) -> None:
    layout = quote_layout(FIRST, FLAT)
    assert layout is not None
    rows, _ = cut_objects(pa.array(SAME[:3]), layout, FLAT, np.array(wanted))

    assert rows.tolist() == [row for row in range(3) if wanted[row]]


@pytest.mark.parametrize("message", [*OTHERS, *READABLE])
def test_one_that_is_written_otherwise_is_left_when_it_is_alone(message: str) -> None:
    assert cut(pa.array([message]), quote_layout(FIRST, FLAT)) == {}


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
    layout = quote_layout(message, ObjectTexts.of(members).flat or ())

    assert layout is not None
    assert layout.runs == runs


@pytest.mark.parametrize("message", ['{"a":"x","a":"y"}', '{"b":"x"}', '{"a":"x","b":1}', "[]", ""])
def test_what_has_other_members_has_no_layout(message: str) -> None:
    assert quote_layout(message, [FlatMember("a", None)]) is None


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

    made = cut(pa.array(messages), quote_layout(messages[0], FLAT))

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


SCHEMA = b'{"type":"struct","fields":[{"field":"a","type":"int64"}]}'


def read(converter: JsonConverter, *payloads: bytes) -> list[dict[str, int] | None]:
    """What is read of a batch."""
    messages = [b'{"schema":%s,"payload":%s}' % (SCHEMA, one) for one in payloads]
    column = pa.chunked_array([pa.array(messages, pa.binary())])
    found = converter.sort(column, worked_on=True, beside_spark=True).read
    values: list[dict[str, int] | None] = found[0][1].to_pylist() if found else []
    return values


def test_of_a_few_all_are_read_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "MIN_ROWS", 3)
    converter = JsonConverter()
    converter.configure({"schemas.enable": "true"}, False)

    assert read(converter, b'{"a":1}') == [{"a": 1}]
    assert read(converter, b'{"a":1}', b'{"a":2}', b'{"a":1.0}') == [{"a": 1}, {"a": 2}, None]
    assert read(converter, b'{"a":3}', b'{"a":4}') == [{"a": 3}, {"a": 4}]
    assert read(converter, b'{"a":3}', b'{"a":4.0}') == []


ITEM = b'{"type":"struct","optional":true,"fields":[{"field":"s","type":"string"},{"field":"d","type":"double"}]}'
#: The type of an array's items, items that are read before the plan, and items that are left to it.
ARRAYS = [
    (b'{"type":"int8"}', [b"", b"1,-99", b" 1 , 2 "], [b"1,,2", b"1,", b"128", b"null", b"01", b"-0", b"1.0", b'"1"']),
    (b'{"type":"int64","optional":true}', [b"null,1,null", b"123456789012345678"], [b"9223372036854775808", b"NULL"]),
    (b'{"type":"float"}', [b"0.1,5,-3.75"], [b"NaN", b"1e5", b'"0.1"']),
    (b'{"type":"double"}', [b"0.1,1.5E-7,-2", b"123456.789"], [b"-0", b"12345678901234567890"]),
    (b'{"type":"boolean"}', [b"true,false"], [b"True", b"1"]),
    (b'{"type":"string"}', [b'"a","","],[","\xc3\xa9\\u00e9\\n","\xf0\x9f\x98\x80"'], [b'"\\x"', b"null", b"a"]),
    (b'{"type":"string","optional":true,"default":"x"}', [b'"a"'], [b"null"]),
    (b'{"type":"array","items":{"type":"int32"}}', [b"[],[1,2],[ ]"], [b"null", b"[1", b"[null]", b"{}"]),
    (
        ITEM,
        [b"", b'null,{"s":"a","d":1},{"s":"}","d":0.5}'],
        [b'{"d":1,"s":"a"}', b'{"s":"a"}', b'{"s":"a","d":1,"d":2}'],
    ),
    (b'{"type":"array","items":%s}' % ITEM, [b'[],[{"s":"[]","d":2}]'], [b'{"s":"a","d":1}']),
    (b'{"type":"int64","name":"org.apache.kafka.connect.data.Timestamp","version":1}', [b"0,1700000000000"], [b"null"]),
]

#: The type of payloads, those that are read before the plan, and those that are left to it.
SCALARS = [
    (b'{"type":"int8"}', [b"1", b"-99", b" 2 "], [b"128", b"null", b"01", b"-0", b"1.0", b'"1"', b"1 1", b"1,2"]),
    (b'{"type":"int64","optional":true}', [b"null", b"123456789012345678"], [b"9223372036854775808", b"NULL", b""]),
    (b'{"type":"float"}', [b"0.1", b"5"], [b"NaN", b"1e5"]),
    (b'{"type":"double"}', [b"1.5E-7", b"123456.789"], [b"-0", b"12345678901234567890"]),
    (b'{"type":"boolean"}', [b"true", b"false"], [b"True", b"1"]),
    (
        b'{"type":"string"}',
        [b'"a"', b'""', b'"}"', b'"\xc3\xa9\\u00e9\\n"', b'"\xf0\x9f\x98\x80"', b'"key-1"'],
        [b'"\\x"', b"null", b"a", b'"a","value":"b"', b'"a', b'"a"}'],
    ),
    (b'{"type":"string","optional":true}', [b'"a"', b"null"], [b"nul"]),
    (b'{"type":"string","optional":true,"default":"x"}', [b'"a"'], [b"null"]),
    (b'{"type":"int32","name":"org.apache.kafka.connect.data.Date","version":1}', [b"0", b"19000"], [b"null"]),
]


@pytest.mark.parametrize(("items", "usual", "odd"), ARRAYS)
def test_arrays_are_columns_with_the_values_that_single_messages_have(
    items: bytes, usual: list[bytes], odd: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "MIN_ROWS", 3)
    schema = b'{"type":"struct","fields":[{"field":"a","optional":true,"type":"array","items":%s}]}' % items
    arrays = [b"null", *(b"[%s]" % one for one in usual * 20), *(b"[%s]" % one for one in odd)]
    messages = [b'{"schema":%s,"payload":{"a":%s}}' % (schema, one) for one in arrays]
    converter = JsonConverter()
    converter.configure({}, False)

    found = converter.sort(pa.chunked_array([pa.array(messages, pa.binary())]), worked_on=True, beside_spark=True)

    side, column = found.read[0]
    assert found.codes is not None
    assert found.codes.tolist()[: -len(odd)] == [0] * (1 + 20 * len(usual)), "all that is usual is read"
    assert 0 not in found.codes[-len(odd) :], "nothing that is odd is"
    values = from_arrow(column.filter(pa.array(found.codes == 0)), side.schema, side.physical)
    assert values == [converter.to_connect_data("t", one).value for one in messages[: -len(odd)]]


@pytest.mark.parametrize("content", [False, True])
@pytest.mark.parametrize(
    ("kind", "usual", "odd"), [*SCALARS, (b'{"type":"array","items":{"type":"int8"}}', [b"[]", b"[1]"], [b"null"])]
)
def test_payloads_that_are_no_objects_are_columns_with_the_values_that_single_messages_have(
    kind: bytes, usual: list[bytes], odd: list[bytes], content: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "MIN_ROWS", 3)
    payloads = [*usual * 20, *odd]
    messages = payloads if content else [b'{"schema":%s,"payload":%s}' % (kind, one) for one in payloads]
    converter = JsonConverter()
    converter.configure({"schema.content": kind.decode()} if content else {}, False)

    found = converter.sort(pa.chunked_array([pa.array(messages, pa.binary())]), worked_on=False, beside_spark=True)

    side, column = found.read[0]
    codes = np.zeros(len(messages)) if found.codes is None else found.codes
    assert codes.tolist()[: 20 * len(usual)] == [0] * 20 * len(usual), "all that is usual is read"
    assert 0 not in codes[20 * len(usual) :], "nothing that is odd is"
    values = from_arrow(column.filter(pa.array(codes == 0)), side.schema, side.physical)
    alone = [converter.to_connect_data("t", one) for one in messages[: 20 * len(usual)]]
    assert values == [one.value for one in alone]
    assert side.schema == alone[0].schema
    assert not (side.present and None in values)
    sides: tuple[SideName, SideName] = ("key", "value")
    for name in sides:
        read = Shape(side, side)
        plan = converter.reading(name, found.hints[0]).plan(read)
        assert isinstance(plan, StepPlan)
        assert plan.is_idle
        assert plan.shape == read


def test_a_pattern_that_grows_beyond_measure_leaves_messages_to_the_plan() -> None:
    items, array = b'{"type":"double"}', b"[0.5]"
    for _ in range(10):
        items, array = b'{"type":"array","items":%s}' % items, b"[%s]" % array
    schema = b'{"type":"struct","fields":[{"field":"a","type":"array","items":%s}]}' % items
    converter = JsonConverter()
    converter.configure({}, False)
    column = pa.chunked_array(
        [pa.array([b'{"schema":%s,"payload":{"a":[%s]}}' % (schema, array)] * 3_000, pa.binary())]
    )

    assert not converter.sort(column, worked_on=True, beside_spark=True).read
