"""Texts of values that are known in front of the plan, for tasks that take text.

A plan gets them, and gives back how long each is (``AsLength``): what it hands back of its rows is half of its work.

Main type: ``KnownTexts``. Thread: a task's pipeline thread.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.pipeline.columns.arrow_texts import text_of
from penstock.pipeline.plan.chain import Staged
from penstock.pipeline.plan.java_text import AsLength
from penstock.pipeline.plan.jobs import Group
from penstock.pipeline.plan.outcomes import Outcome
from penstock.pipeline.plan.step import SCHEMALESS_TEXT, Shape, Split

_AS_LENGTH: Final = AsLength("value")


class KnownTexts:
    """The texts of some values of one batch.

    Args:
        rows: How many messages the batch has.
    """

    def __init__(self, rows: int) -> None:
        self._place = np.full(rows, -1, dtype=np.int64)
        self._chunks: list[pa.Array] = []
        self._count = 0

    def instead(self, group: Group, texts: pa.ChunkedArray) -> Group:
        """A group that has texts for its values, of which a plan only tells how long they are.

        Args:
            group: The group; the last one of its steps makes texts.
            texts: Its texts.
        """
        size = len(texts)
        self._place[slice(None) if group.rows is None else group.rows] = self._count + np.arange(size)
        self._chunks += texts.chunks
        self._count += size
        keys = [one for one in group.steps if getattr(one.step, "side", None) == "key"]
        steps = (*keys, replace(group.steps[-1], step=_AS_LENGTH))
        columns = {**group.columns, "value": texts}
        return replace(group, steps=steps, shape=group.shape.with_side("value", SCHEMALESS_TEXT), columns=columns)

    def told(self, outcome: Outcome) -> Outcome:
        """An outcome of which this has the texts, with them; any other one as it is."""
        place = self._place if outcome.rows is None else self._place[outcome.rows]
        if (place < 0).any():
            return outcome
        texts = pa.chunked_array(self._chunks, pa.string())
        if not np.array_equal(place, np.arange(len(texts))):
            texts = texts.take(pa.array(place))
        columns = {**outcome.columns, "value": texts}
        return replace(outcome, shape=outcome.shape.with_side("value", SCHEMALESS_TEXT), columns=columns)


def texts_of_read(group: Group) -> pa.ChunkedArray | None:
    """The texts of values that were read as columns; None = the plan has to make them, or to do more with them."""
    side = group.shape.value
    if side.absent or side.carrier is None or not all(_leaves_alone(one, group.shape) for one in group.steps[:-1]):
        return None
    column = group.columns["value"]
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    texts = [text_of(chunk, side.carrier, side.physical) for chunk in chunks]
    return None if any(one is None for one in texts) else pa.chunked_array(texts, pa.string())


def _leaves_alone(staged: Staged, shape: Shape) -> bool:
    """True if a step does nothing with the values."""
    if getattr(staged.step, "side", None) == "key":
        return True
    plan = staged.step.plan(shape)
    return not isinstance(plan, Split) and plan.shape == shape and not plan.writes
