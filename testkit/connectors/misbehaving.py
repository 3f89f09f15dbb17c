"""A source whose task does harm when a file appears: ends its process, loops, or takes memory.

Main types: ``Misbehaving``, ``MisbehavingTask``. The setting ``do`` says what, ``trigger`` names the file, which is
removed first. With ``retry`` and ``retry start`` it asks for each call again as long as there is no file. Thread: the
task's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from penstock.api import SourceConnector, SourceTask
from penstock.config import ConfigDef, ConfigType, Importance
from penstock.errors import RetriableException

CONFIG = (
    ConfigDef()
    .define("do", ConfigType.STRING, importance=Importance.HIGH, doc="exit, loop, match, leak, retry or retry start.")
    .define("trigger", ConfigType.STRING, importance=Importance.HIGH, doc="The file to wait for.")
)


class Misbehaving(SourceConnector):
    """One task."""

    def start(self, props: Mapping[str, str]) -> None:
        self._props = dict(props)

    def task_class(self) -> type[SourceTask]:
        return MisbehavingTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [self._props]

    def stop(self) -> None: ...

    def config(self) -> ConfigDef:
        return CONFIG


class MisbehavingTask(SourceTask):
    """Waits for its file, writes its process's number beside it, and does harm."""

    def start(self, props: Mapping[str, str]) -> None:
        self._do, self._trigger = props["do"], Path(props["trigger"])
        self._kept: list[bytearray] = []
        self._ask_again("retry start")

    def _ask_again(self, what: str) -> None:
        came = self._trigger.exists() or self._trigger.with_suffix(".pid").exists()
        if self._do == what and not came:
            raise RetriableException(f"{self._trigger.name} is away")

    def poll(self) -> None:
        self._ask_again("retry")
        if not self._trigger.exists():
            self.context.stopping.wait(0.1)
            return
        self._trigger.unlink()
        self._trigger.with_suffix(".pid").write_text(str(os.getpid()))
        match self._do:
            case "exit":
                os._exit(3)
            case "loop":
                while True:
                    pass
            case "match":
                re.match("(a+)+b", "a" * 60)
            case "leak":
                self._kept += [bytearray(b"x" * (1 << 20)) for _ in range(1024)]

    def stop(self) -> None: ...
