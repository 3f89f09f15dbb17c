"""Files of a sink task, from the calls of the task to a store that fails."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import pyarrow as pa
import pytest
from tests.unit.connectors.files.writing import HERE, Context, frame, records

from penstock.api import OffsetAndMetadata, SinkFrame, TopicPartition
from penstock.errors import ConnectException, RetriableException
from penstock.files import FileNames, RollingFiles, Rotation, Rows
from penstock.testing import MemoryStore
from penstock.testing.kit.lives import KilledException


def lines(tables: Iterator[pa.Table], schema: pa.Schema, out: BinaryIO) -> None:
    for table in tables:
        for row in table.to_pylist():
            out.write(json.dumps(row["id"]).encode() + b"\n")


class Rolling:
    """The files of a task that has begun; ids of records are their offsets."""

    def __init__(self, store: MemoryStore, **rotation: Any) -> None:
        self.now = 0
        self.context = Context({}, tolerant=True)
        self.files = RollingFiles(
            self.context,
            store,
            Rotation(**{"records": 1000, **rotation}),
            lines,
            FileNames(extension=".json", width=3),
            root="/out/",
            clock=lambda: self.now,
        )
        self.files.open([HERE])

    def put(self, first: int, count: int) -> None:
        made = frame(records(first, count), first=first, times=[10 * n for n in range(first, first + count)])
        self.files.put(made, self.take)

    def take(self, place: TopicPartition, part: SinkFrame) -> None:
        self.files.append(place, Rows.of(part, pa.Table.from_struct_array(part.table["value"]), "d"))

    def commit(self, reached: int, closing: bool = False) -> int:
        self.context.closing = closing
        found: Mapping[TopicPartition, OffsetAndMetadata] = self.files.pre_commit({HERE: OffsetAndMetadata(reached)})
        return found[HERE].offset


def contents(store: MemoryStore) -> dict[str, list[int]]:
    return {key: [int(one) for one in data.split()] for key, data in sorted(store.files.items())}


def ids(store: MemoryStore) -> list[int]:
    return [one for data in contents(store).values() for one in data]


@pytest.mark.parametrize(
    ("rotation", "expected"),
    [
        ({"records": 4}, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ({"size": 1}, [[0], [1], [2], [3], [4], [5], [6], [7], [8], [9]]),
        ({"span_ms": 40}, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ({"schedule_ms": 1000}, [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]]),
    ],
    ids=["count", "bytes", "record time", "clock"],
)
def test_files_are_closed_by_count_bytes_record_time_and_the_clock(rotation: Any, expected: list[list[int]]) -> None:
    store = MemoryStore()
    rolling = Rolling(store, **rotation)
    rolling.put(0, 10)
    if "schedule_ms" in rotation:
        assert (store.files, rolling.commit(10)) == ({}, 0)
        rolling.now = 1000
        rolling.context.call()
    assert list(contents(store).values()) == expected
    assert next(iter(store.files)) == "out/d/t+0+000.json"
    assert rolling.commit(10) == sum(map(len, expected))
    rolling.commit(10, closing=True)
    assert sorted(ids(store)) == list(range(10))
    rolling.files.stop()


def test_a_store_that_is_away_is_tried_again_and_nothing_is_taken_twice() -> None:
    store = MemoryStore()
    rolling = Rolling(store, records=3)
    made = frame(records(0, 7))
    store.fail(2, RetriableException("away"))
    with pytest.raises(RetriableException, match="away"):
        rolling.files.put(made, rolling.take)
    store.fail(1, RetriableException("away"))
    with pytest.raises(RetriableException, match="away"):
        rolling.files.put(made, rolling.take)
    rolling.files.put(made, rolling.take)
    assert contents(store) == {"out/d/t+0+000.json": [0, 1, 2], "out/d/t+0+003.json": [3, 4, 5]}
    assert rolling.commit(7) == 6
    with pytest.raises(ConnectException, match="partition 0 comes the offset 3, which was read before"):
        rolling.put(3, 2)


def test_each_record_is_in_one_file_whatever_change_of_the_store_is_the_last_of_a_process() -> None:
    """Also where a run that was killed has closed its files at other records."""
    for behind in (False, True):
        for last in range(1, 12):
            store = MemoryStore()
            store.fail(last, KilledException(), behind=behind)
            committed, records_a_file = 0, 3
            for _ in range(3):
                rolling = Rolling(store, records=records_a_file)
                try:
                    for first in range(committed, 20, 5):
                        rolling.put(first, min(5, 20 - first))
                        committed = rolling.commit(min(first + 5, 20))
                    rolling.commit(20, closing=True)
                except KilledException:
                    records_a_file = 4
                    continue
                finally:
                    rolling.files.stop()
                break
            assert sorted(ids(store)) == list(range(20)), (last, behind)


def test_rows_of_partitions_that_go_to_another_task_are_given_up() -> None:
    store = MemoryStore()
    rolling = Rolling(store)
    rolling.put(0, 5)
    rolling.files.close([HERE])
    rolling.put(0, 2)
    rolling.commit(2, closing=True)
    assert contents(store) == {"out/d/t+0+000.json": [0, 1]}
