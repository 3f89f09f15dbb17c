"""Two connectors that write the same files are named, and a connector that was renamed continues."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.connectors.files.writing import HERE, Writing, records

from penstock.errors import ConnectException, RetriableException
from penstock.files import Owners
from penstock.testing import MemoryStore


def claimed(
    store: MemoryStore,
    connector: str,
    *directories: str,
    renamed_from: str = "",
    topic: str = "t",
    cluster: str | None = None,
) -> None:
    owners = Owners(connector, "s3://b/out/", renamed_from, cluster)
    owners.note(topic, [f"{one}/partition=0" for one in directories or ("t",)])
    owners.claim(store, "out")


def test_the_second_connector_of_a_directory_is_refused_and_the_first_one_named() -> None:
    store = MemoryStore()
    claimed(store, "a b/c")
    claimed(store, "a b/c")
    with pytest.raises(
        ConnectException, match=r"The connector a b/c writes .* topic t into s3://b/out/t, .*renamed.from=a b/c"
    ):
        claimed(store, "d")
    assert list(store.files) == ["_owners/out/t/t/a%20b%2Fc"]


def test_other_topics_and_other_directories_are_free() -> None:
    store = MemoryStore()
    claimed(store, "a", "t", "u")
    claimed(store, "b", "t", topic="u")
    claimed(store, "b", "routed")
    with pytest.raises(ConnectException, match=r"The connector a .* into s3://b/out/u"):
        claimed(store, "b", "other", "u")


def test_a_renamed_connector_takes_the_marks_over_and_the_former_name_is_refused() -> None:
    store = MemoryStore()
    claimed(store, "old")
    claimed(store, "new", renamed_from="old")
    claimed(store, "new", renamed_from="old")
    assert list(store.files) == ["_owners/out/t/t/new"]
    with pytest.raises(ConnectException, match="The connector new"):
        claimed(store, "old")


def test_two_that_begin_at_the_same_moment_see_each_other() -> None:
    class Together(MemoryStore):
        def put(self, key: str, data: io.BytesIO, size: int) -> None:  # type: ignore[override]
            super().put(key, data, size)
            super().put(key.replace("/b", "/a"), io.BytesIO(), 0)

    store = Together()
    with pytest.raises(ConnectException, match="The connector a"):
        claimed(store, "b")
    assert list(store.files) == ["_owners/out/t/t/a"]


def test_a_store_that_allows_no_marks_is_written_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    class Refusing(MemoryStore):
        def list_from(self, directory: str, start: str) -> Iterator[str]:
            raise ConnectException("no right to list")

    claimed(Refusing(), "a")
    assert "cannot be found out whether another connector" in caplog.text


def test_a_store_that_is_away_is_asked_again() -> None:
    class Away(MemoryStore):
        away = True

        def list_from(self, directory: str, start: str) -> Iterator[str]:
            if self.away:
                raise RetriableException("away")
            return super().list_from(directory, start)

    store, owners = Away(), Owners("a", "")
    owners.note("t", ["t"])
    with pytest.raises(RetriableException):
        owners.claim(store, "out")
    store.away = False
    owners.claim(store, "out")
    assert list(store.files) == ["_owners/out/t/t/a"]


@pytest.mark.parametrize("layout", ["offsets", "manifest"])
def test_a_file_sink_of_another_name_writes_nothing_into_the_files_of_the_first(tmp_path: Path, layout: str) -> None:
    first = Writing(tmp_path, flush_size="2", layout=layout)
    first.put(records(0, 3))
    there = first.files()
    second = Writing(tmp_path, flush_size="2", layout=layout, name="s2")
    with pytest.raises(ConnectException, match="The connector s writes records of the topic t"):
        second.put(records(0, 4))
    assert second.commit(4, closing=True) == 0
    assert first.files() == there


def test_files_without_a_mark_go_on(tmp_path: Path) -> None:
    first = Writing(tmp_path, flush_size="2")
    first.put(records(0, 2))
    (tmp_path / "_owners/topics/t/t/s").unlink()
    second = Writing(tmp_path, flush_size="2", name="s2")
    second.put(records(0, 4))
    assert second.files() == [
        "t/partition=0/t+0+0000000000.snappy.parquet",
        "t/partition=0/t+0+0000000002.snappy.parquet",
    ]


def test_a_renamed_connector_with_manifests_continues_where_the_former_one_ended(tmp_path: Path) -> None:
    first = Writing(tmp_path, flush_size="2", layout="manifest")
    first.put(records(0, 3))
    second = Writing(tmp_path, flush_size="2", layout="manifest", name="s2", renamed_from="s")
    assert second.context.take_rewinds() == {HERE: 2}
    second.put(records(2, 4), first=2)
    second.put(records(6, 2), first=6)
    rows = [row["id"] for name in second.files() if name.endswith(".parquet") for row in second.rows(name)]
    assert sorted(rows) == list(range(8))
    again = Writing(tmp_path, flush_size="2", layout="manifest", name="s2", renamed_from="s")
    again.put(records(8, 2), first=8)
    assert len([one for one in again.files() if one.startswith("_manifests/s2/")]) == 4


def test_connectors_of_one_name_in_two_kafka_clusters_are_told_apart() -> None:
    store = MemoryStore()
    claimed(store, "a")  # A mark of an older version.
    claimed(store, "a", cluster="one")
    claimed(store, "a", cluster="one")
    claimed(store, "a")
    with pytest.raises(ConnectException, match=r"The connector a of the Kafka cluster one writes .* renamed.from=a, "):
        claimed(store, "a", cluster="two")
    with pytest.raises(ConnectException, match=r"The connector a writes"):
        claimed(store, "b", cluster="two")
    assert list(store.files) == ["_owners/out/t/t/a", "_owners/out/t/t/a@/one"]


def test_a_connector_that_moves_to_another_kafka_cluster_takes_its_files_along() -> None:
    store = MemoryStore()
    claimed(store, "a", cluster="one")
    claimed(store, "a", cluster="two", renamed_from="a")
    claimed(store, "a", cluster="two")
    with pytest.raises(ConnectException, match="of the Kafka cluster two"):
        claimed(store, "a", cluster="one")
    claimed(store, "new", renamed_from="a", cluster="three")
    assert "_owners/out/t/t/new@/three" in store.files


@pytest.mark.parametrize("layout", ["offsets", "manifest"])
def test_a_sink_of_another_kafka_cluster_is_refused_before_it_takes_offsets(tmp_path: Path, layout: str) -> None:
    def write(cluster: str, first: int = 0, renamed_from: str = "") -> None:
        sink = Writing(tmp_path, cluster=cluster, layout=layout, flush_size="1", renamed_from=renamed_from)
        try:
            sink.put(records(first, 2), first=first)
        finally:
            sink.task.stop()

    write("one")
    with pytest.raises(ConnectException, match="of the Kafka cluster one"):
        write("two")
    write("two", 2, renamed_from="s")
