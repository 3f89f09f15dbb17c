"""A source for previews. It imports little, because each preview imports it anew."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.api import SourceConnector, SourceRecord, SourceTask
from penstock.config import ConfigDef
from penstock.errors import ConnectException


class CountingTask(SourceTask):
    def start(self, props: Mapping[str, str]) -> None:
        self.props = dict(props)
        self.count = 0

    def poll(self) -> list[SourceRecord]:
        match self.props["do"]:
            case "die":
                os._exit(1)
            case "block":
                started = subprocess.Popen(["sleep", "600"])
                written = Path(self.props["pids"] + ".new")
                written.write_text(f"{os.getpid()} {started.pid}")
                written.rename(self.props["pids"])
                threading.Event().wait()
            case "fail":
                raise ConnectException("no such table")
        self.count += 1
        return [SourceRecord({"n": 1}, {"at": self.count}, "t", {"number": self.count})] * 3

    def stop(self) -> None: ...


class Counting(SourceConnector):
    def start(self, props: Mapping[str, str]) -> None:
        self.props = dict(props)

    def task_class(self) -> type[Any]:
        return CountingTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [] if self.props["do"] == "nothing" else [self.props]

    def stop(self) -> None: ...

    def config(self) -> ConfigDef:
        return ConfigDef()
