"""Bulk sinks over a Spark, a Kafka and a target in memory: jobs that fail, partitions that go, deaths at commits."""

from __future__ import annotations

import pickle
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import pytest
from tests.unit.worker.bulk.test_range_work import InMemory, Topic, reading, text

from penstock.api import SinkFrame, TopicPartition
from penstock.api.bulk import BulkSinkTask, TopicRange, WrittenRange
from penstock.errors import ConnectException, KafkaRetriableException, RetriableException
from penstock.model import ConnectorTaskId
from penstock.model.states import Progress
from penstock.testing.kit.lives import KilledException
from penstock.worker.bulk import engine as jobs
from penstock.worker.bulk import planning as range_plan
from penstock.worker.bulk import sink_driver as module
from penstock.worker.bulk.range_work import RangeWork
from penstock.worker.bulk.runs import AttemptFailedException, Failure
from penstock.worker.bulk.sink_driver import Around, BulkSinkDriver, BulkSinkServices
from penstock.worker.errors import ErrorCounts, ErrorHandler, ErrorPolicy
from penstock.worker.sink.queues import SinkCounts

PLACE = TopicPartition("t", 3)
OTHER = TopicPartition("t", 4)


class Target(BulkSinkTask):
    """A target in memory: files count when they are committed, and it knows how far it is."""

    visible: list[bytes]
    knows = True

    def __init__(self) -> None:
        self.visible, self.commits = [], 0
        self.ends: dict[TopicPartition, int] = {}
        self.before_commit: Callable[[], None] = lambda: None
        self.closed: list[TopicPartition] = []
        self.most = 5

    def start(self, props: Mapping[str, str]) -> None: ...

    def stop(self) -> None: ...

    def close(self, partitions: Collection[TopicPartition]) -> None:
        self.closed += partitions

    def positions(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {one: self.ends[one] for one in partitions if one in self.ends}

    def plan(self, ranges: Sequence[TopicRange]) -> Sequence[TopicRange]:
        from penstock.api.bulk import split_ranges

        return split_ranges(ranges, self.most)

    def write(self, topic_range: TopicRange, batches: Iterator[SinkFrame]) -> object:
        return [value for frame in batches for value in frame.table.column("value").to_pylist()]

    def commit(self, files: Sequence[WrittenRange], ends: Mapping[TopicPartition, int]) -> None:
        self.before_commit()
        self.commits += 1
        for one in files:
            values: Any = one.file
            self.visible += values
        self.ends.update(ends)

    def __getstate__(self) -> dict[str, object]:
        return {}


class Work:
    def __init__(self) -> None:
        self.is_ended = False

    def under_way(self, session: object) -> Work:
        return self

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def end(self) -> None:
        self.is_ended = True


class Spark:
    """A runtime and its session."""

    generation, parallelism = 1, 2

    def __init__(self) -> None:
        self.jobs = 0
        #: Called in front of each range, with the job's number and the range's.
        self.before: Callable[[int, int], None] = lambda job, place: None

    def run(self, job: Callable[[Any], Any]) -> Any:
        return job(self)

    @property
    def sparkContext(self) -> Spark:
        return self

    def setJobGroup(self, *_: str) -> None: ...

    def range(self, first: int, end: int, *_: int) -> Spark:
        self.count = end
        return self

    def mapInArrow(self, todo: RangeWork, schema: str) -> Spark:
        self.todo = todo
        return self

    def collect(self) -> list[Any]:
        self.jobs += 1
        found = []
        for place in range(self.count):
            self.before(self.jobs, place)
            found.append((pickle.dumps(self.todo.write(place)),))
        return found


class Admin:
    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    def end_offsets(self, places: Collection[TopicPartition], *, committed_only: bool) -> dict[TopicPartition, int]:
        if self._lab.away:
            raise KafkaRetriableException("no broker")
        return dict.fromkeys(places, self._lab.end)

    def beginning_offsets(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, self._lab.begin)

    def close(self) -> None: ...


class Context:
    def __init__(self) -> None:
        self.paused: set[TopicPartition] = set()
        self.commits = 0

    def pause(self, *partitions: TopicPartition) -> None:
        self.paused |= set(partitions)

    def request_commit(self) -> None:
        self.commits += 1

    def timeout(self, timeout_ms: int) -> None: ...


class Lab:
    """A worker's task, made anew as often as asked, over a group and a target that stay."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begin, self.end, self.away = 0, 12, False
        self.resting = False
        self.spark, self.target = Spark(), Target()
        self.group: dict[TopicPartition, int] = {}
        self.reading: InMemory = reading(Topic(text(range(100))))
        self.counts, self.errors = SinkCounts(), ErrorCounts()
        self.told: list[Progress | None] = []
        self.points: list[str] = []
        self.dies_at = ""
        for name, value in (
            ("PythonWork", Work),
            ("run_session", lambda session, cores: session),
            ("packed", lambda todo, what: todo),
            ("shipped", lambda payload, path: payload),
            ("TopicAdmin", lambda settings, name: Admin(self)),
            ("_ASK_S", 0.0),
            ("_BEYOND_S", 0.05),
        ):
            monkeypatch.setattr(range_plan if name == "shipped" else module, name, value)
        monkeypatch.setattr(jobs, "probe_executors", lambda *_: None)

    def driver(self, places: Sequence[TopicPartition] = (PLACE,), **own: Any) -> BulkSinkDriver:
        """A task whose positions are those of the group."""
        spark: Any = self.spark
        handler = ErrorHandler(ErrorPolicy(), [], counts=self.errors, clock=lambda: 0, random=lambda: 0.5)
        services = BulkSinkServices(
            ConnectorTaskId("lake", 0),
            spark,
            own.get("why_not"),
            self.reading,
            spark,
            {},
            False,
            handler,
            probe=self._probe,
        )
        made = BulkSinkDriver(self.target, services)
        positions = {one: self.group.get(one, 0) for one in places}
        made.attach(Around(lambda: positions, positions.update, lambda: self.resting, self.told.append, self.counts))
        self.positions = positions
        context: Any = Context()
        made.initialize(context)
        made.start({})
        made.open(places)
        assert context.paused == set(places)
        return made

    def _probe(self, point: str) -> None:
        if point == self.dies_at:
            self.dies_at = ""
            raise KilledException

    def rounds(self, driver: BulkSinkDriver, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 10
        while not until():
            assert time.monotonic() < deadline, "it does not come"
            driver.put([])
            time.sleep(0.002)


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    return Lab(monkeypatch)


def values(first: int, end: int) -> list[bytes]:
    return [b"%d" % one for one in range(first, end)]


def test_what_is_there_is_written_and_committed_and_then_what_comes(lab: Lab) -> None:
    driver = lab.driver()
    lab.rounds(driver, lambda: lab.positions[PLACE] == 12)
    assert lab.target.visible == values(0, 12)
    assert (lab.counts.records_read, lab.counts.records_put) == (12, 12)
    totals, ranges = driver.totals
    assert (totals.rows, totals.partitions, ranges) == (12, 3, 3)
    lab.end = 14
    lab.rounds(driver, lambda: lab.positions[PLACE] == 14)
    assert lab.target.visible == values(0, 14)
    assert driver.ends == {PLACE: 14}
    assert lab.told[0] is not None
    assert lab.told[0].text == "up to 12 messages of 1 partition"
    assert lab.told[-1] is None


@pytest.mark.parametrize("point", ["bulk-sink.written", "bulk-sink.committed"])
def test_a_worker_that_dies_around_a_commit_doubles_and_loses_nothing(lab: Lab, point: str) -> None:
    lab.dies_at = point
    with pytest.raises(KilledException):
        lab.rounds(lab.driver(), lambda: False)
    # The group has no offset of the job; what the topic has by now is more.
    lab.end = 17
    driver = lab.driver()
    lab.rounds(driver, lambda: lab.positions[PLACE] == 17)
    assert Counter(lab.target.visible) == Counter(values(0, 17))


def test_a_job_that_fails_is_begun_again_and_after_four_the_task_fails(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(job: int, place: int) -> None:
        if job < 3 and place == 1:
            raise AttemptFailedException(Failure(place, False, "a disk is full").to_text())

    lab.spark.before = away
    monkeypatch.setattr(module, "time", Quick())
    lab.rounds(lab.driver(), lambda: lab.positions[PLACE] == 12)
    assert (lab.spark.jobs, lab.target.visible) == (3, values(0, 12))
    lab.spark.before = lambda job, place: away(0, 1)
    lab.end = 13
    driver = lab.driver()
    lab.spark.jobs = 0
    with pytest.raises(ConnectException, match=r"A job of task lake-0 has failed: a disk is full. Nothing of it"):
        lab.rounds(driver, lambda: False)
    assert lab.spark.jobs == 4


class Quick:
    """A clock of which each look is a minute."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        self._now += 60
        return self._now


def test_a_commit_that_asks_for_it_is_called_again(lab: Lab) -> None:
    left = [RetriableException("away"), RetriableException("away")]

    def busy() -> None:
        if left:
            raise left.pop()

    lab.target.before_commit = busy
    driver = lab.driver()
    asked = 0
    while lab.positions[PLACE] < 12:
        try:
            driver.put([])
        except RetriableException:
            asked += 1
    assert (asked, lab.spark.jobs, lab.target.visible) == (2, 1, values(0, 12))


def test_partitions_that_go_while_a_job_works_end_it(lab: Lab) -> None:
    lab.spark.before = lambda job, place: time.sleep(0.02)
    driver = lab.driver([PLACE, OTHER])
    lab.reading = reading(Topic(text(range(100))))
    lab.rounds(driver, lambda: lab.spark.jobs == 1)
    driver.close([OTHER])
    assert lab.target.closed == [OTHER]
    assert lab.target.visible == []
    lab.positions.pop(OTHER)
    lab.rounds(driver, lambda: lab.positions[PLACE] == 12)
    assert lab.target.visible == values(0, 12)


def test_what_is_written_of_a_partition_that_went_before_the_commit_does_not_count(lab: Lab) -> None:
    lab.target.before_commit = lambda: (_ for _ in ()).throw(RetriableException("away"))
    driver = lab.driver([PLACE, OTHER])
    with pytest.raises(RetriableException):
        lab.rounds(driver, lambda: False)
    driver.close([OTHER])
    lab.positions.pop(OTHER)
    lab.target.before_commit = lambda: None
    lab.rounds(driver, lambda: lab.positions[PLACE] == 12)
    assert lab.target.visible == values(0, 12)
    assert lab.target.ends == {PLACE: 12}


def test_a_pause_ends_the_job_at_once_and_a_resume_goes_on(lab: Lab) -> None:
    lab.spark.before = lambda job, place: time.sleep(0.02)
    driver = lab.driver()
    lab.rounds(driver, lambda: lab.spark.jobs == 1)
    lab.resting = True
    driver.put([])
    driver.put([])
    assert (lab.target.visible, lab.spark.jobs) == ([], 1)
    lab.resting = False
    lab.rounds(driver, lambda: lab.positions[PLACE] == 12)
    assert lab.target.visible == values(0, 12)


def test_a_task_that_was_given_up_commits_nothing(lab: Lab) -> None:
    lab.target.before_commit = lambda: (_ for _ in ()).throw(RetriableException("away"))
    driver = lab.driver()
    with pytest.raises(RetriableException):
        lab.rounds(driver, lambda: False)
    lab.target.before_commit = lambda: None
    driver.abandon()
    driver.put([])
    assert (lab.target.visible, lab.positions[PLACE]) == ([], 0)


def test_messages_that_are_gone_are_passed_over_and_named(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    lab.begin = 4
    lab.rounds(lab.driver(), lambda: lab.positions[PLACE] == 12)
    assert lab.target.visible == values(4, 12)
    assert "messages of t-3 from offset 0 on are gone, and it goes on at 4" in caplog.text


def test_a_broker_that_is_away_is_asked_again(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    lab.away = True
    driver = lab.driver()
    driver.put([])
    assert "cannot ask for new messages and asks again: no broker" in caplog.text
    lab.away = False
    lab.rounds(driver, lambda: lab.positions[PLACE] == 12)


def test_a_task_may_wait_for_more_and_plans_nothing_else_than_it_was_given(lab: Lab) -> None:
    driver = lab.driver()
    lab.target.plan = lambda ranges: []  # type: ignore[method-assign]
    for _ in range(3):
        driver.put([])
    assert lab.spark.jobs == 0
    lab.target.plan = lambda ranges: [TopicRange(*PLACE, 3, 12)]  # type: ignore[method-assign]
    with pytest.raises(ConnectException, match=r"plan\(\) of Target has returned t-3 from 3 to 12"):
        driver.put([])
    lab.target.plan = lambda ranges: None  # type: ignore[method-assign,assignment,return-value]
    with pytest.raises(ConnectException, match="must return a sequence of TopicRange, got None"):
        driver.put([])


def test_a_chain_that_cannot_leave_the_worker_is_refused_with_the_reason(lab: Lab) -> None:
    with pytest.raises(ConnectException, match=r"the transform 'x' works on frames.* Declare it stateless"):
        lab.driver(why_not="the transform 'x' works on frames of the worker's session")


def test_a_target_that_is_ahead_says_where_the_group_goes_on(lab: Lab) -> None:
    lab.target.ends = {PLACE: 7}
    lab.rounds(lab.driver(), lambda: lab.positions[PLACE] == 12)
    assert lab.target.visible == values(7, 12)
    assert lab.group == {}


@pytest.mark.parametrize("knows", ["group", "target"])
def test_a_topic_that_was_made_again_is_not_passed_over_in_silence(lab: Lab, knows: str) -> None:
    (lab.group if knows == "group" else lab.target.ends)[PLACE] = 20
    driver = lab.driver()
    with pytest.raises(ConnectException, match=r"t-3 ends at offset 12, .* up to 20: .* made again.* reset its"):
        lab.rounds(driver, lambda: False)
    assert lab.target.commits == 0
    # The reset forgets both.
    lab.group.clear()
    lab.target.ends.clear()
    lab.rounds(lab.driver(), lambda: len(lab.target.visible) == 12)


def test_a_partition_whose_end_is_behind_for_a_moment_fails_nothing(lab: Lab) -> None:
    lab.group[PLACE] = 10
    lab.end = 8
    driver = lab.driver()
    driver.put([])
    lab.end = 12
    lab.rounds(driver, lambda: lab.target.visible == values(10, 12))
    assert lab.target.commits == 1
