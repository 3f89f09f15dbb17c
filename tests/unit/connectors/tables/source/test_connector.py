"""What the table source reads of each format: versions, changes, positions, faults."""

from __future__ import annotations

import datetime
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.unit.connectors.tables import lakes
from tests.unit.connectors.tables.writing import Writing, records

from penstock.connectors.tables import TableSource
from penstock.errors import ConnectException
from penstock.testing import run_source

formats = pytest.mark.parametrize("lake", lakes.FORMATS)


def settings(path: Path, lake: str, **more: str) -> dict[str, str]:
    found = {"name": "s", "table.format": lake, "url": str(path / "lake"), "tables": "t", "key.columns": "id"}
    return {**found, **{name.replace("_", "."): value for name, value in more.items()}}


def read(path: Path, lake: str, count: int, **more: str) -> list[tuple[int, str | None]]:
    """The keys and names of so many records."""
    with run_source(TableSource, settings(path, lake, **more)) as source:
        source.finish(count)
        return shown(source)


def polled(given: dict[str, str]) -> None:
    """Polls a few times."""
    with run_source(TableSource, given) as source:
        for _ in range(5):
            source.poll()


def shown(source: Any) -> list[tuple[int, str | None]]:
    return [(one.key.get("id"), None if one.value is None else one.value.get("name")) for one in source.committed]


@formats
def test_rows_come_first_and_then_what_versions_add(tmp_path: Path, lake: str) -> None:
    lakes.make(tmp_path, lake, "t", [[1, 2], [3]])
    with run_source(TableSource, settings(tmp_path, lake)) as source:
        source.finish(3)
        assert shown(source) == [(1, "n1"), (2, "n2"), (3, "n3")]
        lakes.make(tmp_path, lake, "t", [[4], [5, 6]])
        source.finish(6)
        assert shown(source)[3:] == [(4, "n4"), (5, "n5"), (6, "n6")]


@formats
def test_what_the_sink_wrote_comes_back(tmp_path: Path, lake: str) -> None:
    writing = Writing(tmp_path, lake, partition_by="name")
    for number in range(3):
        writing.put(records(number * 5, 5), first=number * 5)
        writing.tick()
    assert sorted(read(tmp_path, lake, 15)) == [(number, "x") for number in range(15)]


@formats
def test_it_begins_at_the_end_at_a_version_or_at_a_time(tmp_path: Path, lake: str) -> None:
    lakes.make(tmp_path, lake, "t", [[1], [2]])
    if lake == "delta":
        first = 0
    else:
        first = lakes.iceberg(tmp_path, "t").snapshots()[0].snapshot_id
    time.sleep(0.02)
    moment = datetime.datetime.now(datetime.UTC)
    time.sleep(0.02)
    lakes.make(tmp_path, lake, "t", [[3]])
    assert read(tmp_path, lake, 2, start_from=str(first)) == [(2, "n2"), (3, "n3")]
    assert read(tmp_path, lake, 1, start_from=moment.isoformat()) == [(3, "n3")]
    with run_source(TableSource, settings(tmp_path, lake, start_from="1" if lake == "delta" else str(first))) as source:
        source.finish(1)


def test_the_change_data_feed_gives_changes_and_tombstones(tmp_path: Path) -> None:
    uri = str(tmp_path / "lake/t")
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    DeltaTable.create(uri, schema, configuration={"delta.enableChangeDataFeed": "true"})
    write_deltalake(uri, pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]}), mode="append")
    table = DeltaTable(uri)
    table.delete("id = 2")
    table.update(updates={"name": "'z'"}, predicate="id = 3")
    table.optimize.compact()
    write_deltalake(uri, pa.table({"id": [4], "name": ["d"]}), mode="append")
    assert read(tmp_path, "delta", 6, start_from="0") == [(1, "a"), (2, "b"), (3, "c"), (2, None), (3, "z"), (4, "d")]


def test_upserts_of_the_sink_come_back_by_the_feed(tmp_path: Path) -> None:
    feed: dict[str, Any] = {"table_properties_delta.enableChangeDataFeed": "true"}
    writing = Writing(tmp_path, "delta", True, write_mode="upsert", id_columns="id", **feed)
    writing.put([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}], keys=pa.array([1, 2]))
    writing.tick()
    writing.put([{"id": 1, "name": "c"}, None], keys=pa.array([1, 2]), first=2)
    writing.tick()
    assert read(tmp_path, "delta", 4, start_from="0") == [(1, "a"), (2, "b"), (2, None), (1, "c")]


@formats
def test_changes_without_a_feed_stop_the_table_or_are_passed_over(tmp_path: Path, lake: str) -> None:
    lakes.make(tmp_path, lake, "t", [[1, 2]])
    if lake == "delta":
        start = "0"
        DeltaTable(str(tmp_path / "lake/t")).delete("id = 2")
    else:
        start = str(lakes.iceberg(tmp_path, "t").snapshots()[0].snapshot_id)
        with lakes.catalog(tmp_path) as there:
            there.load_table("default.t").delete("id == 2")
    lakes.make(tmp_path, lake, "t", [[3]])
    with pytest.raises(ConnectException, match="changes or deletes rows"):
        polled(settings(tmp_path, lake, start_from=start))
    assert read(tmp_path, lake, 1, start_from=start, behavior_on_rewrites="ignore") == [(3, "n3")]


@formats
def test_new_columns_come_with_the_versions_that_have_them(tmp_path: Path, lake: str) -> None:
    writing = Writing(tmp_path, lake)
    writing.put(records(0, 1))
    writing.tick()
    with run_source(TableSource, settings(tmp_path, lake)) as source:
        source.finish(1)
        kind = pa.struct([("id", pa.int64()), ("name", pa.string()), ("more", pa.string())])
        writing.put([{"id": 1, "name": "x", "more": "y"}], None, kind=kind, first=1)
        writing.tick()
        source.finish(2)
        assert str(source.values[1]) == "Struct{id=1,name=x,more=y}"


@formats
def test_a_table_that_is_not_there_and_a_key_that_it_has_not_are_named(tmp_path: Path, lake: str) -> None:
    lakes.make(tmp_path, lake, "t", [[1]])
    for more, text in (({"tables": "u"}, "There is no table u"), ({"key_columns": "k"}, "key.columns names k")):
        with pytest.raises(ConnectException, match=text):
            polled(settings(tmp_path, lake, **more))


def test_a_version_that_was_cleaned_up_is_named(tmp_path: Path) -> None:
    lakes.make(tmp_path, "delta", "t", [[1], [2], [3]])
    table = DeltaTable(str(tmp_path / "lake/t"))
    table.create_checkpoint()
    (tmp_path / "lake/t/_delta_log" / f"{1:020}.json").unlink()
    with pytest.raises(ConnectException, match="not in its log any more"):
        polled(settings(tmp_path, "delta", start_from="0"))
