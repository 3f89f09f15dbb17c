"""The consumer of a backfill: reads the requested ranges, joins no group, and keeps commits in memory.

Main type: ``RangeConsumer``, a ``SinkConsumer``. Thread: as there; ``all_read``, ``committed`` and ``unread`` any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.api import OffsetAndMetadata, TopicPartition
from penstock.clients.reader import Fetched
from penstock.errors import ConnectException
from penstock.kafka.consumer.consumer import FetchedChunk, RebalanceListener
from penstock.kafka.consumer.offsets import Subscription
from penstock.worker.bulk.range_work import RangeReader, placed

#: The error of a task that sets other offsets than the backfill's.
_IN_TARGET: Final = (
    "it keeps offsets in its target, and has asked for other positions ({asked}): a backfill would change the position "
    "of the connector itself. Stop the connector and set its offsets back instead (penstock connectors offsets)"
)


class RangeConsumer:
    """Reads ranges of partitions, each once.

    Args:
        reader: Reads partitions.
        ranges: The first offset of each, and the offset after the last message.
    """

    def __init__(self, reader: RangeReader, ranges: Mapping[TopicPartition, tuple[int, int]]) -> None:
        self._reader = reader
        self._ranges = dict(ranges)
        self._listener: RebalanceListener | None = None
        self._begun = False
        self._epoch = 1
        self._paused: frozenset[TopicPartition] = frozenset()
        #: The offset after the last message that was handed out.
        self._read = {place: start for place, (start, _) in ranges.items()}
        self._done: frozenset[TopicPartition] = frozenset()
        self._committed: dict[TopicPartition, int] = {}

    # ------------------------------------------------------------------ any thread
    @property
    def all_read(self) -> bool:
        """True if all messages were handed out."""
        return len(self._done) == len(self._ranges)

    @property
    def unread(self) -> list[TopicPartition]:
        """The partitions of which something was handed out and is not committed."""
        return [
            place
            for place, (start, _) in self._ranges.items()
            if self._read[place] > max(start, self._committed.get(place, start))
        ]

    @property
    def committed(self) -> dict[TopicPartition, int]:
        """For each partition the offset after the task's last commit."""
        return {place: max(start, self._committed.get(place, start)) for place, (start, _) in self._ranges.items()}

    # ------------------------------------------------------------------ the fetch thread
    def subscribe(self, subscription: Subscription, listener: RebalanceListener) -> None:
        self._listener = listener

    def fetch(self, max_records: int, timeout_s: float) -> FetchedChunk | None:
        """See ``SinkConsumer``.

        Raises:
            ConnectException: The task continues at other offsets.
        """
        if not self._begun:
            self._begin()
        chunks = [one for one in self._reader.fetch(timeout_s) if one.place not in self._paused | self._done]
        tables = [table for one in chunks if (table := self._cut(one)).num_rows]
        for place in self._ranges.keys() - self._done - self._paused:
            if self._read[place] >= self._ranges[place][1] or self._reader.at_end(place):
                self._done |= {place}
        if not tables:
            return None
        return FetchedChunk(pa.concat_tables(tables), {one.place: self._read[one.place] for one in chunks}, self._epoch)

    def _begin(self) -> None:
        self._begun = True
        assert self._listener is not None
        starts = {place: start for place, (start, _) in self._ranges.items()}
        self._listener.before_assigned(list(starts))
        placement = self._listener.on_assigned(starts, self._epoch)
        self._refuse_other(placement.starts)
        self._paused = placement.paused
        self._assign()

    def _cut(self, fetched: Fetched) -> pa.Table:
        place = fetched.place
        table = placed(fetched.table, place)
        end = self._ranges[place][1]
        offsets = table.column("offset")
        last = int(offsets[-1].as_py()) + 1
        if last > end:
            table = table.filter(pc.less(offsets, end))
            last = end if not table.num_rows else int(table.column("offset")[-1].as_py()) + 1
            self._done |= {place}
        self._read[place] = max(self._read[place], last) if table.num_rows else self._read[place]
        return table

    def _assign(self) -> None:
        active = self._ranges.keys() - self._paused - self._done
        self._reader.assign({place: self._read[place] for place in active})

    def seek(self, positions: Mapping[TopicPartition, int]) -> int:
        """See ``SinkConsumer``.

        Raises:
            ConnectException: An offset is outside of the range.
        """
        self._refuse_other({**self._read, **positions}, exactly=False)
        self._epoch += 1
        self._read.update({place: offset for place, offset in positions.items() if place in self._ranges})
        self._done -= {place for place, offset in self._read.items() if offset < self._ranges[place][1]} & set(
            positions
        )
        self._assign()
        return self._epoch

    def _refuse_other(self, positions: Mapping[TopicPartition, int], *, exactly: bool = True) -> None:
        for place, offset in positions.items():
            start, end = self._ranges.get(place, (offset, offset))
            if not (offset == start if exactly else start <= offset <= end):
                raise ConnectException(_IN_TARGET.format(asked=f"{place.topic}-{place.partition} at {offset}"))

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused |= frozenset(partitions)
        self._assign()

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused -= frozenset(partitions)
        self._assign()

    def commit_async(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], answer: Callable[[Exception | None], None]
    ) -> None:
        """See ``SinkConsumer``; the group has no part in it."""
        self.commit_sync(offsets)
        answer(None)

    def commit_sync(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """See ``SinkConsumer``; the group has no part in it."""
        self._committed.update({place: one.offset for place, one in offsets.items()})

    def ends(self) -> dict[TopicPartition, int]:
        """See ``SinkConsumer``: up to where is delivered."""
        return {
            place: self._read[place] if place in self._done else max(end, self._read[place])
            for place, (_, end) in self._ranges.items()
        }

    def interrupt(self) -> None:
        """See ``SinkConsumer``; nothing here waits for long."""

    def close(self) -> None:
        self._reader.close()
