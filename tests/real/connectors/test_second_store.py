"""The connectors of files and tables on ``s3s-fs``, a server of S3 of another code base, where that is installed.

Every other test of object stores has moto's server.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from testkit.processes.s3_server import KEY_ID, PROGRAM, REGION, SECRET, S3Server, installed
from tests.unit.connectors.files.source.test_restore import KIND, ORDER, Topic, as_read, expected, orders, restored
from tests.unit.connectors.files.source.test_task import plain
from tests.unit.connectors.tables.writing import Writing, records

from penstock.api import TopicPartition
from penstock.connectors.tables import TableSource
from penstock.data import STRING_SCHEMA
from penstock.errors import ConnectException, OwnershipLostException, RetriableException
from penstock.files import ChangedException, FileNames, GoneException
from penstock.files.manifests import Manifests
from penstock.files.s3 import S3Options, S3Store
from penstock.testing import run_source

#: bin/test counts the tests that are skipped for this by themselves.
NONE = f"{PROGRAM} names no program, and there is none on the PATH that is called s3s-fs"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(installed() is None, reason=NONE)]

PLACES = [TopicPartition("t", 0), TopicPartition("t", 1)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3s-fs"), installed()) as started:
        yield started


@pytest.fixture
def place(server: S3Server, tmp_path: Path) -> dict[str, str]:
    return {
        "url": f"s3://{server.bucket}/{tmp_path.name}",
        "store.url": server.url,
        "s3.region": REGION,
        "aws.access.key.id": KEY_ID,
        "aws.secret.access.key": SECRET,
    }


def options(server: S3Server, **more: Any) -> S3Options:
    login = {"endpoint": server.url, "key_id": KEY_ID, "secret": SECRET, "retries": 0}
    return S3Options(**{"bucket": server.bucket, **login, **more})


def test_a_store_of_another_code_base_does_what_moto_does(server: S3Server, tmp_path: Path) -> None:
    store = S3Store(options(server, prefix=tmp_path.name, part_size=5 << 20))
    names = ["a&b", "a+b", "a b", "a%2Fb", "ä", "t+0+0000000007.parquet"]

    def put(key: str, data: bytes = b"x") -> None:
        store.put(key, io.BytesIO(data), len(data))

    for name in names:
        put(f"odd/{name}")
        put(f"odd/below/{name}")
    assert list(store.list_from("odd", "")) == sorted(names)
    assert list(store.list_from("odd", "a+b")) == [one for one in sorted(names) if one >= "a+b"]
    assert list(store.list_from("nothing", "")) == []
    many = [f"{number:05d}" for number in range(1010)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: put(f"many/{name}"), many))
    assert list(store.list_from("many", "")) == many
    assert list(store.list_from("many", "00990")) == many[990:]
    assert [one.name for one in store.walk(lambda _: False, "many")] == many

    large = bytes(range(256)) * 50_000
    put("large", large)
    found = store.look_at("large")
    assert store.open(found).read() == large
    put("large", large[1:])
    with pytest.raises(ChangedException):
        store.open(found).read()
    store.move("large", "moved")
    for gone in (lambda: store.look_at("large"), lambda: store.open(found).read()):
        with pytest.raises(GoneException):
            gone()

    # It looks first and writes then, so that of two at the same moment both may be told that they have made it.
    assert [store.create_if_absent("lock", b"x") for _ in range(2)] == [True, False]
    with pytest.raises(ConnectException, match="has no ListBucketMultipartUploads"):
        store.end_unfinished("odd", ("t+0+",))
    store.close()


def test_what_the_store_refuses_is_told_with_what_to_do(server: S3Server, free_port: int) -> None:
    cases = {
        "There is no bucket for s3://nowhere": {"bucket": "nowhere"},
        "does not accept the credentials": {"secret": "wrong"},
        "correct aws.access.key.id": {"key_id": "nobody"},
    }
    for text, wrong in cases.items():
        store = S3Store(options(server, **wrong))
        with pytest.raises(ConnectException, match=text) as caught:
            store.check()
        assert not isinstance(caught.value, RetriableException)
        store.close()


def test_a_commit_of_files_counts_once_or_never(server: S3Server, tmp_path: Path) -> None:
    store, here = S3Store(options(server, prefix=tmp_path.name)), PLACES[0]
    commits = Manifests(store, "out", "c", FileNames())
    commits.claim("1-a", {here: (0, 5)}, ["out/d/1-a"])
    stale = Manifests(store, "out", "c", FileNames())
    commits.commit("1-a", {here: (0, 5)}, {"out/d/1-a": 5})
    commits.claim("2-b", {here: (5, 9)}, ["out/d/2-b"])
    assert stale.end(here) == 5
    with pytest.raises(OwnershipLostException):
        commits.commit("2-b", {here: (5, 9)}, {"out/d/2-b": 4})
    store.close()


@pytest.mark.parametrize("layout", ["offsets", "manifest"])
def test_a_topic_goes_into_files_and_comes_back(place: dict[str, str], layout: str) -> None:
    beside = {"store.kafka.keys": "true", "store.kafka.headers": "true", "metadata.columns": "timestamp,partition"}
    topic = Topic({**place, **beside, "layout": layout})
    rows = orders(50)
    topic.write(pa.array(rows, KIND), ORDER, pa.array([f"k{one}" for one in range(50)]), STRING_SCHEMA)

    assert restored(place) == expected([as_read(row) for row in rows], ORDER, STRING_SCHEMA)


@pytest.mark.parametrize("lake", ["delta", "iceberg"])
def test_a_topic_goes_into_a_table_once_and_comes_back(
    place: dict[str, str], server: S3Server, tmp_path: Path, lake: str
) -> None:
    catalog = {"iceberg.catalog.type": "sql", "iceberg.catalog.uri": f"sqlite:///{tmp_path}/catalog.db"}
    settings = {**place, **(catalog if lake == "iceberg" else {})}

    def task(*places: TopicPartition) -> Writing:
        return Writing(tmp_path, lake, True, places, False, **settings)

    # Two tasks commit in turns to one table, each on what the other has made; one is killed, and reads again.
    one, other = task(PLACES[0]), task(PLACES[1])
    for start in range(0, 40, 10):
        one.put(records(start, 10), first=start)
        other.put(records(100 + start, 10), first=start, partition=1)
        one.tick()
        other.tick()
    again = task(PLACES[0])
    assert again.context.rewound == {PLACES[0]: 40}
    again.put(records(40, 10), first=40)
    again.tick()

    if lake == "delta":
        login = {"AWS_ENDPOINT_URL": server.url, "AWS_ALLOW_HTTP": "true", "AWS_REGION": REGION,
                 "AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET}  # fmt: skip
        found = DeltaTable(f"{place['url']}/t", storage_options=login).to_pyarrow_table()
    else:
        s3 = {
            "s3.endpoint": server.url,
            "s3.region": REGION,
            "s3.access-key-id": KEY_ID,
            "s3.secret-access-key": SECRET,
        }
        with load_catalog(
            "iceberg", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=place["url"], **s3
        ) as there:
            found = there.load_table("default.t").scan().to_arrow()
    wanted = [*range(50), *range(100, 140)]
    assert sorted(found.column("id").to_pylist()) == wanted
    source = {**settings, "table.format": lake, "tables": "t", "topic.prefix": "back-", "poll.interval.ms": "100"}
    with run_source(TableSource, source, timeout_s=20) as run:
        run.finish()
    assert sorted(plain(one.value)["id"] for one in run.records) == wanted
    for writing in (one, other, again):
        writing.task.stop()
