"""Places for files: directories, S3 and fsspec do the same; errors say what to do."""

from __future__ import annotations

import datetime
import errno
import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import moto.settings
import pytest
from moto.server import ThreadedMotoServer
from testkit.brokers.cutting_proxy import CuttingProxy

from penstock.api import TopicPartition
from penstock.errors import ConfigException, ConnectException, OwnershipLostException, RetriableException
from penstock.files import FileNames, Found, Location, Store, open_store
from penstock.files.manifests import Manifests
from penstock.files.s3 import S3Options, S3Store, of_s3
from penstock.files.store import ChangedException, GoneException, LoginException, of_system
from penstock.testing import MemoryStore

BUCKET = "archive"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def client(endpoint: str) -> Any:
    return boto3.client(
        "s3", endpoint_url=endpoint, aws_access_key_id="id", aws_secret_access_key="secret", region_name="us-east-1"
    )


def options(endpoint: str, **more: Any) -> S3Options:
    return S3Options(
        **{"bucket": BUCKET, "endpoint": endpoint, "key_id": "id", "secret": "secret", "retries": 0, **more}
    )


@pytest.fixture(params=["directory", "s3", "fsspec", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "directory":
        found = open_store(Location(f"file://{tmp_path}/a%20b"))
    elif request.param == "memory":
        found = MemoryStore()
    elif request.param == "fsspec":
        found = open_store(Location(f"memory://{tmp_path.name}"))
    else:
        endpoint = request.getfixturevalue("endpoint")
        found = open_store(Location(f"s3://{BUCKET}/p", options(endpoint, prefix=tmp_path.name)))
        client(endpoint).create_bucket(Bucket=BUCKET)
    yield found
    found.close()


def put(store: Store, key: str, data: bytes = b"x") -> None:
    store.put(key, io.BytesIO(data), len(data))


def test_files_are_listed_from_a_name_on_in_order_and_without_those_of_other_directories(store: Store) -> None:
    store.check()
    assert list(store.list_from("t", "")) == []
    for key in ("t/b", "t/a", "t/c", "t/d/e", "tt/a"):
        put(store, key)
    assert list(store.list_from("t", "")) == ["a", "b", "c"]
    assert list(store.list_from("t", "b")) == ["b", "c"]
    put(store, "t/a", b"newer")
    store.delete("t/b")
    store.delete("t/b")
    assert list(store.list_from("t", "")) == ["a", "c"]


def test_names_are_listed_as_they_are_whatever_characters_they_have(store: Store) -> None:
    names = ["a&b", "a+b", "a b", "a%2Fb", "<a>", "ä", "t+0+0000000007.parquet"]
    for name in names:
        put(store, f"odd +&%20/{name}")
    assert sorted(store.list_from("odd +&%20", "")) == sorted(names)
    assert sorted(one.key for one in store.walk(lambda _: False)) == sorted(f"odd +&%20/{name}" for name in names)


def test_what_a_killed_process_has_left_is_removed_and_that_of_others_stays(store: Store) -> None:
    if isinstance(store, MemoryStore):
        assert store.end_unfinished("topics", ("t+0+",)) == 0
        return
    if isinstance(store, S3Store):
        for name in ("t+0+1", "t+1+1"):
            key = f"{store._options.prefix}/topics/t/{name}"
            store._client.create_multipart_upload(Bucket=BUCKET, Key=key)
    else:
        for name in ("t+0+1", "t+1+1"):
            put(store, f"_tmp/{name}")
    assert store.end_unfinished("topics", ("t+0+",)) == 1
    assert store.end_unfinished("topics", ("t+0+",)) == 0
    assert store.end_unfinished("topics", ("t+1+",)) == 1


def test_a_file_that_may_not_be_there_is_created_once(store: Store) -> None:
    if "ArrowStore" in type(store).__name__:
        with pytest.raises(ConnectException, match="no way to create"):
            store.create_if_absent("a", b"1")
        return
    assert store.create_if_absent("d/a", b"1")
    assert not store.create_if_absent("d/a", b"2")
    assert list(store.list_from("d", "")) == ["a"]


def test_a_commit_of_files_counts_once_or_never(store: Store) -> None:
    if "ArrowStore" in type(store).__name__:
        return
    here, there = TopicPartition("t", 0), TopicPartition("t", 1)
    commits = Manifests(store, "out", "c", FileNames())
    assert commits.end(here) is None
    commits.claim("1-a", {here: (3, 5)}, ["out/d/1-a"])
    put(store, "out/d/1-a")
    commits.commit("1-a", {here: (3, 5)}, {"out/d/1-a": 2})
    commits.commit("1-a", {here: (3, 5)}, {"out/d/1-a": 2})
    commits.claim("2-b", {here: (5, 9), there: (0, 1)}, ["out/d/2-b"])
    put(store, "out/d/2-b")
    stale = Manifests(store, "out", "c", FileNames())
    assert (commits.end(here), commits.end(there)) == (5, None)
    with pytest.raises(OwnershipLostException):
        commits.commit("2-b", {here: (5, 9), there: (0, 1)}, {"out/d/2-b": 4})
    with pytest.raises(OwnershipLostException):
        stale.claim("3-c", {here: (3, 4)}, ["out/d/3-c"])
    assert list(store.list_from("out/d", "")) == ["1-a"]


def test_files_are_walked_read_and_moved_and_one_that_is_gone_is_told(store: Store) -> None:
    for key in ("t/b", "t/a", "x/c"):
        put(store, key, key.encode())
    assert [one.key for one in store.walk(lambda key: key == "x")] == ["t/a", "t/b"]
    found = store.look_at("t/a")
    assert (found.name, found.size) == ("a", 3)
    assert store.open(found).read() == b"t/a"
    store.move("t/a", "t/c")
    store.move("t/a", "t/c")
    assert list(store.list_from("t", "")) == ["b", "c"]
    with pytest.raises(GoneException):
        store.look_at("t/a")
    with pytest.raises(GoneException):
        store.open(found).read()


def test_large_objects_go_in_parts_and_an_upload_that_fails_is_ended(endpoint: str) -> None:
    s3 = client(endpoint)
    s3.create_bucket(Bucket=BUCKET)
    store = S3Store(options(endpoint, part_size=5 << 20, prefix="large"))
    data = bytes(range(256)) * 50_000
    put(store, "k", data)
    assert s3.get_object(Bucket=BUCKET, Key="large/k")["Body"].read() == data

    class Breaking(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() > 6 << 20:
                raise OSError("gone")
            return super().read(size)

    with pytest.raises(OSError, match="gone"):
        store.put("half", Breaking(data), len(data))
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=BUCKET, Prefix="large")
    assert list(store.list_from("", "")) == ["k"]
    store.close()


def test_names_that_xml_has_no_characters_for_are_listed(endpoint: str) -> None:
    client(endpoint).create_bucket(Bucket=BUCKET)
    store = S3Store(options(endpoint, prefix="controls"))
    names = ["a\x01b+c%2F", "plain +%"]
    for name in names:
        put(store, f"d/{name}")
    assert list(store.list_from("d", "")) == names
    store.close()


def test_an_object_that_has_changed_is_told_by_a_store_that_leaves_conditions_out(endpoint: str) -> None:
    client(endpoint).create_bucket(Bucket=BUCKET)
    store = S3Store(options(endpoint, prefix="unconditional"))
    get = store._client.get_object
    store._client.get_object = lambda IfMatch="", **more: get(**more)  # noqa: N803
    for other, unlisted in ((b"two", False), (b"other", False), (b"other", True)):
        put(store, "a", b"one")
        found = store.look_at("a")
        if unlisted:  # A listing that has no ETag.
            found = replace(found, version="")
        assert store.open(found).read() == b"one"
        put(store, "a", other)
        with pytest.raises(ChangedException, match="was changed while it was read"):
            store.open(found).read()
    store.close()


def test_a_long_listing_has_every_page(endpoint: str) -> None:
    s3 = client(endpoint)
    s3.create_bucket(Bucket=BUCKET)
    for number in range(7):
        s3.put_object(Bucket=BUCKET, Key=f"many/t/{number:05d}", Body=b"")
    store = S3Store(options(endpoint, prefix="many"))
    whole = store._client.list_objects_v2

    def page(**named: Any) -> Any:
        return whole(MaxKeys=2, **named)

    store._client = SimpleNamespace(list_objects_v2=page, close=lambda: None)
    assert list(store.list_from("t", "00002")) == [f"{number:05d}" for number in range(2, 7)]
    store.close()


def test_a_bucket_that_is_missing_and_a_store_that_is_away_are_told_apart(endpoint: str, free_port: int) -> None:
    missing = S3Store(options(endpoint, bucket="nowhere"))
    for call in (missing.check, lambda: put(missing, "a"), lambda: list(missing.list_from("t", ""))):
        with pytest.raises(ConnectException, match="There is no bucket for s3://nowhere") as caught:
            call()
        assert not isinstance(caught.value, RetriableException)
    away = S3Store(options(f"http://127.0.0.1:{free_port}"))
    with pytest.raises(RetriableException, match="cannot be reached for PutObject"):
        put(away, "a")
    for one in (missing, away):
        one.close()


class Answer(Exception):
    def __init__(self, code: str, status: int) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code, "Message": "said"}, "ResponseMetadata": {"HTTPStatusCode": status}}


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (Answer("SlowDown", 503), RetriableException, "does not answer PutObject for now"),
        (Answer("", 502), RetriableException, "does not answer"),
        (Answer("NotImplemented", 501), ConnectException, "has no PutObject"),
        (Answer("NotImplemented", 400), ConnectException, "has no PutObject"),
        (Answer("RequestTimeout", 400), RetriableException, "does not answer"),
        (Answer("NoSuchUpload", 404), RetriableException, "does not answer"),
        (Answer("AccessDenied", 403), ConnectException, "grant s3:PutObject"),
        (Answer("NoSuchBucket", 404), ConnectException, "create it, or correct"),
        (Answer("ExpiredToken", 400), LoginException, "does not accept the credentials"),
        (Answer("InvalidAccessKeyId", 403), LoginException, "aws.access.key.id"),
        (Answer("RequestTimeTooSkewed", 403), ConnectException, "set the clock"),
        (Answer("KeyTooLongError", 400), ConnectException, "a shorter url"),
        (Answer("PermanentRedirect", 301), ConnectException, "correct s3.region"),
        (Answer("EntityTooLarge", 400), ConnectException, "refuses PutObject"),
        (type("NoCredentialsError", (Exception,), {})("none"), LoginException, "There are no credentials"),
        (type("SSLError", (Exception,), {})("self signed"), ConnectException, "s3.ca.location"),
        (type("ReadTimeoutError", (Exception,), {})("slow"), RetriableException, "cannot be reached"),
    ],
)
def test_answers_of_s3_are_sorted_by_what_helps(error: Exception, kind: type[Exception], text: str) -> None:
    found = of_s3(error, "s3://b/k", "PutObject")
    assert type(found) is kind
    assert text in str(found)


def test_errors_of_a_disk_are_sorted_by_what_helps(tmp_path: Path) -> None:
    assert isinstance(of_system(OSError(errno.ENOSPC, "No space"), "/a", "write"), RetriableException)
    assert isinstance(of_system(OSError(errno.EIO, "I/O"), "/a", "write"), RetriableException)
    (tmp_path / "file").write_text("")
    store = open_store(Location(str(tmp_path / "file")))
    with pytest.raises(ConnectException, match=r"Cannot write .*Not a directory"):
        put(store, "a")
    with pytest.raises(ConnectException, match="Not a directory"):
        store.check()


def test_credentials_that_were_changed_are_taken_and_wrong_ones_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that accepts the second key only."""
    from botocore.exceptions import ClientError

    class Client:
        def __init__(self, key: str | None) -> None:
            self.key = key

        def put_object(self, **_: Any) -> None:
            if self.key != "new":
                answer: Any = Answer("InvalidAccessKeyId", 403).response
                raise ClientError(answer, "PutObject")

        def close(self) -> None: ...

    monkeypatch.setattr("penstock.files.s3._client", lambda given: Client(given.key_id))
    put(S3Store(options("http://h", key_id="old"), lambda: options("http://h", key_id="new")), "a")
    with pytest.raises(LoginException):
        put(S3Store(options("http://h", key_id="old"), lambda: options("http://h", key_id="old")), "a")
    with pytest.raises(LoginException):
        put(S3Store(options("http://h", key_id="old"), lambda: options("http://h", key_id="bad")), "a")


def test_credentials_that_run_out_before_a_look_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to HEAD has no body that would say why."""
    from botocore.exceptions import ClientError

    class Client:
        def __init__(self, key: str | None, code: str) -> None:
            self.key, self.code = key, code

        def head_object(self, **_: Any) -> Any:
            if self.key != "new":
                answer: Any = Answer("400" if self.code == "ExpiredToken" else "403", 400).response
                raise ClientError(answer, "HeadObject")
            return {"ContentLength": 3, "LastModified": datetime.datetime.now(datetime.UTC), "ETag": "e"}

        def get_object(self, **_: Any) -> Any:
            raise ClientError(Answer(self.code, 400).response, "GetObject")

        def close(self) -> None: ...

    code = "ExpiredToken"
    monkeypatch.setattr("penstock.files.s3._client", lambda given: Client(given.key_id, code))
    store = S3Store(options("http://h", key_id="old"), lambda: options("http://h", key_id="new"))
    assert store.look_at("a").size == 3
    code = "AccessDenied"
    with pytest.raises(ConnectException, match="no right to GetObject"):
        S3Store(options("http://h", key_id="old")).look_at("a")


def test_addresses_that_no_library_knows_are_refused() -> None:
    with pytest.raises(ConfigException, match='No file system for "nope:"'):
        open_store(Location("nope://a"))


def test_addresses_of_fsspec_have_their_host_port_and_user() -> None:
    store = open_store(Location("webhdfs://hadoop@127.0.0.1:9870/lake/x"))
    system = store._fs.handler.fs  # type: ignore[attr-defined]
    assert (system.url, system.user, store._root) == ("http://127.0.0.1:9870/webhdfs/v1", "hadoop", "/lake/x")  # type: ignore[attr-defined]


def test_a_file_system_of_fsspec_that_is_away_is_not_taken_for_an_empty_one(free_port: int) -> None:
    store = open_store(Location(f"webhdfs://hadoop@127.0.0.1:{free_port}/lake"))
    for call in (lambda: list(store.list_from("t", "")), lambda: store.delete("t/a"), lambda: store.look_at("t/a")):
        with pytest.raises(RetriableException, match="Max retries"):
            call()


@pytest.fixture
def guarded(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, dict[str, str]]:
    """A server that checks signatures and rights, and the credentials of a user who has none."""
    client(endpoint).create_bucket(Bucket=BUCKET)
    login = {"endpoint_url": endpoint, "aws_access_key_id": "id", "aws_secret_access_key": "secret"}
    iam = boto3.client("iam", region_name="us-east-1", **login)
    iam.create_user(UserName="reader")
    key = iam.create_access_key(UserName="reader")["AccessKey"]
    iam.close()
    monkeypatch.setattr(moto.settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0.0)
    return endpoint, {"key_id": key["AccessKeyId"], "secret": key["SecretAccessKey"]}


def test_wrong_credentials_and_missing_rights_are_told_apart(guarded: tuple[str, dict[str, str]]) -> None:
    endpoint, reader = guarded
    cases = [
        ({"key_id": "nobody", "secret": "x"}, "does not accept the credentials"),
        ({**reader, "secret": "wrong"}, "does not accept the credentials"),
        (reader, "have no right to"),
    ]
    for credentials, text in cases:
        store = S3Store(options(endpoint, **credentials))
        for call in (store.check, lambda: put(store, "a")):  # noqa: B023
            with pytest.raises(ConnectException, match=text) as caught:
                call()
            assert not isinstance(caught.value, RetriableException)
        store.close()


def test_objects_are_encrypted_by_the_server_as_the_settings_say(endpoint: str) -> None:
    s3 = client(endpoint)
    s3.create_bucket(Bucket=BUCKET)
    store = S3Store(options(endpoint, part_size=5 << 20, encryption="aws:kms", kms_key="k1", acl="private"))
    put(store, "small")
    put(store, "large", bytes(6 << 20))
    for key in ("small", "large"):
        found = s3.head_object(Bucket=BUCKET, Key=key)
        assert found["ServerSideEncryption"] == "aws:kms"
    assert s3.head_object(Bucket=BUCKET, Key="small")["SSEKMSKeyId"].endswith("k1")
    store.close()


@pytest.fixture
def cut_off(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[S3Store, CuttingProxy]]:
    """A store behind a proxy that cuts connections, with two objects."""
    monkeypatch.setattr("urllib3.connection.log.disabled", True)
    client(endpoint).create_bucket(Bucket=BUCKET)
    with CuttingProxy(int(endpoint.rpartition(":")[2])) as proxy:
        store = S3Store(options(f"http://127.0.0.1:{proxy.port}", prefix="cut", part_size=5 << 20))
        for key in ("a/one", "a/two"):
            put(store, key, b"0123456789")
        yield store, proxy
        store.close()


#: Each with what it gives.
CALLS: dict[str, tuple[Callable[[S3Store], Any], Any]] = {
    "put": (lambda store: put(store, "a/one", b"0123456789"), None),
    "parts": (lambda store: put(store, "large", bytes(6 << 20)), None),
    "list": (lambda store: list(store.list_from("a", "")), ["one", "two"]),
    "walk": (lambda store: [one.key for one in store.walk(lambda _: False, "a")], ["a/one", "a/two"]),
    "look at": (lambda store: store.look_at("a/one").size, 10),
    "read": (lambda store: store.open(Found("a/one", 10, store.look_at("a/one").time_ns)).read(), b"0123456789"),
    "delete": (lambda store: store.delete("nothing"), None),
    "end": (lambda store: store.end_unfinished("a", ("x",)), 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_a_connection_that_is_cut_is_tried_again_and_never_taken_for_an_answer(
    cut_off: tuple[S3Store, CuttingProxy], name: str
) -> None:
    (store, proxy), (call, wanted) = cut_off, CALLS[name]
    retried = 0
    for after in (*range(1, 420, 20), 500, 600, 700):
        proxy.cut_open()
        # A listing, or what reads an object, may make a second connection.
        for _ in range(2):
            proxy.cut_next(received=after)
        try:
            assert call(store) == wanted
        except RetriableException:
            retried += 1
        proxy.forget_cuts()
    assert retried


def test_a_machine_without_hadoops_client_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_client(_url: str) -> None:
        raise OSError("Unable to load libjvm\ndlopen(/usr/lib/jvm/libjvm.so) failed\ndlopen(/opt/libjvm.so) failed")

    monkeypatch.setattr("pyarrow.fs.HadoopFileSystem", SimpleNamespace(from_uri=without_client))
    with pytest.raises(
        ConnectException, match=r"^The file system of hdfs://h:9000 cannot be made: .* CLASSPATH"
    ) as caught:
        open_store(Location("hdfs://h:9000"))
    assert "dlopen" not in str(caught.value)
