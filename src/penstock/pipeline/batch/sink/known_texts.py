"""Texts of values that are known before the plan, for tasks that take text.

No step is left for such values then: a plan, if keys need one, returns only the length of each text.

Main function: ``with_texts``. Thread: a task's pipeline thread.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from penstock.pipeline.columns.texts.arrow import text_of
from penstock.pipeline.plan.chain import Staged
from penstock.pipeline.plan.shape_group import ShapeGroup
from penstock.pipeline.plan.step import SCHEMALESS_TEXT, Shape, Split


def with_texts(group: ShapeGroup) -> ShapeGroup:
    """Adds the texts of values that were read as columns, and keeps the group's steps on keys.

    Args:
        group: The group, whose last step makes texts. It is returned unchanged if the plan has to do more with the
            values, or has to make the texts.
    """
    side = group.shape.value
    if side.absent or side.carrier is None or not all(_leaves_alone(one, group.shape) for one in group.steps[:-1]):
        return group
    column = group.columns["value"]
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    texts = [text_of(chunk, side.carrier, side.physical) for chunk in chunks]
    if any(one is None for one in texts):
        return group
    steps = tuple(one for one in group.steps if getattr(one.step, "side", None) == "key")
    columns = {**group.columns, "value": pa.chunked_array(texts, pa.string())}
    return replace(group, steps=steps, shape=group.shape.with_side("value", SCHEMALESS_TEXT), columns=columns)


def _leaves_alone(staged: Staged, shape: Shape) -> bool:
    """True if a step does not use the values."""
    if getattr(staged.step, "side", None) == "key":
        return True
    plan = staged.step.plan(shape)
    return not isinstance(plan, Split) and plan.shape == shape and not plan.writes
