"""Records of a batch that go to another process and come back: as lists of their attributes, or as columns.

Pickling single records costs as much as a transform does. Here one attribute of all records is pickled as a list,
structs of one schema as lists of their values, and a constant attribute once. Keys and values that a plan has made, or
that the next one takes, stay Arrow columns. Errors cross as class, message, causes and frames, Arrow tables as a
stream. A schema that many records of a batch share is sent once and is one object again.
"""

from __future__ import annotations

import builtins
import sys
import traceback
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from operator import attrgetter, is_
from types import FrameType, TracebackType
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

import penstock.errors
from penstock.api import ConnectRecord, SinkFrame, SinkRecord, SourceRecord
from penstock.data import Schema, Struct
from penstock.errors import ConnectException, RetriableException
from penstock.pipeline.batch.groups import RecordGroup
from penstock.pipeline.batch.headers import headers_of_column
from penstock.pipeline.columns.layout import bounded, unbounded
from penstock.pipeline.columns.records import from_arrow, table_bytes, table_of
from penstock.pipeline.plan.chain import GroupOutcome
from penstock.pipeline.plan.step import SIDES, Shape, Side

_MOST_CAUSES: Final = 20
_PLAIN: Final = (str, int, float, bool, bytes, type(None))


@dataclass(frozen=True)
class CrossedError:
    """An error, without its objects.

    Attributes:
        classes: Module and qualified name of its class and of that class's bases, in method resolution order.
        java_name: Kafka's name for it, if it has one.
        args: Its arguments, if all of them are plain values.
        frames: File, line and function of each frame of its trace.
        suppressed: True if the context is not shown.
        retry_after_s: The time before the call that raised it may be repeated, if it sets one.
    """

    classes: tuple[tuple[str, str], ...]
    java_name: str | None
    args: tuple[Any, ...] | None
    text: str
    frames: tuple[tuple[str, int, str], ...]
    notes: tuple[str, ...]
    cause: CrossedError | None
    context: CrossedError | None
    suppressed: bool
    retry_after_s: float | None = None


def described(error: BaseException, depth: int = _MOST_CAUSES) -> CrossedError:
    """Describes an error for another process. Its objects are left out: they may be an author's, and very large."""
    name = getattr(type(error), "java_name", None)
    args = error.args if all(type(arg) in _PLAIN for arg in error.args) else None
    return CrossedError(
        tuple((cls.__module__, cls.__qualname__) for cls in type(error).__mro__),
        name if isinstance(name, str) else None,
        args,
        _text(error),
        tuple(
            (frame.f_code.co_filename, line, frame.f_code.co_name)
            for frame, line in traceback.walk_tb(error.__traceback__)
        ),
        tuple(str(note) for note in getattr(error, "__notes__", ())),
        described(error.__cause__, depth - 1) if error.__cause__ is not None and depth else None,
        described(error.__context__, depth - 1) if error.__context__ is not None and depth else None,
        error.__suppress_context__,
        error.retry_after_s if isinstance(error, RetriableException) and "retry_after_s" in vars(error) else None,
    )


def rebuilt(crossed: CrossedError) -> BaseException:
    """Rebuilds an error of the other process: the same class if it is Python's or Penstock's, otherwise one of the same
    name that extends the nearest of these; message, causes, and a trace with the frames of the other process.
    """
    error = _instance(crossed)
    for note in crossed.notes:
        error.add_note(note)
    error.__cause__ = None if crossed.cause is None else rebuilt(crossed.cause)
    error.__context__ = None if crossed.context is None else rebuilt(crossed.context)
    error.__suppress_context__ = crossed.suppressed
    if isinstance(error, RetriableException):
        error.retry_after_s = crossed.retry_after_s
    return error.with_traceback(_trace(crossed.frames))


def crossing_frame(
    frame: SinkFrame,
) -> tuple[pa.Buffer, Schema | None, Schema | None, pa.Buffer | None, bool, pa.Buffer | None]:
    """A sink's frame without what belongs to its process, for ``frame_of``."""
    origin = frame.origin
    # Unchanged columns are sent once: usually no transform has changed a topic.
    same = all(name in frame.table.column_names for name in origin.column_names)
    same = same and origin.equals(frame.table.select(origin.column_names))
    crossed = None if same else table_bytes(origin)
    marks = None if frame._marks is None else table_bytes(frame._marks)
    return table_bytes(frame.table), frame.key_schema, frame.value_schema, crossed, frame.continued, marks


def frame_of(crossed: Sequence[Any]) -> SinkFrame:
    """The frame from the other process; it has no Spark session."""
    rows, key_schema, value_schema, origin, continued, marks = crossed
    read = None if origin is None else table_of(origin)
    beside = None if marks is None else table_of(marks)
    return SinkFrame(table_of(rows), key_schema, value_schema, origin=read, continued=continued, _marks=beside)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return f"(its message cannot be shown: {type(error).__name__}.__str__ raised)"


def _instance(crossed: CrossedError) -> BaseException:
    known = next((cls for place in crossed.classes if (cls := _known(place)) is not None), Exception)
    module, name = crossed.classes[0]
    if crossed.args is not None and _known(crossed.classes[0]) is known:
        try:
            error: BaseException = known(*crossed.args)
        except Exception:
            error = ConnectException(crossed.text)
        else:
            if _text(error) == crossed.text:
                return error
    attributes: dict[str, Any] = {"__module__": module, "__qualname__": name, "__str__": lambda self: crossed.text}
    if crossed.java_name is not None:
        attributes["java_name"] = crossed.java_name
    for base in (known, Exception):
        try:
            own: Any = type(name.rpartition(".")[2], (base,), attributes)
            made: BaseException = own.__new__(own, crossed.text)
        except TypeError:
            # A class whose instances need more arguments than a message, such as ExceptionGroup.
            continue
        return made
    return ConnectException(crossed.text)


def _known(place: tuple[str, str]) -> type[BaseException] | None:
    module, name = place
    if module not in ("builtins", penstock.errors.__name__):
        return None
    found = getattr(builtins if module == "builtins" else penstock.errors, name, None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def _trace(frames: Sequence[tuple[str, int, str]]) -> TracebackType | None:
    """A trace with these frames. They hold no variables; the lines' text is read from the files when it is shown."""
    trace: TracebackType | None = None
    for file, line, name in reversed(frames):
        trace = TracebackType(trace, _frame(file, name), -1, line)
    return trace


def _frame(file: str, name: str) -> FrameType:
    code = compile("frame = frames()", file, "exec").replace(co_name=name, co_qualname=name)
    scope: dict[str, Any] = {"frames": sys._getframe}
    exec(code, scope)
    frame: FrameType = scope.pop("frame")
    return frame


#: The attributes of records besides keys, values and their schemas, by kind.
_BESIDE: Final[Mapping[type[ConnectRecord], tuple[str, ...]]] = {
    kind: tuple(
        name
        for name in (*ConnectRecord.__slots__, *kind.__slots__)
        if name not in ("key", "key_schema", "value", "value_schema")
    )
    for kind in (SourceRecord, SinkRecord)
}
#: Sets an attribute of a record.
_SETTERS: Final[Mapping[type[ConnectRecord], Mapping[str, Callable[[ConnectRecord, object], None]]]] = {
    kind: {name: vars(owner)[name].__set__ for owner in (ConnectRecord, kind) for name in owner.__slots__}
    for kind in (SourceRecord, SinkRecord)
}
_SET_SCHEMA: Final = vars(Struct)["schema"].__set__
_SET_VALUES: Final = vars(Struct)["values"].__set__
#: The attribute of records for each other column of an outcome, and its reader. The schemas of headers have numbers in
#: a plan, which are valid only in this process.
_READERS: Final[Mapping[str, tuple[str, Callable[[Any], list[Any]]]]] = {
    "topic": ("topic", pa.ChunkedArray.to_pylist),
    "partition": ("kafka_partition", pa.ChunkedArray.to_pylist),
    "timestamp": ("timestamp", pa.ChunkedArray.to_pylist),
    "headers": ("raw_headers", headers_of_column),
}


@dataclass(frozen=True, slots=True)
class Same:
    """The same value for all records."""

    value: object

    def __getitem__(self, part: slice) -> Same:
        """Returns itself: a part has the same value."""
        return self


@dataclass(frozen=True, slots=True)
class Structs:
    """Structs of one schema by their values."""

    schema: Schema
    values: list[list[object]]

    def __getitem__(self, part: slice) -> Structs:
        """Some of them."""
        return Structs(self.schema, self.values[part])


Values: TypeAlias = Sequence[Any] | Same | Structs


@dataclass(frozen=True)
class ShippedRecords:
    """Some records of a batch.

    Attributes:
        beside: Their attributes besides keys and values; and keys, values and their schemas if these are no columns.
        shape: The known shape of the columns; None if there are none.
        columns: Keys and values as columns, unless they are absent.
    """

    kind: type[ConnectRecord]
    rows: np.ndarray
    beside: Mapping[str, Values]
    shape: Shape | None = None
    columns: Mapping[str, pa.Array | pa.ChunkedArray] = ()  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self.rows)

    def __getstate__(self) -> tuple[object, ...]:
        columns = pa.table(dict(self.columns)) if self.columns else None
        sent = None if columns is None else table_bytes(columns)
        return self.kind, self.rows, self.beside, self.shape, sent

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        kind, rows, beside, shape, sent = state
        table = None if sent is None else table_of(sent)
        columns = {} if table is None else dict(zip(table.column_names, table.columns, strict=True))
        named = {"kind": kind, "rows": rows, "beside": beside, "shape": shape, "columns": columns}
        for name, value in named.items():
            object.__setattr__(self, name, value)

    def slice(self, start: int, stop: int) -> ShippedRecords:
        """Some of them, in order."""
        part = slice(start, stop)
        return replace(
            self,
            rows=self.rows[part],
            beside={name: values[part] for name, values in self.beside.items()},
            columns={name: column.slice(start, stop - start) for name, column in dict(self.columns).items()},
        )

    def attribute(self, name: str) -> Sequence[Any]:
        """Returns the values of an attribute that is not a key or value, one for each record."""
        values = self.beside[name]
        return _listed(values, len(self))

    def records(self) -> list[ConnectRecord]:
        """Makes the records. They are not shared yet."""
        rows = len(self)
        new = self.kind.__new__
        made: list[ConnectRecord] = [new(self.kind) for _ in repeat(None, rows)]
        given = dict(self.beside)
        if self.shape is not None:
            for name in SIDES:
                side = self.shape.side(name)
                given[f"{name}_schema"] = Same(side.schema)
                given[str(name)] = _side_values(side, self.columns.get(name))
        for attribute, values in given.items():
            _spread(_SETTERS[self.kind][attribute], made, _each(values))
        return made


def _each(values: Values) -> Iterator[Any]:
    if isinstance(values, Same):
        return repeat(values.value)
    if isinstance(values, Structs):
        made = [Struct.__new__(Struct) for _ in repeat(None, len(values.values))]
        _spread(_SET_SCHEMA, made, repeat(values.schema))
        _spread(_SET_VALUES, made, values.values)
        return iter(made)
    return iter(values)


def _spread(set_one: Callable[[Any, Any], None], made: Sequence[object], values: Any) -> None:
    """Sets an attribute of each record, without interpreter code for each."""
    deque(map(set_one, made, values), maxlen=0)


def _side_values(side: Side, column: pa.Array | pa.ChunkedArray | None) -> Values:
    if side.absent or column is None:
        return Same(None)
    return from_arrow(column, side.carrier if side.schema is None else side.schema, side.physical)


# ------------------------------------------------------------------------------------------------------------- packing
def packed(values: list[Any]) -> Values:
    """Packs values: constant ones once, and structs of one schema as their values."""
    if all(map(is_, values, repeat(values[0]))):
        return Same(values[0])
    if set(map(type, values)) == {Struct}:
        schema = values[0].schema
        if all(map(is_, map(attrgetter("schema"), values), repeat(schema))):
            return Structs(schema, list(map(attrgetter("values"), values)))
    return values


def beside_of(records: Sequence[ConnectRecord]) -> dict[str, Values]:
    """Returns the attributes that records have besides keys and values."""
    return {name: packed(list(map(attrgetter(name), records))) for name in _BESIDE[type(records[0])]}


def can_be_part(records: Sequence[ConnectRecord]) -> bool:
    """True if there are records, all of one class that is not a user's own."""
    kinds = set(map(type, records))
    return len(kinds) == 1 and kinds <= _BESIDE.keys()


def part_of_records(records: Sequence[ConnectRecord], rows: Sequence[int]) -> ShippedRecords:
    """Makes a part of records, as lists."""
    kind = type(records[0])
    sides = {
        name: packed(list(map(attrgetter(name), records))) for name in ("key", "key_schema", "value", "value_schema")
    }
    return ShippedRecords(kind, np.asarray(rows, dtype=np.int64), {**beside_of(records), **sides})


def parts_of_outcomes(
    kind: type[ConnectRecord],
    outcomes: Sequence[GroupOutcome],
    rows: int,
    beside: Mapping[str, Values],
    gone: np.ndarray,
) -> list[ShippedRecords]:
    """Returns the results of a plan as columns, without failed and dropped records.

    Args:
        beside: The attributes of its records besides keys and values, for each row of the batch.
        gone: True for the rows of the batch that have failed.
    """
    return [_part_of_outcome(kind, one, rows, beside, gone) for one in outcomes]


def _part_of_outcome(
    kind: type[ConnectRecord], outcome: GroupOutcome, rows: int, beside: Mapping[str, Values], gone: np.ndarray
) -> ShippedRecords:
    places = np.arange(rows) if outcome.rows is None else outcome.rows
    kept = ~gone[places]
    if outcome.dropped is not None:
        kept &= ~outcome.dropped.fill_null(False).to_numpy().astype(bool)
    columns: dict[str, pa.ChunkedArray] = {name: outcome.columns[name] for name in SIDES if name in outcome.columns}
    changed = {name: outcome.columns[name] for name in _READERS if name in outcome.columns}
    if not kept.all():
        pick = pa.array(np.flatnonzero(kept))
        columns = {name: column.take(pick) for name, column in columns.items()}
        changed = {name: column.take(pick) for name, column in changed.items()}
        places = places[kept]
    mine = dict(beside) if len(places) == rows and outcome.rows is None else _picked(beside, places)
    for name, column in changed.items():
        attribute, read = _READERS[name]
        mine[attribute] = read(column)
    return ShippedRecords(kind, places, mine, outcome.shape, columns)


def part_of_group(records: Sequence[ConnectRecord], rows: np.ndarray, group: RecordGroup) -> ShippedRecords:
    """Records of one shape, as columns."""
    return ShippedRecords(type(records[0]), rows, beside_of(records), group.shape, group.columns)


def by_row(beside: Mapping[str, Values], positions: Sequence[int], rows: int) -> dict[str, Values]:
    """Spreads the attributes of some records over a batch, with None for its other rows."""
    found: dict[str, Values] = {}
    for name, values in beside.items():
        if isinstance(values, Same):
            found[name] = values
            continue
        column: list[object] = [None] * rows
        for row, value in zip(positions, _each(values), strict=True):
            column[row] = value
        found[name] = column
    return found


def with_parts(
    records: Sequence[ConnectRecord], rows: Sequence[int], parts: Sequence[ShippedRecords]
) -> tuple[Callable[[str], Sequence[Any]], list[int]]:
    """Returns a function that gives an attribute of records and parts, and the row of each."""

    def attribute(name: str) -> list[Any]:
        found = [getattr(record, name, None) for record in records]
        for part in parts:
            found += part.attribute(name) if name in part.beside else [None] * len(part)
        return found

    positions = list(rows)
    for part in parts:
        positions += part.rows.tolist()
    return attribute, positions


def _picked(beside: Mapping[str, Values], places: np.ndarray) -> dict[str, Values]:
    chosen = places.tolist()
    found: dict[str, Values] = {}
    for name, values in beside.items():
        listed = values if isinstance(values, Same) else list(_each(values))
        found[name] = listed if isinstance(listed, Same) else [listed[place] for place in chosen]
    return found


# ------------------------------------------------------------------------------------------------------------- joining
def joined(parts: Sequence[ShippedRecords]) -> list[ShippedRecords]:
    """Joins parts of columns that have the same layout: another shape would be another plan.

    Known properties of text and of nulls hold for a whole part, so they are determined again.
    """
    alike: dict[Hashable, list[ShippedRecords]] = {}
    for part in parts:
        assert part.shape is not None
        bare = part.shape.without_bounds(SIDES)
        sides = tuple(replace(bare.side(name), present=False) for name in SIDES)
        types = tuple((name, column.type) for name, column in sorted(part.columns.items()))
        alike.setdefault((part.kind, sides, types), []).append(part)
    return [found[0] if len(found) == 1 else _one_of(found) for found in alike.values()]


def _one_of(parts: Sequence[ShippedRecords]) -> ShippedRecords:
    first = parts[0]
    assert first.shape is not None
    columns = {
        name: pa.chunked_array([chunk for part in parts for chunk in _chunks(part.columns[name])])
        for name in first.columns
    }
    beside = {name: _concatenated([part.beside[name] for part in parts], parts) for name in first.beside}
    rows = np.concatenate([part.rows for part in parts])
    return ShippedRecords(first.kind, rows, beside, _shape_of(parts, first.shape, columns), columns)


def _shape_of(parts: Sequence[ShippedRecords], shape: Shape, columns: Mapping[str, pa.ChunkedArray]) -> Shape:
    if all(part.shape == shape for part in parts):
        return shape
    for name in SIDES:
        if name in columns:
            known = [part.shape.side(name) for part in parts if part.shape is not None]
            side = replace(
                known[0],
                physical=bounded(unbounded(known[0].physical), columns[name]),
                present=all(one.present for one in known),
                complete=all(one.complete for one in known),
            )
            shape = shape.with_side(name, side)
    return shape


def _chunks(column: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def _concatenated(values: Sequence[Values], parts: Sequence[ShippedRecords]) -> Values:
    if all(isinstance(one, Same) for one in values):
        first = values[0]
        assert isinstance(first, Same)
        others = [one.value for one in values if isinstance(one, Same)]
        if all(type(one) is type(first.value) and one == first.value for one in others):
            return first
    return [value for one, part in zip(values, parts, strict=True) for value in _listed(one, len(part))]


def _listed(values: Values, count: int) -> Sequence[Any]:
    return [values.value] * count if isinstance(values, Same) else list(_each(values))
