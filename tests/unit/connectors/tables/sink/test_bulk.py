"""``tables.bulk=true``: what executors write of ranges, and what a task commits of it, in each lake."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.unit.connectors.files.writing import Context, frame, records
from tests.unit.connectors.tables import lakes
from tests.unit.connectors.tables.sink.test_rounds import MORE, WIDE, Steps
from tests.unit.connectors.tables.writing import Writing

from penstock.api import SinkFrame, TopicPartition
from penstock.api.bulk import TopicRange, WrittenRange
from penstock.connectors.tables import TableSink
from penstock.connectors.tables.delta import DeltaLakeTable
from penstock.connectors.tables.iceberg import IcebergTable
from penstock.connectors.tables.sink.bulk import TableBulkSinkTask
from penstock.connectors.tables.sink.task import TableSinkTask
from penstock.errors import ConfigException, ConnectException, RetriableException
from penstock.testing.kit.lives import KilledException

#: Some of them take more than a second.
pytestmark = pytest.mark.slow

formats = pytest.mark.parametrize("lake", lakes.FORMATS)
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Bulk:
    """A task, its executors, and the group's offsets, as the worker's driver has them."""

    def __init__(self, path: Path, lake: str, kafka: Mapping[TopicPartition, int] | None = None, **settings: str):
        self.path, self.lake = path, lake
        more = {"tables_bulk": "true", "bulk_range_rows": "4", **settings}
        self.props = {"topics": "t", **lakes.settings(path, lake, **more)}
        self.context = Context(self.props, True)
        self.task = TableBulkSinkTask()
        self.task.initialize(self.context)
        self.task.start(self.props)
        self.kafka = dict(kafka or {})
        places = [P0, P1]
        for place, offset in self.task.positions(places).items():
            self.kafka[place] = max(offset, self.kafka.get(place, 0))

    def frames(self, one: TopicRange, more_from: int) -> Iterator[SinkFrame]:
        """The messages of a range: their ids tell partitions apart, and later ones have more columns."""
        base = one.partition * 1000
        first = min(max(one.start, more_from), one.end)
        if one.start < first:
            rows = [{"id": base + n, "name": "ab"[n % 2]} for n in range(one.start, first)]
            yield frame(rows, first=one.start, partition=one.partition, context=self.context)
        if first < one.end:
            rows = [{"id": base + n, "name": "ab"[n % 2], "more": "y"} for n in range(first, one.end)]
            yield frame(rows, MORE, kind=WIDE, first=first, partition=one.partition, context=self.context)

    def written(self, ranges: Sequence[TopicRange], more_from: int = 1 << 40) -> list[WrittenRange]:
        """Has executors write ranges."""
        copy = pickle.dumps(self.task)
        found = []
        for one in ranges:
            on_executor = pickle.loads(copy)
            on_executor.context = self.context
            file = on_executor.write(replace(one, attempt="a"), self.frames(one, more_from))
            if file is not None:
                found.append(WrittenRange(one, pickle.loads(pickle.dumps(file)), one.end - one.start))
        return found

    def run(self, ends: Mapping[TopicPartition, int], more_from: int = 1 << 40) -> None:
        """Writes all that there is, in one job."""
        there = [TopicRange(*place, self.kafka.get(place, 0), end) for place, end in ends.items()]
        ranges = self.task.plan([one for one in there if one.start < one.end])
        if ranges:
            self.task.commit(self.written(ranges, more_from), ends)
        self.kafka.update(ends)

    def ids(self, table: str = "t") -> list[int]:
        """The ids in a table, in order."""
        return sorted(row["id"] for row in lakes.rows(self.path, self.lake, table))


ENDS = {P0: 8, P1: 12}
ALL = [*range(8), *range(1000, 1012)]


@formats
def test_a_job_is_one_commit_with_the_offsets_behind_it(tmp_path: Path, lake: str) -> None:
    bulk = Bulk(tmp_path, lake)
    bulk.run(ENDS)
    assert bulk.ids() == ALL
    if lake == "delta":
        version = DeltaTable(str(tmp_path / "lake/t")).history(1)[0]
        assert [one["to"] for one in json.loads(version["penstock.offsets"])] == [8, 12]
    else:
        (snapshot,) = lakes.iceberg(tmp_path, "t").snapshots()
        assert json.loads(snapshot.summary["penstock.offsets.s"]) == {"t": {"0": 8, "1": 12}}
    again = Bulk(tmp_path, lake)
    assert again.kafka == ENDS
    again.run({P0: 16, P1: 12})
    assert again.ids() == [*range(16), *range(1000, 1012)]


@formats
def test_a_sink_goes_over_to_bulk_and_back_without_a_loss(tmp_path: Path, lake: str) -> None:
    writing = Writing(tmp_path, lake)
    writing.put(records(0, 3))
    writing.tick()
    bulk = Bulk(tmp_path, lake)
    assert bulk.kafka == {P0: 3}
    bulk.run({P0: 11})
    again = Writing(tmp_path, lake)
    assert again.context.rewound == {P0: 11}
    again.put(records(11, 2), first=11)
    again.tick()
    assert bulk.ids() == list(range(13))


@formats
@pytest.mark.parametrize("routes", [False, True])
def test_a_kill_at_any_step_loses_and_doubles_nothing(tmp_path: Path, lake: str, routes: bool) -> None:
    own = {"tables": "a,b", "route_field": "name", "tables_a_route_regex": "a", "tables_b_route_regex": "b"}
    settings: dict[str, Any] = own if routes else {"tables": "a,b"}
    # A few of some sixty steps.
    for step in lakes.kills(13 if lake == "delta" else 23, first=7 if routes else 0):
        path = tmp_path / str(step)
        path.mkdir()
        steps = Steps(step)
        kafka: dict[TopicPartition, int] = {}
        try:
            with ExitStack() as stack:
                steps.watch(stack, lake)
                first = Bulk(path, lake, **settings)
                first.run({P0: 4, P1: 4})
                kafka = dict(first.kafka)
                first.run(ENDS, more_from=6)
                kafka = dict(first.kafka)
        except KilledException:
            pass
        again = Bulk(path, lake, kafka, **settings)
        again.run({P0: 12, P1: 16}, more_from=6)
        wanted = [*range(12), *range(1000, 1016)]
        for table, rest in (("a", 0), ("b", 1)):
            assert again.ids(table) == [one for one in wanted if not routes or one % 2 == rest], (step, table)
        if steps.left >= 0:
            break
    assert step > 10


@formats
def test_a_commit_whose_end_was_not_seen_is_not_made_again(tmp_path: Path, lake: str) -> None:
    bulk = Bulk(tmp_path, lake)
    files = bulk.written(bulk.task.plan([TopicRange(*P0, 0, 8)]))
    kind = DeltaLakeTable if lake == "delta" else IcebergTable
    add = kind.add

    def cut(*args: Any) -> None:
        add(*args)
        raise RetriableException("the connection was closed")

    with mock.patch.object(kind, "add", cut), pytest.raises(RetriableException):
        bulk.task.commit(files, {P0: 8})
    bulk.task.commit(files, {P0: 8})
    assert bulk.ids() == list(range(8))


@formats
def test_two_tasks_with_one_partition_write_each_record_once(tmp_path: Path, lake: str) -> None:
    old = Bulk(tmp_path, lake)
    files = old.written(old.task.plan([TopicRange(*P0, 0, 8)]))
    new = Bulk(tmp_path, lake)
    new.run({P0: 12})
    with pytest.raises(ConnectException, match=r"another task has written them. Restart the task"):
        old.task.commit(files, {P0: 8})
    assert new.ids() == list(range(12))


@formats
def test_executors_that_saw_different_positions_commit_nothing(tmp_path: Path, lake: str) -> None:
    bulk = Bulk(tmp_path, lake)
    bulk.run({P0: 4})
    files = bulk.written([TopicRange(*P0, 4, 8)])
    Bulk(tmp_path, lake).run({P0: 8})
    files += bulk.written([TopicRange(*P0, 8, 12)])
    with pytest.raises(ConnectException, match="Restart the task"):
        bulk.task.commit(files, {P0: 12})
    assert bulk.ids() == list(range(8))


@formats
def test_a_job_without_a_row_moves_no_table(tmp_path: Path, lake: str) -> None:
    bulk = Bulk(tmp_path, lake)
    bulk.task.commit([], {P0: 8})
    assert bulk.task.write(TopicRange(*P0, 0, 8), iter(())) is None
    assert bulk.ids() == []


@formats
def test_bad_rows_are_reported_and_memory_has_an_end(tmp_path: Path, lake: str) -> None:
    bulk = Bulk(tmp_path, lake, buffer_bytes=str(1 << 20))
    rows = [{"id": n, "name": "x" * 700} for n in range(2000)]
    given = [frame([*rows, None], context=bulk.context), frame(rows, first=2001, context=bulk.context)]
    file = bulk.task.write(TopicRange(*P0, 0, 4001), iter(given))
    bulk.task.commit([WrittenRange(TopicRange(*P0, 0, 4001), file, 4001)], {P0: 4001})
    assert len(bulk.ids()) == 4000
    assert [offset for offset, _ in bulk.context.reported] == [2000]


@formats
def test_tables_that_are_gone_or_made_again_are_named(tmp_path: Path, lake: str) -> None:
    bulk = Bulk(tmp_path, lake)
    files = bulk.written([TopicRange(*P0, 0, 4)])
    for one in (tmp_path / "lake").rglob("*.parquet"):
        one.unlink()
    with pytest.raises(ConnectException, match=r"or the files were removed\. Restart the task"):
        bulk.task.commit(files, {P0: 4})
    made = bulk.written([TopicRange(*P0, 0, 4)])
    missing = [replace(one, file=[replace(each, table="other") for each in one.file]) for one in made]  # type: ignore[attr-defined]
    with pytest.raises(ConnectException, match="The table other is gone"):
        bulk.task.commit(missing, {P0: 4})


@formats
def test_offsets_that_a_user_sets_count_for_ranges(tmp_path: Path, lake: str) -> None:
    bulk = Bulk(tmp_path, lake)
    bulk.run({P0: 8})
    assert TableSink().alter_offsets(bulk.props, {P0: 6})
    again = Bulk(tmp_path, lake)
    assert again.kafka == {P0: 6}
    again.run({P0: 10})
    assert again.ids() == sorted([*range(10), 6, 7])


@formats
def test_small_files_are_joined_after_a_commit(tmp_path: Path, lake: str) -> None:
    bulk = Bulk(tmp_path, lake, compact_small_files="true")
    bulk.run({P0: 4})
    bulk.task._maintenance._due = 0
    with mock.patch.object(bulk.context, "assignment", return_value=frozenset([P0])):
        bulk.run({P0: 8})
    assert bulk.ids() == list(range(8))
    if lake == "delta":
        assert len(DeltaTable(str(tmp_path / "lake/t")).file_uris()) == 1
    else:
        assert len(list(lakes.iceberg(tmp_path, "t").scan().plan_files())) == 1


def test_short_ranges_wait_for_the_interval(tmp_path: Path) -> None:
    bulk = Bulk(tmp_path, "delta", commit_interval_ms="60000")
    assert [one.end for one in bulk.task.plan([TopicRange(*P0, 0, 10)])] == [4, 8]
    assert bulk.task.plan([TopicRange(*P0, 8, 10)]) == []


def test_a_relative_directory_is_one_of_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for lake in lakes.FORMATS:
        bulk = Bulk(tmp_path, lake, url="lake")
        copy = pickle.dumps(bulk.task)
        (tmp_path / "elsewhere").mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / "elsewhere")
        on_executor = pickle.loads(copy)
        on_executor.context = bulk.context
        one = TopicRange(*P0, 0, 4)
        file = on_executor.write(one, bulk.frames(one, 9))
        bulk.task.commit([WrittenRange(one, file, 4)], {P0: 4})
        assert bulk.ids() == [0, 1, 2, 3]
        monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"write.mode": "upsert", "id.columns": "id"}, r"tables\.bulk: .* write\.mode=upsert replaces files"),
        ({"tables.commit": "connector"}, r"tables\.commit: connector is for tasks that write themselves"),
    ],
)
def test_what_executors_cannot_do_is_refused(tmp_path: Path, settings: dict[str, str], text: str) -> None:
    props = {"topics": "t", **lakes.settings(tmp_path, "delta"), "tables.bulk": "true", **settings}
    with pytest.raises(ConfigException, match=text):
        TableBulkSinkTask().start(props)
    said = [one for value in TableSink().validate(props).config_values for one in value.error_messages]
    assert len(said) == 1


def test_the_setting_chooses_the_task(tmp_path: Path) -> None:
    for text, kind in (("true", TableBulkSinkTask), ("false", TableSinkTask)):
        connector = TableSink()
        connector.start({"topics": "t", **lakes.settings(tmp_path, "delta"), "tables.bulk": text})
        assert connector.task_class() is kind


def test_an_executor_without_the_library_says_so(tmp_path: Path) -> None:
    bulk = Bulk(tmp_path, "delta")
    with (
        mock.patch("penstock.connectors.tables.places.find_spec", return_value=None),
        pytest.raises(ConnectException, match=r"On an executor .* pip install .* spark\.archives"),
    ):
        bulk.task.write(TopicRange(*P0, 0, 4), iter(()))


def test_columns_of_json_without_a_schema_are_typed(tmp_path: Path) -> None:
    bulk = Bulk(tmp_path, "delta")
    rows = pa.array([{"id": 1, "more": {"a": [1.5]}}, {"id": 2, "more": None}])
    given = frame(rows, None, context=bulk.context)
    one = TopicRange(*P0, 0, 2)
    bulk.task.commit([WrittenRange(one, bulk.task.write(one, iter([given])), 2)], {P0: 2})
    assert sorted(lakes.rows(tmp_path, "delta", "t"), key=str) == [
        {"id": 1, "more": {"a": [1.5]}},
        {"id": 2, "more": None},
    ]
