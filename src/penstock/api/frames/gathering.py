"""Collects frames of a sink until they fill a file: by number of rows, by size, or by the age of the first row.

Main type: ``FrameGatherer``. Owning thread: the sink task's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

from penstock.api.frames.frame import SinkFrame
from penstock.api.record import OffsetAndMetadata, TopicPartition


class FrameGatherer:
    """Collects frames of a ``FrameSinkTask`` until there are enough rows, or until the first row has waited long
    enough.

    A task passes each frame to ``add``, checks ``is_due`` after that and periodically (``context.every``), writes
    ``frames``, and then calls ``written``. Return ``safe`` from ``pre_commit``: it limits the offsets to the first
    collected row. A frame that ``put`` receives again after ``RetriableException`` is collected once.

    Args:
        min_rows: Write when this many rows are collected.
        max_wait_ms: Write when the first row has waited this long, in milliseconds.
        max_bytes: Write when the rows take this much memory.
        clock: Returns seconds; None: the monotonic clock.

    Attributes:
        frames: The collected frames, in order; none is empty.

    Source: Penstock's own.

    >>> import pyarrow as pa
    >>> seconds = [0.0]
    >>> held = FrameGatherer(10, 1000, clock=lambda: seconds[0])
    >>> rows = pa.table({"topic": ["t"] * 4, "partition": [0] * 4, "offset": [3, 4, 5, 6], "value": [1, 2, 3, 4]})
    >>> held.add(SinkFrame(rows, None, None))
    >>> held.rows, held.is_due
    (4, False)
    >>> place = TopicPartition("t", 0)
    >>> held.safe({place: OffsetAndMetadata(7)})[place].offset
    3
    >>> seconds[0] = 1.0
    >>> held.is_due
    True
    >>> held.written()
    >>> held.safe({place: OffsetAndMetadata(7)})[place].offset
    7
    """

    def __init__(
        self,
        min_rows: int,
        max_wait_ms: int,
        *,
        max_bytes: int = 128 << 20,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.frames: list[SinkFrame] = []
        self._min_rows = min_rows
        self._max_wait_s = max_wait_ms / 1000
        self._max_bytes = max_bytes
        self._clock = clock or time.monotonic
        self._since = 0.0
        self._last: object = None

    @property
    def rows(self) -> int:
        """The number of collected rows."""
        return sum(frame.num_rows for frame in self.frames)

    @property
    def nbytes(self) -> int:
        """The memory of the collected columns, in bytes."""
        return sum(frame.table.nbytes for frame in self.frames)

    @property
    def is_due(self) -> bool:
        """True if it is time to write the collected rows."""
        if not self.frames:
            return False
        waited_s = self._clock() - self._since
        return self.rows >= self._min_rows or waited_s >= self._max_wait_s or self.nbytes >= self._max_bytes

    def add(self, frame: SinkFrame) -> None:
        """Collects a frame. A frame that ``put`` receives again is not collected twice."""
        if frame.table is self._last:
            return
        self._last = frame.table
        if not frame.num_rows:
            return
        if not self.frames:
            self._since = self._clock()
        self.frames.append(frame)

    def written(self, count: int | None = None) -> None:
        """Drops the first frames, which are now in the target; None: drops all frames."""
        del self.frames[:count]
        self._since = self._clock()

    def done(self) -> None:
        """Marks the end of ``put``: the next frame is a new one, even if it looks the same."""
        self._last = None

    def safe(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, OffsetAndMetadata]:
        """The return value for ``pre_commit``: the offsets up to the first collected row.

        Args:
            offsets: The offsets that ``pre_commit`` received.
        """
        first: dict[TopicPartition, int] = {}
        for frame in self.frames:
            read = frame.origin.group_by(["topic", "partition"], use_threads=False).aggregate([("offset", "min")])
            for one in read.to_pylist():
                place = TopicPartition(one["topic"], one["partition"])
                first[place] = min(first.get(place, one["offset_min"]), one["offset_min"])
        return {
            place: OffsetAndMetadata(min(first[place], end.offset)) if place in first else end
            for place, end in offsets.items()
        }

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drops the rows of partitions that move to another task; call it in ``close``."""
        gone = set(partitions)
        kept: list[SinkFrame] = []
        for frame in self.frames:
            by_place = frame.by_partition()
            if gone.isdisjoint(by_place):
                kept.append(frame)
            else:
                kept += [part for place, part in by_place.items() if place not in gone]
        self.frames = kept
        self._last = None
