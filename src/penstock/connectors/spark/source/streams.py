"""The mode for formats with a reader of micro-batches (``readStream``): `Streams`, over `StagedBatches`.

A query of Spark moves what is new into files below ``spark.checkpoint.path``, a micro-batch at a time, each row once:
the position of the source, the boundaries of batches and the files of each are in the query's checkpoint. The task
sends batches to the topic from these files, so a batch that comes again has the same rows in the same order, whatever
its source is, and files of batches that are committed to Kafka Connect's offsets are removed.

Thread: the task's. Source: Spark's Structured Streaming, its checkpoints and its sink of files.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyarrow import fs

from penstock.api import Chunk
from penstock.connectors.spark.places import place_of, reachable
from penstock.connectors.spark.source.planning import MOST_BYTES, MOST_FILES
from penstock.connectors.spark.source.reading import SparkReader
from penstock.connectors.spark.source.settings import SparkSourceConfig
from penstock.errors import ConnectException

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.connectors.spark.source.chunks import QueryChunks

log = logging.getLogger(__name__)

Offset = Mapping[str, Any]
#: Spark's list of the files of each batch, below those files.
_LISTS: Final = "_spark_metadata"
_LOOK_S: Final = 0.5
#: Settings of the query's session: a list for each batch, until it is removed here.
_CONF: Final = {
    "spark.sql.caseSensitive": "true",
    "spark.sql.streaming.schemaInference": "true",
    "spark.sql.streaming.fileSink.log.compactInterval": "1000000000",
    "spark.sql.streaming.fileSink.log.deletion": "false",
}


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """The last row that is in Kafka.

    Attributes:
        batch: The number of the last batch of which rows are there; -1: none.
        file: The number of its first file that is not; None: all are.
        row: The number of rows of that file that are there.

    >>> StreamPosition.of({"batch": 3, "source": "17"}), StreamPosition.of({"batch": 3, "file": 1, "row": 20}).next
    (StreamPosition(batch=3, file=None, row=0), 3)
    """

    batch: int = -1
    file: int | None = None
    row: int = 0

    @classmethod
    def of(cls, offset: Offset | None) -> StreamPosition:
        """The position of an offset.

        Raises:
            ConnectException: It is none of this mode.
        """
        if offset is None:
            return cls()
        try:
            file = offset.get("file")
            return cls(int(offset["batch"]), None if file is None else int(file), int(offset.get("row", 0)))
        except (KeyError, TypeError, ValueError) as error:
            raise ConnectException(
                f"The offset {dict(offset)} is none of mode=stream: reset the connector's offsets, or give it "
                "another name"
            ) from error

    @property
    def next(self) -> int:
        """The batch to go on with."""
        return self.batch + 1 if self.file is None else self.batch


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file of a batch.

    Attributes:
        path: As Spark calls it.
        size: Its bytes.
    """

    path: str
    size: int


class StagedBatches:
    """The batches of one connector, as files.

    Args:
        path: ``spark.checkpoint.path``.
        connector: The connector's name.

    Attributes:
        rows: The directory of the files, as Spark calls it.
        checkpoint: The checkpoint of the query, as Spark calls it.

    Raises:
        ConfigException: PyArrow does not support the file system.
    """

    def __init__(self, path: str, connector: str) -> None:
        whole = f"{path.rstrip('/')}/{connector}"
        self.rows, self.checkpoint = f"{whole}/rows", f"{whole}/checkpoint"
        self._path = path
        self._fs, self._root = place_of(whole, "spark.checkpoint.path")

    def numbers(self) -> list[int]:
        """The numbers of the batches that are there, in order.

        Raises:
            RetriableException: The file system refuses.
        """
        with reachable(self._path, "read"):
            return sorted(int(name) for name in self._names(f"{self._root}/rows/{_LISTS}") if name.isdecimal())

    def files(self, batch: int) -> list[StagedFile]:
        """The files of a batch, in Spark's order.

        Raises:
            RetriableException: The file system refuses.
            ConnectException: The list of files is none of Spark's.
        """
        with reachable(self._path, "read"):
            _, *lines = self._lines(f"{self._root}/rows/{_LISTS}/{batch}")
        try:
            found = [json.loads(line) for line in lines]
            return [StagedFile(str(one["path"]), int(one["size"])) for one in found if one.get("action") != "delete"]
        except (ValueError, TypeError, KeyError) as error:
            raise ConnectException(
                f"{self._path}: the list of the files of batch {batch} cannot be read ({error}). Reset the "
                "connector's offsets to begin anew"
            ) from error

    def source_offset(self, batch: int) -> str:
        """The source's own position after a batch, as the checkpoint has it; "" if it has none any more.

        Raises:
            RetriableException: The file system refuses.
        """
        offsets: list[str] = []
        with reachable(self._path, "read"), suppress(FileNotFoundError):
            _, _, *offsets = self._lines(f"{self._root}/checkpoint/offsets/{batch}")
        if not offsets:
            return ""
        return offsets[0] if len(offsets) == 1 else json.dumps(offsets)

    def forget_before(self, batch: int) -> None:
        """Removes the files of batches that are not needed any more.

        Raises:
            RetriableException: The file system refuses.
        """
        for one in self.numbers():
            if one >= batch:
                return
            files = self.files(one)
            with reachable(self._path, "written"):
                for file in files:
                    _, place = place_of(file.path, "spark.checkpoint.path")
                    with suppress(FileNotFoundError):
                        self._fs.delete_file(place)
                # Last: a crash in between finds it again.
                self._fs.delete_file(f"{self._root}/rows/{_LISTS}/{one}")

    def clear(self) -> None:
        """Removes everything: the query begins anew.

        Raises:
            RetriableException: The file system refuses.
        """
        with reachable(self._path, "written"), suppress(FileNotFoundError):
            self._fs.delete_dir(self._root)

    def _names(self, directory: str) -> list[str]:
        found = self._fs.get_file_info(fs.FileSelector(directory, allow_not_found=True))
        return [one.base_name for one in found if one.type is fs.FileType.File]

    def _lines(self, name: str) -> list[str]:
        with self._fs.open_input_file(name) as file:
            return [line for line in file.read().decode().splitlines() if line.strip()]


class Streams:
    """Rows of a reader of micro-batches.

    Args:
        config: The settings.
        reader: Reads from Spark.
        staged: The batches.
        committed: Returns the committed offset.
        stopping: Set when the task ends.
    """

    def __init__(
        self,
        config: SparkSourceConfig,
        reader: SparkReader,
        staged: StagedBatches,
        committed: Callable[[], Offset | None],
        stopping: threading.Event,
    ) -> None:
        self._config, self._reader, self._staged = config, reader, staged
        self._committed, self._stopping = committed, stopping
        self._session: tuple[SparkSession, SparkSession] | None = None

    def read(self, offset: Offset | None) -> Iterator[Chunk]:
        """See ``ReadStrategy``."""
        at = self._begin(StreamPosition.of(offset))
        rows = self._reader.on(self._own_session).all(stream=True)
        records, schema = self._reader.records(rows), rows.schema
        for chunk in self._delivered(records, schema, at):
            yield chunk
            at = StreamPosition.of(chunk.offset)
        with self._reader.translated():
            query: Any = (
                rows.writeStream.format("parquet")
                .option("path", self._staged.rows)
                .option("checkpointLocation", self._staged.checkpoint)
                .trigger(availableNow=True)
                .start()
            )
        try:
            ended = False
            while not ended and not self._stopping.is_set():
                with self._reader.translated():
                    ended = bool(query.awaitTermination(_LOOK_S))
                for chunk in self._delivered(records, schema, at):
                    yield chunk
                    at = StreamPosition.of(chunk.offset)
        finally:
            # Its session may be gone, and the query with it.
            with suppress(Exception):
                if query.isActive:
                    query.stop()

    def _begin(self, at: StreamPosition) -> StreamPosition:
        """Removes what is delivered, and checks that what is next is there.

        Raises:
            ConnectException: It was removed.
        """
        done = StreamPosition.of(self._committed())
        self._staged.forget_before(done.batch)
        there = self._staged.numbers()
        if at.batch < 0 and there[:1] != [0]:
            # Nothing is delivered, and the first batch is gone or was never there: the offsets were reset.
            self._staged.clear()
        elif at.batch >= 0 and (not there or there[0] > at.next or at.batch > there[-1]):
            raise ConnectException(
                f"mode=stream: the offset says batch {at.batch}, and {self._config.spark_checkpoint_path} has "
                f"{f'batches {there[0]} to {there[-1]}' if there else 'no batches'}: it is another directory, or an "
                "offset of before. Set spark.checkpoint.path back, or reset the connector's offsets to begin anew"
            )
        return at

    def _delivered(self, records: QueryChunks, schema: Any, at: StreamPosition) -> Iterator[Chunk]:
        """Chunks of the batches that are there and not delivered."""
        for batch in self._staged.numbers():
            if batch >= at.next:
                resumed = at if batch == at.batch else StreamPosition(batch, 0)
                yield from self._of_batch(records, schema, resumed)

    def _of_batch(self, records: QueryChunks, schema: Any, at: StreamPosition) -> Iterator[Chunk]:
        files = self._staged.files(at.batch)
        after = {"batch": at.batch, "source": self._staged.source_offset(at.batch)}
        is_small = len(files) <= MOST_FILES and sum(one.size for one in files) <= MOST_BYTES
        if is_small and not at.file and not at.row:
            found = self._reader.at_once(self._rows_of(files, schema)) if files else None
            if found is None or not found.num_rows:
                yield Chunk(None, offset=after)
            else:
                yield records.chunk(found, after)
            return
        for number, file in enumerate(files):
            first, done = 0, at.row if number == at.file else 0
            if number < (at.file or 0):
                continue
            for piece in self._reader.pieces(self._rows_of([file], schema)):
                skipped = min(piece.num_rows, max(0, done - first))
                if skipped < piece.num_rows:
                    begin = {"batch": at.batch, "file": number}
                    last = {**begin, "row": first + piece.num_rows}
                    yield records.chunk(piece.slice(skipped), last, _rows_from(begin, first + skipped))
                first += piece.num_rows
        yield Chunk(None, offset=after)

    def _rows_of(self, files: Sequence[StagedFile], schema: Any) -> DataFrame:
        with self._reader.translated():
            return self._own_session().read.schema(schema).parquet(*(one.path for one in files))

    def _own_session(self) -> SparkSession:
        """A session of the task's own, with the settings of the query, on the worker's present one."""
        shared = self._reader.session()
        if self._session is None or self._session[0] is not shared:
            own = shared.newSession()
            for name, value in _CONF.items():
                own.conf.set(name, value)
            own.conf.set("spark.sql.session.timeZone", str(shared.conf.get("spark.sql.session.timeZone")))
            self._session = shared, own
        return self._session[1]


def _rows_from(at: Offset, first: int) -> Callable[[int], Offset]:
    return lambda row: {**at, "row": first + row + 1}
