"""Tables of Apache Iceberg, by the library ``pyiceberg``. Main type: `IcebergLake`.

The offsets of a connector are in the summaries of snapshots: each of its commits has all of them, so the newest one has
the connector's position. A table that was rolled back has the offsets of the snapshot to which it was rolled back. They
are properties of the table, too, in case the snapshots expire. Another property names the connector that writes each
topic.

Thread: the task's.
"""

from __future__ import annotations

import datetime
import itertools
import json
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import FileSystem, FileType
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, GreaterThanOrEqual, LessThanOrEqual
from pyiceberg.io.pyarrow import ArrowScan, PyArrowFileIO, write_file
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table, WriteTask
from pyiceberg.table.snapshots import Snapshot

from penstock.api import TopicPartition
from penstock.api.arrow import one_array
from penstock.connectors.tables import partitions
from penstock.connectors.tables.iceberg_clients import ShortLocations, open_catalog
from penstock.connectors.tables.iceberg_files import data_file, described
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
from penstock.connectors.tables.sizes import Ratio, parts, windows
from penstock.connectors.tables.types import ICEBERG, Kinds, columns_for
from penstock.errors import ConnectException
from penstock.files.store import DirectoryStore

log = logging.getLogger(__name__)

#: The key in the summary of a snapshot that has the same rows as the one before it.
COMPACTION: Final = "penstock.compaction"
_MAIN: Final = "main"
#: Without this the library would repeat a commit without checking the offsets in it.
_RETRIES: Final = "commit.retry.num-retries"
_ROW: Final = "__penstock_row"
#: The property that says which class names data files, and those of tables that have a way of their own.
_NAMES: Final = "write.py-location-provider.impl"
_OWN_NAMES: Final = {_NAMES, "write.object-storage.enabled"}


class IcebergLake(Lake):
    """A catalog of Iceberg tables.

    Args:
        catalog_name: The name of the catalog.
        properties: Gives those of the catalog: type, uri, warehouse, and those of its file system. It is asked for each
            table, as credentials change.
        writer: The connector whose offsets the commits contain.
        namespace: The namespace of tables whose names have none.
        configuration: The properties of new tables.
        file_bytes: The target size of files.
    """

    kinds: Kinds = ICEBERG

    def __init__(
        self,
        catalog_name: str,
        properties: Callable[[], dict[str, str]],
        writer: Writer,
        namespace: str,
        configuration: Mapping[str, str],
        file_bytes: int,
    ) -> None:
        self._name = catalog_name
        self._newest = properties
        self._properties = properties()
        self.writer = writer
        self._namespace = namespace
        self._configuration = dict(configuration)
        self.file_bytes = file_bytes
        self._catalog: Catalog | None = None

    @property
    def catalog(self) -> Catalog:
        """The catalog.

        Raises:
            RetriableException: It cannot be reached.
            ConnectException: Its settings are wrong.
        """
        if self._catalog is None:
            with faults(f"the catalog {self._name}", "open"):
                if file := self._file():
                    file.parent.mkdir(parents=True, exist_ok=True)
                self._catalog = open_catalog(self._name, self._properties)
        return self._catalog

    def check(self) -> None:
        """See ``Lake``."""
        file = self._file()
        if file is not None and not file.exists():
            DirectoryStore(str(file.parent)).check()
            self._check_warehouse()
            return
        with faults(f"the catalog {self._name}", "ask"):
            self.catalog.list_namespaces()
        self._check_warehouse()

    def table(self, name: str, branch: str = "") -> LakeTable | None:
        """See ``Lake``."""
        found = self.open(name)
        return None if found is None else IcebergTable(self, name, found, branch or _MAIN)

    def open(self, name: str) -> Table | None:
        """The newest version of a table; None if there is none."""
        if (newest := self._newest()) != self._properties:
            self.close()
            self._properties = newest
        with faults(f"the table {name}", "read"):
            try:
                return self.catalog.load_table(self.identifier(name))
            except (NoSuchTableError, NoSuchNamespaceError):
                return None

    def create(
        self, name: str, columns: pa.Schema, partition_by: Sequence[str], keys: Sequence[str], branch: str = ""
    ) -> LakeTable:
        """See ``Lake``."""
        wanted = [partitions.parse(one) for one in partition_by]
        lacking = [one.source for one in wanted if one.source.split(".")[0] not in columns.names]
        if lacking:
            raise ConnectException(
                f"partition.by names {', '.join(lacking)}, and the records for the table {name} have no such field; "
                f"they have {', '.join(columns.names)}"
            )
        identifier = self.identifier(name)
        with faults(f"the table {name}", "make"):
            try:
                self.catalog.create_namespace(identifier[:-1])
            except NamespaceAlreadyExistsError:
                pass
            try:
                with self.catalog.create_table_transaction(
                    identifier, schema=columns, properties=self._configuration
                ) as made:
                    with made.update_spec() as spec:
                        for one in wanted:
                            spec.add_field(one.source, one.transform, one.name)
                    if keys and all(one in columns.names and not columns.field(one).nullable for one in keys):
                        with made.update_schema() as schema:
                            schema.set_identifier_fields(*keys)
            except (TableAlreadyExistsError, CommitFailedException):
                log.info("The table %s was made by another task", name)
        there = self.table(name, branch)
        if there is None:
            raise ConnectException(f"The table {name} was made, and is not there")
        return there

    def names(self) -> Sequence[str]:
        """See ``Lake``."""
        with faults(f"the catalog {self._name}", "ask"):
            namespaces = self.catalog.list_namespaces()
            return [".".join(one) for space in namespaces for one in self.catalog.list_tables(space)]

    def close(self) -> None:
        """See ``Lake``."""
        if self._catalog is not None:
            self._catalog.close()
            self._catalog = None

    def _check_warehouse(self) -> None:
        """Checks that the bucket exists, if the settings name one."""
        url = urlsplit(self._properties.get("warehouse", ""))
        if url.scheme not in ("s3", "s3a", "s3n", "gs") or self._properties.get("type") == "rest":
            return
        with faults(f"the warehouse {url.geturl()}", "look into"):
            system = PyArrowFileIO(self._properties).fs_by_scheme(url.scheme, url.netloc)
            if system.get_file_info(url.netloc).type is FileType.NotFound:
                raise ConnectException(
                    f"There is no bucket {url.netloc} for the warehouse: create it, or correct url or "
                    "iceberg.catalog.warehouse; then restart the task"
                )

    def _file(self) -> Path | None:
        """The file of an SQLite catalog, which is created with the first table."""
        scheme, slashes, path = self._properties.get("uri", "").partition(":///")
        return Path(path) if slashes and scheme.startswith("sqlite") and path else None

    def identifier(self, name: str) -> tuple[str, ...]:
        """The namespace and name of a table."""
        parts = tuple(name.split("."))
        return parts if len(parts) > 1 else (self._namespace, *parts)


class IcebergTable(LakeTable):
    """An Iceberg table.

    Args:
        lake: Its catalog.
        name: Its name.
        table: Its newest version.
        branch: The branch to write.
    """

    def __init__(self, lake: IcebergLake, name: str, table: Table, branch: str) -> None:
        self.name = name
        self._lake = lake
        self._writer = lake.writer
        self._table = table
        self._branch = branch
        self._ratio = Ratio(lake.file_bytes)

    @property
    def columns(self) -> pa.Schema:
        """See ``LakeTable``."""
        return columns_for(self._table.schema().as_arrow(), ICEBERG)

    def positions(self) -> Mapping[TopicPartition, int]:
        """See ``LakeTable``."""
        found = self._positions_of(_offsets_key(self._writer.connector))
        if found is None and self._writer.renamed_from:
            found = self._positions_of(_offsets_key(self._writer.renamed_from))
        return found or {}

    def _positions_of(self, key: str) -> dict[TopicPartition, int] | None:
        """The positions of a connector; None if the table has none."""
        snapshots = {one.snapshot_id: one for one in self._table.metadata.snapshots}
        one: Snapshot | None = self._table.metadata.snapshot_by_name(self._branch)
        while one is not None:
            if (said := _said(one, key)) is not None:
                return _of_text(said)
            one = None if one.parent_snapshot_id is None else snapshots.get(one.parent_snapshot_id)
        if any(_said(one, key) is not None for one in snapshots.values()):
            return {}  # The branch was rolled back to before the first commit.
        # No snapshot is left: they have expired, if there were any.
        said = self._table.properties.get(key)
        return None if said is None else _of_text(said)

    def check_writer(self, places: Iterable[TopicPartition]) -> None:
        """See ``LakeTable``."""
        clusters = self._clusters()
        for place in places:
            cluster = clusters.get(place.topic)
            if self._writer.is_foreign(cluster, self._writer.cluster):
                raise second_cluster(self.name, self._writer, cluster, place.topic)
            other = self._other_writer(place.topic)
            if other is not None and not self._writer.is_shared and not self._has_written(place, other):
                raise second_writer(self.name, self._writer.connector, other, place.topic)

    def _clusters(self) -> dict[str, str]:
        """The Kafka cluster of each topic of which the table has this connector's offsets."""
        found: dict[str, str] = json.loads(self._table.properties.get(_clusters_key(self._writer.connector), "{}"))
        return found

    def _has_written(self, place: TopicPartition, other: str) -> bool:
        """True if this connector wrote a partition before marks existed, and was not renamed to the marked one."""
        written = self._positions_of(_offsets_key(self._writer.connector)) or {}
        return place in written and self._table.properties.get(_renamed_key(self._writer.connector)) != other

    def _other_writer(self, topic: str) -> str | None:
        """Another connector that writes a topic; None if it is this one, or none yet."""
        found = self._table.properties.get(self._writer_key(topic))
        return None if found in (self._writer.connector, self._writer.renamed_from) else found

    def _marks(self, places: Iterable[TopicPartition]) -> dict[str, str]:
        """The properties that name the writers of a table; the former name of a renamed connector must not write."""
        topics = {one.topic for one in places}
        own = self._writer.connector
        found = {self._writer_key(topic): own for topic in topics if self._other_writer(topic) is None}
        if found and self._writer.renamed_from not in ("", own):
            found[_renamed_key(self._writer.renamed_from)] = own
        if self._writer.cluster is not None and topics:
            found[_clusters_key(own)] = json.dumps({**self._clusters(), **dict.fromkeys(topics, self._writer.cluster)})
        return found

    def _writer_key(self, topic: str) -> str:
        """The property that names the writer of a topic's records to the branch."""
        return f"penstock.writer.{topic}" + ("" if self._branch == _MAIN else f"@{self._branch}")

    def refresh(self) -> None:
        """See ``LakeTable``."""
        found = self._lake.open(self.name)
        if found is None:
            raise ConnectException(
                f"The table {self.name} was dropped while the task ran. Restart the task: with auto.create=true it "
                "creates the table again and continues after the last commit"
            )
        if found.metadata.table_uuid != self._table.metadata.table_uuid:
            raise ConnectException(
                f"The table {self.name} was dropped and created again while the task ran. Restart the task to "
                "continue after the last commit, or reset the offsets of the connector to write all records again"
            )
        self._table = found
        self._make_branch()

    def _make_branch(self) -> None:
        """Creates the branch to write, at the newest snapshot of the main one, if it is missing."""
        newest = self._table.metadata.current_snapshot_id
        if self._branch in self._table.metadata.refs or newest is None or self._branch == _MAIN:
            return
        with faults(f"the branch {self._branch} of the table {self.name}", "make"):
            self._table.manage_snapshots().create_branch(newest, self._branch).commit()
            self._table.refresh()

    def evolve(self, columns: pa.Schema) -> None:
        """See ``LakeTable``."""
        with faults(f"the table {self.name}", "alter"), self._table.update_schema() as update:
            update.union_by_name(columns)
        self.refresh()

    def append(self, rows: Iterable[pa.Table], moves: Moves) -> None:
        """See ``LakeTable``."""
        with faults(f"the table {self.name}", "write to"):
            self._commit(self._files(rows), [], moves)

    def write(self, rows: Iterable[pa.Table]) -> Files:
        """See ``LakeTable``."""
        metadata = self._table.metadata
        with faults(f"the table {self.name}", "write to"):
            return {
                "table": str(metadata.table_uuid),
                "spec": metadata.default_spec_id,
                "files": [described(one, metadata) for one in self._files(rows)],
            }

    def fits(self, files: Files) -> bool:
        """See ``LakeTable``."""
        metadata = self._table.metadata
        if files["table"] != str(metadata.table_uuid) or files["spec"] != metadata.default_spec_id:
            return False
        with faults(f"the table {self.name}", "read"):
            systems: dict[int, tuple[FileSystem, list[str]]] = {}
            for one in files["files"]:
                system, path = self._place(one["path"])
                systems.setdefault(id(system), (system, []))[1].append(path)
            found = [info for system, paths in systems.values() for info in system.get_file_info(paths)]
        return all(one.type is not FileType.NotFound for one in found)

    def add(self, files: Sequence[Files], moves: Moves) -> None:
        """See ``LakeTable``."""
        metadata = self._table.metadata
        with faults(f"the table {self.name}", "write to"):
            # Another task may have committed the same files: they stay in any case.
            self._commit([data_file(one, metadata) for each in files for one in each["files"]], [], moves, keeps=True)

    def beside(self) -> tuple[FileSystem, str]:
        """See ``LakeTable``."""
        return self._place(self._table.metadata.location)

    def _place(self, location: str) -> tuple[FileSystem, str]:
        """A file system, and the path in it."""
        io: Any = self._table.io
        scheme, host, path = io.parse_location(location, io.properties)
        return io.fs_by_scheme(scheme, host), path

    def change(self, rows: pa.Table, keys: Sequence[str], moves: Moves) -> None:
        """Rewrites the files that have one of the keys; see ``LakeTable``."""
        with faults(f"the table {self.name}", "write to"):
            rewritten: list[DataFile] = []
            kept: list[pa.Table] = []
            for task in self._table.scan(_between(rows, keys), snapshot_id=self._head()).plan_files():
                left = self._without(task, rows.select(keys))
                if left is not None:
                    rewritten.append(task.file)
                    kept.append(left)
            new = rows.filter(pc.invert(rows.column(GONE))).drop_columns([GONE]).cast(_nullable(self.columns))
            self._commit(self._files([*kept, new]), rewritten, moves)

    def move(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """See ``LakeTable``."""
        there = dict(self.positions())
        if not any(place in there for place in positions):
            return
        for place, offset in positions.items():
            there.pop(place, None)
            if offset is not None:
                there[place] = offset
        with faults(f"the table {self.name}", "write to"):
            self._commit([], [], {}, there)

    def compact(self) -> int:
        """See ``LakeTable``: small files of one partition are read and written again."""
        with faults(f"the table {self.name}", "compact"):
            small: dict[str, list[FileScanTask]] = {}
            for task in self._table.scan(snapshot_id=self._head()).plan_files():
                if task.file.file_size_in_bytes * 4 < self._lake.file_bytes * 3 and not task.delete_files:
                    small.setdefault(f"{task.file.spec_id} {task.file.partition}", []).append(task)
            joined = [task for group in small.values() if len(group) > 1 for task in group]
            if joined:
                schema, wanted = self._table.schema(), _nullable(self.columns)
                rows = (self._read(task, schema).select(wanted.names).cast(wanted) for task in joined)
                self._commit(self._files(rows), [task.file for task in joined], {}, more={COMPACTION: "true"})
            return len(joined)

    def expire(self, older_than_ms: int) -> int:
        """See ``LakeTable``: snapshots are removed, and their files stay, as the library does not delete them."""
        before = len(self._table.metadata.snapshots)
        oldest = datetime.datetime.now(datetime.UTC) - datetime.timedelta(milliseconds=older_than_ms)
        kept = {one.snapshot_id for one in self._table.metadata.refs.values()}
        milliseconds = oldest.timestamp() * 1000
        if all(one.snapshot_id in kept or one.timestamp_ms >= milliseconds for one in self._table.metadata.snapshots):
            return 0
        with faults(f"the table {self.name}", "clean up"):
            self._table.maintenance.expire_snapshots().older_than(oldest.replace(tzinfo=None)).commit()
            self._table.refresh()
        return before - len(self._table.metadata.snapshots)

    def _head(self) -> int | None:
        found = self._table.metadata.snapshot_by_name(self._branch)
        return None if found is None else found.snapshot_id

    def _commit(
        self,
        added: Sequence[DataFile],
        removed: Sequence[DataFile],
        moves: Moves,
        positions: Mapping[TopicPartition, int] | None = None,
        more: Mapping[str, str] | None = None,
        *,
        keeps: bool = False,
    ) -> None:
        if positions is None:
            positions = {**self.positions(), **{place: after for place, (_, after) in moves.items()}}
        self.check_writer(moves)
        text, key = _text(positions), _offsets_key(self._writer.connector)
        ranges = [[*place, before, after] for place, (before, after) in moves.items()]
        summary = {key: text, "penstock.ranges": json.dumps(ranges), **(more or {})}
        self._table.metadata.properties[_RETRIES] = "0"
        try:
            with self._table.transaction() as transaction:
                update = transaction.update_snapshot(snapshot_properties=summary, branch=self._branch)
                with update.overwrite() if removed else update.fast_append() as files:
                    for file in removed:
                        files.delete_data_file(file)
                    for file in added:
                        files.append_data_file(file)
                transaction.set_properties({key: text, **self._marks(moves)})
        except (CommitFailedException, ValidationException) as error:
            if not keeps:
                self._forget(added)
            raise CommitConflictException(
                f"The table {self.name} was changed by another writer: {' '.join(str(error).split())}"
            ) from error

    def _forget(self, files: Sequence[DataFile]) -> None:
        """Removes files that no snapshot has."""
        for file in files:
            try:
                self._table.io.delete(file.file_path)
            except Exception as error:
                log.warning("The file %s, which no snapshot has, stays: %s", file.file_path, error)

    def _files(self, tables: Iterable[pa.Table]) -> list[DataFile]:
        metadata, counter, commit = self._table.metadata, itertools.count(), uuid.uuid4()
        if not metadata.properties.keys() & _OWN_NAMES:
            # It is for the library here, and no property of the table.
            metadata.properties[_NAMES] = f"{ShortLocations.__module__}.{ShortLocations.__name__}"
        schema, spec = metadata.schema(), metadata.spec()
        wanted = schema.as_arrow()
        most = self._ratio.most
        found: list[DataFile] = []
        for window in windows(tables, most):
            tasks = [
                WriteTask(commit, next(counter), schema, part.cast(wanted).to_batches(), partition_key=key)
                for key, whole in partitions.split(window, spec, schema)
                for part in parts(whole, most)
            ]
            found += write_file(self._table.io, metadata, iter(tasks))
            self._ratio.learn(window.nbytes, sum(one.file_size_in_bytes for one in found[-len(tasks) :]))
        return found

    def _without(self, task: FileScanTask, keys: pa.Table) -> pa.Table | None:
        """The rows of a file that have none of the keys; None: all of them."""
        names = keys.column_names
        schema = self._table.schema()
        there = self._read(task, schema.select(*names)).select(names)
        numbered = there.cast(keys.schema).append_column(_ROW, pa.array(np.arange(there.num_rows)))
        left = numbered.join(keys, names, join_type="left anti", use_threads=False)
        if left.num_rows == there.num_rows:
            return None
        rows = one_array(left.column(_ROW)).sort()
        return self._read(task, schema).take(rows).select(self.columns.names).cast(_nullable(self.columns))

    def _read(self, task: FileScanTask, schema: Any) -> pa.Table:
        return ArrowScan(self._table.metadata, self._table.io, schema, AlwaysTrue()).to_table([task])


# The library's annotations differ from the arguments that it accepts.
_at_least: Any = GreaterThanOrEqual
_at_most: Any = LessThanOrEqual


def _between(rows: pa.Table, keys: Sequence[str]) -> BooleanExpression:
    """A filter that excludes, by their bounds, files without any of the rows' keys."""
    found: BooleanExpression = AlwaysTrue()
    for name in keys:
        ends = pc.min_max(rows.column(name))
        low, high = ends["min"].as_py(), ends["max"].as_py()
        if low is not None and not isinstance(low, bool):
            found = And(found, And(_at_least(name, low), _at_most(name, high)))
    return found


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([one.with_nullable(True) for one in schema])


def _offsets_key(connector: str) -> str:
    """The name of a connector's offsets, in summaries of snapshots and among the properties of a table."""
    return f"penstock.offsets.{connector}"


def _clusters_key(connector: str) -> str:
    """The property with the Kafka clusters of a connector's topics."""
    return f"penstock.clusters.{connector}"


def _renamed_key(connector: str) -> str:
    """The property with the new name of a renamed connector."""
    return f"penstock.renamed.{connector}"


def _said(snapshot: Snapshot, key: str) -> str | None:
    """The offsets of a connector in a snapshot."""
    return None if snapshot.summary is None else snapshot.summary.additional_properties.get(key)


def _text(positions: Mapping[TopicPartition, int]) -> str:
    found: dict[str, dict[str, int]] = {}
    for place, offset in sorted(positions.items()):
        found.setdefault(place.topic, {})[str(place.partition)] = offset
    return json.dumps(found, separators=(",", ":"))


def _of_text(text: str) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in json.loads(text).items()
        for partition, offset in partitions.items()
    }


@contextmanager
def faults(where: str, what: str) -> Iterator[None]:
    """Converts errors of the library to those of Penstock."""
    try:
        yield
    except CommitFailedException as error:
        raise CommitConflictException(
            f"{where} was changed by another writer: {' '.join(str(error).split())}"
        ) from error
    except ConnectException:
        raise
    except Exception as error:
        raise fault_of(error, where, what) from error
