"""Typed columns of the fields of a frame's values: with a schema, and of schemaless JSON."""

from __future__ import annotations

import datetime
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.api import SinkFrame
from penstock.api.frames.fields import split_path
from penstock.api.frames.variant_fields import Variants
from penstock.errors import DataException
from penstock.pipeline.columns.layout import UNSCALED_ARROW, VARIANT_ARROW, VARIANT_FIELDS
from penstock.pipeline.columns.variant import encode, unscale, unscaled_bytes

UTC = datetime.UTC
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=UTC)


def frame_of(column: pa.Array, key: pa.Array | None = None) -> SinkFrame:
    rows = len(column)
    columns = {
        "topic": pa.array(["t"] * rows, pa.string()),
        "partition": pa.array([3] * rows, pa.int32()),
        "offset": pa.array(range(10, 10 + rows), pa.int64()),
        "key": pa.nulls(rows) if key is None else key,
        "value": column,
    }
    return SinkFrame(pa.table(columns), None, None)


def schemaless(values: Sequence[object]) -> pa.Array:
    pairs = [(b"\x00", b"\x01\x00\x00") if value is None else encode(value) for value in values]
    data, names = pa.array([one[0] for one in pairs], pa.binary()), pa.array([one[1] for one in pairs], pa.binary())
    mask = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays([data, names], fields=list(VARIANT_FIELDS), mask=mask)


def field(values: Sequence[object], name: str, wanted: pa.DataType | None = None) -> list[Any]:
    found: list[Any] = frame_of(schemaless(values)).fields({name: wanted})[name].to_pylist()
    return found


def digits(values: Sequence[Decimal | None]) -> pa.Array:
    pairs = [None if value is None else unscale(value) for value in values]
    rows = [None if pair is None else {"unscaled": unscaled_bytes(pair[0]), "scale": pair[1]} for pair in pairs]
    return pa.array(rows, UNSCALED_ARROW)


class TestWithASchema:
    def test_fields_and_nested_ones_are_columns_in_the_order_of_the_names(self) -> None:
        column = pa.array([{"id": 1, "at": {"city": "Oslo", "zip.code": 5}}, None, {"id": None, "at": None}])

        found = frame_of(column).fields(["at.city", "id", "at.`zip.code`"])

        assert found.column_names == ["at.city", "id", "at.`zip.code`"]
        assert found.to_pydict() == {
            "at.city": ["Oslo", None, None], "id": [1, None, None], "at.`zip.code`": [5, None, None]
        }  # fmt: skip
        assert found.schema.types == [pa.string(), pa.int64(), pa.int64()]

    def test_a_slice_of_a_frame_has_the_fields_of_its_rows(self) -> None:
        frame = frame_of(pa.array([{"a": {"b": number}} for number in range(9)]))
        assert frame.slice(4, 3).fields(["a.b"])["a.b"].to_pylist() == [4, 5, 6]

    def test_the_entry_of_a_map_is_a_field(self) -> None:
        column = pa.array([[("a", 1), ("b", 2)], [("b", 3)], None], pa.map_(pa.string(), pa.int32()))
        assert frame_of(column).fields(["b"])["b"].to_pylist() == [2, 3, None]

    def test_a_field_called_key_and_the_key_itself(self) -> None:
        frame = frame_of(pa.array([{"key": "inner"}]), key=pa.array([{"key": 7}]))

        assert frame.fields(["key"])["key"].to_pylist() == ["inner"]
        assert frame.fields(["key"], of="key")["key"].to_pylist() == [7]

    @pytest.mark.parametrize(
        ("column", "wanted", "made"),
        [
            (pa.array([1, None], pa.int8()), pa.int64(), [1, None]),
            (pa.array([1, 2], pa.int64()), pa.int8(), [1, 2]),
            (pa.array([1.0, 2.0]), pa.int32(), [1, 2]),
            (pa.array([1.5], pa.float32()), pa.float64(), [1.5]),
            (pa.array([2.25]), pa.decimal128(10, 2), [Decimal("2.25")]),
            (pa.array([7]), pa.decimal128(25, 2), [Decimal("7.00")]),
            (pa.array([Decimal("1.50")], pa.decimal128(38, 2)), pa.decimal128(10, 1), [Decimal("1.5")]),
            (pa.array([Decimal("1.50")], pa.decimal128(38, 2)), pa.float64(), [1.5]),
            (pa.array([0], pa.timestamp("ms", "UTC")), pa.timestamp("us", "UTC"), [EPOCH]),
            (pa.array([1000]), pa.timestamp("us", "UTC"), [EPOCH + datetime.timedelta(seconds=1)]),
            (pa.array([datetime.date(2020, 1, 2)]), pa.date64(), [datetime.date(2020, 1, 2)]),
            (pa.array(["x"]), pa.large_string(), ["x"]),
            (pa.array([[1, 2]]), pa.list_(pa.int16()), [[1, 2]]),
            (pa.nulls(2), pa.string(), [None, None]),
        ],
    )  # fmt: skip
    def test_a_type_is_given_to_what_it_holds(self, column: pa.Array, wanted: pa.DataType, made: list[object]) -> None:
        struct = pa.StructArray.from_arrays([column], names=["f"])
        found = frame_of(struct).fields({"f": wanted})
        assert found["f"].type == wanted
        assert found["f"].to_pylist() == made

    @pytest.mark.parametrize(
        ("column", "wanted"),
        [
            (pa.array([1, 300]), pa.int8()),
            (pa.array([1.0, 1.5]), pa.int64()),
            (pa.array([1.5, 0.125]), pa.decimal128(10, 2)),
            (pa.array(["x", "1"]), pa.int64()),
            (pa.array([1, 2]), pa.string()),
            (pa.array([b"x", b"y"]), pa.string()),
            (pa.array([1, 0]), pa.bool_()),
            (pa.array([[1], [300]]), pa.list_(pa.int8())),
            (pa.array([{"b": 1}, {"b": 2}]), pa.struct([("c", pa.int64())])),
        ],
    )
    def test_what_does_not_fit_names_field_types_and_message(self, column: pa.Array, wanted: pa.DataType) -> None:
        struct = pa.StructArray.from_arrays([column], names=["f"])
        with pytest.raises(DataException) as caught:
            frame_of(struct).fields({"f": wanted})
        text = str(caught.value)
        assert all(
            part in text for part in ('field "f"', str(column.type), str(wanted), "topic t, partition 3, offset 1")
        )

    def test_a_struct_is_cast_by_the_names_of_its_fields(self) -> None:
        column = pa.array([{"f": {"a": 1, "b": "x"}}, {"f": None}])
        wanted = pa.struct([("b", pa.string()), ("a", pa.int16())])
        assert frame_of(column).fields({"f": wanted})["f"].to_pylist() == [{"b": "x", "a": 1}, None]

    def test_a_field_that_is_not_there_names_those_that_are(self) -> None:
        with pytest.raises(DataException, match=r'no field "c" for "a\.c"; the fields are "b"'):
            frame_of(pa.array([{"a": {"b": 1}}])).fields(["a.c"])
        with pytest.raises(DataException, match='"a" should be in is of the type int64'):
            frame_of(pa.array([1])).fields(["a"])

    def test_decimals_of_any_number_of_digits_are_decimals(self) -> None:
        small = [Decimal("1.50"), None, Decimal("-0.01"), Decimal("99999999999999999999.99")]
        wide = [Decimal("-1" + "0" * 40 + ".25"), Decimal("0.00")]
        for values, kind in ((small, pa.decimal128(38, 2)), (wide, pa.decimal256(76, 2))):
            column = pa.StructArray.from_arrays([digits(values)], names=["f"])
            found = frame_of(column).fields(["f"])["f"]
            assert (found.type, found.to_pylist()) == (kind, values)

    def test_decimals_of_several_scales_have_the_largest(self) -> None:
        column = pa.StructArray.from_arrays([digits([Decimal("1.5"), Decimal("2.125")])], names=["f"])
        assert frame_of(column).fields(["f"])["f"].to_pylist() == [Decimal("1.500"), Decimal("2.125")]
        assert frame_of(column).fields({"f": pa.decimal128(12, 3)})["f"].type == pa.decimal128(12, 3)

    def test_too_many_digits_are_an_error(self) -> None:
        column = pa.StructArray.from_arrays([digits([Decimal("1" * 90)])], names=["f"])
        with pytest.raises(DataException, match="more than 76 digits"):
            frame_of(column).fields(["f"])


class TestSchemaless:
    def test_a_column_has_the_type_of_the_values_found(self) -> None:
        values: list[Any] = [
            {"i": 1, "f": 1.5, "s": "x", "b": True, "d": Decimal("1.25"), "y": b"\x00\xff", "l": [1, None]},
            {"i": 2**40, "f": 2, "s": "é" * 80, "b": False, "d": 7, "y": b"", "l": []},
            None,
            {"i": None},
        ]

        found = frame_of(schemaless(values)).fields(list("ifsbdyl"))

        assert found.to_pylist()[:2] == [
            {**values[0]}, {"i": 2**40, "f": 2.0, "s": "é" * 80, "b": False, "d": Decimal("7.00"), "y": b"", "l": []}
        ]  # fmt: skip
        assert found.to_pylist()[2:] == [dict.fromkeys("ifsbdyl")] * 2
        assert found.schema.types == [
            pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.decimal128(38, 2), pa.binary(), pa.list_(pa.int64())
        ]  # fmt: skip

    def test_temporal_values_that_transforms_made(self) -> None:
        at = datetime.datetime(2020, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
        values = [{"t": at, "d": datetime.date(2020, 1, 2)}]
        assert field(values, "t") == [at]
        assert field(values, "d") == [datetime.date(2020, 1, 2)]

    def test_nested_ones_by_path(self) -> None:
        values = [{"a": {"b": {"c": 1}}}, {"a": {"b": 5}}, {"a": []}, {"a": {"b": {"c": 3, "x": "y"}}}, 17, "text"]
        assert field(values, "a.b.c") == [1, None, None, 3, None, None]

    def test_names_with_dots_and_others(self) -> None:
        assert field([{"a.b": {"ü": 1}}, {"a.b": {"ü": 2}}], "`a.b`.ü") == [1, 2]

    def test_lists_and_objects_of_a_type(self) -> None:
        values = [{"l": [{"k": 1, "t": ["x"]}, {"k": None}]}, {"l": None}, {}, {"l": []}]
        item = pa.struct([("k", pa.int16()), ("t", pa.list_(pa.string()))])
        assert field(values, "l", pa.list_(item)) == [[{"k": 1, "t": ["x"]}, {"k": None, "t": None}], None, None, []]
        assert field([{"o": {"a": 1}}, {"o": None}], "o", pa.struct([("a", pa.float64())])) == [{"a": 1.0}, None]

    def test_many_different_objects(self) -> None:
        pick = random.Random(3)
        names = [f"field{number}" for number in range(300)]
        values = [
            {name: pick.choice([1, 300, 70000, 2**50, -5]) for name in pick.sample(names, pick.randrange(300))}
            for _ in range(100)
        ]
        for name in ("field0", "field299", "field77"):
            assert field(values, name, pa.int64()) == [value.get(name) for value in values]

    def test_texts_of_all_lengths_in_large_objects(self) -> None:
        values = [{"a": "x" * size, "b": "end", "c": "y" * size * 300} for size in (0, 1, 63, 64, 255, 256, 300)]
        assert field(values, "a") == [value["a"] for value in values]
        assert field(values, "b") == ["end"] * 7
        assert field(values, "c") == [value["c"] for value in values]

    def test_half_a_pair_of_surrogates_is_a_replacement(self) -> None:
        (found,) = field([{"a": "x\ud800"}], "a")
        assert found.startswith("x\ufffd")

    def test_a_type_takes_numbers_of_every_width_and_null_where_there_is_none(self) -> None:
        values = [{"n": 1}, {"n": 300}, {"n": 2.0}, {"n": Decimal("3.00")}, {"n": None}, {}, None]
        assert field(values, "n", pa.int32()) == [1, 300, 2, 3, None, None, None]
        assert field(values, "n", pa.decimal128(10, 1)) == [Decimal("1.0"), Decimal("300.0"), Decimal("2.0"),
                                                            Decimal("3.0"), None, None, None]  # fmt: skip

    @pytest.mark.parametrize("bad", ["7", True, 2**40, 1.5, [1], Decimal("0.5")])
    def test_what_does_not_fit_a_type_names_the_message(self, bad: object) -> None:
        with pytest.raises(DataException, match=r'field "n" .*int32.*topic t, partition 3, offset 11'):
            field([{"n": 1}, {"n": bad}], "n", pa.int32())

    def test_an_object_without_a_type_says_what_to_write(self) -> None:
        with pytest.raises(DataException, match=r'"o" is an object: name the fields inside of it \("o.field"\)'):
            field([{"o": {"a": 1}}], "o")

    def test_values_of_several_kinds_want_a_type(self) -> None:
        with pytest.raises(DataException, match=r'"n" holds values of several kinds \(integer, string\)'):
            field([{"n": 1}, {"n": "x"}], "n")

    def test_a_field_that_no_value_has_is_null(self) -> None:
        assert field([{"a": 1}, None], "b") == [None, None]
        assert field([], "b", pa.int64()) == []
        assert frame_of(schemaless([{"a": 1}])).fields({"b": pa.string()})["b"].type == pa.string()

    def test_a_frame_of_nulls_alone_has_nulls_of_the_type(self) -> None:
        found = frame_of(pa.nulls(2)).fields({"a.b": pa.int64(), "c": None})
        assert (found.schema.types, found.num_rows) == ([pa.int64(), pa.null()], 2)

    def test_it_is_the_variant_that_spark_marks(self) -> None:
        plain = pa.array([{"value": 1, "metadata": 2}])
        assert frame_of(plain).fields(["metadata"])["metadata"].to_pylist() == [2]
        assert schemaless([{"metadata": 3}]).type == VARIANT_ARROW
        assert field([{"metadata": 3}], "metadata") == [3]


@pytest.mark.parametrize(("path", "steps"), [("a", ["a"]), ("a.b", ["a", "b"]), ("`a.b`", ["a.b"]), ("a.", ["a", ""])])
def test_paths(path: str, steps: list[str]) -> None:
    assert split_path(path) == steps


@pytest.mark.parametrize("path", ["`a", "`a`b", "a.`b"])
def test_a_backtick_without_a_partner_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="no partner"):
        split_path(path)


def test_names_are_given_one_by_one_as_lists_or_with_types() -> None:
    frame = frame_of(pa.array([{"a": 1, "b": 2, "c": 3}]))
    found = frame.fields("a", ["b"], {"c": pa.int8()})
    assert found.to_pydict() == {"a": [1], "b": [2], "c": [3]}
    assert found.schema.types == [pa.int64(), pa.int64(), pa.int8()]
    assert frame.fields().column_names == []


class TestValuesAsPythonObjects:
    def test_they_are_what_they_were_made_of(self) -> None:
        values: list[object] = [
            None,
            {"a": [1, {"b": None, "c": [True, []]}], "d": {"a": "x", "e": 1.5}},
            [],
            "text",
            {"a": {}},
            2**60,
            [[1], ["z" * 100], None],
        ]

        assert Variants.of(pa.chunked_array([schemaless(values)])).objects() == values
