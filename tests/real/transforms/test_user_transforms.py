"""Users' transforms, by records and by frames, anywhere in a chain of stock ones, on sources and sinks."""

import json

import pytest
from pyspark.sql import functions as F
from testkit.doubles.chains import Chain, configured, put, record, sent, stages

from penstock.api import FrameTransformation, Transformation
from penstock.config import ConfigDef
from penstock.data import INT32_SCHEMA, STRING_SCHEMA, SchemaBuilder, Struct
from penstock.pipeline.batch.batches import TransformStage
from penstock.transforms.extraction import HoistFieldValue
from penstock.transforms.field_values import InsertFieldValue
from penstock.transforms.predicates import RecordIsTombstone, TopicNameMatches

pytestmark = pytest.mark.java

POINT = SchemaBuilder.struct().field("n", INT32_SCHEMA).build()
NAMED = SchemaBuilder.struct().field("n", INT32_SCHEMA).field("name", STRING_SCHEMA).build()


class Odd(Transformation):
    """Keeps odd numbers, refuses negative ones."""

    def config(self) -> ConfigDef:
        return ConfigDef()

    def apply(self, record):
        number = record.value["n"]
        if number < 0:
            raise ValueError("negative")
        return record if number % 2 else None


class Name(FrameTransformation):
    """Adds a field to Structs, drops fives by a filter, sevens by the mark, and refuses nines."""

    def config(self) -> ConfigDef:
        return ConfigDef()

    def apply(self, frame):
        n = F.col("value.n")
        error = F.struct(F.lit(None).cast("string"), F.lit(None).cast("string"), F.lit("nine"))
        named = F.struct(n.alias("n"), F.concat(F.lit("p"), n.cast("string")).alias("name"))
        data = frame.dataframe.filter(n != 5).withColumns(
            {"value": named, "dropped": n == 7, "error": F.when(n == 9, error)}
        )
        return frame.replace(dataframe=data, value_schema=NAMED)


class Wrong(Name):
    """Says one schema and makes another column."""

    def apply(self, frame):
        return frame.replace(dataframe=frame.dataframe.withColumn("value", F.lit(1)))


def field(name, value):
    return configured(InsertFieldValue(), {"static.field": name, "static.value": value})


def numbers(*found):
    return [record({"n": n}) for n in found]


def points(*found):
    return [record(Struct(POINT).put("n", n), schema=POINT) for n in found]


def test_a_record_transform_runs_between_stock_ones_of_a_source(spark_runtime):
    batch = Chain(spark_runtime, stages(field("a", "1"), Odd(), field("b", "2"))).source(numbers(1, 2, -3, 5))
    assert [json.loads(one) for one in sent(batch)] == [{"n": 1, "a": "1", "b": "2"}, {"n": 5, "a": "1", "b": "2"}]
    assert batch.errors[2].message == "negative"
    assert batch.errors[2].exception_class == "ValueError"
    assert batch.table.column("dropped").to_pylist() == [False, True, False, False]


def test_a_record_transform_runs_between_stock_ones_of_a_sink(spark_runtime):
    chain = Chain(spark_runtime, stages(field("a", "1"), Odd(), field("b", "2")))
    batch = chain.sink([b'{"n":%d}' % n for n in (1, 2, -3, 5)])
    assert put(batch) == [{"n": 1, "a": "1", "b": "2"}, {"n": 5, "a": "1", "b": "2"}]
    assert list(batch.errors) == [2]
    assert batch.count_dropped == 1


def test_a_frame_transform_runs_between_stock_ones_of_a_source(spark_runtime):
    chain = Chain(spark_runtime, stages(field("a", "1"), Plain(), Name(), field("b", "2")))
    batch = chain.source(points(1, 5, 7, 9, 2))
    assert [json.loads(one) for one in sent(batch)] == [
        {"n": 1, "name": "p1", "b": "2"},
        {"n": 2, "name": "p2", "b": "2"},
    ]
    assert batch.errors[3].message == "nine"
    assert batch.table.column("dropped").to_pylist() == [False, True, True, False, False]


class Plain(Odd):
    """Passes everything."""

    def apply(self, record):
        return record


def test_a_frame_transform_runs_on_a_sink(spark_runtime):
    class Twice(Name):
        def apply(self, frame):
            twice = F.col("value").try_cast("map<string,variant>")
            return frame.replace(
                dataframe=frame.dataframe.withColumn(
                    "value",
                    F.to_variant_object(
                        F.map_concat(
                            twice,
                            F.create_map(F.lit("two"), (F.try_variant_get("value", "$.n", "int") * 2).cast("variant")),
                        )
                    ),
                )
            )

    batch = Chain(spark_runtime, stages(Twice(), field("b", "2"))).sink([b'{"n":4}', None])
    assert put(batch) == [{"n": 4, "two": 8, "b": "2"}, None]


def test_a_frame_whose_column_denies_its_schema_fails_its_records(spark_runtime):
    batch = Chain(spark_runtime, stages(Wrong())).source(points(1, 2))
    assert sorted(batch.errors) == [0, 1]
    assert "does not fit" in str(batch.errors[0].message)


def test_predicates_guard_stock_record_and_frame_transforms(spark_runtime):
    only = configured(TopicNameMatches(), {"pattern": "yes|ye"})
    chain = Chain(
        spark_runtime,
        [
            TransformStage("f", Name(), only),
            TransformStage("s", field("s", "1"), only, negate=True),
            TransformStage("h", configured(HoistFieldValue(), {"field": "h"}), RecordIsTombstone(), negate=True),
        ],
    )
    given = [record(Struct(POINT).put("n", 1), schema=POINT, topic=topic) for topic in ("yes", "yess")]
    batch = chain.source(given)
    assert [json.loads(one) for one in sent(batch)] == [{"h": {"n": 1, "name": "p1"}}, {"h": {"n": 1, "s": "1"}}]


def test_the_time_of_users_transforms_is_told_and_that_of_stock_ones_is_not(spark_runtime):
    spent = []
    chain = Chain(spark_runtime, stages(field("a", "1"), Odd(), Name()), lambda alias, _: spent.append(alias))
    chain.source(numbers(1))
    assert spent == ["1", "2"]
