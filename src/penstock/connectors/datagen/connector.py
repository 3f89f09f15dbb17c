"""The source of generated records: `DatagenSource`, `DatagenTask`, and `DatagenConfig`, their settings.

A task's records are numbered, and the number of the next one is its offset: the content of a record depends only on its
number, the task's number and the seed. Thread: the connector's and the task's.

Source: the settings of io.confluent.kafka.connect.datagen.DatagenConnector.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.api import ExactlyOnceSupport, FrameSourceTask, SourceConnector, SourceFrame
from penstock.config import (
    AbstractConfig,
    CaseInsensitiveValidString,
    ConfigType,
    Importance,
    LambdaValidator,
    Range,
    setting,
)
from penstock.connectors.datagen.columns import RecordGenerator, derived
from penstock.connectors.datagen.schemas import QUICKSTARTS, records_of
from penstock.errors import ConfigException, ConnectException

_NAMES: Final = CaseInsensitiveValidString(*QUICKSTARTS)


def _ensure_quickstart(name: str, value: object) -> None:
    if value is not None:
        _NAMES.ensure_valid(name, value)


class DatagenConfig(AbstractConfig):
    """The settings of the source."""

    kafka_topic: str = setting(importance=Importance.HIGH, doc="The topic that the records go to.")
    quickstart: str | None = setting(
        default=None,
        validator=LambdaValidator(_ensure_quickstart, f"one of {', '.join(QUICKSTARTS)}"),
        importance=Importance.HIGH,
        doc=f"The shape of the records: {', '.join(QUICKSTARTS)}. Or set schema.string or schema.filename.",
    )
    schema_string: str | None = setting(
        default=None,
        importance=Importance.HIGH,
        doc="An Avro schema of a record, as JSON, with arg.properties that say how values are made.",
    )
    schema_filename: str | None = setting(
        default=None, importance=Importance.HIGH, doc="A file of the worker with such a schema."
    )
    schema_keyfield: str | None = setting(
        default=None,
        importance=Importance.HIGH,
        doc="The field that is the key of the record, too. Left out: that of the quickstart; records of a schema of "
        "your own have no key then.",
    )
    max_interval: int = setting(
        type=ConfigType.LONG,
        default=500,
        validator=Range.at_least(0),
        importance=Importance.HIGH,
        doc="The longest time between two records of a task, in milliseconds; on average it is half of that. 0: as "
        "fast as they can be made.",
    )
    rate: int = setting(
        type=ConfigType.LONG,
        default=0,
        validator=Range.at_least(0),
        doc="Records a second of each task, in place of max.interval. 0: max.interval says it.",
    )
    iterations: int = setting(
        type=ConfigType.LONG,
        default=-1,
        validator=Range.at_least(-1),
        importance=Importance.HIGH,
        doc="How many records each task makes in all, across restarts; -1: no end. The task then stays idle.",
    )
    random_seed: int | None = setting(
        type=ConfigType.LONG,
        default=None,
        doc="With the same seed a task makes the same records again. Left out: by chance, and kept with the offset.",
    )
    batch_rows: int = setting(
        default=50_000,
        validator=Range.between(1, 1_000_000),
        importance=Importance.LOW,
        doc="The most records that are made at once.",
    )

    def faults(self, properties: Mapping[str, object]) -> list[tuple[str, str]]:
        """See ``AbstractConfig``."""
        given = [
            name
            for name, value in (
                ("quickstart", self.quickstart),
                ("schema.string", self.schema_string),
                ("schema.filename", self.schema_filename),
            )
            if value
        ]
        if len(given) != 1:
            found = f"{' and '.join(given)} are set" if given else "none is set"
            return [
                (
                    given[-1] if given else "quickstart",
                    f"set one of quickstart, schema.string, schema.filename; {found}",
                )
            ]
        try:
            records = self.records()
        except ConfigException as error:
            return [(given[0], str(error))]
        if self.key_field is not None and self.key_field not in records.names:
            text = f"there is no field {self.key_field!r}; the record has {', '.join(records.names)}"
            return [("schema.keyfield", text)]
        return []

    @property
    def key_field(self) -> str | None:
        """The field of the key; None = records without key."""
        if self.schema_keyfield:
            return self.schema_keyfield
        return QUICKSTARTS[self.quickstart.lower()][1] if self.quickstart else None

    @property
    def per_second(self) -> float | None:
        """Records a second of a task; None = as many as can be."""
        if self.rate:
            return float(self.rate)
        return 2000.0 / self.max_interval if self.max_interval else None

    def records(self) -> RecordGenerator:
        """Returns the generator of the records.

        Raises:
            ConfigException: The file cannot be read, or its schema cannot be used for records.
        """
        if self.quickstart:
            return records_of(QUICKSTARTS[self.quickstart.lower()][0])
        text = self.schema_string
        if not text:
            text = _read(str(self.schema_filename))
        try:
            schema: Any = json.loads(text)
        except ValueError as error:
            raise ConfigException(f"the schema is no JSON: {error}") from error
        return records_of(schema)


def _read(filename: str) -> str:
    try:
        return Path(filename).read_text("utf-8")
    except (OSError, ValueError) as error:
        raise ConfigException(
            f"cannot read the file {filename!r}: {error}. It must be on the worker's machine, or on each of a cluster"
        ) from error


TASK_ID: Final = "task.id"
CURRENT: Final = "current.iteration"
SEED: Final = "random.seed"
#: The longest delay for which a task catches up with its rate, in seconds.
_LATE_S: Final = 1.0


class DatagenTask(FrameSourceTask):
    """Makes records, as many as are due."""

    config_class = DatagenConfig
    settings: DatagenConfig

    def start(self, props: Mapping[str, str]) -> None:
        """Goes on with the record after the last one that was committed."""
        super().start(props)
        self._records = self.settings.records()
        self._partition = {TASK_ID: int(props.get(TASK_ID, "0"))}
        offset = self.context.offset_storage_reader().offset(self._partition) or {}
        self._next = _whole(offset, CURRENT, 0)
        seed = self.settings.random_seed
        self._seed = _whole(offset, SEED, secrets.randbits(62)) if seed is None else seed
        self._key = derived(self._seed & (1 << 64) - 1, str(self._partition[TASK_ID]))
        self._since, self._made = time.monotonic(), 0

    def poll(self) -> SourceFrame | None:
        """See ``FrameSourceTask.poll``."""
        count = self._due()
        if count <= 0:
            return None
        first, self._next = self._next, self._next + count
        self._made += count
        value = self._records.make(self._key, np.arange(first, first + count, dtype=np.uint64))
        table = pa.table({"value": value})
        field = self.settings.key_field
        if field is not None:
            table = table.append_column("key", value.field(field))
        key = None if field is None else self._records.schema.field(field)
        return SourceFrame(
            table,
            self.settings.kafka_topic,
            self._records.schema,
            self._partition,
            self._offset(self._next),
            key_schema=None if key is None else key.schema,
            offset_after=lambda row: self._offset(first + row + 1),
        )

    def _offset(self, following: int) -> dict[str, Any]:
        return {CURRENT: following, SEED: self._seed}

    def _due(self) -> int:
        """The number of records to make now; waits a second at most for the first."""
        config = self.settings
        left = config.batch_rows
        if config.iterations >= 0:
            left = min(left, config.iterations - self._next)
        if left <= 0:
            self.context.stopping.wait(1.0)
            return 0
        if config.per_second is None:
            return left
        due = self._due_at(time.monotonic(), config.per_second)
        if due < 1:
            following = self._since + self._made / config.per_second
            self.context.stopping.wait(min(1.0, max(0.0, following - time.monotonic())))
            due = 0 if self.context.stopping.is_set() else self._due_at(time.monotonic(), config.per_second)
        return min(due, left)

    def _due_at(self, now: float, per_second: float) -> int:
        """The number of records that the pace wants; the first at once."""
        due = int((now - self._since) * per_second) + 1 - self._made
        most = int(per_second * _LATE_S) + 1
        if due > most:
            # It was paused, or Kafka was away: it does not hurry afterwards.
            self._since, self._made, due = now - (most - 1) / per_second, 0, most
        return due


class DatagenSource(SourceConnector):
    """Makes records of a shape: orders, clicks, or the shape of an Avro schema.

    Source: io.confluent.kafka.connect.datagen.DatagenConnector, for names.
    """

    config_class, task_class = DatagenConfig, DatagenTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """Each task has a number; each makes its own records."""
        return [{**self.props, TASK_ID: str(number)} for number in range(max_tasks)]

    def exactly_once_support(self, props: Mapping[str, str]) -> ExactlyOnceSupport:
        """The records of an offset can be made again."""
        return ExactlyOnceSupport.SUPPORTED

    def alter_offsets(
        self,
        props: Mapping[str, str],
        offsets: Mapping[frozenset[tuple[str, object]], Mapping[str, object] | None],
    ) -> bool:
        """Checks new offsets.

        Raises:
            ConnectException: A partition is no task, or an offset no number of a record.
        """
        for partition, offset in offsets.items():
            found = dict(partition)
            if offset is None:
                continue
            if set(found) != {TASK_ID} or _whole(found, TASK_ID, -1) < 0:
                raise ConnectException(
                    f'{found} is no source partition of this connector: it must be {{"{TASK_ID}": 0}}'
                )
            _whole(offset, CURRENT, None)
            _whole(offset, SEED, 0)
        return True


def _whole(offset: Mapping[str, Any], name: str, default: int | None) -> int:
    value = offset.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or (name != SEED and value < 0):
        raise ConnectException(
            f"The offset {dict(offset)} of a task is not usable: {name} must be a whole number, 0 or more"
        )
    return value
