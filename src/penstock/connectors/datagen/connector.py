"""The source of made-up records: `DatagenSource`, `DatagenTask`.

A task's records are numbered, and the number of the next one is its offset: the content of a record depends only on its
number, the task's number and the seed. Thread: the connector's and the task's.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.api import ExactlyOnceSupport, FrameSourceTask, SourceConnector, SourceFrame
from penstock.connectors.datagen.columns import derived
from penstock.connectors.datagen.settings import DatagenConfig
from penstock.errors import ConnectException

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

    def faults(self, settings: DatagenConfig) -> Iterable[tuple[str, str]]:
        """Checks the schema."""
        return settings.faults()

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
