"""Checkpoints, heartbeats and offset syncs on two clusters in memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.unit.connectors.mirror.memory_cluster import MemoryCluster

from penstock.api import RecordMetadata, TopicPartition
from penstock.connectors.mirror.checkpoints import CheckpointTask, MirrorCheckpoint
from penstock.connectors.mirror.formats import Checkpoint, Heartbeat, OffsetSync
from penstock.connectors.mirror.heartbeats import HeartbeatTask, MirrorHeartbeat
from penstock.connectors.mirror.offset_syncs import SyncHistory, SyncPacer, SyncWriter
from penstock.connectors.mirror.source import MirrorSource
from penstock.connectors.mirror.task import MirrorTask
from penstock.errors import SerializationException
from penstock.testing import SourceSuite, run_source

CLUSTERS: dict[str, MemoryCluster] = {}
SYNCS = "mm2-offset-syncs.west.internal"
CHECKPOINTS = "east.checkpoints.internal"
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def _cluster(self: object, props: Mapping[str, str], side: str) -> Any:
    return CLUSTERS[side]


class SourceTask(MirrorTask):
    cluster = _cluster


class Source(MirrorSource):
    task_class = SourceTask
    cluster = _cluster


class GroupTask(CheckpointTask):
    cluster = _cluster


class Groups(MirrorCheckpoint):
    cluster = _cluster

    def task_class(self) -> type[CheckpointTask]:
        return GroupTask


class BeatTask(HeartbeatTask):
    cluster = _cluster


class Beats(MirrorHeartbeat):
    task_class = BeatTask
    cluster = _cluster


SETTINGS = {
    "source.cluster.alias": "east",
    "target.cluster.alias": "west",
    "source.cluster.bootstrap.servers": "east:1",
    "target.cluster.bootstrap.servers": "west:1",
}


@pytest.fixture(autouse=True)
def clusters() -> Iterator[dict[str, MemoryCluster]]:
    CLUSTERS.update(source=MemoryCluster("east:1"), target=MemoryCluster("west:1"))
    yield CLUSTERS
    CLUSTERS.clear()


def synced(clusters: dict[str, MemoryCluster], *syncs: tuple[TopicPartition, int, int]) -> None:
    if SYNCS not in clusters["source"].there:
        clusters["source"].create(SYNCS)
    writer = clusters["source"].writer()
    for place, up, down in syncs:
        one = OffsetSync(place, up, down)
        writer.send(SYNCS, one.key, one.value)


def written(cluster: MemoryCluster, topic: str) -> list[tuple[bytes, bytes]]:
    return [(one.key or b"", one.value or b"") for one in cluster.there[topic].partitions[0]]


class TestMirrorCheckpoint(SourceSuite):
    connector = Groups
    count = 6
    ends = False  # By the clock.
    tasks_max = 1

    def prepare(self, path: Path) -> dict[str, str]:
        synced(CLUSTERS, (A0, 0, 0), (A0, 10, 12), (A1, 0, 0))
        for number in range(3):
            CLUSTERS["source"].committed[f"group-{number}"] = {A0: 10, A1: 0}
        return SETTINGS


class TestMirrorHeartbeat(SourceSuite):
    connector = Beats
    count = 1
    ends = False
    tasks_max = 1

    def prepare(self, path: Path) -> dict[str, str]:
        return SETTINGS

    def identity(self, record: Any) -> object:
        return (record.topic, record.key)


def test_syncs_are_written_for_the_first_and_last_record_of_each_commit(clusters: dict[str, MemoryCluster]) -> None:
    clusters["source"].create("a")
    clusters["source"].send("a", 0, *(b"%d" % number for number in range(50)))
    with run_source(Source, {**SETTINGS, "replication.factor": "1"}) as run:
        run.finish(50)
    found = [OffsetSync.of(*one) for one in written(clusters["source"], SYNCS)]
    assert found[0] == OffsetSync(A0, 0, 0)
    assert found[-1] == OffsetSync(A0, 49, 49)
    assert clusters["source"].there[SYNCS].settings["cleanup.policy"].value == "compact"


def test_syncs_are_no_further_apart_than_offset_lag_max(clusters: dict[str, MemoryCluster]) -> None:
    clusters["source"].create("a")
    clusters["source"].send("a", 0, *(b"%d" % number for number in range(500)))
    settings = {
        **SETTINGS,
        "offset.lag.max": "50",
        "offset-syncs.topic.location": "target",
        "replication.factor": "1",
    }
    with run_source(Source, settings) as run:
        run.poll()
        run.commit()
    found = [OffsetSync.of(*one).upstream for one in written(clusters["target"], "mm2-offset-syncs.east.internal")]
    assert (found[0], found[-1]) == (0, 499)
    assert max(after - before for before, after in itertools.pairwise(found)) <= 51


def test_no_syncs_are_written_when_they_are_turned_off(clusters: dict[str, MemoryCluster]) -> None:
    clusters["source"].create("a")
    clusters["source"].send("a", 0, b"1")
    with run_source(Source, {**SETTINGS, "emit.offset-syncs.enabled": "false"}) as run:
        run.finish(1)
    assert SYNCS not in clusters["source"].there


def test_syncs_that_cannot_be_written_wait_for_the_next_commit(
    clusters: dict[str, MemoryCluster], caplog: pytest.LogCaptureFixture
) -> None:
    clusters["source"].create(SYNCS)
    clusters["source"].refuses = {"send": "Topic authorization failed"}
    writer = SyncWriter(SYNCS, clusters["source"].writer, 100)  # type: ignore[arg-type]
    writer.stored(A0, {0: 0, 9: 9})
    writer.commit()
    writer.commit()
    assert written(clusters["source"], SYNCS) == []
    assert caplog.text.count("Offset syncs cannot be written to") == 1
    clusters["source"].refuses = {}
    writer.commit()
    assert [OffsetSync.of(*one) for one in written(clusters["source"], SYNCS)] == [OffsetSync(A0, 9, 9)]


def test_a_gap_is_a_reason_for_a_sync() -> None:
    pacer = SyncPacer(100)
    assert [pacer.is_due(up, down) for up, down in ((0, 0), (1, 1), (5, 2), (6, 3), (7, 3), (8, 1))] == [
        True,
        False,
        True,
        False,
        True,
        True,
    ]


def test_translation_never_goes_too_far_and_is_exact_at_a_sync() -> None:
    history = SyncHistory()
    down = {up: up * 2 for up in range(0, 70_000, 7)}
    for up, there in down.items():
        history.add(up, there)
    assert len(history) < 1_000
    newest = max(down)
    for offset in range(0, newest, 13):
        found = history.translate(offset)
        assert found is not None
        assert found <= offset * 2 + 1
        # The older, the less exact.
        assert offset * 2 - found <= 2 * ((newest - offset) // 16 + 8), offset
    assert history.translate(newest) == newest * 2


def test_a_topic_that_was_made_again_has_a_history_of_its_own() -> None:
    history = SyncHistory()
    history.add(0, 0)
    history.add(100, 100)
    history.add(3, 104)
    assert (history.translate(2), history.translate(3), history.translate(100)) == (None, 104, 105)


def test_checkpoints_are_those_of_groups_that_can_be_translated(clusters: dict[str, MemoryCluster]) -> None:
    synced(clusters, (A0, 0, 0), (A0, 10, 12), (A1, 50, 50), (TopicPartition("west.b", 0), 1, 5))
    clusters["source"].committed = {
        "g": {A0: 10, A1: 7, TopicPartition("c", 0): 3, TopicPartition("west.b", 0): 9},
        "ahead": {A0: 11},
        "console-consumer-1": {A0: 3},
    }
    with run_source(Groups, SETTINGS) as run:
        found = run.poll()
        assert {one.topic for one in found} == {CHECKPOINTS}
        assert {one.kafka_partition for one in found} == {0}
        checkpoints = [Checkpoint.of(one.key, one.value) for one in found]  # type: ignore[arg-type]
        assert checkpoints == [
            Checkpoint("ahead", TopicPartition("east.a", 0), 11, 13),
            Checkpoint("g", TopicPartition("east.a", 0), 10, 12),
            # It has come from the target: there it has its own name.
            Checkpoint("g", TopicPartition("b", 0), 9, 6),
        ]
        assert found[0].source_partition == {"group": "ahead", "topic": "east.a", "partition": 0}
        assert found[0].source_offset == {"offset": 0}


def test_a_checkpoint_is_written_again_only_when_it_says_more(clusters: dict[str, MemoryCluster]) -> None:
    synced(clusters, (A0, 0, 0), (A0, 10, 12))
    clusters["source"].committed = {"g": {A0: 10}}
    settings = {**SETTINGS, "emit.checkpoints.interval.seconds": "1"}
    with run_source(Groups, settings) as run:
        run.poll()
        run.commit()
        task: Any = run.tasks[0]
        for offset, count in ((10, 0), (15, 1), (16, 0), (4, 1)):
            clusters["source"].committed["g"][A0] = offset
            task._table._next["checkpoints"] = 0.0
            assert len(run.poll()) == count, offset


def test_a_task_that_comes_again_knows_what_was_written(clusters: dict[str, MemoryCluster]) -> None:
    synced(clusters, (A0, 0, 0), (A0, 10, 12))
    clusters["source"].committed = {"g": {A0: 10}}
    clusters["target"].create(CHECKPOINTS)
    known = Checkpoint("g", TopicPartition("east.a", 0), 10, 12)
    clusters["target"].writer().send(CHECKPOINTS, known.key, known.value)
    clusters["target"].writer().send(CHECKPOINTS, b"what", b"is this")
    with run_source(Groups, SETTINGS) as run:
        assert run.poll() == []


def test_offsets_are_set_for_groups_without_members_and_never_back(clusters: dict[str, MemoryCluster]) -> None:
    synced(clusters, (A0, 0, 0), (A0, 10, 12), (A1, 0, 0), (A1, 10, 10))
    clusters["source"].committed = {group: {A0: 10, A1: 10} for group in ("new", "behind", "ahead", "active")}
    there = TopicPartition("east.a", 0), TopicPartition("east.a", 1)
    clusters["target"].committed = {
        "behind": {there[0]: 3, there[1]: 11},
        "ahead": dict.fromkeys(there, 99),
        "active": dict.fromkeys(there, 1),
    }
    clusters["target"].group_states["active"] = True
    with run_source(Groups, {**SETTINGS, "sync.group.offsets.enabled": "true"}) as run:
        run.poll()
    assert clusters["target"].committed == {
        "new": {there[0]: 12, there[1]: 10},
        "behind": {there[0]: 12, there[1]: 11},
        "ahead": dict.fromkeys(there, 99),
        "active": dict.fromkeys(there, 1),
    }


def test_offsets_stay_unless_they_are_to_be_set(clusters: dict[str, MemoryCluster]) -> None:
    synced(clusters, (A0, 0, 0))
    clusters["source"].committed = {"g": {A0: 0}}
    with run_source(Groups, SETTINGS) as run:
        run.poll()
    assert clusters["target"].committed == {}


def test_checkpoints_without_a_topic_of_syncs_say_so(clusters: dict[str, MemoryCluster]) -> None:
    clusters["source"].committed = {"g": {A0: 0}}
    assert Groups().obstacles(SETTINGS) == [
        "the source cluster has no topic mm2-offset-syncs.west.internal: MirrorSource makes and fills it"
    ]
    assert Groups().obstacles({**SETTINGS, "groups": "x"}) == [
        "no group of the source cluster matches groups and not groups.exclude"
    ]
    assert Groups().obstacles({**SETTINGS, "emit.checkpoints.enabled": "false"}) == [
        "emit.checkpoints.enabled is false"
    ]


def test_a_source_that_is_away_is_told_by_the_tasks_of_groups(clusters: dict[str, MemoryCluster]) -> None:
    synced(clusters, (A0, 0, 0))
    clusters["source"].committed = {"g": {A0: 0}}
    clusters["source"].is_away = True
    with run_source(Groups, SETTINGS) as run:
        assert run.poll() == []
        assert "does not answer" in run.retries[-1]
        clusters["source"].is_away = False
        run.restart()
        assert len(run.poll()) == 1


def test_heartbeats_are_those_of_mirrormaker(
    clusters: dict[str, MemoryCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HeartbeatTask, "clock", lambda: 5.0)
    with run_source(Beats, SETTINGS) as run:
        (one,) = run.poll()
    assert (one.topic, one.kafka_partition, one.timestamp) == ("heartbeats", 0, 5000)
    assert Heartbeat.of(one.key, one.value) == Heartbeat("east", "west", 5000)  # type: ignore[arg-type]
    assert one.source_partition == {"sourceClusterAlias": "east", "targetClusterAlias": "west"}
    assert clusters["target"].there["heartbeats"].replication_factor == 3
    with run_source(Beats, {**SETTINGS, "emit.heartbeats.enabled": "false"}) as run:
        assert run.poll() == []


def test_heartbeats_need_no_source() -> None:
    settings = {name: text for name, text in SETTINGS.items() if name != "source.cluster.bootstrap.servers"}
    assert MirrorHeartbeat().validate({**settings, "name": "h"}).errors() == {}


@pytest.mark.parametrize("kind", [OffsetSync, Checkpoint, Heartbeat])
def test_bytes_of_something_else_are_refused(kind: type[OffsetSync]) -> None:
    for key, value in ((b"", b""), (None, None), (b"\x00\x05ab", b"\x00"), (b"\x00\x01a" * 3, b"\x00\x07")):
        with pytest.raises(SerializationException):
            kind.of(key, value)


def test_places_without_offsets_make_no_syncs(clusters: dict[str, MemoryCluster]) -> None:
    clusters["source"].create("a")
    clusters["source"].send("a", 0, b"1")
    with run_source(Source, SETTINGS) as run:
        run.poll()
        task: Any = run.tasks[0]
        frame = run._pending[-1].frame
        task.frame_acknowledged(frame, {0: RecordMetadata("east.a", 0, -1, None)})
        task.commit()
        assert written(clusters["source"], SYNCS) == []
