"""Connect schemas as column types, and the physical choice of a frame.

Raw integers of temporal types and Python's dates and times.
"""

from datetime import UTC, date, datetime, time

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T
from tests.generated import examples

from penstock.api.arrow import connect_schema
from penstock.data import (
    INT8_SCHEMA,
    INT32_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Date,
    Decimal,
    Schema,
    SchemaBuilder,
    Time,
    Timestamp,
    Type,
)
from penstock.errors import DataException
from penstock.pipeline.columns.layout import (
    DECIMAL,
    SCALAR,
    UNSCALED,
    UNSCALED_SPARK,
    VARIANT_ARROW,
    Layout,
    LayoutKind,
    arrow_type,
    date_of_days,
    datetime_of_millis,
    days_of_date,
    default_physical,
    millis_of_datetime,
    millis_of_time,
    physical_of_arrow,
    physical_of_spark,
    schema_of_spark,
    spark_type,
    time_of_millis,
)

INT_MAP = SchemaBuilder.map(INT32_SCHEMA, STRING_SCHEMA).build()
NESTED = (
    SchemaBuilder.struct()
    .field("a.b", INT8_SCHEMA)
    .field("`", SchemaBuilder.array(Decimal.schema(2)).build())
    .field("A", SchemaBuilder.map(STRING_SCHEMA, Timestamp.SCHEMA).build())
    .field("a", SchemaBuilder.struct().field(" ", INT_MAP).build())
    .build()
)
SCHEMAS = [
    *(Schema(kind) for kind in Type if kind.is_primitive),
    Date.SCHEMA,
    Time.SCHEMA,
    Timestamp.SCHEMA,
    Decimal.schema(0),
    Decimal.schema(38),
    Decimal.schema(39),
    Decimal.schema(-1),
    Schema(Type.ARRAY),
    Schema(Type.MAP),
    INT_MAP,
    SchemaBuilder.struct().build(),
    NESTED,
    None,
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_arrow_and_spark_agree_on_the_column_of_every_schema(schema: Schema | None) -> None:
    from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

    assert from_arrow_type(arrow_type(schema)) == spark_type(schema)
    assert arrow_type(schema).equals(to_arrow_type(spark_type(schema)), check_metadata=True)


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_the_physical_choice_can_be_read_back_from_the_column_type(schema: Schema | None) -> None:
    assert physical_of_arrow(arrow_type(schema), schema) == default_physical(schema)
    assert physical_of_spark(spark_type(schema), schema) == default_physical(schema)


def test_temporal_types_are_their_raw_integers() -> None:
    found = [arrow_type(one.SCHEMA) for one in (Timestamp, Time, Date)]

    assert found == [pa.int64(), pa.int32(), pa.int32()]


def test_a_decimal_outside_of_spark_s_scales_is_a_struct() -> None:
    found = [default_physical(Decimal.schema(scale)) for scale in (0, 38, -1, 39)]

    assert found == [DECIMAL, DECIMAL, UNSCALED, UNSCALED]
    assert spark_type(Decimal.schema(2)) == T.DecimalType(38, 2)
    assert spark_type(Decimal.schema(2), UNSCALED) == UNSCALED_SPARK


def test_a_decimal_schema_without_a_usable_scale_is_a_struct() -> None:
    broken = Schema(Type.BYTES, name=Decimal.LOGICAL_NAME, parameters={"scale": "two"})

    assert default_physical(broken) == UNSCALED
    assert default_physical(Schema(Type.BYTES, name=Decimal.LOGICAL_NAME)) == UNSCALED


def test_a_logical_name_on_another_type_is_a_plain_column() -> None:
    assert arrow_type(Schema(Type.STRING, name=Date.LOGICAL_NAME)) == pa.string()


def test_every_field_is_nullable_at_every_depth() -> None:
    def check(one: pa.DataType) -> None:
        for index in range(one.num_fields):
            field = one.field(index)
            # Arrow does not let the entries and keys of a map be null.
            assert field.nullable or pa.types.is_map(one) or one == VARIANT_ARROW or field.name == "key"
            check(field.type)

    required = SchemaBuilder.struct().field("s", NESTED).field("l", SchemaBuilder.array(NESTED).build()).build()
    check(arrow_type(required))


def test_a_wider_layout_is_read_back_from_its_types() -> None:
    narrow = default_physical(NESTED)
    list_of_unscaled = Layout(LayoutKind.ARRAY, (UNSCALED,))
    entries = Layout(LayoutKind.ENTRIES, narrow.children[2].children)
    one = Layout(LayoutKind.STRUCT, (SCALAR, list_of_unscaled, *narrow.children[2:]))
    other = Layout(LayoutKind.STRUCT, (*narrow.children[:2], entries, narrow.children[3]))

    assert physical_of_arrow(arrow_type(NESTED, one), NESTED) == one
    assert physical_of_spark(spark_type(NESTED, other), NESTED) == other


def test_a_struct_that_has_the_fields_of_a_variant_is_no_variant() -> None:
    lookalike = SchemaBuilder.struct().field("value", INT8_SCHEMA).field("metadata", INT8_SCHEMA).build()

    assert physical_of_arrow(arrow_type(lookalike), lookalike).form is LayoutKind.STRUCT


def test_the_schema_of_a_task_s_own_columns_has_logical_types() -> None:
    column = T.StructType(
        [
            T.StructField("d", T.DateType(), nullable=False),
            T.StructField("t", T.TimestampType()),
            T.StructField("n", T.DecimalType(10, 3)),
            T.StructField("m", T.MapType(T.StringType(), T.ShortType(), valueContainsNull=False)),
            T.StructField("l", T.ArrayType(T.StringType())),
        ]
    )
    schema = schema_of_spark(column)

    assert schema is not None
    assert schema.field("d") is not None
    assert [str(field.schema) for field in schema.fields[:3]] == [
        f"Schema{{{Date.LOGICAL_NAME}:INT32}}",
        f"Schema{{{Timestamp.LOGICAL_NAME}:INT64}}",
        f"Schema{{{Decimal.LOGICAL_NAME}:BYTES}}",
    ]
    assert [field.schema.optional for field in schema.fields] == [False, True, True, True, True]
    assert schema.fields[2].schema.parameters == {"scale": "3"}
    assert schema.fields[3].schema.value_schema == Schema(Type.INT16)
    assert schema.fields[4].schema.value_schema == OPTIONAL_STRING_SCHEMA


@pytest.mark.parametrize(
    ("arrow", "kind", "name"),
    [
        (pa.time32("ms"), Type.INT32, Time.LOGICAL_NAME),
        (pa.timestamp("us", "UTC"), Type.INT64, Timestamp.LOGICAL_NAME),
        (pa.date32(), Type.INT32, Date.LOGICAL_NAME),
        (pa.uint16(), Type.INT64, None),
        (pa.large_string(), Type.STRING, None),
        (pa.dictionary(pa.int8(), pa.string()), Type.STRING, None),
    ],
    ids=str,
)
def test_the_schema_of_an_arrow_column(arrow: pa.DataType, kind: Type, name: str | None) -> None:
    schema = connect_schema(arrow, optional=True)

    assert schema is not None
    assert (schema.type, schema.name, schema.optional) == (kind, name, True)


def test_a_column_without_a_connect_type_is_refused_by_its_name() -> None:
    with pytest.raises(DataException, match="interval"):
        schema_of_spark(T.DayTimeIntervalType())
    with pytest.raises(DataException, match="VARIANT"):
        schema_of_spark(T.StructType([T.StructField("v", T.VariantType())]))


@examples(40)
@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_every_raw_timestamp_comes_back(millis: int) -> None:
    found = datetime_of_millis(millis)

    assert (found if isinstance(found, int) else millis_of_datetime(found)) == millis


@examples(40)
@given(st.integers(-(1 << 31), (1 << 31) - 1))
def test_every_raw_date_and_time_comes_back(raw: int) -> None:
    day, moment = date_of_days(raw), time_of_millis(raw)

    assert (day if isinstance(day, int) else days_of_date(day)) == raw
    assert (moment if isinstance(moment, int) else millis_of_time(moment)) == raw


@pytest.mark.parametrize(
    ("millis", "expected"),
    [
        (-62_135_596_800_000, datetime(1, 1, 1, tzinfo=UTC)),
        (-62_135_596_800_001, -62_135_596_800_001),
        (253_402_300_799_999, datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC)),
        (253_402_300_800_000, 253_402_300_800_000),
        (-1, datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)),
    ],
)
def test_only_what_python_can_hold_becomes_a_datetime(millis: int, expected: object) -> None:
    assert datetime_of_millis(millis) == expected


def test_finer_parts_are_cut_towards_the_past() -> None:
    assert millis_of_datetime(datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)) == -1
    assert millis_of_time(time(0, 0, 0, 1_999)) == 1


def test_the_last_day_of_python_is_a_date() -> None:
    assert date_of_days(days_of_date(date.max)) == date.max
    assert date_of_days(days_of_date(date.max) + 1) == days_of_date(date.max) + 1
