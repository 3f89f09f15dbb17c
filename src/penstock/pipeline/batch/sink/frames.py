"""Converts outcomes to the frames of a frame sink: runs of rows with equal schemas, in the order they were consumed.

Texts that are known before the plan are put in here: no step is left for such values. Keys and values without a schema
become typed columns outside of plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.api import ConnectRecord, SinkFrame, SinkRecord, TimestampType, ValueForm
from penstock.api.arrow import is_variant, one_array
from penstock.api.frames.fields import objects
from penstock.api.frames.frame import ORIGIN_COLUMNS
from penstock.data import ConnectHeaders, Date, Schema, Time, Timestamp, Type
from penstock.errors import ConnectException
from penstock.pipeline.batch.batches import CONSUMED_SCHEMA
from penstock.pipeline.batch.row_path import side_values
from penstock.pipeline.batch.source.frame_input import headers_of_wire
from penstock.pipeline.columns.frame_arrow import fitted, union_of
from penstock.pipeline.columns.java_text import text_of
from penstock.pipeline.columns.layout import VARIANT_FIELDS, Layout, LayoutKind, holds_unscaled, logical_name
from penstock.pipeline.columns.records import from_arrow
from penstock.pipeline.columns.schemaless import KnownTypes, SchemalessColumn, column_of
from penstock.pipeline.columns.variant import NULL_VALUE
from penstock.pipeline.plan.chain import OTHERS, GroupOutcome, ShapeGroup, Staged
from penstock.pipeline.plan.step import NOTHING, SCHEMALESS_TEXT, SIDES, Shape, SideName, Split

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipeline.batch.batches import Failures
    from penstock.pipeline.batch.headers import HeaderWriter

#: The minimum average length of runs of values that are no objects among objects: longer runs are frames of their own,
#: with shorter runs all values are one column of VARIANT.
_ROWS_EACH: Final = 16


@dataclass(frozen=True)
class TypedPart:
    """Some values as a column."""

    column: SchemalessColumn
    rows: np.ndarray


_NO_TOPIC: Final = -1


@dataclass
class LooseValues:
    """The keys, or the values, of the rows of a batch that have no schema on that side; rows and values in parts.

    ``objects`` has the values of all rows, if they are objects of the same members; there are no others then.
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

        A value that has no type in Connect is null in its column.
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
    """Adds the keys and values without a schema of records."""
    for side, one in loose.items():
        of_key = side == "key"
        values = [record.key if of_key else record.value for record in live]
        places = np.array([(record.key_schema if of_key else record.value_schema) is None for record in live])
        if places.all():
            one.add(rows, values)
        elif places.any():
            one.add(rows[places], [values[place] for place in np.flatnonzero(places).tolist()])


def without_loose(outcome: GroupOutcome, rows: int, loose: Mapping[SideName, LooseValues]) -> GroupOutcome:
    """Moves keys and values that have no schema from an outcome to ``loose``."""
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


def with_texts(group: ShapeGroup) -> ShapeGroup:
    """Adds the texts of values that were read as columns, and keeps the group's steps on keys.

    The group is returned unchanged if the plan has to do more with the values than its last step, which makes the
    texts.
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


_TEMPORAL = {
    Timestamp.LOGICAL_NAME: pa.timestamp("ms", "UTC"),
    Date.LOGICAL_NAME: pa.date32(),
    Time.LOGICAL_NAME: pa.time32("ms"),
}
_NONE_TYPED: Final[Mapping[SideName, Sequence[TypedPart]]] = {}
#: The columns of a frame.
_ORDER: Final = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")
#: The columns, besides keys and values, that a step may have changed, and those that are always kept.
_CHANGED: Final = frozenset(OTHERS)
_KEPT: Final = tuple(name for name in _ORDER if name not in ("key", "value", "headers"))


def frames_of(
    outcomes: Sequence[GroupOutcome],
    table: pa.Table,
    gone: np.ndarray,
    session: Callable[[], SparkSession],
    *,
    form: ValueForm,
    join: bool = False,
    origins: np.ndarray | None = None,
    typed: Mapping[SideName, Sequence[TypedPart]] = _NONE_TYPED,
) -> list[SinkFrame]:
    """Cuts the batch into frames: runs of rows whose keys have one schema, and whose values have one.

    A null is a row like the others: it belongs to the run around it.

    Args:
        gone: True for the rows that failed or were dropped.
        join: True if values of different schemas that one column can hold are one run.
        origins: The message of each row, if one may have several; None = row i is message i.
        typed: Keys and values without a schema as columns. If topics differ in them, the rows of a batch are grouped by
            topic: each partition stays in order.
    """
    rows = table.num_rows
    kept = np.flatnonzero(~gone)
    if not len(kept):
        return []
    sides = {name: _SideColumns.of(outcomes, name, rows, typed.get(name, ()), join=join) for name in SIDES}
    others = {name: _placed(outcomes, name, table) for name in _ORDER if name not in SIDES}
    if origins is None and any(len(parts) > 1 for parts in typed.values()):
        kept = _by_kinds(kept, [sides[name].kinds for name in SIDES], table)
    kinds = np.stack([_filled(sides[name].kinds[kept]) for name in SIDES])
    runs = np.split(kept, np.flatnonzero((np.diff(kinds) != 0).any(axis=0)) + 1)
    text = form is ValueForm.TEXT
    frames: list[SinkFrame] = []
    first = 0
    for run, following in zip(runs, [*runs[1:], None], strict=True):
        columns = {name: others[name].at(run) for name in _KEPT}
        schemas: dict[SideName, Schema | None] = {}
        marks: dict[SideName, pa.ChunkedArray] = {}
        for index, name in enumerate(SIDES):
            kind = int(kinds[index, first])
            if kind >= 0 and (beside := sides[name].marks[kind]) is not None:
                marks[name] = beside.at(run)
            schemas[name] = sides[name].schemas[kind] if kind >= 0 else None
            is_text = text and name == "value"
            columns[name] = sides[name].columns[kind].at(run) if kind >= 0 else _nothing(len(run), text=is_text)
        columns["headers"] = others["headers"].at(run)
        columns = {name: columns[name] for name in _ORDER}
        origin = pa.table({name: _Placed(table.column(name)).at(run) for name in ORIGIN_COLUMNS})
        continued = following is not None and origins is not None and origins[run[-1]] == origins[following[0]]
        frames.append(
            SinkFrame(
                pa.table(columns),
                schemas["key"],
                schemas["value"],
                session,
                origin,
                continued=bool(continued),
                _marks=pa.table(marks) if marks else None,
            )
        )
        first += len(run)
    return frames


def empty_frame(form: ValueForm, session: Callable[[], SparkSession]) -> SinkFrame:
    """A frame without rows."""
    table = CONSUMED_SCHEMA.empty_table()
    columns = {name: table.column(name) for name in _ORDER if name not in SIDES}
    columns |= {name: _nothing(0, text=name == "value" and form is ValueForm.TEXT) for name in SIDES}
    return SinkFrame(pa.table({name: columns[name] for name in _ORDER}), None, None, session)


def _nothing(rows: int, *, text: bool) -> pa.Array:
    """The column of a side that is null in all rows, and has no schema."""
    return pa.nulls(rows, pa.string() if text else pa.null())


@dataclass(frozen=True)
class _Placed:
    """A column, and the position of each row of the batch in it.

    Attributes:
        place: For each row of the batch its position in the column, -1 if it is null; None = row i is at i.
    """

    column: pa.ChunkedArray
    place: np.ndarray | None = None

    def at(self, rows: np.ndarray) -> pa.ChunkedArray:
        """The values of some rows; without a copy if they are consecutive."""
        place = rows if self.place is None else self.place[rows]
        spans = place[0] >= 0 and place[-1] - place[0] == len(place) - 1
        if spans and (np.diff(place) == 1).all():
            return self.column if len(place) == len(self.column) else self.column.slice(int(place[0]), len(place))
        return self.column.take(pa.array(place, mask=place < 0) if (place < 0).any() else pa.array(place))


@dataclass(frozen=True)
class _SideColumns:
    """The keys, or the values, of all rows of a batch.

    Attributes:
        kinds: For each row the number of its schema; -1 = null without a schema.
        schemas: The schemas; None = schemaless.
        marks: The marks of columns without a schema that have some.
    """

    kinds: np.ndarray
    columns: Sequence[_Placed]
    schemas: Sequence[Schema | None]
    marks: Sequence[_Placed | None]

    @classmethod
    def of(
        cls, outcomes: Sequence[GroupOutcome], name: SideName, rows: int, typed: Sequence[TypedPart], *, join: bool
    ) -> _SideColumns:
        """Joins the columns of outcomes that have the same type in a frame, or can be converted to it."""
        alike: dict[tuple[Schema | None, pa.DataType], list[tuple[pa.ChunkedArray, np.ndarray]]] = {}
        for outcome in outcomes:
            known, column = outcome.shape.side(name), outcome.columns.get(name)
            if known.absent or column is None:
                continue
            column, physical = _with_decimals(column, known.schema, known.physical)
            dated = _null_where_variant_is(with_dates(column, known.schema, physical))
            alike.setdefault((known.schema, dated.type), []).append((dated, _rows_of(outcome, rows)))
        parts = [(schema, kind, found) for (schema, kind), found in alike.items()]
        joined = _joined(parts) if join and len(parts) > 1 else parts
        kinds = np.full(rows, -1, dtype=np.int64)
        columns: list[_Placed] = []
        for number, (_, kind, found) in enumerate(joined):
            for _, positions in found:
                kinds[positions] = number
            columns.append(_together(found, kind, rows))
        schemas, marks = [schema for schema, _, _ in joined], [None] * len(joined)
        return cls(kinds, columns, schemas, marks)._with_typed(typed, rows)

    def _with_typed(self, typed: Sequence[TypedPart], rows: int) -> _SideColumns:
        """Adds columns of values without a schema; those of one type are one column."""
        alike: dict[pa.DataType, list[TypedPart]] = {}
        for part in typed:
            alike.setdefault(part.column.array.type, []).append(part)
        kinds, columns, marks = self.kinds, [*self.columns], [*self.marks]
        for kind, parts in alike.items():
            found = [(_chunked(one.column.array), one.rows) for one in parts]
            beside = [(_chunked(one.column.marks), one.rows) for one in parts]
            there = [positions[column.is_valid().to_numpy()] for column, positions in found]
            if not any(map(len, there)):
                continue
            for valid in there:
                kinds[valid] = len(columns)
            columns.append(_together(found, kind, rows))
            marks.append(_together(beside, beside[0][0].type, rows))
        return _SideColumns(kinds, columns, [*self.schemas, *[None] * (len(columns) - len(self.columns))], marks)


def _chunked(column: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


_Part: TypeAlias = "tuple[Schema | None, pa.DataType, list[tuple[pa.ChunkedArray, np.ndarray]]]"


def _joined(parts: Sequence[_Part]) -> list[_Part]:
    """Joins parts that one column can hold, each with the first ones that it fits."""
    clusters: list[tuple[Schema | None, list[_Part]]] = []
    for part in parts:
        for index, (schema, members) in enumerate(clusters):
            union = None if schema is None or part[0] is None else union_of(schema, part[0])
            if union is not None:
                clusters[index] = (union, [*members, part])
                break
        else:
            clusters.append((part[0], [part]))
    return [one for schema, members in clusters for one in _widened(schema, members)]


def _widened(schema: Schema | None, parts: list[_Part]) -> list[_Part]:
    """Converts parts to the columns of the schema that holds them all. A part that no usual column holds stays
    separate.

    Examples are a decimal of too many digits and a schemaless item: they have no common type with the others.
    """
    if schema is None or len(parts) == 1:
        return parts
    made: dict[pa.DataType, list[tuple[pa.ChunkedArray, np.ndarray]]] = {}
    left: list[_Part] = []
    for part in parts:
        try:
            fit = [(*fitted(column, schema, ""), positions) for column, positions in part[2]]
        except ConnectException:
            left.append(part)
            continue
        for column, physical, positions in fit:
            dated = with_dates(_chunked(column), schema, physical)
            made.setdefault(dated.type, []).append((dated, positions))
    return [*((schema, kind, found) for kind, found in made.items()), *left]


def _together(found: Sequence[tuple[pa.ChunkedArray, np.ndarray]], kind: pa.DataType, rows: int) -> _Placed:
    if len(found) == 1 and len(found[0][1]) == rows:
        return _Placed(found[0][0])
    place = np.full(rows, -1, dtype=np.int64)
    positions = np.concatenate([positions for _, positions in found])
    place[positions] = np.arange(len(positions))
    return _Placed(pa.chunked_array([chunk for column, _ in found for chunk in column.chunks], kind), place)


def _rows_of(outcome: GroupOutcome, rows: int) -> np.ndarray:
    return np.arange(rows) if outcome.rows is None else outcome.rows


def _placed(outcomes: Sequence[GroupOutcome], name: str, table: pa.Table) -> _Placed:
    """A column other than keys and values: as it was consumed, unless a step has changed it."""
    before, rows = table.column(name), table.num_rows
    changed = [outcome for outcome in outcomes if name in _CHANGED and name in outcome.columns]
    if not changed:
        return _Placed(before)
    found = [(outcome.columns[name], _rows_of(outcome, rows)) for outcome in changed]
    left = np.ones(rows, dtype=bool)
    for _, positions in found:
        left[positions] = False
    if left.any():
        others = np.flatnonzero(left)
        found.append((before.take(pa.array(others)), others))
    kind = found[0][0].type
    same = [(column if column.type == kind else column.cast(kind), positions) for column, positions in found]
    return _together(same, kind, rows)


def _by_kinds(kept: np.ndarray, kinds: Sequence[np.ndarray], table: pa.Table) -> np.ndarray:
    """Groups rows by the kinds of their keys and values, if each partition has rows of only one kind."""
    places = pa.table([table.column(name) for name in ORIGIN_COLUMNS[:2]], ["topic", "partition"]).take(pa.array(kept))
    topics = places.column("topic").combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    numbers = topics << 32 | places.column("partition").to_numpy()
    _, numbers = np.unique(numbers, return_inverse=True)
    group = np.zeros(len(kept), np.int64)
    for one in kinds:
        mine = one[kept]
        there = mine >= 0
        most = np.full(int(numbers.max()) + 1, -1, np.int64)
        np.maximum.at(most, numbers[there], mine[there])
        if (most[numbers[there]] != mine[there]).any():
            return kept
        group = group * (int(mine.max()) + 2) + most[numbers] + 1
    if (np.diff(group) == 0).all():
        return kept
    _, firsts, codes = np.unique(group, return_index=True, return_inverse=True)
    found: np.ndarray = kept[np.argsort(np.argsort(np.argsort(firsts))[codes], kind="stable")]
    return found


def topics_of(outcomes: Sequence[GroupOutcome], table: pa.Table) -> pa.ChunkedArray:
    """The topic of each row, after all steps."""
    rows: np.ndarray = np.arange(table.num_rows)
    return _placed(outcomes, "topic", table).at(rows) if len(rows) else table.column("topic")


def _filled(kinds: np.ndarray) -> np.ndarray:
    """The kinds of rows in order; a null has that of the previous row, the first ones that of the next other row."""
    there = kinds >= 0
    if there.all() or not there.any():
        return kinds
    last = np.maximum.accumulate(np.where(there, np.arange(len(kinds)), -1))
    return kinds[np.where(last < 0, np.argmax(there), last)]


def _null_where_variant_is(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A VARIANT that holds null as null, like every other value."""
    if not is_variant(column.type):
        return column
    chunks = []
    for chunk in column.chunks:
        null = pc.fill_null(pc.equal(pc.struct_field(chunk, [0]), NULL_VALUE), True)
        if pc.any(null).as_py():
            chunk = pa.StructArray.from_arrays(chunk.flatten(), fields=list(VARIANT_FIELDS), mask=null)
        chunks.append(chunk)
    return pa.chunked_array(chunks, column.type)


def _with_decimals(column: pa.ChunkedArray, schema: Schema | None, physical: Layout) -> tuple[pa.ChunkedArray, Layout]:
    """Decimals that a plan has as digits and scales as the same values of records are: decimals, if all of them fit."""
    if schema is None or not holds_unscaled(physical):
        return column, physical
    try:
        made, narrow = fitted(column, schema, "")
    except ConnectException:
        # A null of a required field, say, in a row that has failed.
        return column, physical
    return _chunked(made), narrow


def with_dates(column: pa.ChunkedArray, schema: Schema | None, physical: Layout) -> pa.ChunkedArray:
    """Raw numbers of the temporal types as real dates and times."""
    kind = _dated(column.type, schema, physical)
    return column if kind is None else column.cast(kind)


def _dated(kind: pa.DataType, schema: Schema | None, physical: Layout) -> pa.DataType | None:
    """The type with dates in it; None if there are none."""
    if schema is None or physical.form is LayoutKind.VARIANT:
        return None
    name = logical_name(schema)
    if name in _TEMPORAL:
        return _TEMPORAL[name]
    if schema.type is Type.ARRAY:
        inner = _dated(kind.value_type, schema.value_schema, physical.children[0])
        return None if inner is None else pa.list_(kind.value_field.with_type(inner))
    if physical.form is LayoutKind.MAP:
        inner = _dated(kind.item_type, schema.value_schema, physical.children[1])
        return None if inner is None else pa.map_(kind.key_field, kind.item_field.with_type(inner))
    if physical.form is LayoutKind.ENTRIES:
        pair = kind.value_type
        parts = ((schema.key_schema, physical.children[0]), (schema.value_schema, physical.children[1]))
        dated = _dated_fields(pair, parts)
        return None if dated is None else pa.list_(kind.value_field.with_type(dated))
    if physical.form is LayoutKind.STRUCT:
        return _dated_fields(kind, zip([one.schema for one in schema.fields], physical.children, strict=True))
    return None


def _dated_fields(kind: pa.StructType, parts: Iterable[tuple[Schema | None, Layout]]) -> pa.DataType | None:
    """The struct with dates in it; None if there are none."""
    inner = [_dated(field.type, schema, child) for field, (schema, child) in zip(kind, parts, strict=True)]
    if all(one is None for one in inner):
        return None
    pairs = zip(kind, inner, strict=True)
    return pa.struct([field if one is None else field.with_type(one) for field, one in pairs])


def records_of_rows(frame: SinkFrame, rows: np.ndarray) -> list[SinkRecord]:
    """Makes records of some rows of a frame, in any order, for reports: with the coordinates of their messages."""
    part = frame.take(rows)
    keys, values = (
        _values(part.table.column(name), schema, name, part._marks_of(name))
        for name, schema in (("key", frame.key_schema), ("value", frame.value_schema))
    )
    others = part.table.select(["topic", "partition", "offset", "timestamp", "timestamp_type", "headers"]).to_pylist()
    return [
        SinkRecord(
            other["topic"],
            other["partition"],
            other["offset"],
            value,
            value_schema=frame.value_schema,
            key=key,
            key_schema=frame.key_schema,
            timestamp=other["timestamp"],
            timestamp_type=TimestampType(other["timestamp_type"]),
            headers=headers_of_wire(other["headers"]),
            original_topic=origin["topic"],
            original_kafka_partition=origin["partition"],
            original_kafka_offset=origin["offset"],
        )
        for other, key, value, origin in zip(others, keys, values, part.origin.to_pylist(), strict=True)
    ]


def _values(
    column: pa.ChunkedArray, schema: Schema | None, name: str, marks: pa.ChunkedArray | None
) -> Sequence[object]:
    if schema is None:
        return objects(
            one_array(column), None if marks is None else one_array(marks), lambda part: from_arrow(part, None)
        )
    made, physical = fitted(column, schema, name)
    return from_arrow(made, schema, physical)


def changed_columns(
    live: Sequence[ConnectRecord], headers: Sequence[ConnectHeaders | None], table: pa.Table
) -> frozenset[str]:
    """Returns the columns of messages, besides keys and values, that transforms have changed."""
    now = {
        "topic": [one.topic for one in live],
        "partition": [one.kafka_partition for one in live],
        "timestamp": [one.timestamp for one in live],
    }
    changed = {name for name, values in now.items() if values != table.column(name).to_pylist()}
    if any((one.raw_headers or None) != (before or None) for one, before in zip(live, headers, strict=True)):
        changed.add("headers")
    return frozenset(changed)


def with_wire_headers(
    outcome: GroupOutcome, table: pa.Table, present: np.ndarray, writer: HeaderWriter, failures: Failures
) -> GroupOutcome:
    """Writes headers that a transform changed again as bytes, for frames."""
    if "headers" not in outcome.columns:
        return outcome
    seqs = np.arange(table.num_rows) if outcome.rows is None else outcome.rows
    headers = outcome.columns["headers"].combine_chunks()
    topics = outcome.columns["topic"] if "topic" in outcome.columns else table.column("topic").take(pa.array(seqs))
    kept = np.flatnonzero(present[seqs])
    pick = pa.array(kept)
    written = writer.write_column(headers.take(pick), topics.take(pick), seqs[kept], failures)
    place = np.full(len(seqs), -1, dtype=np.int64)
    place[kept] = np.arange(len(kept))
    wire = pa.chunked_array([written.take(pa.array(place, mask=place < 0))])
    return replace(outcome, columns={**outcome.columns, "headers": wire})
