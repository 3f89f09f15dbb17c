"""Table source connector and its task. Main types: `TableSource`, `TableSourceTask`, and `TableSourceConfig`, their
settings.

The worker calls them on the connector's and the task's thread.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, Self

import pyarrow as pa

from penstock.api import Chunk, ExactlyOnceSupport, PartitionedSource, PartitionedTask, Task
from penstock.config import (
    CaseInsensitiveValidString,
    ClassResolver,
    Config,
    ConfigType,
    ConfigValue,
    Importance,
    Range,
    setting,
)
from penstock.connectors.tables.lake import Lake
from penstock.connectors.tables.places import LakeConfig, TableFormat, open_lake
from penstock.connectors.tables.sink.settings import is_known, with_own_names
from penstock.connectors.tables.source.reading import History, TablePosition, Version, VersionRows
from penstock.errors import BadRequestException, ConnectException


class OnRewrite(Enum):
    """The treatment of versions that change or delete rows without naming them."""

    FAIL = "fail"
    IGNORE = "ignore"


class TableSourceConfig(LakeConfig):
    """The settings of the table source."""

    tables: tuple[str, ...] = setting(importance=Importance.HIGH, doc="The tables to read.")
    topic_prefix: str = setting(
        default="", importance=Importance.HIGH, doc="The topic of a table is this and the name of the table."
    )
    key_columns: tuple[str, ...] = setting(
        default=(),
        importance=Importance.HIGH,
        doc="The columns that are the key of records. Deletes that the change data feed of a Delta table tells are "
        "tombstones of these keys.",
    )
    start_from: str = setting(
        default="snapshot",
        importance=Importance.HIGH,
        doc="The start of a table that was not read yet. snapshot: all its rows, then its changes. latest: only new "
        "changes. A number: the changes after that version of Delta or snapshot of Iceberg. A time in ISO 8601: the "
        "changes after it.",
    )
    behavior_on_rewrites: OnRewrite = setting(
        default=OnRewrite.FAIL,
        validator=CaseInsensitiveValidString("fail", "ignore"),
        doc="Versions that change or delete rows of a table without a change data feed. fail: the table is not read "
        "any further. ignore: they are passed over.",
    )
    poll_interval_ms: int = setting(
        default=5000,
        type=ConfigType.LONG,
        validator=Range.at_least(1),
        doc="How often the tables are asked for new versions.",
    )
    batch_max_rows: int = setting(default=10_000, validator=Range.at_least(1), doc="The rows of one poll, at most.")

    @classmethod
    def parse(cls, properties: Mapping[str, object], *, resolve_class: ClassResolver | None = None) -> Self:
        """See ``AbstractConfig``; accepts the names of Iceberg's sink, too."""
        return super().parse(with_own_names(properties), resolve_class=resolve_class)

    def faults(self, properties: Mapping[str, object]) -> list[tuple[str, str]]:
        """See ``AbstractConfig``."""
        found = super().faults(properties)
        if not self.tables:
            found.append(("tables", "names at least one table"))
        if self.start_from not in ("snapshot", "latest") and self.start_version is None and self.start_time is None:
            found.append(("start.from", "is snapshot, latest, a number, or a time such as 2026-01-31T12:00:00Z"))
        return found

    @property
    def start_version(self) -> int | None:
        """The version or snapshot of ``start.from``."""
        text = self.start_from
        return int(text) if text.isascii() and text.isdigit() else None

    @property
    def start_time(self) -> datetime.datetime | None:
        """The time of ``start.from``; UTC if it has no zone."""
        if self.start_version is not None:
            return None
        try:
            found = datetime.datetime.fromisoformat(self.start_from)
        except ValueError:
            return None
        return found if found.tzinfo else found.replace(tzinfo=datetime.UTC)


class TableSource(PartitionedSource):
    """Reads tables of Delta Lake or Apache Iceberg: their rows, and then the changes of each new version.

    Source: Penstock's own.
    """

    config_class = TableSourceConfig
    settings: TableSourceConfig

    def task_class(self) -> type[Task]:
        """The task that reads."""
        return TableSourceTask

    def partitions(self) -> list[Mapping[str, Any]]:
        """The tables."""
        return [{"table": name} for name in dict.fromkeys(self.settings.tables)]

    def exactly_once_support(self, props: Mapping[str, str]) -> ExactlyOnceSupport:
        """SUPPORTED: a position is exact, because files, and rows of files, have a fixed order."""
        return ExactlyOnceSupport.SUPPORTED

    def alter_offsets(self, props: Mapping[str, str], offsets: Mapping[Any, Mapping[str, object] | None]) -> bool:
        """Checks new offsets: ``{"version": N}`` is after that version or snapshot. Removing is always allowed.

        Raises:
            BadRequestException: A partition is none of the tables, or an offset no place in a table's history.
        """
        tables = None
        for key, offset in offsets.items():
            if offset is None:
                continue
            if tables is None:
                tables = TableSourceConfig.of(TableSourceConfig.definition().parse(with_own_names(props))).tables
            partition = dict(key)
            if set(partition) != {"table"} or partition["table"] not in tables:
                raise BadRequestException(
                    f'{partition} is no source partition of this connector: it must be {{"table": NAME}}, with one of '
                    f"{', '.join(tables)}"
                )
            numbers = {name: value for name, value in offset.items() if name != "whole"}
            if not offset.keys() & {"version", "of"} or not all(
                name in ("version", "of", "file", "row") and isinstance(value, int) and not isinstance(value, bool)
                for name, value in numbers.items()
            ):
                raise BadRequestException(
                    f'{dict(offset)} is no place in the history of a table: {{"version": N}} is after the version or '
                    "the snapshot N"
                )
        return True

    def validate(self, connector_configs: Mapping[str, str]) -> Config:
        """Checks each setting, their combination, and that the lake exists."""
        properties = with_own_names(connector_configs)
        checked = super().validate({name: str(value) for name, value in properties.items() if value is not None})
        values = {value.name: value for value in checked.config_values}
        if not checked.errors():
            config = TableSourceConfig.of(TableSourceConfig.definition().parse(properties))
            for text in _faults_of_lake(config, connector_configs):
                values["url"].add_error_message(f"url: {text}")
        for name in filter(is_known, connector_configs):
            values.setdefault(name, ConfigValue(name, connector_configs[name]))
        return Config(list(values.values()))

    def obstacles(self, props: Mapping[str, str]) -> Sequence[str]:
        """Reports a lake that cannot be used."""
        return _faults_of_lake(TableSourceConfig.parse(props), props)


class TableSourceTask(PartitionedTask):
    """Reads its share of the tables, version by version."""

    config_class = TableSourceConfig
    settings: TableSourceConfig
    _lake: Lake

    def start(self, props: Mapping[str, str]) -> None:
        """Reads the settings and the committed positions."""
        self._lake = open_lake(TableSourceConfig.parse(props), props, props.get("name", ""), renew=self.context.configs)
        super().start(props)
        self.idle_s = self.settings.poll_interval_ms / 1000

    def stop(self) -> None:
        """Ends the reads."""
        super().stop()
        if hasattr(self, "_lake"):
            self._lake.close()

    def read(self, partition: Mapping[str, Any], offset: Mapping[str, Any] | None) -> Iterator[Chunk]:
        """Reads the rows after a position: the rest of a version, and all later ones."""
        name = str(partition["table"])
        history = self._history(name)
        position = TablePosition() if offset is None else TablePosition.parse(offset)
        if offset is None:
            config = self.settings
            begin = history.begin(config.start_version, config.start_time, whole=config.start_from == "snapshot")
            if isinstance(begin, TablePosition):
                position = begin
                yield Chunk(None, offset=position.offset())
            else:
                yield from self._version(name, begin, position)
                position = TablePosition(begin.number)
        elif position.of is not None and position.whole:
            yield from self._version(name, history.version(position.of), position)
            position = TablePosition(position.of)
        for version in history.changes(position.version):
            yield from self._version(name, version, position)
            position = TablePosition(version.number)

    def _version(self, name: str, version: Version, position: TablePosition) -> Iterator[Chunk]:
        waiting: Chunk | None = None
        for rows, last, after in version.read(position, self.settings.batch_max_rows):
            if waiting is not None:
                yield waiting
            waiting = self._chunk(name, version, rows, last, after)
        done = TablePosition(version.number).offset()
        if waiting is None:
            yield Chunk(None, offset=done)
            return
        # The version is complete with its last row.
        count, behind = waiting.data.num_rows, waiting.offset_after  # type: ignore[union-attr]
        assert behind is not None
        yield replace(waiting, offset=done, offset_after=lambda row: done if row == count - 1 else behind(row))

    def _chunk(self, name: str, version: Version, rows: VersionRows, last: TablePosition, after: Any) -> Chunk:
        table, keys = rows.table, list(self.settings.key_columns)
        topic = self.settings.topic_prefix + name
        if not rows.deleted:
            return Chunk(
                table,
                topic,
                offset=last.offset(),
                offset_after=lambda row: after(row).offset(),
                key=keys,
                timestamp=version.timestamp_ms,
            )
        from penstock.api.arrow import connect_schema, struct_column

        key = struct_column(table, keys)
        return Chunk(
            pa.table({"value": pa.nulls(table.num_rows), "key": key}),
            topic,
            offset=last.offset(),
            offset_after=lambda row: after(row).offset(),
            key_schema=connect_schema(key.type),
            timestamp=version.timestamp_ms,
        )

    def _history(self, name: str) -> History:
        config, keys = self.settings, self.settings.key_columns
        ignores = config.behavior_on_rewrites is OnRewrite.IGNORE
        if config.format is TableFormat.DELTA:
            from penstock.connectors.tables.delta import DeltaLake
            from penstock.connectors.tables.source.delta import DeltaHistory

            assert isinstance(self._lake, DeltaLake)
            return DeltaHistory(self._lake, name, keys, ignores)
        from penstock.connectors.tables.iceberg import IcebergLake
        from penstock.connectors.tables.source.iceberg import IcebergHistory

        assert isinstance(self._lake, IcebergLake)
        return IcebergHistory(self._lake, name, keys, ignores)


def _faults_of_lake(config: TableSourceConfig, properties: Mapping[str, str]) -> list[str]:
    try:
        lake = open_lake(config, properties, properties.get("name", ""))
        try:
            lake.check()
        finally:
            lake.close()
    except ConnectException as error:
        return [str(error)]
    return []
