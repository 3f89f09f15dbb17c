"""A sink that writes down what is done to its tasks, for tests that run it in a worker process of its own.

Main types: `JournalSink`, `JournalSinkTask`; `read_journal` gives what is in a journal, as `Entry` values. The setting
`journal` names the file, `report` the value (as text) of records that the task gives to its errant record reporter;
with `made` it gives a record of its own making instead, with an offset that it was never given. `hold` names a file:
while it is there `put` waits. The task counts records and calls of `put` in metrics of its own. Each entry is one line
of JSON, appended with one write, so that tasks may share a journal. Thread: each task's own.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.api import (
    CumulativeCount,
    CumulativeSum,
    OffsetAndMetadata,
    SinkConnector,
    SinkRecord,
    SinkTask,
    TopicPartition,
)
from penstock.config import ConfigDef, ConfigType, Importance
from penstock.errors import DataException

CONFIG = (
    ConfigDef()
    .define("journal", ConfigType.STRING, importance=Importance.HIGH, doc="The file that is written.")
    .define("report", ConfigType.STRING, default="", importance=Importance.LOW, doc="The value to report.")
    .define("hold", ConfigType.STRING, default="", importance=Importance.LOW, doc="A file that makes put wait.")
    .define("made", ConfigType.BOOLEAN, default=False, importance=Importance.LOW, doc="Report records of one's own.")
)
_POLL_S = 0.02


@dataclass(frozen=True)
class Entry:
    """One call of a task.

    Attributes:
        task: its number; as given, not as started: a restarted task goes on under its number.
        call: the method.
        partitions: what it was called with.
        assignment: what the context said then.
        values: of `put`.
        closing: what `is_closing` said in `pre_commit`.
    """

    task: int
    call: str
    partitions: tuple[str, ...] = ()
    assignment: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    closing: bool | None = None


def read_journal(path: Path) -> list[Entry]:
    """The calls so far, in order."""
    if not path.exists():
        return []
    return [_entry(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def _entry(fields: dict[str, Any]) -> Entry:
    made: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    return Entry(**made)


class JournalSink(SinkConnector):
    """Gives each task its number."""

    def start(self, props: Mapping[str, str]) -> None:
        self._props = dict(props)

    def task_class(self) -> type[SinkTask]:
        return JournalSinkTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [{**self._props, "number": str(number)} for number in range(max_tasks)]

    def stop(self) -> None: ...

    def config(self) -> ConfigDef:
        return CONFIG


class JournalSinkTask(SinkTask):
    """Writes every call down."""

    def start(self, props: Mapping[str, str]) -> None:
        self._number = int(props["number"])
        self._report = props.get("report", "")
        self._hold = props.get("hold", "")
        metrics = self.context.plugin_metrics()
        tags = {"journal": os.path.basename(props["journal"])}
        self._puts = metrics.add_sensor("puts")
        self._puts.add(metrics.metric_name("journal-records-total", "Records in the journal.", tags), CumulativeSum())
        self._puts.add(metrics.metric_name("journal-puts-total", "Entries of put.", tags), CumulativeCount())
        self._made = props.get("made") == "true"
        self._journal = os.open(props["journal"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._write("start", ())

    def open(self, partitions: Iterable[TopicPartition]) -> None:
        self._write("open", partitions)

    def close(self, partitions: Iterable[TopicPartition]) -> None:
        self._write("close", partitions)

    def pre_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        self._write("pre_commit", offsets, closing=self.context.is_closing())
        return offsets

    def put(self, records: Sequence[SinkRecord]) -> None:
        if not records:
            return
        pause = threading.Event()
        while self._hold and os.path.exists(self._hold):
            pause.wait(_POLL_S)
        self._puts.record(len(records))
        self._write("put", (), values=[str(record.value) for record in records])
        for record in records:
            if self._report and str(record.value) == self._report:
                reporter = self.context.errant_record_reporter()
                assert reporter is not None
                reporter.report(
                    _made_of(record) if self._made else record,
                    DataException(f"the journal does not take {record.value}"),
                )

    def stop(self) -> None:
        self._write("stop", ())
        os.close(self._journal)

    def _write(self, call: str, partitions: Iterable[TopicPartition], **more: object) -> None:
        entry = {
            "task": self._number,
            "call": call,
            "partitions": sorted(f"{topic}-{number}" for topic, number in partitions),
            "assignment": sorted(f"{topic}-{number}" for topic, number in self.context.assignment()),
            **more,
        }
        os.write(self._journal, json.dumps(entry).encode() + b"\n")


def _made_of(record: SinkRecord) -> SinkRecord:
    return SinkRecord(
        record.topic,
        record.kafka_partition,
        record.kafka_offset + 1_000_000,
        {"was": record.value, "list": [True, None]},
        key=record.key,
        key_schema=record.key_schema,
        timestamp=record.timestamp,
        timestamp_type=record.timestamp_type,
        headers=record.raw_headers,
    )
