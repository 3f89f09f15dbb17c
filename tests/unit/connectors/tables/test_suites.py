"""The table sink through the suites of the authors' kit, in each format."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import ClassVar

import pytest
from tests.unit.connectors.own_settings import OwnSettings
from tests.unit.connectors.tables import lakes

from penstock.api import SinkRecord
from penstock.connectors.tables import TableSink, TableSource
from penstock.data import INT64_SCHEMA, OPTIONAL_STRING_SCHEMA, SchemaBuilder, Struct
from penstock.testing import FrameSuite, SinkSuite, SourceSuite

#: Some of them take more than a second.
pytestmark = pytest.mark.slow

ROW = SchemaBuilder.struct().field("id", INT64_SCHEMA).field("name", OPTIONAL_STRING_SCHEMA).build()


def records() -> list[SinkRecord]:
    """Six records of two partitions."""
    return [
        SinkRecord(
            "t",
            number % 2,
            0,
            Struct(ROW).put("id", number).put("name", f"n{number}"),
            value_schema=ROW,
            key=number,
            key_schema=INT64_SCHEMA,
        )
        for number in range(6)
    ]


class TestDeltaAppends(OwnSettings, FrameSuite, SinkSuite):
    connector = TableSink
    most_kills = 5
    stop_s = 5.0  # A stop commits, which is work.
    timeout_s = 60.0
    format: ClassVar[str] = "delta"
    wrong = {"commit.interval.ms": "1", "write.mode": "replace", "table.format": "hudi"}

    def prepare(self, path: Path) -> dict[str, str]:
        self.path = path
        return lakes.settings(path, self.format)

    def records(self) -> list[SinkRecord]:
        return records()

    def contents(self) -> list[tuple[object, ...]]:
        return [(row["id"], row["name"]) for row in lakes.rows(self.path, self.format, "t")]


class TestIcebergAppends(TestDeltaAppends):
    format = "iceberg"
    own = ("table.format", "url")


class TestDeltaUpserts(TestDeltaAppends):
    deletes = True
    own: ClassVar[tuple[str, ...] | None] = ("write.mode", "id.columns")

    def prepare(self, path: Path) -> dict[str, str]:
        return {**super().prepare(path), "write.mode": "upsert", "id.columns": "id"}


class TestIcebergUpserts(TestDeltaUpserts):
    format = "iceberg"


class TestDeltaSource(OwnSettings, FrameSuite, SourceSuite):
    connector = TableSource
    most_kills = 5
    timeout_s = 60.0
    count = 9
    format: ClassVar[str] = "delta"
    wrong = {"start.from": "yesterday", "tables": "", "batch.max.rows": "0"}

    def prepare(self, path: Path) -> dict[str, str]:
        made = path.with_name("made")
        if not made.exists():
            lakes.make(path, self.format, "one", [[1, 2, 3], [4]])
            lakes.make(path, self.format, "two", [[5, 6, 7, 8], [9]])
            shutil.copytree(path / "lake", made)
        else:
            shutil.copytree(made, path / "lake")
        return {
            "table.format": self.format,
            "url": str(path / "lake"),
            "tables": "one,two",
            "topic.prefix": "t-",
            "key.columns": "id",
            "batch.max.rows": "2",
        }


class TestIcebergSource(TestDeltaSource):
    format = "iceberg"
    own = ("table.format", "url", "tables")
