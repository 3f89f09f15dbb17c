"""Runs a sink without a worker, a broker or Java: ``run_sink``.

Main types: ``SinkRun``; ``numbered`` gives records their offsets. A run is a log of records for each partition, the
committed offsets of a consumer group, and tasks among which the partitions are shared; all on the test's own thread.

Owning thread: the test's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.api import FrameSinkTask, OffsetAndMetadata, SinkConnector, SinkRecord, TopicPartition
from penstock.testing.kit.contexts import KitSinkConnectorContext, KitSinkContext, Reports
from penstock.testing.kit.frames import frames_of_records, no_rows
from penstock.testing.kit.lives import (
    ASKS_AGAIN,
    TRY_AGAIN_S,
    KilledException,
    Run,
    checked_configs,
    props_of,
    until_it_works,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Tries of a ``put`` that asks for another one, before ``put`` of the run returns.
_TRIES: Final = 3


def place_of(record: SinkRecord) -> TopicPartition:
    """The partition that a record was read from."""
    return TopicPartition(record.original_topic or "", record.original_kafka_partition or 0)


def numbered(records: Sequence[SinkRecord]) -> list[SinkRecord]:
    """The records with the offsets that they get when they are written in this order, partition by partition.

    Source: Penstock's own.

    >>> [one.original_kafka_offset for one in numbered([SinkRecord("t", 0, 0, value) for value in "abc"])]
    [0, 1, 2]
    """
    ends: dict[TopicPartition, int] = {}
    made = []
    for one in records:
        place = place_of(one)
        offset = ends.get(place, 0)
        ends[place] = offset + 1
        made.append(
            SinkRecord(
                one.topic,
                one.kafka_partition,
                offset,
                one.value,
                value_schema=one.value_schema,
                key=one.key,
                key_schema=one.key_schema,
                timestamp=one.timestamp,
                timestamp_type=one.timestamp_type,
                headers=one.headers,
                original_topic=place.topic,
                original_kafka_partition=place.partition,
                original_kafka_offset=offset,
            )
        )
    return made


class _Life:
    """One task, from its start to its end."""

    def __init__(
        self,
        number: int,
        config: Mapping[str, str],
        reports: Reports,
        task: Any,
        spark: Callable[[], SparkSession] | None,
    ) -> None:
        self.task = task
        self.partitions: set[TopicPartition] = set()
        self.next: dict[TopicPartition, int] = {}
        self.put_to: dict[TopicPartition, int] = {}
        self.context = KitSinkContext(f"kit task {number}", config, lambda: frozenset(self.partitions), reports, spark)

    @property
    def takes_frames(self) -> bool:
        return isinstance(self.task, FrameSinkTask)


class SinkRun(Run[SinkConnector, _Life]):
    """A sink that a test runs; see ``run_sink``.

    Attributes:
        committed: The offsets of the consumer group: where a task begins that was given a partition.
        steps: The names of the steps, in order: ``start``, ``open``, ``put``, ``pre_commit``, ``committed``, ``close``,
            ``stop``. ``kill_at`` counts in it.
        retries: The texts of ``RetriableException`` that tasks have raised.
        killed: Called after each kill, for what the end of a process would do and the garbage collector does not.

    Source: Penstock's own.
    """

    def __init__(
        self,
        connector: type[SinkConnector],
        settings: Mapping[str, str],
        records: Sequence[SinkRecord] = (),
        *,
        tasks_max: int = 1,
        kill_at: int | None = None,
        tolerant: bool = True,
        timeout_s: float = 30.0,
        spark: Callable[[], SparkSession] | None = None,
    ) -> None:
        super().__init__(connector, settings, tasks_max, kill_at, timeout_s, spark)
        self.committed: dict[TopicPartition, int] = {}
        self._reports = Reports(tolerant=tolerant)
        self._log: dict[TopicPartition, list[SinkRecord]] = {}
        self.write(records)

    @property
    def reported(self) -> list[tuple[SinkRecord, str]]:
        """The records, and rows of frames as records, that tasks have reported, and their errors as text."""
        return self._reports.found

    def write(self, records: Sequence[SinkRecord]) -> None:
        """Appends records to their partitions."""
        for one in records:
            place = place_of(one)
            log = self._log.setdefault(place, [])
            if log and (one.original_kafka_offset or 0) <= (log[-1].original_kafka_offset or 0):
                raise AssertionError(
                    f"The record at {place}, offset {one.original_kafka_offset}, does not follow the previous one: "
                    "numbered(records) gives records their offsets"
                )
            log.append(one)
        if self._lives is not None and any(place not in life.partitions for life in self._lives for place in self._log):
            self._assign()

    def put(self, count: int | None = None) -> int:
        """Gives each task the records that are next, and makes its calls by the clock; starts and opens first.

        A ``put`` that raises ``RetriableException`` is tried three times; the records then come with the next call.

        Args:
            count: The largest number of records of each partition; None for all.

        Returns:
            How many records were put.
        """
        self._begin()
        done = 0
        for life in self._lives or ():
            self._seek(life)
            batch = self._next(life, count)
            for call in list(life.context.calls._calls):
                self._again(call.call)
            done += self._deliver(life, batch)
            if life.context.commit_requested:
                life.context.clear_commit_request()
                self._commit(life, life.partitions, closing=False)
        if done:
            self._steps.made("put")
        return done

    def commit(self) -> None:
        """Commits what tasks say is safe: ``pre_commit``, then the offsets."""
        for life in self._lives or ():
            self._commit(life, life.partitions, closing=False)

    def finish(self, batch: int | None = None) -> SinkRun:
        """Puts and commits to the end, through the kill, and stops.

        Args:
            batch: The largest number of records of a partition in one ``put``; None for all.

        Returns:
            The run itself.

        Raises:
            AssertionError: The records were not taken in time.
        """
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                self._begin()
                while self._left():
                    if not self.put(batch):
                        time.sleep(TRY_AGAIN_S)
                    self.commit()
                    if time.monotonic() > deadline:
                        last = f"; the last error: {self.retries[-1]}" if self.retries else ""
                        raise AssertionError(f"The records were not taken in {self._timeout_s} s{last}")
                # Without records, as a worker calls it on a quiet topic.
                self.put()
                self.stop()
                return self
            except KilledException:
                # Its traceback holds the tasks, which have to go now: the kill comes when it is gone.
                pass
            self.kill()

    def stop(self) -> None:
        """Stops as a worker does: ``pre_commit`` with ``is_closing``, the commit, ``close``, ``stop``."""
        lives = self._lives
        for life in lives or ():
            self._take_away(life, set(life.partitions))
        self._lives = None
        for life in lives or ():
            life.task.stop()
            life.context.close()
        if lives is not None:
            self._steps.made("stop")
        self._stop_connector()

    def rebalance(self, tasks_max: int) -> None:
        """Divides the partitions among another number of tasks: partitions that move are committed and closed first."""
        self._begin()
        self._tasks_max = tasks_max
        lives = self._lives or []
        for life in lives[tasks_max:]:
            self._take_away(life, set(life.partitions))
            life.task.stop()
            life.context.close()
        assert self._connector is not None
        self._lives = lives[:tasks_max]
        for number, config in enumerate(checked_configs(self._connector, tasks_max)):
            if number >= len(self._lives):
                self._lives.append(self._start_task(number, config))
        self._assign()

    def lose(self) -> None:
        """Takes all partitions away without a commit, as from a task that the group has removed; then assigns them
        again.
        """
        for life in self._lives or ():
            gone = frozenset(life.partitions)
            life.partitions.clear()
            life.context.forget_rewinds(gone)
            life.task.close(gone)
        self._steps.made("close")
        self._assign()

    def _abandon(self, lives: Sequence[_Life]) -> None:
        for life in lives:
            life.context.close()

    def _begin(self) -> None:
        if self._connector is None:
            self._connector = self._class()
            self._connector.initialize(KitSinkConnectorContext())
            topics = {"topics": ",".join(sorted({place.topic for place in self._log}))}
            props = {**topics, **props_of(self._class, self._settings, self._tasks_max)}
            self._start_connector(self._connector, props)
        if self._lives is None:
            configs = self._task_configs()
            self._lives = [self._start_task(number, config) for number, config in enumerate(configs)]
            self._steps.made("start")
            self._assign()

    def _start_task(self, number: int, config: Mapping[str, str]) -> _Life:
        assert self._connector is not None
        life = _Life(number, config, self._reports, self._connector.task_class()(), self._spark)
        life.task.initialize(life.context)
        until_it_works(lambda: life.task.start(dict(config)), "start", self.retries, self._timeout_s)
        return life

    def _assign(self) -> None:
        """Divides the partitions among the tasks, and moves those with another owner now."""
        lives = self._lives or []
        wanted: list[set[TopicPartition]] = [set() for _ in lives]
        for number, place in enumerate(sorted(self._log)):
            wanted[number % len(lives)].add(place)
        for life, share in zip(lives, wanted, strict=True):
            self._take_away(life, life.partitions - share)
        for life, share in zip(lives, wanted, strict=True):
            new = share - life.partitions
            if not new:
                continue
            life.partitions |= new
            for place in new:
                life.next[place] = self.committed.get(place, self._first(place))
            until_it_works(partial(life.task.open, new), "open", self.retries, self._timeout_s)
            self._seek(life)
        self._steps.made("open")

    def _take_away(self, life: _Life, gone: set[TopicPartition]) -> None:
        if not gone:
            return
        self._commit(life, gone, closing=True)
        life.partitions -= gone
        life.context.retain(frozenset(life.partitions))
        life.context.forget_rewinds(frozenset(gone))
        life.task.close(frozenset(gone))
        for place in gone:
            life.put_to.pop(place, None)
        self._steps.made("close")

    def _seek(self, life: _Life) -> None:
        for place, offset in life.context.take_rewinds().items():
            if place in life.partitions:
                life.next[place] = offset
                self.committed[place] = offset
                life.put_to.pop(place, None)

    def _next(self, life: _Life, count: int | None) -> list[SinkRecord]:
        batch: list[SinkRecord] = []
        for place in sorted(life.partitions - life.context.paused):
            log = self._log[place]
            rest = [one for one in log if (one.original_kafka_offset or 0) >= life.next[place]]
            batch += rest[:count]
        return batch

    def _deliver(self, life: _Life, batch: Sequence[SinkRecord]) -> int:
        if life.takes_frames:
            form = life.task.value_form
            frames = frames_of_records(batch, form, life.context, self._spark)
            given: list[tuple[Any, Sequence[SinkRecord]]] = []
            first = 0
            for frame in frames:
                given.append((frame, batch[first : first + frame.num_rows]))
                first += frame.num_rows
            if not frames and life.context.take_timeout_ms() is not None:
                given.append((no_rows(form, life.context, self._spark), ()))
        else:
            given = [(list(batch), batch)]
        done = 0
        for what, records in given:
            if not self._again(partial(life.task.put, what)):
                return done
            done += len(records)
            for one in records:
                life.next[place_of(one)] = life.put_to[place_of(one)] = (one.original_kafka_offset or 0) + 1
        return done

    def _again(self, call: Callable[[], object]) -> bool:
        """Makes a call, up to three times; False if it still asks for another try."""
        for _ in range(_TRIES):
            try:
                call()
            except ASKS_AGAIN as error:
                self.retries.append(str(error))
                time.sleep(TRY_AGAIN_S)
            else:
                return True
        return False

    def _commit(self, life: _Life, partitions: set[TopicPartition], *, closing: bool) -> None:
        offered = {place: OffsetAndMetadata(life.put_to[place]) for place in partitions if place in life.put_to}
        if not offered:
            return
        life.context.set_closing(closing)
        try:
            safe = life.task.pre_commit(dict(offered))
        finally:
            life.context.set_closing(False)
        self._steps.made("pre_commit")
        for place, at in (safe or {}).items():
            if place not in offered or at.offset > offered[place].offset:
                raise AssertionError(
                    f"pre_commit returned the offset {at.offset} of {place}; it was given "
                    f"{ {one: offered[one].offset for one in offered} }, and may return at most these"
                )
            self.committed[place] = at.offset
        self._steps.made("committed")

    def _first(self, place: TopicPartition) -> int:
        return self._log[place][0].original_kafka_offset or 0 if self._log[place] else 0

    def _left(self) -> bool:
        """True if a task has not been given all of its records."""
        return any(self._next(life, None) for life in self._lives or ())


def run_sink(
    connector: type[SinkConnector],
    settings: Mapping[str, str],
    records: Sequence[SinkRecord] = (),
    *,
    tasks_max: int = 1,
    kill_at: int | None = None,
    tolerant: bool = True,
    timeout_s: float = 30.0,
    spark: Callable[[], SparkSession] | None = None,
) -> SinkRun:
    """A run of a sink connector, without a worker, a broker or Java.

    Use it in a ``with`` block, and say what happens: ``put``, ``commit``, ``kill``, ``restart``, ``rebalance``,
    ``lose``. Or call ``finish``, which does all of it to the end. Columnar tasks are given frames that look as those of
    a worker; only ``frame.dataframe()`` needs a Spark session. Functions of ``context.every`` are called at each
    ``put``, whatever their seconds.

    A kill drops the tasks without ``stop``: files and connections that only the task has are closed by the garbage
    collector, and their transactions rolled back, as by the end of a process.

    Args:
        connector: Its class.
        settings: Its own settings.
        records: The records of its topics, with their offsets: ``numbered(...)``.
        tasks_max: The most tasks it may have; the partitions are shared among them.
        kill_at: The number of the step at which ``finish`` kills it, from 0; see ``SinkRun.steps``.
        tolerant: False: a report of a bad record fails the task, as with ``errors.tolerance=none``.
        timeout_s: How long ``finish`` tries, and a ``start`` or ``open`` that asks for another try is repeated.
        spark: Gives a session, for a sink that uses ``frame.dataframe()``: the fixture ``spark`` of
            ``penstock.testing.kit.fixtures``.

    Source: Penstock's own.
    """
    return SinkRun(
        connector,
        settings,
        records,
        tasks_max=tasks_max,
        kill_at=kill_at,
        tolerant=tolerant,
        timeout_s=timeout_s,
        spark=spark,
    )
