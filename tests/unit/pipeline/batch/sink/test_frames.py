"""Outcomes to frames: where a batch is cut, what a null belongs to, and which schemas are joined."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.shares import QUICK

from penstock.api import SinkFrame, ValueForm
from penstock.converters.json.lenient import layout_of
from penstock.data import (
    INT32_SCHEMA,
    INT64_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Decimal,
    Schema,
    SchemaBuilder,
    Struct,
    Timestamp,
    Type,
)
from penstock.pipeline.batch.batches import CONSUMED_SCHEMA
from penstock.pipeline.batch.sink.frames import LooseValues, empty_frame, frames_of, records_of_rows
from penstock.pipeline.columns import variant
from penstock.pipeline.columns.layout import arrow_type, is_decimal
from penstock.pipeline.columns.records import to_arrow
from penstock.pipeline.columns.schemaless import KnownTypes
from penstock.pipeline.plan.chain import GroupOutcome
from penstock.pipeline.plan.step import NOTHING, SCHEMALESS_TEXT, Shape, Side

STRUCT = SchemaBuilder.struct().field("a", INT32_SCHEMA).build()
WIDER = SchemaBuilder.struct().field("a", INT64_SCHEMA).field("b", STRING_SCHEMA).build()
TIMED = SchemaBuilder.struct().field("at", Timestamp.SCHEMA).build()


def consumed(rows: int) -> pa.Table:
    columns = {
        "topic": pa.array(["t"] * rows, pa.string()),
        "partition": pa.array([0] * rows, pa.int32()),
        "offset": pa.array(range(rows), pa.int64()),
        "timestamp": pa.array([1] * rows, pa.int64()),
        "timestamp_type": pa.array([0] * rows, pa.int8()),
        "key": pa.nulls(rows, pa.binary()),
        "value": pa.nulls(rows, pa.binary()),
        "headers": pa.array([[{"key": "h", "value": b"1"}]] * rows, CONSUMED_SCHEMA.field("headers").type),
    }
    return pa.table(columns, schema=CONSUMED_SCHEMA)


def side(values: Sequence[object], schema: Schema | None) -> tuple[Side, pa.ChunkedArray | None]:
    if all(value is None for value in values) and schema is None:
        return NOTHING, None
    array, errors, physical = to_arrow(values, schema)
    assert not errors
    return Side.of(schema, physical), pa.chunked_array([array])


def outcome(
    values: Mapping[int, object], schema: Schema | None, keys: Sequence[object] = (), key_schema: Schema | None = None
) -> GroupOutcome:
    """What came of the rows of these numbers."""
    value, column = side(list(values.values()), schema)
    key, key_column = side(list(keys) or [None] * len(values), key_schema)
    columns = {name: one for name, one in (("key", key_column), ("value", column)) if one is not None}
    return GroupOutcome(np.array(list(values)), Shape(key, value, sink=True), columns, None, None, {})


def pairs(value: Any, schema: Schema | None) -> Any:
    """A value as a plan lays it out: decimals are digits and a scale."""
    if value is None or schema is None:
        return value
    if is_decimal(schema):
        digits, scale = variant.unscale(value)
        return {"unscaled": variant.unscaled_bytes(digits), "scale": scale}
    match schema.type:
        case Type.ARRAY:
            return [pairs(one, schema.value_schema) for one in value]
        case Type.MAP:
            found = [(pairs(key, schema.key_schema), pairs(one, schema.value_schema)) for key, one in value.items()]
            plain = schema.key_schema is not None and schema.key_schema.type is Type.STRING
            return found if plain else [{"key": key, "value": one} for key, one in found]
        case Type.STRUCT:
            return {one.name: pairs(value.get(one.name), one.schema) for one in schema.fields}
    return int(value.timestamp() * 1000) if isinstance(value, datetime.datetime) else value


def planned(values: Mapping[int, object], schema: Schema) -> GroupOutcome:
    """As ``outcome``, with decimals as a plan has them."""
    layout = layout_of(schema)
    column = pa.array([pairs(one, schema) for one in values.values()], arrow_type(schema, layout))
    shape = Shape(NOTHING, Side.of(schema, layout), sink=True)
    return GroupOutcome(np.array(list(values)), shape, {"value": pa.chunked_array([column])}, None, None, {})


MONEY = Decimal.schema(2)
OPTIONAL_MONEY = Decimal.builder(2).optional().build()
D = decimal.Decimal


@pytest.mark.parametrize("cut", [0, 1])
@pytest.mark.parametrize(
    ("schema", "values"),
    [
        (MONEY, [D("1.25"), D("-0.01"), D("0.00"), D("9" * 36 + ".99"), D("-" + "9" * 36 + ".99")]),
        (OPTIONAL_MONEY, [None, D("1.25"), None]),
        (OPTIONAL_MONEY, [None, None]),
        (Decimal.schema(0), [D(-(2**63)), D(2**64), D(0)]),
        # Those of other scales, or of more digits, have no column of decimals.
        (MONEY, [D("1.25"), D("1.5")]),
        (MONEY, [D("1.25"), D("1" * 37 + ".00")]),
        (Decimal.schema(-3), [D("5E+3")]),
        (SchemaBuilder.array(OPTIONAL_MONEY).optional().build(), [[D("1.25"), None], [], None, [D("2.50")]]),
        (SchemaBuilder.map(STRING_SCHEMA, OPTIONAL_MONEY).build(), [{"a": D("1.25"), "b": None}, {}]),
        (SchemaBuilder.map(INT32_SCHEMA, MONEY).build(), [{1: D("1.25")}, {}]),
        (SchemaBuilder.map(MONEY, STRING_SCHEMA).build(), [{D("1.25"): "a"}, {}]),
    ],
    ids=str,
)
def test_decimals_out_of_a_plan_are_those_of_records(schema: Schema, values: list[Any], cut: int) -> None:
    inner = SchemaBuilder.struct().optional().field("d", schema).field("at", Timestamp.SCHEMA).build()
    at = datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC)
    for whole, given in (
        (schema, values),
        (inner, [Struct(inner).put("d", one).put("at", at) for one in values]),
    ):
        rows = dict(enumerate(given))

        found, wanted = (frames([made(rows, whole)], len(rows), gone=range(cut)) for made in (planned, outcome))

        assert shown(found) == shown(wanted)
        assert [one.table.schema for one in found] == [one.table.schema for one in wanted]


def frames(
    outcomes: Sequence[GroupOutcome],
    rows: int,
    gone: Sequence[int] = (),
    form: ValueForm = ValueForm.COLUMNS,
    **more: object,
) -> list[SinkFrame]:
    mask = np.zeros(rows, dtype=bool)
    mask[list(gone)] = True
    return frames_of(outcomes, consumed(rows), mask, lambda: None, form=form, **more)  # type: ignore[arg-type, return-value]


def shown(found: Sequence[SinkFrame]) -> list[tuple[list[int], list[object]]]:
    for frame in found:
        assert frame.origin["offset"].to_pylist() == frame.table["offset"].to_pylist()
        assert frame.table["headers"].to_pylist() == [[{"key": "h", "value": b"1"}]] * frame.num_rows
    return [(frame.table["offset"].to_pylist(), frame.table["value"].to_pylist()) for frame in found]


def structs(schema: Schema, **columns: Sequence[object]) -> list[Struct]:
    names = list(columns)
    return [Struct.unchecked(schema, list(row)) for row in zip(*(columns[name] for name in names), strict=True)]


@pytest.mark.parametrize("nulls", [[0], [9], [5], [0, 1, 8, 9], [0, 2, 4, 6, 8], list(range(9))])
def test_nulls_are_rows_like_the_others_wherever_they_stand(nulls: list[int]) -> None:
    there = [row for row in range(10) if row not in nulls]
    values = dict(zip(there, structs(STRUCT, a=there), strict=True))

    found = frames([outcome(values, STRUCT), outcome(dict.fromkeys(nulls), None)], 10)

    assert shown(found) == [(list(range(10)), [None if row in nulls else {"a": row} for row in range(10)])]
    assert found[0].value_schema == STRUCT
    assert found[0].table["value"].type == pa.struct([("a", pa.int32())])


def test_nulls_alone_have_no_schema_and_a_column_of_nulls() -> None:
    (found,) = frames([outcome(dict.fromkeys(range(3)), None)], 3)

    assert (found.value_schema, found.table["value"].type, found.num_rows) == (None, pa.null(), 3)
    (text,) = frames([outcome(dict.fromkeys(range(3)), None)], 3, form=ValueForm.TEXT)
    assert text.table["value"].type == pa.string()


@pytest.mark.parametrize("form", ValueForm)
def test_a_frame_without_rows_has_all_columns(form: ValueForm) -> None:
    frame = empty_frame(form, lambda: None)  # type: ignore[arg-type, return-value]

    assert frame.num_rows == 0
    assert frame.table.column_names == list(frames([outcome({0: None}, None)], 1)[0].table.column_names)
    assert frame.table["value"].type == (pa.string() if form is ValueForm.TEXT else pa.null())
    assert frame.by_partition() == {}


def test_null_keys_cut_nothing_either() -> None:
    first = outcome({0: "a", 2: "c"}, STRING_SCHEMA, ["k0", "k2"], STRING_SCHEMA)
    second = outcome({1: "b"}, STRING_SCHEMA)
    third = outcome({3: None}, None, ["k3"], STRING_SCHEMA)

    found = frames([first, second, third, outcome({4: None}, None)], 5)

    assert shown(found) == [([0, 1, 2, 3, 4], ["a", "b", "c", None, None])]
    assert found[0].table["key"].to_pylist() == ["k0", None, "k2", "k3", None]
    assert (found[0].key_schema, found[0].value_schema) == (STRING_SCHEMA, STRING_SCHEMA)


def test_schemaless_nulls_are_null_and_no_variant() -> None:
    read, column = side([{"a": 1}, None, 7], None)
    variant = GroupOutcome(np.array([0, 2, 3]), Shape(NOTHING, read, sink=True), {"value": column}, None, None, {})

    (found,) = frames([variant, outcome({1: None}, None)], 4)

    assert found.value_schema is None
    assert found.table["value"].is_valid().to_pylist() == [True, False, False, True]


def test_a_null_that_a_variant_holds_is_null() -> None:
    read, column = side([{"a": 1}, None], None)
    assert column is not None
    held = column.combine_chunks().flatten()
    held_null = pa.StructArray.from_arrays([held[0].fill_null(b"\x00"), held[1]], fields=list(column.type))
    variant = GroupOutcome(
        None, Shape(NOTHING, read, sink=True), {"value": pa.chunked_array([held_null])}, None, None, {}
    )

    (found,) = frames([variant], 2)

    assert found.table["value"].is_valid().to_pylist() == [True, False]
    assert found.table["value"].type == column.type


def test_runs_of_schemas_are_frames_in_order_and_a_null_stays_in_its_run() -> None:
    first = outcome(dict(zip((0, 1, 5), structs(STRUCT, a=(0, 1, 5)), strict=True)), STRUCT)
    second = outcome({3: "x", 6: "y"}, OPTIONAL_STRING_SCHEMA)

    found = frames([first, second, outcome(dict.fromkeys((2, 4, 7)), None)], 8)

    assert shown(found) == [
        ([0, 1, 2], [{"a": 0}, {"a": 1}, None]),
        ([3, 4], ["x", None]),
        ([5], [{"a": 5}]),
        ([6, 7], ["y", None]),
    ]
    assert [frame.value_schema for frame in found] == [STRUCT, OPTIONAL_STRING_SCHEMA, STRUCT, OPTIONAL_STRING_SCHEMA]


def test_rows_that_failed_or_were_dropped_cut_nothing() -> None:
    values = dict(enumerate(structs(STRUCT, a=range(6))))
    found = frames([outcome(values, STRUCT)], 6, gone=[0, 3])
    assert shown(found) == [([1, 2, 4, 5], [{"a": 1}, {"a": 2}, {"a": 4}, {"a": 5}])]
    assert frames([outcome(values, STRUCT)], 6, gone=range(6)) == []


def test_a_batch_of_one_schema_is_handed_on_as_it_is() -> None:
    values = dict(enumerate(structs(STRUCT, a=range(6))))
    whole = replace(outcome(values, STRUCT), rows=None)

    (found,) = frames([whole], 6)

    column = whole.columns["value"]
    assert found.table["value"].chunk(0).field(0).buffers()[1].address == column.chunk(0).field(0).buffers()[1].address


def test_topics_that_some_outcomes_have_changed_are_those_of_their_rows() -> None:
    routed = outcome({0: "a", 2: "c"}, STRING_SCHEMA)
    routed = replace(routed, columns={**routed.columns, "topic": pa.chunked_array([["r0", "r2"]])})

    (found,) = frames([routed, outcome({1: "b"}, STRING_SCHEMA), outcome({3: None}, None)], 4)

    assert found.table["topic"].to_pylist() == ["r0", "t", "r2", "t"]
    assert found.origin["topic"].to_pylist() == ["t"] * 4


def test_dates_and_times_are_real_ones_beside_nulls() -> None:
    at = datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC)
    found = frames([outcome({1: Struct(TIMED).put("at", at)}, TIMED), outcome({0: None}, None)], 2)
    assert shown(found) == [([0, 1], [None, {"at": at}])]


class TestJoined:
    def test_alternating_schemas_of_a_widened_struct_are_one_frame(self) -> None:
        old = outcome(dict(zip((0, 2, 4), structs(STRUCT, a=(0, 2, 4)), strict=True)), STRUCT)
        new = outcome(dict(zip((1, 5), structs(WIDER, a=(1, 2**40), b=("x", "y")), strict=True)), WIDER)

        found = frames([old, new, outcome({3: None}, None)], 6, join=True)

        assert shown(found) == [
            (
                [0, 1, 2, 3, 4, 5],
                [{"a": 0, "b": None}, {"a": 1, "b": "x"}, {"a": 2, "b": None}, None, {"a": 4, "b": None},
                 {"a": 2**40, "b": "y"}],
            )
        ]  # fmt: skip
        joined = found[0].value_schema
        assert joined == SchemaBuilder.struct().field("a", INT64_SCHEMA).field("b", OPTIONAL_STRING_SCHEMA).build()

    def test_without_it_they_are_runs(self) -> None:
        old = outcome({0: Struct(STRUCT).put("a", 1), 2: Struct(STRUCT).put("a", 2)}, STRUCT)
        new = outcome({1: Struct(WIDER).put("a", 1).put("b", "x")}, WIDER)
        assert [frame.num_rows for frame in frames([old, new], 3)] == [1, 1, 1]

    def test_what_no_column_holds_stays_apart_and_the_rest_is_joined(self) -> None:
        numbers, longs = outcome({0: 1, 3: 2}, INT32_SCHEMA), outcome({1: 2**40}, INT64_SCHEMA)
        texts = outcome({2: "x"}, STRING_SCHEMA)

        found = frames([numbers, texts, longs], 4, join=True)

        assert shown(found) == [([0, 1], [1, 2**40]), ([2], ["x"]), ([3], [2])]
        assert [frame.table["value"].type for frame in found] == [pa.int64(), pa.string(), pa.int64()]

    def test_decimals_that_no_usual_column_holds_are_frames_apart(self) -> None:
        money = SchemaBuilder.struct().field("d", Decimal.schema(2)).build()
        more = SchemaBuilder.struct().field("d", Decimal.schema(2)).field("n", INT32_SCHEMA).build()
        small = outcome({0: Struct(money).put("d", decimal.Decimal("1.25"))}, money)
        wide = outcome({1: Struct(more).put("d", decimal.Decimal("1" * 50 + ".25")).put("n", 1)}, more)
        last = outcome({2: Struct(more).put("d", decimal.Decimal("2.25")).put("n", 2)}, more)

        found = frames([small, wide, last], 3, join=True)

        assert [frame.num_rows for frame in found] == [1, 1, 1]
        assert found[0].table["value"].type == found[2].table["value"].type
        assert [frame.fields(["d"])["d"].to_pylist() for frame in found] == [
            [decimal.Decimal("1.25")], [decimal.Decimal("1" * 50 + ".25")], [decimal.Decimal("2.25")]
        ]  # fmt: skip

    def test_decimals_out_of_a_plan_join_with_those_of_records(self) -> None:
        more = SchemaBuilder.struct().field("d", Decimal.schema(2)).field("n", INT32_SCHEMA).build()
        money = SchemaBuilder.struct().field("d", Decimal.schema(2)).build()
        rows = outcome({0: Struct(money).put("d", decimal.Decimal("1.25"))}, money)
        of_plan = planned({1: Struct(more).put("d", decimal.Decimal("2.25")).put("n", 2)}, more)

        (found,) = frames([rows, of_plan], 2, join=True)

        assert found.table["value"].to_pylist() == [
            {"d": decimal.Decimal("1.25"), "n": None}, {"d": decimal.Decimal("2.25"), "n": 2}
        ]  # fmt: skip

    def test_hundreds_of_schemas_are_joined_at_once(self) -> None:
        count = 120 if QUICK else 300
        schemas = [SchemaBuilder.struct().field(f"f{number}", INT32_SCHEMA).build() for number in range(count)]
        outcomes = [outcome({row: Struct.unchecked(one, [row])}, one) for row, one in enumerate(schemas)]

        (found,) = frames(outcomes, count, join=True)

        assert found.value_schema is not None
        assert len(found.value_schema.fields) == count
        assert found.fields(["f7"])["f7"].to_pylist() == [7 if row == 7 else None for row in range(count)]

    def test_keys_are_joined_too_and_times_stay_times(self) -> None:
        at = datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC)
        more = SchemaBuilder.struct().field("at", Timestamp.SCHEMA).field("n", INT32_SCHEMA).build()
        first = outcome({0: Struct(TIMED).put("at", at)}, TIMED, [1], INT32_SCHEMA)
        second = outcome({1: Struct(more).put("at", at).put("n", 3)}, more, [2], INT64_SCHEMA)

        found = frames([first, second], 2, join=True)

        assert shown(found) == [([0, 1], [{"at": at, "n": None}, {"at": at, "n": 3}])]
        assert found[0].table["key"].to_pylist() == [1, 2]


def test_a_message_whose_rows_are_in_two_frames_is_continued() -> None:
    outcomes = [outcome({0: "a", 1: "b"}, STRING_SCHEMA), outcome({2: 1, 3: 2}, INT32_SCHEMA)]

    split = frames(outcomes, 4, origins=np.array([0, 1, 1, 2]))
    whole = frames(outcomes, 4, origins=np.array([0, 0, 1, 1]))

    assert [frame.continued for frame in split] == [True, False]
    assert [frame.continued for frame in whole] == [False, False]


def test_rows_are_records_again_with_the_coordinates_of_their_messages() -> None:
    at = datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC)
    timed = outcome({0: Struct(TIMED).put("at", at), 2: Struct(TIMED).put("at", at)}, TIMED, [b"k", None], None)
    timed = replace(timed, columns={**timed.columns, "topic": pa.chunked_array([["r", "r"]])})
    (frame,) = frames([timed, outcome({1: None}, None)], 3)

    records = records_of_rows(frame, np.array([2, 1]))

    assert [record.original_kafka_offset for record in records] == [2, 1]
    assert [record.topic for record in records] == ["r", "t"]
    assert {record.original_topic for record in records} == {"t"}
    value = records[0].value
    assert isinstance(value, Struct)
    assert value.get("at") == at
    assert records[1].value is None
    assert [(one.key, one.value) for one in records[0].headers] == [("h", b"1")]


def test_rows_of_text_are_records_of_text() -> None:
    text = GroupOutcome(
        None, Shape(NOTHING, SCHEMALESS_TEXT, sink=True), {"value": pa.chunked_array([["{a=1}"]])}, None, None, {}
    )
    (frame,) = frames([text], 1, form=ValueForm.TEXT)
    assert records_of_rows(frame, np.array([0]))[0].value == "{a=1}"


class TestTyped:
    """Values without a schema as typed columns."""

    @staticmethod
    def frames(values: Sequence[object], topics: Sequence[str] = ()) -> list[SinkFrame]:
        rows = len(values)
        table = consumed(rows)
        if topics:
            table = table.set_column(0, "topic", pa.array(topics, pa.string()))
        loose = LooseValues("value")
        loose.add(np.arange(rows), values)
        parts = loose.typed(table.column("topic"), KnownTypes(), lambda row, error: pytest.fail(str(error)))
        gone = np.zeros(rows, bool)
        session: Any = lambda: None  # noqa: E731
        return frames_of([], table, gone, session, form=ValueForm.COLUMNS, typed={"value": parts})

    def test_topics_whose_values_differ_are_frames_apart_each_in_its_order(self) -> None:
        values = [{"a": 1}, {"b": "x"}, None, {"a": 2}, {"b": "y"}, None, {"a": 3}]

        found = self.frames(values, ["t", "u", "t", "t", "u", "u", "t"])

        assert [frame.origin["offset"].to_pylist() for frame in found] == [[0, 2, 3, 6], [1, 4, 5]]
        assert [frame.objects() for frame in found] == [
            [{"a": 1}, None, {"a": 2}, {"a": 3}],
            [{"b": "x"}, {"b": "y"}, None],
        ]

    def test_topics_whose_values_are_alike_share_a_frame(self) -> None:
        (found,) = self.frames([{"a": 1}, {"a": 2}, None], ["t", "u", "v"])

        assert found.objects() == [{"a": 1}, {"a": 2}, None]

    def test_rows_of_one_partition_stay_in_order(self) -> None:
        values = [*[{"a": 1}] * 40, "text", None, *[{"a": 2}] * 40, "more"]

        found = self.frames(values)

        assert [one for frame in found for one in frame.objects()] == values
        types = [str(frame.table["value"].type) for frame in found]
        assert types == ["struct<a: int64>", "string", "struct<a: int64>", "string"]

    def test_only_nulls_are_of_no_type(self) -> None:
        (found,) = self.frames([None, None])

        assert found.table["value"].type == pa.null()

    def test_what_is_reported_has_the_fields_of_the_message(self) -> None:
        (found,) = self.frames([{"a": 1, "b": None}, {"a": 2.5}, None])

        assert [record.value for record in records_of_rows(found, np.array([2, 0, 1]))] == [
            None, {"a": 1, "b": None}, {"a": 2.5}
        ]  # fmt: skip
