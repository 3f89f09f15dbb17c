"""The Spark sink with a target in memory in place of Spark: what is written, when, and which offsets are safe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.api import SinkRecord
from penstock.connectors.spark import SparkSink
from penstock.connectors.spark.sink import task as sink_task
from penstock.data import INT64_SCHEMA, OPTIONAL_STRING_SCHEMA, SchemaBuilder, Struct
from penstock.errors import RetriableException
from penstock.testing import FrameSuite, SinkSuite, numbered, run_sink

ROW = SchemaBuilder.struct().field("id", INT64_SCHEMA).field("name", OPTIONAL_STRING_SCHEMA).build()


class Target:
    """What was written, a table for each write."""

    written: list[pa.Table]
    away: bool

    def __init__(self, config: Any, session: object) -> None:
        self._key = config.key_columns if config.mode.value == "upsert" else ()

    def write(self, rows: pa.Table) -> None:
        if Target.away:
            raise RetriableException("the target is away")
        Target.written.append(rows)


@pytest.fixture(autouse=True)
def target(monkeypatch: pytest.MonkeyPatch) -> None:
    Target.written, Target.away = [], False
    monkeypatch.setattr(sink_task, "SparkTableWriter", Target)


def records(count: int, *, schema: bool = True) -> list[SinkRecord]:
    made = []
    for number in range(count):
        value: object = {"id": number, "name": f"n{number}"}
        if schema:
            value = Struct(ROW).put("id", number).put("name", f"n{number}")
        made.append(
            SinkRecord(
                "t", number % 2, 0, value, value_schema=ROW if schema else None, key=number, key_schema=INT64_SCHEMA
            )
        )
    return numbered(made)


class TestAppend(FrameSuite, SinkSuite):
    connector = SparkSink
    exactly_once = False

    def prepare(self, path: Path) -> dict[str, str]:
        Target.written = []
        settings = {"spark.format": "parquet", "spark.path": str(path), "retry.backoff.ms": "1"}
        return {**settings, "frame.min.rows": "3", "frame.max.wait.ms": "1"}

    def records(self) -> list[SinkRecord]:
        return records(6)

    def contents(self) -> list[object]:
        return [(row["id"], row["name"]) for table in Target.written for row in table.to_pylist()]

    @contextmanager
    def outage(self) -> Iterator[None]:
        Target.away = True
        yield
        Target.away = False


class TestUpsert(TestAppend):
    exactly_once = True
    deletes = True

    def prepare(self, path: Path) -> dict[str, str]:
        of_merge = {"mode": "upsert", "key.columns": "id", "delete.enabled": "true", "spark.format": "delta"}
        return super().prepare(path) | of_merge

    def contents(self) -> list[object]:
        found: dict[int, object] = {}
        for table in Target.written:
            for row in table.to_pylist():
                if row["__penstock_deletes"]:
                    found.pop(row["id"], None)
                else:
                    found[row["id"]] = (row["id"], row["name"])
        return list(found.values())


SETTINGS = {"spark.format": "parquet", "spark.path": "/out"}


def test_rows_wait_until_there_are_enough_and_their_offsets_are_not_committed_before() -> None:
    settings = {**SETTINGS, "frame.min.rows": "5", "frame.max.wait.ms": "3600000"}
    with run_sink(SparkSink, settings, records(8)) as run:
        run.put(2)
        run.commit()
        assert Target.written == []
        assert set(run.committed.values()) == {0}
        run.put(1)
        run.commit()
        assert [table.num_rows for table in Target.written] == [6]
        assert set(run.committed.values()) == {3}
    assert [table.num_rows for table in Target.written] == [6]


def test_what_waits_is_written_when_the_task_ends() -> None:
    settings = {**SETTINGS, "frame.min.rows": "100", "frame.max.wait.ms": "3600000"}
    with run_sink(SparkSink, settings, records(8)) as run:
        run.put()
        run.commit()
        assert Target.written == []
    assert [table.num_rows for table in Target.written] == [8]
    assert set(run.committed.values()) == {4}


def test_rows_are_written_by_the_clock_on_a_quiet_topic() -> None:
    settings = {**SETTINGS, "frame.min.rows": "100", "frame.max.wait.ms": "1"}
    with run_sink(SparkSink, settings, records(4)) as run:
        run.put()
        while not Target.written:
            run.put()
        run.commit()
        assert set(run.committed.values()) == {2}


def test_types_of_the_settings_make_columns_of_json_and_a_value_that_does_not_fit_is_reported() -> None:
    settings = {**SETTINGS, "spark.schema": "id int, name string, more decimal(10,2)", "frame.min.rows": "1"}
    odd = SinkRecord("t", 0, 3, {"id": "text"}, key=1, original_kafka_offset=3)
    with run_sink(SparkSink, settings, [*records(6, schema=False), odd]) as run:
        run.put()
    assert [one.type for one in Target.written[0].schema] == [pa.int32(), pa.string(), pa.decimal128(10, 2)]
    assert sum(table.num_rows for table in Target.written) == 6
    ((record, error),) = run.reported
    assert record.original_kafka_offset == 3
    assert "id" in error


def test_keys_and_places_of_messages_are_columns_where_they_are_asked_for() -> None:
    settings = {**SETTINGS, "metadata.columns": "topic,partition,offset,key", "frame.min.rows": "1"}
    with run_sink(SparkSink, settings, records(2)) as run:
        run.put()
    assert Target.written[0].slice(0, 1).to_pylist() == [
        {"id": 0, "name": "n0", "kafka_topic": "t", "kafka_partition": 0, "kafka_offset": 0, "kafka_key": 0}
    ]


def test_a_key_that_a_value_has_not_is_that_of_the_record_and_a_row_without_any_is_reported() -> None:
    settings = {"spark.format": "delta", "spark.path": "/t", "mode": "upsert", "key.columns": "number"}
    bare = SinkRecord("t", 0, 1, Struct(ROW).put("id", 9), value_schema=ROW, original_kafka_offset=1)
    with run_sink(SparkSink, {**settings, "frame.min.rows": "1"}, [*records(1), bare]) as run:
        run.put()
    assert [table.column("number").to_pylist() for table in Target.written] == [[0]]
    assert [record.original_kafka_offset for record, _ in run.reported] == [1]


def test_a_null_value_is_reported_or_left_out() -> None:
    gone = SinkRecord("t", 0, 1, None, key=1, original_kafka_offset=1)
    for behavior, reported in (("fail", 1), ("ignore", 0)):
        settings = {**SETTINGS, "behavior.on.null.values": behavior, "frame.min.rows": "1"}
        with run_sink(SparkSink, settings, [*records(1), gone]) as run:
            run.put()
        assert len(run.reported) == reported
