"""The archiver of the documentation."""

from __future__ import annotations

from pathlib import Path

import fastavro
import pyarrow.parquet as pq
import pytest
from examples.archiver import Archiver
from tests.shares import QUICK

from penstock.api import SinkRecord
from penstock.data import INT64_SCHEMA, OPTIONAL_STRING_SCHEMA, STRING_SCHEMA, SchemaBuilder, Struct
from penstock.errors import ConnectException
from penstock.testing import FrameSuite, SinkSuite, numbered, run_sink

ROW = SchemaBuilder.struct().field("id", INT64_SCHEMA).field("name", OPTIONAL_STRING_SCHEMA).build()


def records(count: int = 7) -> list[SinkRecord]:
    return [
        SinkRecord(
            "t",
            number % 2,
            0,
            Struct(ROW).put("id", number).put("name", f"n{number}"),
            value_schema=ROW,
            key=str(number),
            key_schema=STRING_SCHEMA,
        )
        for number in range(count)
    ]


class TestParquet(FrameSuite, SinkSuite):
    connector = Archiver
    most_kills = 5 if QUICK else 16
    format = "parquet"
    wrong = {"format": "csv", "file.rows": "0"}

    def prepare(self, path: Path) -> dict[str, str]:
        self.path = path
        return {"url": str(path), "format": self.format, "file.rows": "3"}

    def records(self) -> list[SinkRecord]:
        return records()

    def contents(self) -> list[object]:
        return [row for file in sorted(self.path.glob("t+*")) for row in pq.read_table(file).to_pylist()]


class TestAvro(TestParquet):
    format = "avro"

    def contents(self) -> list[object]:
        rows: list[object] = []
        for file in sorted(self.path.glob("t+*")):
            with file.open("rb") as data:
                rows += fastavro.reader(data)
        return rows


def test_a_file_is_complete_by_rows_and_at_the_end(tmp_path: Path) -> None:
    settings = {"url": str(tmp_path), "file.rows": "3"}
    given = [one for one in records(14) if one.kafka_partition == 0]
    with run_sink(Archiver, settings, numbered(given)) as sink:
        sink.put(4)
        sink.commit()
        assert list(sink.committed.values()) == [3]
        sink.put(3)

    assert [pq.read_table(file).num_rows for file in sorted(tmp_path.glob("t+*"))] == [3, 3, 1]
    assert list(sink.committed.values()) == [7]


def test_a_field_that_avro_lacks_is_named(tmp_path: Path) -> None:
    nested = SchemaBuilder.struct().field("row", ROW).build()
    value = Struct(nested).put("row", Struct(ROW).put("id", 1))
    given = [SinkRecord("t", 0, 0, value, value_schema=nested)]
    with (
        pytest.raises(ConnectException, match="plain fields to Avro, and not row"),
        run_sink(Archiver, {"url": str(tmp_path), "format": "avro", "file.rows": "1"}, numbered(given)) as sink,
    ):
        sink.put()


def test_what_is_no_struct_is_reported(tmp_path: Path) -> None:
    given = [SinkRecord("t", 0, 0, "text"), SinkRecord("t", 0, 0, None)]
    with run_sink(Archiver, {"url": str(tmp_path)}, numbered(given)) as sink:
        sink.put()

    assert [text for _, text in sink.reported] == ["DataException: The archiver takes structs with a schema"] * 2
    assert list(sink.committed.values()) == [2]
