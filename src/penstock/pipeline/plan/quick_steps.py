"""A quick plan for most rows of a batch, the full one for those it leaves.

Some steps can say what they do for most values in a much smaller plan (``Step.matching``), which leaves null where it
does not apply. A smaller plan is sooner ready and sooner compiled. What it has left goes through the full plan, as a
job of its own; where that happens often, the next quick plan or the full one is taken at once for a while.

Main type: ``QuickTries``. ``quick_steps``, ``rows_left``, ``part_of`` and ``put_together`` are the work in its order.

Thread: one pipeline thread; the functions are pure.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.pipeline.plan.jobs import Group
from penstock.pipeline.plan.outcomes import Outcome

if TYPE_CHECKING:
    from penstock.pipeline.plan.chain import Staged

#: More rows left than one in so many: the quick plan was not worth its job.
_WORTH: Final = 16
#: So many batches go the full way after one that was not worth it.
_PAUSE: Final = 50
_MAX_KNOWN: Final = 1_000


class QuickTries:
    """Remembers by key (steps, for example) where the quick way leaves too much.

    Args:
        worth: More rows left than one in so many, and it was not worth it.

    >>> tries = QuickTries()
    >>> tries.worth("steps")
    True
    >>> tries.note("steps", left=500, rows=1000)
    >>> [tries.worth("steps") for _ in range(51)].index(True)
    50
    """

    def __init__(self, worth: int = _WORTH) -> None:
        self._worth = worth
        self._pause: dict[Hashable, int] = {}

    def worth(self, steps: Hashable) -> bool:
        """Whether to try the quick plan for this batch."""
        left = self._pause.get(steps)
        if left is None:
            return True
        if left <= 1:
            del self._pause[steps]
        else:
            self._pause[steps] = left - 1
        return False

    def note(self, steps: Hashable, left: int, rows: int) -> None:
        """The quick plan has left so many rows."""
        if left * self._worth > rows:
            if len(self._pause) >= _MAX_KNOWN:
                self._pause.clear()
            self._pause[steps] = _PAUSE


def quick_steps(group: Group) -> Iterator[tuple[Staged, ...]]:
    """The steps of a group with a quick form of the last one, which is about the value; the quickest form first."""
    if group.shape.value.absent or not group.steps:
        return
    *others, last = group.steps
    quick = last.step.matching()
    while quick is not None:
        yield (*others, replace(last, step=quick))
        quick = quick.matching()


def rows_left(group: Group, outcome: Outcome) -> np.ndarray:
    """Places in the group that have a value before the quick steps and none behind them, in order."""
    left = pc.and_(pc.is_valid(group.columns["value"]), pc.is_null(outcome.columns["value"]))
    places: np.ndarray = pc.indices_nonzero(left).to_numpy()
    return places.astype(np.int64)


def part_of(group: Group, places: np.ndarray) -> Group:
    """Some rows of a group as a group."""
    pick = pa.array(places)
    columns = {name: column.take(pick) for name, column in group.columns.items()}
    return replace(group, rows=places if group.rows is None else group.rows[places], columns=columns)


def put_together(quick: Outcome, places: np.ndarray, rest: Sequence[Outcome]) -> list[Outcome]:
    """What the quick steps and the full ones have made, each of its rows; errors are told apart, by both.

    Args:
        quick: What the quick steps made of the whole batch.
        places: The rows that were left.
        rest: What became of these.
    """
    size = len(quick.columns["value"])
    if len(rest) == 1 and _alike(quick, rest[0]):
        both = pa.chunked_array([*quick.columns["value"].chunks, *rest[0].columns["value"].chunks])
        order = np.arange(size)
        order[places] = size + np.arange(len(places))
        return [replace(quick, columns={**quick.columns, "value": both.take(pa.array(order))})]
    kept = np.setdiff1d(np.arange(size), places)
    pick = pa.array(kept)
    columns = {name: column.take(pick) for name, column in quick.columns.items()}
    return [replace(quick, rows=kept, columns=columns), *rest]


def _alike(one: Outcome, other: Outcome) -> bool:
    return (
        one.shape == other.shape
        and one.dropped is None
        and other.dropped is None
        and one.columns["value"].type == other.columns["value"].type
    )
