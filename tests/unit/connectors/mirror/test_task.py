"""The task of a mirror with the client's own consumer, on librdkafka's double of a cluster."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from tests.unit.clients.conftest import MockCluster
from tests.unit.connectors.mirror.memory_cluster import MemoryCluster

from penstock.clients import KafkaCluster
from penstock.connectors.mirror.source import MirrorSource
from penstock.connectors.mirror.task import MirrorTask
from penstock.testing import run_source

#: Some of them take more than a second.
pytestmark = pytest.mark.slow

CLUSTERS: dict[str, Any] = {}


class Task(MirrorTask):
    def cluster(self, props: Mapping[str, str], side: str) -> KafkaCluster:
        found: KafkaCluster = CLUSTERS["mock"].cluster()
        return found


class Mirror(MirrorSource):
    task_class = Task

    def cluster(self, props: Mapping[str, str], side: str) -> Any:
        return CLUSTERS[side]


@pytest.fixture(autouse=True)
def _no_topic_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """The double does not describe topics, and would be waited for."""
    monkeypatch.setattr("penstock.connectors.mirror.task._ANSWER_S", 0.1)


@pytest.fixture(scope="module")
def mock() -> MockCluster:
    CLUSTERS["mock"] = MockCluster()
    found: MockCluster = CLUSTERS["mock"]
    return found


def settings(topic: str, mock: MockCluster) -> dict[str, str]:
    CLUSTERS.update(source=MemoryCluster(), target=MemoryCluster())
    CLUSTERS["source"].create(topic, 4)
    return {
        "source.cluster.alias": "east",
        "target.cluster.alias": "west",
        "source.cluster.bootstrap.servers": mock.bootstrap_servers,
        "target.cluster.bootstrap.servers": mock.bootstrap_servers,
        "topics": topic,
        "replication.factor": "1",
        "emit.offset-syncs.enabled": "false",
        "consumer.poll.timeout.ms": "50",
    }


def test_records_come_over_as_they_are_and_are_read_on_after_a_restart(mock: MockCluster) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    for partition in range(3):
        mock.send(topic, partition, *(b"%d-%d" % (partition, number) for number in range(99)), None)
    with run_source(Mirror, settings(topic, mock), tasks_max=2) as run:
        while len(run.committed) < 300:
            run.poll()
            run.commit()
        run.restart()
        mock.send(topic, 3, b"last")
        run.finish(301)
    found = {(one.kafka_partition, one.value): one for one in run.committed}
    assert len(found) == 301
    for partition in range(3):
        assert found[partition, None].source_offset == {"offset": 99}
        one = found[partition, b"%d-7" % partition]
        assert (one.topic, one.key, one.timestamp) == (f"east.{topic}", b"k", 1007)
        assert [(header.key, header.value) for header in one.raw_headers or ()] == [("n", b"7"), ("null", None)]
        assert found[partition, b"%d-6" % partition].raw_headers is None


def test_an_offset_behind_the_end_is_read_from_the_beginning(
    mock: MockCluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    mock.send(topic, 0, b"a", b"b")
    with run_source(Mirror, settings(topic, mock)) as run:
        while not run.committed:
            run.poll()
            run.commit()
        # As if the topic had been longer.
        task: Any = run.tasks[0]
        place = next(iter(one for one in task._next if one.partition == 0))
        task._next[place] = 77
        task._reader.seek(place, 77)
        run.finish(4)
    assert run.values == [b"a", b"b", b"a", b"b"]
    assert "ends at offset 2, and was mirrored up to 77" in caplog.text
