"""Connectors that record what is done to them, for tests of the herder and the worker.

Main types: ``Board`` (what was done, what to do), ``ProbeSource``, ``ProbeSink``. The connectors are made by name, so
they share the board ``BOARD``; a test begins with ``BOARD.clear()``. Any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from penstock.api import SinkConnector, SinkTask, SourceConnector, SourceTask
from penstock.config import ConfigDef, ConfigType, Importance


class Board:
    """The record of what the probes of one test did, and what they are told to do, by connector name."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forgets everything."""
        self.calls: list[tuple[str, str]] = []
        self.instances: dict[str, list[Any]] = {}
        self.configs: dict[str, list[dict[str, str]]] = {}
        self.fail: dict[tuple[str, str], Exception] = {}
        self.block: dict[tuple[str, str], threading.Event] = {}
        self.altered: list[tuple[str, dict[Any, Any]]] = []
        self.alters: dict[str, bool] = {}
        self.on_start: dict[str, Callable[[Any], None]] = {}

    def hit(self, name: str, call: str, *, record: bool = True) -> None:
        """Notes a call; blocks or raises when the test wants that."""
        if record:
            self.calls.append((name, call))
        blocked = self.block.get((name, call))
        if blocked is not None:
            assert blocked.wait(20)
        error = self.fail.get((name, call))
        if error is not None:
            raise error

    def of(self, name: str) -> list[str]:
        """The calls into one connector, in order."""
        return [call for who, call in self.calls if who == name]


BOARD = Board()


class _Probe:
    name = ""

    def start(self, props: Mapping[str, str]) -> None:
        self.props = dict(props)
        self.name = props["name"]
        BOARD.instances.setdefault(self.name, []).append(self)
        BOARD.hit(self.name, "start")
        if self.name in BOARD.on_start:
            BOARD.on_start[self.name](self)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        BOARD.hit(self.name, "task_configs")
        return BOARD.configs.get(self.name, [{"part": str(number)} for number in range(max_tasks)])

    def stop(self) -> None:
        BOARD.hit(self.name, "stop")

    def config(self) -> ConfigDef:
        BOARD.hit(self.name, "config", record=False)
        return ConfigDef().define("must", ConfigType.STRING, default="", importance=Importance.LOW)

    def alter_offsets(self, props: Mapping[str, str], offsets: Mapping[Any, Any]) -> bool:
        name = props["name"]
        BOARD.altered.append((name, dict(offsets)))
        BOARD.hit(name, "alter_offsets", record=False)
        return BOARD.alters.get(name, True)

    def version(self) -> str:
        return "7"


class ProbeTask(SourceTask):
    """A source task without records."""

    def start(self, props: Mapping[str, str]) -> None: ...
    def stop(self) -> None: ...
    def poll(self) -> None: ...


class ProbeSinkTask(SinkTask):
    """A sink task that drops what it gets."""

    def start(self, props: Mapping[str, str]) -> None: ...
    def stop(self) -> None: ...
    def put(self, records: Any) -> None: ...


class ProbeSource(_Probe, SourceConnector):
    """A source connector that writes on the board."""

    def task_class(self) -> type[ProbeTask]:
        return ProbeTask


class ProbeSink(_Probe, SinkConnector):
    """A sink connector that writes on the board."""

    def task_class(self) -> type[ProbeSinkTask]:
        return ProbeSinkTask
