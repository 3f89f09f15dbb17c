"""The source task against a real PostgreSQL, without Kafka: late commits, faults, types."""

from __future__ import annotations

import math
from contextlib import closing
from datetime import UTC, date, datetime, time
from decimal import Decimal

import psycopg
import pyarrow as pa
import pytest
from tests.real.connectors.jdbc.reading import Reading

from penstock.api import BackfillSpan, RetryPolicy
from penstock.broker.postgresql import PostgreSql
from penstock.connectors.jdbc import JdbcSource
from penstock.connectors.jdbc.source.reading import AdbcReader
from penstock.connectors.jdbc.source.task import JdbcSourceTask
from penstock.errors import ConnectException, RetriableException
from penstock.testing import run_backfill
from penstock.testing.kit.frames import records_of_frame

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll that finds nothing returns soon, and a table that fails is soon tried again."""
    monkeypatch.setattr(JdbcSourceTask, "poll_limit_s", 0.05)
    monkeypatch.setattr(JdbcSourceTask, "retry_policy", RetryPolicy(first_s=0.01))


def open_transaction(server: PostgreSql) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(f"postgresql://postgres@127.0.0.1:{server.port}/postgres")


@pytest.mark.parametrize("mode", ["incrementing", "timestamp", "timestamp+incrementing"])
def test_rows_that_commit_late_and_out_of_order_are_read_once(postgresql: PostgreSql, name: str, mode: str) -> None:
    postgresql.execute(f"CREATE TABLE {name} (id bigserial PRIMARY KEY, made timestamptz NOT NULL DEFAULT now())")
    reading = Reading(postgresql, [name], {"mode": mode, "timestamp.column.name": "made"})
    reading.start()
    insert = f"INSERT INTO {name} DEFAULT VALUES RETURNING id"
    seen: list[object] = []
    with (
        closing(open_transaction(postgresql)) as first,
        closing(open_transaction(postgresql)) as second,
        closing(open_transaction(postgresql)) as third,
    ):
        # First has the lower id and the earlier timestamp, and commits last.
        written = [first.execute(insert).fetchone(), second.execute(insert).fetchone()]
        second.commit()
        seen += reading.read("id")
        assert seen == []
        written += [third.execute(insert).fetchone(), first.execute(insert).fetchone()]
        reading.start()  # A restart while the transactions are open.
        third.commit()
        seen += reading.read("id")
        assert seen == []
        first.commit()
        seen += reading.read("id")
        assert sorted(seen, key=str) == sorted((one[0] for one in written if one), key=str)
    assert reading.read("id") == []


@pytest.mark.parametrize("mode", ["incrementing", "timestamp", "timestamp+incrementing"])
@pytest.mark.parametrize("step", [0, 1, 2, 3])
def test_a_transaction_that_ends_while_the_reader_looks_loses_no_row(
    postgresql: PostgreSql, name: str, mode: str, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgresql.execute(
        f"CREATE TABLE {name} (id bigserial PRIMARY KEY, made timestamptz NOT NULL DEFAULT clock_timestamp())"
    )
    reading = Reading(postgresql, [name], {"mode": mode, "timestamp.column.name": "made"})
    reading.start()
    insert = f"INSERT INTO {name} DEFAULT VALUES"
    asked = AdbcReader._one
    with closing(open_transaction(postgresql)) as elder, closing(open_transaction(postgresql)) as younger:
        # The elder transaction has the later row, and commits before the younger one.
        elder.execute(insert)
        younger.execute(insert)
        elder.execute(insert)
        elder.commit()
        steps: list[int] = []

        def ends_between(reader: AdbcReader, text: str) -> tuple[object, ...]:
            if len(steps) == step:
                younger.commit()
            steps.append(step)
            return asked(reader, text)

        monkeypatch.setattr(AdbcReader, "_one", ends_between)
        seen = reading.read("id")
        younger.commit()
        while len(seen) < 3:
            found = reading.read("id")
            assert found, seen
            seen += found
    assert sorted(seen, key=str) == [1, 2, 3]


def test_numbers_go_on_while_there_is_always_a_transaction_open(postgresql: PostgreSql, name: str) -> None:
    postgresql.execute(f"CREATE TABLE {name} (id bigserial PRIMARY KEY)")
    reading = Reading(postgresql, [name], {"mode": "incrementing"})
    reading.start()
    insert = f"INSERT INTO {name} DEFAULT VALUES"
    open_one = open_transaction(postgresql)
    seen: list[object] = []
    for _ in range(4):
        following = open_transaction(postgresql)
        following.execute(insert)
        open_one.commit()
        open_one.close()
        open_one = following
        seen += reading.read("id")
    assert len(seen) >= 2
    open_one.close()
    seen += reading.read("id")
    assert seen == [1, 2, 3]


def test_a_transaction_that_only_began_early_holds_timestamps_back(postgresql: PostgreSql, name: str) -> None:
    postgresql.execute(f"CREATE TABLE {name} (id bigserial PRIMARY KEY, made timestamptz NOT NULL DEFAULT now())")
    reading = Reading(postgresql, [name], {"mode": "timestamp", "timestamp.column.name": "made"})
    reading.start()
    with closing(open_transaction(postgresql)) as early:
        early.execute("SELECT now()")  # It has no id yet, but its now() stands still.
        postgresql.execute(f"INSERT INTO {name} DEFAULT VALUES")
        assert reading.read("id") == []
        early.execute(f"INSERT INTO {name} DEFAULT VALUES")
        early.commit()
    assert reading.read("id") == [2, 1]


def test_a_restart_goes_on_where_the_offsets_end(postgresql: PostgreSql, name: str) -> None:
    postgresql.execute(f"CREATE TABLE {name} (id serial PRIMARY KEY); INSERT INTO {name} SELECT generate_series(1, 10)")
    reading = Reading(postgresql, [name], {"mode": "incrementing", "batch.max.rows": "4"})
    reading.start()
    first = reading.task.poll()
    assert first is not None
    assert first.offset_after is not None
    assert [dict(first.offset_after(row)) for row in range(4)] == [{"incrementing": row + 1} for row in range(4)]
    reading.kept[str(reading.tables[0])] = dict(first.offset_after(2))
    reading.start()
    assert reading.read("id") == [4, 5, 6, 7, 8, 9, 10]


def test_a_table_that_fails_does_not_keep_the_task_from_others_and_is_tried_again(
    postgresql: PostgreSql, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = f"{name}_a", f"{name}_b"
    for table in (good, bad):
        postgresql.execute(f"CREATE TABLE {table} (id serial PRIMARY KEY); INSERT INTO {table} VALUES (1)")
    reading = Reading(postgresql, [good, bad], {"mode": "incrementing", "table.poll.interval.ms": "1"})
    reading.start()
    postgresql.execute(f"DROP TABLE {bad}")
    assert reading.read("id") == [1]
    assert f"There is no table public.{bad}" in caplog.text
    postgresql.execute(f"CREATE TABLE {bad} (id serial PRIMARY KEY); INSERT INTO {bad} VALUES (7)")
    found: list[object] = []
    while not found:
        found = reading.read("id")
    assert found == [7]
    postgresql.execute(f"DROP TABLE {good}; DROP TABLE {bad}")
    with pytest.raises(ConnectException, match="There is no table"):
        reading.read_until_error()


def test_a_server_that_was_killed_is_an_error_that_passes(postgresql: PostgreSql, name: str) -> None:
    postgresql.execute(f"CREATE TABLE {name} (id serial PRIMARY KEY); INSERT INTO {name} SELECT generate_series(1, 9)")
    reading = Reading(postgresql, [name], {"mode": "incrementing", "batch.max.rows": "4"})
    reading.start()
    assert reading.task.poll() is not None
    postgresql.kill()
    reading.task.stop()
    reading.start()
    with pytest.raises(RetriableException, match=r"Cannot connect to postgresql://127\.0\.0\.1"):
        reading.task.poll()
    postgresql.start()
    found: list[object] = []
    while not found:
        found = reading.read("id")
    assert found == list(range(1, 10))


def test_columns_that_were_added_are_read_and_others_are_what_the_database_has(
    postgresql: PostgreSql, name: str
) -> None:
    postgresql.execute(f'CREATE TABLE {name} (id serial PRIMARY KEY, "from" text, "Größe" numeric, spans int4range)')
    postgresql.execute(f"INSERT INTO {name} VALUES (1, 'a', 'NaN', '[1,5)')")
    reading = Reading(postgresql, [name], {"mode": "incrementing", "table.poll.interval.ms": "1"})
    reading.start()
    (frame,) = list(reading.frames())
    assert isinstance(frame.data, pa.Table)
    (row,) = frame.data.column("value").to_pylist()
    assert str(row) == "{'id': 1, 'from': 'a', 'Größe': nan, 'spans': '[1,5)'}"
    assert frame.data.column("key").to_pylist() == [{"id": 1}]
    assert str(frame.value_schema) == f"Schema{{{name}:STRUCT}}"
    postgresql.execute(f"ALTER TABLE {name} ADD COLUMN late boolean; INSERT INTO {name} (id, late) VALUES (2, true)")
    assert reading.read("late") == [True]


def test_arrays_have_items_of_the_types_that_columns_have(postgresql: PostgreSql, name: str) -> None:
    columns = {
        "days": ("date[]", "{2024-02-29,NULL}", [date(2024, 2, 29), None]),
        "moments": ("timestamptz[]", "{2024-01-01 01:00+01}", [datetime(2024, 1, 1, tzinfo=UTC)]),
        "local": ("timestamp[]", "{2024-01-01 01:00}", [datetime(2024, 1, 1, tzinfo=UTC)]),
        "hours": ("time[]", "{12:00}", [time(12)]),
        "amounts": ("numeric(9,2)[]", "{1.50,NaN}", [1.5, math.nan]),
        "digits": ("numeric(30,2)[]", "{1.50}", [Decimal("1.50")]),
        "codes": ("uuid[]", "{00000000-0000-0000-0000-000000000001}", ["00000000-0000-0000-0000-000000000001"]),
        "numbers": ("int[]", "{}", []),
    }
    declared = ", ".join(f"{column} {kind}" for column, (kind, _, _) in columns.items())
    cells = ", ".join(f"'{text}'" for _, text, _ in columns.values())
    postgresql.execute(f"CREATE TABLE {name} (id serial PRIMARY KEY, {declared})")
    postgresql.execute(f"INSERT INTO {name} VALUES (1, {cells}), (2, {', '.join(['NULL'] * len(columns))})")
    reading = Reading(postgresql, [name], {"mode": "incrementing", "db.timezone": "Europe/Berlin"})
    reading.start()
    (frame,) = list(reading.frames())
    assert isinstance(frame.data, pa.Table)
    first, second = frame.data.column("value").to_pylist()
    for column, (_, _, expected) in columns.items():
        # NaN is not itself, and time zones of UTC have several names.
        assert first[column] == expected or str(first[column]) == str(expected), column
        assert second[column] is None
    # The frame fits its schemas.
    assert len(records_of_frame(frame, None)) == 2


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mode": "incrementing", "incrementing.column.name": "nr"}, "has no column 'nr'; it has id, note"),
        ({"mode": "timestamp", "timestamp.column.name": "seen"}, "has no column 'seen'"),
        ({"mode": "timestamp", "timestamp.column.name": "at"}, "may be null: rows without a value"),
        (
            {"mode": "incrementing", "incrementing.column.name": "note"},
            "the column 'note' of the table {table} is TEXT, and mode=incrementing follows whole numbers",
        ),
        (
            {"mode": "timestamp", "timestamp.column.name": "id"},
            "the column 'id' of the table {table} is INTEGER, and mode=timestamp follows dates with or without a time",
        ),
        (
            {
                "mode": "incrementing",
                "incrementing.column.name": "n",
                "query": "SELECT 'a' AS n",
                "table.include.list": "",
            },
            "the column 'n' of the query is Schema{{STRING}}, and mode=incrementing follows whole numbers",
        ),
        ({"mode": "bulk", "table.include.list": "nosuch"}, "there is no table nosuch"),
        ({"mode": "bulk", "connection.url": "jdbc:postgresql://127.0.0.1:1/x"}, "Cannot connect to"),
        ({"mode": "bulk", "query": "SELEC 1", "table.include.list": ""}, "refuses the statement"),
        ({"mode": "bulk", "query": "SELECT nr FROM pg_class", "table.include.list": ""}, '"nr" does not exist'),
    ],
)
def test_validation_says_what_the_database_lacks(
    postgresql: PostgreSql, name: str, settings: dict[str, str], said: str
) -> None:
    postgresql.execute(f"CREATE TABLE {name} (id serial PRIMARY KEY, note text, at timestamp)")
    base = {"connection.url": postgresql.jdbc_url, "topic.prefix": "t-", "table.include.list": name}
    checked = JdbcSource().validate({**base, **settings})
    errors = [text for value in checked.config_values for text in value.error_messages]
    assert len(errors) == 1
    assert said.format(table=f"public.{name}") in errors[0]


def test_a_query_is_read_like_a_table(postgresql: PostgreSql, name: str) -> None:
    postgresql.execute(
        f"CREATE TABLE {name} (id serial PRIMARY KEY, amount numeric(9,2)); INSERT INTO {name} VALUES (1, 1.5), (2, 2)"
    )
    query = f"SELECT id, amount, amount * 2 AS twice FROM {name} WHERE id > 0"
    settings = {"mode": "incrementing", "incrementing.column.name": "id", "query": query, "table.include.list": ""}
    reading = Reading(postgresql, [name], settings)
    reading.start()
    frame = reading.task.poll()
    assert frame is not None
    assert isinstance(frame.data, pa.Table)
    assert frame.data.column("value").to_pylist() == [
        {"id": 1, "amount": 1.5, "twice": 3.0},
        {"id": 2, "amount": 2.0, "twice": 4.0},
    ]
    assert dict(frame.source_partition) == {"query": "query"}
    assert frame.topic == "t-"
    reading.task.stop()


@pytest.mark.parametrize("kind", ["timestamptz", "timestamp"])
def test_a_range_of_numbers_or_times_is_read_once_more(postgresql: PostgreSql, name: str, kind: str) -> None:
    postgresql.execute(f"CREATE TABLE {name} (id bigserial PRIMARY KEY, made {kind} NOT NULL)")
    postgresql.execute(
        f"INSERT INTO {name} (made) SELECT timestamp '2024-07-01 12:00' + floor(n / 3) * interval '1 s' "
        "FROM generate_series(1, 12) n"
    )
    settings = {
        "connection.url": postgresql.jdbc_url,
        "table.include.list": name,
        "topic.prefix": "t-",
        "mode": "timestamp+incrementing",
        "timestamp.column.name": "made",
        "batch.max.rows": "2",
    }
    noon_ms = 1_719_835_200_000
    for span in (BackfillSpan(first=3, end=9), BackfillSpan(start_ms=noon_ms + 1000, end_ms=noon_ms + 3000)):
        run = run_backfill(JdbcSource, settings, span, again=True)
        assert ([one.get("id") for one in run.values], [one.rows for one in run.parts]) == ([3, 4, 5, 6, 7, 8], [6])
