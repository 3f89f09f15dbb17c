"""The suites of the kit find the faults of connectors that have one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.api import (
    Chunk,
    Converter,
    OffsetAndMetadata,
    PartitionedSource,
    SinkConnector,
    SinkRecord,
    SinkTask,
    SourceConnector,
    SourceRecord,
    SourceTask,
    TopicPartition,
    Transformation,
)
from penstock.api.transform import R
from penstock.config import AbstractConfig, Config, ConfigDef, setting
from penstock.data import ConnectHeaders, Schema, SchemaAndValue
from penstock.testing import ConverterSuite, SinkSuite, SourceSuite, TransformSuite, numbered, run_sink, run_source

TEST = "test_offsets_are_exact_after_a_kill_at_any_step"


class TopicConfig(AbstractConfig):
    topic: str = setting(default="t", doc="The topic.")


class Numbers(PartitionedSource):
    """Counts to five, and is right."""

    config_class = TopicConfig

    def read(self, partition: Mapping[str, Any], offset: Mapping[str, Any] | None) -> Iterator[Chunk]:
        done = self.begin(offset)
        if done < 5:
            rows = list(range(done + 1, 6))
            yield Chunk(rows, "t", {"n": 5}, offset_after=self.after(rows))

    def begin(self, offset: Mapping[str, Any] | None) -> int:
        return offset["n"] if offset else 0

    def after(self, rows: Sequence[int]) -> Any:
        return lambda row: {"n": rows[row]}


class Repeats(Numbers):
    def after(self, rows: Sequence[int]) -> Any:
        return lambda row: {"n": rows[row] - 1}


class Loses(Numbers):
    def after(self, rows: Sequence[int]) -> Any:
        return lambda row: {"n": rows[row] + 1}


class Forgets(Numbers):
    def begin(self, offset: Mapping[str, Any] | None) -> int:
        return 0 if offset is None or offset["n"] < 5 else 5


class FailsAsValidation(Numbers):
    def validate(self, connector_configs: Mapping[str, str]) -> Config:
        if not connector_configs.get("topic"):
            raise KeyError("topic")
        return super().validate(connector_configs)


class SleepyTask(SourceTask):
    def poll(self) -> list[SourceRecord] | None:
        import time

        if hasattr(self, "done"):
            time.sleep(0.4)
            return None
        self.done = True
        return [SourceRecord({"a": 1}, {"n": 1}, "t", 1)]


class Sleepy(SourceConnector):
    config_class, task_class = TopicConfig, SleepyTask


def suite_of(connector: type[SourceConnector], count: int = 5, **body: Any) -> Any:
    return type(
        "Suite", (SourceSuite,), {"connector": connector, "count": count, "prepare": lambda *_: {"topic": "t"}, **body}
    )()


def test_a_source_that_is_right_passes(tmp_path: Path) -> None:
    getattr(suite_of(Numbers), TEST)(tmp_path)


@pytest.mark.parametrize(("connector", "told"), [(Repeats, "twice or new"), (Loses, "lost"), (Forgets, "twice or new")])
def test_offsets_that_are_not_exact_are_found(connector: type[SourceConnector], told: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=told):
        # One that loses records waits for them.
        getattr(suite_of(connector, timeout_s=1.0 if connector is Loses else 10.0), TEST)(tmp_path)


def test_a_validation_that_fails_is_found(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="a 500 of the REST API"):
        suite_of(FailsAsValidation).test_validation_says_what_is_wrong_and_does_not_fail(tmp_path)


def test_a_poll_that_does_not_end_when_it_is_told_to_is_found(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="after the stop"):
        suite_of(Sleepy, 1, stop_s=0.2).test_it_stops_while_it_waits(tmp_path)


class RowsTask(SinkTask):
    """Writes to a table in a transaction for each batch; what it does with the offsets is its fault."""

    def start(self, props: Mapping[str, str]) -> None:
        self.database = sqlite3.connect(props["file"])
        self.database.execute("CREATE TABLE IF NOT EXISTS t (n)")
        self.buffer: list[object] = []

    def put(self, records: Sequence[SinkRecord]) -> None:
        self.buffer += [one.value for one in records]

    def write(self) -> None:
        with self.database:
            self.database.executemany("INSERT INTO t VALUES (?)", [(one,) for one in self.buffer])
        self.buffer.clear()

    def pre_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        if self.context.is_closing:
            self.write()
        return offsets  # Of what is in the buffer, too.

    def stop(self) -> None:
        if hasattr(self, "database"):
            self.database.close()


class FileConfig(AbstractConfig):
    file: str = setting(doc="The file of the database.")


class Rows(SinkConnector):
    config_class, task_class = FileConfig, RowsTask


class RowsSuite(SinkSuite):
    __test__ = False
    connector = Rows
    exactly_once = False

    def prepare(self, path: Path) -> dict[str, str]:
        self.file = path / "a.db"
        return {"file": str(self.file)}

    def records(self) -> list[SinkRecord]:
        return [SinkRecord("t", 0, 0, number) for number in range(4)]

    def contents(self) -> list[object]:
        database = sqlite3.connect(self.file)
        found = database.execute("SELECT n FROM t").fetchall()
        database.close()
        return found


def test_an_offset_that_is_committed_too_early_is_found(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="lost"):
        RowsSuite().test_nothing_is_lost_after_a_kill_at_any_step(tmp_path)


class Changes(Transformation):
    def config(self) -> ConfigDef:
        return ConfigDef()

    def apply(self, record: R) -> R | None:
        record.value["seen"] = True  # type: ignore[index]
        return record


class ChangesSuite(TransformSuite):
    __test__ = False
    transform = Changes

    def records(self) -> list[SourceRecord]:
        return [SourceRecord(None, None, "t", {"a": 1})]


def test_a_transform_that_changes_its_record_is_found() -> None:
    with pytest.raises(AssertionError, match="the record was"):
        ChangesSuite().test_the_record_that_is_given_does_not_change()


def test_a_transform_that_does_not_say_what_is_wrong_is_found() -> None:
    with pytest.raises(AssertionError, match="raised TypeError"):
        ChangesSuite().test_nulls_are_taken_or_refused_with_an_error_that_says_why()


class Number(Converter):
    def from_connect_data(
        self, topic: str, schema: Schema | None, value: object, headers: ConnectHeaders | None = None
    ) -> bytes | None:
        return None if value is None else str(value).encode()

    def to_connect_data(self, topic: str, data: bytes | None, headers: ConnectHeaders | None = None) -> SchemaAndValue:
        return SchemaAndValue(None, None if data is None else int(data))


class NumberSuite(ConverterSuite):
    __test__ = False
    converter = Number

    def values(self) -> list[tuple[Schema | None, object]]:
        return [(None, 1), (None, -7)]


def test_a_converter_that_does_not_say_what_is_wrong_is_found() -> None:
    NumberSuite().test_values_come_back()
    with pytest.raises(AssertionError, match="raised ValueError"):
        NumberSuite().test_bytes_that_mean_nothing_are_refused_with_an_error_that_says_why()


def test_a_run_of_a_source_is_told_step_by_step() -> None:
    with run_source(Numbers, {}) as source:
        assert [one.value for one in source.poll()] == [1, 2, 3, 4, 5]
        source.commit(2)
        assert source.values == [1, 2]
        assert source.offset({"source": "kit"}) == {"n": 2}
        source.kill()
        source.finish(5)

    assert source.values == [1, 2, 3, 4, 5]
    assert [one.value for one in source.records] == [1, 2, 3, 4, 5]
    assert source.steps[:4] == ["start", "poll", "acknowledged", "stored"]


def test_a_run_of_a_sink_is_told_step_by_step(tmp_path: Path) -> None:
    given = numbered([SinkRecord("t", number % 2, 0, number) for number in range(6)])
    with run_sink(Rows, {"file": str(tmp_path / "a.db")}, given) as sink:
        assert sink.put(2) == 4
        sink.commit()
        assert sink.committed == {TopicPartition("t", 0): 2, TopicPartition("t", 1): 2}
        sink.rebalance(2)
        assert len(sink.tasks) == 2
        assert sink.put() == 2

    assert sink.committed == {TopicPartition("t", 0): 3, TopicPartition("t", 1): 3}
    assert sink.reported == []
