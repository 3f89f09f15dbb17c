"""Files of several partitions with a manifest: each record in one file, whatever step is the last of a process.

Two connectors that write the same files are named, and a connector that was renamed continues.
"""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.connectors.files.writing import HERE, Context, Writing, frame, records
from tests.unit.files.test_rolling import lines

from penstock.api import OffsetAndMetadata, SinkFrame, TopicPartition
from penstock.errors import ConnectException, OwnershipLostException, RetriableException
from penstock.files import FileNames, Owners, RollingFiles, Rotation, Rows
from penstock.testing import MemoryStore
from penstock.testing.kit.lives import KilledException

PLACES = (TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2))
COUNT = 10


class Seeking(Context):
    """A context that remembers where the task wants to read on."""

    def offset(self, offsets: Any, offset: int | None = None) -> None:
        self.sought: dict[TopicPartition, int] = dict(offsets)


class Task:
    """A task of all partitions; ids are 100 times the partition, and the offset."""

    def __init__(self, store: MemoryStore, count: int = 8, directories: int = 1, **rotation: Any) -> None:
        self.context = Seeking({}, tolerant=True)
        self.context.sought = {}
        self.now = 0
        self.directories = directories
        names = FileNames(extension=".json")
        self.files = RollingFiles(
            self.context,
            store,
            Rotation(count, **rotation),
            lines,
            names,
            root="out",
            manifest="c",
            clock=lambda: self.now,
        )

    def open(self, places: Collection[TopicPartition] = PLACES) -> Mapping[TopicPartition, int]:
        self.files.open(places)
        return self.context.sought

    def put(self, place: TopicPartition, first: int, count: int) -> None:
        values = records(100 * place.partition + first, count)
        self.files.put(frame(values, first=first, partition=place.partition), self.take)

    def take(self, place: TopicPartition, part: SinkFrame) -> None:
        offsets = part.origin.column("offset").to_numpy()
        table = pa.Table.from_struct_array(part.table["value"])
        directories = [f"d{number}" for number in range(self.directories)]
        times = part.table.column("timestamp").to_numpy()
        self.files.append(place, Rows(table, offsets, times, offsets % self.directories, directories))

    def run(self, committed: dict[TopicPartition, int], closing: bool = True) -> None:
        """Reads from where the store, or else Kafka, says to the end, two records at a time."""
        starts = {**committed, **self.open()}
        for first in range(0, COUNT, 2):
            for place in PLACES:
                begin = max(first, starts.get(place, 0))
                if begin < first + 2:
                    self.put(place, begin, first + 2 - begin)
            self.commit(committed, first + 2)
        if closing:
            self.commit(committed, COUNT, closing=True)

    def commit(self, committed: dict[TopicPartition, int], reached: int, closing: bool = False) -> None:
        self.context.closing = closing
        found = self.files.pre_commit({place: OffsetAndMetadata(reached) for place in PLACES})
        committed.update({place: one.offset for place, one in found.items()})


def ids(data: bytes) -> list[int]:
    return [int(one) for one in data.split()]


def there(store: MemoryStore) -> list[int]:
    """The records of all files that are there, as a reader sees them that knows nothing of manifests."""
    return sorted(one for key, data in store.files.items() if "/_" not in key for one in ids(data))


def counted(store: MemoryStore) -> list[int]:
    """The records of the files that manifests name."""
    manifests = [json.loads(data) for key, data in store.files.items() if "/_manifests/c/" in key]
    files = [one["file"] for manifest in manifests if manifest for one in manifest["files"]]
    return sorted(one for key in files for one in ids(store.files[key]))


ALL = sorted(100 * place.partition + offset for place in PLACES for offset in range(COUNT))


def test_the_records_of_all_partitions_are_in_few_files_and_the_manifest_says_which_they_are() -> None:
    store = MemoryStore()
    task = Task(store, count=1000, directories=2, schedule_ms=1000)
    committed: dict[TopicPartition, int] = {}
    task.run(committed, closing=False)
    assert store.files == {}
    assert committed == dict.fromkeys(PLACES, 0)
    task.now = 1000
    task.context.call()
    task.commit(committed, COUNT)
    assert committed == dict.fromkeys(PLACES, COUNT)
    data = sorted(key for key in store.files if "/_" not in key)
    assert [key.rpartition("/")[0] for key in data] == ["out/d0", "out/d1"]
    (manifest,) = (json.loads(one) for key, one in store.files.items() if "/_manifests/" in key)
    assert manifest["ranges"] == [{"topic": "t", "partition": p, "from": 0, "to": COUNT} for p in range(3)]
    assert [(one["file"], one["rows"]) for one in manifest["files"]] == [(key, 15) for key in data]
    assert Task(store).open() == dict.fromkeys(PLACES, COUNT)


@pytest.mark.slow
@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
def test_each_record_is_in_one_file_whatever_change_of_the_store_is_the_last_of_a_process(behind: bool) -> None:
    whole = MemoryStore()
    Task(whole, directories=2).run({})
    assert there(whole) == counted(whole) == ALL
    for last in range(1, whole.changes + 1):
        # Every second one is killed a second time.
        for second in (4 if last % 2 == behind else 0,):
            store, committed = MemoryStore(), dict[TopicPartition, int]()
            for life, kill in enumerate((last, second, 0)):
                process = Process(store)
                if kill:
                    process.fail(kill, KilledException(), behind=behind)
                try:
                    Task(process, count=8 + life, directories=2).run(committed)
                except KilledException:
                    continue
                break
            assert there(store) == counted(store) == ALL, (last, second)
            # Those in front of the last ones go with the next commit.
            assert 3 <= len([key for key in store.files if "/_ranges/" in key]) <= 6


class Process(MemoryStore):
    """A store as one process sees it: behind its kill no thread of it changes anything more."""

    def __init__(self, disk: MemoryStore) -> None:
        super().__init__()
        self.files, self._versions, self._lock = disk.files, disk._versions, disk._lock
        self._is_dead = False

    def _change(self, change: Callable[[], Any]) -> Any:
        with self._lock:
            if self._is_dead:
                raise KilledException
            try:
                return super()._change(change)
            except KilledException:
                self._is_dead = True
                raise


class Freezing(MemoryStore):
    """Stops the thread that makes a certain change until it may go on."""

    def __init__(self, change: int) -> None:
        super().__init__()
        self.frozen, self.thaw = threading.Event(), threading.Event()
        self._at = change
        self._lives = 0

    def _change(self, change: Callable[[], Any]) -> Any:
        if threading.current_thread().name == "frozen":
            self._lives += 1
            if self._lives == self._at:
                self.frozen.set()
                assert self.thaw.wait(20)
        return super()._change(change)


@pytest.mark.slow
def test_a_task_that_stood_still_and_was_replaced_commits_nothing_more() -> None:
    whole = MemoryStore()
    Task(whole).run({})
    for change in range(1, whole.changes + 1):
        store = Freezing(change)
        errors: list[BaseException] = []

        def zombie(store: Freezing = store, errors: list[BaseException] = errors) -> None:
            try:
                Task(store).run({})
            except OwnershipLostException as error:
                errors.append(error)

        thread = threading.Thread(target=zombie, name="frozen")
        thread.start()
        assert store.frozen.wait(20)
        # What Kafka has of the other one's offsets is a commit behind, or all of it.
        Task(store, count=5).run({})
        store.thaw.set()
        thread.join(20)
        assert counted(store) == ALL, change


def test_two_tasks_that_both_believe_to_own_a_partition_write_each_range_once() -> None:
    """Each is opened while the other one is at work, so that commits are undone which their owner goes on with."""
    store = MemoryStore()
    one, other = Task(store, count=4), Task(store, count=4)
    one.open()
    other.open()
    one.put(PLACES[0], 0, 4)
    with pytest.raises(OwnershipLostException, match="files of t-0, from offset 0 on"):
        other.put(PLACES[0], 0, 4)
    other.files.close(PLACES)
    assert other.open() == {PLACES[0]: 4}
    other.put(PLACES[0], 4, 4)
    with pytest.raises(OwnershipLostException):
        one.put(PLACES[0], 4, 4)
    assert counted(store) == list(range(8))


def test_two_tasks_that_leave_out_other_rows_in_front_collide_all_the_same() -> None:
    store = MemoryStore()
    one, other = Task(store, count=2), Task(store, count=2)
    one.open()
    one.put(PLACES[0], 0, 2)
    assert other.open() == {PLACES[0]: 2}
    other.put(PLACES[0], 2, 2)
    with pytest.raises(OwnershipLostException):
        one.put(PLACES[0], 3, 2)
    assert counted(store) == [0, 1, 2, 3]


def test_a_store_that_is_away_in_a_commit_is_tried_again_with_the_same_files() -> None:
    whole = MemoryStore()
    Task(whole).run({})
    for behind in (False, True):
        for change in range(1, 7):
            store = MemoryStore()
            task = Task(store, count=6)
            task.open()
            store.fail(change, RetriableException("away"), behind=behind)
            made = frame(records(0, 6))
            for _ in range(2):
                try:
                    task.files.put(made, task.take)
                except RetriableException:
                    continue
                break
            assert there(store) == counted(store) == list(range(6)), (behind, change)


def test_rows_of_partitions_that_stay_are_read_again_when_others_are_lost() -> None:
    store = MemoryStore()
    task = Task(store, count=1000)
    task.open()
    for place in PLACES:
        task.put(place, 0, 3)
    task.files.close([PLACES[1]])
    assert task.context.sought == {PLACES[0]: 0, PLACES[2]: 0}
    for place in (PLACES[0], PLACES[2]):
        task.put(place, 0, 3)
    task.commit({}, 3, closing=True)
    assert there(store) == [0, 1, 2, 200, 201, 202]


def test_ids_of_commits_sort_in_the_order_of_the_offsets_whatever_the_clocks_of_the_tasks_say() -> None:
    store, (here, *_) = MemoryStore(), PLACES
    for number, now in enumerate((5_000, 1_000, 1_000, 9_000, 0)):
        task = Task(store, count=2)
        task.now = now
        task.open([here])
        task.put(here, 2 * number, 2)
    names = sorted(key for key in store.files if "/_" not in key)
    assert [ids(store.files[key]) for key in names] == [[2 * number, 2 * number + 1] for number in range(5)]


def test_a_store_that_refuses_to_tell_unfinished_uploads_is_written_to_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Refusing(MemoryStore):
        def end_unfinished(self, directory: str, starts: tuple[str, ...]) -> int:
            raise ConnectException("no right to ListBucketMultipartUploads")

    store, committed = Refusing(), dict[TopicPartition, int]()
    process = Process(store)
    process.end_unfinished = store.end_unfinished  # type: ignore[method-assign]
    # The claims of the first commit are there, and its manifest is not.
    process.fail(5, KilledException())
    with pytest.raises(KilledException):
        Task(process).run(committed)
    Task(store).run(committed)
    assert counted(store) == there(store) == ALL
    # Both tasks when they got the partitions, and then the second one for each claim that it undoes.
    assert caplog.text.count("uploads of an earlier run, if there are any, stay: no right") > 2


def test_a_store_that_cannot_create_a_file_only_if_it_is_absent_is_refused() -> None:
    from penstock.connectors.files.sink.connector import FileSink

    props = {"name": "c", "topics": "t", "url": "memory://a", "layout": "manifest"}
    config = FileSink().validate(props)
    (text,) = [error for value in config.config_values for error in value.error_messages]
    assert "a directory or S3" in text
    with pytest.raises(ConnectException, match=r"another topics\.dir"):
        FileSink().alter_offsets({**props, "url": "/tmp"}, {PLACES[0]: 0})


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
