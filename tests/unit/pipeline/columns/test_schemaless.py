"""Values without a schema as typed columns: any JSON comes back as it was, and types are widened and remembered."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from tests.generated import examples

from penstock.api import SinkFrame
from penstock.api.frames.fields import ABSENT, WHOLE, marks_type, objects
from penstock.data import OPTIONAL_STRING_SCHEMA, SchemaBuilder, Struct
from penstock.pipeline.batch.sink.frames import LooseValues
from penstock.pipeline.batch.transfer import crossing_frame, frame_of
from penstock.pipeline.columns.layout import VARIANT_ARROW
from penstock.pipeline.columns.records import from_arrow
from penstock.pipeline.columns.schemaless import MAX_FIELDS, KnownTypes, SchemalessColumn, column_of, column_of_objects

#: Few names and small numbers meet in one place more often.
NAMES = st.sampled_from(["a", "b", "c", "", "a.b", "unscaled", "scale", "\x00map", "Ünï"]) | st.text(max_size=3)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.sampled_from([0.5, 1.0, 2.0**53, "x"])
    | st.text(max_size=3)
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4))


def exact(value: object) -> object:
    """A value that equals another one only if all numbers in it are of the same class, and of the same sign."""
    if isinstance(value, dict):
        return {name: exact(one) for name, one in value.items()}
    if isinstance(value, list):
        return [exact(one) for one in value]
    if isinstance(value, float):
        return float, value, math.copysign(1, value)
    return type(value), value


def values_of(column: SchemalessColumn) -> list[object]:
    return objects(column.array, column.marks, lambda part: from_arrow(part, None))


def made_of(values: Sequence[object], before: pa.DataType | None = None) -> SchemalessColumn:
    column, errors = column_of(values, pa.null() if before is None else before)
    assert not errors
    assert column.marks.type == marks_type(column.array.type)
    assert len(column.array) == len(column.marks) == len(values)
    column.array.validate(full=True)
    column.marks.validate(full=True)
    return column


def frame_with(values: Sequence[object]) -> SinkFrame:
    column, rows = made_of(values), len(values)
    table = pa.table({"topic": ["t"] * rows, "partition": [0] * rows, "offset": range(rows), "value": column.array})
    return SinkFrame(table, None, None, _marks=pa.table({"value": column.marks}))


@examples(80)
@given(st.lists(st.lists(VALUES, max_size=5), min_size=1, max_size=3))
def test_values_come_back_as_they_were_whatever_came_before(batches: list[list[object]]) -> None:
    known = KnownTypes()
    for batch in batches:
        column, errors = known.column_of("t", batch)
        assert not errors
        assert exact(values_of(column)) == exact(batch)


@examples(40)
@given(st.lists(st.dictionaries(NAMES, VALUES, max_size=4) | st.none(), min_size=1, max_size=6), st.data())
def test_parts_of_a_frame_give_back_their_values_also_in_another_process(
    values: list[object], data: st.DataObject
) -> None:
    frame = frame_with(values)
    rows = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=6))
    for part, there in ((frame.take(rows), rows), (frame.slice(1, 3), [1, 2, 3])):
        wanted = [values[row] for row in there if row < len(values)]
        assert exact(part.objects()) == exact(wanted)
        assert exact(frame_of(crossing_frame(part)).objects()) == exact(wanted)


@examples(40)
@given(st.lists(st.dictionaries(NAMES, VALUES, max_size=4) | st.none(), min_size=1, max_size=6))
def test_present_is_true_where_an_object_has_the_field(values: list[dict[str, object] | None]) -> None:
    frame = frame_with(values)
    for name in {name for value in values if value for name in value if "`" not in name}:
        found = frame.present(f"`{name}`").to_pylist()
        assert found == [value is not None and name in value for value in values]


class TestTypes:
    @pytest.mark.parametrize(
        ("values", "kind"),
        [
            ([1, None, 3], pa.int64()),
            ([1.5, None], pa.float64()),
            ([1, 1.5], pa.float64()),
            ([2**53 + 1, 1.5], VARIANT_ARROW),
            (["x", None], pa.string()),
            ([True, None], pa.bool_()),
            ([True, 1], VARIANT_ARROW),
            (["x", 1], VARIANT_ARROW),
            (["\ud800"], VARIANT_ARROW),
            ([{"\ud800": 1}], VARIANT_ARROW),
            ([{1: 2}], VARIANT_ARROW),
            ([{}], VARIANT_ARROW),
            ([None, None], pa.null()),
            ([{"a": 1}, None, {"b": "x"}], pa.struct([("a", pa.int64()), ("b", pa.string())])),
            ([{"a": {"b": None}}], pa.struct([("a", pa.struct([("b", pa.null())]))])),
            ([[1], [], None, [2.5]], pa.list_(pa.field("element", pa.float64()))),
            ([[1], {"a": 1}], VARIANT_ARROW),
            ([{"a": 1, "b": 1}, {"a": "x", "b": 2}], pa.struct([("a", VARIANT_ARROW), ("b", pa.int64())])),
        ],
    )
    def test_a_column_has_the_type_of_its_values(self, values: list[object], kind: pa.DataType) -> None:
        assert made_of(values).array.type == kind

    def test_objects_of_very_many_different_fields_are_variants(self) -> None:
        some = made_of([{f"f{number}": 1} for number in range(MAX_FIELDS)])
        many = made_of([{"kept": {f"f{number}": 1}} for number in range(MAX_FIELDS + 1)])

        assert some.array.type.num_fields == MAX_FIELDS
        assert many.array.type == pa.struct([("kept", VARIANT_ARROW)])

    def test_what_is_nested_very_deeply_is_a_variant_further_in(self) -> None:
        value: object = 1
        for _ in range(100):
            value = {"a": value}

        column = made_of([value])

        assert "binary" in str(column.array.type)
        assert values_of(column) == [value]


class TestMemory:
    def test_fields_keep_their_order_and_nulls_have_the_type_of_before(self) -> None:
        before = made_of([{"a": 1, "b": {"c": "x"}, "l": [1.5]}]).array.type

        assert made_of([{"l": [], "b": None, "a": None}], before).array.type == before
        assert made_of([{}], before).array.type == before

    def test_whole_numbers_stay_doubles_once_there_were_others(self) -> None:
        column = made_of([{"a": 7}], made_of([{"a": 1.5}]).array.type)

        assert column.array.type == pa.struct([("a", pa.float64())])
        assert column.marks.to_pylist() == [{"mark": None, "fields": {"a": WHOLE}}]

    def test_a_large_whole_number_is_none_of_the_doubles_of_before(self) -> None:
        assert made_of([2**53 + 1], pa.float64()).array.type == pa.int64()

    def test_a_field_that_is_mixed_in_one_batch_is_what_it_was_in_the_next(self) -> None:
        known = KnownTypes()
        types = [
            known.column_of("t", batch)[0].array.type.field("a").type
            for batch in ([{"a": 1}], [{"a": "x"}, {"a": 2}], [{"a": None}])
        ]

        assert types == [pa.int64(), VARIANT_ARROW, pa.int64()]

    def test_new_fields_in_every_batch_do_not_pile_up(self) -> None:
        known = KnownTypes()
        for batch in range(50):
            column, _ = known.column_of("t", [{f"f{batch}-{number}": 1} for number in range(100)])
            assert column.array.type.num_fields <= MAX_FIELDS

    def test_each_topic_has_its_own(self) -> None:
        loose, known = LooseValues("value"), KnownTypes()
        topics = pa.chunked_array([["a", "b"] * 2])
        loose.add(np.arange(4), [{"x": 1}, {"y": "t"}, {"x": 2}, None])

        parts = loose.typed(topics, known, lambda row, error: pytest.fail(str(error)))

        assert [(str(one.column.array.type), one.rows.tolist()) for one in parts] == [
            ("struct<x: int64>", [0, 2]),
            ("struct<y: string>", [1, 3]),
        ]


class TestAmongObjects:
    def columns(self, values: Sequence[object]) -> list[tuple[str, list[int]]]:
        loose = LooseValues("value")
        loose.add(np.arange(len(values)), values)
        topics = pa.chunked_array([["t"] * len(values)])
        parts = loose.typed(topics, KnownTypes(), lambda row, error: pytest.fail(str(error)))
        return [(str(one.column.array.type), one.rows.tolist()) for one in parts]

    def test_few_values_of_other_kinds_are_apart(self) -> None:
        found = self.columns([*[{"a": 1}] * 40, "text", *[{"a": 2}] * 40])

        assert found == [("struct<a: int64>", [*range(40), *range(41, 81)]), ("string", [40])]

    def test_with_many_of_them_all_are_one_column_of_variants(self) -> None:
        found = self.columns([{"a": 1}, "text"] * 40)

        assert found == [(str(VARIANT_ARROW), list(range(80)))]


def test_what_is_nothing_connect_knows_is_an_error_of_its_row() -> None:
    column, errors = column_of([{"a": [1]}, {"a": [object(), 2]}, {"a": None}])

    assert list(errors) == [1]
    assert "builtins.object" in str(errors[1])
    assert values_of(column) == [{"a": [1]}, {"a": [None, 2]}, {"a": None}]


def test_structs_inside_come_back() -> None:
    struct = Struct(SchemaBuilder.struct().field("s", OPTIONAL_STRING_SCHEMA).build()).put("s", "x")

    assert values_of(made_of([{"a": struct}])) == [{"a": struct}]


def test_marks_say_which_fields_are_absent() -> None:
    column = made_of([{"a": 1, "o": {"x": None}}, {"o": {}}, {"a": None, "o": None}])

    absent, there = ABSENT, None
    marks = [one["fields"] for one in column.marks.to_pylist()]
    assert [(one["a"] or there, one["o"]["fields"]["x"] or there) for one in marks] == [
        (there, there),
        (absent, absent),
        (there, absent),
    ]


class TestFields:
    FRAME = frame_with([{"id": 1, "who": {"name": "Ada"}, "any": 1, "tags": [{"k": 1}]}, {"id": 2.5, "any": "x"}, None])

    def test_fields_are_those_of_the_columns(self) -> None:
        found = self.FRAME.fields(["id", "who.name", "none", "who.none.more", "id.none"])

        assert found.to_pylist() == [
            {"id": 1.0, "who.name": "Ada", "none": None, "who.none.more": None, "id.none": None},
            {"id": 2.5, "who.name": None, "none": None, "who.none.more": None, "id.none": None},
            {"id": None, "who.name": None, "none": None, "who.none.more": None, "id.none": None},
        ]

    def test_types_may_name_fields_that_no_value_has(self) -> None:
        tags = pa.list_(pa.struct([("k", pa.int32()), ("l", pa.string())]))

        found = self.FRAME.take([0, 2]).fields({"tags": tags, "any": pa.int64(), "none": pa.date32()})

        assert found.schema.types == [tags, pa.int64(), pa.date32()]
        assert found.to_pylist() == [
            {"tags": [{"k": 1, "l": None}], "any": 1, "none": None},
            {"tags": None, "any": None, "none": None},
        ]


def test_a_part_of_a_frame_is_a_table_that_spark_takes() -> None:
    rows: list[object] = [{"a": None, "o": {"b": None, "c": row}, "l": [None], "m": [{"d": None}]} for row in range(6)]

    def as_pyspark_casts(table: pa.Table) -> pa.Table:
        return table.cast(to_arrow_schema(from_arrow_schema(table.schema), timezone="UTC"))

    session: Any = SimpleNamespace(createDataFrame=as_pyspark_casts)
    part = replace(frame_with(rows), spark=lambda: session).slice(4)
    with pytest.raises(pa.ArrowInvalid, match="smaller than expected"):
        as_pyspark_casts(part.table).validate(full=True)

    table: Any = part.dataframe()
    table.validate(full=True)
    assert table.column("value").to_pylist() == rows[4:]


SIMPLE: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): st.text(max_size=3),
    pa.int64(): st.integers(-3, 3) | st.integers(-(10**18) + 1, 10**18 - 1),
    pa.float64(): st.floats(allow_nan=False, allow_infinity=False),
    pa.bool_(): st.booleans(),
}
KINDS = st.recursive(
    st.sampled_from(list(SIMPLE)),
    lambda inner: st.dictionaries(st.sampled_from("abcd"), inner, min_size=1, max_size=3).map(
        lambda members: pa.struct(list(members.items()))
    ),
)
OBJECT_KINDS = st.dictionaries(st.sampled_from("abcd"), KINDS, min_size=1, max_size=3).map(
    lambda members: pa.struct(list(members.items()))
)


def values_of_kind(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if not pa.types.is_struct(kind):
        return st.none() | SIMPLE[kind]
    return st.fixed_dictionaries({one.name: values_of_kind(one.type) for one in kind})


@st.composite
def alike(draw: st.DrawFn) -> pa.ChunkedArray:
    """Objects of the same members, and nulls, not all of them nulls."""
    kind = draw(OBJECT_KINDS)
    some = st.lists(st.none() | values_of_kind(kind), max_size=3)
    chunks = [[draw(values_of_kind(kind))], draw(some), draw(some)]
    return pa.chunked_array(draw(st.permutations(chunks)), kind)


BATCHES = st.lists(
    alike() | st.lists(st.none() | st.dictionaries(st.sampled_from("abcd"), SCALARS), max_size=3), max_size=4
)


@pytest.mark.slow
@given(batches=BATCHES)
@examples(30)
def test_structs_become_the_columns_that_their_values_would(batches: Sequence[Any]) -> None:
    known, same = KnownTypes(), KnownTypes()
    for batch in batches:
        if not isinstance(batch, pa.ChunkedArray):
            assert known.column_of("t", batch)[0].array.equals(same.column_of("t", batch)[0].array)
            continue
        expected, _ = known.column_of("t", batch.to_pylist())
        made = same.column_of_objects("t", batch)
        for mine, other in ((made.array, expected.array), (made.marks, expected.marks)):
            array = mine if isinstance(mine, pa.Array) else pa.concat_arrays(mine.chunks)
            assert array.type == other.type
            assert array.equals(other)


@pytest.mark.parametrize("number", [2**53, 2**53 + 1, -(2**53), -(2**53) - 1])
def test_a_number_that_no_double_holds_stays_whole_in_structs_too(number: int) -> None:
    before = pa.struct([("n", pa.float64())])
    objects_of = pa.chunked_array([[{"n": 1}], [{"n": number}]], pa.struct([("n", pa.int64())]))
    expected, _ = column_of(objects_of.to_pylist(), before)
    made = column_of_objects(objects_of, before)
    assert made.array.type == expected.array.type
    assert made.array.to_pylist() == expected.array.to_pylist()
    assert made.marks.to_pylist() == expected.marks.to_pylist()
