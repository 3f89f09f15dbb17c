"""Files of a sink task that are open, closed in time, and sent to a store. Main type: ``RollingFiles``.

The decisions are in ``generations``, what is sent in ``publishing``; this puts them together for a task, on its thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from penstock.api import OffsetAndMetadata, SinkFrame, SinkTaskContext, TopicPartition
from penstock.errors import ConnectException, RetriableException
from penstock.files.generations import Generations, Rotation, Rows
from penstock.files.manifests import ManifestPublisher, Manifests
from penstock.files.names import FileNames
from penstock.files.publishing import Beside, FileWriter, Publisher, end_uploads
from penstock.files.stores import Store

log = logging.getLogger(__name__)

#: The clock is looked at so often.
_TICK_S: Final = 0.5


class RollingFiles:
    """The files of a ``FrameSinkTask``: each record is in one of them, whatever is killed.

    All open files of a topic partition are closed together, as its ``Rotation`` says: by a number of records, by bytes,
    by the records' time, or by the clock, also when no record comes. A file is named by topic, partition and first
    offset, so that records that come again after a crash make the same file again; files that a run which was killed
    has closed elsewhere are removed then. The store shows a file when it is whole.

    A task makes one in ``start`` and hands its own calls on: ``open``, ``put``, ``pre_commit``, ``close``, ``stop``.

    Args:
        context: The task's.
        store: Where the files go; ``stop`` closes it.
        rotation: When files are closed.
        write: Makes a whole file of tables of one schema; several threads call it at once.
        names: What files are called.
        root: The directory of the store that all files are below.
        buffer_bytes: The memory for rows of all open files together, however many there are. The largest are moved to
            a file of this computer.
        buffer_dir: Where such a file is, and where large files are made; None: where the system has temporary files.
        retry_backoff_ms: How long to wait before a store that was away is written to again, in milliseconds.
        beside: More files beside each, with other columns of its rows.
        manifest: The name of the connector: the records of all partitions of the task are in the same files, and a
            manifest says which offsets they are; None: files are of one partition each.
        clock: The time in milliseconds of the epoch; the machine's when None.

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
    ) -> None:
        self._context = context
        self._store = store
        self._root = root.strip("/")
        self._names = names
        self._clock = clock or _now_ms
        if manifest is None:
            self._publisher = Publisher(store, self._root, write, names, buffer_dir, beside)
        else:
            log_of_commits = Manifests(store, self._root, manifest, names)
            self._publisher = ManifestPublisher(log_of_commits, self._root, write, buffer_dir, beside, self._clock)
        self._generations = Generations(rotation, buffer_bytes, together=manifest is not None)
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
        starts = tuple(self._names.start(one) for one in partitions)
        end_uploads(self._store, self._root, starts)
        ends = self._publisher.ends(partitions)
        self._go_on(ends)

    def put(self, frame: SinkFrame, take: Callable[[TopicPartition, SinkFrame], None]) -> None:
        """Takes a frame, and writes the files that are full by it: for ``put`` of the task.

        Args:
            frame: As the task was given it; one that comes again after ``RetriableException`` is taken once.
            take: Is given the new rows of each partition, and calls ``append`` with those that are to be written. It
                reports the others, or leaves them out.

        Raises:
            RetriableException: The store is away; what was taken is not taken again.
            ConnectException: The store refuses, or offsets that were read before come again under the running task.
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
        self._generations.append(place, rows, self._clock())

    def pre_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, flush_on_close: bool = True
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets in front of what is not in files yet: for ``pre_commit`` of the task.

        Args:
            offsets: As the task was given them.
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
            # Where nothing waits it is also behind what a sink does not see: the ends of transactions.
            found[place] = given if waiting is None else OffsetAndMetadata(min(waiting, given.offset))
        return found

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Gives partitions up, with what is not in files: for ``close`` of the task."""
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
