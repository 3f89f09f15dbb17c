"""Internal topics on a real broker, for tests: settings of a distributed worker, its admin client, logs with a memory.

Main types: ``LogLab``, ``Recorder`` (a log's handler that keeps what it is given). Thread: the test's; recorders are
told on the threads of their logs.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType

import confluent_kafka as ck

from penstock.kafka.admin import TopicAdmin
from penstock.kafka.settings.client import CLIENT_LOG
from penstock.kafka.topic_log.clients import LogRecord
from penstock.kafka.topic_log.internal_topics import (
    InternalTopic,
    Kind,
    config_log,
    ensure,
    offset_log,
    shared_admin,
    status_log,
)
from penstock.kafka.topic_log.log import TopicLog


class Recorder:
    """Keeps the records of a log, and the newest value of each key."""

    def __init__(self) -> None:
        self.records: list[LogRecord] = []
        self.threads: set[str] = set()

    def __call__(self, records: Sequence[LogRecord]) -> None:
        """Takes a batch."""
        self.threads.add(threading.current_thread().name)
        self.records += records

    def values(self) -> dict[bytes, bytes]:
        """Returns the newest values in the log, by key."""
        found: dict[bytes, bytes] = {}
        for record in self.records:
            assert record.key is not None
            found.pop(record.key, None)
            if record.value is not None:
                found[record.key] = record.value
        return found


class LogLab:
    """The internal topics of one cluster of workers, made at the first use of each.

    Args:
        servers: The brokers.
        settings: Further settings of the worker.
    """

    def __init__(self, servers: str, **settings: str) -> None:
        self.group = f"lab-{uuid.uuid4().hex[:8]}"
        self.worker = {"bootstrap.servers": servers, "group.id": self.group}
        for kind in Kind:
            self.worker[f"{kind.value}.topic"] = f"{self.group}-{kind.name.lower()}"
            self.worker[f"{kind.value}.replication.factor"] = "1"
        self.worker |= {name.replace("_", "."): text for name, text in settings.items()}
        self._opened = ExitStack()
        self.admin = TopicAdmin(shared_admin(self.worker).librdkafka, name="lab", timeout_s=30)

    def __enter__(self) -> LogLab:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()
        self.admin.close()

    def topic(self, kind: Kind) -> str:
        """The topic of this kind; it is there."""
        topic = InternalTopic.of(kind, self.worker)
        ensure(self.admin, topic)
        return topic.name

    def log(self, kind: Kind = Kind.CONFIG, *, transactional: bool = False) -> TopicLog:
        """A log of a worker, not started; stopped at the end."""
        match kind:
            case Kind.CONFIG:
                settings = config_log(self.worker, transactional=transactional)
            case Kind.OFFSET:
                settings = offset_log(self.worker, transactional=transactional)
            case Kind.STATUS:
                settings = status_log(self.worker)
        log = TopicLog(self.topic(kind), settings, self.admin)
        self._opened.callback(log.stop)
        return log

    def started(self, kind: Kind = Kind.CONFIG, *, transactional: bool = False) -> tuple[TopicLog, Recorder]:
        """A log that has read its topic, with what it was given."""
        log, recorder = self.log(kind, transactional=transactional), Recorder()
        log.start(recorder)
        return log, recorder

    def producer(self, **settings: object) -> ck.Producer:
        """A client that is not ours."""
        conf = {"bootstrap.servers": self.worker["bootstrap.servers"], "linger.ms": 0}
        return ck.Producer(
            {**conf, **{name.replace("_", "."): value for name, value in settings.items()}}, logger=CLIENT_LOG
        )
