"""A store that accepts connections and never answers ends each call in time, and is asked again."""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pyarrow as pa
import pytest
from botocore.awsrequest import AWSResponse
from moto.server import ThreadedMotoServer
from testkit.brokers.cutting_proxy import CuttingProxy
from tests.unit.connectors.files.writing import Writing, records

from penstock.connectors.files import FileSink, FileSource
from penstock.connectors.tables.delta_files import system_of
from penstock.connectors.tables.iceberg_clients import open_catalog
from penstock.connectors.tables.places import TIMEOUT, LakeConfig, open_lake
from penstock.errors import RetriableException
from penstock.files import Found, Location
from penstock.files.arrow import ArrowStore, TimedCalls
from penstock.files.s3 import S3Options, S3Store
from penstock.testing import run_source

pytestmark = pytest.mark.usefixtures("aws_is_read_once")

LIMIT_MS = "150"
LOGIN = {"aws.access.key.id": "id", "aws.secret.access.key": "secret", "s3.region": "us-east-1"}


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server whose connections are made, and which reads and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def ends_in_time(call: Callable[[], object], words: str = "", limit_s: float = 10.0) -> None:
    """The call asks to be made again. It would take a minute and more without a limit."""
    began = time.monotonic()
    with pytest.raises(RetriableException, match=words):
        call()
    assert time.monotonic() - began < limit_s


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.check(),
        lambda store: store.put("a", io.BytesIO(b"x"), 1),
        lambda store: store.put("a", io.BytesIO(bytes(12 << 20)), 12 << 20),
        lambda store: store.create_if_absent("a", b"x"),
        lambda store: list(store.list_from("a", "")),
        lambda store: list(store.walk(lambda _: False)),
        lambda store: store.delete("a"),
        lambda store: store.end_unfinished("a", ("b",)),
        lambda store: store.look_at("a"),
        lambda store: store.open(Found("a", 10, 0)).read(),
        lambda store: store.move("a", "b"),
    ],
)
def test_each_call_of_a_bucket_has_a_limit_in_time_also_with_retries_of_the_client(
    silent: str, call: Callable[[Any], object]
) -> None:
    options = S3Options("b", endpoint=silent, key_id="id", secret="s", part_size=5 << 20, retries=3, timeout_s=0.15)
    store = S3Store(options)
    ends_in_time(lambda: call(store), "cannot be reached")
    store.close()


def test_a_bucket_that_answers_503_slowly_has_the_same_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    store = S3Store(S3Options("b", endpoint="http://127.0.0.1:1", key_id="id", secret="s", retries=3, timeout_s=0.2))
    asked: list[float] = []

    def answer(request: Any, **_: Any) -> AWSResponse:
        asked.append(time.monotonic())
        time.sleep(0.15)
        return AWSResponse(request.url, 503, {}, SimpleNamespace(stream=lambda: [b""]))

    store._client.meta.events.register("before-send.s3", answer)
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.0)
    ends_in_time(store.check, "cannot be reached")
    assert len(asked) == 2
    store.close()


@pytest.mark.slow
def test_a_sink_waits_for_a_bucket_that_falls_silent_and_writes_each_record_once(tmp_path: Path) -> None:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        named = {"aws_access_key_id": "id", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
        client = boto3.client("s3", endpoint_url=f"http://{host}:{port}", **named)
        client.create_bucket(Bucket="silent")
        with CuttingProxy(port) as proxy:
            settings: Any = {"store_url": f"http://127.0.0.1:{proxy.port}", "store_timeout_ms": "400"}
            login: Any = {name.replace(".", "_"): value for name, value in LOGIN.items()}
            sink = Writing(Path("s3://silent"), url="s3://silent/p", flush_size="2", **settings, **login)
            sink.put(records(0, 2))
            proxy.hold()
            ends_in_time(lambda: sink.put(records(2, 2), first=2), "silent")
            proxy.pass_new()
            proxy.cut_open()
            sink.put(records(2, 2), first=2)
            assert sink.commit(4) == 4
            sink.task.stop()
        found = client.list_objects_v2(Bucket="silent", Prefix="p/topics/t")
        assert [one["Key"][-23:-15] for one in found["Contents"]] == ["00000000", "00000002"]
        client.close()
    finally:
        server.stop()


@pytest.mark.slow
def test_a_source_of_files_waits_for_a_bucket_that_says_nothing(silent: str) -> None:
    settings = {"url": "s3://b", "store.url": silent, "store.timeout.ms": LIMIT_MS, "s3.part.retries": "0", **LOGIN}
    with pytest.raises(AssertionError, match=r"start was tried for 1 s: s3://b at \S+ cannot be reached"):
        run_source(FileSource, {**settings, "topic": "t"}, timeout_s=1).finish()


def test_a_connector_is_refused_in_time_where_the_bucket_says_nothing(silent: str) -> None:
    settings = {"url": "s3://b", "store.url": silent, "store.timeout.ms": LIMIT_MS, **LOGIN, "topics": "t", "name": "s"}
    began = time.monotonic()
    (told,) = FileSink().obstacles(settings)
    assert "cannot be reached" in told
    assert time.monotonic() - began < 10


class Silent:
    """A file system that never answers, or answers one question."""

    def __init__(self, answers: str = "") -> None:
        self.answers = answers

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None if name == self.answers else time.sleep(1.5)


def test_each_call_of_a_file_system_without_limits_has_one() -> None:
    store = ArrowStore(Silent(), "r", "hdfs://r", 0.05)
    for call in (
        store.check,
        lambda: store.put("a", io.BytesIO(b"x"), 1),
        lambda: list(store.list_from("a", "")),
        lambda: store.delete("a"),
        lambda: store.look_at("a"),
        lambda: store.open(Found("a", 1, 0)),
        lambda: store.move("a", "b"),
    ):
        ends_in_time(call, r"hdfs://r has not answered for 0.05 s \(store.timeout.ms\)", 1.0)


def test_a_file_whose_read_is_late_is_not_waited_for_again() -> None:
    file = SimpleNamespace(read=lambda _: time.sleep(1), close=lambda: time.sleep(1), seek=lambda *_: 0)
    system = SimpleNamespace(open_input_file=lambda _: file)
    reader = ArrowStore(system, "r", "hdfs://r", 0.05).open(Found("a", 1, 0))
    ends_in_time(lambda: reader.read(1), "has not answered", 0.8)
    began = time.monotonic()
    reader.close()
    assert time.monotonic() - began < 0.5


def test_a_long_call_is_waited_for_while_the_store_answers_others() -> None:
    timed = TimedCalls(0.05, "s")

    def list_slowly() -> str:
        time.sleep(0.2)
        return "listed"

    assert timed(list_slowly, lambda: None) == "listed"
    ends_in_time(lambda: timed(lambda: time.sleep(0.5), lambda: time.sleep(0.5)), "has not answered", 0.4)


def test_calls_that_never_end_do_not_pile_up() -> None:
    timed = TimedCalls(0.01, "s")
    made: list[int] = []

    def hang() -> None:
        made.append(1)
        time.sleep(0.6)

    for _ in range(20):
        ends_in_time(lambda: timed(hang), "has not answered", 0.5)
    assert len(made) == 16


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_lake_whose_store_says_nothing_is_asked_again(silent: str, tmp_path: Path, kind: str) -> None:
    settings = {"url": "s3://b/lake", "table.format": kind, "store.url": silent, "store.timeout.ms": "400", **LOGIN}
    if kind == "iceberg":
        settings |= {"iceberg.catalog.type": "sql", "iceberg.catalog.uri": f"sqlite:///{tmp_path}/catalog.db"}
    lake = open_lake(LakeConfig.parse(settings), settings, "c")
    ends_in_time(lake.check, "tried again")
    if kind == "delta":
        ends_in_time(lambda: lake.table("t"), "tried again")
        ends_in_time(lambda: lake.create("t", pa.schema([("a", pa.int64())]), [], []), "tried again")
    lake.close()


@pytest.mark.slow
def test_files_beside_a_delta_table_have_the_limit_of_its_store(silent: str) -> None:
    config = LakeConfig.parse({"url": "s3://b", "store.url": silent, "store.timeout.ms": "400", **LOGIN})
    system, _ = system_of("s3://b", config.storage_options({}))
    began = time.monotonic()
    with pytest.raises(OSError, match="slow"):
        system.get_file_info("b/a")
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("kind", [{"type": "rest"}, {}])
def test_a_rest_catalog_that_says_nothing_is_asked_again(silent: str, kind: dict[str, str]) -> None:
    settings = {f"iceberg.catalog.{name}": value for name, value in {**kind, "uri": silent}.items()}
    config = LakeConfig.parse({"table.format": "iceberg", "store.timeout.ms": LIMIT_MS})
    lake = open_lake(config, settings, "c")
    ends_in_time(lake.check, "tried again")
    properties = {**config.catalog_limits(), **config.catalog_properties(settings)}
    assert float(properties[TIMEOUT]) == 0.15
    with pytest.raises(Exception, match="timed out"):
        open_catalog("iceberg", properties)


def test_a_location_that_is_looked_at_has_less_time() -> None:
    location = Location("s3://b", S3Options("b"), timeout_s=60)
    assert (location.tried_once().timeout_s, location.tried_once().s3) == (
        10.0,
        S3Options("b", retries=0, timeout_s=10.0),
    )
