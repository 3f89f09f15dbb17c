"""Headers: ordered, with repeats."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from datetime import UTC, date, datetime, time

import pytest

from penstock.data import (
    INT8_SCHEMA,
    INT32_SCHEMA,
    OPTIONAL_BYTES_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    ConnectHeaders,
    Date,
    Decimal,
    Header,
    Schema,
    SchemaBuilder,
    Struct,
    Time,
    Timestamp,
    Type,
)
from penstock.errors import DataException

LIST = SchemaBuilder.array(INT8_SCHEMA).build()
MAP = SchemaBuilder.map(STRING_SCHEMA, INT8_SCHEMA).build()
STRUCT = SchemaBuilder.struct().field("a", INT8_SCHEMA).build()


def _abab() -> ConnectHeaders:
    return ConnectHeaders().add("a", 1).add("b", 2).add("a", 3).add("b", 4)


def _values(headers: ConnectHeaders) -> list[object]:
    return [header.value for header in headers]


def test_headers_keep_their_order_and_repeats() -> None:
    headers = _abab()

    assert (headers.size(), len(headers), headers.is_empty()) == (4, 4, False)
    assert [header.key for header in headers] == ["a", "b", "a", "b"]
    assert [header.value for header in headers.all_with_name("a")] == [1, 3]
    assert headers.last_with_name("b") == Header("b", 4)
    assert headers.last_with_name("c") is None
    assert ConnectHeaders().is_empty()


def test_removing_takes_all_of_a_key() -> None:
    assert _values(_abab().remove("a")) == [2, 4]
    assert ConnectHeaders().remove("a").is_empty()


def test_retaining_the_latest_keeps_order() -> None:
    assert _values(_abab().retain_latest()) == [3, 4]
    assert _values(_abab().retain_latest("a")) == [2, 3, 4]


def test_a_duplicate_is_independent() -> None:
    headers = _abab()
    copy = headers.duplicate()

    assert copy == headers
    copy.clear()
    assert headers.size() == 4
    assert copy != headers


def test_apply_replaces_and_removes() -> None:
    def upper(header: Header) -> Header | None:
        return None if header.value == 2 else header.rename(header.key.upper())

    assert [(h.key, h.value) for h in _abab().apply(upper)] == [("A", 1), ("A", 3), ("B", 4)]
    assert [h.key for h in _abab().apply(upper, "a")] == ["A", "b", "A", "b"]


def test_a_header_can_be_renamed_and_given_another_value() -> None:
    header = Header("a", 1, INT8_SCHEMA)

    assert header.rename("a") is header
    assert header.rename("b") == Header("b", 1, INT8_SCHEMA)
    assert header.with_value(STRING_SCHEMA, "x") == Header("a", "x", STRING_SCHEMA)


@pytest.mark.parametrize(
    ("add", "kind"),
    [
        (lambda h: h.add_string("k", "x"), Type.STRING),
        (lambda h: h.add_bytes("k", b"x"), Type.BYTES),
        (lambda h: h.add_boolean("k", True), Type.BOOLEAN),
        (lambda h: h.add_byte("k", 1), Type.INT8),
        (lambda h: h.add_short("k", 1), Type.INT16),
        (lambda h: h.add_int("k", 1), Type.INT32),
        (lambda h: h.add_long("k", 1), Type.INT64),
        (lambda h: h.add_float("k", 1), Type.FLOAT32),
        (lambda h: h.add_double("k", 1), Type.FLOAT64),
        (lambda h: h.add_list("k", [1], LIST), Type.ARRAY),
        (lambda h: h.add_map("k", {"a": 1}, MAP), Type.MAP),
        (lambda h: h.add_struct("k", Struct(STRUCT).put("a", 1)), Type.STRUCT),
    ],
)
def test_typed_adds_set_the_schema(add: Callable[[ConnectHeaders], ConnectHeaders], kind: Type) -> None:
    header = add(ConnectHeaders()).last_with_name("k")

    assert header is not None
    assert header.schema is not None
    assert header.schema.type is kind


def test_logical_values_get_their_logical_schemas() -> None:
    headers = (
        ConnectHeaders()
        .add_decimal("k", decimal.Decimal("1.50"))
        .add_date("k", date(2020, 1, 1))
        .add_time("k", time(1))
        .add_timestamp("k", datetime(2020, 1, 1, tzinfo=UTC))
    )

    assert [h.schema for h in headers] == [Decimal.schema(2), Date.SCHEMA, Time.SCHEMA, Timestamp.SCHEMA]


def test_nulls_have_an_optional_schema_or_none() -> None:
    headers = ConnectHeaders().add_string("k", None).add_bytes("k", None).add_list("k", None, LIST)
    headers.add_struct("k", None).add_decimal("k", None)

    assert [h.schema for h in headers] == [OPTIONAL_STRING_SCHEMA, OPTIONAL_BYTES_SCHEMA, None, None, None]


@pytest.mark.parametrize(
    ("value", "schema", "message"),
    [
        ("x", INT32_SCHEMA, "a Python str for header value"),
        (None, INT32_SCHEMA, "A null value requires an optional schema but was"),
        ({}, LIST, "not compatible with the schema"),
    ],
)
def test_a_value_must_be_of_its_schemas_type(value: object, schema: Schema, message: str) -> None:
    with pytest.raises(DataException, match=message):
        ConnectHeaders().add("k", value, schema)


def test_a_list_needs_an_array_schema_and_a_time_must_be_within_a_day() -> None:
    with pytest.raises(DataException, match="Expecting ARRAY but instead found MAP"):
        ConnectHeaders().add_list("k", [], MAP)
    with pytest.raises(DataException, match="Time type"):
        ConnectHeaders().add_time("k", -1)
