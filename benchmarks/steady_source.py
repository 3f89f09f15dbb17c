"""A columnar source that gives the same lines again and again, as fast as they are taken or at a set pace.

Main types: `SteadySource`, `SteadyTask`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

import pyarrow as pa

from penstock.api import FrameSourceTask, SourceConnector, SourceFrame, Task
from penstock.config import ConfigDef, ConfigType, Importance
from penstock.data import STRING_SCHEMA

LINES = 20_000
CONFIG = (
    ConfigDef()
    .define("topic", ConfigType.STRING, importance=Importance.HIGH, doc="Where the lines go.")
    .define(
        "rate", ConfigType.LONG, default=0, importance=Importance.HIGH, doc="Lines a second; 0 for all that are taken."
    )
)


class SteadySource(SourceConnector):
    """One task."""

    def start(self, props: Mapping[str, str]) -> None:
        """Keeps the settings."""
        self._props = dict(props)

    def task_class(self) -> type[Task]:
        """The columnar task."""
        return SteadyTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """One task."""
        return [self._props]

    def stop(self) -> None:
        """Nothing to do."""

    def config(self) -> ConfigDef:
        """`topic` and `rate`."""
        return CONFIG


class SteadyTask(FrameSourceTask):
    """Gives a table of lines as often as the pace allows."""

    def start(self, props: Mapping[str, str]) -> None:
        """Makes the lines."""
        self._topic, self._rate = props["topic"], int(props.get("rate", "0"))
        lines = [
            f"line {number:07d} of a text that is about as long as the lines of other runs" for number in range(LINES)
        ]
        self._table = pa.table({"value": lines})
        self._given = 0
        self._started = time.monotonic()
        self._stopping = threading.Event()

    def poll(self) -> SourceFrame | None:
        """The lines once more, when they are due."""
        if self._rate:
            due = self._started + self._given / self._rate
            if self._stopping.wait(max(0.0, due - time.monotonic())):
                return None
        self._given += LINES
        return SourceFrame(self._table, self._topic, STRING_SCHEMA, {"part": 0}, {"given": self._given})

    def stop(self) -> None:
        """Ends a wait."""
        self._stopping.set()
