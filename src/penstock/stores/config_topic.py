"""The configuration of a cluster, in its config topic.

Main type: `ConfigTopicStore`. The records are folded into a snapshot as they come, in the same way on every worker
(`penstock.model.cluster_config`); a write counts, here too, once it was read back.

Threads: any reads and writes; the listener is called on the thread of the log.
Source: org.apache.kafka.connect.storage.KafkaConfigBackingStore.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.errors import DataException
from penstock.model.cluster_config import Change, ClusterConfig, ConfigRecord, RecordSkipped, fold
from penstock.model.config_records import Entry
from penstock.stores.interface import ConfigListener, RecordLog

if TYPE_CHECKING:
    from penstock.kafka.topic_log import LogRecord

logger = logging.getLogger(__name__)


class ConfigTopicStore:
    """A `ConfigStore` on a log.

    Args:
        log: Of the config topic; it has a transactional id where `transactional`.
        transactional: Whether what the leader writes is a transaction: `exactly.once.source.support` is not `disabled`.
        clock: Monotonic seconds.
    """

    def __init__(self, log: RecordLog, *, transactional: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._transactional = transactional
        self._clock = clock
        self._lock = threading.Lock()
        self._snapshot = ClusterConfig()
        self._listener: ConfigListener | None = None

    def start(self, listener: ConfigListener) -> None:
        """See `ConfigStore`."""
        # A start that has failed may have read a part of the topic.
        self._snapshot = ClusterConfig()
        self._log.start(self._take)
        with self._lock:
            self._listener = listener

    def stop(self) -> None:
        """See `ConfigStore`."""
        self._log.stop()

    @property
    def snapshot(self) -> ClusterConfig:
        """See `ConfigStore`."""
        return self._snapshot

    def refresh(self, timeout_s: float) -> ClusterConfig:
        """See `ConfigStore`."""
        self._log.read_to_end(timeout_s)
        return self._snapshot

    def write(self, entries: Sequence[Entry], *, leading: bool = False, timeout_s: float = 30.0) -> ClusterConfig:
        """See `ConfigStore`. Invariant 8."""
        deadline = self._clock() + timeout_s
        raw = [(_key(key), value) for key, value in entries]
        if leading and self._transactional:
            self._log.write(raw, timeout_s, transactional=True)
            return self._snapshot
        # Outside of a transaction the last record, which makes the others count, is written when these are stored: of
        # a set of task configurations that lacks one, readers would take an older one for it.
        for part in (raw[:-1], raw[-1:]):
            if part:
                self._log.write(part, max(0.0, deadline - self._clock()))
        return self._snapshot

    def claim(self) -> None:
        """See `ConfigStore`."""
        if self._transactional:
            self._log.claim()

    # ------------------------------------------------------------------ the log's thread
    def _take(self, records: Sequence[LogRecord]) -> None:
        usable = [ConfigRecord(record.offset, _text(record.key), record.value) for record in records]
        with self._lock:
            self._snapshot, changes = fold(self._snapshot, usable)
            listener = self._listener
        _log_skipped(changes)
        if listener is not None:
            listener(self._snapshot, changes)


def _key(key: str) -> bytes:
    try:
        return key.encode()
    except UnicodeEncodeError as error:
        raise DataException(
            f"The record {key!r} of the config topic cannot be written: its key is no valid Unicode ({error})"
        ) from error


def _text(key: bytes | None) -> str:
    """A key as text; what is none names nothing that is known, and is passed over."""
    return "" if key is None else key.decode(errors="replace")


def _log_skipped(changes: Sequence[Change]) -> None:
    for change in changes:
        if isinstance(change, RecordSkipped):
            logger.warning(
                "Ignoring the record %s of the config topic at offset %d: %s", change.key, change.offset, change.reason
            )
