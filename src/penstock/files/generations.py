"""Open files of a sink task, the moments at which they are closed, and their names. Main type: ``Generations``.

A *generation* contains the records of one partition starting at an offset, with one file for each directory and schema.
All its files are closed together, so that a restart can begin at the offset after them. A replay creates files with the
same first offsets, and so with the same names. With a manifest one generation contains the records of all partitions of
the task.

No I/O; the task's thread. Source: the settings ``flush.size``, ``rotate.interval.ms`` and
``rotate.schedule.interval.ms`` of Confluent's connectors, and their documentation of object names.
"""

from __future__ import annotations

import datetime
import re
from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import quote
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.api import SinkFrame, TopicPartition

#: Smaller blocks are joined when there are this many.
_SMALL: Final = 1 << 16
_MANY: Final = 256
#: A table may keep memory of its frame alive up to this multiple of its own size; usually other partitions use the
#: rest.
_MOST_HELD: Final = 4
_DAY_MS: Final = 24 * 3600 * 1000

#: The directory of a file, and the number of its schema.
FileKey: TypeAlias = "tuple[str, Hashable]"


@dataclass(frozen=True, slots=True)
class Rotation:
    """The rules by which the files of a partition are closed; the first rule that applies closes them.

    Attributes:
        records: The number of rows in the files of a generation.
        size: A file with this many bytes ends its generation; None: no limit.
        span_ms: A row this much later than the first row begins a new generation; None: no limit.
        schedule_ms: Generations end at multiples of this interval, counted from midnight; None: no schedule.
        zone: The time zone of midnight.

    Source: ``flush.size``, ``rotate.interval.ms`` and ``rotate.schedule.interval.ms`` of Confluent's connectors.
    """

    records: int
    size: int | None = None
    span_ms: int | None = None
    schedule_ms: int | None = None
    zone: ZoneInfo = field(default_factory=lambda: ZoneInfo("UTC"))

    def deadline_ms(self, now_ms: int) -> int | None:
        """The next moment of the schedule, in milliseconds of the epoch.

        >>> Rotation(1, schedule_ms=60_000).deadline_ms(61_500)
        120000
        """
        if self.schedule_ms is None:
            return None
        now = datetime.datetime.fromtimestamp(now_ms / 1000, self.zone)
        midnight = int(now.replace(hour=0, minute=0, second=0, microsecond=0).timestamp() * 1000)
        passed = max(0, now_ms - midnight)
        if self.schedule_ms >= _DAY_MS:
            return now_ms - now_ms % self.schedule_ms + self.schedule_ms
        return midnight + (passed // self.schedule_ms + 1) * self.schedule_ms


@dataclass(slots=True)
class Rows:
    """Rows of one partition for files, in order of their offsets.

    Attributes:
        table: The columns to write, a PyArrow table.
        offsets: The offset of each row, as read.
        times: The time of each row for rotation, in milliseconds.
        codes: The directory of each row, an index into ``directories``.
        directories: The directories.
        schema: A key that distinguishes files with different schemas.
        continued: True if more rows of the last row's message follow.

    Source: Penstock's own.
    """

    table: Any
    offsets: np.ndarray
    times: np.ndarray
    codes: np.ndarray
    directories: Sequence[str]
    schema: Hashable = None
    continued: bool = False

    @classmethod
    def of(cls, frame: SinkFrame, table: Any, directory: str = "", schema: Hashable = None) -> Rows:
        """All rows of a frame for one directory; rotation uses the time of the messages.

        Args:
            frame: Rows of one partition.
            table: The columns to write, a PyArrow table with the same number of rows.
            directory: Their directory.
            schema: A key that distinguishes files with different schemas.
        """
        offsets = frame.origin.column("offset").to_numpy()
        times = pc.fill_null(frame.table.column("timestamp"), 0).to_numpy()
        codes = np.zeros(len(offsets), np.int64)
        return cls(table, offsets, times, codes, [directory], schema, frame.continued)


@dataclass(slots=True, eq=False)
class Block:
    """Rows that arrived together, sorted by file.

    Attributes:
        table: A table, or its replacement after it was moved out of memory.
    """

    table: Any
    held: int
    schema: Any

    def moved(self, there: object) -> None:
        """Says that the rows are elsewhere."""
        self.table, self.held = there, 0


@dataclass(slots=True, eq=False)
class OpenFile:
    """Rows that will be one file.

    Attributes:
        first: The offset of its first row.
        number: 0; more for a second file of that directory and offset.
        pieces: Its rows: in which block they are, from which row of it on, and how many.
        total: About the bytes that they have as tables.
    """

    directory: str
    first: int
    number: int
    pieces: list[tuple[Block, int, int]] = field(default_factory=list)
    rows: int = 0
    total: float = 0.0

    def add(self, block: Block, start: int, count: int, size: float) -> None:
        """Takes more rows."""
        self.pieces.append((block, start, count))
        self.rows += count
        self.total += size

    def moved(self, places: Mapping[Block, tuple[Block, int]]) -> None:
        """Records that some blocks are now parts of other blocks.

        Args:
            places: For each block the new block, and its first row there.
        """
        pieces: list[tuple[Block, int, int]] = []
        for block, start, count in self.pieces:
            whole, row = places.get(block, (block, 0))
            if pieces and pieces[-1][0] is whole and sum(pieces[-1][1:]) == row + start:
                pieces[-1] = (whole, pieces[-1][1], pieces[-1][2] + count)
            else:
                pieces.append((whole, row + start, count))
        self.pieces = pieces


@dataclass(slots=True, eq=False)
class Generation:
    """Files that are closed together.

    Attributes:
        first_time: The time of its first row.
        ranges: The first offset of each partition, as read, and the offset after its last row.
        partial: The partitions whose last message has more rows to come.
        blocks_at_join: The number of blocks when small ones were last joined.
    """

    first_time: int
    touched_ms: int
    deadline_ms: int | None
    ranges: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    rows: int = 0
    partial: set[TopicPartition] = field(default_factory=set)
    files: dict[FileKey, OpenFile] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)
    blocks_at_join: int = 0

    @property
    def place(self) -> TopicPartition:
        """The first of its partitions; without a manifest the only one."""
        return next(iter(self.ranges))

    @property
    def start(self) -> int:
        """The first offset of ``place``."""
        return self.ranges[self.place][0]

    @property
    def end(self) -> int:
        """The offset after the last row of ``place``."""
        return self.ranges[self.place][1]

    def file(self, key: FileKey, first: int) -> OpenFile:
        """The file of a directory and schema."""
        if key not in self.files:
            twins = sum(one.directory == key[0] and one.first == first for one in self.files.values())
            self.files[key] = OpenFile(key[0], first, twins)
        return self.files[key]

    def join_small_blocks(self) -> None:
        """Makes few blocks of many small ones, whose objects would take more memory than their rows."""
        small = [block for block in self.blocks if 0 < block.held < _SMALL]
        if len(self.blocks) < self.blocks_at_join + _MANY or len(small) < _MANY // 2:
            return
        alike: dict[Any, list[Block]] = {}
        for block in small:
            alike.setdefault(block.schema, []).append(block)
        places: dict[Block, tuple[Block, int]] = {}
        for schema, blocks in alike.items():
            table = pa.concat_tables([block.table for block in blocks]).combine_chunks()
            whole, row = Block(table, table.nbytes, schema), 0
            for block in blocks:
                places[block] = (whole, row)
                row += block.table.num_rows
        for file in self.files.values():
            file.moved(places)
        self.blocks = list(dict.fromkeys(places.get(block, (block, 0))[0] for block in self.blocks))
        self.blocks_at_join = len(self.blocks)


class Generations:
    """The open files of all partitions of a task, and closed files that are not written yet.

    Args:
        limit: The bytes of rows in memory, over all files.
        together: True if files contain the records of all partitions.
    """

    def __init__(self, rotation: Rotation, limit: int, *, together: bool = False) -> None:
        self._rotation = rotation
        self._limit = limit
        self._together = together
        self._open: dict[TopicPartition | None, Generation] = {}
        self._closed: deque[Generation] = deque()
        self._next: dict[TopicPartition, int] = {}
        #: Bytes of a written file for each byte of its tables, as the last ones were.
        self._ratio = 1.0

    def append(self, place: TopicPartition, rows: Rows, now_ms: int) -> None:
        """Takes rows; closes generations as they are full.

        Args:
            rows: The rows, in order of their offsets.
        """
        count, position, group = len(rows.offsets), 0, self._group(place)
        while position < count:
            generation = self._open.get(group)
            is_over = generation is not None and self._is_over(generation, place, rows, position)
            if generation is not None and not generation.partial and is_over:
                self._close(group)
                generation = None
            if generation is None:
                generation = Generation(int(rows.times[position]), now_ms, self._rotation.deadline_ms(now_ms))
                self._open[group] = generation
            end = self._end(generation, rows, position)
            self._add(generation, place, rows, position, end)
            generation.touched_ms = now_ms
            generation.partial.discard(place)
            if rows.continued and end == count:
                generation.partial.add(place)
            position = end
            if not generation.partial and self._is_full(generation):
                self._close(group)

    def reached(self, place: TopicPartition, offset: int) -> None:
        """Says that everything before an offset was appended, or dropped on purpose."""
        self._next[place] = max(offset, self._next.get(place, 0))

    def _group(self, place: TopicPartition) -> TopicPartition | None:
        return None if self._together else place

    @property
    def next_offsets(self) -> Mapping[TopicPartition, int]:
        """For each partition the offset after the appended or dropped rows."""
        return self._next

    def close_due(self, now_ms: int) -> None:
        """Closes the generations whose time has come by the clock."""
        span = self._rotation.span_ms
        for group, one in list(self._open.items()):
            is_due = one.deadline_ms is not None and one.deadline_ms <= now_ms
            is_quiet = span is not None and one.touched_ms + span <= now_ms
            if (is_due or is_quiet) and not one.partial:
                self._close(group)

    def close(self, places: Iterable[TopicPartition]) -> None:
        """Closes the open files of some partitions."""
        for group in dict.fromkeys(map(self._group, places)):
            if group in self._open and not self._open[group].partial:
                self._close(group)

    @property
    def closed(self) -> Sequence[Generation]:
        """The generations that are to be written, in order."""
        return tuple(self._closed)

    def written(self, generation: Generation, size: int) -> None:
        """Says that all files of a generation are where they belong."""
        self._closed.remove(generation)
        total = sum(one.total for one in generation.files.values())
        if total > 1 << 16:
            self._ratio = max(0.01, size / total)

    def safe_offset(self, place: TopicPartition) -> int | None:
        """The first offset that is not in a file yet; None: all that has come is."""
        return min((one.ranges[place][0] for one in self._all() if place in one.ranges), default=None)

    def forget(self, places: Iterable[TopicPartition]) -> list[Generation]:
        """Drops unwritten rows of some partitions, and of other partitions in the same files; returns them."""
        gone = set(places)
        dropped = [one for one in self._all() if not gone.isdisjoint(one.ranges)]
        self._closed = deque(one for one in self._closed if one not in dropped)
        self._open = {group: one for group, one in self._open.items() if one not in dropped}
        for place in {place for one in dropped for place in one.ranges} | gone:
            self._next.pop(place, None)
        return dropped

    def over_limit(self) -> list[tuple[Generation, Block]]:
        """The rows to move out of memory, the largest blocks first, until half of the limit is free."""
        held = [(generation, block) for generation in self._all() for block in generation.blocks if block.held]
        total = sum(block.held for _, block in held)
        if total <= self._limit:
            return []
        found = []
        for generation, block in sorted(held, key=lambda item: -item[1].held):
            if total <= self._limit // 2:
                break
            found.append((generation, block))
            total -= block.held
        return found

    def _all(self) -> list[Generation]:
        return [*self._closed, *self._open.values()]

    def _close(self, group: TopicPartition | None) -> None:
        self._closed.append(self._open.pop(group))

    def _is_full(self, generation: Generation) -> bool:
        size = self._rotation.size
        if generation.rows >= self._rotation.records:
            return True
        return size is not None and any(one.total * self._ratio >= size for one in generation.files.values())

    def _is_over(self, generation: Generation, place: TopicPartition, rows: Rows, position: int) -> bool:
        """True if the row is later than the files of the generation may reach, and of another message."""
        span = self._rotation.span_ms
        return (
            span is not None
            and int(rows.times[position]) - generation.first_time >= span
            and int(rows.offsets[position]) >= generation.ranges.get(place, (0, 0))[1]
        )

    def _end(self, generation: Generation, rows: Rows, position: int) -> int:
        """The row after the last one of the generation, which has at least one row; messages are not split."""
        count = len(rows.offsets)
        end = min(count, position + max(1, self._rotation.records - generation.rows))
        if self._rotation.size is not None and rows.table.num_rows:
            a_row = max(1.0, rows.table.nbytes / rows.table.num_rows * self._ratio)
            end = min(end, position + max(1, int(self._rotation.size / a_row / 4)))
        if self._rotation.span_ms is not None:
            late = np.flatnonzero(rows.times[position + 1 : end] - generation.first_time >= self._rotation.span_ms)
            if len(late):
                end = position + 1 + int(late[0])
        return end + int(np.searchsorted(rows.offsets[end:], rows.offsets[end - 1], side="right"))

    def _add(self, generation: Generation, place: TopicPartition, rows: Rows, start: int, end: int) -> None:
        codes = rows.codes[start:end]
        table = rows.table.slice(start, end - start)
        order, cuts = np.arange(end - start), np.zeros(1, np.int64)
        if (codes != codes[0]).any():
            order = np.argsort(codes, kind="stable")
            table = table.take(order)
            cuts = np.append(cuts, np.flatnonzero(np.diff(codes[order])) + 1)
        elif table.get_total_buffer_size() > _MOST_HELD * table.nbytes:
            # A slice of few rows would hold all rows of its frame in memory.
            table = table.take(order)
        block = Block(table, table.nbytes, table.schema)
        generation.blocks.append(block)
        a_row = block.held / len(order)
        for begin, behind in zip(cuts.tolist(), [*cuts[1:].tolist(), len(order)], strict=True):
            first = int(order[begin])
            key = (rows.directories[int(codes[first])], rows.schema)
            count = behind - begin
            generation.file(key, int(rows.offsets[start + first])).add(block, begin, count, count * a_row)
        generation.join_small_blocks()
        generation.rows += end - start
        first, _ = generation.ranges.get(place, (int(rows.offsets[start]), 0))
        generation.ranges[place] = (first, int(rows.offsets[end - 1]) + 1)


def path_part(name: str) -> str:
    """A name, such as that of a connector, as one part of a path.

    >>> path_part("a/b"), path_part(".."), path_part("orders.v2")
    ('a%2Fb', '%2E%2E', 'orders.v2')
    """
    found = quote(name, safe="")
    return found if found.strip(".") else found.replace(".", "%2E")


@dataclass(frozen=True, slots=True)
class FileNames:
    """Makes names of files and reads them: topic, partition and first offset.

    Attributes:
        delimiter: Stands between topic, partition and offset.
        width: Digits of an offset.
        extension: With its dot.

    Source: the documentation of Confluent's Amazon S3 sink, "S3 object names".
    """

    delimiter: str = "+"
    width: int = 10
    extension: str = ".parquet"

    def of(self, place: TopicPartition, file: OpenFile) -> str:
        """The name of a file.

        >>> FileNames().of(TopicPartition("t", 3), OpenFile("d", 7, 0))
        't+3+0000000007.parquet'
        """
        twin = f"-{file.number}" if file.number else ""
        return f"{self.start(place)}{file.first:0{self.width}d}{twin}{self.extension}"

    def start(self, place: TopicPartition) -> str:
        """The text that the names of all files of a partition begin with."""
        return f"{place.topic}{self.delimiter}{place.partition}{self.delimiter}"

    def from_offset(self, place: TopicPartition, offset: int, end: int) -> str:
        """The key from which to list files with given offsets.

        Offsets with more digits than names usually have do not sort; then it is the beginning of all files of the
        partition.

        Args:
            place: The partition.
            offset: The first offset.
            end: The offset after the last one.
        """
        return self.start(place) + (f"{offset:0{self.width}d}" if len(str(end)) <= self.width else "")

    def stale(self, place: TopicPartition, start: int, end: int, own: Iterable[str], there: Iterable[str]) -> list[str]:
        """Files whose rows are also in other files, because a killed run had closed its files at other offsets.

        Args:
            place: The partition.
            start: The first offset of the written generation.
            end: The offset after it.
            own: The names of its files in this directory.
            there: The names of all files in this directory.
        """
        kept = set(own)
        return [
            one
            for one in there
            if one not in kept and (at := self.offset(place, one)) is not None and start <= at < end
        ]

    def offset(self, place: TopicPartition, name: str) -> int | None:
        """The first offset of a file of the partition; None if the name has another form."""
        found = re.fullmatch(re.escape(self.start(place)) + r"(\d+)(-\d+)?(\.[A-Za-z0-9.]+)", name)
        return int(found[1]) if found else None
