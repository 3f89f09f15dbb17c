"""Schemaless values as VARIANT binaries: what goes in comes out, in Spark's own layout."""

from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import VariantVal
from tests.generated import examples

from penstock.data import INT32_SCHEMA, STRING_SCHEMA, Date, Schema, SchemaBuilder, Struct, Time, Timestamp, Type
from penstock.data.variant_format import MAP_TAG
from penstock.errors import DataException
from penstock.pipeline.columns import variant
from penstock.pipeline.columns.variant import (
    DATE_TAG,
    DECIMAL_TAG,
    TIMESTAMP_TAG,
    decode,
    decode_typed,
    encode,
    encode_typed,
    sort_keys,
)

PERSON = (
    SchemaBuilder.struct().field("name", STRING_SCHEMA).field("ages", SchemaBuilder.array(INT32_SCHEMA).build()).build()
)

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=()), max_size=80)
    | st.binary(max_size=80)
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.datetimes(timezones=st.just(UTC))
    | st.dates()
)
keys = st.text(st.characters(exclude_categories=()), max_size=5)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(keys, inner, max_size=6)
        | st.dictionaries(st.integers().filter(lambda one: abs(one) < 1 << 63) | keys, inner, max_size=3)
    ),
    max_leaves=25,
)


def same(one: object, other: object) -> bool:
    """Equality that tells 1 from True and 1.0 from 1.00."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, Decimal) and isinstance(other, Decimal) and one != 0:
        return one.as_tuple() == other.as_tuple()
    return one == other


@given(values)
@examples(80)
def test_any_schemaless_value_comes_back_as_it_was(value: object) -> None:
    assert same(decode(*encode(value)), value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.text(max_size=80),
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=6),
    )
)
@examples(40)
def test_pyspark_reads_what_we_write(value: object) -> None:
    tagged = isinstance(value, dict) and len(value) == 1 and next(iter(value)) in variant.TAGS
    assert tagged or VariantVal(*encode(value)).toPython() == value


@pytest.mark.parametrize(
    "text", ['{"b":[1,2.5,null],"a":{"x":"é","b":true}}', "[]", "{}", '"x"', "12345678901", "1.50"]
)
def test_we_read_what_pyspark_writes(text: str) -> None:
    written = VariantVal.parseJson(text)

    assert decode(written.value, written.metadata) == written.toPython()


@pytest.mark.parametrize(
    ("number", "size"), [(0, 2), (-128, 2), (128, 3), (-32768, 3), (32768, 5), (1 << 31, 9), (-(1 << 63), 9)]
)
def test_an_integer_takes_the_smallest_width(number: int, size: int) -> None:
    assert len(encode(number)[0]) == size


@pytest.mark.parametrize("count", [0, 1, 255, 256, 1500])
def test_objects_and_arrays_of_any_size_come_back(count: int) -> None:
    wide = {f"key {number}": "x" * number for number in range(count)}

    assert decode(*encode(wide)) == wide
    assert decode(*encode(list(wide.values()))) == list(wide.values())


@pytest.mark.parametrize("size", [63, 64, 300, 70_000, 17_000_000])
def test_offsets_grow_with_the_data(size: int) -> None:
    assert decode(*encode({"b": "x" * size, "a": 1})) == {"b": "x" * size, "a": 1}


def test_keys_are_sorted_as_java_compares_strings() -> None:
    # By UTF-16 units an emoji (surrogates) comes before U+FFFF; by code points it would come after.
    assert sort_keys(["\uffff", "😀", "b", "a", "é"]) == ["a", "b", "é", "😀", "\uffff"]


def test_the_order_of_keys_survives() -> None:
    assert list(decode(*encode({"b": 1, "a": 2, "c": {"z": 1, "y": 2}}))) == ["b", "a", "c"]  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "value",
    [
        {1: "a", None: "b", "c": {2: 3}},
        {(1, 2): "array as a key"},
        {MAP_TAG: [[1, 2]]},
        {DECIMAL_TAG: 5},
        {MAP_TAG: 1, "other": 2},
        time(23, 59, 59, 999_000),
        Decimal("1E+3"),
        Decimal("9" * 39),
        Decimal("1E-40"),
        [Struct(PERSON).put("name", "a"), {"s": Struct(PERSON).put("ages", [1])}],
    ],
    ids=str,
)
def test_what_variant_cannot_say_is_tagged_and_tags_cannot_clash(value: object) -> None:
    assert same(decode(*encode(value)), value) or decode(*encode(value)) == value


@pytest.mark.parametrize(
    "value",
    [
        [Decimal("1.50"), "a", None],
        [Decimal("1.50"), 2.5],
        [[Decimal("1.50")], [2.5]],
        [{"a": date(2020, 1, 2)}, {"a": "x"}],
        {"in": [1, [datetime(2020, 1, 2, tzinfo=UTC), True]]},
    ],
)
def test_what_the_kind_of_an_array_would_hide_is_tagged(value: object) -> None:
    data, keys = encode(value)

    assert decode(data, keys) == value
    assert any(tag.encode() in keys for tag in (DATE_TAG, DECIMAL_TAG, TIMESTAMP_TAG))


@pytest.mark.parametrize(
    "value",
    [
        [Decimal("1.50"), Decimal("2")],
        [date(2020, 1, 2), None],
        [{"a": Decimal(1)}, {"a": Decimal(2), "b": 1}, {"a": None}],
        {"a": Decimal(1), "b": [1, "x"]},
    ],
)
def test_decimals_and_dates_among_their_like_stay_what_they_are_to_spark(value: object) -> None:
    keys = encode(value)[1]

    assert not any(tag.encode() in keys for tag in (DATE_TAG, DECIMAL_TAG, TIMESTAMP_TAG))


def test_an_array_that_holds_itself_is_refused() -> None:
    endless: list[object] = [Decimal(1), "x"]
    endless.append(endless)

    with pytest.raises((DataException, RecursionError)):
        encode(endless)


def test_a_struct_inside_of_schemaless_data_keeps_its_schema_with_defaults_and_parameters() -> None:
    inner = SchemaBuilder.int32().optional().default_value(5).parameter("p", "1").doc("d").version(3).build()
    schema = SchemaBuilder.struct().name("n").field("a", inner).field("d", Date.SCHEMA).build()
    value = {"s": Struct(schema).put("a", 7).put("d", date(2020, 2, 29))}

    assert decode(*encode(value)) == value


@pytest.mark.parametrize(
    "value", [1 << 63, object(), {"a": [object()]}, Decimal("NaN"), {1, 2}], ids=lambda value: type(value).__name__
)
def test_a_value_that_connect_does_not_know_is_refused(value: object) -> None:
    with pytest.raises(DataException):
        encode(value)


def test_a_datetime_without_zone_is_utc() -> None:
    assert decode(*encode(datetime(2020, 1, 1))) == datetime(2020, 1, 1, tzinfo=UTC)  # noqa: DTZ001


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        (Struct(PERSON).put("name", "a").put("ages", [1, 2]), PERSON),
        ([Struct(PERSON).put("name", "a")], SchemaBuilder.array(PERSON).build()),
        ({"k": Struct(PERSON)}, SchemaBuilder.map(STRING_SCHEMA, PERSON).build()),
        ({1: datetime(2020, 1, 1, tzinfo=UTC)}, SchemaBuilder.map(INT32_SCHEMA, Timestamp.SCHEMA).build()),
        (time(1, 2, 3), Time.SCHEMA),
        (1.5, Schema(Type.FLOAT32)),
        (None, PERSON),
    ],
    ids=str,
)
def test_a_value_with_a_schema_beside_it_comes_back(value: object, schema: Schema | None) -> None:
    assert decode_typed(*encode_typed(value, schema), schema) == value


def test_raw_integers_of_temporal_types_become_dates_where_they_fit() -> None:
    assert decode_typed(*encode(0), Timestamp.SCHEMA) == datetime(1970, 1, 1, tzinfo=UTC)
    assert decode_typed(*encode(1 << 62), Timestamp.SCHEMA) == 1 << 62
    assert decode_typed(*encode(-1), Date.SCHEMA) == date(1969, 12, 31)
    assert decode_typed(*encode(86_400_000), Time.SCHEMA) == 86_400_000


@pytest.mark.parametrize("broken", [b"", b"\x0c", b"\x02\x05", b"\x10\x01", b"\xfc", b"\x05\xff"], ids=repr)
def test_bytes_that_are_no_variant_are_refused(broken: bytes) -> None:
    with pytest.raises(DataException):
        decode(broken, variant.NO_KEYS)
