"""Tasks for processes of their own; their module is imported there, too."""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.api import (
    FrameSinkTask,
    FrameSourceTask,
    Max,
    OffsetAndMetadata,
    RecordMetadata,
    SinkFrame,
    SinkRecord,
    SinkTask,
    SourceFrame,
    SourceRecord,
    SourceTask,
    TopicPartition,
    isolate,
)
from penstock.data import ConnectHeaders, SchemaBuilder, Struct
from penstock.errors import RetriableException

SCHEMA = SchemaBuilder.struct().name("Order").field("id", SchemaBuilder.int64().build()).build()


class NoRowsError(Exception):
    """An author's own error, which cannot be pickled."""

    def __init__(self, table: str, lock: Any) -> None:
        super().__init__(table, lock)
        self.table = table

    def __str__(self) -> str:
        return f"no rows in {self.table}"


class MovingSource(SourceTask):
    """Moves a position where there is no record, and says how far it is."""

    def poll(self) -> Sequence[SourceRecord] | None:
        self.context.advance({"f": 1}, {"n": 9})
        self.context.advance({"f": 2}, None)
        self.context.progress(9, 20, "rows")
        return None


class BoundedSource(SourceTask):
    """Ends its transactions itself: behind the first record of each poll, and gives up the rest of every second one."""

    def start(self, props: Mapping[str, str]) -> None:
        self.polls = 0

    def poll(self) -> Sequence[SourceRecord] | None:
        transactions = self.context.transaction_context()
        if transactions is None:
            return None
        self.polls += 1
        records = [SourceRecord({"f": 1}, {"n": n}, "t", n) for n in range(3)]
        transactions.commit_transaction(records[0])
        if self.polls == 2:
            transactions.abort_transaction()
        if self.polls == 3:
            transactions.abort_transaction(records[0])
        return records

    def stop(self) -> None: ...


class DoingSource(SourceTask):
    """Does in ``poll`` what its setting says; it may be started again."""

    measured = False

    def start(self, props: Mapping[str, str]) -> None:
        self.do = props["do"]
        self.woken = threading.Event()
        self.calls: list[str] = []
        self.prices: dict[str, int] = {}

    def poll(self) -> Any:
        match self.do:
            case "exit":
                os._exit(3)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "python-loop":
                while True:
                    pass
            case "c-loop":
                re.match("(a+)+b", "a" * 60)
            case "wait":
                self.woken.wait()
                return [self.record("woken")]
            case "idle":
                return [self.record("stopped" if self.context.stopping.wait(20) else "not stopped")]
            case "retry":
                raise RetriableException("not now")
            case "own-error":
                try:
                    self.prices["price"]
                except KeyError as error:
                    raise NoRowsError("orders", threading.Lock()) from error
            case "generator":
                return (number for number in range(3))
            case "lock":
                return [SourceRecord(None, None, "t", threading.Lock())]
            case "leak":
                self.kept = [bytearray(1 << 20) for _ in range(1024)]
            case "log":
                logging.getLogger("orders.reader").warning("a line of %s", "the log")
                print("a printed line", flush=True)
        self.metric()
        return [self.record(n) for n in range(3)]

    def record(self, n: object) -> SourceRecord:
        value = Struct(SCHEMA).put("id", n) if isinstance(n, int) else n
        headers = ConnectHeaders()
        headers.add_string("kind", "order")
        return SourceRecord({"f": 1}, {"n": n}, "t", value, headers=headers, timestamp=5)

    def metric(self) -> None:
        metrics = self.context.plugin_metrics()
        if not self.measured:
            self.measured = True
            sensor = metrics.add_sensor("polled")
            sensor.add(metrics.metric_name("most-polled"), Max())
            sensor.record(3)

    def commit_record(self, record: SourceRecord, metadata: RecordMetadata | None = None) -> None:
        self.calls.append(f"{record.source_offset} at {metadata.offset if metadata else None}")

    def commit(self) -> None:
        raise ValueError(f"committed after {self.calls}")

    def wakeup(self) -> None:
        assert self.context.stopping.is_set()
        self.woken.set()

    def stop(self) -> None:
        self.woken.set()

    def version(self) -> str:
        return f"{self.context.configs()['name']} {self.context.offset_storage_reader().offset({'f': 1})}"


class Frames(FrameSourceTask):
    def start(self, props: Mapping[str, str]) -> None:
        self.spark = props.get("spark")

    def poll(self) -> SourceFrame:
        if self.spark:
            return SourceFrame(lambda session: session.range(1), "t", None, {}, {})
        table = pa.table({"value": list(range(100))}).slice(10, 5)
        return SourceFrame(table, "t", None, {"f": 1}, {"n": 15}, offset_after=lambda row: {"n": 11 + row})

    def stop(self) -> None: ...


class Sink(SinkTask):
    """Checks what it is given, and asks its context everything."""

    def start(self, props: Mapping[str, str]) -> None:
        self.seen: list[SinkRecord] = []

    def open(self, partitions: Any) -> None:
        self.context.offset(TopicPartition("t", 0), 7)
        self.context.timeout(500)
        assert self.context.assignment() == frozenset(partitions)
        self.context.pause(*partitions)
        self.context.resume(*partitions)
        self.context.request_commit()

    def put(self, records: Sequence[SinkRecord]) -> None:
        assert len({id(record.value_schema) for record in records}) == 1
        self.seen += records
        for record in records:
            if record.value == "bad":
                reporter = self.context.errant_record_reporter()
                assert reporter is not None
                reporter.report(record, NoRowsError("bad", threading.Lock())).result(5)

    def pre_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Any:
        assert self.context.is_closing
        assert not self.context.is_backfill
        assert self.context.kafka_cluster_id == "cluster"
        return {partition: OffsetAndMetadata(len(self.seen)) for partition in offsets}

    def stop(self) -> None: ...


class RowSink(FrameSinkTask):
    """Writes rows to a file; reports those it refuses; is called by the clock."""

    def start(self, props: Mapping[str, str]) -> None:
        self.file = Path(props["file"])
        self.calls = 0
        self.end = self.context.every(0.01, self.tick)

    def tick(self) -> None:
        self.calls += 1
        if self.file.with_suffix(".late").exists():
            raise RetriableException("not now")
        if self.calls == 3:
            self.end()
            self.file.with_suffix(".ended").touch()

    def put(self, frame: SinkFrame) -> None:
        isolate(self.write, frame.since({TopicPartition("t", 0): 1}))

    def write(self, frame: SinkFrame) -> None:
        values = frame.table["value"].to_pylist()
        if "bad" in values:
            raise NoRowsError("bad", threading.Lock())
        with self.file.open("a") as out:
            out.writelines(
                f"{value} {place.topic}-{place.partition}\n"
                for place, one in frame.by_partition().items()
                for value in one.table["value"].to_pylist()
            )

    def stop(self) -> None: ...


class FrameSink(FrameSinkTask):
    def start(self, props: Mapping[str, str]) -> None: ...

    def put(self, frame: SinkFrame) -> None:
        raise ValueError(f"{frame.table['value'].to_pylist()} {frame.value_schema}")

    def stop(self) -> None: ...
