"""Groups of records, one for each pair of key schema and value schema, and the choice of columns or rows for each.

*Columns* are Spark's: one plan for all records of one shape. *Rows* are Python's: the methods that transforms and
converters have for one record, which cost some ten microseconds each whatever the record holds (``row_path``).

* A batch is processed as rows if a plan would cost more than it saves. A plan has one schema, and Spark takes 100 ms
  and more to analyse what a schema adds to a plan, for each mix of schemas anew: fifty tables with a few rows each have
  fifty schemas. A deeply nested schema takes seconds by itself (``penstock.pipeline.columns.sizes``). A value of a
  hundred megabytes takes the whole heap of the JVM, in which the batches of all tasks are.
* A group of records with one schema is processed as rows if a step does not support it as columns (``Step.takes``):
  schemaless values are columns when all are of one kind, texts, numbers or maps that look alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import repeat
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data import Schema, Struct, Type
from penstock.pipeline.batch.batches import Why
from penstock.pipeline.columns.layout import bounded, holds_variant
from penstock.pipeline.columns.records import to_arrow
from penstock.pipeline.columns.sizes import exceeds, has_length
from penstock.pipeline.plan.chain import ShapeGroup, unchanged
from penstock.pipeline.plan.map_structs import KINDS, object_array
from penstock.pipeline.plan.step import NOTHING, SCHEMALESS, Shape, Side, SideName, Sorted, Split

if TYPE_CHECKING:
    from penstock.api import ConnectRecord
    from penstock.pipeline.plan.chain import GroupOutcome, Staged

#: The minimum number of schemas; fewer are as fast in plans.
MIN_SCHEMAS: Final = 6
#: The number of rows for each schema above which plans are faster.
ROWS_EACH: Final = 300
#: The number of rows above which batches are not inspected.
MAX_ROWS: Final = 10_000
#: A plan holds a value about ten times: the input, Spark's rows, which grow by doubling, and the output. Twenty values
#: of 14 MB delay all batches of a worker for seconds; as rows they take milliseconds each.
HUGE_BYTES: Final = 4 * 1024 * 1024
#: The largest batch that is searched for huge nested values: a poll has no room for many.
_FEW: Final = 256
#: The minimum number of records for Python workers; fewer finish in the worker before Python workers have begun.
MIN_SPREAD_ROWS: Final = 5_000
_LEVELS: Final = 3
_VALUES: Final[Sequence[Callable[[Any], Any]]] = (attrgetter("key"), attrgetter("value"))
_SCHEMAS: Final[Sequence[Callable[[Any], Any]]] = (attrgetter("key_schema"), attrgetter("value_schema"))


def spreads(rows: int, cores: int) -> bool:
    """True if records that go as rows, through transforms without state, go to Spark's Python workers."""
    return rows >= MIN_SPREAD_ROWS and cores > 1


# ------------------------------------------------------------------------------------------------------------ a group
def why_rows(steps: tuple[Staged, ...], shape: Shape, *, to_records: bool = False) -> Why | None:
    """Returns the reason why the records of a shape go as rows through some steps; None for columns.

    An earlier step may still make them VARIANT, which no step takes. With ``to_records`` a VARIANT result would only be
    read once more.
    """
    if holds_variant(shape.key.physical) or holds_variant(shape.value.physical):
        return Why.MIXED_VALUES
    return _why_rows(steps, shape, to_records)


@lru_cache(maxsize=1024)
def _why_rows(steps: tuple[Staged, ...], shape: Shape, to_records: bool) -> Why | None:
    for index, staged in enumerate(steps):
        if not staged.step.takes(shape):
            mixed = shape.key.is_variant or shape.value.is_variant
            return Why.MIXED_VALUES if mixed else Why.NO_COLUMNS
        try:
            plan = staged.step.plan(shape)
        except BaseException:
            return None  # each of these records fails here, on either path
        if isinstance(plan, Split):
            ways = [_behind(one.plan.shape, staged, one.plan.writes) for one in plan.branches]
            found = [_why_rows(steps[index + 1 :], way, to_records) for way in ways]
            return next((why for why in found if why is not None), None)
        shape = _behind(plan.shape, staged, plan.writes)
    return Why.MIXED_VALUES if to_records and shape.value.is_variant else None


@lru_cache(maxsize=1024)
def shape_unplanned(steps: tuple[Staged, ...], shape: Shape) -> Shape | None:
    """The shape after steps that change nothing, for which no plan is needed; None if one of them changes something."""
    for staged in steps:
        try:
            plan = staged.step.plan(shape)
        except BaseException:
            return None  # each of these records fails here, as in the plan
        if isinstance(plan, Split) or not plan.is_idle:
            return None
        shape = _behind(plan.shape, staged, plan.writes)
    return shape


def parted_by_plan(groups: Sequence[ShapeGroup]) -> tuple[list[GroupOutcome], list[ShapeGroup]]:
    """Returns the outcomes of groups whose plan would change nothing, and the other groups."""
    unplanned: list[GroupOutcome] = []
    planned: list[ShapeGroup] = []
    for one in groups:
        shape = shape_unplanned(one.steps, one.shape)
        if shape is None or one.carry:
            planned.append(one)
        else:
            unplanned.append(unchanged(replace(one, shape=shape), {}))
    return unplanned, planned


def _behind(shape: Shape, staged: Staged, writes: frozenset[str]) -> Shape:
    return shape if staged.step.bounds_text else shape.without_bounds(writes)


# ------------------------------------------------------------------------------------------------------------ a batch
def why_batch_in_rows(records: Sequence[ConnectRecord]) -> Why | None:
    """Returns the reason why all records of a source's batch go as rows."""
    one_schema = are_of_one_schema(records)
    if not one_schema and many_schemas(records):
        return Why.MANY_SCHEMAS
    if _deep_schemas(records[:1] if one_schema else records):
        return Why.DEEP_SCHEMA
    return Why.HUGE_VALUE if _huge_values(records) else None


def why_messages_in_rows(groups: int, table: pa.Table, *, deep: bool, changed: bool) -> Why | None:
    """Returns the reason why all messages of a sink's batch go as rows.

    ``deep``: one of their schemas is deeply nested. ``changed``: columns would lose some of their content.
    """
    if deep:
        return Why.DEEP_SCHEMA
    if changed:
        return Why.HALF_PAIR
    if are_many(groups, table.num_rows):
        return Why.MANY_SCHEMAS
    return Why.HUGE_VALUE if is_huge(table) else None


def are_many(schemas: int, rows: int) -> bool:
    """True if processing record by record is faster for this number of schemas and rows.

    >>> are_many(50, 1_000), are_many(50, 50_000), are_many(2, 4)
    (True, False, False)
    """
    return schemas >= MIN_SCHEMAS and rows <= min(MAX_ROWS, schemas * ROWS_EACH)


def many_schemas(records: Sequence[ConnectRecord]) -> bool:
    """True if the number of schemas makes processing record by record faster."""
    rows = len(records)
    if not MIN_SCHEMAS <= rows <= MAX_ROWS:
        return False
    sides = {(id(record.key_schema), id(record.value_schema)): record for record in records}
    if len(sides) < MIN_SCHEMAS:
        return False
    schemas = {(record.key_schema, record.value_schema) for record in sides.values()}
    return are_many(len(schemas), rows)


def are_of_one_schema(records: Sequence[ConnectRecord]) -> bool:
    """True if all records share the same schema objects, as those of most tasks do."""
    return all(all(map(is_, map(schema, records), repeat(schema(records[0])))) for schema in _SCHEMAS if records)


def is_huge(table: pa.Table) -> bool:
    """True if a text or bytes of a table is too large for a plan."""
    return table.nbytes > HUGE_BYTES and any(
        (pc.max(pc.binary_length(column)).as_py() or 0) > HUGE_BYTES
        for column in table.columns
        if column.nbytes > HUGE_BYTES and has_length(column.type)
    )


def _huge_values(records: Sequence[ConnectRecord]) -> bool:
    for side in _VALUES:
        values = list(map(side, records))
        if len(values) <= _FEW:
            found = any(_is_huge(value, _LEVELS) for value in values)
        else:
            # A function for each value would cost more than the rest of the processing here.
            kinds = set(map(type, values))
            sized = {kind for kind in kinds if issubclass(kind, (str, bytes))}
            texts: Any = values if sized == kinds else [one for one in values if type(one) in sized] if sized else ()
            found = max(map(len, texts), default=0) > HUGE_BYTES
        if found:
            return True
    return False


def _deep_schemas(records: Sequence[ConnectRecord]) -> bool:
    found = {id(record.value_schema): record.value_schema for record in records}
    found |= {id(record.key_schema): record.key_schema for record in records}
    return any(map(exceeds, found.values()))


def _is_huge(value: object, levels: int) -> bool:
    if isinstance(value, (str, bytes)):
        return len(value) > HUGE_BYTES
    if not levels:
        return False
    if isinstance(value, Struct):
        return any(_is_huge(value.get_without_default(field.name), levels - 1) for field in value.schema.fields)
    if isinstance(value, dict):
        return any(_is_huge(item, levels - 1) for item in value.values())
    return isinstance(value, list) and any(_is_huge(item, levels - 1) for item in value[:_FEW])


#: The schemas for the layout of schemaless values of one kind.
_CARRIERS: Final = {kind: Schema(one, optional=True) for kind, one in {**KINDS, bytes: Type.BYTES}.items()}

#: Called with a value that fits no column: position in the batch, side, reason.
OnBadValue = Callable[[int, SideName, Exception], None]


@dataclass(frozen=True)
class RecordGroup:
    """Records of one key schema and one value schema.

    Attributes:
        rows: Their positions in the batch; None = all.
        columns: Keys and values, unless they are absent. Groups of mixed schemaless values have them only on request.
    """

    shape: Shape
    rows: np.ndarray | None
    columns: Mapping[str, pa.Array]


def side_column(
    values: Sequence[object], schema: Schema | None, *, mixed: bool = True, loose: bool = False
) -> tuple[Side, pa.Array | None, dict[int, Exception]]:
    """Lays out the keys or values of one schema: their known properties, the column, and the errors by position.

    There is no column if all are null without a schema, or mixed and not to be laid out (``mixed``), or schemaless and
    ``loose``.
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
        positions: Their positions in the batch; None = 0, 1, 2, ...
        sink: True for sink records.
        on_bad: Called for each value that fits no column; its record is left out of the groups.
        any_value: True to take values that do not match their schema as schemaless ones.
        mixed: True to lay out schemaless values of mixed kinds.
        loose: The sides whose schemaless values are not laid out.
        without: The sides to leave out, as if all of them were null.
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
    # A lookup compares a whole schema; object identity decides for nearly all records.
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
