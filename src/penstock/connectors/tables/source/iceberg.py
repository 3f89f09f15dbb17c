"""Snapshots of an Iceberg table: its files, and the files that a snapshot added. Main type: `IcebergHistory`.

Thread: the task's. Source: Apache Iceberg's specification, "Snapshots".
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Operation, Snapshot

from penstock.connectors.tables.iceberg import COMPACTION, IcebergLake, faults
from penstock.connectors.tables.source.reading import History, TablePosition, Version, VersionRows
from penstock.errors import ConnectException


class IcebergHistory(History):
    """The snapshots of an Iceberg table.

    Args:
        lake: Its catalog.
        name: Its name.
        keys: The columns of the key.
        ignores_rewrites: True to skip snapshots that change rows.
    """

    def __init__(self, lake: IcebergLake, name: str, keys: Sequence[str], ignores_rewrites: bool) -> None:
        self._lake = lake
        self._name = name
        self._keys = list(keys)
        self._ignores = ignores_rewrites

    def begin(self, version: int | None, time: datetime.datetime | None, *, whole: bool) -> Version | TablePosition:
        """See ``History``."""
        table = self._newest()
        newest = table.current_snapshot()
        if version is not None:
            if table.metadata.snapshot_by_id(version) is None:
                raise ConnectException(f"The table {self._name} has no snapshot {version} (start.from)")
            return TablePosition(version)
        if newest is None:
            return TablePosition(None)
        if whole:
            return self.version(newest.snapshot_id)
        if time is None:
            return TablePosition(newest.snapshot_id)
        earlier = table.snapshot_as_of_timestamp(int(time.timestamp() * 1000) - 1)
        return TablePosition(None if earlier is None else earlier.snapshot_id)

    def version(self, number: int) -> Version:
        """See ``History``."""
        table = self._newest()
        snapshot = table.metadata.snapshot_by_id(number)
        if snapshot is None:
            raise self._expired(number)
        with faults(self._what, "read"):
            tasks = list(table.scan(snapshot_id=number).plan_files())
        return Version(number, True, self._files(table, snapshot, tasks), snapshot.timestamp_ms)

    def changes(self, after: int | None) -> Iterator[Version]:
        """See ``History``."""
        table = self._newest()
        for snapshot in self._behind(table, after):
            operation = None if snapshot.summary is None else snapshot.summary.operation
            files: Sequence[Callable[[], Iterable[VersionRows]]] = []
            if operation is Operation.APPEND:
                files = self._files(table, snapshot, self._added(table, snapshot))
            elif snapshot.summary is not None and COMPACTION in snapshot.summary.additional_properties:
                pass  # The sink joined small files: the rows are the same.
            elif operation in (Operation.OVERWRITE, Operation.DELETE) and not self._ignores:
                raise ConnectException(
                    f"Snapshot {snapshot.snapshot_id} of the table {self._name} changes or deletes rows, which Iceberg "
                    "does not tell one by one: behavior.on.rewrites=ignore passes over such snapshots"
                )
            yield Version(snapshot.snapshot_id, False, files, snapshot.timestamp_ms)

    def _added(self, table: Table, snapshot: Snapshot) -> list[FileScanTask]:
        with faults(self._what, "read"):
            scan = table.incremental_append_scan(
                from_snapshot_id_exclusive=snapshot.parent_snapshot_id,
                to_snapshot_id_inclusive=snapshot.snapshot_id,
            )
            return list(scan.plan_files())

    def _behind(self, table: Table, after: int | None) -> list[Snapshot]:
        """The ancestors of the newest snapshot down to one, the oldest first."""
        there = {one.snapshot_id: one for one in table.metadata.snapshots}
        found: list[Snapshot] = []
        one = table.current_snapshot()
        while one is not None and one.snapshot_id != after:
            found.append(one)
            one = None if one.parent_snapshot_id is None else there.get(one.parent_snapshot_id)
        if one is None and after is not None:
            raise self._expired(after)
        return found[::-1]

    def _files(
        self, table: Table, snapshot: Snapshot, tasks: Iterable[FileScanTask]
    ) -> list[Callable[[], Iterable[VersionRows]]]:
        with faults(self._what, "read"):
            entries = [
                one for manifest in snapshot.manifests(table.io) for one in manifest.fetch_manifest_entry(table.io)
            ]
        # The oldest first.
        numbers = {one.data_file.file_path: one.sequence_number or 0 for one in entries}
        ordered = sorted(tasks, key=lambda one: (numbers.get(one.file.file_path, 0), one.file.file_path))
        return [self._bound(table, snapshot, one) for one in ordered]

    def _bound(self, table: Table, snapshot: Snapshot, task: FileScanTask) -> Callable[[], Iterable[VersionRows]]:
        return lambda: self._rows(table, snapshot, task)

    def _rows(self, table: Table, snapshot: Snapshot, task: FileScanTask) -> Iterator[VersionRows]:
        schema: Any = table.schemas().get(snapshot.schema_id or 0, table.schema())
        with faults(f"the file {task.file.file_path} of the table {self._name}", "read"):
            for batch in ArrowScan(table.metadata, table.io, schema, AlwaysTrue()).to_record_batches([task]):
                if batch.num_rows:
                    yield VersionRows(pa.Table.from_batches([batch]))

    def _newest(self) -> Table:
        found = self._lake.open(self._name)
        if found is None:
            raise ConnectException(f"There is no table {self._name} in the catalog: check tables and namespace")
        lacking = [one for one in self._keys if one not in found.schema().column_names]
        if lacking:
            raise ConnectException(f"key.columns names {', '.join(lacking)}, which the table {self._name} has not")
        return found

    def _expired(self, number: int) -> ConnectException:
        return ConnectException(
            f"Snapshot {number} of the table {self._name}, which was read last, is none of its history any more: it "
            "was expired, or the table was rolled back. Reset the offsets of the connector to begin again, or set them "
            "to another snapshot"
        )

    @property
    def _what(self) -> str:
        return f"the table {self._name}"
