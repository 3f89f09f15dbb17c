"""The log of an internal topic that is made when it is missing, with an admin client of its own.

Main type: ``MadeLog``. The topics of the worker itself are made, and their logs share one client, before anything else
starts; a connector's own offsets topic is made by whoever opens it first, in whichever cluster it is.

Threads: as for ``TopicLog``.
Source: org.apache.kafka.connect.storage.KafkaOffsetBackingStore (offlineStore, readWriteStore).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from penstock.errors import KafkaException
from penstock.kafka.admin import TopicAdmin
from penstock.kafka.internal_topics import InternalTopic, ensure
from penstock.kafka.log_reader import LogRecord
from penstock.kafka.log_settings import LogSettings
from penstock.kafka.topic_log import Entry, TopicLog


class MadeLog:
    """A ``RecordLog``.

    Args:
        topic: What it must look like.
        settings: Of the log's clients.
        admin: Of the admin client; librdkafka's names.
    """

    def __init__(self, topic: InternalTopic, settings: LogSettings, admin: Mapping[str, object]) -> None:
        self._topic = topic
        self._settings = settings
        self._admin_settings = admin
        self._admin: TopicAdmin | None = None
        self._log: TopicLog | None = None

    def start(self, handle: Callable[[Sequence[LogRecord]], None], timeout_s: float = 60.0) -> None:
        """See ``TopicLog``; the topic is made first when it is missing.

        Raises:
            ConfigException: the topic cannot be used.
        """
        self.stop()
        self._admin = TopicAdmin(dict(self._admin_settings), name=f"the topic {self._topic.name}")
        try:
            ensure(self._admin, self._topic)
            self._log = TopicLog(self._topic.name, self._settings, self._admin)
            self._log.start(handle, timeout_s)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """See ``TopicLog``."""
        log, self._log = self._log, None
        admin, self._admin = self._admin, None
        if log is not None:
            log.stop()
        if admin is not None:
            admin.close()

    def read_to_end(self, timeout_s: float) -> None:
        """See ``TopicLog``."""
        self._started().read_to_end(timeout_s)

    def write(self, entries: Sequence[Entry], timeout_s: float = 30.0, *, transactional: bool = False) -> None:
        """See ``TopicLog``."""
        self._started().write(entries, timeout_s, transactional=transactional)

    def write_async(
        self,
        key: bytes,
        value: bytes | None,
        done: Callable[[Exception | None], None],
        *,
        wanted: Callable[[], bool] = lambda: False,
    ) -> None:
        """See ``TopicLog``."""
        self._started().write_async(key, value, done, wanted=wanted)

    def claim(self, timeout_s: float = 30.0) -> None:
        """See ``TopicLog``."""
        self._started().claim(timeout_s)

    def _started(self) -> TopicLog:
        if self._log is None:
            raise KafkaException(f"The log of the topic {self._topic.name} is closed, or was not started")
        return self._log
