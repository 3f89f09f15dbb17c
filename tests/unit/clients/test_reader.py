"""Records of partitions as columns, from librdkafka's double of a cluster."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.clients.conftest import MockCluster

from penstock.api import TopicPartition
from penstock.clients import KafkaCluster, RecordReader
from penstock.errors import KafkaRetriableException, OffsetOutOfRangeException

#: Some of them take more than a second.
pytestmark = pytest.mark.slow


@pytest.fixture
def topic(mock_cluster: MockCluster) -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def reader(mock_cluster: MockCluster) -> Iterator[RecordReader]:
    made = mock_cluster.cluster().reader({"isolation.level": "read_committed"})
    yield made
    made.close()


def fetched(reader: RecordReader, count: int, timeout_s: float = 20.0) -> dict[TopicPartition, pa.Table]:
    found: dict[TopicPartition, list[pa.Table]] = {}
    rows, deadline = 0, time.monotonic() + timeout_s
    while rows < count and time.monotonic() < deadline:
        for one in reader.fetch(0.2):
            found.setdefault(one.place, []).append(one.table)
            rows += one.table.num_rows
    return {place: pa.concat_tables(tables) for place, tables in found.items()}


def test_records_come_as_columns_of_each_partition(mock_cluster: MockCluster, topic: str, reader: RecordReader) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    mock_cluster.send(topic, 0, b"a", None, b"")
    mock_cluster.send(topic, 1, b"c", key=None)
    reader.assign({first: 0, second: 0})
    found = fetched(reader, 4)
    assert found[first].column_names == ["offset", "timestamp", "timestamp_type", "key", "value", "headers"]
    assert found[first].column("offset").to_pylist() == [0, 1, 2]
    assert found[first].column("value").to_pylist() == [b"a", None, b""]
    assert found[first].column("timestamp").to_pylist() == [1000, 1001, 1002]
    headers: Any = found[first].column("headers").to_pylist()
    assert headers == [None, [{"key": "n", "value": b"1"}, {"key": "null", "value": None}], None]
    assert found[second].column("key").to_pylist() == [None]


def test_it_begins_where_it_is_told_and_knows_the_end(
    mock_cluster: MockCluster, topic: str, reader: RecordReader
) -> None:
    place = TopicPartition(topic, 2)
    mock_cluster.send(topic, 2, b"a", b"b", b"c")
    reader.assign({place: 1})
    assert not reader.at_end(place)
    assert fetched(reader, 2)[place].column("value").to_pylist() == [b"b", b"c"]
    deadline = time.monotonic() + 10
    while not reader.at_end(place) and time.monotonic() < deadline:
        assert reader.fetch(0.1) == []
    assert reader.at_end(place)
    assert reader.bounds(place) == (0, 3)
    assert reader.ends([place, TopicPartition("other", 0)]) == {place: 3}
    mock_cluster.send(topic, 2, b"d")
    assert fetched(reader, 1)[place].column("offset").to_pylist() == [3]


def test_an_offset_that_is_not_there_is_told_and_sought(
    mock_cluster: MockCluster, topic: str, reader: RecordReader
) -> None:
    place, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    mock_cluster.send(topic, 0, b"a")
    mock_cluster.send(topic, 1, b"b")
    reader.assign({place: 7, other: 0})

    def read() -> None:
        for _ in range(50):
            reader.fetch(0.2)

    with pytest.raises(OffsetOutOfRangeException) as caught:
        read()
    assert (caught.value.topic, caught.value.partition) == (topic, 0)
    reader.seek(place, 0)
    mock_cluster.send(topic, 1, b"c")
    found: dict[TopicPartition, list[object]] = {place: [], other: []}
    deadline = time.monotonic() + 20
    while not (found[place] and b"c" in found[other]) and time.monotonic() < deadline:
        for one in reader.fetch(0.2):
            found[one.place] += one.table.column("value").to_pylist()
    assert found[place] == [b"a"]
    # The other partition has gone on meanwhile, and nothing of it came twice.
    assert found[other] in ([b"c"], [b"b", b"c"])


def test_brokers_that_are_away_are_named(free_port: int) -> None:
    reader = KafkaCluster({"bootstrap.servers": f"127.0.0.1:{free_port}"}, name="the cluster west").reader()
    try:
        reader.assign({TopicPartition("t", 0): 0})
        deadline = time.monotonic() + 10
        while reader.trouble is None and time.monotonic() < deadline:
            assert reader.fetch(0.1) == []
        assert reader.trouble is not None
        with pytest.raises(KafkaRetriableException, match=f"the cluster west does not answer.*127.0.0.1:{free_port}"):
            reader.check(0.5)
    finally:
        reader.close()


def test_trouble_is_over_when_the_cluster_answers(mock_cluster: MockCluster, reader: RecordReader) -> None:
    reader.check(5.0)
    assert reader.trouble is None
