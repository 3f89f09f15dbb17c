"""Which batches go as rows, and the errors of a batch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import module_from_spec, spec_from_file_location

import numpy as np
import pyarrow as pa
import pytest

from penstock.api import SinkRecord
from penstock.converters.json.reading import ReadJson
from penstock.converters.json.values import UntypedValueError
from penstock.data import INT32_SCHEMA, Schema, SchemaBuilder, Struct, Type
from penstock.errors import DataException
from penstock.pipeline.batch import batches
from penstock.pipeline.batch.batches import Failures, Why
from penstock.pipeline.batch.groups import (
    HUGE_BYTES,
    MIN_SCHEMAS,
    ROWS_EACH,
    is_huge,
    many_schemas,
    why_batch_in_rows,
    why_rows,
)
from penstock.pipeline.columns.sizes import PLAN_LEVELS
from penstock.pipeline.plan.chain import Conditional, Staged
from penstock.pipeline.plan.map_structs import ValueDescription, object_member, object_side
from penstock.pipeline.plan.step import NOTHING, RAW, SCHEMALESS, SCHEMALESS_TEXT, Shape, Side, Step
from penstock.transforms.extraction import Hoist
from penstock.transforms.field_values import Insert, Insertion, Mask
from penstock.transforms.predicates import DropAll, RecordIsTombstone


def schema(number: int) -> Schema:
    return SchemaBuilder.struct().name(f"t{number}").field("id", INT32_SCHEMA).build()


def batch(schemas: int, rows_each: int) -> list[SinkRecord]:
    return [
        SinkRecord("t", 0, row, None, value_schema=schema(number))
        for number in range(schemas)
        for row in range(rows_each)
    ]


LOOSE = SinkRecord("t", 0, 0, {"b": 1, "a": 2})
TEXT = SinkRecord("t", 0, 0, None, key="text")


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (batch(MIN_SCHEMAS, 1), True),
        (batch(MIN_SCHEMAS - 1, 2), False),
        ([*batch(MIN_SCHEMAS - 1, 2), TEXT], True),
        (batch(MIN_SCHEMAS, ROWS_EACH + 1), False),
        ([*batch(MIN_SCHEMAS, 1), LOOSE], True),
        (batch(1, 100), False),
        ([], False),
    ],
)
def test_small_batches_of_many_schemas_do(records: Sequence[SinkRecord], expected: bool) -> None:
    assert many_schemas(records) is expected


def nested(levels: int) -> Schema:
    return INT32_SCHEMA if not levels else SchemaBuilder.array(nested(levels - 1)).build()


@pytest.mark.parametrize(("levels", "expected"), [(PLAN_LEVELS, False), (PLAN_LEVELS + 1, True)])
@pytest.mark.parametrize("side", ["key", "value"])
def test_a_batch_with_a_schema_that_is_nested_deeply_does(side: str, levels: int, expected: bool) -> None:
    deep = nested(levels)
    key, value = (deep, None) if side == "key" else (None, deep)
    why = why_batch_in_rows([TEXT, SinkRecord("t", 0, 1, None, key_schema=key, value_schema=value)])
    assert why is (Why.DEEP_SCHEMA if expected else None)


HUGE = "x" * (HUGE_BYTES + 1)
FIELD = SchemaBuilder.struct().field("a", Schema(Type.STRING)).build()


@pytest.mark.parametrize(
    "value", [HUGE, HUGE.encode(), {"a": [HUGE]}, Struct(FIELD).put("a", HUGE)], ids=["text", "bytes", "map", "struct"]
)
def test_a_batch_with_a_huge_value_does_and_one_with_many_small_ones_does_not(value: object) -> None:
    assert why_batch_in_rows([TEXT, SinkRecord("t", 0, 0, value)]) is Why.HUGE_VALUE
    assert why_batch_in_rows([TEXT] * 5) is None
    assert is_huge(pa.table({"value": ["a", HUGE]}))
    assert not is_huge(pa.table({"value": ["x" * 1000] * 20_000, "n": range(20_000)}))


OBJECTS = object_side(
    {"a": ValueDescription.of(Type.INT64), "in": object_member({"b": ValueDescription.of(Type.STRING)}, optional=False)}
)
STRUCTS = Side.of(FIELD)
MIXED = SCHEMALESS


def why(steps: Sequence[Step], value: Side, key: Side = NOTHING, *, to_records: bool = False) -> Why | None:
    return why_rows(tuple(Staged(one, "s", "c") for one in steps), Shape(key, value), to_records=to_records)


INSERT = Insert("value", (Insertion("static", "x", True),), "y", True)


@pytest.mark.parametrize(
    ("steps", "value", "expected"),
    [
        ([INSERT], STRUCTS, None),
        ([INSERT], OBJECTS, None),
        ([INSERT], SCHEMALESS_TEXT, None),
        ([INSERT], MIXED, Why.MIXED_VALUES),
        ([], MIXED, Why.MIXED_VALUES),
        ([INSERT], NOTHING, None),
        ([Mask("value", ("a",), None, True)], OBJECTS, None),
        ([Mask("value", ("in",), None, True)], OBJECTS, Why.NO_COLUMNS),
        ([INSERT, Mask("value", ("in",), None, True)], OBJECTS, Why.NO_COLUMNS),
        ([Hoist("value", "line"), INSERT], SCHEMALESS_TEXT, None),
        ([Hoist("value", "line"), INSERT], NOTHING, None),
        ([ReadJson("value", None, None, True)], RAW, None),
        ([ReadJson("value", None, None, True), INSERT], RAW, Why.MIXED_VALUES),
        ([ReadJson("key", None, None, True), INSERT], STRUCTS, None),
        ([Conditional(INSERT, RecordIsTombstone())], OBJECTS, None),
        ([ReadJson("value", None, None, True), Conditional(DropAll(), RecordIsTombstone())], RAW, Why.MIXED_VALUES),
        ([ReadJson("value", None, None, True), DropAll()], RAW, None),
    ],
)
def test_records_go_as_rows_where_a_step_has_no_columns_for_them(
    steps: Sequence[Step], value: Side, expected: Why | None
) -> None:
    assert why(steps, value) is expected


def test_what_records_are_made_of_is_read_as_rows_at_once() -> None:
    read = [ReadJson("value", None, None, True)]
    assert (why(read, RAW), why(read, RAW, to_records=True)) == (None, Why.MIXED_VALUES)
    assert why([ReadJson("key", None, None, True)], SCHEMALESS_TEXT, RAW, to_records=True) is None


def test_a_value_without_a_schema_inside_of_others_goes_as_a_row() -> None:
    loose = Schema(Type.ARRAY, optional=True)
    assert why([INSERT], Side.of(loose)) is Why.MIXED_VALUES


def test_a_record_counts_once_and_the_reason_of_a_stock_class_comes_first() -> None:
    taken = Failures()
    taken.went_as_rows([3, 1], Why.MIXED_VALUES)
    taken.went_as_rows(None, Why.OWN_CLASS)
    taken.went_as_rows(np.array([0]), Why.STATELESS)
    taken.went_as_rows([3], Why.NO_COLUMNS)

    assert taken.paths(5) == {Why.OWN_CLASS: 2, Why.STATELESS: 1, Why.MIXED_VALUES: 1, Why.NO_COLUMNS: 1}
    assert Failures().paths(5) == {None: 5}
    assert Failures().paths(0) == {}


def test_rows_count_as_the_record_that_they_were_made_of() -> None:
    taken = Failures()
    taken.went_as_rows([1, 7], Why.MIXED_VALUES)
    taken.spread(np.array([0, 1, 1, 2]))

    assert taken.paths(4) == {None: 2, Why.MIXED_VALUES: 2}


def test_an_error_of_a_plan_has_the_class_of_its_name_whatever_was_imported_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = spec_from_file_location("imported_later", batches.__file__)
    assert spec is not None
    assert spec.loader is not None
    later = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, later)
    spec.loader.exec_module(later)
    assert UntypedValueError.java_name == DataException.java_name
    assert type(later.exception_of(DataException.java_name, "told")) is DataException
