"""Offset syncs: decides which ones are written, and translates offsets with them. Only ``SyncWriter`` does I/O.

Main types: ``SyncPacer`` (when a partition needs another sync), ``SyncHistory`` (translates offsets of one partition),
``SyncWriter``, which writes the syncs of a task.

Thread: a ``SyncWriter`` belongs to the worker's thread that calls the task's acknowledgement hooks, one call at a time.

Source: org.apache.kafka.connect.mirror.{OffsetSyncWriter, OffsetSyncStore}.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Mapping

from penstock.api import TopicPartition
from penstock.clients import RecordWriter
from penstock.connectors.mirror.formats import OffsetSync
from penstock.errors import ConnectException, KafkaException

log = logging.getLogger(__name__)

_FLUSH_S = 5.0
#: The number of newest syncs that are always kept.
_FEW = 128
#: The binary logarithm of the number of syncs kept at about the same distance.
_FINE = 6


class SyncPacer:
    """Says of each record of one partition that was stored whether it is worth a sync at once.

    Args:
        most: How far the target's offsets may go on without one (``offset.lag.max``).

    >>> pacer = SyncPacer(100)
    >>> [pacer.is_due(up, down) for up, down in ((0, 0), (50, 50), (100, 100), (101, 101), (150, 140), (151, 141))]
    [True, False, False, True, True, False]
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._upstream = self._downstream = self._synced = -1

    def is_due(self, upstream: int, downstream: int) -> bool:
        """True for the first record, a record far from the last sync, and a record after a gap or a restart."""
        gap = upstream - self._upstream != downstream - self._downstream
        due = self._synced < 0 or gap or downstream - (self._synced + 1) >= self._most
        due = due or downstream < self._downstream
        self._upstream, self._downstream = upstream, downstream
        if due:
            self._synced = downstream
        return due


def sync_points(places: Mapping[int, int], step: int) -> list[tuple[int, int]]:
    """The rows of a frame for which a sync may be written, with their offsets on the target.

    Args:
        places: By row, ascending, the known offsets: the first and last rows of record batches.
        step: The most rows between two of them, if the offsets in between are known too.

    >>> sync_points({0: 10, 9: 19, 10: 25, 12: 26}, 4)
    [(0, 10), (4, 14), (8, 18), (9, 19), (10, 25), (12, 26)]
    """
    found: list[tuple[int, int]] = []
    before: tuple[int, int] | None = None
    for row, offset in places.items():
        if offset < 0:
            continue
        if before is not None and row - before[0] == offset - before[1]:
            first, at = before
            found += [(one, at + one - first) for one in range(first + step, row, step)]
        before = (row, offset)
        found.append(before)
    return found


class SyncHistory:
    """The syncs of one partition, fewer the older they are, for translating offsets to the target.

    A translated offset is too early by at most a sixteenth of its distance from the newest sync, or by the distance
    between syncs.

    >>> history = SyncHistory()
    >>> for at in range(0, 1000, 10):
    ...     history.add(at, at + 5)
    >>> [history.translate(offset) for offset in (990, 995, 987, 0)]
    [995, 996, 986, 5]
    >>> SyncHistory().translate(5) is None
    True
    """

    def __init__(self) -> None:
        self._upstream: list[int] = []
        self._downstream: list[int] = []
        self._thin_at = _FEW

    def add(self, upstream: int, downstream: int) -> None:
        """Adds a newer sync. One that goes back makes all before it void: the topic was made again."""
        if self._upstream and upstream < self._upstream[-1]:
            self._upstream, self._downstream = [], []
        if self._upstream and upstream == self._upstream[-1]:
            self._downstream[-1] = downstream
            return
        self._upstream.append(upstream)
        self._downstream.append(downstream)
        if len(self._upstream) > self._thin_at:
            self._thin()

    def translate(self, upstream: int) -> int | None:
        """The offset on the target from which a group with a committed source offset resumes.

        Never too late: the offset of the newest sync at or before it, or one more. None: no sync is that old.
        """
        at = bisect_right(self._upstream, upstream) - 1
        if at < 0:
            return None
        return self._downstream[at] + (upstream != self._upstream[at])

    def __len__(self) -> int:
        return len(self._upstream)

    def _thin(self) -> None:
        """Removes syncs between others: at a distance of 2^n from the newest, keeps one for each 2^(n-6) offsets."""
        newest, kept = self._upstream[-1], dict[tuple[int, int], int]()
        for at, one in enumerate(self._upstream):
            far = (newest - one).bit_length()
            kept[far, one >> max(0, far - _FINE)] = at
        chosen = sorted({0, *kept.values()})
        self._upstream = [self._upstream[at] for at in chosen]
        self._downstream = [self._downstream[at] for at in chosen]
        self._thin_at = 2 * len(chosen) + _FEW


class SyncWriter:
    """Writes the offset syncs of a task: some at once, the last of each partition with each commit of offsets.

    Args:
        topic: Where they go.
        writer: Makes the writer, when the first one is to be written.
        most: ``offset.lag.max``.
    """

    def __init__(self, topic: str, writer: Callable[[], RecordWriter], most: int) -> None:
        self._topic = topic
        self._make = writer
        self._most = most
        self._writer: RecordWriter | None = None
        self._pacers: dict[TopicPartition, SyncPacer] = {}
        self._waiting: dict[TopicPartition, OffsetSync] = {}
        self._sent: dict[TopicPartition, OffsetSync] = {}
        self._complaint = ""

    def stored(self, place: TopicPartition, offsets: Mapping[int, int]) -> None:
        """Notes records that are stored.

        Args:
            place: Their partition on the source.
            offsets: By offset on the source, that on the target, ascending.
        """
        pacer = self._pacers.setdefault(place, SyncPacer(self._most))
        for upstream, downstream in offsets.items():
            sync = OffsetSync(place, upstream, downstream)
            self._waiting[place] = sync
            if pacer.is_due(upstream, downstream):
                self._send([self._waiting.pop(place)])

    def commit(self) -> None:
        """Writes the last sync of each partition, and waits until all are stored; failed ones are written next time."""
        waiting, self._waiting = self._waiting, {}
        self._send(list(waiting.values()))
        if not self._sent or self._writer is None:
            return
        try:
            stored = self._writer.flush(_FLUSH_S)
        except (KafkaException, ConnectException) as error:
            self._complain(str(error))
            stored = False
        if stored:
            self._complaint = self._complaint if self._waiting else ""
            self._sent = {}
        else:
            self._complain(self._writer.trouble or "no answer")
            self._waiting = {**self._sent, **self._waiting}

    def close(self) -> None:
        """Releases the writer."""
        if self._writer is not None:
            self._writer.close()

    def _send(self, syncs: list[OffsetSync]) -> None:
        for sync in syncs:
            try:
                self._writer = self._writer or self._make()
                self._writer.send(self._topic, sync.key, sync.value)
                self._sent[sync.place] = sync
            except (KafkaException, ConnectException) as error:
                self._waiting.setdefault(sync.place, sync)
                self._complain(str(error))

    def _complain(self, text: str) -> None:
        if text != self._complaint:
            log.warning("Offset syncs cannot be written to %s, trying again with each commit: %s", self._topic, text)
        self._complaint = text
