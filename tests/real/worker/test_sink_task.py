"""Sink tasks against a real broker: the group, offsets, pauses, rewinds and dead letters. Conversion is a double."""

import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]
from confluent_kafka.admin import NewTopic as ClientTopic  # type: ignore[attr-defined]
from testkit.doubles.sink_doubles import FakePipeline, RecordingTask
from testkit.waiting import await_true

from penstock.api import SinkRecord, TopicPartition
from penstock.broker import EmbeddedBroker
from penstock.errors import RetriableException
from penstock.kafka.admin import TopicAdmin
from penstock.kafka.consumer.consumer import Placement, RecordConsumer
from penstock.kafka.consumer.offsets import Subscription
from penstock.kafka.producer.record_producer import RecordProducer
from penstock.kafka.settings.client import producer_settings
from penstock.kafka.settings.producer import ColumnSettings
from penstock.model import ConnectorTaskId, State
from penstock.worker.errors import (
    DeadLetterQueue,
    DeadLetterSettings,
    ErrorCounts,
    ErrorHandler,
    ErrorPolicy,
    ErrorReporter,
    create_topic,
)
from penstock.worker.sink.fetching import PartitionHolders
from penstock.worker.sink.task import SinkServices, SinkTaskRunner
from penstock.worker.task.engine import TaskServices, TaskSession, TaskSpec

pytestmark = [pytest.mark.broker, pytest.mark.slow]

WAIT_S = 30.0


class RealSink:
    """One running sink task of a group."""

    def __init__(self, kafka: "Kafka", number: int, subscription: Subscription, settings: dict[str, object]) -> None:
        self.task = RecordingTask()
        self.failures: list[str] = []
        self.settings = settings
        policy = ErrorPolicy(tolerance_all=bool(settings.pop("tolerance", False)))
        dead_letters = settings.pop("dead.letters", None)
        client = {"bootstrap.servers": kafka.servers}

        def reporters(counts: ErrorCounts) -> Sequence[ErrorReporter]:
            if dead_letters is None:
                return []
            queue = DeadLetterSettings(str(dead_letters), 1, context_headers=True)
            sender = ColumnSettings.of(producer_settings(client, {}, client_id="letters"))
            admin = TopicAdmin(client, name="sink")
            create_topic(queue, admin)
            admin.close()
            return [
                DeadLetterQueue(queue, ConnectorTaskId("sink", number), RecordProducer(sender, name="sink"), counts)
            ]

        consumer = RecordConsumer(
            {
                **client,
                "group.id": kafka.group,
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": "range",
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 500,
                "topic.metadata.refresh.interval.ms": 500,
                **settings,
            },
            name=f"sink task {number}",
            refresh_s=0.5,
        )
        interval_s = float(str(settings.get("max.poll.interval.ms", 300_000))) / 1000
        self.runner = SinkTaskRunner(
            TaskSpec(ConnectorTaskId("sink", number), self.task, {}, dict),
            TaskServices(
                self._report,
                TaskSession("c-0"),
                ErrorHandler(
                    policy, [], counts=ErrorCounts(), clock=lambda: int(time.time() * 1000), random=lambda: 0.5
                ),
            ),
            SinkServices(
                FakePipeline(), consumer, subscription, reporters, holder=kafka.holders.holder("g", interval_s)
            ),
        )

    def _report(self, state: State, trace: str | None) -> None:
        if trace is not None:
            self.failures.append(trace)

    def start(self) -> "RealSink":
        self.runner.start()
        return self

    def stop(self) -> None:
        self.runner.stop()
        assert self.runner.join(WAIT_S)

    @property
    def values(self) -> list[str]:
        return self.task.values

    def wait_values(self, *values: str) -> None:
        await_true(lambda: self.values == list(values), f"{values} (seen: {self.values[-20:]})")

    def wait_open(self, *partitions: TopicPartition) -> None:
        await_true(lambda: list(partitions) in self.task.diary.of("open"), f"open of {partitions}")


class Kafka:
    """Topics, a producer and a group of their own for one test."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.prefix = f"sink-{uuid.uuid4().hex[:8]}"
        self.group = f"connect-{self.prefix}"
        self._admin = AdminClient({"bootstrap.servers": servers})
        self._producer = self._new_producer()
        self._sinks: list[RealSink] = []
        self.holders = PartitionHolders()

    def topic(self, name: str = "in", partitions: int = 1) -> str:
        full = f"{self.prefix}-{name}"
        for future in self._admin.create_topics([ClientTopic(full, partitions, 1)]).values():
            future.result(WAIT_S)
        return full

    def grow(self, topic: str, partitions: int) -> None:
        for future in self._admin.create_partitions([NewPartitions(topic, partitions)]).values():
            future.result(WAIT_S)
        # The old one does not know the new partitions yet.
        self._producer = self._new_producer()

    def _new_producer(self) -> ck.Producer:
        return ck.Producer({"bootstrap.servers": self.servers, "linger.ms": 0})

    def write(self, topic: str, *values: str, partition: int = 0, **more: object) -> None:
        for value in values:
            self._producer.produce(topic, value.encode(), partition=partition, **more)  # type: ignore[arg-type]
        assert self._producer.flush(WAIT_S) == 0

    def sink(self, subscription: Subscription, number: int = 0, **settings: object) -> RealSink:
        sink = RealSink(self, number, subscription, {name.replace("_", "."): v for name, v in settings.items()})
        self._sinks.append(sink)
        return sink

    def committed(self, *partitions: TopicPartition) -> list[int]:
        reader = ck.Consumer({"bootstrap.servers": self.servers, "group.id": self.group})
        try:
            found = reader.committed([ck.TopicPartition(tp.topic, tp.partition) for tp in partitions], timeout=WAIT_S)
        finally:
            reader.close()
        return [position.offset for position in found]

    def members(self) -> tuple[str, int]:
        """The state of the group, and how many members it has."""
        group = self._admin.describe_consumer_groups([self.group])[self.group].result(WAIT_S)
        return group.state.name, len(group.members)

    def read(self, topic: str) -> list[dict[str, Any]]:
        """The messages of a topic, once there is one."""
        reader = RecordConsumer(
            {"bootstrap.servers": self.servers, "group.id": f"{self.group}-letters", "auto.offset.reset": "earliest"},
            name="reader",
        )
        try:
            collector = Collector()
            reader.subscribe(Subscription.of([topic]), collector)
            await_true(lambda: collector.read(reader), "a message")
        finally:
            reader.close()
        return collector.rows

    def end(self) -> None:
        for sink in self._sinks:
            sink.stop()


@pytest.fixture
def kafka(broker: EmbeddedBroker) -> Iterator[Kafka]:
    made = Kafka(broker.bootstrap_servers)
    yield made
    made.end()


def test_records_are_delivered_in_order_and_a_new_task_goes_on_behind_the_committed_ones(kafka: Kafka) -> None:
    topic = kafka.topic()
    at = TopicPartition(topic, 0)
    kafka.write(topic, "a", "drop", "b")
    first = kafka.sink(Subscription.of([topic])).start()
    first.wait_values("a", "b")
    first.stop()
    assert kafka.committed(at) == [3]
    assert first.task.diary.of("close") == [[at]]
    kafka.write(topic, "c")
    second = kafka.sink(Subscription.of([topic])).start()
    second.wait_values("c")
    assert second.task.threads == {"task-sink-0"}


def test_a_requested_commit_reaches_the_group_while_the_task_goes_on(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.write(topic, "a", "b")
    sink = kafka.sink(Subscription.of([topic])).start()
    sink.wait_values("a", "b")
    sink.task.context.request_commit()
    await_true(lambda: kafka.committed(TopicPartition(topic, 0)) == [2], "the commit")
    await_true(lambda: sink.runner.commits.successes == 1, "the answer to the commit")


def test_with_eager_assignment_everything_is_given_back_and_no_record_comes_twice(kafka: Kafka) -> None:
    topic = kafka.topic(partitions=2)
    p0, p1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
    kafka.write(topic, "a", partition=0)
    kafka.write(topic, "b", partition=1)
    first = kafka.sink(Subscription.of([topic])).start()
    first.wait_open(p0, p1)
    await_true(lambda: sorted(first.values) == ["a", "b"], "delivery")
    second = kafka.sink(Subscription.of([topic]), 1).start()
    await_true(lambda: len(second.task.diary.of("open")) == 1, "the second assignment")
    await_true(lambda: len(first.task.diary.of("open")) == 2, "the new assignment of the first")
    assert first.task.diary.of("close") == [[p0, p1]]
    kafka.write(topic, "c", partition=0)
    kafka.write(topic, "d", partition=1)
    await_true(lambda: len(first.values) + len(second.values) == 4, "delivery to both")
    assert sorted(first.values + second.values) == ["a", "b", "c", "d"]
    assert kafka.committed(p0, p1) == [1, 1]


def test_with_cooperative_assignment_only_what_moves_is_closed_and_opened(kafka: Kafka) -> None:
    topic = kafka.topic(partitions=2)
    p0, p1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
    strategy: dict[str, Any] = {"partition_assignment_strategy": "cooperative-sticky"}
    first = kafka.sink(Subscription.of([topic]), **strategy).start()
    first.wait_open(p0, p1)
    kafka.write(topic, "a", partition=0)
    kafka.write(topic, "b", partition=1)
    await_true(lambda: sorted(first.values) == ["a", "b"], "delivery")
    second = kafka.sink(Subscription.of([topic]), 1, **strategy).start()
    await_true(lambda: len(second.task.diary.of("open")) == 1, "the second assignment")
    [moved] = second.task.diary.of("open")
    assert first.task.diary.of("close") == [moved]
    assert first.task.diary.of("open") == [[p0, p1]]
    kafka.write(topic, "c", partition=0)
    kafka.write(topic, "d", partition=1)
    await_true(lambda: len(first.values) + len(second.values) == 4, "delivery to both")
    second.stop()
    await_true(lambda: first.task.diary.of("open")[1:] == [moved], "the partition coming back")
    kafka.write(topic, "e", partition=0)
    kafka.write(topic, "f", partition=1)
    await_true(lambda: {"e", "f"} <= set(first.values), "delivery after the other has gone")
    assert sorted(first.values + second.values) == list("abcdef")


class Openings:
    """What the tasks of a group open and close, one after the other."""

    def __init__(self, *sinks: RealSink) -> None:
        self._lock = threading.Lock()
        self.owned: dict[int, set[TopicPartition]] = {}
        self.wrong: list[str] = []
        for number, sink in enumerate(sinks):
            self._watch(number, sink)

    def _watch(self, number: int, sink: RealSink) -> None:
        mine = self.owned[number] = set()

        def opened(partitions: list[TopicPartition]) -> None:
            with self._lock:
                taken = [tp for tp in partitions if any(tp in theirs for theirs in self.owned.values())]
                self.wrong += [f"{number} opens {tp} while it is open" for tp in taken]
                mine.update(partitions)

        def closed(partitions: list[TopicPartition]) -> None:
            with self._lock:
                mine.difference_update(partitions)

        sink.task.hooks["open"] = opened
        sink.task.hooks["close"] = closed


@pytest.mark.parametrize("change", ["partitions", "topic", "member"])
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_what_is_noticed_while_a_task_closes_does_not_open_its_partitions_elsewhere_before(
    kafka: Kafka, strategy: str, change: str
) -> None:
    topic = kafka.topic(partitions=3)
    values = [f"{number}" for number in range(30)]
    for number, value in enumerate(values):
        kafka.write(topic, value, partition=number % 3)
    read = Subscription.matching(f"{kafka.prefix}-.*") if change == "topic" else Subscription.of([topic])
    sinks = [kafka.sink(read, number, partition_assignment_strategy=strategy) for number in range(3)]
    openings = Openings(*sinks)
    closing = threading.Event()

    def pre_commit(_: object) -> None:
        if sinks[0].task.context.is_closing and not closing.is_set():
            closing.set()
            # Several times as long as clients take to look for partitions, topics and members.
            threading.Event().wait(2)

    sinks[0].task.hooks["pre_commit"] = pre_commit
    sinks[0].start()
    await_true(lambda: len(sinks[0].values) == 30, "delivery")
    sinks[1].start()
    assert closing.wait(WAIT_S)
    new = TopicPartition(topic, 3)
    if change == "partitions":
        kafka.grow(topic, 5)
    elif change == "topic":
        new = TopicPartition(kafka.topic("new"), 0)
    else:
        new = TopicPartition(topic, 0)
        sinks[2].start()
    kafka.write(new.topic, "new", partition=new.partition)
    await_true(lambda: "new" in [value for sink in sinks for value in sink.values], "the record that came last")
    count = {"partitions": 5, "topic": 4, "member": 3}[change]
    await_true(lambda: sum(map(len, openings.owned.values())) == count, "all being open")
    assert openings.wrong == []
    assert sorted(value for sink in sinks for value in sink.values) == sorted([*values, "new"])
    assert [failure for sink in sinks for failure in sink.failures] == []


def test_nobody_waits_for_a_task_that_has_left_its_group(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.write(topic, "a")
    limits: dict[str, Any] = {"session_timeout_ms": 6000, "max_poll_interval_ms": 6000}
    stuck = kafka.sink(Subscription.of([topic]), **limits)
    free = threading.Event()
    stuck.task.hooks["put"] = lambda records: free.wait(WAIT_S) if records else None
    stuck.start()
    stuck.task.diary.wait_for_entry("put")
    other = kafka.sink(Subscription.of([topic]), 1, **limits).start()
    try:
        other.wait_values("a")
    finally:
        free.set()


def test_records_of_a_paused_partition_come_once_and_in_order_after_resume(kafka: Kafka) -> None:
    topic = kafka.topic(partitions=2)
    p0 = TopicPartition(topic, 0)
    sink = kafka.sink(Subscription.of([topic]))

    def put(records: list[SinkRecord]) -> None:
        for record in records:
            if record.value == "pause":
                sink.task.context.pause(p0)
            if record.value == "resume":
                sink.task.context.resume(p0)

    sink.task.hooks["put"] = put
    kafka.write(topic, "a", "pause", partition=0)
    sink.start()
    sink.wait_values("a", "pause")
    kafka.write(topic, "b", "c", partition=0)
    kafka.write(topic, "x", partition=1)
    sink.wait_values("a", "pause", "x")
    sink.task.diary.wait_for_entry("empty put")
    kafka.write(topic, "resume", partition=1)
    sink.wait_values("a", "pause", "x", "resume", "b", "c")


def test_offsets_of_the_task_win_over_committed_ones_in_open_and_later(kafka: Kafka) -> None:
    topic = kafka.topic()
    p0 = TopicPartition(topic, 0)
    kafka.write(topic, *"abcd")
    sink = kafka.sink(Subscription.of([topic]))
    sink.task.hooks["open"] = lambda _: sink.task.context.offset(p0, 2)

    def put(records: list[SinkRecord]) -> None:
        if records[-1].value == "e" and sink.values.count("e") == 1:
            sink.task.context.offset({p0: 3})

    sink.task.hooks["put"] = put
    sink.start()
    sink.wait_values("c", "d")
    kafka.write(topic, "e")
    sink.wait_values("c", "d", "e", "d", "e")
    sink.stop()
    assert kafka.committed(p0) == [5]


def test_after_a_retriable_error_the_same_records_come_again_and_then_the_others(kafka: Kafka) -> None:
    topic = kafka.topic()
    sink = kafka.sink(Subscription.of([topic]))
    left = [RetriableException("busy"), RetriableException("busy")]

    def put(_: object) -> None:
        if left:
            sink.task.context.timeout(100)
            raise left.pop()

    sink.task.hooks["put"] = put
    kafka.write(topic, "a")
    sink.start()
    sink.task.diary.wait_for_entry("put")
    kafka.write(topic, "b")
    sink.wait_values("a", "a", "a", "b")


def test_a_paused_connector_stays_in_its_group_and_goes_on_without_a_gap(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.write(topic, "a")
    sink = kafka.sink(Subscription.of([topic])).start()
    sink.wait_values("a")
    sink.runner.pause()
    await_true(lambda: kafka.committed(TopicPartition(topic, 0)) == [1], "the commit at pause")
    kafka.write(topic, "b", "c")
    sink.task.diary.wait_for_entry("empty put", 2)
    assert sink.values == ["a"]
    sink.runner.resume()
    sink.wait_values("a", "b", "c")
    assert len(sink.task.diary.of("open")) == 1


def test_a_topic_that_matches_later_is_found_and_one_that_does_not_match_whole_is_not_read(kafka: Kafka) -> None:
    kafka.topic("orders-2023")
    sink = kafka.sink(Subscription.matching(f"{kafka.prefix}-orders-[0-9]{{4}}")).start()
    sink.wait_open(TopicPartition(f"{kafka.prefix}-orders-2023", 0))
    other, new = kafka.topic("orders-2024-old"), kafka.topic("orders-2024")
    kafka.write(other, "no")
    kafka.write(new, "yes")
    sink.wait_values("yes")


def test_a_topic_that_does_not_exist_yet_is_waited_for(kafka: Kafka) -> None:
    name = f"{kafka.prefix}-later"
    sink = kafka.sink(Subscription.of([name]), allow_auto_create_topics=False).start()
    sink.task.diary.wait_for_entry("empty put")
    kafka.topic("later")
    kafka.write(name, "a")
    sink.wait_values("a")
    assert sink.failures == []


def test_bad_records_are_in_the_dead_letter_topic_byte_for_byte_when_their_offsets_are_committed(kafka: Kafka) -> None:
    topic, letters = kafka.topic(), f"{kafka.prefix}-dlq"
    kafka.write(topic, "a")
    kafka.write(topic, "bad", key=b"\x00\x01", headers=[("h", b"1"), ("none", None)], timestamp=123_456)
    kafka.write(topic, "b")
    sink = kafka.sink(Subscription.of([topic]), tolerance=True, dead_letters=letters).start()
    sink.wait_values("a", "b")
    sink.stop()
    assert kafka.committed(TopicPartition(topic, 0)) == [3]
    [letter] = kafka.read(letters)
    assert (letter["key"], letter["value"], letter["timestamp"]) == (b"\x00\x01", b"bad", 123_456)
    headers = [(header["key"], header["value"]) for header in letter["headers"]]
    assert headers[:2] == [("h", b"1"), ("none", None)]
    assert ("__connect.errors.offset", b"1") in headers
    assert ("__connect.errors.exception.class.name", b"org.apache.kafka.connect.errors.DataException") in headers


def test_a_record_held_while_much_came_is_in_the_dead_letter_topic_byte_for_byte(kafka: Kafka) -> None:
    topic, letters = kafka.topic(), f"{kafka.prefix}-dlq"
    original = b'{"orig": 1,  "x":1.50}'
    kafka.write(topic, original.decode(), key=b"\x00\x01", headers=[("h", b"v"), ("none", None)], timestamp=123_456)
    sink = kafka.sink(Subscription.of([topic]), tolerance=True, dead_letters=letters)
    held: list[SinkRecord] = []

    def put(records: list[SinkRecord]) -> None:
        held.extend(records)
        if len(held) == 91:
            reporter = sink.task.context.errant_record_reporter()
            assert reporter is not None
            reporter.report(held[0], ValueError("too late"))

    sink.task.hooks["put"] = put
    sink.task.hooks["pre_commit"] = lambda offsets: {}
    kafka.write(topic, *["x" * 900_000] * 90)
    sink.start()
    await_true(lambda: len(held) == 91, "delivery")
    [letter] = kafka.read(letters)
    assert (letter["key"], letter["value"], letter["timestamp"]) == (b"\x00\x01", original, 123_456)
    headers = [(header["key"], header["value"]) for header in letter["headers"]]
    assert headers[:2] == [("h", b"v"), ("none", None)]
    assert ("__connect.errors.offset", b"0") in headers


class Collector:
    """Takes partitions where they begin and keeps the rows it reads."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def before_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        pass

    def on_assigned(
        self, starts: Mapping[TopicPartition, int], epoch: int, at_end: frozenset[TopicPartition] = frozenset()
    ) -> Placement:
        return Placement(starts)

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        pass

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        pass

    def read(self, consumer: RecordConsumer) -> bool:
        chunk = consumer.fetch(100, 0.2)
        if chunk is not None:
            self.rows.extend(chunk.table.to_pylist())
        return bool(self.rows)


def test_a_cancelled_task_stuck_in_put_gives_its_partitions_to_others_and_commits_nothing(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.write(topic, "a")
    stuck = kafka.sink(Subscription.of([topic]))
    go_on = threading.Event()
    stuck.task.hooks["put"] = lambda _: go_on.wait(WAIT_S)
    stuck.start()
    stuck.task.diary.wait_for_entry("put")
    stuck.runner.cancel()
    other = kafka.sink(Subscription.of([topic]), 1).start()
    other.wait_values("a")
    go_on.set()
    assert stuck.runner.join(WAIT_S)
    assert kafka.committed(TopicPartition(topic, 0)) == [ck.OFFSET_INVALID]


def test_a_task_that_waits_for_its_group_stops_at_once_and_leaves_when_the_group_goes_on(kafka: Kafka) -> None:
    topic = kafka.topic()
    settings = {"bootstrap.servers": kafka.servers, "group.id": kafka.group, "enable.auto.commit": False}
    slow = ck.Consumer({**settings, "partition.assignment.strategy": "range"})
    assigned: list[object] = []
    slow.subscribe([topic], on_assign=lambda *_: assigned.append(_))
    await_true(lambda: slow.poll(0.1) is None and bool(assigned), "the other member's assignment")
    # From now on it does not poll, so it does not join again; its heartbeats go on.
    sink = kafka.sink(Subscription.of([topic])).start()
    await_true(lambda: kafka.members() == ("PREPARING_REBALANCING", 2), "the task's join")

    began = time.monotonic()
    sink.stop()

    assert time.monotonic() - began < 2
    assert not sink.failures
    slow.close()
    await_true(lambda: kafka.members() == ("EMPTY", 0), "the task's leave")


def test_a_static_member_leaves_when_its_task_stops(kafka: Kafka) -> None:
    topic = kafka.topic(partitions=2)
    sinks = [kafka.sink(Subscription.of([topic]), n, group_instance_id=f"member-{n}").start() for n in range(2)]
    await_true(lambda: kafka.members() == ("STABLE", 2), "both tasks' joins")
    sinks[0].stop()
    # Long before its session has ended the other one is alone.
    await_true(lambda: kafka.members() == ("STABLE", 1), "one task's leave")
    sinks[1].wait_open(TopicPartition(topic, 0), TopicPartition(topic, 1))
    sinks[1].stop()
    assert kafka.members() == ("EMPTY", 0)


def test_a_task_whose_static_member_is_replaced_fails_and_says_why(kafka: Kafka) -> None:
    topic = kafka.topic()
    first = kafka.sink(Subscription.of([topic]), group_instance_id="one").start()
    first.wait_open(TopicPartition(topic, 0))
    kafka.write(topic, "a")
    first.wait_values("a")

    second = kafka.sink(Subscription.of([topic]), 1, group_instance_id="one").start()

    await_true(lambda: bool(first.failures), "the failure")
    assert "penstock.kafka.static.members" in first.failures[0]
    second.wait_open(TopicPartition(topic, 0))


def test_without_a_committed_offset_and_a_reset_policy_the_task_fails(kafka: Kafka) -> None:
    topic = kafka.topic()
    sink = kafka.sink(Subscription.of([topic]), auto_offset_reset="error").start()
    await_true(lambda: bool(sink.failures), "the failure")
    assert "undefined offset with no reset policy" in sink.failures[0]


def test_with_latest_only_records_written_after_the_assignment_are_read(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.write(topic, "old")
    sink = kafka.sink(Subscription.of([topic]), auto_offset_reset="latest").start()
    sink.wait_open(TopicPartition(topic, 0))
    kafka.write(topic, "new")
    sink.wait_values("new")
    sink.stop()
    assert sink.task.diary.of("pre_commit") == [{TopicPartition(topic, 0): 1}, {TopicPartition(topic, 0): 2}]


@pytest.mark.parametrize("ending", ["stop", "cancel"])
def test_with_latest_what_comes_while_a_task_is_away_is_read_even_if_it_had_read_nothing(
    kafka: Kafka, ending: str
) -> None:
    topic = kafka.topic()
    at = TopicPartition(topic, 0)
    kafka.write(topic, "old")
    first = kafka.sink(Subscription.of([topic]), auto_offset_reset="latest").start()
    first.wait_open(at)
    if ending == "cancel":
        # A task that is killed commits nothing at its end.
        await_true(lambda: kafka.committed(at) == [1], "the offset of the assignment")
        first.runner.cancel()
    first.stop()
    kafka.write(topic, "meanwhile")
    second = kafka.sink(Subscription.of([topic]), auto_offset_reset="latest").start()
    second.wait_values("meanwhile")
    assert kafka.committed(at) == [1]


def test_with_earliest_a_task_that_has_read_nothing_commits_nothing(kafka: Kafka) -> None:
    topic = kafka.topic()
    sink = kafka.sink(Subscription.of([topic])).start()
    sink.wait_open(TopicPartition(topic, 0))
    sink.stop()
    assert kafka.committed(TopicPartition(topic, 0)) == [ck.OFFSET_INVALID]


def test_by_duration_a_task_begins_at_the_records_that_are_young_enough(kafka: Kafka) -> None:
    topic, empty = kafka.topic(), kafka.topic("empty")
    now = int(time.time() * 1000)
    producer = ck.Producer({"bootstrap.servers": kafka.servers})
    for hours, value in ((3, "oldest"), (2, "old"), (0, "young"), (0, "younger")):
        producer.produce(topic, value.encode(), partition=0, timestamp=now - hours * 3_600_000)
    producer.produce(empty, b"too old", partition=0, timestamp=now - 5 * 3_600_000)
    assert producer.flush(30) == 0

    sink = kafka.sink(Subscription.of([topic, empty]), auto_offset_reset="by_duration:3600000").start()

    sink.wait_values("young", "younger")
    kafka.write(empty, "new")
    sink.wait_values("young", "younger", "new")


def test_by_duration_an_offset_that_is_out_of_range_goes_on_at_the_beginning(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.write(topic, *(str(number) for number in range(10)))
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    consumer = ck.Consumer({"bootstrap.servers": kafka.servers, "group.id": kafka.group})
    consumer.commit(offsets=[ck.TopicPartition(topic, 0, 2)], asynchronous=False)
    consumer.close()
    for deleted in admin.delete_records([ck.TopicPartition(topic, 0, 7)]).values():
        deleted.result(30)

    sink = kafka.sink(Subscription.of([topic]), auto_offset_reset="by_duration:3600000").start()

    sink.wait_values("7", "8", "9")
    assert sink.failures == []


@pytest.mark.parametrize("leave", [True, False])
def test_a_topic_that_is_not_there_is_created_where_the_settings_give_leave(kafka: Kafka, leave: bool) -> None:
    topic = f"missing-{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": kafka.servers})

    sink = kafka.sink(Subscription.of([topic]), allow_auto_create_topics=leave).start()

    if leave:
        sink.wait_open(TopicPartition(topic, 0))
        kafka.write(topic, "first")
        sink.wait_values("first")
        return
    # The first question of the client is answered long before.
    with pytest.raises(AssertionError, match="open of"):
        await_true(lambda: sink.task.diary.of("open"), "open of it", 3.0)
    assert topic not in admin.list_topics(timeout=10).topics
