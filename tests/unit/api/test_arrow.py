"""Connect schemas and Arrow types, there and back."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from tests.generated import examples, schemas

from penstock.api import SourceFrame
from penstock.api.arrow import arrow_type, connect_schema, is_variant
from penstock.data import (
    INT64_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Date,
    Decimal,
    Field,
    Schema,
    SchemaBuilder,
    Struct,
    Time,
    Timestamp,
    Type,
)
from penstock.errors import DataException
from penstock.pipeline.batch.source.frame_input import frame_to_records
from penstock.pipeline.columns.layout import VARIANT_ARROW

SCALES = (-76, -2, 0, 2, 38, 39, 76)
SCALES = (-76, -2, 0, 2, 38, 39, 76)
LOGICAL = [Timestamp.SCHEMA, Time.SCHEMA, Date.SCHEMA, *map(Decimal.schema, SCALES)]
PLAIN = [Schema(kind) for kind in Type if kind not in (Type.ARRAY, Type.MAP, Type.STRUCT)]
INNER = SchemaBuilder.struct().field("value", Time.SCHEMA).build()
INNER = SchemaBuilder.struct().field("value", Time.SCHEMA).build()
NESTED = [
    SchemaBuilder.array(INT64_SCHEMA).build(),
    SchemaBuilder.array(OPTIONAL_STRING_SCHEMA).build(),
    SchemaBuilder.map(STRING_SCHEMA, Decimal.builder(2).optional().build()).build(),
    SchemaBuilder.map(INT64_SCHEMA, SchemaBuilder.array(Date.SCHEMA).build()).build(),
    SchemaBuilder.struct().field("a", INT64_SCHEMA).field("b", INNER).build(),
    SchemaBuilder.struct().build(),
]


def bare(schema: Schema, *, optional: bool | None = None) -> Schema:
    """What a type can say of a schema: no names but those of logical types, no defaults, no texts."""
    logical = schema.name in (Timestamp.LOGICAL_NAME, Time.LOGICAL_NAME, Date.LOGICAL_NAME, Decimal.LOGICAL_NAME)
    scale = (schema.parameters or {}).get(Decimal.SCALE_FIELD) if logical else None
    return Schema(
        schema.type,
        optional=schema.optional if optional is None else optional,
        name=schema.name if logical else None,
        version=1 if logical else None,
        parameters=None if scale is None else {Decimal.SCALE_FIELD: scale},
        # Keys of maps are never null to Arrow.
        key_schema=bare(schema.key_schema, optional=False) if schema.type is Type.MAP and schema.key_schema else None,
        value_schema=bare(schema.value_schema)
        if schema.type in (Type.MAP, Type.ARRAY) and schema.value_schema
        else None,
        fields=[Field(one.name, one.index, bare(one.schema)) for one in schema.fields]
        if schema.type is Type.STRUCT
        else (),
    )


@pytest.mark.parametrize("schema", [*PLAIN, *LOGICAL, *NESTED], ids=str)
def test_a_schema_comes_back_from_its_type(schema: Schema) -> None:
    for optional in (False, True):
        one = bare(schema, optional=optional)
        assert bare(schema) == schema
        assert connect_schema(arrow_type(one), optional=optional) == one


@examples(30)
@given(schemas())
def test_any_schema_comes_back_without_what_no_type_has(schema: Schema) -> None:
    assert connect_schema(arrow_type(schema), optional=schema.optional) == bare(schema)


def test_what_has_no_schema_is_a_variant() -> None:
    assert arrow_type(None) == VARIANT_ARROW
    assert is_variant(arrow_type(None))
    assert connect_schema(arrow_type(None)) is None
    assert is_variant(arrow_type(Schema(Type.ARRAY)).value_type)


@pytest.mark.parametrize("scale", [None, "", "two", "77", "-77"])
def test_a_decimal_whose_scale_no_type_has_is_refused(scale: str | None) -> None:
    parameters = None if scale is None else {Decimal.SCALE_FIELD: scale}

    with pytest.raises(DataException, match="scale"):
        arrow_type(Schema(Type.BYTES, name=Decimal.LOGICAL_NAME, version=1, parameters=parameters))


def test_a_name_of_a_logical_type_on_another_type_says_nothing() -> None:
    assert arrow_type(Schema(Type.STRING, name=Timestamp.LOGICAL_NAME)) == pa.string()


def test_a_table_of_the_type_is_taken_by_a_frame_of_the_schema() -> None:
    row = SchemaBuilder.struct().field("at", Timestamp.SCHEMA).field("price", Decimal.schema(2)).build()
    found: list[dict[str, Any]] = [{"at": 1_700_000_000_000, "price": "1.50"}]
    times = pa.array([one["at"] for one in found], pa.int64()).cast(pa.schema(arrow_type(row)).field("at").type)
    prices = pa.array([one["price"] for one in found]).cast(pa.schema(arrow_type(row)).field("price").type)
    table = pa.Table.from_arrays([times, prices], schema=pa.schema(arrow_type(row)))

    (record,) = frame_to_records(SourceFrame.of(table, "t", source_partition={}, source_offset={"n": 1}), table)
    (other,) = frame_to_records(SourceFrame(table, "t", row, {}, {"n": 1}), table)

    assert record.value == other.value
    assert str(cast(Struct, record.value).get("price")) == "1.50"
