"""Tests of every source: offsets, kills, restarts, rebalances, stops.

Main type: ``SourceSuite``.

Owning thread: the test's.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.api import SourceConnector, SourceRecord
from penstock.data import validate_value
from penstock.testing.kit.sources import SourceRun
from penstock.testing.kit.suites.connectors import ConnectorSuite, quickest
from penstock.testing.kit.suites.plugins import without

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _kills(reference: SourceRun, most: int) -> Iterator[tuple[int, str]]:
    """The steps to kill a run at, and what messages call them."""
    steps = len(reference.steps)
    for step in range(0, steps, -(-steps // most)):
        yield step, f"after a kill at step {step}, {reference.steps[step]}"


class SourceSuite(ConnectorSuite):
    """The tests of a source. Subclass it in a test module, and say what there is to read.

    Attributes:
        connector: The class.
        count: How many records there are to read in what ``prepare`` has made.
        tasks_max: How many tasks share the work in the test of rebalances.
        exact_offsets: False: offsets are exact only after a whole poll, so that a part of one may come twice.
        ends: False: there are always more records; the first ``count`` are looked at.

    The test of a schema that changes needs ``change``; where it is not overridden there is no such test.

    Source: Penstock's own.
    """

    connector: ClassVar[type[SourceConnector]]
    count: ClassVar[int]
    tasks_max: ClassVar[int] = 2
    exact_offsets: ClassVar[bool] = True
    ends: ClassVar[bool] = True
    spark: ClassVar[Callable[[], SparkSession] | None] = None

    def __init_subclass__(cls, **named: Any) -> None:
        """Leaves the test of a changed schema out where nothing changes it."""
        super().__init_subclass__(**named)
        without(cls, SourceSuite, "change", "test_a_changed_schema_is_read")

    def change(self) -> int:
        """Changes the schema of what is read, and adds records of the new one.

        Called between two polls of the run that ``prepare`` was called for.

        Returns:
            How many records were added.
        """
        raise NotImplementedError

    def identity(self, record: SourceRecord) -> object:
        """The parts that two reads of a record have in common: all but the timestamp. Override it if more changes."""
        headers = [(one.key, one.value) for one in record.raw_headers or ()]
        return (record.topic, record.kafka_partition, record.key, record.value, headers)

    # -------------------------------------------------------------------------------------------------------- tests
    def test_everything_is_read(self, tmp_path: Path) -> None:
        """As many records as there are, each of which Kafka can take."""
        run = self._read(tmp_path)
        if self.ends:
            assert len(run.committed) == self.count, f"{len(run.committed)} records were read, not {self.count}"
        for record in run.committed:
            self._check(record)

    def test_offsets_are_exact_after_a_kill_at_any_step(self, tmp_path: Path) -> None:
        """A kill after each step of a run: the committed records are the same as without one."""
        reference = self._read(tmp_path)
        for step, what in _kills(reference, self.most_kills):
            self._same(reference, self._read(tmp_path, kill_at=step), what)
        if not self.exact_offsets:
            # In the middle of what a poll gave a part may come again, and nothing may be missing.
            whole = self._read_on(tmp_path)
            for step, what in _kills(whole, -(-self.most_kills // 4)):
                self._nothing_lost(reference, self._read_on(tmp_path, kill_at=step), what)

    def test_a_restart_repeats_nothing_and_loses_nothing(self, tmp_path: Path) -> None:
        """Stops and starts with new instances after each poll."""
        reference = self._read(tmp_path)
        run = self._run(tmp_path)
        with run:
            while len(run.committed) < self.count and self._polls_on(run):
                run.restart()
        self._same(reference, run, "after restarts")

    def test_a_pause_repeats_nothing_and_loses_nothing(self, tmp_path: Path) -> None:
        """The same connector is stopped and started again after each poll."""
        reference = self._read(tmp_path)
        run = self._run(tmp_path)
        with run:
            while len(run.committed) < self.count and self._polls_on(run):
                run.pause()
        self._same(reference, run, "after pauses")

    def test_a_rebalance_repeats_nothing_and_loses_nothing(self, tmp_path: Path) -> None:
        """More tasks, and then fewer, after each poll."""
        reference = self._read(tmp_path, tasks_max=self.tasks_max)
        run = self._run(tmp_path)
        with run:
            while len(run.committed) < self.count and self._polls_on(run):
                run.rebalance(self.tasks_max)
                if len(run.committed) < self.count and self._polls_on(run):
                    run.rebalance(1)
        if self.ends:
            self._same(reference, run, "after rebalances")

    def test_it_stops_while_it_waits(self, tmp_path: Path) -> None:
        """A poll that waits for data returns within ``stop_s`` when the task shall stop."""

        def last() -> float:
            with self._run(tmp_path) as run:
                while len(run.committed) < self.count and self._polls_on(run):
                    pass
                return run.last_poll()

        slowest = quickest(last, self.stop_s)
        assert slowest < self.stop_s, f"poll() returned {slowest:.2f} s after the stop, and has {self.stop_s} s"

    def test_records_are_not_changed_after_they_were_handed_over(self, tmp_path: Path) -> None:
        """The worker converts a record while ``poll`` is called again."""
        run = self._run(tmp_path)
        with run:
            kept: list[tuple[SourceRecord, object, object]] = []
            while len(kept) < self.count and (polled := self._poll(run)):
                kept += [(one, copy.deepcopy(self.identity(one)), dict(one.source_offset or {})) for one in polled]
            for record, identity, offset in kept:
                assert (self.identity(record), dict(record.source_offset or {})) == (identity, offset)

    def test_a_changed_schema_is_read(self, tmp_path: Path) -> None:
        """The records after ``change`` are read, and nothing is lost."""
        run = self._run(tmp_path)
        with run:
            while len(run.committed) < self.count and self._polls_on(run):
                pass
            count = self.count + self.change()
            while len(run.committed) < count and self._polls_on(run):
                pass
            for record in run.committed:
                self._check(record)
        assert len(run.committed) == count, f"{len(run.committed)} records were read with the new ones, not {count}"

    # ------------------------------------------------------------------------------------------------------ helpers
    def _run(self, tmp_path: Path, **named: Any) -> SourceRun:
        settings = self.prepare(self._path(tmp_path))
        return SourceRun(self.connector, settings, timeout_s=self.timeout_s, spark=type(self).spark, **named)

    def _read(self, tmp_path: Path, **named: Any) -> SourceRun:
        run = self._run(tmp_path, **named)
        run.killed = self.release
        try:
            return run.finish(self.count, by_records=self.exact_offsets, ends=self.ends)
        except BaseException:
            run.kill()
            raise

    def _read_on(self, tmp_path: Path, **named: Any) -> SourceRun:
        """Reads until nothing more comes, and commits parts of what polls gave."""
        run = self._run(tmp_path, **named)
        run.killed = self.release
        try:
            return run.finish(None)
        except BaseException:
            run.kill()
            raise

    def _poll(self, run: SourceRun) -> list[SourceRecord]:
        """Polls until there is something; an empty list once nothing has come for long."""
        for _ in range(1000):
            if polled := run.poll():
                return polled
        return []

    def _polls_on(self, run: SourceRun) -> bool:
        found = self._poll(run)
        run.commit()
        return bool(found)

    def _same(self, reference: SourceRun, run: SourceRun, what: str) -> None:
        expected, found = self._by_partition(reference), self._by_partition(run)
        if not self.ends:
            for place in found:
                least = min(len(found[place]), len(expected.get(place, [])))
                assert found[place][:least] == expected.get(place, [])[:least], f"{what}: {place}"
            return
        for place in expected.keys() | found.keys():
            wanted, given = expected.get(place, []), found.get(place, [])
            if wanted != given:
                lost = list((Counter(map(repr, wanted)) - Counter(map(repr, given))).elements())
                more = list((Counter(map(repr, given)) - Counter(map(repr, wanted))).elements())
                raise AssertionError(
                    f"{what}, of {dict(place)}: lost {lost[:3]}, twice or new {more[:3]}"
                    + ("" if lost or more else f", in another order: {given[:5]}")
                    + f"; the offsets are {run.offsets()}"
                )

    def _nothing_lost(self, reference: SourceRun, run: SourceRun, what: str) -> None:
        lost = {repr(self.identity(one)) for one in reference.committed}
        lost -= {repr(self.identity(one)) for one in run.records}
        assert not lost, f"{what}: lost {sorted(lost)[:3]}; the offsets are {run.offsets()}"

    def _by_partition(self, run: SourceRun) -> dict[tuple[tuple[str, object], ...], list[object]]:
        found: dict[tuple[tuple[str, object], ...], list[object]] = {}
        for one in run.committed:
            partition: Mapping[str, object] = one.source_partition or {}
            found.setdefault(tuple(sorted(partition.items())), []).append(self.identity(one))
        return found

    def _check(self, record: SourceRecord) -> None:
        """Checks the parts of a record that a worker needs."""
        assert record.topic, f"A record has no topic: {record}"
        for side in ("key", "value"):
            schema, value = getattr(record, f"{side}_schema"), getattr(record, side)
            if schema is not None and value is not None:
                validate_value(schema, value)
        for name in ("source_partition", "source_offset"):
            for key, one in (getattr(record, name) or {}).items():
                fits = isinstance(key, str) and isinstance(one, str | int | float | bool | None)
                assert fits, f"A {name} is a map of texts to texts, numbers and booleans: {getattr(record, name)}"
