"""Records of one shape that take the same steps: the input of a plan.

Main type: ``ShapeGroup``. Main function: ``unchanged``, the outcome of a group without steps. Values; any thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.pipeline.plan.chain import Staged
from penstock.pipeline.plan.outcomes import GroupOutcome
from penstock.pipeline.plan.step import Shape


@dataclass(frozen=True)
class ShapeGroup:
    """Records of one shape that take the same steps.

    Attributes:
        steps: The steps.
        shape: The shape of the input.
        rows: Their positions in the batch; None = the whole batch.
        columns: The columns ``key`` and ``value``, as long as ``rows``, unless they are absent.
        carry: Columns of the bag to return although no step changes them.
    """

    steps: tuple[Staged, ...]
    shape: Shape
    rows: np.ndarray | None
    columns: Mapping[str, pa.ChunkedArray | pa.Array]
    carry: frozenset[str] = frozenset()

    def size(self, batch_rows: int) -> int:
        """Returns the number of records."""
        return batch_rows if self.rows is None else len(self.rows)


def unchanged(group: ShapeGroup, shared: Mapping[str, pa.Array | pa.ChunkedArray]) -> GroupOutcome:
    """Returns the outcome of a group without steps, for which no plan is needed.

    Args:
        group: The records.
        shared: The other columns of the bag, for the whole batch.
    """
    carried = {name: shared[name] for name in group.carry}
    if group.rows is not None:
        carried = {name: column.take(pa.array(group.rows)) for name, column in carried.items()}
    columns = {
        name: column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
        for name, column in {**group.columns, **carried}.items()
    }
    return GroupOutcome(group.rows, group.shape, columns, None, None, {})
