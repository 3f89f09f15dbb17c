"""A source task that delivers exactly once, against a real broker; values are converted by a stand-in for Spark."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import pytest
from testkit.brokers.embedded import freeze, thaw
from testkit.doubles.exactly_once import (
    WAIT_S,
    ExactlyOnceSource,
    LineFramesTask,
    LinesTask,
    Surroundings,
    visible,
    worker_settings,
)
from testkit.doubles.source_doubles import ScriptedTask
from testkit.processes.transaction_worker import producer as transactional_producer
from testkit.waiting import await_true
from tests.real.worker.test_source_task import Small

from penstock.api import RecordMetadata, SourceFrame, SourceRecord, SourceTask
from penstock.broker import EmbeddedBroker
from penstock.errors import ConflictException, TransactionAbortableException
from penstock.kafka.producer.transaction import fence_zombies
from penstock.kafka.producer.transactional import TransactionalProducer
from penstock.model import State
from penstock.worker.connector_offsets import ConnectorOffsets

pytestmark = [pytest.mark.broker, pytest.mark.slow]

BOUNDARIES = ("poll", "interval", "connector")


@pytest.fixture(scope="module")
def around(broker: EmbeddedBroker) -> Iterator[Surroundings]:
    with Surroundings(worker_settings(broker.bootstrap_servers, offset_flush_interval_ms="60000")) as made:
        yield made


@pytest.fixture
def sources() -> Iterator[list[ExactlyOnceSource]]:
    made: list[ExactlyOnceSource] = []
    yield made
    for source in made:
        source.stop()


@dataclass
class Scripted:
    """A source whose polls a test gives."""

    source: ExactlyOnceSource
    task: ScriptedTask = field(default_factory=ScriptedTask)

    def records(self, *values: str) -> list[SourceRecord]:
        return [SourceRecord({"file": "f"}, {"position": int(one[1:])}, self.source.topic, one) for one in values]


def scripted(
    sources: list[ExactlyOnceSource], around: Surroundings, task: ScriptedTask | None = None, **config: str
) -> Scripted:
    used = task or ScriptedTask()
    own = {name.replace("_", "."): text for name, text in config.items()}
    source = ExactlyOnceSource(around, lambda: used, own)
    sources.append(source)
    source.start()
    source.wait_state(State.RUNNING)
    return Scripted(source, used)


def seen(source: ExactlyOnceSource, *, committed: bool = True) -> list[str]:
    return visible(source.around.settings.bootstrap_servers[0], source.topic, committed=committed)


def wait_seen(source: ExactlyOnceSource, wanted: Sequence[str]) -> None:
    await_true(lambda: seen(source) == list(wanted), lambda: f"{seen(source)[-5:]} {source.states}", WAIT_S)


# ---------------------------------------------------------------- boundaries
@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("kind", [LinesTask, LineFramesTask])
def test_each_line_comes_once_in_order_over_a_restart_and_offsets_are_in_step(
    sources: list[ExactlyOnceSource], around: Surroundings, tmp_path: Path, kind: type[SourceTask], boundary: str
) -> None:
    path = tmp_path / "in.txt"
    lines = [f"line {number:05}" for number in range(7 * 300)]
    path.write_text("".join(f"{line}\n" for line in lines[:1400]))
    config = {
        "name": f"lines-{uuid.uuid4().hex[:8]}",
        "file": str(path),
        "transaction.boundary": boundary,
        "transaction.boundary.interval.ms": "100",
        "batch.size": "200",
    }
    first = ExactlyOnceSource(around, kind, dict(config))
    first.start()
    wait_seen(first, lines[:1400])
    first.stop()
    with path.open("a") as out:
        out.writelines(f"{line}\n" for line in lines[1400:])
    second = ExactlyOnceSource(around, kind, dict(config))
    sources.append(second)
    second.start()
    wait_seen(second, lines)
    end = len(lines) if kind is LinesTask else path.stat().st_size
    second.wait_committed({str(path): end})


def test_a_reader_with_the_defaults_finds_the_end_while_records_come_one_by_one(
    sources: list[ExactlyOnceSource], around: Surroundings
) -> None:
    made, over = scripted(sources, around), threading.Event()
    given: list[str] = []

    def trickle() -> None:
        while not over.wait(0.02) and len(given) < 3000:
            given.append(f"v{len(given) + 1}")
            made.task.give(made.records(given[-1]))

    feeder = threading.Thread(target=trickle, name="trickle")
    feeder.start()
    try:
        await_true(lambda: len(given) > 50, timeout_s=WAIT_S)
        found = visible(around.settings.bootstrap_servers[0], made.source.topic, fetch_wait_ms=500)
        count = len(given)
        assert feeder.is_alive()
    finally:
        over.set()
        feeder.join()
    assert found == given[: len(found)]
    assert 1 <= len(found) <= count
    wait_seen(made.source, given)


def test_what_is_not_committed_is_seen_by_nobody_who_reads_committed(
    sources: list[ExactlyOnceSource], around: Surroundings
) -> None:
    made = scripted(sources, around, transaction_boundary="interval", transaction_boundary_interval_ms="60000")
    made.task.give(made.records("v1", "v2"))
    await_true(lambda: seen(made.source, committed=False) == ["v1", "v2"], timeout_s=WAIT_S)
    assert seen(made.source) == []
    assert made.source.committed() == {}
    made.source.slot.pause()
    made.source.wait_state(State.PAUSED)
    wait_seen(made.source, ["v1", "v2"])
    made.source.wait_committed({"f": 2})
    made.source.slot.resume()
    made.task.give(made.records("v3"))
    await_true(lambda: seen(made.source, committed=False) == ["v1", "v2", "v3"], timeout_s=WAIT_S)
    made.source.stop()
    assert seen(made.source) == ["v1", "v2", "v3"]
    assert made.source.committed() == {"f": 3}


class Undecided(ScriptedTask):
    """Gives up the second record of each poll with what is before it, and commits the rest."""

    def poll(self) -> Sequence[SourceRecord] | SourceFrame | None:
        polled = super().poll()
        context = self.context.transaction_context()
        assert context is not None
        if polled is not None:
            assert not isinstance(polled, SourceFrame)
            context.abort_transaction(polled[1])
            context.commit_transaction()
        return polled


def test_what_a_task_gives_up_stays_invisible_and_is_not_polled_again(
    sources: list[ExactlyOnceSource], around: Surroundings
) -> None:
    made = scripted(sources, around, Undecided(), transaction_boundary="connector")
    made.task.give(made.records("v1", "v2", "v3"))
    wait_seen(made.source, ["v3"])
    made.source.wait_committed({"f": 3})
    made.task.give(made.records("v4", "v5"))
    made.source.wait_committed({"f": 5})
    assert seen(made.source) == ["v3"]


class Telling(ScriptedTask):
    """Notes what it is told, and what a reader sees then."""

    source: ExactlyOnceSource

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, object]] = []

    def record_acknowledged(self, record: SourceRecord, metadata: RecordMetadata) -> None:
        self.told.append(("acknowledged", (record.value, metadata.offset)))

    def commit_record(self, record: SourceRecord) -> None:
        self.told.append(("record", record.value))

    def commit(self) -> None:
        self.told.append(("commit", seen(self.source)))


def test_hooks_come_when_readers_see_the_records(sources: list[ExactlyOnceSource], around: Surroundings) -> None:
    task = Telling()
    made = scripted(sources, around, task)
    task.source = made.source
    polled = made.records("v1", "v2", "v3")
    polled[1] = SourceRecord({"file": "f"}, {"position": 2}, made.source.topic, "drop")
    task.give(polled)
    await_true(lambda: len(task.told) == 6, lambda: str(task.told), WAIT_S)
    assert task.told == [
        ("acknowledged", ("v1", 0)),
        ("record", "v1"),
        ("record", "drop"),
        ("acknowledged", ("v3", 1)),
        ("record", "v3"),
        ("commit", ["v1", "v3"]),
    ]


# ---------------------------------------------------------------- records that Kafka refuses
@pytest.mark.parametrize("tolerance", ["all", "none"])
def test_a_record_that_is_too_large_is_left_out_where_that_is_tolerated_and_else_ends_the_task(
    sources: list[ExactlyOnceSource], around: Surroundings, tolerance: str
) -> None:
    topic = f"small-{uuid.uuid4().hex[:8]}"
    around.admin.create_topic(Small(topic))
    made = scripted(sources, around, topic=topic, errors_tolerance=tolerance)
    polled = made.records("v1", "v2", "v3")
    polled[1] = SourceRecord({"file": "f"}, {"position": 2}, topic, "v" * 5000)
    made.task.give(polled)
    if tolerance == "all":
        # Refused records are found by halving a batch: the rest comes behind what was under way.
        await_true(lambda: sorted(seen(made.source)) == ["v1", "v3"], timeout_s=WAIT_S)
        made.source.wait_committed({"f": 3})
        assert made.source.states[-1][0] is State.RUNNING
    else:
        assert "larger than the broker's or topic's max.message.bytes" in made.source.wait_state(State.FAILED)
        assert seen(made.source) == []
        assert made.source.committed() == {}


def test_a_record_for_the_tasks_own_offsets_topic_fails_the_task(
    sources: list[ExactlyOnceSource], around: Surroundings
) -> None:
    offsets = around.settings.offset_topic
    made = scripted(sources, around, topic=offsets)
    made.task.give(made.records("v1"))
    assert f"a record for the topic {offsets}, in which its own source offsets are" in made.source.wait_state(
        State.FAILED
    )


# ---------------------------------------------------------------- time-outs
def test_a_task_that_never_commits_in_time_fails_after_three_tries_and_says_what_to_raise(
    sources: list[ExactlyOnceSource], around: Surroundings
) -> None:
    config = {
        "transaction.boundary": "connector",
        "producer.override.transaction.timeout.ms": "1000",
        "name": f"slow-{uuid.uuid4().hex[:8]}",
    }

    class Never(ScriptedTask):
        def start(self, props: object) -> None:
            self.give([SourceRecord({"file": "f"}, {"position": 1}, config["topic"], "v1")])

    source = ExactlyOnceSource(around, Never, config)
    sources.append(source)
    source.start()
    trace = source.wait_state(State.FAILED)
    assert "producer.override.transaction.timeout.ms, which is 1000" in trace
    assert [state for state, _ in source.states] == [
        State.RUNNING,
        State.RESTARTING,
        State.RUNNING,
        State.RESTARTING,
        State.RUNNING,
        State.FAILED,
    ]
    assert seen(source) == []


def test_another_producer_with_the_id_has_the_task_made_anew_once_it_is_known_to_be_the_owner(
    sources: list[ExactlyOnceSource], around: Surroundings, tmp_path: Path
) -> None:
    path = tmp_path / "in.txt"
    path.write_text("one\ntwo\n")
    asked: list[float] = []

    def confirm_owner(since_s: float) -> bool:
        asked.append(since_s)
        return len(asked) > 1

    source = ExactlyOnceSource(around, LinesTask, {"file": str(path)}, confirm_owner=confirm_owner)
    sources.append(source)
    source.start()
    wait_seen(source, ["one", "two"])

    other = transactional_producer(around.settings.bootstrap_servers[0], around.offsets.transactional_id(source.id))
    other.close(0)
    with path.open("a") as out:
        out.write("three\n")
    wait_seen(source, ["one", "two", "three"])
    assert [state for state, _ in source.states] == [State.RUNNING, State.RESTARTING, State.RUNNING]
    assert len(asked) == 2, "the first answer was no"
    assert "another producer has the id" in (source.states[1][1] or "")


# ---------------------------------------------------------------- where offsets are
def test_offsets_of_a_connector_with_a_topic_of_its_own_are_copied_and_its_own_win(
    sources: list[ExactlyOnceSource], around: Surroundings
) -> None:
    own = f"own-{uuid.uuid4().hex[:8]}"
    made = scripted(sources, around, offsets_storage_topic=own)
    made.task.give(made.records("v1", "v2"))
    made.source.wait_committed({"f": 2})
    key = f'["{made.source.id.connector}",{{"file":"f"}}]'.encode()
    await_true(lambda: around.shared.get([key])[key] == b'{"position":2}', timeout_s=WAIT_S)

    around.shared.set({key: b'{"position":1}'})
    assert made.source.committed() == {"f": 2}
    assert around.admin.describe_topics([own])[own].partitions == 3, "made as the worker's own"


def test_what_another_task_has_left_open_hides_no_offset(
    sources: list[ExactlyOnceSource], around: Surroundings
) -> None:
    """A task that read only up to the oldest open transaction would begin again where it was before."""
    made = scripted(sources, around)
    name = made.source.id.connector
    open_one = transactional_producer(
        around.settings.bootstrap_servers[0], f"open-{name}", transaction_timeout_ms="10000"
    )
    keys = [f"k{number}".encode() for number in range(50)]
    open_one.send_offsets_entries(around.settings.offset_topic, [(key, b"{}") for key in keys])
    assert open_one.wait_delivered(WAIT_S)
    made.task.give(made.records("v1"))
    wait_seen(made.source, ["v1"])
    made.source.stop()

    class Reading(ScriptedTask):
        found: object = None

        def start(self, props: object) -> None:
            type(self).found = self.context.offset_storage_reader().offset({"file": "f"})

    again = ExactlyOnceSource(around, Reading, {"name": name})
    sources.append(again)
    again.start()
    # Nothing is known before the other's transaction is over; Kafka ends it.
    open_one.abort_transaction(WAIT_S)
    open_one.close(0)
    again.wait_state(State.RUNNING)
    assert Reading.found == {"position": 1}


def test_offsets_and_records_go_to_the_cluster_that_the_producers_are_sent_to(
    sources: list[ExactlyOnceSource], around: Surroundings, tmp_path: Path
) -> None:
    with EmbeddedBroker(tmp_path / "other") as other:
        servers = other.bootstrap_servers
        made = scripted(sources, around, producer_override_bootstrap_servers=servers)
        made.task.give(made.records("v1"))
        made.source.wait_committed({"f": 1})
        assert visible(servers, made.source.topic) == ["v1"]
        assert made.source.topic not in around.admin.describe_topics([made.source.topic])
        with Surroundings({**around.settings.raw, "bootstrap.servers": servers}) as there:
            key = f'["{made.source.id.connector}",{{"file":"f"}}]'.encode()
            assert there.shared.get([key])[key] == b'{"position":1}'
        made.source.stop()


# ---------------------------------------------------------------- requests that change offsets
def changing(
    around: Surroundings, before_commit: Callable[[str], None] = lambda transactional_id: None
) -> ConnectorOffsets:
    """What requests change offsets with; told of the transactional id when its producer is about to commit."""

    def make(connector: str, config: Mapping[str, str], transactional_id: str) -> TransactionalProducer:
        made = transactional_producer(around.settings.bootstrap_servers[0], transactional_id)
        commit = made.commit

        def commit_late(timeout_s: float) -> None:
            before_commit(transactional_id)
            commit(timeout_s)

        made.commit = commit_late  # type: ignore[method-assign]
        return made

    def no_group(*_: object) -> NoReturn:
        raise AssertionError("no sink")

    return ConnectorOffsets(around.offsets, no_group, no_group, make, lambda *_: None)


def test_offsets_that_are_changed_in_a_transaction_are_read_when_that_is_answered(
    sources: list[ExactlyOnceSource], around: Surroundings
) -> None:
    made = scripted(sources, around, offsets_storage_topic=f"own-{uuid.uuid4().hex[:8]}")
    made.task.give(made.records("v1", "v2"))
    made.source.wait_committed({"f": 2})
    made.source.stop()
    name, config = made.source.id.connector, made.source.config
    changes = changing(around)

    changes.write_source(name, config, [({"file": "f"}, {"position": 1}), ({"file": "g"}, {"position": 7})], "change")
    assert made.source.committed() == {"f": 1, "g": 7}

    changes.write_source(name, config, [({"file": "f"}, None), ({"file": "g"}, None)], "change")
    assert made.source.committed() == {}
    # Nor do they come back when the connector has no topic of its own any more.
    assert changes.read_source(name, {}) == []


@pytest.mark.parametrize("told_by", ["coordinator", "partition"])
def test_a_change_of_offsets_that_a_round_has_overtaken_writes_nothing(
    sources: list[ExactlyOnceSource], around: Surroundings, told_by: str
) -> None:
    made = scripted(sources, around)
    made.task.give(made.records("v1"))
    made.source.wait_committed({"f": 1})
    made.source.stop()
    name, config = made.source.id.connector, made.source.config

    def round_begins(transactional_id: str) -> None:
        assert fence_zombies(around.settings.raw, name, config, [transactional_id]) == {}
        if told_by == "partition":
            # As where the records come behind the marker of the round: nobody says yet who has the id.
            raise TransactionAbortableException("A later epoch of this producer has written already")

    with pytest.raises(ConflictException, match="Try again"):
        changing(around, round_begins).write_source(name, config, [({"file": "f"}, None)], f"change-{name}")
    assert made.source.committed() == {"f": 1}


# ---------------------------------------------------------------- brokers
def test_a_broker_that_is_frozen_for_longer_than_a_transaction_may_last_costs_no_line_and_doubles_none(
    sources: list[ExactlyOnceSource], tmp_path: Path
) -> None:
    path = tmp_path / "in.txt"
    lines = [f"line {number:05}" for number in range(3000)]
    path.write_text("".join(f"{line}\n" for line in lines[:1000]))
    with (
        EmbeddedBroker(tmp_path / "kafka") as own,
        Surroundings(worker_settings(own.bootstrap_servers)) as around,
    ):
        config = {"file": str(path), "producer.override.transaction.timeout.ms": "2000"}
        source = ExactlyOnceSource(around, LinesTask, config)
        source.start()
        wait_seen(source, lines[:1000])
        freeze(own)
        with path.open("a") as out:
            out.writelines(f"{line}\n" for line in lines[1000:2000])
        source.wait_state(State.RESTARTING)
        thaw(own)
        with path.open("a") as out:
            out.writelines(f"{line}\n" for line in lines[2000:])
        wait_seen(source, lines)
        own.kill()
        own.start()
        with path.open("a") as out:
            out.write("last\n")
        wait_seen(source, [*lines, "last"])
        assert State.FAILED not in [state for state, _ in source.states]
        source.stop()
