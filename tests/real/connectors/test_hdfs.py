"""The connectors of files on HDFS, by WebHDFS, where ``PENSTOCK_HDFS`` is set."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pyarrow as pa
import pytest
from testkit.processes.hdfs_server import WANTED, HdfsServer, wanted
from tests.unit.connectors.files.source.test_restore import KIND, ORDER, Topic, as_read, expected, orders, restored

from penstock.data import STRING_SCHEMA
from penstock.errors import ConnectException
from penstock.files import GoneException, Location, Store, open_store

#: bin/test counts the tests that are skipped for this by themselves.
pytestmark = [
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.skipif(not wanted(), reason=f"{WANTED} is not set: HDFS on one node"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    with HdfsServer(tmp_path_factory.mktemp("hdfs")) as started:
        yield started


def put(store: Store, key: str, data: bytes = b"x") -> None:
    store.put(key, io.BytesIO(data), len(data))


def test_hdfs_does_what_a_directory_does(server: HdfsServer) -> None:
    store = open_store(Location(f"{server.url}/store"))
    store.check()
    names = ["a&b", "a+b", "a b", "a%2Fb", "t+0+0000000007.parquet"]
    for name in names:
        put(store, f"odd/{name}")
    assert list(store.list_from("odd", "")) == sorted(names)
    assert list(store.list_from("odd", "a+b")) == [one for one in sorted(names) if one >= "a+b"]
    assert list(store.list_from("nothing", "")) == []
    large = bytes(range(256)) * 30_000
    put(store, "large", b"older")
    put(store, "large", large)
    assert store.open(store.look_at("large")).read() == large
    store.move("large", "done/large")
    store.move("large", "done/other")
    assert [one.key for one in store.walk(lambda key: key == "odd")] == ["done/large"]
    store.delete("done/large")
    store.delete("done/large")
    with pytest.raises(GoneException):
        store.look_at("done/large")
    put(store, "_tmp/t+0+1")
    assert store.end_unfinished("odd", ("t+0+",)) == 1
    with pytest.raises(ConnectException, match="no way to create"):
        store.create_if_absent("a", b"x")
    store.close()


def test_a_topic_goes_into_files_and_comes_back(server: HdfsServer) -> None:
    place = {"url": f"{server.url}/topics-of-a-sink"}
    beside = {"store.kafka.keys": "true", "store.kafka.headers": "true", "metadata.columns": "timestamp,partition"}
    topic = Topic({**place, **beside})
    rows = orders(50)
    topic.write(pa.array(rows, KIND), ORDER, pa.array([f"k{one}" for one in range(50)]), STRING_SCHEMA)

    assert restored(place) == expected([as_read(row) for row in rows], ORDER, STRING_SCHEMA)
