"""What a plan leaves to the worker takes the place of what columns have made; everything else stays."""

from typing import Any, cast

import pyarrow as pa

from penstock.data import Schema, Timestamp
from penstock.data.text import to_java_text
from penstock.pipeline.left_over import fill
from penstock.pipeline.records import to_arrow
from penstock.pipeline.step import Left, Side

ANYTHING = cast("Any", None)


def text(value: object, schema: Schema | None) -> bytes:
    return to_java_text(value, schema).encode()


def filled(known: Side, left: pa.Array, made: pa.Array) -> list[object]:
    columns = {"value": pa.chunked_array([made]), "topic": pa.chunked_array([["t"] * len(made)])}
    result = fill(columns, [Left("value", ANYTHING, known, text)], {"value": pa.chunked_array([left])})
    assert result["topic"] is columns["topic"]
    assert result["value"].type == made.type
    return cast("list[object]", result["value"].to_pylist())


def test_values_with_a_schema_are_left_where_they_are_not_null() -> None:
    left = pa.array([None, 0, None], pa.int64())

    made = filled(Side.of(Timestamp.SCHEMA), left, pa.array(["a", "b", None]))

    assert made == ["a", "Thu Jan 01 00:00:00 UTC 1970", None]


def test_values_without_a_schema_are_left_where_they_are_not_variants_own_null() -> None:
    values, errors, _ = to_arrow([{1: "x"}, [1, {"a": None}], None], None)
    nothing, _, _ = to_arrow([[None]], None)
    nothing = pa.StructArray.from_arrays([pa.array([b"\x00"]), nothing.field(1)], fields=list(nothing.type))
    left = pa.concat_arrays([values.slice(0, 2), nothing])

    made = filled(Side.of(None), left, pa.array([b"?", None, b"kept"], pa.binary()))

    assert not errors
    assert made == [b"{1=x}", b"[1, {a=null}]", b"kept"]


def test_nothing_is_touched_where_nothing_is_left() -> None:
    made = pa.array(["a", "b"])
    columns = {"value": pa.chunked_array([made])}

    result = fill(
        columns,
        [Left("value", ANYTHING, Side.of(Timestamp.SCHEMA), text)],
        {"value": pa.chunked_array([pa.nulls(2, pa.int64())])},
    )

    assert result["value"] is columns["value"]
