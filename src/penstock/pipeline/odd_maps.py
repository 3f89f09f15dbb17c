"""Schemaless maps with a key that is no string: transforms see them record by record.

VARIANT keeps such a map as a tagged array of pairs (``variant.py``), where expressions find none of its string keys as
a field. To look into it everywhere would make plans several times as large, for maps that few sources have: so the
transforms of a batch that has one run in Python, by what they do for one record. Converters know the tag.

Main function: ``transformed_alone``. Thread: a task's pipeline thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from penstock.api import ConnectRecord
from penstock.pipeline.grouping import RecordGroup
from penstock.pipeline.rebuild import apply_classic
from penstock.pipeline.segments import Columns, Failures
from penstock.pipeline.step import SideName
from penstock.pipeline.variant import MAP_TAG

_TAG: Final = re.compile(re.escape(MAP_TAG).encode())

_SIDES: Final[tuple[SideName, ...]] = ("key", "value")

Rows = tuple[list[ConnectRecord], list[int] | None]


def has_odd_maps(groups: Iterable[RecordGroup]) -> bool:
    """Whether a schemaless map with a key that is no string is among the keys and values, at any depth."""
    return any(
        _TAG.search(group.columns[side].field("metadata").buffers()[-1] or b"")
        for group in groups
        for side in _SIDES
        if group.shape.side(side).is_variant
    )


def transformed_alone(
    segment: Columns, live: list[ConnectRecord], positions: list[int] | None, failures: Failures
) -> Rows:
    """The records after the transforms of a segment, which run one by one, without failed and dropped ones."""
    for transform in segment.alone:
        live, positions = apply_classic(transform, live, positions, failures)
    return live, positions
