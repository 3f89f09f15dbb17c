"""Keys and headers in files beside those of the values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fastavro
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv, orc
from tests.unit.connectors.files.writing import Writing, frame, records, schemaless

from penstock.api import SinkFrame

BOTH: Any = {"store_kafka_keys": "true", "store_kafka_headers": "true"}
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def rows(path: Path) -> Any:
    match path.suffix:
        case ".avro":
            with path.open("rb") as file:
                return list(fastavro.reader(file))
        case ".parquet":
            return pq.ParquetFile(path).read().to_pylist()
        case ".orc":
            return orc.read_table(path).to_pylist()
        case ".csv":
            return csv.read_csv(path).to_pylist()
        case ".json":
            return [orjson.loads(line) for line in path.read_bytes().splitlines()]
    return path.read_bytes().split(b"\n")[:-1]


def with_headers(count: int, first: int, keys: Sequence[Any] | pa.Array, context: Any) -> SinkFrame:
    made = frame(records(first, count), first=first, keys=keys, context=context)
    headers = pa.array([[{"key": "n", "value": str(n).encode()}] for n in range(first, first + count)], HEADERS)
    at = made.table.column_names.index("headers")
    object.__setattr__(made, "table", made.table.set_column(at, "headers", headers))
    return made


def beside(writing: Writing, what: str) -> list[Any]:
    """The rows of all files of keys or headers, as their offsets are."""
    names = [one for one in writing.files() if f".{what}." in one]
    return [row for name in names for row in rows(writing.directory / "topics" / name)]


@pytest.mark.parametrize("values", ["parquet", "json", "avro", "csv", "orc"])
@pytest.mark.parametrize("keys", ["parquet", "json", "avro", "csv", "orc", "bytes"])
def test_row_i_of_the_keys_is_the_key_of_row_i_in_every_format(tmp_path: Path, values: str, keys: str) -> None:
    named: Any = {"format_class": values, "keys_format_class": keys, "headers_format_class": "json", "flush_size": "3"}
    writing = Writing(tmp_path, **BOTH, **named)
    writing.task.put(with_headers(5, 0, [f"k{n}" for n in range(5)], writing.context))
    writing.commit(5, closing=True)
    writing.task.stop()
    expected: list[Any] = [f"k{n}" for n in range(5)]
    if keys == "bytes":
        expected = [one.encode() for one in expected]
    elif keys != "json":
        expected = [{"key": one} for one in expected]
    assert beside(writing, "keys") == expected
    assert [one[0]["key"] for one in beside(writing, "headers")] == ["n"] * 5
    assert len(writing.files()) == 6


@pytest.mark.parametrize(("keys", "nothing"), [("avro", {"key": None}), ("json", None), ("bytes", b"")])
def test_keys_and_headers_that_are_missing_keep_their_rows(tmp_path: Path, keys: str, nothing: object) -> None:
    writing = Writing(tmp_path, **BOTH, keys_format_class=keys)
    writing.put(records(0, 2))
    writing.put(records(2, 1), first=2, keys=["k"])
    writing.commit(3, closing=True)
    writing.task.stop()
    assert beside(writing, "keys")[:2] == [nothing, nothing]
    assert beside(writing, "headers") == [{"headers": []}] * 3
    assert writing.files() == [
        "t/partition=0/t+0+0000000000.headers.avro",
        f"t/partition=0/t+0+0000000000.keys.{keys.replace('bytes', 'bin')}",
        "t/partition=0/t+0+0000000000.snappy.parquet",
    ]


def test_keys_without_a_schema_and_structs_have_their_fields_as_columns(tmp_path: Path) -> None:
    writing = Writing(tmp_path, store_kafka_keys="true", keys_format_class="parquet")
    writing.put(records(0, 2), keys=schemaless([{"a": 1}, {"a": 2.5, "b": "x"}]))
    writing.put(records(2, 1), first=2, keys=schemaless([None]))
    writing.commit(3, closing=True)
    writing.task.stop()
    assert beside(writing, "keys") == [{"a": 1.0, "b": None}, {"a": 2.5, "b": "x"}, {"a": None, "b": None}]


def test_rows_that_go_to_many_directories_and_to_disk_keep_their_keys(tmp_path: Path) -> None:
    writing = Writing(
        tmp_path, **BOTH, partitioner_class="field", partition_field_name="name", buffer_bytes=str(1 << 20)
    )
    for first in range(0, 6000, 1000):
        values = [{"id": n, "name": f"n{n % 7}" + "x" * 150} for n in range(first, first + 1000)]
        writing.put(values, first=first, keys=[f"k{n}" * 20 for n in range(first, first + 1000)])
    writing.commit(6000, closing=True)
    writing.task.stop()
    for name in (one for one in writing.files() if one.endswith(".parquet")):
        ids = [row["id"] for row in writing.rows(name)]
        keys = rows(tmp_path / "topics" / name.replace(".snappy.parquet", ".keys.avro"))
        assert [row["key"] for row in keys] == [f"k{n}" * 20 for n in ids]


def test_whatever_kill_there_was_each_file_has_the_one_beside_it(tmp_path: Path) -> None:
    """Files that a run which was killed has closed elsewhere go with those beside them."""
    for last in range(1, 9):
        place, puts = tmp_path / str(last), 0
        committed = 0
        for flush in (3, 4, 4):
            writing = Writing(place, store_kafka_keys="true", keys_format_class="json", flush_size=str(flush))
            put = writing.task._rolling._store.put

            def dying(*args: Any, put: Any = put, last: int = last) -> None:
                nonlocal puts
                puts += 1
                if puts == last:
                    raise KeyboardInterrupt
                put(*args)

            writing.task._rolling._store.put = dying  # type: ignore[assignment,method-assign]
            try:
                writing.put(
                    records(committed, 10 - committed), first=committed, keys=list(map(str, range(committed, 10)))
                )
                committed = writing.commit(10, closing=True) or 0
            except KeyboardInterrupt:
                continue
            finally:
                writing.task.stop()
            if committed == 10:
                break
        values = [one for one in writing.files() if one.endswith(".parquet")]
        ids = [[row["id"] for row in writing.rows(one)] for one in values]
        assert sorted(one for part in ids for one in part) == list(range(10)), last
        found = [rows(place / "topics" / one.replace(".snappy.parquet", ".keys.json")) for one in values]
        assert [[int(one) for one in part] for part in found] == ids
        assert len(writing.files()) == 2 * len(values)
