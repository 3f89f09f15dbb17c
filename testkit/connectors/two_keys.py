"""A source that sends its offset, once, from a partition with two keys: for tests of offsets that REST changes.

Main types: ``OnceSource``, ``OnceTask``. Thread: of the worker.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.api import SourceConnector, SourceRecord, SourceTask
from penstock.config import ConfigDef

PARTITION = {"table": "t1", "db": "x"}


class OnceTask(SourceTask):
    """Sends one record, which says what its offset was."""

    def start(self, props: Mapping[str, str]) -> None:
        self.topic, self.sent = props["topic"], False

    def poll(self) -> list[SourceRecord] | None:
        if self.sent:
            self.context.stopping.wait(1.0)
            return None
        self.sent = True
        offset = self.context.offset_storage_reader().offset(PARTITION)
        return [SourceRecord(PARTITION, {"n": 5}, self.topic, f"after {offset}")]

    def stop(self) -> None: ...


class OnceSource(SourceConnector):
    """A connector of one such task."""

    def start(self, props: Mapping[str, str]) -> None:
        self.props = dict(props)

    def task_class(self) -> type[OnceTask]:
        return OnceTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [self.props]

    def stop(self) -> None: ...

    def config(self) -> ConfigDef:
        return ConfigDef()
