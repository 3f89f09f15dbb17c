"""Ranges on executors, over a topic in memory: what the task is given, whatever its chain and its bad messages."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest

from penstock.api import SinkFrame, TopicPartition, Transformation, isolate
from penstock.api.bulk import BulkSinkTask, TopicRange, WrittenRange
from penstock.clients.reader import Fetched
from penstock.converters.json.converter import JsonConverter
from penstock.converters.primitives import ByteArrayConverter
from penstock.converters.string import SimpleHeaderConverter, StringConverter
from penstock.errors import ConnectException, IllegalWorkerStateException, KafkaRetriableException
from penstock.model import ConnectorTaskId
from penstock.pipeline.batch.batches import CONSUMED_SCHEMA, WIRE_HEADERS, InstanceRecipe
from penstock.transforms.extraction import HoistFieldValue
from penstock.worker.bulk import range_work as module
from penstock.worker.bulk.range_work import RangeAnswer, RangeWork, TopicReading
from penstock.worker.bulk.runs import Failure
from penstock.worker.bulk.shipping import Parts, TransformRecipe
from penstock.worker.errors import ErrorPolicy, FailedRecord

PLACE = TopicPartition("t", 3)
NO_SCHEMA = {"schemas.enable": "false"}


@dataclass
class Topic:
    """Messages by offset, and a client that gives some at once."""

    messages: Mapping[int, bytes | None]
    once: int = 3
    silent: bool = False
    closed: int = 0
    trouble: str | None = "no broker"
    _from: int = 0
    _place: TopicPartition = PLACE

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        ((self._place, self._from),) = positions.items()

    def fetch(self, timeout_s: float) -> list[Fetched]:
        left = [] if self.silent else [one for one in sorted(self.messages) if one >= self._from][: self.once]
        if not left:
            return []
        self._from = left[-1] + 1
        return [Fetched(self._place, table(left, [self.messages[one] for one in left]))]

    def at_end(self, place: TopicPartition) -> bool:
        return not self.silent

    def close(self) -> None:
        self.closed += 1


def table(offsets: Sequence[int], values: Sequence[bytes | None]) -> pa.Table:
    rows = len(offsets)
    columns = {
        "offset": pa.array(offsets, pa.int64()),
        "timestamp": pa.array([1_000] * rows, pa.int64()),
        "timestamp_type": pa.array([0] * rows, pa.int8()),
        "key": pa.nulls(rows, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "headers": pa.nulls(rows, WIRE_HEADERS),
    }
    return pa.table({one: columns[one] for one in CONSUMED_SCHEMA.names if one in columns})


class Letters:
    """A dead letter queue."""

    def __init__(self, stored: bool = True) -> None:
        self.reports: list[FailedRecord] = []
        self.stored = stored

    def report(self, failed: FailedRecord) -> None:
        self.reports.append(failed)

    def await_reports(self, partitions: object, timeout_s: float) -> bool:
        return self.stored

    def close(self) -> None: ...


@dataclass(frozen=True)
class InMemory(TopicReading):
    """Reads a topic in memory."""

    topic: Topic = field(default_factory=lambda: Topic({}))
    queue: Letters | None = None

    def reader(self) -> Any:
        return self.topic

    def reporters(self, counts: object) -> list[Any]:
        return [] if self.queue is None else [self.queue]


class Rows(BulkSinkTask):
    """Returns the values that it was given, with their offsets."""

    def start(self, props: Mapping[str, str]) -> None: ...

    def stop(self) -> None: ...

    def commit(self, files: Sequence[WrittenRange], ends: Mapping[TopicPartition, int]) -> None: ...

    def write(self, topic_range: TopicRange, batches: Iterator[SinkFrame]) -> Any:
        found: list[tuple[int, Any]] = []
        for frame in batches:
            found += zip(frame.table.column("offset").to_pylist(), frame.table.column("value").to_pylist(), strict=True)
        return found


def reading(topic: Topic, converter: type = ByteArrayConverter, *chain: InstanceRecipe, **own: Any) -> InMemory:
    value = InstanceRecipe(converter, NO_SCHEMA if converter is JsonConverter else {})
    transforms = tuple(TransformRecipe(f"t{number}", one, None, False) for number, one in enumerate(chain))
    parts = Parts(
        "lake", InstanceRecipe(ByteArrayConverter, {}), value, InstanceRecipe(SimpleHeaderConverter, {}), transforms
    )
    policy = ErrorPolicy(tolerance_all=own.pop("tolerant", False), log_enable=own.pop("log", False))
    return InMemory(ConnectorTaskId("lake", 0), {}, parts, policy, topic=topic, **own)


def written(given: InMemory, start: int = 0, end: int = 10, task: BulkSinkTask | None = None) -> RangeAnswer:
    work = RangeWork(task or Rows(), (TopicRange(*PLACE, start, end),), given, lambda point: None)
    return work.write(0)


def text(numbers: Sequence[int]) -> dict[int, bytes | None]:
    return {one: b"%d" % one for one in numbers}


@pytest.mark.parametrize("once", [1, 3, 100])
def test_a_task_gets_the_messages_of_its_range_and_no_others(once: int) -> None:
    topic = Topic(text(range(20)), once)
    answer = written(reading(topic), 4, 12)
    assert answer.file == [(one, b"%d" % one) for one in range(4, 12)]
    assert (answer.read, answer.rows, topic.closed) == (8, 8, 1)
    assert answer.range.attempt


@pytest.mark.parametrize("there", [[0, 1, 5], [0, 9, 10, 11], [], [12], [3]])
def test_offsets_that_are_missing_are_no_messages(there: Sequence[int]) -> None:
    answer = written(reading(Topic(text(there))), 0, 10)
    assert answer.file == [(one, b"%d" % one) for one in there if one < 10]


CHAINS: list[tuple[type, list[InstanceRecipe], Callable[[int], object]]] = [
    (StringConverter, [], str),
    (JsonConverter, [], lambda number: {"id": number, "note": None if number % 2 else f"n{number}"}),
    (
        JsonConverter,
        [InstanceRecipe(HoistFieldValue, {"field": "inner"})],
        lambda number: {"inner": {"id": number, "note": None if number % 2 else f"n{number}"}},
    ),
]


@pytest.mark.parametrize(("converter", "chain", "expected"), CHAINS, ids=["text", "json", "json and a transform"])
def test_messages_are_frames_behind_any_chain(
    converter: type, chain: list[InstanceRecipe], expected: Callable[[int], object]
) -> None:
    messages: dict[int, bytes | None] = {
        one: (b"%d" % one if converter is StringConverter else _order(one)) for one in range(10)
    }
    answer = written(reading(Topic(messages), converter, *chain))
    assert answer.file == [(one, expected(one)) for one in range(10)]


def _order(number: int) -> bytes:
    return json.dumps({"id": number, **({} if number % 2 else {"note": f"n{number}"})}).encode()


def test_a_message_that_fails_ends_the_range() -> None:
    with pytest.raises(ConnectException, match="Tolerance exceeded in error handler"):
        written(reading(Topic({0: b"{}", 1: b"{"}), JsonConverter))


def test_with_tolerance_failed_messages_are_counted_reported_and_dead_letters() -> None:
    queue = Letters()
    messages = {0: b'{"id":0}', 1: b"{", 2: b'{"id":2}', 3: b"[", 4: b'{"id":4}'}
    answer = written(reading(Topic(messages), JsonConverter, tolerant=True, log=True, queue=queue))
    assert [offset for offset, _ in answer.file] == [0, 2, 4]  # type: ignore[attr-defined]
    origins: list[Any] = [one.origin for one in queue.reports]
    assert [(one.topic, one.partition, one.offset, one.value) for one in origins] == [
        ("t", 3, 1, b"{"),
        ("t", 3, 3, b"["),
    ]
    assert (answer.counts["total_record_failures"], answer.counts["total_records_skipped"]) == (2, 2)
    assert (answer.read, answer.rows, len(answer.examples)) == (5, 3, 2)
    assert "DataException" in answer.examples[0]


def test_dead_letters_that_are_not_stored_fail_the_attempt() -> None:
    given = reading(Topic({0: b"{"}), JsonConverter, tolerant=True, queue=Letters(stored=False))
    with pytest.raises(KafkaRetriableException, match="dead letters of lake task 0 were not stored in time"):
        written(given)


class Picky(Rows):
    """Refuses some values itself."""

    def write(self, topic_range: TopicRange, batches: Iterator[SinkFrame]) -> Any:
        found: list[bytes] = []

        def take(part: SinkFrame) -> None:
            values = part.table.column("value").to_pylist()
            if b"3" in values:
                raise ValueError("no threes")
            found.extend(values)

        for frame in batches:
            isolate(take, frame, errors=ValueError)
        return found


def test_rows_that_the_task_refuses_are_reported_with_their_messages() -> None:
    queue = Letters()
    answer = written(reading(Topic(text(range(5))), tolerant=True, queue=queue), task=Picky())
    assert answer.file == [b"0", b"1", b"2", b"4"]
    origin: Any = queue.reports[0].origin
    assert (origin.offset, origin.value) == (3, b"3")
    assert answer.counts["total_record_failures"] == 1
    with pytest.raises(ConnectException, match="Tolerance exceeded"):
        written(reading(Topic(text(range(5))), queue=queue), task=Picky())


class Lazy(Rows):
    def write(self, topic_range: TopicRange, batches: Iterator[SinkFrame]) -> Any:
        return next(batches).num_rows


def test_a_task_that_leaves_frames_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 3)
    topic = Topic(text(range(10)))
    with pytest.raises(ConnectException, match="before it had taken all frames"):
        written(reading(topic), task=Lazy())
    assert topic.closed == 1


def test_a_broker_that_says_nothing_ends_the_attempt_with_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE_S", -1.0)
    with pytest.raises(KafkaRetriableException, match=r"no message of t-3 from offset 0 on .* no broker"):
        written(reading(Topic({}, silent=True)))


class Asking(Rows):
    def write(self, topic_range: TopicRange, batches: Iterator[SinkFrame]) -> Any:
        return next(batches).dataframe()


def test_a_frame_on_an_executor_has_no_session() -> None:
    with pytest.raises(IllegalWorkerStateException, match="Executors have no Spark session"):
        written(reading(Topic(text([1]))), task=Asking())


class Stateless(Transformation):
    """Doubles texts."""

    stateless = True

    def configure(self, configs: Mapping[str, object]) -> None: ...

    def apply(self, record: Any) -> Any:
        return record.new_record(value=record.value * 2)

    @staticmethod
    def config() -> Any: ...

    def close(self) -> None: ...


def test_stateless_transforms_of_users_run_there() -> None:
    answer = written(reading(Topic(text(range(3))), StringConverter, InstanceRecipe(Stateless, {})))
    assert answer.file == [(0, "00"), (1, "11"), (2, "22")]


def test_transforms_of_kafka_behind_those_of_users_run_there() -> None:
    hoist = InstanceRecipe(HoistFieldValue, {"field": "inner"})
    answer = written(reading(Topic(text(range(2))), StringConverter, InstanceRecipe(Stateless, {}), hoist))
    assert answer.file == [(0, {"inner": "00"}), (1, {"inner": "11"})]


def test_answers_are_given_one_by_one_and_a_failure_names_its_range() -> None:
    given = reading(Topic(text(range(10))))
    ranges = (TopicRange(*PLACE, 0, 4), TopicRange(*PLACE, 4, 6))
    work = RangeWork(Rows(), ranges, given, lambda point: None)
    batch = pa.RecordBatch.from_pydict({"id": pa.array([0, 1], pa.int64())})
    answers = [pickle.loads(one.column(0)[0].as_py()) for one in work(iter([batch]))]
    assert [len(one.file) for one in answers] == [4, 2]
    bad = replace(work, reading=reading(Topic({4: b"{"}), JsonConverter))
    with pytest.raises(Exception, match="penstock-bulk") as caught:
        list(bad(iter([batch.slice(1)])))
    failure = Failure.of(caught.value)
    assert failure is not None
    assert failure.final
    assert failure.message.startswith("t-3 from offset 4 to 6: ToleranceExceededException")


def test_a_task_goes_to_executors_without_its_context() -> None:
    task = Rows()
    task.context = Topic({})  # type: ignore[assignment]
    assert "context" not in vars(pickle.loads(pickle.dumps(task)))
