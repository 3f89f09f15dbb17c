"""Schemas of Spark's types, and back; and types as users write them."""

from __future__ import annotations

import pytest
from pyspark.sql import types as T

from penstock.api.spark_types import connect_schema, parse_ddl, spark_type, struct_type
from penstock.data import (
    BOOLEAN_SCHEMA,
    BYTES_SCHEMA,
    FLOAT32_SCHEMA,
    FLOAT64_SCHEMA,
    INT8_SCHEMA,
    INT16_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
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

PAIRS: list[tuple[T.DataType, Schema]] = [
    (T.BooleanType(), BOOLEAN_SCHEMA),
    (T.ByteType(), INT8_SCHEMA),
    (T.ShortType(), INT16_SCHEMA),
    (T.IntegerType(), INT32_SCHEMA),
    (T.LongType(), INT64_SCHEMA),
    (T.FloatType(), FLOAT32_SCHEMA),
    (T.DoubleType(), FLOAT64_SCHEMA),
    (T.StringType(), STRING_SCHEMA),
    (T.BinaryType(), BYTES_SCHEMA),
    (T.DateType(), Date.SCHEMA),
    (T.TimestampType(), Timestamp.SCHEMA),
    (T.TimeType(), Time.SCHEMA),
    (T.DecimalType(38, 4), Decimal.builder(4).build()),
    (T.ArrayType(T.LongType(), False), SchemaBuilder.array(INT64_SCHEMA).build()),
    (T.MapType(T.StringType(), T.LongType(), False), SchemaBuilder.map(STRING_SCHEMA, INT64_SCHEMA).build()),
    (T.StructType([T.StructField("a", T.LongType(), False)]), SchemaBuilder.struct().field("a", INT64_SCHEMA).build()),
]


@pytest.mark.parametrize(("kind", "schema"), PAIRS, ids=lambda one: str(one)[:40])
def test_a_type_and_its_schema_lead_to_each_other(kind: T.DataType, schema: Schema) -> None:
    assert connect_schema(kind) == schema
    assert spark_type(schema) == kind
    assert connect_schema(kind, optional=True).optional


def test_types_without_a_schema_of_their_own_have_the_one_that_holds_their_values() -> None:
    assert connect_schema(T.TimestampNTZType()) == Timestamp.SCHEMA
    assert connect_schema(T.CharType(3)) == STRING_SCHEMA
    assert connect_schema(T.VarcharType(3)) == STRING_SCHEMA
    assert connect_schema(T.StringType("UNICODE")) == STRING_SCHEMA
    assert connect_schema(T.DecimalType(10, 2)) == Decimal.builder(2).build()
    assert isinstance(spark_type(None), T.VariantType)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (T.DayTimeIntervalType(), "interval"),
        (T.YearMonthIntervalType(), "interval"),
        (T.CalendarIntervalType(), "interval"),
        (T.VariantType(), "variant"),
        (T.NullType(), "void"),
    ],
)
def test_a_type_that_connect_has_not_is_refused_by_path_and_name_and_says_what_to_do(
    kind: T.DataType, name: str
) -> None:
    row = T.StructType([T.StructField("a", T.ArrayType(T.StructType([T.StructField("b", kind)])))])
    with pytest.raises(DataException, match=rf"The column a\.element\.b has Spark's type {name}.*: .+"):
        connect_schema(row)


def test_nullability_is_that_of_the_fields() -> None:
    schema = connect_schema(parse_ddl("a bigint not null, b array<int>, c map<string, struct<d: date>>"))
    assert [one.schema.optional for one in schema.fields] == [False, True, True]
    assert schema.fields[1].schema.value_schema is not None
    assert schema.fields[1].schema.value_schema.optional
    assert spark_type(schema) == struct_type("a bigint not null, b array<int>, c map<string, struct<d: date>>")


def test_a_ddl_text_is_what_spark_reads() -> None:
    text = (
        "a BIGINT NOT NULL COMMENT 'the ''id', `b c` decimal(10, 2), d: timestamp_ntz, e varchar(3), f interval day to "
        "second, g STRUCT<h: array<map<string, double>>, `i``j`: time(3)>, k dec, l numeric(5)"
    )
    fields = {one.name: one.dataType.simpleString() for one in struct_type(text.replace("''", "")).fields}
    assert fields == {
        "a": "bigint",
        "b c": "decimal(10,2)",
        "d": "timestamp_ntz",
        "e": "varchar(3)",
        "f": "interval day to second",
        "g": "struct<h:array<map<string,double>>,i`j:time(3)>",
        "k": "decimal(10,0)",
        "l": "decimal(5,0)",
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it ends where the name of a column is expected"),
        ("id", "it ends where a type is expected"),
        ("id bigint name string", 'there is name where "," or the end is expected'),
        ("id bigint,", "it ends where the name of a column is expected"),
        ("id array<bigint", 'there is the end where ">" is expected'),
        ("id decimal(50,2)", "no decimal of 50 digits"),
        ("id decimal(x)", "there is x where a number is expected"),
        ("id bigint, ID string", "a second column ID"),
        ("id bigint; drop", 'there is ";"'),
        ("id map<string>", 'there is > where "," is expected'),
        ("id bigint not", 'there is the end where "null" is expected'),
    ],
)
def test_a_ddl_text_that_is_wrong_is_refused_with_the_place(text: str, said: str) -> None:
    with pytest.raises(DataException, match="At character") as refused:
        parse_ddl(text)
    assert said in str(refused.value)


def test_a_decimal_that_spark_has_not_is_refused() -> None:
    wide = Schema(Type.BYTES, name=Decimal.LOGICAL_NAME, version=1, parameters={"scale": "50"})
    with pytest.raises(DataException, match="scale '50'"):
        spark_type(wide)
