"""A source that writes down what is done to it, and does what files tell it, for tests with worker processes.

Main types: `JournalSource`, `JournalSourceTask`; `Probes`, what a test does with them; `Call`, an entry of a journal.
Settings:
`journal` names the file that all instances write; `orders` a directory (none when empty); `count` says how many records
each task makes, with `topic`. A unit is ``x`` for a connector, ``x-0`` for its first task.

Files in the directory of orders: ``<unit>.<call>`` holds ``fail`` or ``block``, which counts for that call while the
file is there; ``<connector>.tasks`` the number of tasks, instead of `tasks.max`; ``<connector>.do`` one request to the
worker as JSON, which a thread of the connector makes and then removes the file: ``{"reconfigure": true}``,
``{"restart": [0]}``, or ``{"offsets": true}``, which notes what tasks have committed.

Thread: the connector's and each task's; ``journal-orders`` belongs to a started connector with orders.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from penstock.api import ExactlyOnceSupport, SourceConnector, SourceRecord, SourceTask
from penstock.config import ConfigDef, ConfigType, Importance
from penstock.errors import ConnectException

CONFIG: Final = (
    ConfigDef()
    .define("journal", ConfigType.STRING, importance=Importance.HIGH, doc="The file that is written.")
    .define("orders", ConfigType.STRING, default="", importance=Importance.LOW, doc="A directory of orders.")
    .define("count", ConfigType.INT, default=0, importance=Importance.LOW, doc="How many records each task makes.")
    .define("topic", ConfigType.STRING, default="", importance=Importance.LOW, doc="Where to.")
    .define("stamp", ConfigType.PASSWORD, default="", importance=Importance.LOW, doc="Written down at the start.")
)
_POLL_S: Final = 0.02
#: A test has many such tasks, which have nothing to do most of the time.
_IDLE_S: Final = 0.1
_AT_ONCE: Final = 100


@dataclass(frozen=True)
class Call:
    """One call.

    Attributes:
        unit: What was called.
        call: The method, or what was done.
        pid: Of the worker's process.
        at_s: Seconds of the machine's monotonic clock.
        more: What is of interest beside.
    """

    unit: str
    call: str
    pid: int
    at_s: float
    more: dict[str, Any] = field(default_factory=dict)


class Probes:
    """Connectors of one test: their journal, and what they are told.

    Args:
        directory: for the journal and the orders.
    """

    def __init__(self, directory: Path) -> None:
        self.journal = directory / "journal"
        self.orders = directory / "orders"
        self.orders.mkdir()

    def config(self, tasks: int = 1, **more: str) -> dict[str, str]:
        """The settings of a connector; underscores of names stand for dots."""
        settings = {name.replace("_", "."): value for name, value in more.items()}
        made = f"{JournalSource.__module__}:{JournalSource.__name__}"
        files = {"journal": str(self.journal), "orders": str(self.orders)}
        return {"connector.class": made, "tasks.max": str(tasks), **files, **settings}

    def calls(self, *units: str) -> list[Call]:
        """The calls so far of these units, or all, in the order in which they were written."""
        if not self.journal.exists():
            return []
        calls = [Call(**json.loads(line)) for line in self.journal.read_text(encoding="utf-8").splitlines()]
        return [call for call in calls if not units or call.unit in units]

    def count(self, unit: str, call: str) -> int:
        """Counts the calls of something."""
        return sum(one.call == call for one in self.calls(unit))

    def order(self, unit: str, call: str, text: str | None) -> None:
        """Says what a call is to do from now on: ``fail``, ``block``, or another word; None for nothing."""
        file = self.orders / f"{unit}.{call}"
        if text is None:
            file.unlink()
        else:
            self._write(file, text)

    def request(self, connector: str, **order: object) -> Path:
        """Has a connector make a request to its worker; the file that is gone when it has."""
        file = self.orders / f"{connector}.do"
        self._write(file, json.dumps(order))
        return file

    @staticmethod
    def _write(file: Path, text: str) -> None:
        draft = file.with_suffix(".draft")
        draft.write_text(text)
        draft.rename(file)


class _Journal:
    """Writes the calls of one unit, and obeys what is ordered for them."""

    def __init__(self, unit: str, props: Mapping[str, str]) -> None:
        self.unit = unit
        self.orders = Path(props["orders"]) if props.get("orders") else None
        self._path = props["journal"]

    def write(self, call: str, **more: object) -> None:
        entry = {"unit": self.unit, "call": call, "pid": os.getpid(), "at_s": time.monotonic(), "more": more}
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, json.dumps(entry).encode() + b"\n")
        finally:
            os.close(file)

    def called(self, call: str, **more: object) -> None:
        """Notes a call, then waits or fails where that is ordered."""
        self.write(call, **more)
        while (order := self.ordered(call)) == "block":
            threading.Event().wait(_POLL_S)
        if order == "fail":
            raise ConnectException(f"{call} of {self.unit} was told to fail")

    def ordered(self, call: str) -> str:
        """Returns the order for a call; empty for none."""
        try:
            return "" if self.orders is None else (self.orders / f"{self.unit}.{call}").read_text().strip()
        except FileNotFoundError:
            return ""


class JournalSource(SourceConnector):
    """Gives each task its number."""

    def start(self, props: Mapping[str, str]) -> None:
        self._props = dict(props)
        self._journal = _Journal(props["name"], props)
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._journal.called("start", **{name: props[name] for name in ("stamp",) if props.get(name)})
        if self._journal.orders is not None:
            self._thread = threading.Thread(target=self._obey, name="journal-orders", daemon=True)
            self._thread.start()

    def task_class(self) -> type[SourceTask]:
        return JournalSourceTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        self._journal.called("task_configs", max_tasks=max_tasks)
        tasks = int(self._journal.ordered("tasks") or max_tasks)
        return [{**self._props, "number": str(number)} for number in range(tasks)]

    def stop(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join(3)
        self._journal.called("stop")

    def config(self) -> ConfigDef:
        return CONFIG

    def alter_offsets(
        self,
        props: Mapping[str, str],
        offsets: Mapping[frozenset[tuple[str, object]], Mapping[str, object] | None],
    ) -> bool:
        journal = _Journal(props["name"], props)
        journal.called("alter_offsets", offsets=[[dict(key or ()), value] for key, value in offsets.items()])
        return journal.ordered("alter_offsets") != "deny"

    def exactly_once_support(self, props: Mapping[str, str]) -> ExactlyOnceSupport:
        return ExactlyOnceSupport.SUPPORTED

    def _obey(self) -> None:
        orders = self._journal.orders
        assert orders is not None
        file = orders / f"{self._journal.unit}.do"
        while not self._ended.wait(_IDLE_S):
            try:
                order = json.loads(file.read_text())
            except (FileNotFoundError, ValueError):
                continue
            if "reconfigure" in order:
                self.context().request_task_reconfiguration()
            if "restart" in order:
                self.context().restart_tasks(order["restart"])
            if "offsets" in order:
                partitions = [{"task": one} for one in order["offsets"]]
                found = self.context().offset_storage_reader().offsets(partitions)
                self._journal.write("offsets", found=[None if one is None else dict(one) for one in found])
            file.unlink()


class JournalSourceTask(SourceTask):
    """Makes numbers, then waits."""

    def start(self, props: Mapping[str, str]) -> None:
        self._unit = f"{props['name']}-{props['number']}"
        self._journal = _Journal(self._unit, props)
        self._count, self._topic = int(props.get("count") or 0), props.get("topic") or ""
        self._next = 0
        if self._count:
            offset = self.context.offset_storage_reader().offset({"task": self._unit}) or {}
            self._next = int(str(offset.get("next", 0)))
        self._journal.called("start", number=self._next)

    def poll(self) -> list[SourceRecord] | None:
        if self._journal.ordered("poll"):
            self._journal.called("poll")
        if self._next >= self._count:
            self.context.stopping.wait(3600 if self._journal.orders is None else _IDLE_S)
            return None
        numbers = range(self._next, min(self._count, self._next + _AT_ONCE))
        self._next = numbers.stop
        return [
            SourceRecord({"task": self._unit}, {"next": number + 1}, self._topic, f"{self._unit} {number}")
            for number in numbers
        ]

    def stop(self) -> None:
        self._journal.called("stop")
