"""Records to groups: one for each pair of key schema and value schema, laid out as Arrow columns.

Main functions: ``group_records`` (records from a record task or a classic transform), ``side_column`` (the values of
one side, with what is known of them) and ``rows_of_pairs`` (messages, as their converters have sorted them).

Thread: pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from penstock.data import Schema, Type
from penstock.pipeline.batch.roads import are_of_one_schema
from penstock.pipeline.columns.records import to_arrow
from penstock.pipeline.columns.text_bounds import bounded
from penstock.pipeline.plan.map_structs import KINDS, object_array
from penstock.pipeline.plan.step import NOTHING, SCHEMALESS, Shape, Side, SideName, Sorted

if TYPE_CHECKING:
    from penstock.api import ConnectRecord

#: The schemas that schemaless values of one kind are laid out by.
_CARRIERS: Final = {kind: Schema(one, optional=True) for kind, one in {**KINDS, bytes: Type.BYTES}.items()}

#: Told of a value that fits no column: position in the batch, side, reason.
OnBadValue = Callable[[int, SideName, Exception], None]


@dataclass(frozen=True)
class RecordGroup:
    """Records of one key schema and one value schema.

    Attributes:
        shape: What is known of them.
        rows: Their positions in the batch; None = all.
        columns: Keys and values, unless they are absent. Groups of mixed schemaless values have them only where asked.
    """

    shape: Shape
    rows: np.ndarray | None
    columns: Mapping[str, pa.Array]


def side_column(
    values: Sequence[object], schema: Schema | None, *, mixed: bool = True, loose: bool = False
) -> tuple[Side, pa.Array | None, dict[int, Exception]]:
    """Lays out the keys or values of one schema.

    Args:
        values: The keys or values.
        schema: Theirs.
        mixed: Whether schemaless values of mixed kinds are laid out, too.
        loose: Whether no schemaless values are laid out.

    Returns:
        What is known of them, the column (None: all are null and have no schema, or they are mixed and not laid out),
        the errors by position.
    """
    if schema is not None:
        array, errors, physical = to_arrow(values, schema)
        return Side.of(schema, bounded(physical, array)).without_nulls(array), array, errors
    kinds = set(map(type, values)) - {type(None)}
    if not kinds:
        return NOTHING, None, {}
    if loose:
        return SCHEMALESS, None, {}
    carrier = _CARRIERS.get(next(iter(kinds))) if len(kinds) == 1 else None
    if carrier is not None:
        array, errors, physical = to_arrow(values, carrier)
        if not errors:
            return Side(None, bounded(physical, array), carrier), array, {}
    objects = object_array(values) if kinds == {dict} else None
    if objects is not None:
        side, array = objects
        return replace(side, physical=bounded(side.physical, array)), array, {}
    if not mixed:
        return SCHEMALESS, None, {}
    array, errors, physical = to_arrow(values, None)
    return Side.of(None, physical), array, errors


def group_records(
    records: Sequence[ConnectRecord],
    positions: Sequence[int] | None,
    *,
    sink: bool,
    on_bad: OnBadValue,
    any_value: bool = False,
    mixed: bool = True,
    loose: Set[SideName] = frozenset(),
    without: Set[SideName] = frozenset(),
) -> list[RecordGroup]:
    """Groups records by schemas and lays them out.

    Args:
        records: The records.
        positions: Their positions in the batch; None = 0, 1, 2, ...
        sink: Whether these are sink records.
        on_bad: Called for each value that fits no column; its record is left out of the groups.
        any_value: Whether values that are not of their schema are taken as schemaless ones.
        mixed: Whether schemaless values of mixed kinds are laid out.
        loose: Sides of which no schemaless values are laid out.
        without: Sides that are left out, as if all of them were null.
    """
    groups: list[RecordGroup] = []
    misfits: dict[int, ConnectRecord] = {}
    if any_value:
        told = on_bad

        @cache
        def by_position() -> Mapping[int, ConnectRecord]:
            return dict(zip(range(len(records)) if positions is None else positions, records, strict=True))

        def on_bad(seq: int, side: SideName, error: Exception) -> None:
            record = by_position()[seq]
            if side == "value" and record.value_schema is not None:
                misfits[seq] = record.new_record(value_schema=None)
            else:
                told(seq, side, error)

    for members in _by_schema(records):
        chosen = records if members is None else [records[index] for index in members]
        places = positions if members is None else _at(positions, members)
        groups += _lay_out(chosen, places, sink, on_bad, mixed, loose, without)
    if misfits:
        groups += group_records(list(misfits.values()), list(misfits), sink=sink, on_bad=told, mixed=mixed)
    return groups


def _by_schema(records: Sequence[ConnectRecord]) -> list[Sequence[int] | None]:
    """The indices of the records of each pair of schemas; None for all records."""
    if are_of_one_schema(records):
        return [None] if records else []
    found: dict[tuple[Schema | None, Schema | None], list[int]] = {}
    # Looking a schema up compares it in full; its identity settles nearly all records.
    known: dict[tuple[int, int], list[int]] = {}
    for index, record in enumerate(records):
        pair = (id(record.key_schema), id(record.value_schema))
        members = known.get(pair)
        if members is None:
            members = known[pair] = found.setdefault((record.key_schema, record.value_schema), [])
        members.append(index)
    return [None] if len(found) == 1 else list(found.values())


def _at(positions: Sequence[int] | None, members: Sequence[int]) -> Sequence[int]:
    return members if positions is None else [positions[index] for index in members]


def _lay_out(
    records: Sequence[ConnectRecord],
    positions: Sequence[int] | None,
    sink: bool,
    on_bad: OnBadValue,
    mixed: bool,
    loose: Set[SideName],
    without: Set[SideName],
) -> list[RecordGroup]:
    nothing: tuple[Side, pa.Array | None, dict[int, Exception]] = (NOTHING, None, {})
    key, keys, key_errors = value, values, value_errors = nothing
    if "key" not in without:
        made = [one.key for one in records]
        key, keys, key_errors = side_column(made, records[0].key_schema, mixed=mixed, loose="key" in loose)
    if "value" not in without:
        made = [one.value for one in records]
        value, values, value_errors = side_column(made, records[0].value_schema, mixed=mixed, loose="value" in loose)
    bad: dict[int, tuple[SideName, Exception]] = {index: ("value", error) for index, error in value_errors.items()}
    bad |= {index: ("key", error) for index, error in key_errors.items()}
    for index, (name, error) in sorted(bad.items()):
        on_bad(index if positions is None else positions[index], name, error)
    rows = None if positions is None else np.asarray(positions, dtype=np.int64)
    columns = {name: array for name, array in (("key", keys), ("value", values)) if array is not None}
    if bad:
        good = np.setdiff1d(np.arange(len(records)), np.fromiter(bad, dtype=np.int64))
        if not len(good):
            return []
        rows = good if rows is None else rows[good]
        columns = {name: array.take(pa.array(good)) for name, array in columns.items()}
    return [RecordGroup(Shape(key, value, sink), rows, columns)]


def rows_of_pairs(keys: Sorted, values: Sorted, rows: int) -> list[tuple[np.ndarray | None, Mapping[SideName, int]]]:
    """The rows of each pair of hints, by their indices; None = all rows. Those without a hint are in none."""
    if keys.codes is None and values.codes is None:
        return [(None, {"key": 0, "value": 0})]
    zeros = np.zeros(rows, dtype=np.int64)
    key_codes = zeros if keys.codes is None else keys.codes.astype(np.int64)
    value_codes = zeros if values.codes is None else values.codes.astype(np.int64)
    width = len(values.hints)
    both = np.where((key_codes < 0) | (value_codes < 0), -1, key_codes * width + value_codes)
    found = np.unique(both).tolist()
    if len(found) == 1 and found[0] >= 0:
        return [(None, {"key": found[0] // width, "value": found[0] % width})]
    return [
        (np.flatnonzero(both == code), {"key": code // width, "value": code % width}) for code in found if code >= 0
    ]
