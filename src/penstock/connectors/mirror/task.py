"""The task that mirrors partitions: ``MirrorTask``. Records go from the client's columns into frames unchanged.

Owning thread: the task's.

Source: org.apache.kafka.connect.mirror.MirrorSourceTask.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import pyarrow as pa

from penstock.api import FrameSourceTask, RecordMetadata, SourceFrame, TopicPartition
from penstock.clients import Fetched, KafkaCluster, RecordWriter
from penstock.connectors.mirror.connector import JAVA_PARTITIONS, offset_fault, share_of
from penstock.connectors.mirror.offset_syncs import SyncWriter, sync_points
from penstock.connectors.mirror.positions import Start, after_loss
from penstock.connectors.mirror.settings import MirrorSourceConfig, client_settings, cluster_of
from penstock.data import OPTIONAL_BYTES_SCHEMA
from penstock.errors import ConnectException, KafkaException, OffsetOutOfRangeException

log = logging.getLogger(__name__)

#: The size of frames, joined from fetched records.
_MOST_ROWS: Final = 100_000
_MOST_BYTES: Final = 16 << 20
#: A poll waits in slices, so that it notices a stop.
_SLICE_S: Final = 0.25
_ANSWER_S: Final = 5.0
#: The interval of checks if a topic was created again, during errors and without errors, in seconds.
_LOOK_S: Final = 30.0


class MirrorTask(FrameSourceTask):
    """Reads partitions of the source cluster; each frame is of one partition."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.mirror.MirrorSourceTask"
    config_class = MirrorSourceConfig
    settings: MirrorSourceConfig

    def start(self, props: Mapping[str, str]) -> None:
        """Resumes after the committed offsets."""
        super().start(props)
        self._props = dict(props)
        self._frames: deque[SourceFrame] = deque()
        self._failed: Exception | None = None
        self._names = self.settings.policy()
        self._places = [_place(one) for one in share_of(props, _of_java, JAVA_PARTITIONS)]
        self._remote = {
            place.topic: self._names.remote_topic(self.settings.source_cluster_alias, place.topic)
            for place in self._places
        }
        consumer = {"isolation.level": "read_committed", **client_settings(props, "source", "consumer")}
        self._start = Start.of(consumer.pop("auto.offset.reset", "earliest"))
        cluster = self.cluster(props, "source")
        self._reader = cluster.reader(consumer)
        self._admin = cluster.admin(client_settings(props, "source", "admin"), timeout_s=_ANSWER_S)
        self._syncs = self._sync_writer() if self.settings.emit_offset_syncs_enabled else None
        self._ids: dict[str, str] = {}
        self._next_look = 0.0
        self._is_away = any(place.partition < 0 for place in self._places)
        if not self._is_away:
            self._next = self._first_positions()
            self._reader.assign(self._next)

    def cluster(self, props: Mapping[str, str], side: str) -> KafkaCluster:
        """One of the two clusters; a test puts a double in its place."""
        return cluster_of(props, side)

    def poll(self) -> SourceFrame | None:
        """See ``FrameSourceTask.poll``."""
        if not self._frames:
            self._gather()
        return self._frames.popleft() if self._frames else None

    def frame_acknowledged(self, frame: SourceFrame, places: Mapping[int, RecordMetadata]) -> None:
        """Notes where records went: for offset syncs."""
        if self._syncs is None or frame.offset_after is None:
            return
        points = sync_points({row: one.offset for row, one in places.items()}, self.settings.offset_lag_max + 1)
        offsets = {_offset_in(frame.offset_after(row)): offset for row, offset in points}
        self._syncs.stored(_place(frame.source_partition), offsets)

    def commit(self) -> None:
        """Writes the offset syncs that wait."""
        if self._syncs is not None:
            self._syncs.commit()

    def stop(self) -> None:
        """Releases the clients."""
        super().stop()
        for one in ("_reader", "_admin", "_syncs"):
            if getattr(self, one, None) is not None:
                getattr(self, one).close()

    def _sync_writer(self) -> SyncWriter:
        side, props = self.settings.offset_syncs_topic_location.value, self._props

        def make() -> RecordWriter:
            return self.cluster(props, side).writer(client_settings(props, side, "producer"))

        return SyncWriter(self.settings.syncs_topic(), make, self.settings.offset_lag_max)

    def _first_positions(self) -> dict[TopicPartition, int]:
        alias = self.settings.source_cluster_alias
        wanted = [partition_of(alias, place) for place in self._places]
        found = self.context.offset_storage_reader().offsets(wanted)
        return {
            place: self._start.position if offset is None else _offset_in(offset) + 1
            for place, offset in zip(self._places, found, strict=True)
        }

    def _gather(self) -> None:
        """Makes frames of fetched records, or waits a moment for records."""
        failed, self._failed = self._failed, None
        if isinstance(failed, OffsetOutOfRangeException):
            self._go_on_behind(failed)
        elif failed is not None:
            raise failed
        if self._is_away:
            self._wait_for_cluster()
            return
        self._look_at_topics()
        found: dict[TopicPartition, list[pa.Table]] = {}
        rows = nbytes = 0
        until = time.monotonic() + min(1.0, self.settings.consumer_poll_timeout_ms / 1000)
        while rows < _MOST_ROWS and nbytes < _MOST_BYTES and not self.context.stopping.is_set():
            left = 0.0 if rows else min(_SLICE_S, max(0.0, until - time.monotonic()))
            try:
                fetched = self._reader.fetch(left)
            except Exception as error:
                # Fetched records are returned first, so that the positions match the frames.
                if rows or isinstance(error, OffsetOutOfRangeException):
                    self._failed = error
                    break
                raise
            if not fetched:
                if rows or time.monotonic() >= until:
                    break
                continue
            for one in fetched:
                found.setdefault(one.place, []).append(one.table)
                rows, nbytes = rows + one.table.num_rows, nbytes + one.table.nbytes
        self._frames.extend(self._frame(Fetched(place, pa.concat_tables(some))) for place, some in found.items())
        if not rows and self._reader.trouble is not None and not self.context.stopping.is_set():
            self._next_look = 0.0
            self._reader.check(_ANSWER_S)

    def _frame(self, fetched: Fetched) -> SourceFrame:
        place, table = fetched.place, fetched.table
        offsets = table.column("offset")
        last = offsets[-1].as_py()
        self._next[place] = last + 1
        names = ["key", "value", "timestamp"]
        headers = table.column("headers")
        if headers.null_count < len(headers):
            names.append("headers")
        return SourceFrame(
            table.select(names),
            self._remote[place.topic],
            OPTIONAL_BYTES_SCHEMA,
            partition_of(self.settings.source_cluster_alias, place),
            {"offset": last},
            key_schema=OPTIONAL_BYTES_SCHEMA,
            partition=place.partition,
            offset_after=lambda row: {"offset": offsets[row].as_py()},
        )

    def _wait_for_cluster(self) -> None:
        """Tells why there is nothing to do: the connector has not reached its clusters yet."""
        self._reader.check(_ANSWER_S)
        self.cluster(self._props, "target").admin(
            client_settings(self._props, "target", "admin"), timeout_s=_ANSWER_S
        ).topics()
        self.context.stopping.wait(1.0)

    def _go_on_behind(self, lost: OffsetOutOfRangeException) -> None:
        """Chooses where a partition is read on that has not the offset at which it was to be read."""
        place = TopicPartition(lost.topic, lost.partition)
        at = self._next.get(place, 0)
        low, high = self._reader.bounds(place)
        position, text = after_loss(place, at, low, high)
        log.warning("%s", text)
        self._next[place] = position
        self._reader.seek(place, position)

    def _look_at_topics(self) -> None:
        """Reads topics from their beginning that were deleted and made again."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_S
        try:
            found = self._admin.describe(sorted(self._remote))
        except (KafkaException, ConnectException) as error:
            log.debug("Cannot look at topics: %s", error)
            return
        for topic, one in found.items():
            before = self._ids.get(topic)
            self._ids[topic] = one.topic_id
            if before and one.topic_id and before != one.topic_id:
                log.warning("The topic %s was deleted and made again: it is mirrored from its beginning", topic)
                for place in self._places:
                    if place.topic == topic:
                        self._next[place] = 0
                        self._reader.seek(place, 0)


def partition_of(alias: str, place: TopicPartition) -> dict[str, Any]:
    """The source partition, as MirrorMaker 2 writes it."""
    return {"cluster": alias, "partition": place.partition, "topic": place.topic}


def _of_java(text: str) -> dict[str, Any]:
    """A source partition as Java's task configurations have it: ``topic-number``."""
    topic, _, number = text.rpartition("-")
    return {"topic": topic, "partition": int(number)}


def _place(partition: Mapping[str, Any]) -> TopicPartition:
    return TopicPartition(str(partition["topic"]), int(partition["partition"]))


def _offset_in(offset: Mapping[str, Any]) -> int:
    if fault := offset_fault(offset):
        raise ConnectException(fault)
    return int(offset["offset"])
