"""Versions of a Delta table: its files, the files that a version added, and the change data feed.

Main type: `DeltaHistory`.

Thread: the task's. Source: Delta Lake's protocol, "Actions" and "Change Data Files".
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from penstock.api.arrow import one_array
from penstock.connectors.tables.delta import DeltaLake, faults
from penstock.connectors.tables.source.reading import History, TablePosition, Version, VersionRows
from penstock.connectors.tables.types import DELTA, columns_for, fitted
from penstock.errors import ConnectException

_KIND = "_change_type"
_OF_FEED = (_KIND, "_commit_version", "_commit_timestamp")


class DeltaHistory(History):
    """The versions of a Delta table.

    Args:
        lake: Its lake.
        name: Its name.
        keys: The columns of the key.
        ignores_rewrites: True to skip versions that change rows, if there is no change data feed.
    """

    def __init__(self, lake: DeltaLake, name: str, keys: Sequence[str], ignores_rewrites: bool) -> None:
        self._lake = lake
        self._name = name
        self._keys = list(keys)
        self._ignores = ignores_rewrites
        self._table: DeltaTable | None = None

    def begin(self, version: int | None, time: datetime.datetime | None, *, whole: bool) -> Version | TablePosition:
        """See ``History``."""
        table = self._newest()
        if whole:
            return self.version(table.version())
        if version is not None:
            if version > table.version():
                raise ConnectException(
                    f"The table {self._name} has no version {version} yet (start.from); the newest one is "
                    f"{table.version()}"
                )
            return TablePosition(version)
        if time is None:
            return TablePosition(table.version())
        since = time.timestamp() * 1000
        with faults(self._what, "read"):
            later = [one["version"] for one in table.history() if one["timestamp"] >= since]
        return TablePosition(min(later, default=table.version() + 1) - 1)

    def version(self, number: int) -> Version:
        """See ``History``."""
        table = self._at(number)
        with faults(self._what, "read"):
            dataset = table.to_pyarrow_dataset()
            made = table.get_add_actions(flatten=True)
            times = dict(zip(_texts(made, "path"), _texts(made, "modification_time"), strict=True))
            # The oldest first.
            fragments = sorted(dataset.get_fragments(), key=lambda one: (times.get(str(one.path), ""), str(one.path)))
        columns = columns_for(dataset.schema, DELTA)

        def rows(fragment: Any) -> Iterator[VersionRows]:
            with faults(self._what, "read"):
                for batch in fragment.to_batches(schema=dataset.schema, batch_readahead=1):
                    if batch.num_rows:
                        yield VersionRows(_conformed(pa.Table.from_batches([batch]), columns))

        return Version(number, True, [_bound(rows, one) for one in fragments])

    def changes(self, after: int | None) -> Iterator[Version]:
        """See ``History``."""
        newest = self._newest().version()
        columns: pa.Schema | None = None
        for number in range(0 if after is None else after + 1, newest + 1):
            actions = self._actions(number)
            if columns is None or any("metaData" in one for one in actions):
                at = self._at(number)
                self._has_feed = at.metadata().configuration.get("delta.enableChangeDataFeed") == "true"
                columns = columns_for(pa.schema(at.schema().to_arrow()), DELTA)
            yield self._changes(number, actions, columns)

    def _changes(self, number: int, actions: Sequence[Mapping[str, Any]], columns: pa.Schema) -> Version:
        made = next((one["commitInfo"].get("timestamp") for one in actions if "commitInfo" in one), None)
        added = [one["add"] for one in actions if "add" in one and one["add"].get("dataChange", True)]
        removed = [one["remove"] for one in actions if "remove" in one and one["remove"].get("dataChange", True)]
        if not removed and not any("cdc" in one for one in actions):
            files = [_bound(self._file, (one, columns)) for one in sorted(added, key=lambda one: str(one["path"]))]
            return Version(number, False, files, made)
        if self._has_feed:
            return Version(number, False, [lambda: self._feed(number, columns)], made)
        if self._ignores:
            return Version(number, False, [], made)
        raise ConnectException(
            f"Version {number} of the table {self._name} changes or deletes rows, and the table does not say which: "
            "set its property delta.enableChangeDataFeed=true for the versions to come, and "
            "behavior.on.rewrites=ignore to pass over this one"
        )

    def _file(self, given: tuple[Mapping[str, Any], pa.Schema]) -> Iterator[VersionRows]:
        """The rows of a file, a row group at a time."""
        add, columns = given
        if add.get("deletionVector"):
            raise ConnectException(
                f"The table {self._name} has deletion vectors, which cannot be read: REORG TABLE .. APPLY (PURGE) "
                "removes them"
            )
        values = add.get("partitionValues") or {}
        with faults(f"the file {add['path']} of the table {self._name}", "read"):
            file = pq.ParquetFile(self._files().open_input_file(unquote(add["path"])))
            for group in range(file.num_row_groups):
                table = file.read_row_group(group)
                for name, text in values.items():
                    cells = pa.array([text or None], pa.string()).take(pa.array(np.zeros(table.num_rows, np.int64)))
                    if name not in table.column_names:
                        table = table.append_column(name, cells)
                yield VersionRows(_conformed(table, columns))

    def _feed(self, number: int, columns: pa.Schema) -> Iterable[VersionRows]:
        """The changes of a version, deletes first, in a fixed order."""
        table = self._at(number)
        with faults(self._what, "read the change data feed of"):
            found = pa.table(pa.RecordBatchReader.from_stream(table.load_cdf(number, number)).read_all())
        kinds = one_array(found.column(_KIND)).cast(pa.string())
        rows = _conformed(found.drop_columns([one for one in _OF_FEED if one in found.column_names]), columns)
        new = rows.filter(pc.is_in(kinds, pa.array(["insert", "update_postimage"])))
        if self._keys:
            old = rows.filter(pc.is_in(kinds, pa.array(["delete", "update_preimage"]))).select(self._keys)
            left = old.group_by(self._keys, use_threads=False).aggregate([])
            # A key that the version also writes is not deleted.
            gone = left.join(new.select(self._keys), self._keys, join_type="left anti", use_threads=False)
            yield VersionRows(_sorted(gone, self._keys), deleted=True)
        yield VersionRows(_sorted(new, self._keys))

    def _actions(self, number: int) -> list[Mapping[str, Any]]:
        try:
            with self._files().open_input_stream(f"_delta_log/{number:020}.json") as file:
                return [json.loads(line) for line in file.read().decode().splitlines() if line.strip()]
        except FileNotFoundError as error:
            raise ConnectException(
                f"Version {number} of the table {self._name} is not in its log any more: it was cleaned up before it "
                "was read. Reset the offsets of the connector to begin again, or set them to a later version"
            ) from error
        except OSError as error:
            with faults(self._what, "read"):
                raise error

    def _files(self) -> Any:
        handler = DeltaStorageHandler(self._lake.uri(self._name), self._lake.options())
        return fs.PyFileSystem(handler)

    def _newest(self) -> DeltaTable:
        found = self._lake.open(self._name)
        if found is None:
            raise ConnectException(f"There is no table {self._name} in {self._lake.root}: check tables and url")
        lacking = [one for one in self._keys if one not in pa.schema(found.schema().to_arrow()).names]
        if lacking:
            raise ConnectException(f"key.columns names {', '.join(lacking)}, which the table {self._name} has not")
        return found

    def _at(self, number: int) -> DeltaTable:
        with faults(f"version {number} of the table {self._name}", "read"):
            return DeltaTable(self._lake.uri(self._name), version=number, storage_options=self._lake.options())

    @property
    def _what(self) -> str:
        return f"the table {self._name}"


def _texts(table: Any, name: str) -> list[str]:
    return [str(one) for one in pa.table(table).column(name).to_pylist()]


def _bound(call: Callable[[Any], Iterable[VersionRows]], argument: Any) -> Callable[[], Iterable[VersionRows]]:
    return lambda: call(argument)


def _conformed(table: pa.Table, columns: pa.Schema) -> pa.Table:
    cells = [
        fitted(one_array(table.column(one.name)), one.type, one.name)
        if one.name in table.column_names
        else pa.nulls(table.num_rows, one.type)
        for one in columns
    ]
    return pa.table(cells, schema=columns)


def _sorted(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    names = [*keys, *(one.name for one in table.schema if not pa.types.is_nested(one.type) and one.name not in keys)]
    if not table.num_rows or not names:
        return table
    return table.take(pc.sort_indices(table.select(names), [(one, "ascending") for one in names]))
