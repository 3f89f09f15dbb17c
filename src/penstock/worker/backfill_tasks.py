"""Plans backfills from a connector's configuration, and reads what a plan names: a sink's ranges, a source's parts.

``RangeConsumer`` is the consumer of a sink's task that joins no group and keeps commits in memory. ``PartsTask`` calls
the author's ``backfill`` for one part after the other; its offsets go to a store of the backfill's own. After all
records a position of a separate source partition moves: once it is committed, Kafka's client has got all records.

Threads: planning asks Kafka and the tasks of sources, so any but the herder's; ``PartsTask`` the task's;
``RangeConsumer`` as ``SinkConsumer``, its properties any.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.api import (
    BackfillPart,
    BackfillSpan,
    Chunk,
    FrameSourceTask,
    OffsetAndMetadata,
    OffsetStorageReader,
    PluginMetrics,
    SinkConnector,
    SourceFrame,
    SourceRecord,
    SourceTask,
    SourceTaskContext,
    TopicPartition,
)
from penstock.api.bulk import BulkFrame, BulkSinkTask
from penstock.clients.reader import Fetched, RecordReader
from penstock.errors import (
    BadRequestException,
    ConflictException,
    ConnectException,
    DataException,
    NotFoundException,
    NotReadyException,
    RetriableException,
)
from penstock.kafka.admin import TopicAdmin
from penstock.kafka.consumer.consumer import FetchedChunk, RebalanceListener
from penstock.kafka.consumer.offsets import Subscription
from penstock.kafka.settings.client import admin_client_id, admin_settings, consumer_settings, sink_consumer_id
from penstock.model import ConnectorType
from penstock.model.payloads import BackfillPlan, BackfillQuestion, BackfillRange, BackfillRequest, BackfillShare
from penstock.plugins import Plugins
from penstock.settings import InstalledPlugins, SinkSettings, SourceSettings
from penstock.settings.worker import WorkerSettings
from penstock.stores.offsets import MemoryOffsetStore, OffsetReader, value_bytes
from penstock.worker.bulk.range_work import placed
from penstock.worker.sink.task import SinkTaskRunner
from penstock.worker.source.task import SourceTaskRunner
from penstock.worker.task.engine import Sessions, TaskSession
from penstock.worker.task.plugin_metrics import InstanceMetrics
from penstock.worker.task.slot import TASK_CLASS, load_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


def sink_ranges(request: BackfillRequest, subscription: Subscription, admin: TopicAdmin) -> list[BackfillRange]:
    """The ranges that are read; those without messages are left out."""
    topics = None if subscription.pattern is not None else subscription.topics
    existing = admin.existing_partitions(topics)
    places = sorted(one for one in existing if topics is not None or subscription.covers(one.topic))
    if not places:
        raise NotFoundException("None of the connector's topics exists: there is nothing to read again")
    begins, ends = admin.beginning_offsets(places), admin.end_offsets(places)
    if request.of is not None:
        raise BadRequestException("of names a part of a source; the parts of a sink are partitions of topics: offsets")
    if request.span is not None:
        raise BadRequestException(
            "The offsets of a sink are ranges of topics: objects with kafka_topic, kafka_partition, start_offset and "
            "end_offset, on the command line TOPIC:PARTITION=START..END"
        )
    if request.ranges:
        found = [_checked(one, begins, ends) for one in request.ranges]
        seen = [(one.topic, one.partition) for one in found]
        if len(set(seen)) < len(seen):
            raise BadRequestException("A partition is there twice: a backfill reads one range of each")
    else:
        assert request.start_ms is not None, "a request has times or offsets"
        starts = admin.offsets_at(places, request.start_ms)
        stops = ends if request.end_ms is None else admin.offsets_at(places, request.end_ms)
        found = [BackfillRange(*one, max(starts[one], begins[one]), min(stops[one], ends[one])) for one in places]
    return sorted(one for one in found if one.start < one.end)


def _checked(
    one: BackfillRange, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> BackfillRange:
    place = TopicPartition(one.topic, one.partition)
    if place not in ends:
        raise BadRequestException(f"{one.topic}-{one.partition} is no partition of the connector's topics")
    if not begins[place] <= one.start < one.end <= ends[place]:
        raise BadRequestException(
            f"{one.topic}-{one.partition} has the offsets {begins[place]} to {ends[place]}, and {one.start} to "
            f"{one.end} was asked for: the end is greater than the start, and both are among them"
        )
    return one


class BackfillPlanner:
    """Plans backfills."""

    def __init__(self, settings: WorkerSettings, plugins: Plugins, sessions: Sessions) -> None:
        self._settings = settings
        self._plugins = plugins
        self._sessions = sessions

    def __call__(self, asked: BackfillQuestion) -> BackfillPlan:
        """Plans the reads and writes of a request.

        Raises:
            BadRequestException: That is not possible; says why.
            NotFoundException: There is nothing to read.
            NotReadyException: A source cannot be asked now.
            ConflictException: A source does not answer as it has to.
        """
        if asked.kind is not ConnectorType.SINK:
            return self._of_source(asked)
        if issubclass(load_class(asked.tasks[0]()[TASK_CLASS]), BulkSinkTask):
            raise BadRequestException(
                f"Connector {asked.name} has Spark's executors write ranges of its topics, and a backfill would write "
                f"at the same time: stop it, and set its offsets back with PATCH /connectors/{asked.name}/offsets. "
                "SparkSink replaces its files of these messages then, and TableSink adds their rows once more"
            )
        return self._of_sink(asked.name, asked.config, asked.request)

    # ------------------------------------------------------------------ sources
    def _of_source(self, asked: BackfillQuestion) -> BackfillPlan:
        name, settings = asked.name, SourceSettings.parse(asked.config, InstalledPlugins(self._plugins))
        instead = f"stop it, and set its offsets back with PATCH /connectors/{name}/offsets"
        span = _span(name, asked.request)
        if settings.isolation.mode != "none":
            raise BadRequestException(
                f"The tasks of connector {name} have processes of their own (task.isolation), in which they are only "
                f"polled: {instead}"
            )
        shares: list[BackfillShare] = []
        for read_config in asked.tasks:
            config = read_config()
            cls = load_class(config[TASK_CLASS])
            lacking = BadRequestException(
                f"Connector {name} is a source, and its task {cls.__name__} has no backfills: {instead}"
            )
            if not issubclass(cls, SourceTask) or cls.plan_backfill is SourceTask.plan_backfill:
                raise lacking
            session = TaskSession(f"the plan of a backfill of {name}", self._sessions)
            try:
                parts = plan_parts(cls(), config, span, session.session)
            except NotImplementedError as error:
                raise lacking from error
            except (BadRequestException, NotFoundException, ConflictException):
                raise
            except RetriableException as error:
                raise NotReadyException(f"Connector {name} cannot be asked for a backfill now: {error}") from error
            except Exception as error:
                log.warning("The plan of a backfill of connector %s failed", name, exc_info=True)
                raise ConflictException(
                    f"Connector {name} cannot plan a backfill: {type(error).__name__}: {error}"
                ) from error
            if parts:
                shares.append(BackfillShare(read_config, parts))
        parts = [part for share in shares for part in share.parts]
        counts = [part.rows for part in parts]
        total = None if None in counts else sum(one or 0 for one in counts)
        cls = self._plugins.resolve_connector(asked.config["connector.class"])
        writes = f"Kafka, to the topics of connector {name} ({cls.__name__}), through its transforms and converters"
        return BackfillPlan([part.to_json() for part in parts], writes, total, shares=shares)

    # ------------------------------------------------------------------ sinks
    def _of_sink(self, name: str, config: Mapping[str, str], request: BackfillRequest) -> BackfillPlan:
        settings = SinkSettings.parse(config, InstalledPlugins(self._plugins))
        client = admin_settings(self._settings.raw, settings.raw, client_id=admin_client_id(name))
        admin = TopicAdmin(dict(client.checked().librdkafka), name=f"connector {name}", timeout_s=client.api_timeout_s)
        try:
            ranges = sink_ranges(request, subscription_of(settings), admin)
        finally:
            admin.close()
        reads = [one.to_json() for one in ranges]
        total = sum(one.end - one.start for one in ranges)
        cls = self._plugins.resolve_connector(config["connector.class"])
        assert issubclass(cls, SinkConnector)
        writes = f"the target of connector {name} ({cls.__name__}), through its transforms"
        return BackfillPlan(reads, writes, total, ranges)


def _span(name: str, request: BackfillRequest) -> BackfillSpan:
    if request.ranges:
        raise BadRequestException(
            f"Connector {name} is a source: the offsets of its backfill are an object with from and to, on the command "
            "line FROM..TO"
        )
    if request.span is not None:
        return BackfillSpan(first=request.span[0], end=request.span[1], of=request.of)
    assert request.start_ms is not None, "a request has times or offsets"
    end_ms = time.time_ns() // 1_000_000 if request.end_ms is None else request.end_ms
    if end_ms <= request.start_ms:
        raise BadRequestException("A backfill begins before it ends, and its beginning, from, is in the future")
    return BackfillSpan(start_ms=request.start_ms, end_ms=end_ms, of=request.of)


def subscription_of(settings: SinkSettings) -> Subscription:
    """The topics of a sink."""
    return Subscription.matching(settings.topics_regex) if settings.topics_regex else Subscription.of(settings.topics)


# ------------------------------------------------------------------ the parts of a source
#: The source partition that moves after the last record.
_END: Final = {"backfill": "end"}
_IDLE_S: Final = 0.2

MakeTask = Callable[[Mapping[str, str]], SourceTask]
Rows = Chunk | SourceFrame | Sequence[SourceRecord]


class _PartsContext(SourceTaskContext):
    """The context of an author's task in a backfill: the runner's, with the settings of that task, and no positions."""

    def __init__(self, context: SourceTaskContext, read_config: Callable[[], Mapping[str, str]]) -> None:
        self.stopping = context.stopping
        self._context = context
        self._read_config = read_config

    def configs(self) -> dict[str, str]:
        return dict(self._read_config())

    def offset_storage_reader(self) -> OffsetStorageReader:
        """See ``SourceTaskContext``; there is nothing committed."""
        return self._context.offset_storage_reader()

    def advance(self, partition: Mapping[str, object], offset: Mapping[str, object] | None) -> None:
        """See ``SourceTaskContext``; the connector's positions are none of a backfill's."""

    def progress(self, done: float | None, total: float | None = None, unit: str = "records") -> None:
        self._context.progress(done, total, unit)

    def plugin_metrics(self) -> PluginMetrics:
        return self._context.plugin_metrics()

    def spark(self) -> SparkSession:
        return self._context.spark()


class PartsTask(SourceTask):
    """Reads the parts of a backfill in order."""

    def __init__(self, shares: Sequence[BackfillShare], make: MakeTask) -> None:
        self.is_read = False
        self._make = make
        self._left = [(share, part) for share in shares for part in share.parts]
        self._task: tuple[BackfillShare, SourceTask] | None = None
        self._rows: Iterator[Rows | BulkFrame] | None = None
        self._offset: Mapping[str, object] | None = None

    def start(self, props: Mapping[str, str]) -> None:
        """See ``Task.start``; the author's tasks are started by ``poll``, each when it is its turn."""

    def poll(self) -> Any:
        """The next rows of the part that is read: a frame, records, a run of executors, or None."""
        while self._left and not self.context.stopping.is_set():
            share, part = self._left[0]
            rows = self._next(share, part)
            if rows is None:
                self._left.pop(0)
                self._rows, self._offset = None, None
                continue
            if isinstance(rows, Chunk):
                if rows.data is None:
                    self._offset = rows.position(part.partition)
                    continue
                rows = rows.frame(part.partition)
            if isinstance(rows, list | tuple):
                if not rows:
                    continue
                offset = rows[-1].source_offset
            elif isinstance(rows, SourceFrame | BulkFrame):
                offset = rows.source_offset
            else:
                raise ConnectException(
                    f"backfill() of {type(self._task_of(share)).__name__} must yield Chunks, SourceFrames, BulkFrames "
                    f"or lists of SourceRecords, got {type(rows).__name__}"
                )
            # An offset that cannot be stored would never count as delivered.
            value_bytes(offset)
            self._offset = offset
            return rows
        if not self._left and not self.is_read:
            self._end_task()
            self.context.advance(_END, {"read": True})
            self.is_read = True
        else:
            self.context.stopping.wait(_IDLE_S)
        return None

    def _next(self, share: BackfillShare, part: BackfillPart) -> Rows | BulkFrame | None:
        if self._rows is None:
            self._rows = iter(self._task_of(share).backfill(part, self._offset))
        try:
            return next(self._rows, None)
        except BaseException:
            # If the error asks for a retry, the next call continues after the last yielded record.
            self._close_rows()
            raise

    def _task_of(self, share: BackfillShare) -> SourceTask:
        if self._task is not None and self._task[0] is share:
            return self._task[1]
        self._end_task()
        config = dict(share.read_config())
        task = self._make(config)
        task.initialize(_PartsContext(self.context, share.read_config))
        self._task = share, task
        try:
            task.start(config)
        except BaseException:
            self._end_task()
            raise
        return task

    def wakeup(self) -> None:
        task = self._task
        if task is not None:
            task[1].wakeup()

    def stop(self) -> None:
        self._end_task()

    def _close_rows(self) -> None:
        rows, self._rows = self._rows, None
        close = getattr(rows, "close", None)
        if close is not None:
            # The generator runs on the task's thread while stop() comes from another thread.
            with suppress(ValueError):
                close()

    def _end_task(self) -> None:
        self._close_rows()
        task, self._task = self._task, None
        if task is not None:
            try:
                task[1].stop()
            except Exception:
                log.warning("The stop() of a task of this backfill failed", exc_info=True)


class FramePartsTask(PartsTask, FrameSourceTask):
    """The same for tasks that return frames."""


def parts_task(shares: Sequence[BackfillShare], make: MakeTask, kind: type[SourceTask]) -> PartsTask:
    """The task of a backfill."""
    return (FramePartsTask if issubclass(kind, FrameSourceTask) else PartsTask)(shares, make)


class _PlanContext(SourceTaskContext):
    """The context of an author's task that only plans."""

    def __init__(self, config: Mapping[str, str], spark: Callable[[], SparkSession]) -> None:
        self.stopping = threading.Event()
        self._config = config
        self._spark = spark
        self._metrics = InstanceMetrics.unread().plugin()
        store = MemoryOffsetStore()
        store.start()
        self._offsets = OffsetReader(store, "")

    def configs(self) -> dict[str, str]:
        return dict(self._config)

    def offset_storage_reader(self) -> OffsetStorageReader:
        return self._offsets

    def advance(self, partition: Mapping[str, object], offset: Mapping[str, object] | None) -> None: ...

    def progress(self, done: float | None, total: float | None = None, unit: str = "records") -> None: ...

    def plugin_metrics(self) -> PluginMetrics:
        return self._metrics

    def spark(self) -> SparkSession:
        return self._spark()


def plan_parts(
    task: SourceTask, config: Mapping[str, str], span: BackfillSpan, spark: Callable[[], SparkSession]
) -> list[BackfillPart]:
    """Asks a task of an author's for its part of a backfill. Runs its code: any thread but the herder's."""
    task.initialize(_PlanContext(config, spark))
    try:
        task.start(dict(config))
        found: Any = task.plan_backfill(span)
    finally:
        with suppress(Exception):
            task.stop()
    if not isinstance(found, Sequence) or not all(isinstance(one, BackfillPart) for one in found):
        raise ConnectException(
            f"plan_backfill() of {type(task).__name__} must return a sequence of BackfillParts, got {found!r}"
        )
    return list(found)


class SourceBackfill:
    """A source's task that reads the parts of a backfill; see ``BackfillTask``."""

    def __init__(
        self, runner: SourceTaskRunner, reading: PartsTask, shares: Sequence[BackfillShare], store: MemoryOffsetStore
    ) -> None:
        self.runner = runner
        self._reading = reading
        self._parts = [part for share in shares for part in share.parts]
        self._offsets = OffsetReader(store, runner.id.connector)
        store.start()

    @property
    def all_done(self) -> bool:
        if self.runner.committer.counts.failures:
            # A store in memory fails for nothing else.
            self.runner.fail(DataException("An offset of this backfill cannot be stored; the log says why"))
        if not self._reading.is_read or self._offsets.offset(_END) is None:
            return False
        return self.runner.committer.submitted.rows_left == 0

    @property
    def unread(self) -> Sequence[object]:
        """See ``BackfillTask``: all that was read is delivered before the task is done."""
        return ()

    @property
    def records(self) -> int:
        return self.runner.counts.records

    @property
    def positions(self) -> Sequence[Mapping[str, object]]:
        partitions = list({repr(sorted(one.partition.items())): one.partition for one in self._parts}.values())
        found = zip(partitions, self._offsets.offsets(partitions), strict=True)
        return [{"partition": dict(one), "offset": offset} for one, offset in found if offset is not None]


# ------------------------------------------------------------------ the ranges of a sink
#: The error of a task that sets other offsets than the backfill's.
_IN_TARGET: Final = (
    "it keeps offsets in its target, and has asked for other positions ({asked}): a backfill would change the position "
    "of the connector itself. Stop the connector and set its offsets back instead (penstock connectors offsets)"
)


class RangeConsumer:
    """Reads ranges of partitions, each once.

    Args:
        ranges: The first offset of each, and the offset after the last message.
    """

    def __init__(self, reader: RecordReader, ranges: Mapping[TopicPartition, tuple[int, int]]) -> None:
        self._reader = reader
        self._ranges = dict(ranges)
        self._listener: RebalanceListener | None = None
        self._begun = False
        self._epoch = 1
        self._paused: frozenset[TopicPartition] = frozenset()
        #: The offset after the last message that was handed out.
        self._read = {place: start for place, (start, _) in ranges.items()}
        self._done: frozenset[TopicPartition] = frozenset()
        self._committed: dict[TopicPartition, int] = {}

    # ------------------------------------------------------------------ any thread
    @property
    def all_read(self) -> bool:
        return len(self._done) == len(self._ranges)

    @property
    def unread(self) -> list[TopicPartition]:
        """The partitions of which something was handed out and is not committed."""
        return [
            place
            for place, (start, _) in self._ranges.items()
            if self._read[place] > max(start, self._committed.get(place, start))
        ]

    @property
    def committed(self) -> dict[TopicPartition, int]:
        """For each partition the offset after the task's last commit."""
        return {place: max(start, self._committed.get(place, start)) for place, (start, _) in self._ranges.items()}

    # ------------------------------------------------------------------ the fetch thread
    def subscribe(self, subscription: Subscription, listener: RebalanceListener) -> None:
        self._listener = listener

    def fetch(self, max_records: int, timeout_s: float) -> FetchedChunk | None:
        if not self._begun:
            self._begin()
        chunks = [one for one in self._reader.fetch(timeout_s) if one.place not in self._paused | self._done]
        tables = [table for one in chunks if (table := self._cut(one)).num_rows]
        for place in self._ranges.keys() - self._done - self._paused:
            if self._read[place] >= self._ranges[place][1] or self._reader.at_end(place):
                self._done |= {place}
        if not tables:
            return None
        return FetchedChunk(pa.concat_tables(tables), {one.place: self._read[one.place] for one in chunks}, self._epoch)

    def _begin(self) -> None:
        self._begun = True
        assert self._listener is not None
        starts = {place: start for place, (start, _) in self._ranges.items()}
        self._listener.before_assigned(list(starts))
        placement = self._listener.on_assigned(starts, self._epoch)
        self._refuse_other(placement.starts)
        self._paused = placement.paused
        self._assign()

    def _cut(self, fetched: Fetched) -> pa.Table:
        place = fetched.place
        table = placed(fetched.table, place)
        end = self._ranges[place][1]
        offsets = table.column("offset")
        last = int(offsets[-1].as_py()) + 1
        if last > end:
            table = table.filter(pc.less(offsets, end))
            last = end if not table.num_rows else int(table.column("offset")[-1].as_py()) + 1
            self._done |= {place}
        self._read[place] = max(self._read[place], last) if table.num_rows else self._read[place]
        return table

    def _assign(self) -> None:
        active = self._ranges.keys() - self._paused - self._done
        self._reader.assign({place: self._read[place] for place in active})

    def seek(self, positions: Mapping[TopicPartition, int]) -> int:
        self._refuse_other({**self._read, **positions}, exactly=False)
        self._epoch += 1
        self._read.update({place: offset for place, offset in positions.items() if place in self._ranges})
        self._done -= {place for place, offset in self._read.items() if offset < self._ranges[place][1]} & set(
            positions
        )
        self._assign()
        return self._epoch

    def _refuse_other(self, positions: Mapping[TopicPartition, int], *, exactly: bool = True) -> None:
        for place, offset in positions.items():
            start, end = self._ranges.get(place, (offset, offset))
            if not (offset == start if exactly else start <= offset <= end):
                raise ConnectException(_IN_TARGET.format(asked=f"{place.topic}-{place.partition} at {offset}"))

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused |= frozenset(partitions)
        self._assign()

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused -= frozenset(partitions)
        self._assign()

    def commit_async(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], answer: Callable[[Exception | None], None]
    ) -> None:
        """See ``SinkConsumer``; the group has no part in it."""
        self.commit_sync(offsets)
        answer(None)

    def commit_sync(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """See ``SinkConsumer``; the group has no part in it."""
        self._committed.update({place: one.offset for place, one in offsets.items()})

    def ends(self) -> dict[TopicPartition, int]:
        """See ``SinkConsumer``: up to where is delivered."""
        return {
            place: self._read[place] if place in self._done else max(end, self._read[place])
            for place, (_, end) in self._ranges.items()
        }

    def interrupt(self) -> None:
        """See ``SinkConsumer``; nothing here waits for long."""

    def close(self) -> None:
        self._reader.close()


def range_consumer(
    worker: Mapping[str, str], settings: SinkSettings, connector: str, task: int, ranges: Sequence[BackfillRange]
) -> RangeConsumer:
    """The consumer of a sink's backfill."""
    client = consumer_settings(
        worker, settings.raw, client_id=sink_consumer_id(connector, task), group_id=f"connect-{connector}-backfill"
    )
    reader = RecordReader(dict(client.checked().librdkafka), name=f"backfill of {connector}")
    return RangeConsumer(reader, {TopicPartition(one.topic, one.partition): (one.start, one.end) for one in ranges})


class SinkBackfill:
    """A sink's task that reads ranges; see ``BackfillTask``."""

    def __init__(self, runner: SinkTaskRunner, consumer: RangeConsumer) -> None:
        self.runner = runner
        self._consumer = consumer

    @property
    def all_done(self) -> bool:
        if not self._consumer.all_read:
            return False
        ends = self._consumer.ends()
        delivered = self.runner.delivered
        return all(delivered.get(place, -1) >= end for place, end in ends.items())

    @property
    def unread(self) -> Sequence[TopicPartition]:
        return self._consumer.unread

    @property
    def records(self) -> int:
        return self.runner.counts.records_read

    @property
    def positions(self) -> Sequence[Mapping[str, object]]:
        return [
            {"kafka_topic": place.topic, "kafka_partition": place.partition, "offset": offset}
            for place, offset in sorted(self._consumer.committed.items())
        ]
