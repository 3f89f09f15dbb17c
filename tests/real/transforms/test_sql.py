"""Sql: expressions over fields and the parts of a record, on sources and sinks, with pieces and with bad records."""

import json
from datetime import UTC, datetime

import pytest

from penstock.api import Transformation
from penstock.config import ConfigDef
from penstock.data import (
    INT32_SCHEMA,
    STRING_SCHEMA,
    ConnectHeaders,
    Header,
    SchemaBuilder,
    Struct,
    Timestamp,
)
from penstock.errors import ConfigException
from penstock.testing.chains import Chain, configured, put, record, sent, stages
from penstock.transforms.insert_field import InsertFieldValue
from penstock.transforms.sql import Sql

pytestmark = pytest.mark.java

ORDER = (
    SchemaBuilder.struct()
    .name("order")
    .field("id", INT32_SCHEMA)
    .field("at", Timestamp.SCHEMA)
    .field("items", SchemaBuilder.array(STRING_SCHEMA).build())
    .field("topic", STRING_SCHEMA)
    .build()
)


class Shout(Transformation):
    """A user's own transform, record by record."""

    def config(self) -> ConfigDef:
        return ConfigDef()

    def apply(self, record):
        return record.new_record(topic=f"{record.topic}!")


def order(number, items):
    moment = datetime(2020, 1, 1, tzinfo=UTC)
    return Struct(ORDER).put("id", number).put("at", moment).put("items", items).put("topic", "inner")


def sql(**settings):
    return configured(Sql(), settings)


def origins(batch):
    return batch.origins.tolist()


def values(batch):
    return [None if one is None else json.loads(one) for one in sent(batch)]


def test_fields_of_schemaless_values_and_parts_of_the_record_are_columns(spark_runtime):
    chain = Chain(
        spark_runtime,
        stages(
            sql(
                select="id, user.name as who, cast(n as int) * 2 as twice, upper(topic) as topic, "
                "headers['h']::string as h, map('new', 'x') as headers, cast(id as int) + 1 as key",
                where="cast(id as int) < 3",
            )
        ),
    )
    given = [
        record({"id": 1, "user": {"name": "joe"}, "n": 4}, headers=ConnectHeaders([Header("h", "v", STRING_SCHEMA)])),
        record({"id": 3, "n": 1}),
        record(None),
    ]
    batch = chain.source(given)
    assert values(batch) == [{"id": 1, "who": "joe", "twice": 8, "h": "v"}, None]
    rows = batch.table.to_pylist()
    assert rows[0]["topic"] == "T"
    assert rows[0]["key"] == b"2"
    assert rows[0]["headers"] == [{"key": "new", "value": b"x"}]
    assert rows[1]["dropped"]


def test_a_star_keeps_what_is_not_set(spark_runtime):
    batch = Chain(spark_runtime, stages(sql(select="*, cast(n as int) + 1 as n"))).source([record({"n": 1, "a": "b"})])
    assert values(batch) == [{"n": 2, "a": "b"}]


def test_with_a_schema_spark_derives_the_schema_and_named_fields_keep_theirs(spark_runtime):
    seen = []

    class Look(Shout):
        def apply(self, record):
            seen.append(record)
            return record

    chain = Chain(
        spark_runtime,
        stages(
            sql(select="id, at as since, date_add(at, 1) as next, `topic` as inner, record.topic as `record.key`"),
            Look(),
        ),
    )
    assert chain.source([record(order(1, []), schema=ORDER)]).errors == {}
    schema = seen[0].value_schema
    assert [field.name for field in schema.fields] == ["id", "since", "next", "inner"]
    assert schema.field("id").schema == INT32_SCHEMA
    assert schema.field("since").schema == Timestamp.SCHEMA
    assert schema.field("next").schema.name == "org.apache.kafka.connect.data.Date"
    assert seen[0].value.get("since") == datetime(2020, 1, 1, tzinfo=UTC)
    assert str(seen[0].value.get("next")) == "2020-01-02"
    assert seen[0].key == "t"


def test_explode_makes_pieces_of_a_source_record_between_other_transforms(spark_runtime):
    chain = Chain(
        spark_runtime,
        stages(
            configured(InsertFieldValue(), {"static.field": "s", "static.value": "v"}),
            sql(select="id, s, explode(items::array<string>) as item"),
            Shout(),
            configured(InsertFieldValue(), {"topic.field": "from"}),
        ),
    )
    given = [record({"id": 1, "items": ["a", "b"]}), record({"id": 2, "items": []}), record({"id": 3, "items": ["c"]})]
    batch = chain.source(given)
    assert [(one["id"], one["item"], one["from"], one["s"]) for one in values(batch)] == [
        (1, "a", "t!", "v"),
        (1, "b", "t!", "v"),
        (3, "c", "t!", "v"),
    ]
    assert origins(batch) == [0, 0, 2]


def test_explode_makes_pieces_of_a_sink_record(spark_runtime):
    chain = Chain(spark_runtime, stages(sql(select="explode(items::array<string>) as item"), Shout()))
    batch = chain.sink([b'{"items":["a","b"]}', b'{"items":[]}', b'{"items":["c"]}'])
    assert put(batch) == [{"item": "a"}, {"item": "b"}, {"item": "c"}]
    assert origins(batch) == [0, 0, 2]
    assert [one.kafka_offset for one in batch.records or () if one is not None] == [0, 0, 2]
    assert batch.count_dropped == 1


def test_an_error_in_one_row_is_the_error_of_that_record_alone(spark_runtime):
    chain = Chain(spark_runtime, stages(sql(select="100 / cast(n as int) as q")))
    batch = chain.source([record({"n": n}) for n in (1, 0, 2, 4, 0)])
    assert sorted(batch.errors) == [1, 4]
    assert "DIVIDE_BY_ZERO" in str(batch.errors[1].message)
    assert batch.errors[1].exception_class == "org.apache.kafka.connect.errors.DataException"
    assert [one["q"] for one in values(batch)] == [100.0, 50.0, 25.0]


def test_a_piece_that_fails_fails_its_record(spark_runtime):
    class Picky(Shout):
        def apply(self, record):
            if record.value["x"] == 2:
                raise ValueError("two")
            return record

    chain = Chain(spark_runtime, stages(sql(select="explode(xs::array<int>) as x"), Picky()))
    batch = chain.source([record({"xs": [1, 2, 3]}), record({"xs": [4]})])
    assert list(batch.errors) == [0]
    assert values(batch) == [{"x": 4}]


def test_a_field_that_is_not_there_fails_records_with_a_schema_and_names_the_fields(spark_runtime):
    batch = Chain(spark_runtime, stages(sql(select="nope"))).source([record(order(1, []), schema=ORDER)])
    assert "`nope` cannot be resolved" in str(batch.errors[0].message)
    assert "Project" not in str(batch.errors[0].message)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"select": "a b c"}, ("configuration select", "PARSE_SYNTAX_ERROR", "line 1, pos 4")),
        ({"where": "x = = 2"}, ("configuration where", "PARSE_SYNTAX_ERROR", "pos 4")),
        ({"select": "a,,b"}, ("configuration select", "expression missing")),
        ({}, ("select", "where")),
    ],
)
def test_a_bad_expression_is_refused_with_sparks_message_and_position(spark_runtime, settings, words):
    spark_runtime.session(180)
    with pytest.raises(ConfigException) as caught:
        sql(**settings)
    assert all(word in str(caught.value) for word in words)
