"""The files of a sink task: open, closed by rules, and sent to a store. Main type: ``RollingFiles``.

Combines the decisions of ``generations`` and the writes of ``publishing`` for a task, on its thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from penstock.api import OffsetAndMetadata, SinkFrame, SinkTaskContext, TopicPartition
from penstock.errors import ConnectException, RetriableException
from penstock.files.generations import FileNames, Generations, Rotation, Rows
from penstock.files.manifests import ManifestPublisher, Manifests, Owners
from penstock.files.publishing import Beside, FileWriter, Publisher, end_uploads
from penstock.files.store import Store

log = logging.getLogger(__name__)

#: The clock is looked at so often.
_TICK_S: Final = 0.5


class RollingFiles:
    """The files of a ``FrameSinkTask``: each record is in exactly one of them, even after kills.

    All open files of a topic partition are closed together, as its ``Rotation`` says: by a number of records, by bytes,
    by the records' time, or by the clock, even if no record arrives. The name of a file is its topic, partition and
    first offset, so that a replay after a crash creates the same files; files that a killed run has closed at other
    offsets are then removed. The store shows only complete files.

    A task creates it in ``start`` and forwards its own calls: ``open``, ``put``, ``pre_commit``, ``close``, ``stop``.

    Args:
        context: The task's.
        store: The store of the files; ``stop`` closes it.
        rotation: The rules for closing files.
        write: Writes a whole file from tables with one schema; several threads call it at once.
        names: The names of the files.
        root: The directory of all files in the store.
        buffer_bytes: The memory for rows of all open files together. The largest files are moved to a local file.
        buffer_dir: The directory for local files; None: the system's temporary directory.
        retry_backoff_ms: The wait before the next write to an unavailable store, in milliseconds.
        beside: Additional files for each file, with other columns of its rows.
        manifest: The name of the connector: files contain the records of all partitions of the task, and a manifest
            lists their offsets; None: each file belongs to one partition.
        clock: The time in milliseconds of the epoch; None: the system clock.
        owners: Marks directories as the connector's, and refuses those of another one; None: without marks.

    Source: KIP-275 and the sinks of Confluent for object stores.
    """

    def __init__(
        self,
        context: SinkTaskContext,
        store: Store,
        rotation: Rotation,
        write: FileWriter,
        names: FileNames,
        *,
        root: str = "",
        buffer_bytes: int = 128 << 20,
        buffer_dir: str | None = None,
        retry_backoff_ms: int = 5000,
        beside: Sequence[Beside] = (),
        manifest: str | None = None,
        clock: Callable[[], int] | None = None,
        owners: Owners | None = None,
    ) -> None:
        self._context = context
        self._owners = owners
        self._store = store
        self._root = root.strip("/")
        self._names = names
        self._clock = clock or _now_ms
        if manifest is None:
            self._publisher = Publisher(store, self._root, write, names, buffer_dir, beside)
        else:
            former = owners.renamed_from if owners is not None else ""
            log_of_commits = Manifests(store, self._root, manifest, names, former)
            self._publisher = ManifestPublisher(log_of_commits, self._root, write, buffer_dir, beside, self._clock)
        self._generations = Generations(rotation, buffer_bytes, together=manifest is not None)
        self._commits = manifest is not None
        self._retry_backoff_ms = retry_backoff_ms
        self._taken: object = None
        self._is_again = False
        context.every(_TICK_S, self._tick)

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """Ends uploads that an earlier owner of the partitions has left: for ``open`` of the task.

        Raises:
            RetriableException: The store is away.
        """
        self._publisher.opened()
        if self._owners is not None:
            self._owners.opened()
            if self._commits:
                self._owners.claim_commits(self._store, self._root)
        starts = tuple(self._names.start(one) for one in partitions)
        end_uploads(self._store, self._root, starts)
        ends = self._publisher.ends(partitions)
        self._go_on(ends)

    def put(self, frame: SinkFrame, take: Callable[[TopicPartition, SinkFrame], None]) -> None:
        """Takes a frame, and writes files that are full: call it in ``put`` of the task.

        Args:
            frame: The task's frame; a frame that comes again after ``RetriableException`` is taken once.
            take: Receives the new rows of each partition, and calls ``append`` with the rows to write. It reports or
                drops the other rows.

        Raises:
            RetriableException: The store is unavailable; rows that were taken are not taken again.
            ConnectException: The store rejects a request, or the running task receives earlier offsets again.
        """
        if frame.num_rows and frame.table is not self._taken:
            self._take(frame, take)
            self._taken = frame.table
        self._work()
        self._taken, self._is_again = None, False

    def append(self, place: TopicPartition, rows: Rows) -> None:
        """Puts rows into files.

        Args:
            place: The partition that they were read from.
            rows: The rows, in order of their offsets.
        """
        if self._owners is not None:
            self._owners.note(place.topic, rows.directories)
        self._generations.append(place, rows, self._clock())

    def pre_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, flush_on_close: bool = True
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets before the first row that is not in a file yet: return them from ``pre_commit`` of the task.

        Args:
            offsets: The task's offsets.
            flush_on_close: Before partitions go to another task, or the task ends, their files are closed, so that
                nothing is read twice (KIP-275).
        """
        if self._context.is_closing and flush_on_close:
            self._generations.close(offsets)
            try:
                self._publish()
            except ConnectException as error:
                log.warning("Open files could not be closed, so their records will be read again: %s", error)
        found = {}
        for place, given in offsets.items():
            waiting = self._generations.safe_offset(place)
            # If nothing waits, the offset also includes markers that a sink does not see: the ends of transactions.
            found[place] = given if waiting is None else OffsetAndMetadata(min(waiting, given.offset))
        return found

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Drops partitions, with rows that are not in files: call it in ``close`` of the task."""
        again: dict[TopicPartition, int] = {}
        for generation in self._generations.forget(partitions):
            self._publisher.forget(generation)
            for place, (start, _) in generation.ranges.items():
                if place not in partitions:
                    again[place] = min(start, again.get(place, start))
        # Rows of partitions that stay were in the same files: they are read again.
        self._go_on(again)
        self._taken = None

    def _go_on(self, offsets: Mapping[TopicPartition, int]) -> None:
        if offsets:
            self._context.offset(dict(offsets))
        for place, offset in offsets.items():
            self._generations.reached(place, offset)

    def stop(self) -> None:
        """Lets go of files on this computer and of the store: for ``stop`` of the task."""
        self._publisher.close()

    def _take(self, frame: SinkFrame, take: Callable[[TopicPartition, SinkFrame], None]) -> None:
        new: dict[TopicPartition, SinkFrame] = {}
        reached: dict[TopicPartition, int] = {}
        # Rows are grouped once, in place of `since` and `next_offsets`, which group them again.
        for place, part in frame.by_partition().items():
            offsets = part.origin.column("offset")
            start = self._generations.next_offsets.get(place, 0)
            new[place] = part if offsets[0].as_py() >= start else part.since({place: start})
            if new[place].num_rows < part.num_rows and not self._is_again:
                raise ConnectException(_ALREADY_READ.format(*_first_place(part)))
            reached[place] = offsets[-1].as_py() + (0 if part.continued else 1)
        for place, part in new.items():
            if part.num_rows:
                take(place, part)
        for place, offset in reached.items():
            self._generations.reached(place, offset)

    def _tick(self) -> None:
        self._generations.close_due(self._clock())
        self._work()

    def _work(self) -> None:
        """Writes closed files, and keeps the memory of open ones within its limit."""
        try:
            self._publish()
            for generation, block in self._generations.over_limit():
                self._publisher.move(generation, block)
        except RetriableException:
            self._is_again = True
            self._context.timeout(self._retry_backoff_ms)
            raise

    def _publish(self) -> None:
        if self._owners is not None:
            self._owners.claim(self._store, self._root)
        for generation in self._generations.closed:
            size = self._publisher.publish(generation)
            self._generations.written(generation, size)
            self._context.request_commit()


_ALREADY_READ: Final = (
    "Of topic {}, partition {} comes the offset {}, which was read before. The topic was deleted and made again, or "
    "its offsets were reset under the running task: its files would take the place of others of the same names. Set "
    "another directory (topics.dir), or restart the task to go on with this one"
)


def _first_place(frame: SinkFrame) -> tuple[str, int, int]:
    at = frame.origin.slice(0, 1).to_pylist()[0]
    return at["topic"], at["partition"], at["offset"]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
