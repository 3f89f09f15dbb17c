"""The file source through the suites of the authors' kit, with files of every format."""

from __future__ import annotations

import gzip
import json
import lzma
from pathlib import Path
from typing import Any, ClassVar

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from tests.unit.connectors.own_settings import OwnSettings

from penstock.connectors.files import FileSource
from penstock.connectors.files.source.readers import columnar, reader, text
from penstock.testing import FrameSuite, SourceSuite

SETTINGS = {"topic": "t", "file.minimum.age.ms": "0", "empty.poll.wait.ms": "10"}
ROWS = [{"id": number, "name": f"name {number}"} for number in range(5)]


class Files(OwnSettings, FrameSuite, SourceSuite):
    """Three files of five rows, in blocks of a few rows."""

    __test__ = False
    connector = FileSource
    count = 15
    most_kills = 4
    own: ClassVar[tuple[str, ...] | None] = ()

    @pytest.fixture(autouse=True)
    def _small_blocks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in (columnar, reader):
            monkeypatch.setattr(module, "BLOCK_ROWS", 2)
        monkeypatch.setattr(text.blocks, "__defaults__", (None, 24))

    def prepare(self, path: Path) -> dict[str, str]:
        for name in ("a", "b", "c"):
            self.write(path / name)
        return {"url": str(path), **SETTINGS}

    def write(self, path: Path) -> None:
        raise NotImplementedError


class TestCsv(Files):
    __test__ = True
    most_kills = 12
    own = None

    def write(self, path: Path) -> None:
        lines = ["id,name", *(f"{row['id']},{row['name']}" for row in ROWS)]
        path.with_suffix(".csv").write_text("\n".join(lines))


class TestCsvWithBadRowsAndDeadLetters(Files):
    __test__ = True
    count = 21

    def prepare(self, path: Path) -> dict[str, str]:
        return {**super().prepare(path), "errors.deadletterqueue.topic.name": "bad"}

    def write(self, path: Path) -> None:
        lines = ["id,name", "1,a,b", *(f"{row['id']},{row['name']}" for row in ROWS), "7"]
        path.with_suffix(".csv").write_text("\n".join(lines))


class TestJson(Files):
    __test__ = True

    def write(self, path: Path) -> None:
        path.with_suffix(".jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))


class TestTextInGzip(Files):
    __test__ = True

    def write(self, path: Path) -> None:
        with gzip.open(path.with_suffix(".txt.gz"), "wt") as file:
            file.write("".join(f"{row['name']}\n" for row in ROWS))


class TestTextInOtherEncodings(Files):
    __test__ = True
    own = ("charset",)

    def prepare(self, path: Path) -> dict[str, str]:
        return {**super().prepare(path), "charset": "UTF-16"}

    def write(self, path: Path) -> None:
        data = "".join(f"{row['name']} ä\r\n" for row in ROWS).encode("utf-16")
        path.with_suffix(".txt.xz").write_bytes(lzma.compress(data))


class TestParquet(Files):
    __test__ = True

    def write(self, path: Path) -> None:
        pq.write_table(pa.Table.from_pylist(ROWS), path.with_suffix(".parquet"), row_group_size=3)


class TestOrc(Files):
    __test__ = True

    def write(self, path: Path) -> None:
        orc.write_table(pa.Table.from_pylist(ROWS), path.with_suffix(".orc"))


class TestAvro(Files):
    __test__ = True

    def write(self, path: Path) -> None:
        fields: list[Any] = [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}]
        with path.with_suffix(".avro").open("wb") as file:
            fastavro.writer(file, {"type": "record", "name": "Row", "fields": fields}, ROWS, sync_interval=20)


class TestPartsOfFiles(Files):
    __test__ = True
    own = ("split.bytes",)
    tasks_max = 3
    most_kills = 8

    def prepare(self, path: Path) -> dict[str, str]:
        return {**super().prepare(path), "split.bytes": "20"}

    def write(self, path: Path) -> None:
        path.with_suffix(".txt").write_text("".join(f"{row['name']}\n" for row in ROWS))


class TestFilesThatAreMoved(Files):
    __test__ = True
    own = ("finished.path", "cleanup.policy")

    def prepare(self, path: Path) -> dict[str, str]:
        return {**super().prepare(path), "finished.path": str(path / "finished"), "cleanup.policy": "MOVEBYDATE"}

    def write(self, path: Path) -> None:
        path.with_suffix(".txt").write_text("".join(f"{row['name']}\n" for row in ROWS))
