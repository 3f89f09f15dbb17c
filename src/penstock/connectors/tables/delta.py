"""Tables of Delta Lake, by the library ``deltalake``. Main type: `DeltaLake`.

The offsets of a connector are application transactions of the table, one for each topic partition: a commit contains
them, and the log refuses a commit if another one of the same application came first. The first commit with records of a
partition also has a transaction that all connectors share, whose number stands for the connector's name: if two
connectors write the same partition, one is refused.

Thread: the task's. Source: Delta Lake's protocol, "Transaction Identifiers".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from pyarrow.fs import FileSystem, FileType

from penstock.api import TopicPartition
from penstock.connectors.tables.delta_files import DeltaFiles, action, system_of
from penstock.connectors.tables.lake import (
    GONE,
    CommitConflictException,
    Files,
    Lake,
    LakeTable,
    Moves,
    Writer,
    fault_of,
    second_cluster,
    second_writer,
)
from penstock.connectors.tables.sizes import Ratio
from penstock.connectors.tables.types import DELTA, Kinds, columns_for
from penstock.errors import ConnectException
from penstock.files.location import local_path
from penstock.files.store import DirectoryStore

#: The version of an application that has written nothing.
_NOTHING = -1
#: The number of newest versions that are searched for the name of another connector.
_SEARCHED = 100


class DeltaLake(Lake):
    """A directory or bucket with Delta tables.

    Args:
        url: Their address.
        writer: The connector whose offsets the commits contain.
        options: Returns the options of the object store; called for each table, as credentials change.
        configuration: The properties of new tables.
        codec: The compression of files.
        file_bytes: The target size of files.
    """

    kinds: Kinds = DELTA

    def __init__(
        self,
        url: str,
        writer: Writer,
        options: Callable[[], dict[str, str]],
        configuration: Mapping[str, str],
        codec: str,
        file_bytes: int,
    ) -> None:
        self.root = str(Path(local_path(url)).absolute()) if urlsplit(url).scheme in ("", "file") else url.rstrip("/")
        self._is_local = "://" not in self.root
        self.writer = writer
        self.options = options
        self._configuration = dict(configuration)
        self.codec = codec
        compression: Any = "UNCOMPRESSED" if codec == "none" else codec.upper()
        self.properties = WriterProperties(compression=compression)
        self.file_bytes = file_bytes

    def check(self) -> None:
        """See ``Lake``."""
        if self._is_local:
            DirectoryStore(self.root).check()
            return
        # There is no such table, but this request checks the store. `is_deltatable` would hold Python's lock.
        with faults(self.root, "look into"), suppress(TableNotFoundError):
            DeltaTable(self.uri("penstock-check"), storage_options=self.options())

    def table(self, name: str, branch: str = "") -> LakeTable | None:
        """See ``Lake``."""
        found = self.open(name)
        return None if found is None else DeltaLakeTable(self, name, found)

    def open(self, name: str) -> DeltaTable | None:
        """The newest version of a table; None if there is none."""
        with faults(f"the table {name}", "read"):
            try:
                return DeltaTable(self.uri(name), storage_options=self.options())
            except TableNotFoundError:
                return None

    def create(
        self, name: str, columns: pa.Schema, partition_by: Sequence[str], keys: Sequence[str], branch: str = ""
    ) -> LakeTable:
        """See ``Lake``."""
        lacking = [one for one in partition_by if one not in columns.names]
        if lacking:
            raise ConnectException(
                f"partition.by names {', '.join(lacking)}, and the records for the table {name} have no such field; "
                f"they have {', '.join(columns.names)}"
            )
        try:
            with faults(f"the table {name}", "make"):
                made = DeltaTable.create(
                    self.uri(name),
                    schema=columns,
                    mode="error",
                    partition_by=list(partition_by) or None,
                    configuration=self._configuration or None,
                    storage_options=self.options(),
                )
        except ConnectException:
            there = self.table(name)
            if there is None:
                raise
            return there
        return DeltaLakeTable(self, name, made)

    def names(self) -> Sequence[str]:
        """See ``Lake``."""
        if not self._is_local:
            raise ConnectException(f"The tables of {self.root} cannot be listed: name them in the setting tables")
        root = Path(self.root)
        return sorted(str(one.parent.relative_to(root)) for one in root.glob("**/_delta_log"))

    def uri(self, name: str) -> str:
        """The address of a table."""
        return f"{self.root}/{name}"


class DeltaLakeTable(LakeTable):
    """A Delta table.

    Args:
        lake: Its lake.
        name: Its name.
        table: Its newest version.
    """

    def __init__(self, lake: DeltaLake, name: str, table: DeltaTable) -> None:
        self.name = name
        self._lake = lake
        self._writer = lake.writer
        self._table = table
        self._id = table.metadata().id
        self._ratio = Ratio(lake.file_bytes)
        self._beside: tuple[dict[str, str], FileSystem, str] | None = None
        #: The partitions for which the table names this connector as their writer.
        self._own: set[TopicPartition] = set()

    @property
    def columns(self) -> pa.Schema:
        """See ``LakeTable``."""
        return columns_for(pa.schema(self._table.schema().to_arrow()), DELTA)

    @property
    def partition_columns(self) -> Sequence[str]:
        """See ``LakeTable``."""
        return self._table.metadata().partition_columns

    def positions(self) -> Mapping[TopicPartition, int]:
        """See ``LakeTable``."""
        return _Positions(self._position)

    def refresh(self) -> None:
        """See ``LakeTable``."""
        found = self._lake.open(self.name)
        if found is None:
            raise ConnectException(
                f"The table {self.name} was dropped while the task ran. Restart the task: with auto.create=true it "
                "creates the table again and continues after the last commit"
            )
        if found.metadata().id != self._id:
            raise ConnectException(
                f"The table {self.name} was dropped and created again while the task ran. Restart the task to "
                "continue after the last commit, or reset the offsets of the connector to write all records again"
            )
        self._table = found

    def evolve(self, columns: pa.Schema) -> None:
        """See ``LakeTable``."""
        there = pa.schema(self._table.schema().to_arrow())
        for one in there:
            if not one.nullable and one.name in columns.names and columns.field(one.name).nullable:
                with faults(f"the table {self.name}", "alter"):
                    self._table.alter.drop_column_not_null(one.name)
        if self.columns.remove_metadata() != columns:
            with faults(f"the table {self.name}", "alter"):
                write_deltalake(self._table, columns.empty_table(), mode="append", schema_mode="merge")
        self.refresh()

    def check_writer(self, places: Iterable[TopicPartition]) -> None:
        """See ``LakeTable``."""
        self._marks(places)

    def append(self, rows: Iterable[pa.Table], moves: Moves) -> None:
        """See ``LakeTable``."""
        schema = pa.schema(self._table.schema().to_arrow())
        batches = (batch for table in rows for batch in table.cast(schema).to_batches())
        with faults(f"the table {self.name}", "write to"):
            write_deltalake(
                self._table,
                pa.RecordBatchReader.from_batches(schema, batches),
                mode="append",
                target_file_size=self._lake.file_bytes,
                writer_properties=self._lake.properties,
                commit_properties=self._commit(moves),
            )

    def write(self, rows: Iterable[pa.Table]) -> Files:
        """See ``LakeTable``."""
        with faults(f"the table {self.name}", "write to"):
            return {
                "table": str(self._id),
                "columns": _types(self._table),
                "partition_by": list(self._table.metadata().partition_columns),
                "files": DeltaFiles(self._table, *self.beside(), self._lake.codec, self._ratio).write(rows),
            }

    def fits(self, files: Files) -> bool:
        """See ``LakeTable``."""
        if files["table"] != str(self._id) or files["partition_by"] != self._table.metadata().partition_columns:
            return False
        there = _types(self._table)
        # Fields of structs are added and removed; other types change only when a table is overwritten.
        if any(there.get(name) != kind for name, kind in files["columns"].items() if not kind.startswith("struct")):
            return False
        with faults(f"the table {self.name}", "read"):
            system, root = self.beside()
            found = system.get_file_info([f"{root}/{one['path']}" for one in files["files"]])
        return all(one.type is not FileType.NotFound for one in found)

    def add(self, files: Sequence[Files], moves: Moves) -> None:
        """See ``LakeTable``."""
        with faults(f"the table {self.name}", "write to"):
            self._table.create_write_transaction(
                [action(one) for each in files for one in each["files"]],
                "append",
                self._table.schema(),
                self._table.metadata().partition_columns,
                commit_properties=self._commit(moves),
            )

    def beside(self) -> tuple[FileSystem, str]:
        """See ``LakeTable``."""
        options = self._lake.options()
        if self._beside is None or self._beside[0] != options:
            with faults(f"the table {self.name}", "open the store of"):
                self._beside = (options, *system_of(self._lake.uri(self.name), options))
        return self._beside[1:]

    def change(self, rows: pa.Table, keys: Sequence[str], moves: Moves) -> None:
        """See ``LakeTable``."""
        names = [one for one in rows.column_names if one != GONE]
        cells = {_quoted(one): f"s.{_quoted(one)}" for one in names}
        same = " AND ".join(f"t.{_quoted(one)} = s.{_quoted(one)}" for one in keys)
        gone, before = f"s.{_quoted(GONE)}", self._table.version()
        with faults(f"the table {self.name}", "write to"):
            (
                self._table.merge(
                    rows,
                    same,
                    source_alias="s",
                    target_alias="t",
                    writer_properties=self._lake.properties,
                    commit_properties=self._commit(moves),
                )
                .when_matched_delete(gone)
                .when_matched_update(cells)
                .when_not_matched_insert(cells, predicate=f"NOT {gone}")
                .execute()
            )
            if self._table.version() == before:
                # Nothing changed, so there was no commit; the offsets need one.
                self._append_nothing(moves)

    def move(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """See ``LakeTable``."""
        known = {place: offset for place, offset in positions.items() if self._position(place) is not None}
        if not known:
            return
        moves = {place: (None, _NOTHING if offset is None else offset) for place, offset in known.items()}
        with faults(f"the table {self.name}", "write to"):
            self._append_nothing(moves)
        self.refresh()

    def compact(self) -> int:
        """See ``LakeTable``: the library's ``OPTIMIZE``."""
        with faults(f"the table {self.name}", "compact"):
            done = self._table.optimize.compact(
                target_size=self._lake.file_bytes, writer_properties=self._lake.properties
            )
        return int(done["numFilesRemoved"])

    def expire(self, older_than_ms: int) -> int:
        """See ``LakeTable``: the library's ``VACUUM``, which removes files that only old versions have; whole hours."""
        with faults(f"the table {self.name}", "clean up"):
            gone = self._table.vacuum(-(-older_than_ms // 3_600_000), dry_run=False, enforce_retention_duration=False)
        return len(gone)

    def _append_nothing(self, moves: Moves) -> None:
        nothing = pa.schema(self._table.schema().to_arrow()).empty_table()
        write_deltalake(self._table, nothing, mode="append", commit_properties=self._commit(moves))

    def _application(self, place: TopicPartition, connector: str = "") -> str:
        return f"penstock/{connector or self._writer.connector}/{place.topic}/{place.partition}"

    def _position(self, place: TopicPartition) -> int | None:
        found = self._table.transaction_version(self._application(place))
        if found is None and self._writer.renamed_from:
            found = self._table.transaction_version(self._application(place, self._writer.renamed_from))
        return None if found is None or found == _NOTHING else int(found)

    def _marks(self, places: Iterable[TopicPartition]) -> list[Transaction]:
        """The missing marks of partitions, for a commit: they name this connector and its Kafka cluster.

        Raises:
            ConnectException: Another connector writes one of the partitions, or one of this name in another cluster.
        """
        writer, found = self._writer, []
        for place in places:
            if place in self._own:
                continue
            with faults(f"the table {self.name}", "read"):
                missing = [*self._cluster_mark(place), *self._writer_mark(place)]
            found += missing
            if not missing:
                self._own.add(place)
        if writer.renamed_from not in ("", writer.connector) and found:
            # The former name must not write any more.
            found.append(Transaction(_renamed(writer.renamed_from), _number_of(writer.connector)))
        return found

    def _cluster_mark(self, place: TopicPartition) -> list[Transaction]:
        writer = self._writer
        if writer.cluster is None:
            return []
        mark, own = f"penstock.cluster/{writer.connector}/{place.topic}/{place.partition}", _number_of(writer.cluster)
        number = self._table.transaction_version(mark)
        if writer.is_foreign(number, own):
            other = self._said("penstock.cluster", lambda text: _number_of(text) == number)
            raise second_cluster(self.name, writer, other, place.topic)
        return [] if number == own else [Transaction(mark, own)]

    def _writer_mark(self, place: TopicPartition) -> list[Transaction]:
        writer = self._writer
        number, own = self._table.transaction_version(_mark(place)), _number_of(writer.connector)
        if number is None or (number != own and number == _number_of(writer.renamed_from)):
            return [Transaction(_mark(place), own)]
        if number == own or writer.is_shared or self._has_written(place, number):
            return []
        other = self._said("penstock.connector", lambda text: _number_of(text) == number)
        raise second_writer(self.name, writer.connector, other, place.topic)

    def _has_written(self, place: TopicPartition, other: int) -> bool:
        """True if this connector wrote a partition before marks existed, and was not renamed to the marked one."""
        written = self._table.transaction_version(self._application(place))
        return written is not None and self._table.transaction_version(_renamed(self._writer.connector)) != other

    def _said(self, name: str, fits: Callable[[str], bool]) -> str | None:
        """A text in the newest versions; None if none of them has a fitting one."""
        texts = (one.get(name) for one in self._table.history(_SEARCHED))
        return next((text for text in texts if text is not None and fits(text)), None)

    def _commit(self, moves: Moves) -> CommitProperties:
        ranges = [
            {"topic": place.topic, "partition": place.partition, "from": before, "to": after}
            for place, (before, after) in moves.items()
        ]
        return CommitProperties(
            custom_metadata={
                "penstock.connector": self._writer.connector,
                "penstock.offsets": json.dumps(ranges),
                **({} if self._writer.cluster is None else {"penstock.cluster": self._writer.cluster}),
            },
            app_transactions=[
                *(Transaction(self._application(place), after) for place, (_, after) in moves.items()),
                *self._marks(moves),
            ],
        )


class _Positions(Mapping[TopicPartition, int]):
    """Positions that are looked up one by one: a table does not list its applications."""

    def __init__(self, position: Callable[[TopicPartition], int | None]) -> None:
        self._position = position

    def __getitem__(self, place: TopicPartition) -> int:
        found = self._position(place)
        if found is None:
            raise KeyError(place)
        return found

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(())

    def __len__(self) -> int:
        return 0


@contextmanager
def faults(where: str, what: str) -> Iterator[None]:
    """Converts errors of the library to those of Penstock."""
    try:
        yield
    except CommitFailedError as error:
        raise CommitConflictException(f"{where} was changed by another writer: {_one_line(error)}") from error
    except (ConnectException, TableNotFoundError):
        raise
    except Exception as error:
        raise fault_of(error, where, what) from error


def _mark(place: TopicPartition) -> str:
    """The application that all connectors share: its version identifies the writer of a partition."""
    return f"penstock.writer/{place.topic}/{place.partition}"


def _renamed(connector: str) -> str:
    """The application whose version identifies the new name of a connector."""
    return f"penstock.renamed/{connector}"


def _number_of(connector: str) -> int:
    """A number for the name of a connector.

    >>> _number_of("orders") == _number_of("orders"), _number_of("orders") == _number_of("orders-2")
    (True, False)
    """
    return int.from_bytes(hashlib.sha256(connector.encode()).digest()[:6])


def _types(table: DeltaTable) -> dict[str, str]:
    return {one.name: str(one.type) for one in pa.schema(table.schema().to_arrow())}


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
