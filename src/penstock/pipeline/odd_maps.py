"""Schemaless maps with a key that is no string: transforms see their records one by one.

VARIANT keeps such a map as a tagged array of pairs (``variant.py``), where expressions find none of its string keys as
a field. To look into it everywhere would make plans several times as large, for maps that few sources have: so the
transforms of a record that has one run in Python, by what they do for one record. Converters know the tag.

Main functions: ``odd_rows``, ``split``, ``transformed_alone`` and ``merged`` are the work in its order. Thread: a
task's pipeline thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from operator import itemgetter
from typing import Final

import numpy as np
import pyarrow.compute as pc

from penstock.api import ConnectRecord
from penstock.pipeline.grouping import RecordGroup
from penstock.pipeline.rebuild import apply_classic
from penstock.pipeline.segments import Columns, Failures
from penstock.pipeline.step import SideName
from penstock.pipeline.variant import MAP_TAG

_TAG: Final = re.compile(re.escape(MAP_TAG).encode())
_SIDES: Final[tuple[SideName, ...]] = ("key", "value")

#: Records and their rows in the batch.
Rows = tuple[list[ConnectRecord], list[int]]


def odd_rows(groups: Iterable[RecordGroup]) -> frozenset[int]:
    """The rows with a schemaless map that has a key that is no string, in the key or the value, at any depth."""
    found: set[int] = set()
    for group in groups:
        for side in _SIDES:
            if not group.shape.side(side).is_variant:
                continue
            names = group.columns[side].field("metadata")
            # One look at all of them is nearly always the only one.
            if _TAG.search(names.buffers()[-1] or b""):
                places = pc.indices_nonzero(pc.match_substring(names, MAP_TAG)).to_numpy()
                found.update((places if group.rows is None else group.rows[places.astype(np.int64)]).tolist())
    return frozenset(found)


def split(live: list[ConnectRecord], positions: list[int] | None, odd: frozenset[int]) -> tuple[Rows, Rows]:
    """The records that are not in these rows, and those that are."""
    pairs = list(zip(range(len(live)) if positions is None else positions, live, strict=True))
    return _rows(pairs, odd, False), _rows(pairs, odd, True)


def transformed_alone(segment: Columns, rows: Rows, failures: Failures) -> Rows:
    """Records after the transforms of a segment, which run one by one, without failed and dropped ones."""
    live, positions = rows
    for transform in segment.alone:
        live, kept = apply_classic(transform, live, positions, failures)
        positions = positions if kept is None else kept
    return live, positions


def merged(one: Rows, other: Rows) -> Rows:
    """The records of both, in the order of their rows."""
    live, positions = one[0] + other[0], one[1] + other[1]
    pairs = sorted(zip(positions, live, strict=True), key=itemgetter(0))
    return [record for _, record in pairs], [row for row, _ in pairs]


def _rows(pairs: list[tuple[int, ConnectRecord]], odd: frozenset[int], among: bool) -> Rows:
    chosen = [pair for pair in pairs if (pair[0] in odd) is among]
    return [record for _, record in chosen], [row for row, _ in chosen]
