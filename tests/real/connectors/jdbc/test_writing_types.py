"""The sink task against PostgreSQL and SQLite, without Kafka: JSON without a schema, types, tables that change."""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from tests.real.connectors.jdbc.writing import VALUE, Database, Start, record, schemaless, variants

from penstock.broker.postgresql import PostgreSql
from penstock.connectors.jdbc.sink.fitting import fits
from penstock.data import Date, Decimal, Schema, SchemaBuilder, Time, Timestamp, Type
from penstock.errors import ConnectException

pytestmark = pytest.mark.slow

KEYED = {"insert.mode": "upsert", "pk.mode": "record_value"}
EVOLVE = {"auto.evolve": "true"}


@pytest.mark.parametrize("made", [schemaless, variants])
def test_values_without_a_schema_take_the_types_of_the_table(
    start: Start, database: Database, name: str, made: Callable[[list[Any]], Any]
) -> None:
    database.run(
        f"CREATE TABLE {name} (id bigint PRIMARY KEY, name text, price numeric(10,2), ok boolean, day date, "
        f"n smallint, moment time, raw {'bytea' if database.kind == 'postgresql' else 'blob'})"
    )
    writing = start(database, name, KEYED)
    # As JsonConverter writes Connect's Date, Time and bytes.
    writing.put(made([{"id": 9, "day": -135_081, "moment": 3_600_000, "raw": "AP8="}]), None, key_schema=None)
    [(day, moment, raw)] = database.rows(f"SELECT CAST(day AS char(10)), CAST(moment AS char(8)), raw FROM {name}")
    assert (day, moment[:8], bytes(raw)) == ("1600-02-29", "01:00:00", b"\0\xff")
    database.run(f"DELETE FROM {name}")
    values = [
        {"id": 1, "name": "a", "price": 2, "ok": True, "day": "2024-02-29", "n": 3},
        {"id": 2, "price": 2.5, "ok": None},
        {"id": 1, "name": "b", "price": 0.25, "ok": False, "day": None},
    ]
    writing.put(made(values), None, key_schema=None)
    found = database.rows(f"SELECT id, name, price, ok, CAST(day AS char(10)), n FROM {name} ORDER BY id")
    assert writing.context.reported == []
    assert [(one[0], one[1], float(one[2]), one[3], *one[4:]) for one in found] == [
        (1, "b", 0.25, False, None, None),
        (2, None, 2.5, None, None, None),
    ]
    writing.put(made(values[:1]), None, key_schema=None, first=3)
    assert database.rows(f"SELECT CAST(day AS char(10)), n FROM {name} WHERE id = 1") == [("2024-02-29", 3)]
    assert writing.reported == []


def test_json_columns_hold_any_value_and_the_database_parses_what_is_text(
    start: Start, postgresql: PostgreSql, name: str
) -> None:
    database = Database.of_postgresql(postgresql)
    database.run(
        f"CREATE TABLE {name} (id bigint PRIMARY KEY, extra jsonb, more json, at timestamptz, code uuid, tags text[])"
    )
    code = "6f2c9a4e-0d5b-4e0a-9d8a-1f2e3d4c5b6a"
    nested = {"a": {"b": [1, {"c": None}, "x"]}, "d": 1.5, "e": "ü"}
    writing = start(database, name, KEYED)
    writing.put(
        schemaless(
            [
                {
                    "id": 1,
                    "extra": nested,
                    "more": [1, 2],
                    "at": "2024-02-29T10:00:00+01:00",
                    "code": code,
                    "tags": ["x"],
                },
                {"id": 2, "extra": "text", "more": True},
                {"id": 3, "code": "no uuid"},
            ]
        ),
        None,
        key_schema=None,
    )
    moment = datetime.datetime(2024, 2, 29, 9, tzinfo=datetime.UTC)
    assert database.rows(f"SELECT id, extra, more, at, code::text, tags FROM {name} ORDER BY id") == [
        (1, nested, [1, 2], moment, code, ["x"]),
        (2, "text", True, None, None, None),
    ]
    assert writing.reported == [2]


def test_milliseconds_are_timestamps(start: Start, postgresql: PostgreSql, name: str) -> None:
    database = Database.of_postgresql(postgresql)
    database.run(f"CREATE TABLE {name} (id bigint, at timestamp)")
    start(database, name, {}).put(schemaless([{"id": 1, "at": 1_709_197_200_000}]), None, key_schema=None)
    assert database.rows(f"SELECT at::text FROM {name}") == [("2024-02-29 09:00:00",)]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"id": 1, "nope": 1}, "has the field nope, and the table .* has no such column"),
        ({"id": 1, "name": 5}, '"`?name`?" is of the type'),
        ({"id": 1.5}, "id"),
        ("text", "is no object"),
        ([1], "is no object"),
        ({"name": "no key"}, "'id' of the primary key is null"),
    ],
)
def test_a_value_without_a_schema_that_does_not_fit_is_one_row(
    start: Start, database: Database, name: str, value: object, said: str
) -> None:
    database.run(f"CREATE TABLE {name} (id bigint PRIMARY KEY, name text)")
    writing = start(database, name, KEYED)
    writing.put(schemaless([record(10, "a"), value, record(11, "b"), record(12, "c")]), None, key_schema=None)
    assert database.rows(f"SELECT id FROM {name} ORDER BY id") == [(10,), (11,), (12,)]
    assert writing.reported == [1]
    assert re.search(said, writing.context.reported[0][1]), writing.context.reported


def test_without_a_schema_the_key_may_be_of_the_message_or_the_record(
    start: Start, database: Database, name: str
) -> None:
    database.run(
        f"CREATE TABLE {name} (topic varchar(9), part int, off bigint, name text, PRIMARY KEY (topic, part, off))",
        f"CREATE TABLE {name}_k (k varchar(9) PRIMARY KEY, name text)",
        f"CREATE TABLE {name}_o (k bigint PRIMARY KEY, name text)",
    )
    kafka = {"insert.mode": "upsert", "pk.mode": "kafka", "pk.fields": "topic,part,off"}
    start(database, name, kafka).put(schemaless([{"name": "a"}, {"name": "b"}]), None, key_schema=None)
    assert database.rows(f"SELECT * FROM {name} ORDER BY off") == [("t", 0, 0, "a"), ("t", 0, 1, "b")]
    of_key = {"insert.mode": "upsert", "pk.mode": "record_key", "delete.enabled": "true"}
    keyed = start(database, f"{name}_k", {**of_key, "pk.fields": "k"})
    keyed.put(schemaless([{"name": "a"}, {"name": "b"}, None]), None, keys=["x", "y", "x"])
    assert database.rows(f"SELECT * FROM {name}_k") == [("y", "b")]
    objects = start(database, f"{name}_o", of_key)
    keys = schemaless([{"k": 1}, {"k": 2}])
    objects.put(schemaless([{"name": "a"}, {"name": "b"}]), None, keys=keys, key_schema=None)
    assert database.rows(f"SELECT * FROM {name}_o ORDER BY k") == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("made", [schemaless, variants])
def test_a_column_with_a_default_is_left_to_it_row_by_row(
    start: Start, database: Database, name: str, made: Callable[[list[Any]], Any]
) -> None:
    database.run(f"CREATE TABLE {name} (id bigint PRIMARY KEY, name text DEFAULT 'none', n int NOT NULL DEFAULT 7)")
    writing = start(database, name, KEYED)
    values = [{"id": 1}, {"id": 2, "name": "b"}, {"id": 3, "n": 1}, {"id": 4, "name": None, "n": 2}]
    writing.put(made(values), None, key_schema=None)
    assert database.rows(f"SELECT * FROM {name} ORDER BY id") == [
        (1, "none", 7),
        (2, "b", 7),
        (3, "none", 1),
        (4, None, 2),
    ]
    assert writing.reported == []


def test_without_a_schema_a_table_that_is_missing_is_named(start: Start, database: Database, name: str) -> None:
    writing = start(database, name, {"auto.create": "true"})
    with pytest.raises(ConnectException, match=f"no table {name}.*auto.create makes none"):
        writing.put(schemaless([{"a": 1}]), None, key_schema=None)


def of_field(schema: Schema) -> Schema:
    return SchemaBuilder.struct().field("x", schema).build()


@pytest.mark.parametrize(
    ("kind", "schema", "arrow", "value"),
    [
        ("integer", SchemaBuilder(Type.FLOAT64).build(), pa.float64(), 1.0),
        ("integer", SchemaBuilder(Type.STRING).build(), pa.string(), "1"),
        ("numeric(9,2)", SchemaBuilder(Type.STRING).build(), pa.string(), "1"),
        ("integer", Decimal.schema(2), pa.decimal128(38, 2), decimal.Decimal("1.00")),
        ("date", Timestamp.SCHEMA, pa.timestamp("ms", "UTC"), 0),
        ("timestamp", SchemaBuilder(Type.INT64).build(), pa.int64(), 0),
        ("boolean", SchemaBuilder(Type.STRING).build(), pa.string(), "true"),
        ("integer", SchemaBuilder(Type.BYTES).build(), pa.binary(), b"a"),
    ],
)
def test_types_that_do_not_fit_are_refused_before_anything_is_written(
    start: Start, database: Database, name: str, kind: str, schema: Schema, arrow: pa.DataType, value: object
) -> None:
    database.run(f"CREATE TABLE {name} (x {kind})")
    writing = start(database, name, {})
    writing.put([{"x": value}] * 3, of_field(schema), kind=pa.struct([("x", arrow)]))
    assert database.rows(f"SELECT * FROM {name}") == []
    assert writing.reported == [0, 1, 2]
    text = writing.context.reported[0][1]
    assert "'x'" in text
    own_names = {
        "mariadb": {"numeric(9,2)": "decimal", "boolean": "tinyint"},
        "duckdb": {"timestamp": "datetime"},
        # SQLite's INTEGER has 64 bits.
        "sqlite": {"integer": "bigint"},
    }.get(database.kind, {})
    assert own_names.get(kind, kind.partition("(")[0]) in text.lower()
    assert schema.type.name in text


def test_columns_are_widened_where_nothing_is_lost(start: Start, postgresql: PostgreSql, name: str) -> None:
    database = Database.of_postgresql(postgresql)
    database.run(
        f"CREATE TABLE {name} (i int PRIMARY KEY, s smallint, r real, v varchar(3), d numeric(5,2), k int, "
        "w varchar(9))",
        f"INSERT INTO {name} VALUES (1, 2, 0.5, 'abc', 1.25, 1, 'a')",
    )
    fields: list[tuple[str, Schema, pa.DataType, Any]] = [
        ("i", SchemaBuilder(Type.INT64).build(), pa.int64(), 2**40),
        ("s", SchemaBuilder(Type.INT32).build(), pa.int32(), 40_000),
        ("r", SchemaBuilder(Type.FLOAT64).build(), pa.float64(), 0.1),
        ("v", SchemaBuilder(Type.STRING).build(), pa.string(), "abcd"),
        ("d", Decimal.schema(4), pa.decimal128(38, 4), decimal.Decimal("12345678.1234")),
        ("k", SchemaBuilder(Type.INT64).build(), pa.int64(), 5),
        ("w", SchemaBuilder(Type.STRING).build(), pa.string(), "abcd"),
    ]
    builder = SchemaBuilder.struct()
    for field, schema, _, _ in fields:
        builder.field(field, schema)
    row = {field: value for field, _, _, value in fields}
    kind = pa.struct([(field, arrow) for field, _, arrow, _ in fields])
    without = start(database, name, {})
    without.put([row], builder.build(), kind=kind)
    assert without.reported == [0]
    writing = start(database, name, EVOLVE)
    writing.put([row], builder.build(), kind=kind)
    assert writing.reported == []
    assert database.rows(f"SELECT * FROM {name} WHERE s > 2") == [tuple(row.values())]
    types = (
        f"SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = '{name}'::regclass AND attnum > 0"
    )
    assert [one for (one,) in database.rows(types)] == [
        "bigint",
        "integer",
        "double precision",
        "text",
        "numeric",
        "integer",
        "character varying(9)",
    ]


@pytest.mark.parametrize("digits", [10, 38, 60])
def test_decimals_of_any_number_of_digits(start: Start, postgresql: PostgreSql, name: str, digits: int) -> None:
    database = Database.of_postgresql(postgresql)
    number = int("9" * digits)
    arrow = pa.struct([("unscaled", pa.binary()), ("scale", pa.int32())])
    cells = [{"unscaled": (sign * number).to_bytes(40, "big", signed=True), "scale": 3} for sign in (1, -1)]
    writing = start(database, name, {"auto.create": "true"})
    writing.put([{"x": one} for one in cells], of_field(Decimal.schema(3)), kind=pa.struct([("x", arrow)]))
    with decimal.localcontext(prec=100):
        expected = decimal.Decimal(number).scaleb(-3)
        assert database.rows(f"SELECT x FROM {name}") == [(expected,), (-expected,)]


def test_arrays_and_nested_values(start: Start, postgresql: PostgreSql, name: str) -> None:
    database = Database.of_postgresql(postgresql)
    database.run(f"CREATE TABLE {name} (a bigint[], t text[], o jsonb)")
    inner = SchemaBuilder.struct().field("y", SchemaBuilder(Type.INT64).build()).build()
    schema = (
        SchemaBuilder.struct()
        .field("a", SchemaBuilder.array(SchemaBuilder(Type.INT64).optional().build()).build())
        .field("t", SchemaBuilder.array(SchemaBuilder(Type.STRING).build()).build())
        .field("o", inner)
        .build()
    )
    kind = pa.struct([("a", pa.list_(pa.int64())), ("t", pa.list_(pa.string())), ("o", pa.struct([("y", pa.int64())]))])
    writing = start(database, name, {})
    writing.put([{"a": [1, None], "t": ["x"], "o": {"y": 5}}, {"a": [], "t": [], "o": {"y": None}}], schema, kind=kind)
    assert database.rows(f"SELECT * FROM {name}") == [([1, None], ["x"], {"y": 5}), ([], [], {"y": None})]


def test_a_column_that_records_lack_is_named_also_when_it_comes_later(
    start: Start, database: Database, name: str
) -> None:
    database.run(f"CREATE TABLE {name} (id bigint, name text)")
    writing = start(database, name, {})
    writing.put([record(1, "a")])
    database.run(f"DROP TABLE {name}", f"CREATE TABLE {name} (id bigint, name text, more int NOT NULL)")
    with pytest.raises(ConnectException, match=f"The column more of the table {name} must not be null"):
        writing.put([record(2, "a")], first=1)
    assert writing.reported == []


def test_a_table_that_is_altered_or_dropped_is_looked_at_again(start: Start, database: Database, name: str) -> None:
    writing = start(database, name, {"auto.create": "true", "auto.evolve": "true"})
    writing.put([record(1, "a")])
    database.run(f"ALTER TABLE {name} RENAME COLUMN name TO former")
    writing.put([record(2, "b")], first=1)
    assert database.rows(f"SELECT id, former, name FROM {name} ORDER BY id") == [(1, "a", None), (2, None, "b")]
    database.run(f"DROP TABLE {name}")
    writing.put([record(3, "c")], first=2)
    assert database.rows(f"SELECT id, name FROM {name}") == [(3, "c")]
    strict = start(database, name, {})
    strict.put([record(4, "d")], first=3)
    database.run(f"DROP TABLE {name}")
    with pytest.raises(ConnectException, match=f"no table {name}.*Create it, or set auto.create=true"):
        strict.put([record(5, "e")], first=4)


def test_deletes_need_no_table_and_no_other_column(start: Start, database: Database, name: str) -> None:
    settings = {"insert.mode": "upsert", "pk.mode": "record_key", "pk.fields": "id", "delete.enabled": "true"}
    writing = start(database, name, {**settings, "auto.create": "true", "fields.whitelist": "name"})
    writing.put([None, None], keys=["1", "2"])
    database.run(f"CREATE TABLE {name} (id varchar(9) PRIMARY KEY, name text NOT NULL)")
    database.run(f"INSERT INTO {name} VALUES ('1', 'a'), ('2', 'b')")
    writing.put([None], VALUE, keys=["1"], first=2)
    assert database.rows(f"SELECT id FROM {name}") == [("2",)]
    assert writing.reported == []


def test_a_number_that_the_driver_cannot_hold_is_one_row(start: Start, database: Database, name: str) -> None:
    database.run(f"CREATE TABLE {name} (x bigint)")
    writing = start(database, name, {})
    values = [{"x": decimal.Decimal(one)} for one in (1, 10**30, 3)]
    writing.put(values, of_field(Decimal.schema(0)), kind=pa.struct([("x", pa.decimal128(38, 0))]))
    assert database.rows(f"SELECT x FROM {name}") == [(1,), (3,)]
    assert writing.reported == [1]


def test_a_date_fits_a_timestamp(start: Start, database: Database, name: str) -> None:
    database.run(f"CREATE TABLE {name} (x timestamp)")
    writing = start(database, name, {})
    writing.put([{"x": datetime.date(2024, 2, 29)}], of_field(Date.SCHEMA), kind=pa.struct([("x", pa.date32())]))
    assert writing.reported == []
    assert [str(one)[:10] for (one,) in database.rows(f"SELECT x FROM {name}")] == ["2024-02-29"]


VALUES: list[tuple[Schema, pa.DataType, Any]] = [
    (SchemaBuilder(Type.INT8).build(), pa.int8(), 7),
    (SchemaBuilder(Type.INT64).build(), pa.int64(), 7),
    (SchemaBuilder(Type.FLOAT32).build(), pa.float32(), 0.5),
    (SchemaBuilder(Type.FLOAT64).build(), pa.float64(), 0.5),
    (Decimal.schema(0), pa.decimal128(38, 0), decimal.Decimal(7)),
    (Decimal.schema(2), pa.decimal128(38, 2), decimal.Decimal("7.25")),
    (SchemaBuilder(Type.BOOLEAN).build(), pa.bool_(), True),
    (SchemaBuilder(Type.STRING).build(), pa.string(), "text"),
    (SchemaBuilder(Type.BYTES).build(), pa.binary(), b"\x00\xff"),
    (Date.SCHEMA, pa.date32(), datetime.date(2024, 2, 29)),
    (Time.SCHEMA, pa.time64("us"), datetime.time(10, 30)),
    (Timestamp.SCHEMA, pa.timestamp("us", "UTC"), datetime.datetime(2024, 2, 29, 9, tzinfo=datetime.UTC)),
]
KINDS: dict[str, sa.types.TypeEngine[Any]] = {
    "smallint": sa.SmallInteger(),
    "bigint": sa.BigInteger(),
    "real": sa.REAL(),
    "double precision": sa.Double(),
    "numeric(9,2)": sa.Numeric(9, 2),
    "numeric": sa.Numeric(),
    "boolean": sa.Boolean(),
    "text": sa.Text(),
    "varchar(40)": sa.VARCHAR(40),
    "date": sa.Date(),
    "time": sa.Time(),
    "timestamp": sa.DateTime(),
    "json": sa.JSON(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_fits_a_column_is_written_as_it_is(start: Start, database: Database, name: str, kind: str) -> None:
    dialect = database.kind
    fitting = [one for one in VALUES if fits(one[0], KINDS[kind], dialect)]
    if kind == "json":
        fitting = [(SchemaBuilder(Type.STRING).build(), pa.string(), '{"a": 1}')]
    assert fitting
    # A NUMERIC without digits has no places there.
    made = "numeric(30,9)" if (kind, database.kind) == ("numeric", "mariadb") else kind
    database.run(f"CREATE TABLE {name} (x {made})")
    writing = start(database, name, {"fields.include.list": "x"})
    for number, (schema, arrow, value) in enumerate(fitting):
        optional = SchemaBuilder.struct().field("x", schema).build()
        writing.put([{"x": value}, {"x": None}], optional, kind=pa.struct([("x", arrow)]), first=number)
        assert writing.context.reported == [], schema
        found = database.rows(f"SELECT x FROM {name} WHERE x IS NOT NULL")
        assert len(found) == 1, schema
        written = found[0][0]
        if isinstance(value, (int, float, decimal.Decimal)) and not isinstance(written, str):
            assert float(written) == float(value)
        elif isinstance(value, str) and kind != "json":
            assert written == value
        database.run(f"DELETE FROM {name}")
