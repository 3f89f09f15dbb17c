"""Transactions that hang in a real broker: whoever waits behind them goes on unaided, or is told what to do."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator

import pytest
from testkit.brokers.hanging_transactions import PERMITS, leave_hanging
from testkit.doubles.exactly_once import WAIT_S, ExactlyOnceSource, Surroundings, visible, worker_settings
from testkit.doubles.source_doubles import ScriptedTask, record
from testkit.processes.transaction_worker import producer
from testkit.waiting import await_true

from penstock.broker import EmbeddedBroker
from penstock.kafka.open_transactions import OpenTransactions
from penstock.kafka.settings.client import producer_settings
from penstock.kafka.settings.producer import ColumnSettings
from penstock.model import State
from penstock.telemetry.waits import standstill_of
from penstock.worker.task.waiting import places, task_waiting

pytestmark = [pytest.mark.broker, pytest.mark.slow]

#: In all partitions of an offsets topic.
ENTRIES = [(f"k{number}".encode(), b"{}") for number in range(50)]


@pytest.fixture(scope="module")
def permissive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("kafka"), properties=PERMITS) as node:
        yield node


@pytest.fixture
def around(permissive: EmbeddedBroker) -> Iterator[Surroundings]:
    settings = worker_settings(permissive.bootstrap_servers, producer_transaction_timeout_ms="2000")
    with Surroundings(settings) as made:
        yield made


@pytest.fixture
def sources() -> Iterator[list[ExactlyOnceSource]]:
    made: list[ExactlyOnceSource] = []
    yield made
    for source in made:
        source.stop()


def started(
    sources: list[ExactlyOnceSource], around: Surroundings, name: str
) -> tuple[ExactlyOnceSource, ScriptedTask]:
    task = ScriptedTask()
    own = {"name": name, "producer.override.transaction.timeout.ms": "2000"}
    source = ExactlyOnceSource(around, lambda: task, own)
    sources.append(source)
    return source.start(), task


@pytest.mark.parametrize("whose", ["its own", "another task's of the group"])
def test_a_source_goes_on_unaided_and_every_partition_that_held_it_is_read_again(
    sources: list[ExactlyOnceSource], around: Surroundings, caplog: pytest.LogCaptureFixture, whose: str
) -> None:
    servers, group = around.settings.bootstrap_servers[0], around.settings.raw["group.id"]
    name = f"source-{uuid.uuid4().hex[:8]}"
    before = producer(servers, f"before-{name}")
    before.send_offsets_entries(name, [(b"k", b"old")])
    before.commit(WAIT_S)
    before.close(0)
    owner = f"{group}-{name}-0" if whose == "its own" else f"{group}-gone-3"
    hanging = leave_hanging(servers, owner, {around.settings.offset_topic: ENTRIES, name: [(b"k", b"hangs")]})
    with caplog.at_level(logging.INFO):
        source, task = started(sources, around, name)
        task.give([record(1, "v1", topic=source.topic)])
        source.wait_committed({"f": 1})
    assert [one for one in visible(servers, name) if one != "old"] == ["v1"]
    warned = [one.getMessage() for one in caplog.records if "was hanging" in one.getMessage()]
    assert len(warned) == 1
    assert f"of {owner} (producer id {hanging})" in warned[0]
    assert around.settings.offset_topic in warned[0]
    assert f"{name}-0 from offset" in warned[0]
    assert standstill_of(f"task {source.id}") is None
    assert [state for state, _ in source.states] == [State.RUNNING]


def test_a_strangers_is_named_with_the_command_that_ends_it_and_is_left_alone(
    sources: list[ExactlyOnceSource], around: Surroundings, permissive: EmbeddedBroker
) -> None:
    servers, topic = around.settings.bootstrap_servers[0], around.settings.offset_topic
    stranger = f"stranger-{uuid.uuid4().hex[:8]}"
    number = leave_hanging(servers, stranger, {topic: ENTRIES})
    source, task = started(sources, around, f"source-{uuid.uuid4().hex[:8]}")

    def told() -> str:
        hints = source.runners[-1].hints if source.runners else None
        return "" if hints is None or hints.held_up is None else hints.held_up

    await_true(lambda: "hangs" in told(), told, WAIT_S)
    assert f"producer id {number}" in told()
    assert f"transactional id {stranger}" in told()
    assert f"kafka-transactions.sh --bootstrap-server {servers} abort --topic {topic} --partition " in told()
    assert source.states == []
    waiting = task_waiting(str(source.id), State.UNASSIGNED, places(), spark_up=True, hints=source.runners[-1].hints)
    assert waiting.reason == "open_transaction"
    standstill = standstill_of(f"task {source.id}")
    assert standstill is not None
    assert "kafka-transactions.sh" in standstill.text
    # What the command does; then the task goes on by itself.
    client = ColumnSettings.of(producer_settings({"bootstrap.servers": servers}, {}, client_id="test"))
    everywhere = [(topic, one) for one in range(3)]
    await_true(lambda: OpenTransactions(client, "stranger", "test").look(everywhere) is None, timeout_s=WAIT_S)
    task.give([record(1, "v1", topic=source.topic)])
    source.wait_committed({"f": 1})


def test_what_is_under_way_is_named_and_never_ended(sources: list[ExactlyOnceSource], around: Surroundings) -> None:
    servers, topic = around.settings.bootstrap_servers[0], around.settings.offset_topic
    group = around.settings.raw["group.id"]
    other = producer(servers, f"{group}-other-0", transaction_timeout_ms="60000")
    try:
        other.send_offsets_entries(topic, ENTRIES)
        assert other.wait_delivered(WAIT_S)
        source, task = started(sources, around, f"source-{uuid.uuid4().hex[:8]}")
        await_true(lambda: bool(source.runners and source.runners[-1].hints.held_up), timeout_s=WAIT_S)
        held_up = source.runners[-1].hints.held_up
        assert held_up is not None
        assert f"is under way (transactional id {group}-other-0, Ongoing)" in held_up
        other.commit(WAIT_S)
    finally:
        other.close(0)
    task.give([record(1, "v1", topic=source.topic)])
    source.wait_committed({"f": 1})
    with around.offsets.opened(source.id.connector, source.config) as store:
        assert store.get([b"k1"]) == {b"k1": b"{}"}
