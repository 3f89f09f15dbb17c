"""Sql: expressions over fields and the parts of a record, on sources and sinks, with pieces and with bad records."""

import json
from datetime import UTC, datetime

import pytest
from testkit.doubles.chains import Chain, configured, put, record, sent, stages

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
from penstock.transforms.field_values import InsertFieldValue
from penstock.transforms.sql.transform import Sql

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


USER = {"u": {"id": 7, "name": "bob", "at": {"x": 1, "y": 2}}, "xs": [{"x": 3}, {"x": 4}]}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"select": "u.id::int as a, u.name::string as b"}, {"a": 7, "b": "bob"}),
        ({"select": "u.at.x::int as a, u.at.y::int as b"}, {"a": 1, "b": 2}),
        ({"select": "u.name", "where": "u.id::int = 7"}, {"name": "bob"}),
        ({"select": "u", "where": "u.id::int = 7"}, {"u": USER["u"]}),
        ({"select": "u, u.id::int as id"}, {"u": USER["u"], "id": 7}),
        ({"select": "u:id::int as a, u.name as b, record.value.u.at.x as c"}, {"a": 7, "b": "bob", "c": 1}),
        ({"select": "xs[0].x::int as a, xs[1]['x'] as b"}, {"a": 3, "b": 4}),
        ({"select": "key.x::int as a, record.key.x as b, headers.h.y as c"}, {"a": 5, "b": 5, "c": 6}),
        ({"select": "u.id::int as a, a + 1 as b, named_struct('c', a) as s, s.c as c"}, {"a": 7, "b": 8, "c": 7}),
        ({"select": "transform(xs::array<variant>, u -> u:x::int) as a, u.id as b"}, {"a": [3, 4], "b": 7}),
    ],
)
def test_without_a_schema_a_path_leads_into_an_object_and_the_object_stays_whole(spark_runtime, settings, expected):
    headers = ConnectHeaders([Header("h", {"y": 6}, None)])
    batch = Chain(spark_runtime, stages(sql(**settings))).source([record(USER, key={"x": 5}, headers=headers)])
    assert batch.errors == {}
    (found,) = values(batch)
    assert {name: found[name] for name in expected} == expected


SALE = {"n": 500, "f": 2.5, "s": "bob", "b": True, "big": 9007199254740993, "at": "2026-01-31T12:00:00Z", "u": {"n": 7}}
COMPARED = [
    ("n >= 500", True),
    ("n < 500", False),
    ("n = 500.0", True),
    ("n > -1", True),
    ("f > 2", True),
    ("f = 2.5", True),
    ("f <> 2.5", False),
    ("500 <= n", True),
    ("-1 < f", True),
    ("big = 9007199254740993", True),
    ("big = 9007199254740992", False),
    ("big > 9007199254740992L", True),
    ("s = 'bob'", True),
    ("s != 'bob'", False),
    ("'bob' <=> s", True),
    ("s < 'c' and s > 'a'", True),
    ("s like 'b%'", True),
    ("not s like 'b%'", False),
    ("s not like 'b%'", False),
    ("s ilike 'B%'", True),
    ("s rlike '^b.b$'", True),
    ("s in ('ann', 'bob')", True),
    ("n in (1, 500)", True),
    ("n not in (1, 500)", False),
    ("n between 1 and 500", True),
    ("s between 'a' and 'c'", True),
    ("b = true", True),
    ("false = b", False),
    ("at >= timestamp '2026-01-31 11:00:00Z'", True),
    ("date '2026-02-01' < at", False),
    ("u.n = 7", True),
    ("u['n'] = 7 and n = 500", True),
    ("record.value.u.n = 7", True),
    ("key.k = 'x'", True),
    ("headers['h'] = 'v'", True),
    ("headers.h in ('v')", True),
    ("case when n = 500 then s = 'bob' else b = false end", True),
]


@pytest.mark.parametrize("driver", [True, False], ids=["driver", "tasks"])
def test_without_a_schema_what_is_compared_with_a_literal_takes_its_type(spark_runtime, driver):
    select = ", ".join(f"{condition} as c{number}" for number, (condition, _) in enumerate(COMPARED))
    given = [record(SALE, key={"k": "x"}, headers=ConnectHeaders([Header("h", "v", None)]))] * (1 if driver else 5000)
    batch = Chain(spark_runtime, stages(sql(select=select))).source(given)
    assert batch.errors == {}
    found = values(batch)
    assert len(found) == len(given)
    assert {condition: found[-1][f"c{number}"] for number, (condition, _) in enumerate(COMPARED)} == dict(COMPARED)
    # All of them as conditions, and over values that have none of the fields.
    where = " and ".join(condition if holds else f"not ({condition})" for condition, holds in COMPARED)
    chain = Chain(spark_runtime, stages(sql(where=where)))
    given = [given[0], record({"other": 1}), record({"n": None, "s": None})]
    assert [row["dropped"] for row in chain.source(given).table.to_pylist()] == [False, True, True]


def test_a_value_that_is_not_of_the_literals_type_fails_its_record(spark_runtime):
    batch = Chain(spark_runtime, stages(sql(where="n >= 500"))).source([record({"n": "much"}), record({"n": 600})])
    assert list(batch.errors) == [0]
    assert "DOUBLE" in str(batch.errors[0])


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        ("n * 2 as m", 1000),
        ("-n as m", -500),
        ("u.n + u.m as m", None),
        ("u.n + n as m", 507),
        ("n > f as m", True),
        ("b and not false as m", True),
        ("concat('sales-', s, n) as m", "sales-bob500"),
        ("upper(s) as m", "BOB"),
        ("year(at) as m", 2026),
        ("aggregate(items, 0D, (sum, item) -> sum + item.price * item.count) as m", 14.0),
        ("items[1].price + items[7].price as m", None),
        ("items[0].price + items[1].count as m", 6.5),
        ("size(filter(items, item -> item.price > 3)) as m", 1),
        ("coalesce(nothing, none.of.them, many[3].more, 'x') as m", "x"),
        ("coalesce(s.more, n[0], 7) as m", 7),
        ("named_struct('a', u).a.n as m", 7),
        ("u::string as m", '{"n":7}'),
        ("items::array<struct<count: double>>[1].count as m", 4.0),
        ("variant_get(u, '$.n', 'int') + 1 as m", 8),
    ],
)
def test_fields_of_values_without_a_schema_have_types(spark_runtime, select, expected):
    items = [{"price": 2.5, "count": 2}, {"price": 2.25, "count": 4}, {"price": None}]
    if "item" in select and "->" in select:
        items = [{"price": 2.5, "count": 2}, {"price": 9, "count": 1}]
    given = {**SALE, "items": items, "none": None}
    chain = Chain(spark_runtime, stages(sql(select=select)))

    # An index behind a cast is Spark's own, which fails where there is nothing.
    empty: dict[str, object] = {} if "::array" in select else {"items": []}
    batch = chain.source([record(given), record({"other": 1}), record({**empty, "u": None, "many": []})])

    assert batch.errors == {}
    assert values(batch)[0]["m"] == expected


def test_without_a_schema_objects_with_a_field_of_another_kind_are_apart_and_come_back_in_place(spark_runtime):
    given = [{"n": number, "k": [number]} for number in range(20)]
    given[3], given[7], given[11] = {"n": "x"}, {"n": "7", "k": 1}, {"n": {"deep": 1}}
    chain = Chain(spark_runtime, stages(sql(select="*, n * 2 as m")))

    batch = chain.source([record(value) for value in given])

    assert sorted(batch.errors) == [3, 11]
    found = values(batch)
    assert [one["m"] for one in found if one is not None] == [
        number * 2 for number in range(20) if number not in (3, 11)
    ]
    assert all(one == {**given[int(one["m"]) // 2], "m": one["m"]} for one in found if one is not None)


def test_a_field_that_is_only_named_is_what_it_was(spark_runtime):
    given = [{"n": 1, "o": {"a": 1, "b": None}}, {"n": 1.5, "o": {}}, {"o": [1, 2.5, {"x": None}]}]

    batch = Chain(spark_runtime, stages(sql(select="n, o as p, 1 + 1 as two"))).source([record(one) for one in given])

    assert sent(batch) == [
        b'{"n":1,"p":{"a":1,"b":null},"two":2}',
        b'{"n":1.5,"p":{},"two":2}',
        b'{"n":null,"p":[1,2.5,{"x":null}],"two":2}',
    ]


def test_without_a_schema_fields_come_before_functions_that_need_no_brackets(spark_runtime):
    chain = Chain(spark_runtime, stages(sql(select="user, session_user, year(current_date()) > 2000 as now")))
    given = [record({"user": "bob", "session_user": "eve"}), record({"a": 1})]
    assert values(chain.source(given)) == [
        {"user": "bob", "session_user": "eve", "now": True},
        {"user": None, "session_user": None, "now": True},
    ]
    chain = Chain(spark_runtime, stages(sql(select="current_date::string as d")))
    found = values(chain.source([record({"current_date": "mine"}), record({"a": 1})]))
    assert found[0] == {"d": "mine"}
    assert datetime.fromisoformat(found[1]["d"]).year > 2000


def test_without_a_schema_a_field_comes_before_the_part_of_its_record_of_that_name(spark_runtime):
    select = "topic::string as t, record.topic as rt, timestamp, `partition`::string as p"
    batch = Chain(spark_runtime, stages(sql(select=select))).source(
        [record({"topic": "inner", "timestamp": "2020"}), record({"a": 1}), record({"partition": 3})]
    )
    assert values(batch) == [
        {"t": "inner", "rt": "t", "timestamp": "2020", "p": None},
        {"t": "t", "rt": "t", "p": None},
        {"t": "t", "rt": "t", "p": "3"},
    ]
    assert [row["timestamp"] for row in batch.table.to_pylist()] == [5, 5, 5]


def test_pieces_keep_their_order_where_records_have_different_fields(spark_runtime):
    chain = Chain(spark_runtime, stages(sql(select="explode(xs::array<int>) as x, topic::string as t")))
    batch = chain.source([record({"xs": [1, 2], "topic": "a"}), record({"xs": [3]}), record({"xs": [4], "topic": "b"})])
    assert [(one["x"], one["t"]) for one in values(batch)] == [(1, "a"), (2, "a"), (3, "t"), (4, "b")]
    assert origins(batch) == [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("name::string as topic", 'the column "topic" is null or empty'),
        ("n::int as partition", 'the column "partition" is negative'),
    ],
)
def test_a_record_that_gets_no_topic_or_partition_to_go_to_fails_alone(spark_runtime, column, words):
    batch = Chain(spark_runtime, stages(sql(select=f"*, {column}"))).source(
        [record({"name": "x", "n": 0}), record({"name": None, "n": -1}), record({"name": "y", "n": 1})]
    )
    assert list(batch.errors) == [1]
    assert batch.errors[1].exception_class == "org.apache.kafka.connect.errors.DataException"
    assert words in str(batch.errors[1].message)


def test_a_timestamp_that_spark_does_not_know_fails_only_where_it_is_used(spark_runtime):
    far = Struct(ORDER).put("id", 1).put("at", 2**63 - 1).put("items", []).put("topic", "x")
    chain = Chain(spark_runtime, stages(sql(select="id + 1 as n, at", where="id > 0")))
    assert chain.source([record(far, schema=ORDER)]).errors == {}
    chain = Chain(spark_runtime, stages(sql(select="year(at) as y")))
    assert "DATETIME_OVERFLOW" in str(chain.source([record(far, schema=ORDER)]).errors[0].message)


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


def test_what_spark_itself_stumbles_over_fails_the_record_with_a_reason(spark_runtime):
    batch = Chain(spark_runtime, stages(sql(select="a -> 1"))).source([record({"a": 1})])
    assert "Spark cannot plan the expressions: [INTERNAL_ERROR]" in str(batch.errors[0].message)
    assert batch.errors[0].exception_class == "org.apache.kafka.connect.errors.DataException"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"select": "a b c"}, ("configuration select", "PARSE_SYNTAX_ERROR", "line 1, pos 4")),
        ({"where": "x = = 2"}, ("configuration where", "PARSE_SYNTAX_ERROR", "pos 4")),
        ({"select": "a,,b"}, ("configuration select", "expression missing")),
        ({"select": "id, nofn(id.x) as x"}, ("configuration select", "UNRESOLVED_ROUTINE", "`nofn`", "line 1 pos 0")),
        ({"where": "nofn(id)"}, ("configuration where", "UNRESOLVED_ROUTINE")),
        ({"select": "upper(a, b)"}, ("configuration select", "WRONG_NUM_ARGS")),
        ({"select": "id, count(*) as n"}, ("configuration select", "MISSING_GROUP_BY")),
        ({"where": "sum(n) > 1"}, ("configuration where", "INVALID_WHERE_CONDITION")),
        ({"select": "1 / explode(xs) as q"}, ("configuration select", "UNSUPPORTED_GENERATOR")),
        ({"where": "1 + 1"}, ("configuration where", "FILTER_NOT_BOOLEAN")),
        ({"select": "a.id, b.x as id"}, ("configuration select", "two columns one name: id")),
        ({}, ("select", "where")),
    ],
)
def test_a_bad_expression_is_refused_with_sparks_message_and_position(spark_runtime, settings, words):
    spark_runtime.session(180)
    with pytest.raises(ConfigException) as caught:
        sql(**settings)
    assert all(word in str(caught.value) for word in words)
    assert "Project" not in str(caught.value)
    assert "__" not in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"select": "*, upper(name) as n, year(at) as y, items[0].x, a.b.c:d, explode(items) as i", "where": "flag"},
        {"select": "transform(xs, x -> x.y + 1) as z, q + 1 as r, posexplode(ys)"},
        {"select": "sum + count as total, row['a'], timestamp'2020-01-01' as t, map('a', b) as headers"},
        {"where": "u:id::int = 7 and array_contains(xs, 'a') and topic like 'x%' and record.key.x is not null"},
    ],
)
def test_expressions_that_some_records_fit_are_taken(spark_runtime, settings):
    spark_runtime.session(180)
    sql(**settings)


def test_all_fields_of_what_has_none_is_an_error_that_says_what_to_write(spark_runtime):
    for schema in (None, STRING_SCHEMA):
        chain = Chain(spark_runtime, stages(sql(select="*")))
        batch = chain.source([record("a line", schema=schema)] * 3)
        assert [error.message for error in batch.errors.values()] == [
            "select=* stands for the fields of the value, and it has none, it is of type string: write value as line, "
            "say, to make a field of it, or value to leave it as it is"
        ] * 3
        for select, written in (("value as line", b'{"line":"a line"}'), ("value", b'"a line"')):
            chain = Chain(spark_runtime, stages(sql(select=select)))
            assert sent(chain.source([record("a line", schema=schema)])) == [written]


def test_only_values_without_fields_fail_where_all_fields_are_selected(spark_runtime):
    given = [{"a": 1}, "text", 7, {"a": 2, "b": 3}, [1], None, {}]

    batch = Chain(spark_runtime, stages(sql(select="*, 5 as five"))).source([record(value) for value in given])

    assert sorted(batch.errors) == [1, 2, 4]
    assert sent(batch) == [b'{"a":1,"five":5}', b'{"a":2,"b":3,"five":5}', None, b'{"five":5}']
