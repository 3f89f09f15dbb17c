"""Doubles for sink tasks: a consumer over lists, a pipeline without Spark, a task that writes down what it is asked."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.api import FrameSinkTask, OffsetAndMetadata, SinkFrame, SinkRecord, SinkTask, TopicPartition
from penstock.kafka.consumer.consumer import FetchedChunk, RebalanceListener
from penstock.kafka.consumer.messages import UnreadableRecords, placeholder
from penstock.kafka.consumer.offsets import Subscription
from penstock.model import ConnectorTaskId, State
from penstock.pipeline.batch.batches import CONSUMED_SCHEMA, PendingBatch, RecordError, SinkBatch, Submit
from penstock.worker.errors import (
    ConsumedMessage,
    ErrorCounts,
    ErrorHandler,
    ErrorPolicy,
    ErrorReporter,
    FailedRecord,
)
from penstock.worker.sink.task import SinkServices, SinkTaskRunner
from penstock.worker.task.bounded_queue import BatchLimits
from penstock.worker.task.engine import TaskServices, TaskSession, TaskSpec
from penstock.worker.task.plugin_metrics import InstanceMetrics
from testkit.doubles.spark_doubles import FakeSessions

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
WAIT_S = 30.0


class FakeConsumer:
    """Topics in memory. ``rebalance`` runs a callback on the fetch thread, inside its next fetch, and waits for it."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.log: dict[TopicPartition, list[bytes]] = {}
        self.positions: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()
        self.commits: list[dict[TopicPartition, int]] = []
        self.sync_commits: list[dict[TopicPartition, int]] = []
        self.seeks: list[dict[TopicPartition, int]] = []
        self.answers: list[Callable[[Exception | None], None]] = []
        self.answer_commits = True
        self.commit_error: Exception | None = None
        self.fetch_error: Exception | None = None
        #: What cannot be read: for each partition the offset of the first record of a batch, and behind its last.
        self.damaged: dict[TopicPartition, tuple[int, int]] = {}
        self.fetches = 0
        self.closed = False
        self.subscription: Subscription | None = None
        self._epoch = 0
        self._listener: RebalanceListener | None = None
        self._jobs: list[tuple[Callable[[RebalanceListener], None], threading.Event]] = []

    # -- Called by the test

    def add(self, partition: TopicPartition, *values: str) -> None:
        with self.changed:
            self.log.setdefault(partition, []).extend(value.encode() for value in values)
            self.changed.notify_all()

    def assign(self, starts: Mapping[TopicPartition, int], *, wait: bool = True) -> None:
        def job(listener: RebalanceListener) -> None:
            self._epoch += 1
            placement = listener.on_assigned(starts, self._epoch)
            self.positions.update(placement.starts)
            self.paused |= placement.paused

        self._rebalance(job, wait=wait)

    def revoke(self, *partitions: TopicPartition, wait: bool = True) -> None:
        def job(listener: RebalanceListener) -> None:
            listener.on_revoked(list(partitions))
            self._drop(partitions)

        self._rebalance(job, wait=wait)

    def lose(self, *partitions: TopicPartition) -> None:
        def job(listener: RebalanceListener) -> None:
            listener.on_lost(list(partitions))
            self._drop(partitions)

        self._rebalance(job, wait=True)

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            del self.positions[partition]
            self.paused.discard(partition)

    def _rebalance(self, job: Callable[[RebalanceListener], None], *, wait: bool) -> None:
        done = threading.Event()
        with self.changed:
            self._jobs.append((job, done))
            self.changed.notify_all()
        if wait:
            assert done.wait(WAIT_S), "the rebalance was not answered"

    # -- Called by the fetch thread

    def subscribe(self, subscription: Subscription, listener: RebalanceListener) -> None:
        self.subscription = subscription
        self._listener = listener

    def fetch(self, max_records: int, timeout_s: float) -> FetchedChunk | None:
        with self.changed:
            self.fetches += 1
            jobs, self._jobs = self._jobs, []
        assert self._listener is not None
        for job, done in jobs:
            job(self._listener)
            done.set()
        if self.fetch_error is not None:
            raise self.fetch_error
        with self.changed:
            if not self._ready():
                self.changed.wait(min(timeout_s, 0.005))
            return self._take(max_records)

    def _ready(self) -> list[TopicPartition]:
        return [tp for tp, at in self.positions.items() if tp not in self.paused and at < len(self.log.get(tp, ()))]

    def _take(self, max_records: int) -> FetchedChunk | None:
        rows: list[dict[str, object]] = []
        ends: dict[TopicPartition, int] = {}
        for tp in self._ready():
            first, behind = self.damaged.get(tp, (-1, -1))
            if self.positions[tp] == first:
                self.positions[tp] = behind
                found = UnreadableRecords(tp, first, behind, "Invalid compressed data")
                return FetchedChunk(placeholder(tp, first), {tp: behind}, self._epoch, found)
            end = min(len(self.log[tp]), self.positions[tp] + max_records - len(rows))
            end = min(end, first) if self.positions[tp] < first else end
            for offset in range(self.positions[tp], end):
                rows.append(row(tp, offset, self.log[tp][offset]))
            if end > self.positions[tp]:
                ends[tp] = self.positions[tp] = end
        return FetchedChunk(pa.Table.from_pylist(rows, CONSUMED_SCHEMA), ends, self._epoch) if rows else None

    def seek(self, positions: Mapping[TopicPartition, int]) -> int:
        self._epoch += 1
        self.seeks.append(dict(positions))
        self.positions.update({tp: at for tp, at in positions.items() if tp in self.positions})
        return self._epoch

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self.paused |= set(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self.paused -= set(partitions)

    def commit_async(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], answer: Callable[[Exception | None], None]
    ) -> None:
        error = self.commit_error
        self.commits.append({tp: at.offset for tp, at in offsets.items()})
        self.answers.append(answer)
        if self.answer_commits:
            answer(error)

    def commit_sync(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        if self.commit_error is not None:
            raise self.commit_error
        self.sync_commits.append({tp: at.offset for tp, at in offsets.items()})

    def ends(self) -> dict[TopicPartition, int]:
        return {tp: len(self.log.get(tp, ())) for tp in self.positions}

    def interrupt(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def close(self) -> None:
        self.closed = True


def row(tp: TopicPartition, offset: int, value: bytes) -> dict[str, object]:
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "offset": offset,
        "timestamp": 1000 + offset,
        "timestamp_type": 0,
        "key": b"k%d" % offset,
        "value": value,
        "headers": [{"key": "h", "value": b"1"}],
    }


class FakePipeline:
    """Values become text; "bad" fails, "drop" is dropped, "flaky" fails in a retriable way ``flaky`` times."""

    def __init__(self, *, frames: bool = False, flaky: int = 0) -> None:
        self.frames = frames
        self.flaky = flaky
        self.runs: list[list[str]] = []
        self.gate: threading.Event | None = None
        self.entered = threading.Event()

    def begin(self, batch: pa.Table, submit: Submit) -> PendingBatch[SinkBatch]:
        return submit(lambda: self.run(batch))

    def run(self, batch: pa.Table) -> SinkBatch:
        rows = batch.to_pylist()
        self.runs.append([row["value"].decode() for row in rows])
        self.entered.set()
        if self.gate is not None:
            assert self.gate.wait(WAIT_S)
        records: list[SinkRecord | None] = []
        errors = {}
        flaky = self.flaky > 0 and any(row["value"] == b"flaky" for row in rows)
        self.flaky -= flaky
        for index, found in enumerate(rows):
            text = found["value"].decode()
            record = SinkRecord(found["topic"], found["partition"], found["offset"], text)
            records.append(None if text == "drop" else record)
            if text == "bad" or (text == "flaky" and flaky):
                records[-1] = None
                errors[index] = failure(index, retriable=text == "flaky")
        if not self.frames:
            return SinkBatch(records, None, errors, records.count(None) - len(errors))
        good = [index for index, record in enumerate(records) if record is not None]
        frame = SinkFrame(batch.take(pa.array(good, pa.int64())), None, None)
        return SinkBatch(None, [frame] if good else [], errors, records.count(None) - len(errors))


def failure(seq: int, *, retriable: bool = False, stage: str = "VALUE_CONVERTER") -> RecordError:
    name = "org.apache.kafka.connect.errors." + ("RetriableException" if retriable else "DataException")
    return RecordError(seq, stage, "org.apache.kafka.connect.json.JsonConverter", name, "no JSON", retriable)


class Diary:
    """The calls of a task, in order; ``wait_for`` waits until something is among them."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.entries: list[tuple[str, object]] = []

    def write(self, what: str, detail: object = None) -> None:
        with self.changed:
            self.entries.append((what, detail))
            self.changed.notify_all()

    def wait_for(self, found: Callable[[], bool], what: str = "") -> None:
        with self.changed:
            assert self.changed.wait_for(found, WAIT_S), f"{what} did not happen in {self.entries}"

    def wait_for_entry(self, what: str, count: int = 1) -> None:
        self.wait_for(lambda: len(self.of(what)) >= count, what)

    def of(self, what: str) -> list[object]:
        return [detail for entry, detail in self.entries if entry == what]

    @property
    def names(self) -> list[str]:
        return [entry for entry, _ in self.entries]


class _Scripted:
    """Hooks replace what a method does; ``None`` does nothing."""

    def __init__(self) -> None:
        self.diary = Diary()
        self.hooks: dict[str, Callable[..., object]] = {}
        self.threads: set[str] = set()

    def note(self, what: str, detail: object = None, *arguments: object) -> object:
        self.threads.add(threading.current_thread().name)
        self.diary.write(what, detail)
        hook = self.hooks.get(what)
        return hook(*arguments) if hook else None


class RecordingTask(SinkTask, _Scripted):
    """Writes down the values it is given."""

    def start(self, props: Mapping[str, str]) -> None:
        self.note("start", dict(props))

    def stop(self) -> None:
        self.note("stop")

    def open(self, partitions: object) -> None:
        self.note("open", sorted(partitions), partitions)  # type: ignore[call-overload]

    def close(self, partitions: object) -> None:
        self.note("close", sorted(partitions), partitions)  # type: ignore[call-overload]

    def put(self, records: Sequence[SinkRecord]) -> None:
        if not records:
            self.note("empty put")
            return
        self.note("put", [record.value for record in records], records)

    def pre_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        answer = self.note("pre_commit", {tp: at.offset for tp, at in offsets.items()}, offsets)
        return offsets if answer is None else answer  # type: ignore[return-value]

    @property
    def values(self) -> list[str]:
        return [value for put in self.diary.of("put") for value in put]  # type: ignore[attr-defined]


class FrameTask(FrameSinkTask, _Scripted):
    """Writes down the values of the frames it is given."""

    start, stop, open, close, pre_commit = (
        RecordingTask.start,
        RecordingTask.stop,
        RecordingTask.open,
        RecordingTask.close,
        RecordingTask.pre_commit,
    )

    def put(self, frame: SinkFrame) -> None:
        values = [value.decode() for value in frame.table["value"].to_pylist()]
        self.note("put", values, frame)


class ListReporter:
    """Keeps what is reported; ``stored`` says whether reports count as stored."""

    def __init__(self) -> None:
        self.failed: list[FailedRecord] = []
        self.messages: list[ConsumedMessage] = []
        self.stored = True
        self.closed = False

    def report(self, failed: FailedRecord) -> None:
        self.failed.append(failed)
        assert isinstance(failed.origin, ConsumedMessage)
        self.messages.append(failed.origin)

    def await_reports(self, partitions: Sequence[TopicPartition] | None, timeout_s: float) -> bool:
        return self.stored

    def close(self) -> None:
        self.closed = True


@dataclass
class Sink:
    """A running sink task over doubles."""

    task: RecordingTask | FrameTask = field(default_factory=RecordingTask)
    pipeline: FakePipeline = field(default_factory=FakePipeline)
    policy: ErrorPolicy = field(default_factory=ErrorPolicy)
    commit_interval_s: float = 60.0
    paused: bool = False
    limits: BatchLimits = field(default_factory=BatchLimits)
    metrics: InstanceMetrics = field(default_factory=InstanceMetrics.unread)

    def __post_init__(self) -> None:
        self.consumer = FakeConsumer()
        self.sessions = FakeSessions()
        self.session = TaskSession("sink-0", self.sessions)
        self.reporter = ListReporter()
        self.states: list[str] = []
        self.points: list[str] = []
        self.topics: list[str] = []
        self._state = threading.Condition()
        self.runner = SinkTaskRunner(
            TaskSpec(
                ConnectorTaskId("sink", 0),
                self.task,
                {"a": "1"},
                lambda: {"a": "2"},
                self.limits,
                self.commit_interval_s,
                0.2,
                self.paused,
            ),
            TaskServices(
                self._reached,
                self.session,
                ErrorHandler(
                    self.policy,
                    [],
                    counts=ErrorCounts(),
                    clock=lambda: int(time.time() * 1000),
                    random=lambda: 0.5,
                    owner="sink-0",
                ),
                metrics=self.metrics,
                probe=self.points.append,
                note_topics=self.topics.extend,
            ),
            SinkServices(
                self.pipeline,
                self.consumer,
                Subscription.of(["t"]),
                self._reporters,
            ),
        )

    def _reporters(self, counts: ErrorCounts) -> Sequence[ErrorReporter]:
        return [self.reporter]

    def _reached(self, state: State, trace: str | None) -> None:
        with self._state:
            self.states.append(state.value)
            self._state.notify_all()

    @property
    def failure(self) -> BaseException | None:
        """The exception that the task has failed with."""
        return self.runner._life.failure

    def wait_state(self, state: str) -> None:
        with self._state:
            assert self._state.wait_for(lambda: bool(self.states) and self.states[-1] == state, WAIT_S), self.states

    def start(self, starts: Mapping[TopicPartition, int] | None = None) -> "Sink":
        self.runner.start()
        if not self.paused:
            self.wait_state("RUNNING")
            if starts is not None:
                self.consumer.assign(starts)
        return self

    def stop(self) -> None:
        self.runner.stop()
        assert self.runner.join(WAIT_S), "the task did not end"

    def wait_values(self, *values: str) -> None:
        self.task.diary.wait_for(lambda: self.values == list(values), f"delivery of {values}")

    @property
    def values(self) -> list[str]:
        return [value for put in self.task.diary.of("put") for value in put]  # type: ignore[attr-defined]
