"""A transform and a predicate without state that do things with numbers in texts: for tests of Spark's Python workers.

Main types: ``Numbered`` (gives keys, refuses, drops, says what it saw; or does harm in a Python worker) and ``Even``.

Thread: of the worker, or of one of Spark's Python workers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from penstock.api import ConnectRecord, Predicate, Transformation
from penstock.config import ConfigDef, ConfigType
from penstock.data import STRING_SCHEMA
from penstock.errors import DataException

SETTINGS: Final = (
    ConfigDef()
    .define("keyed", ConfigType.BOOLEAN, default=False, doc="Whether the key becomes the text of the value, with a k.")
    .define("side", ConfigType.STRING, default="value", doc="Which side the number is read from: key or value.")
    .define("refuses", ConfigType.INT, default=-1, doc="The last digit of numbers that it refuses.")
    .define("drops", ConfigType.INT, default=-1, doc="The last digit of numbers that it drops.")
    .define("joined", ConfigType.BOOLEAN, default=False, doc="Whether the value becomes key=value.")
    .define(
        "harm",
        ConfigType.STRING,
        default="",
        doc="A file: while it holds exit or loop, a Python worker does.",
    )
)


class Numbered(Transformation):
    """Does what its settings say with records whose key or value ends with a number."""

    stateless = True

    def config(self) -> ConfigDef:
        return SETTINGS

    def configure(self, props: Mapping[str, object]) -> None:
        found: dict[str, Any] = dict(SETTINGS.parse({name: str(value) for name, value in props.items()}))
        self.keyed, self.side, self.joined = found["keyed"], found["side"], found["joined"]
        self.refuses, self.drops = found["refuses"], found["drops"]
        self.harm = found["harm"]
        self.worker = os.getpid()

    def apply(self, record: Any) -> Any:
        digit = int(str(record.key if self.side == "key" else record.value)[-1])
        if digit == self.refuses:
            raise DataException(f"no {digit}: {record.value}")
        if digit == self.drops:
            return None
        if self.harm and os.getpid() != self.worker:
            self._do_harm(Path(self.harm))
        if self.keyed:
            return record.new_record(key_schema=STRING_SCHEMA, key=f"k{record.value}")
        if self.joined:
            return record.new_record(value=f"{record.key}={record.value}")
        return record

    def _do_harm(self, file: Path) -> None:
        try:
            what = file.read_text()
        except FileNotFoundError:
            return
        file.with_suffix(".pid").write_text(str(os.getpid()))
        if what == "exit":
            file.unlink()
            os._exit(3)
        while what == "loop":
            time.monotonic()


class Even(Predicate):
    """Holds for values that are even numbers; cannot tell of those that end with 98."""

    stateless = True

    def config(self) -> ConfigDef:
        return ConfigDef()

    def test(self, record: ConnectRecord) -> bool:
        number = int(str(record.value))
        if number % 100 == 98:
            raise DataException(f"nobody knows: {number}")
        return number % 2 == 0
