"""Tests of every sink: kills, replays, rebalances, tombstones, schemas, outages, stops.

Main type: ``SinkSuite``.

Owning thread: the test's.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.api import SinkConnector, SinkRecord
from penstock.data import OPTIONAL_STRING_SCHEMA, SchemaBuilder, Struct
from penstock.testing.kit.sinks import SinkRun, numbered
from penstock.testing.kit.suites.connectors import ConnectorSuite, quickest
from penstock.testing.kit.suites.plugins import without

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SinkSuite(ConnectorSuite):
    """The tests of a sink. Subclass it in a test module, and say what is written and how it is read again.

    Attributes:
        connector: The class.
        exactly_once: True: records that come again change nothing, so that the target is the same after every kill.
            False: they may be there twice; none is missing, and none is there that was not written.
        deletes: True if a tombstone deletes what was written with its key.
        tasks_max: How many tasks share the partitions in the test of rebalances.

    The test of an outage needs ``outage``; where it is not overridden there is no such test.

    Source: Penstock's own.
    """

    connector: ClassVar[type[SinkConnector]]
    exactly_once: ClassVar[bool] = True
    deletes: ClassVar[bool] = False
    tasks_max: ClassVar[int] = 2
    spark: ClassVar[Callable[[], SparkSession] | None] = None

    def __init_subclass__(cls, **named: Any) -> None:
        """Leaves the test of an outage out where there is none."""
        super().__init_subclass__(**named)
        without(cls, SinkSuite, "outage", "test_an_outage_loses_nothing")

    def records(self) -> Sequence[SinkRecord]:
        """The records that are written, best of two partitions. Their offsets are given by ``numbered``."""
        raise NotImplementedError(f"{type(self).__name__} needs records(self), which gives what is written")

    def contents(self) -> Iterable[object]:
        """The contents of the target now, in any order: an item for each record, or for each key."""
        raise NotImplementedError(f"{type(self).__name__} needs contents(self), which reads the target")

    def outage(self) -> AbstractContextManager[object]:
        """Takes the target away while the block runs: a lock, a wrong answer, a closed port."""
        raise NotImplementedError

    # -------------------------------------------------------------------------------------------------------- tests
    def test_everything_is_written(self, tmp_path: Path) -> None:
        """The target has something, and nothing was reported."""
        run = self._write(tmp_path)
        assert list(self.contents()), "nothing was written"
        assert not run.reported, f"records were reported: {run.reported[:3]}"

    def test_nothing_is_lost_after_a_kill_at_any_step(self, tmp_path: Path) -> None:
        """A kill after each step of a run: the target is as without one, or has records twice."""
        reference = self._write(tmp_path, batch=2)
        expected = list(self.contents())
        steps = len(reference.steps)
        for step in range(0, steps, -(-steps // self.most_kills)):
            run = self._write(tmp_path, batch=2, kill_at=step)
            self._same(expected, f"after a kill at step {step}, {run._steps.killed or reference.steps[step]}")

    def test_batches_that_come_again_are_harmless(self, tmp_path: Path) -> None:
        """The whole of it is written, nothing is committed, and it comes again."""
        self._write(tmp_path)
        expected = list(self.contents())
        with self._run(tmp_path) as run:
            run.put()
            run.kill()
            run.put(1)
            run.kill()
            run.put()
            run.commit()
        self._same(expected, "after all came three times")

    def test_a_rebalance_loses_nothing(self, tmp_path: Path) -> None:
        """Partitions move to another task and back between two batches."""
        self._write(tmp_path)
        expected = list(self.contents())
        with self._run(tmp_path) as run:
            run.put(1)
            run.rebalance(self.tasks_max)
            run.put(1)
            run.rebalance(1)
            run.put()
            run.commit()
        self._same(expected, "after rebalances")

    def test_lost_partitions_lose_nothing(self, tmp_path: Path) -> None:
        """Partitions are lost without a commit, and come back: their records are read again."""
        self._write(tmp_path)
        expected = list(self.contents())
        with self._run(tmp_path) as run:
            run.put(1)
            run.lose()
            run.put()
            run.commit()
        self._same(expected, "after partitions were lost")

    def test_a_restart_repeats_nothing_and_loses_nothing(self, tmp_path: Path) -> None:
        """A stop commits all delivered records: another instance continues after them."""
        self._write(tmp_path)
        expected = list(self.contents())
        with self._run(tmp_path) as run:
            run.put(1)
            run.restart()
            run.put(1)
            run.restart()
            run.put()
        found = list(self.contents())
        assert Counter(map(repr, found)) == Counter(map(repr, expected)), _difference(expected, found, "after restarts")

    def test_tombstones_are_taken_or_reported(self, tmp_path: Path) -> None:
        """A record without a value, with and without a schema: the task goes on, and with ``deletes`` its row goes."""
        records = list(self.records())
        first = records[0]
        for schema in (None, first.value_schema):
            gone = first.new_record(value_schema=schema, value=None)
            self._write(tmp_path, [*records, gone])
            found = list(self.contents())
            if self.deletes:
                self._write(tmp_path, [one for one in records if one.key != first.key])
                expected = list(self.contents())
                assert Counter(map(repr, found)) == Counter(map(repr, expected)), _difference(
                    expected, found, "after a tombstone"
                )
            else:
                self._write(tmp_path)
                self._none_missing(list(self.contents()), found, "after a tombstone")

    def test_a_changed_schema_is_taken_or_reported(self, tmp_path: Path) -> None:
        """A record with one field more, between two without it: each is written or reported."""
        records = list(self.records())
        changed = [one for one in map(_with_a_field, records[-1:]) if one is not None]
        if not changed:
            return
        run = self._write(tmp_path, [*records, *changed, *records[-1:]])
        written = len(list(self.contents()))
        self._write(tmp_path)
        assert written + len(run.reported) >= len(list(self.contents())), "records were lost around a changed schema"

    def test_an_outage_loses_nothing(self, tmp_path: Path) -> None:
        """While the target is away, ``put`` asks for another try within a while, and reports nothing."""
        self._write(tmp_path)
        expected = list(self.contents())
        with self._run(tmp_path) as run:
            run.put(1)
            with self.outage():
                run.put()
                try:
                    run.commit()
                except Exception:
                    # Nothing is committed, which a worker takes for a reason to deliver again.
                    run.kill()
            run.finish()
            assert not run.reported, f"records were blamed for an outage: {run.reported[:2]}"
        self._same(expected, "after an outage")

    def test_it_stops_soon(self, tmp_path: Path) -> None:
        """A stop, with the last commit, takes less than ``stop_s``."""

        def stopped() -> float:
            run = self._run(tmp_path)
            run.put()
            started = time.monotonic()
            run.stop()
            return time.monotonic() - started

        took_s = quickest(stopped, self.stop_s)
        assert took_s < self.stop_s, f"the stop took {took_s:.2f} s, and has {self.stop_s} s"

    # ------------------------------------------------------------------------------------------------------ helpers
    def _run(self, tmp_path: Path, records: Sequence[SinkRecord] | None = None, **named: Any) -> SinkRun:
        given = numbered(self.records() if records is None else records)
        settings = self.prepare(self._path(tmp_path))
        run = SinkRun(self.connector, settings, given, timeout_s=self.timeout_s, spark=type(self).spark, **named)
        run.killed = self.release
        return run

    def _write(
        self,
        tmp_path: Path,
        records: Sequence[SinkRecord] | None = None,
        *,
        batch: int | None = None,
        **named: Any,
    ) -> SinkRun:
        run = self._run(tmp_path, records, **named)
        try:
            return run.finish(batch)
        except BaseException:
            run.kill()
            raise

    def _same(self, expected: Sequence[object], what: str) -> None:
        found = list(self.contents())
        if self.exactly_once:
            assert Counter(map(repr, found)) == Counter(map(repr, expected)), _difference(expected, found, what)
            return
        self._none_missing(expected, found, what)
        strange = set(map(repr, found)) - set(map(repr, expected))
        assert not strange, f"{what}: the target has records that were not written: {sorted(strange)[:3]}"

    def _none_missing(self, expected: Sequence[object], found: Sequence[object], what: str) -> None:
        lost = list((Counter(map(repr, expected)) - Counter(map(repr, found))).elements())
        assert not lost, f"{what}: lost {lost[:3]}"


def _difference(expected: Iterable[object], found: Iterable[object], what: str) -> str:
    lost = list((Counter(map(repr, expected)) - Counter(map(repr, found))).elements())
    more = list((Counter(map(repr, found)) - Counter(map(repr, expected))).elements())
    return f"{what}: lost {lost[:3]}, twice or new {more[:3]}"


def _with_a_field(record: SinkRecord) -> SinkRecord | None:
    """The record with one field more; None: its value has no fields."""
    value = record.value
    if isinstance(value, Struct):
        builder = SchemaBuilder.struct()
        if value.schema.name is not None:
            builder.name(value.schema.name)
        for field in value.schema.fields:
            builder.field(field.name, field.schema)
        schema = builder.field("added_later", OPTIONAL_STRING_SCHEMA).build()
        made = Struct(schema)
        for field in value.schema.fields:
            made.put(field.name, value.get(field.name))
        return record.new_record(value_schema=schema, value=made.put("added_later", "x"))
    if isinstance(value, dict):
        return record.new_record(value={**value, "added_later": "x"})
    return None
