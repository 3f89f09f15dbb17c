"""Converts keys and values without a schema for frames: from Python values by row to typed columns by topic.

Such values (read of many messages at once, made by transforms, or the result of a plan) become columns here, with the
known types of each topic (``penstock.pipeline.columns.schemaless``).

Main types: ``LooseValues`` (those of one side of a batch) and ``TypedPart`` (a column of some of them). Main functions:
``add_of_records`` and ``without_loose``, which find them in records and in outcomes.

Thread: a task's pipeline thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.api import ConnectRecord
from penstock.pipeline.batch.row_path import side_values
from penstock.pipeline.columns.schemaless import KnownTypes, SchemalessColumn, column_of
from penstock.pipeline.plan.outcomes import GroupOutcome
from penstock.pipeline.plan.step import NOTHING, SideName

#: The minimum average length of runs of values that are no objects among objects: longer runs are frames of their own,
#: with shorter runs all values are one column of VARIANT.
_ROWS_EACH: Final = 16


@dataclass(frozen=True)
class TypedPart:
    """Some values as a column.

    Attributes:
        column: The values.
        rows: The row of each in the batch.
    """

    column: SchemalessColumn
    rows: np.ndarray


_NO_TOPIC: Final = -1


@dataclass
class LooseValues:
    """The keys, or the values, of the rows of a batch that have no schema on that side.

    Attributes:
        side: The side.
        rows: Their rows, in parts.
        values: As many values, in parts.
        objects: The values of all rows of the batch, if they are objects of the same members; there are no others then.
    """

    side: SideName
    rows: list[np.ndarray] = field(default_factory=list)
    values: list[Sequence[object]] = field(default_factory=list)
    objects: pa.ChunkedArray | None = None

    def add(self, rows: np.ndarray, values: Sequence[object]) -> None:
        """Adds rows."""
        self.rows.append(rows)
        self.values.append(values)

    def typed(
        self, topics: pa.ChunkedArray, known: KnownTypes, on_bad: Callable[[int, Exception], None]
    ) -> list[TypedPart]:
        """The values as columns; the columns of one topic have the same types from batch to batch.

        Args:
            topics: The topic of each row of the batch.
            known: The known types of the topics; updated.
            on_bad: Called with a row whose value has no type in Connect, and the error; it is null in the column.
        """
        if self.objects is not None:
            return self._typed_objects(self.objects, topics, known)
        if not self.rows:
            return []
        rows = self.rows[0] if len(self.rows) == 1 else np.concatenate(self.rows)
        values = self.values[0] if len(self.values) == 1 else [one for part in self.values for one in part]
        parts: list[TypedPart] = []
        for topic, mine in _by_topic(topics, rows):
            chosen = values if len(mine) == len(values) else [values[place] for place in mine.tolist()]
            of = (self.side, topic)
            for places, column, errors in _columns(chosen, lambda some, of=of: known.column_of(of, some)):  # type: ignore[misc]
                own = rows[mine] if places is None else rows[mine[places]]
                for place, error in errors.items():
                    on_bad(int(own[place]), error)
                parts.append(TypedPart(column, own))
        return parts

    def _typed_objects(self, objects: pa.ChunkedArray, topics: pa.ChunkedArray, known: KnownTypes) -> list[TypedPart]:
        parts = []
        for topic, mine in _by_topic(topics, np.arange(len(objects))):
            chosen = objects if len(mine) == len(objects) else objects.take(pa.array(mine))
            if chosen.null_count < len(chosen):
                parts.append(TypedPart(known.column_of_objects((self.side, topic), chosen), mine))
            else:
                parts.append(TypedPart(known.column_of((self.side, topic), [None] * len(mine))[0], mine))
        return parts


def _by_topic(topics: pa.ChunkedArray, rows: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """The topics of some rows, each with the positions of its rows among these."""
    encoded = topics.combine_chunks().dictionary_encode()
    # A failed row may have no topic. It is in no frame.
    codes = encoded.indices.fill_null(_NO_TOPIC).to_numpy()[rows]
    for code in np.unique(codes[codes != _NO_TOPIC]).tolist():
        yield encoded.dictionary[code].as_py(), np.flatnonzero(codes == code)


def _columns(
    values: Sequence[object], remembered: Callable[[Sequence[object]], tuple[SchemalessColumn, dict[int, Exception]]]
) -> list[tuple[np.ndarray | None, SchemalessColumn, dict[int, Exception]]]:
    """The columns of the values of one topic, each with the positions of its values; None: all of them."""
    kinds = set(map(type, values)) - {type(None)}
    if dict in kinds and len(kinds) > 1:
        is_other = np.fromiter((one is not None and type(one) is not dict for one in values), np.bool_, len(values))
        if np.count_nonzero(np.diff(is_other)) * _ROWS_EACH <= len(values):
            objects, others = np.flatnonzero(~is_other), np.flatnonzero(is_other)
            return [
                (objects, *remembered([values[place] for place in objects.tolist()])),
                (others, *column_of([values[place] for place in others.tolist()])),
            ]
    return [(None, *remembered(values))]


def add_of_records(loose: Mapping[SideName, LooseValues], live: Sequence[ConnectRecord], rows: np.ndarray) -> None:
    """Adds the keys and values without a schema of records.

    Args:
        loose: Gets them, by side.
        live: The records.
        rows: Their rows.
    """
    for side, one in loose.items():
        of_key = side == "key"
        values = [record.key if of_key else record.value for record in live]
        places = np.array([(record.key_schema if of_key else record.value_schema) is None for record in live])
        if places.all():
            one.add(rows, values)
        elif places.any():
            one.add(rows[places], [values[place] for place in np.flatnonzero(places).tolist()])


def without_loose(outcome: GroupOutcome, rows: int, loose: Mapping[SideName, LooseValues]) -> GroupOutcome:
    """Moves keys and values that have no schema from an outcome to ``loose``.

    Args:
        outcome: The outcome of some rows.
        rows: The number of rows in the batch.
        loose: Gets the values, by side.
    """
    for side, one in loose.items():
        known = outcome.shape.side(side)
        if known.schema is not None or known.absent:
            continue
        if side in outcome.columns:
            mine = np.arange(rows) if outcome.rows is None else outcome.rows
            one.add(mine, side_values(outcome, side, len(mine)))
        left = {name: column for name, column in outcome.columns.items() if name != side}
        outcome = replace(outcome, shape=outcome.shape.with_side(side, NOTHING), columns=left)
    return outcome
