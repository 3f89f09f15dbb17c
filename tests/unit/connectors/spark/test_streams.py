"""``mode=stream`` over a query in memory that stages micro-batches as Spark does: kills, restarts, lost directories."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.api import Chunk
from penstock.api.arrow import connect_schema
from penstock.connectors.spark.source import streams as module
from penstock.connectors.spark.source.chunks import QueryChunks
from penstock.connectors.spark.source.settings import SparkSourceConfig
from penstock.connectors.spark.source.streams import StagedBatches, StreamPosition, Streams
from penstock.errors import ConfigException, ConnectException, RetriableException

CONFIG = {"topic": "t", "mode": "stream", "spark.format": "rate"}


class Died(Exception):
    """The worker, or Spark, was killed."""


class Query:
    """A stream of batches with some files each, which a query stages; a double of Spark's session and its readers.

    Args:
        path: ``spark.checkpoint.path``.
        batches: The ids of each file of each batch.
    """

    def __init__(self, path: Path, batches: Sequence[Sequence[Sequence[int]]]) -> None:
        self.path, self.batches = path, batches
        #: How many batches it makes in one run; those that there are in its checkpoint.
        self.most = 100
        self.dies_at: int | None = None
        self.stopped = 0
        self.isActive = True

    # ---------------------------------------------------------------- a session
    def newSession(self) -> Query:
        return self

    @property
    def conf(self) -> Query:
        return self

    def set(self, name: str, value: str) -> None: ...

    def get(self, name: str) -> str:
        return "UTC"

    @property
    def read(self) -> Query:
        return self

    def schema(self, schema: pa.Schema) -> Query:
        return self

    def parquet(self, *paths: str) -> pa.Table:
        return pa.concat_tables([pq.read_table(one.removeprefix("file://")) for one in paths])

    # ---------------------------------------------------------------- a query
    def start(self) -> Query:
        whole = self.path / "c"
        lists, offsets = whole / "rows" / "_spark_metadata", whole / "checkpoint" / "offsets"
        for one in (lists, offsets):
            one.mkdir(parents=True, exist_ok=True)
        begun = 1 + max((int(one.name) for one in offsets.iterdir()), default=-1)
        for number in range(begun, min(len(self.batches), begun + self.most)):
            lines = ["v1"]
            for place, ids in enumerate(self.batches[number]):
                file = whole / "rows" / f"{number}-{place}.parquet"
                pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), file)
                lines.append(json.dumps({"path": f"file://{file}", "size": file.stat().st_size, "action": "add"}))
            if self.dies_at == number:
                # Its files are there, and count for nothing.
                raise Died
            (offsets / str(number)).write_text(f"v1\n{{}}\n{number + 7}")
            (lists / str(number)).write_text("\n".join(lines))
            (lists / f".{number}.crc").write_text("x")
        return self

    def awaitTermination(self, timeout_s: float) -> bool:
        return True

    def stop(self) -> None:
        self.stopped += 1


class Rows:
    """A DataFrame of the stream."""

    def __init__(self, query: Query) -> None:
        self.query, self.schema = query, pa.schema([("id", pa.int64())])
        self.asked: dict[str, object] = {}

    @property
    def writeStream(self) -> Rows:
        return self

    def format(self, name: str) -> Rows:
        return self

    def option(self, name: str, value: str) -> Rows:
        self.asked[name] = value
        return self

    def trigger(self, **own: bool) -> Rows:
        return self

    def start(self) -> Query:
        assert self.asked == {
            "path": f"{self.query.path}/c/rows",
            "checkpointLocation": f"{self.query.path}/c/checkpoint",
        }
        return self.query.start()


class Reader:
    """A ``SparkReader`` over that query."""

    piece_rows = 2

    def __init__(self, query: Query) -> None:
        self.query, self.session = query, lambda: query

    def on(self, session: Callable[[], Any]) -> Reader:
        return self

    def all(self, *, stream: bool) -> Rows:
        assert stream
        return Rows(self.query)

    def records(self, rows: Rows) -> QueryChunks:
        schema = connect_schema(rows.schema)
        assert schema is not None
        return QueryChunks(schema, "t", (), "")

    def translated(self) -> Any:
        from contextlib import nullcontext

        return nullcontext()

    def at_once(self, rows: pa.Table) -> pa.Table:
        return rows

    def pieces(self, rows: pa.Table) -> Iterator[pa.Table]:
        for first in range(0, rows.num_rows, self.piece_rows):
            yield rows.slice(first, self.piece_rows)


class Lab:
    """A task made anew as often as asked, a topic, and Kafka Connect's offsets, which move with the topic."""

    def __init__(self, path: Path, batches: Sequence[Sequence[Sequence[int]]]) -> None:
        self.path, self.query = path, Query(path, batches)
        self.topic: list[int] = []
        self.offset: Mapping[str, Any] | None = None
        self.settings = {**CONFIG, "spark.checkpoint.path": str(path)}

    def task(self) -> Streams:
        reader: Any = Reader(self.query)
        config = SparkSourceConfig.parse(self.settings)
        return Streams(config, reader, StagedBatches(str(self.path), "c"), lambda: self.offset, threading.Event())

    def run(self, *, kill_after: int | None = None, rows: int | None = None) -> int:
        """Reads until nothing is left; dies after some chunks, of the last of which only some rows are in the topic."""
        chunks = self.task().read(self.offset)
        for number, chunk in enumerate(chunks):
            if number == kill_after:
                if rows is not None and chunk.data is not None and chunk.offset_after is not None:
                    self.topic += ids_of(chunk)[:rows]
                    self.offset = chunk.offset_after(rows - 1)
                return number
            self.topic += ids_of(chunk)
            self.offset = chunk.offset
        return -1

    def files(self) -> list[str]:
        return sorted(one.name for one in (self.path / "c" / "rows").glob("*.parquet"))


def ids_of(chunk: Chunk) -> list[int]:
    data: Any = chunk.data
    found: list[int] = [] if data is None else data.column("id").to_pylist()
    return found


BATCHES = [[[0, 1, 2], [3]], [], [[4, 5, 6, 7, 8]], [[9], [], [10, 11]]]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path, BATCHES)


@pytest.mark.parametrize("large", [False, True], ids=["small batches", "large ones"])
@pytest.mark.parametrize("most", [1, 2, 100])
def test_each_row_is_delivered_once_in_order(lab: Lab, monkeypatch: pytest.MonkeyPatch, most: int, large: bool) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 0 if large else 1 << 20)
    lab.query.most = most
    for _ in range(5):
        lab.run()
    assert lab.topic == list(range(12))
    assert lab.offset == {"batch": 3, "source": "10"}
    assert lab.files() == ["3-0.parquet", "3-1.parquet", "3-2.parquet"], "what is delivered is gone"


@pytest.mark.parametrize("large", [False, True], ids=["small batches", "large ones"])
@pytest.mark.parametrize("rows", [None, 1])
def test_a_kill_after_any_chunk_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool, rows: int | None
) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 0 if large else 1 << 20)
    for kill_after in range(12):
        lab = Lab(tmp_path / str(kill_after), BATCHES)
        lab.query.most = 2
        lab.run(kill_after=kill_after, rows=rows)
        for _ in range(4):
            lab.run()
        assert lab.topic == list(range(12)), kill_after


def test_a_kill_after_each_chunk_of_all_runs(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 0)
    for _ in range(30):
        lab.run(kill_after=1, rows=1)
    assert lab.topic == list(range(12))


@pytest.mark.parametrize("batch", range(4))
def test_a_batch_that_the_query_dies_in_is_staged_again(lab: Lab, batch: int) -> None:
    lab.query.dies_at = batch
    with pytest.raises(Died):
        lab.run()
    lab.query.dies_at = None
    lab.run()
    assert lab.topic == list(range(12))


def test_batches_that_are_staged_come_before_the_query_starts(lab: Lab) -> None:
    lab.query.start()
    lab.query.dies_at = 4
    lab.run()
    assert lab.topic == list(range(12))


def test_offsets_that_are_removed_begin_the_query_anew(lab: Lab) -> None:
    lab.run()
    lab.run()
    lab.offset, lab.topic = None, []
    lab.run()
    assert lab.topic == list(range(12))
    assert lab.offset == {"batch": 3, "source": "10"}


def test_what_was_never_committed_is_not_begun_anew(lab: Lab) -> None:
    lab.query.most = 2
    lab.run(kill_after=0)
    lab.query.batches = [[[99]], *lab.query.batches[1:]]
    lab.run()
    lab.run()
    assert lab.topic == list(range(12)), "the batch is what was staged"


def test_another_directory_is_refused(lab: Lab, tmp_path: Path) -> None:
    lab.run()
    lab.path = lab.query.path = tmp_path / "elsewhere"
    with pytest.raises(ConnectException, match=r"the offset says batch 3, and .* has no batches: it is another"):
        lab.run()
    lab.path = lab.query.path = tmp_path
    lab.run()
    lab.offset = {"batch": 1, "source": ""}
    with pytest.raises(ConnectException, match="has batches 3 to 3"):
        lab.run()


@pytest.mark.parametrize("offset", [{"run": 1}, {"batch": "x"}, {"batch": None}, {"batch": 1, "file": "x"}])
def test_an_offset_of_another_mode_is_refused(offset: Mapping[str, Any]) -> None:
    with pytest.raises(ConnectException, match="none of mode=stream"):
        StreamPosition.of(offset)


def test_a_list_of_files_that_is_damaged_is_named(lab: Lab) -> None:
    lab.query.start()
    (lab.path / "c" / "rows" / "_spark_metadata" / "2").write_text("v1\nnothing\n")
    with pytest.raises(ConnectException, match="the list of the files of batch 2 cannot be read"):
        lab.run()
    assert lab.topic == [0, 1, 2, 3]


def test_a_file_system_that_refuses_is_tried_again(lab: Lab) -> None:
    lab.query.start()
    (lab.path / "c" / "rows" / "_spark_metadata" / "2").unlink()
    (lab.path / "c" / "rows" / "_spark_metadata" / "2").mkdir()
    staged = StagedBatches(str(lab.path), "c")
    assert staged.numbers() == [0, 1, 3]
    with pytest.raises(RetriableException, match="cannot be read"):
        staged.files(2)
    assert staged.source_offset(17) == ""


def test_a_path_that_nothing_can_write_to_is_refused() -> None:
    with pytest.raises(ConfigException, match=r"spark.checkpoint.path=nowhere://x/c is nothing that PyArrow"):
        StagedBatches("nowhere://x", "c")


@pytest.mark.parametrize(
    ("own", "setting"),
    [
        ({}, "spark.checkpoint.path"),
        ({"spark.checkpoint.path": "/x", "spark.format": "", "spark.query": "SELECT 1"}, "spark.format"),
        ({"spark.checkpoint.path": "/x", "spark.bulk": "true"}, "spark.bulk"),
        ({"spark.checkpoint.path": "/x", "spark.query": "SELECT 1"}, "spark.query"),
    ],
)
def test_settings_that_do_not_fit_are_named(own: Mapping[str, str], setting: str) -> None:
    with pytest.raises(ConfigException, match=f"^{re.escape(setting)}: "):
        SparkSourceConfig.parse({**CONFIG, **own})


def test_a_query_may_give_other_rows_each_time() -> None:
    own = {"spark.checkpoint.path": "/x", "spark.query": "SELECT value, rand() AS chance FROM {source}"}
    assert SparkSourceConfig.parse({**CONFIG, **own}).spark_query == own["spark.query"]
