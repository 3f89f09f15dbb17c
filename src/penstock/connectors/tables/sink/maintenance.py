"""Joins small files and removes old versions between commits. Main type: `Maintenance`, on the task's thread."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from penstock.connectors.tables.lake import LakeTable
from penstock.connectors.tables.sink.settings import TableSinkConfig
from penstock.errors import ConnectException

log = logging.getLogger(__name__)


class Maintenance:
    """Runs maintenance when it is due; an error of it does not stop records.

    Args:
        config: The settings.
    """

    def __init__(self, config: TableSinkConfig) -> None:
        self._config = config
        self._wait()

    @property
    def is_due(self) -> bool:
        """True if maintenance is due."""
        is_wanted = self._config.compact_small_files or self._config.expire_older_than_ms >= 0
        return is_wanted and time.monotonic() >= self._due

    def run(self, tables: Iterable[LakeTable]) -> None:
        """Maintains each table."""
        self._wait()
        for table in tables:
            try:
                self._look_after(table)
            except ConnectException as error:
                log.warning("The table %s is left as it is until the next maintenance: %s", table.name, error)

    def _look_after(self, table: LakeTable) -> None:
        config = self._config
        table.refresh()
        if config.compact_small_files and (count := table.compact()):
            log.info("%d small files of the table %s were joined", count, table.name)
            table.refresh()
        if config.expire_older_than_ms >= 0 and (count := table.expire(config.expire_older_than_ms)):
            log.info("Old versions of the table %s were removed: %d files or snapshots are not kept", table.name, count)

    def _wait(self) -> None:
        self._due = time.monotonic() + self._config.maintenance_interval_ms / 1000
