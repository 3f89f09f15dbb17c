"""Offsets of connectors read, altered and reset through the herder; the requests are in ``tests/unit/rest``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from testkit.connectors.probes import BOARD
from testkit.doubles.control_plane import SINK, SOURCE, Setup, running
from testkit.waiting import await_true

from penstock.api import SinkConnector, TopicPartition
from penstock.errors import (
    BadRequestException,
    ConflictException,
    ConnectException,
    NotFoundException,
    RetriableException,
)
from penstock.herder.offset_changes import AlterRequest, OffsetEntry, sink_offsets
from penstock.model import TargetState
from penstock.stores.offsets import OffsetReader, OffsetWriter

ALTERED = {"message": "The offsets for this connector have been altered successfully"}
RESET = {"message": "The offsets for this connector have been reset successfully"}
FILE = OffsetEntry({"file": "f"}, {"position": 4})
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def setup() -> Iterator[Setup]:
    with running() as started:
        yield started


def create(setup: Setup, cls: str, target: TargetState = TargetState.STOPPED, **config: str) -> None:
    settings = {"connector.class": cls, **config}
    setup.herder.put_connector("a", settings, target=target).result(10)


def store(setup: Setup, partition: Mapping[str, object], offset: Mapping[str, object]) -> None:
    writer = OffsetWriter(setup.store, "a")
    writer.put(partition, offset)
    writer.flush()


def source(setup: Setup, target: TargetState = TargetState.STOPPED, **config: str) -> None:
    """Creates a source with two offsets."""
    create(setup, SOURCE, target, **config)
    store(setup, {"file": "f"}, {"position": 8})
    store(setup, {"file": "g"}, {"position": 9})


def sink(setup: Setup, **config: str) -> None:
    """Creates a sink with a group."""
    create(setup, SINK, TargetState.STOPPED, **{"topics": "t", **config})
    setup.groups.groups[config.get("consumer.override.group.id", "connect-a")] = {T0: 5, T1: 7}


def at(partition: object, offset: object, topic: object = "t", key: str = "kafka_offset") -> OffsetEntry:
    """An entry of a sink's offsets."""
    place = {"kafka_topic": topic, "kafka_partition": partition}
    return OffsetEntry(place, None if offset is None else {key: offset})


def alter(setup: Setup, *entries: OffsetEntry, **more: Any) -> dict[str, object]:
    return setup.herder.alter_offsets("a", AlterRequest(entries, **more)).result(10)


def reset(setup: Setup, *, dry_run: bool = False) -> dict[str, Any]:
    return setup.herder.reset_offsets("a", dry_run=dry_run).result(10)


def read(setup: Setup) -> list[OffsetEntry]:
    return list(setup.herder.read_offsets("a").result(10))


def test_a_source_partition_is_the_same_one_in_any_order_of_its_keys(setup: Setup) -> None:
    create(setup, SOURCE)
    store(setup, {"table": "t1", "db": "x"}, {"n": 5})
    turned = OffsetEntry({"db": "x", "table": "t1"}, {"n": 2})
    planned: Any = alter(setup, turned, dry_run=True)
    assert planned["offsets"] == [{"partition": turned.partition, "current": {"n": 5}, "new": {"n": 2}}]
    assert alter(setup, turned) == ALTERED
    assert read(setup) == [turned]
    assert OffsetReader(setup.store, "a").offset({"table": "t1", "db": "x"}) == {"n": 2}
    assert reset(setup) == RESET
    assert OffsetReader(setup.store, "a").offset({"table": "t1", "db": "x"}) is None


def test_a_reset_is_seen_by_a_connector_that_reads_in_start(setup: Setup) -> None:
    source(setup)
    seen: list[object] = []
    BOARD.on_start["a"] = lambda probe: seen.append(probe.context().offset_storage_reader().offset({"file": "f"}))
    setup.herder.resume_connector("a").result(10)
    setup.await_state("a", "RUNNING", ["RUNNING"])
    setup.herder.stop_connector("a").result(10)
    setup.await_state("a", "STOPPED", [])
    assert reset(setup) == RESET
    setup.herder.resume_connector("a").result(10)
    await_true(lambda: len(seen) == 2)
    assert seen == [{"position": 8}, {"read": "f"}]


@pytest.mark.parametrize("group", ["connect-a", "mine"])
def test_offsets_of_a_sink_are_those_of_its_group(setup: Setup, group: str) -> None:
    sink(setup, **({} if group == "connect-a" else {"consumer.override.group.id": group}))
    assert read(setup) == [at(0, 5), at(1, 7)]
    assert alter(setup, at("0", "2")) == ALTERED
    assert setup.groups.groups == {group: {T0: 2, T1: 7}}
    assert BOARD.altered == [("a", {T0: 2})]
    assert alter(setup, at(1, None)) == ALTERED
    assert read(setup) == [at(0, 2)]
    assert reset(setup) == RESET
    assert BOARD.altered[-1] == ("a", {T0: None})
    assert (setup.groups.groups, read(setup)) == ({}, [])


@pytest.mark.parametrize("topics", [{}, {"topics": "", "topics.regex": "t."}])
def test_a_reset_names_all_partitions_to_a_sink_whose_target_has_positions(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, topics: dict[str, str]
) -> None:
    monkeypatch.setattr(SinkConnector, "has_positions", True)
    setup.groups.topics = {"t": 1, "t2": 2, "other": 1}
    sink(setup, **topics)
    # The group may have lost its offsets, or a task was killed before it had committed the first ones.
    setup.groups.groups.clear()
    assert reset(setup) == RESET
    wanted = [TopicPartition("t2", 0), TopicPartition("t2", 1)] if topics else [T0]
    assert BOARD.altered[-1] == ("a", dict.fromkeys(wanted))


@pytest.mark.parametrize("target", [TargetState.STARTED, TargetState.PAUSED])
def test_offsets_of_a_connector_that_is_not_stopped_stay_and_can_be_planned(setup: Setup, target: TargetState) -> None:
    source(setup, target)
    for change in (lambda: alter(setup, FILE), lambda: reset(setup)):
        with pytest.raises(BadRequestException, match="must be in the STOPPED state before their offsets"):
            change()
    planned = reset(setup, dry_run=True)["offsets"]
    assert planned[0] == {"partition": {"file": "f"}, "current": {"position": 8}, "new": None}
    assert (len(read(setup)), BOARD.altered) == (2, [])


def test_a_connector_that_is_not_there_has_no_offsets(setup: Setup) -> None:
    for ask in (
        lambda: read(setup),
        lambda: alter(setup, FILE),
        lambda: reset(setup),
        lambda: reset(setup, dry_run=True),
    ):
        with pytest.raises(NotFoundException, match="Connector a not found"):
            ask()


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (OffsetEntry(None, None), "cannot be null or missing"),
        (OffsetEntry({"kafka_topic": "t"}, None), "must contain the keys 'kafka_topic'"),
        (at(0, 1, topic=None), "Kafka topic names must be valid strings and may not be null"),
        (at(None, 1), "Kafka partitions must be valid numbers and may not be null"),
        *((at(one, 1), "Partition values for sink connectors need to be integers") for one in ("x", 1.5, True, 2**31)),
        *((at(0, one), "Offset values for sink connectors need to be integers") for one in ("x", 1.5, True, 10**20)),
        (at(0, "x", key="kafka_timestamp"), "Timestamps for sink connectors need to be integers"),
        (OffsetEntry(at(0, 1).partition, {"kafka_offset": 1, "kafka_timestamp": 1}), "has both 'kafka_offset' and"),
        (OffsetEntry(at(0, 1).partition, {}), "contain the key 'kafka_offset'"),
        (at(-1, 1), "must not be negative"),
        (at(0, -1), "must not be negative"),
    ],
)
def test_an_entry_of_a_sink_that_cannot_be_is_refused(entry: OffsetEntry, words: str) -> None:
    with pytest.raises(BadRequestException, match=words):
        sink_offsets([entry])


def test_the_last_entry_of_a_partition_counts() -> None:
    offsets, timestamps = sink_offsets(
        [at(0, 1), at("0", 5, key="kafka_timestamp"), at(1, 5, key="kafka_timestamp"), at("1", None)]
    )
    assert (offsets, timestamps) == ({T1: None}, {T0: 5})


@pytest.mark.parametrize("entry", [at(9, 1), at(0, 1, topic="nope")])
def test_a_partition_that_is_not_there_is_refused(setup: Setup, entry: OffsetEntry) -> None:
    sink(setup)
    with pytest.raises(BadRequestException, match="no topic partition"):
        alter(setup, entry)
    assert read(setup) == [at(0, 5), at(1, 7)]


def test_zombie_sink_tasks_keep_offsets_from_being_changed(setup: Setup) -> None:
    sink(setup)
    setup.groups.busy = True
    for change in (
        lambda: alter(setup, at(0, 1)),
        lambda: alter(setup, at(0, None)),
        lambda: alter(setup, at(0, None), at(1, 2)),
        lambda: reset(setup),
    ):
        with pytest.raises(ConflictException, match=r"safely retried.*zombie sink tasks"):
            change()
        assert read(setup) == [at(0, 5), at(1, 7)]
    setup.groups.busy = False
    assert reset(setup) == RESET


@pytest.mark.parametrize("config", [{"offsets.storage.topic": "mine"}, {"exactly.once.support": "required"}])
def test_a_standalone_worker_keeps_all_offsets_in_its_own_store(setup: Setup, config: dict[str, str]) -> None:
    """As in Java: topics of connectors for offsets and exactly-once delivery are things of distributed workers."""
    source(setup, TargetState.STOPPED, **config)
    assert alter(setup, FILE) == ALTERED
    assert OffsetReader(setup.store, "a").offset({"file": "f"}) == {"position": 4}
    assert reset(setup) == RESET
    assert OffsetReader(setup.store, "a").offset({"file": "f"}) is None


def test_the_connector_may_not_say_refuse_or_not_support_it(setup: Setup) -> None:
    source(setup)
    BOARD.alters["a"] = False
    message = str(alter(setup, FILE)["message"])
    assert message.startswith("The Connect framework-managed offsets for this connector have been altered successfully")
    assert "manually altered in the system that the connector uses" in message
    assert "manually reset" in reset(setup)["message"]
    for error, kind, words in (
        (ConnectException("not that one"), BadRequestException, "not that one"),
        (RetriableException("not now"), RetriableException, "not now"),
        (NotImplementedError(), BadRequestException, "doesn't support external modification of offsets$"),
        (NotImplementedError("use psql"), BadRequestException, "modification of offsets: use psql"),
        (KeyError("x"), ConnectException, "its alter_offsets raised KeyError: 'x'"),
    ):
        BOARD.fail["a", "alter_offsets"] = error
        with pytest.raises(kind, match=words):
            alter(setup, FILE)
        assert read(setup) == []


def test_offsets_set_before_the_first_start_are_where_it_begins(setup: Setup) -> None:
    create(setup, SOURCE)
    assert alter(setup, FILE) == ALTERED
    setup.herder.resume_connector("a").result(10)
    setup.await_state("a", "RUNNING", ["RUNNING"])
    assert BOARD.instances["a"][0].context().offset_storage_reader().offset({"file": "f"}) == {"position": 4}


def test_a_sink_begins_where_its_offsets_were_set_before_its_first_start(setup: Setup) -> None:
    create(setup, SINK, topics="t")
    assert read(setup) == []
    assert alter(setup, at(0, 3)) == ALTERED
    # The task joins this group, and begins where it is.
    assert setup.groups.groups == {"connect-a": {T0: 3}}


def test_offsets_that_a_store_cannot_keep_are_refused(setup: Setup) -> None:
    source(setup)
    with pytest.raises(BadRequestException, match="may only hold primitive values"):
        alter(setup, OffsetEntry({"file": ["f"]}, {"position": 1}))
    assert BOARD.altered == []


def test_offsets_outlive_their_connector(setup: Setup) -> None:
    source(setup)
    setup.herder.delete_connector("a").result(10)
    create(setup, SOURCE)
    assert len(read(setup)) == 2


def test_a_dry_run_tells_what_would_be_read_again_and_changes_nothing(setup: Setup) -> None:
    sink(setup)
    plan: Any = alter(setup, at(0, 2), at(1, 50), dry_run=True)
    found = [(one["records_read_again"], one["records_skipped"], one["records_left"]) for one in plan["offsets"]]
    assert (plan["dry_run"], found) == (True, [(3, 0, 98), (0, 43, 50)])
    assert reset(setup, dry_run=True)["message"].endswith("12 records would be read again")
    assert (read(setup), BOARD.altered) == ([at(0, 5), at(1, 7)], [])


def test_without_an_offset_a_sink_begins_where_its_consumer_is_told_to(setup: Setup) -> None:
    sink(setup, **{"consumer.override.auto.offset.reset": "latest"})
    plan: Any = reset(setup, dry_run=True)
    assert [(one["records_skipped"], one["records_left"]) for one in plan["offsets"]] == [(95, 0), (93, 0)]


def test_a_sink_can_be_set_to_a_time_and_a_source_cannot(setup: Setup) -> None:
    sink(setup)
    assert alter(setup, timestamp_ms=3000) == ALTERED
    assert read(setup) == [at(0, 3), at(1, 3)]
    assert alter(setup, at(1, 90_000, key="kafka_timestamp"), at(0, 2)) == ALTERED
    assert read(setup) == [at(0, 2), at(1, 90)]
    setup.herder.delete_connector("a").result(10)
    source(setup)
    with pytest.raises(BadRequestException, match="only the offsets of sinks can be set to a timestamp"):
        alter(setup, timestamp_ms=5)
