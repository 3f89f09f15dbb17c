"""The initial load of a table in ranges of its key: the plan, its offsets, and the order of steps.

Main types: `RangePlan`, the ranges of a table; `RangeOffset`, the progress of one range; `next_step`, the next action
for a table. A plan is the offset of a separate source partition for the table, and each range is a source partition
too, so that both survive every restart and move between tasks. Pure; any thread.

The rows of a snapshot are those at or before one position, `RangePlan.end`, in the order of the connector's mode. No
open transaction can still commit a row before that position. So a range can be read at any time, and again after a
kill: later rows and changes come after that position, from which the normal read of the table starts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from penstock.connectors.jdbc.source.position import RowPosition, partition_of
from penstock.errors import ConnectException

#: A value of each column of the key, as text or as a number.
Key = tuple[Any, ...]

#: The setting of a task with the names of exported snapshots, by plans. The connector makes it.
EXPORTED_CONFIG: Final = "task.snapshots"
_PLAN: Final = "plan"
#: The name in a source partition that makes it one of a snapshot.
SNAPSHOT: Final = "snapshot"


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The rows whose key is above one and at or below another.

    Attributes:
        low: None: from the first row on.
        high: None: to the last row.
    """

    low: Key | None
    high: Key | None


@dataclass(frozen=True, slots=True)
class RangePlan:
    """The cut of one table.

    Attributes:
        id: Tells it from earlier ones.
        key: The columns of the key.
        bounds: Where it is cut, in the database's order.
        end: The last position that the snapshot has.
        rows: About how many rows there are.
    """

    id: str
    key: tuple[str, ...]
    bounds: tuple[Key, ...]
    end: RowPosition
    rows: int

    @property
    def ranges(self) -> tuple[KeyRange, ...]:
        """The ranges: disjoint, and together the whole table, whatever the bounds are.

        >>> [(one.low, one.high) for one in RangePlan("a", ("id",), ((5,), (9,)), RowPosition(None, 12), 12).ranges]
        [(None, (5,)), ((5,), (9,)), ((9,), None)]
        """
        lows: list[Key | None] = [None, *self.bounds]
        highs: list[Key | None] = [*self.bounds, None]
        return tuple(KeyRange(low, high) for low, high in zip(lows, highs, strict=True))

    def offset(self) -> dict[str, object]:
        """The plan as a source offset."""
        return {
            "id": self.id,
            "ranges": len(self.bounds) + 1,
            "rows": self.rows,
            "key": json.dumps(self.key, ensure_ascii=False),
            "bounds": json.dumps(self.bounds, ensure_ascii=False),
            **self.end.offset(),
        }

    @staticmethod
    def of(offset: Mapping[str, object]) -> RangePlan:
        """The plan that a source offset holds.

        Raises:
            ConnectException: It holds none.
        """
        try:
            rest = dict(offset)
            name: Any = rest.pop("id")
            rows: Any = rest.pop("rows")
            count = rest.pop("ranges")
            key = json.loads(str(rest.pop("key")))
            bounds = json.loads(str(rest.pop("bounds")))
            fits = isinstance(name, str) and isinstance(rows, int) and count == len(bounds) + 1 and bool(key)
            if not fits or any(len(one) != len(key) for one in bounds):
                raise ValueError(offset)
            return RangePlan(name, tuple(key), tuple(map(tuple, bounds)), RowPosition.of(rest), rows)
        except (KeyError, TypeError, ValueError) as error:
            raise ConnectException(
                "The offset of a plan of ranges is made by the connector, and is not to be changed; got "
                f"{dict(offset)!r}. Remove it (null) to have the table cut anew"
            ) from error

    def partition(self, table: str, number: int) -> dict[str, object]:
        """The source partition of a range."""
        return {**partition_of(table), SNAPSHOT: self.id, "range": number}

    def partitions(self, table: str) -> list[dict[str, object]]:
        """The source partitions of all ranges."""
        return [self.partition(table, number) for number in range(len(self.bounds) + 1)]


@dataclass(frozen=True, slots=True)
class RangeOffset:
    """The place in one range.

    Attributes:
        rows: How many rows were read.
        key: The key of the last of them; None: none was read.
        done: True if there are no more.
    """

    rows: int = 0
    key: Key | None = None
    done: bool = False

    def offset(self) -> dict[str, object]:
        """The place as a source offset."""
        key = {} if self.key is None else {"key": json.dumps(self.key, ensure_ascii=False)}
        return {"rows": self.rows, **key, "done": self.done}

    @staticmethod
    def of(offset: Mapping[str, object] | None) -> RangeOffset:
        """The place that a source offset holds.

        Raises:
            ConnectException: It holds none.
        """
        if offset is None:
            return RangeOffset()
        try:
            key = None if offset.get("key") is None else tuple(json.loads(str(offset["key"])))
            rows, done = offset["rows"], offset["done"]
            if isinstance(rows, int) and isinstance(done, bool) and not set(offset) - {"rows", "key", "done"}:
                return RangeOffset(rows, key, done)
        except (KeyError, TypeError, ValueError):
            pass
        raise ConnectException(
            "The offset of a range has 'rows', a number, 'key', the last key as a JSON list, and 'done', true or "
            f"false; got {dict(offset)!r}. Remove it (null) to have the range read again"
        )


def plan_partition(table: str) -> dict[str, object]:
    """The source partition of a table whose offset is its plan."""
    return {**partition_of(table), SNAPSHOT: _PLAN}


def range_of(partition: Mapping[str, object]) -> tuple[str, int] | None:
    """The plan and the number of a range; None for a source partition that is none.

    Raises:
        ConnectException: It is neither.
    """
    if SNAPSHOT not in partition or is_plan(partition):
        return None
    plan, number = partition[SNAPSHOT], partition.get("range")
    if not isinstance(plan, str) or not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ConnectException(
            f'The source partition of a range has "{SNAPSHOT}", the id of its plan, and "range", its number; got '
            f"{dict(partition)!r}"
        )
    return plan, number


def is_plan(partition: Mapping[str, object]) -> bool:
    """True if it is the source partition of a plan."""
    return partition.get(SNAPSHOT) == _PLAN and "range" not in partition


class RangeStep(Enum):
    """The next thing that a table needs."""

    CUT = auto()
    """Look whether it is worth cutting; read it in one go if not."""
    WAIT = auto()
    """Ranges are read."""
    FINISH = auto()
    """All ranges were read: its position becomes the end of the snapshot."""
    FORGET_RANGES = auto()
    """It has a position: the offsets of ranges are not needed any more."""
    FORGET_PLAN = auto()
    """Nor is the plan."""
    READ = auto()
    """Read on from its position."""


def next_step(
    position: object | None, plan: RangePlan | None, ranges: Sequence[Mapping[str, object] | None]
) -> RangeStep:
    """Decides what a table needs, by its committed offsets only: after a kill the same is decided again.

    Args:
        position: The offset of the table; None without one. One that a user has set ends the snapshot.
        plan: Its plan, if it has one.
        ranges: The offsets of the plan's ranges.
    """
    if position is None:
        if plan is None:
            return RangeStep.CUT
        return RangeStep.FINISH if all(RangeOffset.of(one).done for one in ranges) else RangeStep.WAIT
    if plan is None:
        return RangeStep.READ
    return RangeStep.FORGET_RANGES if any(one is not None for one in ranges) else RangeStep.FORGET_PLAN


def how_many(rows: int, rows_of_range: int) -> int:
    """In how many ranges a table is cut; 1: not at all.

    >>> how_many(100, 0), how_many(150_000, 100_000), how_many(5_000_000, 100_000), how_many(10**9, 100_000)
    (1, 1, 50, 1000)
    """
    if not rows_of_range or rows < 2 * rows_of_range:
        return 1
    return min(_MOST_RANGES, -(-rows // rows_of_range))


#: Each is a source partition with an offset.
_MOST_RANGES: Final = 1000
#: Keeps the plan, which is one message of the offsets topic, well below the size that a topic takes.
_MOST_BYTES: Final = 200_000


def chosen(sample: Sequence[Key], count: int) -> tuple[Key, ...]:
    """The bounds of ranges with about as many rows each.

    Args:
        sample: Keys of the table in the database's order, chosen at random or all.
        count: How many ranges are wanted. There are fewer where many rows have the same key in the sample, or where
            keys are very long.

    >>> chosen([(1,), (2,), (3,), (4,), (5,), (6,)], 3)
    ((2,), (4,))
    >>> chosen([(1,), (1,), (1,), (9,)], 4)
    ((1,),)
    """
    while True:
        places = sorted({number * len(sample) // count - 1 for number in range(1, count)} - {-1})
        found: list[Key] = []
        for place in places:
            if not found or found[-1] != sample[place]:
                found.append(sample[place])
        # Nothing is above the last key: a range of its own would be empty.
        if found and found[-1] == sample[-1]:
            found.pop()
        if count <= 2 or len(json.dumps(found)) <= _MOST_BYTES:
            return tuple(found)
        count //= 2
