"""A source without records that makes the Spark JVM run out of memory when a file appears.

Main types: `HeapHog`, `HeapHogTask`. The setting `trigger` names the file; it is removed first. Thread: the task's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from penstock.api import SourceConnector, SourceTask
from penstock.config import ConfigDef, ConfigType, Importance

CONFIG = ConfigDef().define("trigger", ConfigType.STRING, importance=Importance.HIGH, doc="The file to wait for.")


class HeapHog(SourceConnector):
    """One task."""

    def start(self, props: Mapping[str, str]) -> None:
        self._props = dict(props)

    def task_class(self) -> type[SourceTask]:
        return HeapHogTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [self._props]

    def stop(self) -> None: ...

    def config(self) -> ConfigDef:
        return CONFIG


class HeapHogTask(SourceTask):
    """Runs one job on the worker's session that keeps more than any heap can hold."""

    def start(self, props: Mapping[str, str]) -> None:
        self._trigger = Path(props["trigger"])

    def poll(self) -> None:
        if not self._trigger.exists():
            self.context.stopping.wait(0.1)
            return
        self._trigger.unlink()
        from pyspark.sql import SparkSession

        session = SparkSession.builder.getOrCreate()
        with contextlib.suppress(Exception):  # the JVM is gone before it can answer
            session.range(1).selectExpr("size(transform(sequence(1, 400000000), x -> concat(x, 'abcdefgh')))").collect()

    def stop(self) -> None: ...
