"""Values without a schema as typed columns: objects become a struct of all their known fields.

A column starts from its Arrow type in the previous batch, so it keeps its fields in order and only widens: a new field
adds a column, null fits every type, whole numbers become doubles after the first fraction, and marks record the whole
ones. Values at one position without a common type (texts and numbers, or numbers that do not all fit doubles) are
VARIANT in that position and batch. Marks also record missing fields (``penstock.api.frames.fields``).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Any, Final, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.api.arrow import is_variant
from penstock.api.frames.fields import ABSENT, WHOLE, is_object, marks_type
from penstock.errors import DataException
from penstock.pipeline.columns.layout import VARIANT_ARROW, VARIANT_FIELDS
from penstock.pipeline.columns.sizes import value_too_deep
from penstock.pipeline.columns.variant import NO_KEYS, NULL_VALUE, encode

#: The largest number of distinct fields of a column's objects in a batch; with more they are maps in which each key
#: differs.
MAX_FIELDS: Final = 256
#: The deepest level of columns; deeper values are VARIANT, because each level costs every reader of the schema.
MAX_DEPTH: Final = 12
_MAX_TOPICS: Final = 1_000
_NONE: Final = type(None)
_NULL: Final = pa.null()
_DOUBLE: Final = pa.float64()


class _Missing:
    """Stands for the field that an object has not."""


_MISSING: Final = _Missing()
_EMPTY: Final[dict[str, object]] = {}
_SCALARS: Final[dict[type, pa.DataType]] = {
    str: pa.string(),
    int: pa.int64(),
    float: _DOUBLE,
    bool: pa.bool_(),
    bytes: pa.binary(),
}
#: The errors of Arrow for a value that its type does not hold: half of a surrogate pair, an integer of too many digits.
_MISFITS: Final = (pa.ArrowException, UnicodeEncodeError, OverflowError)


@dataclass
class SchemalessColumn:
    """Values as a column.

    Attributes:
        marks: What the column cannot say of them; in as many chunks.
    """

    array: pa.Array | pa.ChunkedArray
    marks: pa.Array | pa.ChunkedArray


@dataclass
class _Batch:
    """The findings about the values of one batch.

    Attributes:
        errors: Of values that are nothing Connect knows, by their row.
        odd: Rows in which something is of another kind than in most: it is null in the columns; None: it is VARIANT.
    """

    errors: dict[int, Exception] = field(default_factory=dict)
    odd: set[int] | None = None


class KnownTypes:
    """The types of the columns of each topic, as the last batch left them. Thread: a task's pipeline thread."""

    def __init__(self) -> None:
        self._types: OrderedDict[Hashable, pa.DataType] = OrderedDict()

    def column_of(self, of: Hashable, values: Sequence[object]) -> tuple[SchemalessColumn, dict[int, Exception]]:
        """The column of the next values of ``of``: the keys or values of a topic; see ``column_of``."""
        before = self._types.pop(of, _NULL)
        made, errors = column_of(values, before)
        self._keep(of, made, before)
        return made, errors

    def column_of_objects(self, of: Hashable, objects: pa.ChunkedArray) -> SchemalessColumn:
        """The same of values that are structs already; see ``column_of_objects``."""
        before = self._types.pop(of, _NULL)
        made = column_of_objects(objects, before)
        self._keep(of, made, before)
        return made

    def _keep(self, of: Hashable, made: SchemalessColumn, before: pa.DataType) -> None:
        if len(self._types) >= _MAX_TOPICS:
            self._types.popitem(last=False)
        self._types[of] = _remembered(made.array.type, before)


def column_of(values: Sequence[object], before: pa.DataType = _NULL) -> tuple[SchemalessColumn, dict[int, Exception]]:
    """The column of some values, as JSON has them or a transform may have made of them, and the errors by position.

    Values that are nothing Connect knows are null in it. ``before`` is the type of the column of the values before.
    """
    batch = _Batch()
    made = _column(batch, list(values), None, before, 0)
    return made, batch.errors


def column_of_objects(objects: pa.ChunkedArray, before: pa.DataType = _NULL) -> SchemalessColumn:
    """The column that ``column_of`` makes of the same values as Python's, without these.

    The objects are structs of texts, whole numbers, doubles, booleans and such structs; not all of them null, and what
    is in one that is not null is null only where it is no struct.
    """
    chunks = [chunk for chunk in objects.chunks if len(chunk)]
    gone = [chunk.is_null().to_numpy(zero_copy_only=False) if objects.null_count else None for chunk in chunks]
    made = _structs(chunks, gone, before, 0)
    if made is None:
        return column_of(objects.to_pylist(), before)[0]
    return SchemalessColumn(
        pa.chunked_array([one.array for one in made]), pa.chunked_array([one.marks for one in made])
    )


_Gone: TypeAlias = "Sequence[np.ndarray | None]"


def _structs(
    chunks: Sequence[pa.StructArray], gone: _Gone, before: pa.DataType, depth: int
) -> list[SchemalessColumn] | None:
    """The result of ``_objects`` for each chunk; None: only Python's values become such columns. ``gone``: None: all
    are there.
    """
    kind = chunks[0].type
    known = {one.name: one.type for one in before} if is_object(before) else {}
    everything = [*known, *(name for name in kind.names if name not in known)]
    if len(everything) > MAX_FIELDS or depth >= MAX_DEPTH:
        return None
    members: list[list[SchemalessColumn]] = []
    for name in everything:
        found = _members(chunks, kind.get_field_index(name), gone, known.get(name, _NULL), depth + 1)
        if found is None:
            return None
        members.append(found)
    made: list[SchemalessColumn] = []
    for index, no_object in enumerate(gone):
        columns = [one[index] for one in members]
        made.append(_struct_of(everything, columns, None if no_object is None else pa.array(no_object)))
    return made


def _members(
    chunks: Sequence[pa.StructArray], index: int, gone: _Gone, before: pa.DataType, depth: int
) -> list[SchemalessColumn] | None:
    """The result of ``_field`` for each chunk; a negative index: no object has the field."""
    if index < 0:
        return [_column(_Batch(), [_MISSING] * len(chunk), None, before, depth) for chunk in chunks]
    parts = [pc.struct_field(chunk, [index]) for chunk in chunks]
    made = _structs(parts, gone, before, depth) if is_object(parts[0].type) else _simple(parts, before)
    if made is None:
        return None
    pairs = zip(made, gone, strict=True)
    return [one if no_object is None else _with_absent(one, no_object) for one, no_object in pairs]


def _simple(parts: Sequence[pa.Array], before: pa.DataType) -> list[SchemalessColumn] | None:
    """The result of ``_scalars`` for each part, or of ``_column`` if all are null."""
    if all(part.null_count == len(part) for part in parts):
        return [
            SchemalessColumn(pa.nulls(len(part), before), pa.nulls(len(part), marks_type(before))) for part in parts
        ]
    if not pa.types.is_int64(parts[0].type) or not before.equals(_DOUBLE):
        return [SchemalessColumn(part, pa.nulls(len(part), pa.uint8())) for part in parts]
    try:
        doubles = [part.cast(_DOUBLE) for part in parts]
    except pa.ArrowInvalid:
        return None
    marks = [pa.array(part.is_valid().to_numpy(zero_copy_only=False) * np.uint8(WHOLE)) for part in parts]
    return [SchemalessColumn(array, whole) for array, whole in zip(doubles, marks, strict=True)]


@dataclass(frozen=True)
class FieldColumns:
    """Columns of some fields of objects, each of the kind that most of its values are.

    Attributes:
        mixed: Those fields in which whole numbers are among doubles.
        odd: The rows in which a field, or something in one, is of another kind.
    """

    columns: Mapping[str, pa.Array]
    mixed: frozenset[str]
    odd: Set[int]


def field_columns(values: Sequence[dict[str, object]], names: Iterable[str]) -> FieldColumns:
    """Columns of some fields of objects."""
    batch = _Batch(odd=set())
    made = {name: _field(batch, values, name, None, _NULL, 0) for name in names}
    assert batch.odd is not None
    mixed = frozenset(name for name, one in made.items() if _has_whole(one.marks))
    return FieldColumns({name: one.array for name, one in made.items()}, mixed, batch.odd | batch.errors.keys())


def _has_whole(marks: pa.Array) -> bool:
    if pa.types.is_list(marks.type):
        return _has_whole(marks.flatten())
    if pa.types.is_struct(marks.type):
        return any(map(_has_whole, marks.flatten()))
    found = pc.any(pc.equal(marks, WHOLE)) if marks.null_count < len(marks) else pa.scalar(False)
    return bool(found.as_py())


def _remembered(kind: pa.DataType, before: pa.DataType) -> pa.DataType:
    """A type as the next batch begins with it: what was VARIANT here may be another time what it was before."""
    if is_variant(kind):
        return before
    if pa.types.is_list(kind):
        inner = before.value_type if pa.types.is_list(before) else _NULL
        return pa.list_(kind.value_field.with_type(_remembered(kind.value_type, inner)))
    if not pa.types.is_struct(kind):
        return kind
    known = {one.name: one.type for one in before} if is_object(before) else {}
    return pa.struct([one.with_type(_remembered(one.type, known.get(one.name, _NULL))) for one in kind])


def _column(
    batch: _Batch, values: Sequence[Any], owners: np.ndarray | None, before: pa.DataType, depth: int
) -> SchemalessColumn:
    """The column of what stands at one place: values, and ``_MISSING``. ``owners``: the row of each; None: row i is
    value i.
    """
    kinds = set(map(type, values))
    absent = _Missing in kinds
    if batch.odd is not None and len(kinds) > 1 and len({_kind_of(one) for one in kinds} - {None}) > 1:
        values = _without_odd(batch.odd, values, owners)
        kinds = set(map(type, values))
    all_there = len(kinds) == 1
    kinds -= {_NONE, _Missing}
    made: SchemalessColumn | None = None
    if not kinds:
        array = pa.nulls(len(values), before)
        made = SchemalessColumn(array, pa.nulls(len(values), marks_type(before)))
    elif kinds == {dict} and depth < MAX_DEPTH:
        made = _objects(batch, values, owners, before, depth, all_there=all_there)
    elif kinds == {list} and depth < MAX_DEPTH:
        made = _lists(batch, values, owners, before, depth, all_there=all_there)
    elif len(kinds) == 1 or kinds == {int, float}:
        made = _scalars(values, kinds, before, absent=absent)
    if made is None:
        made = _variants(batch, values, owners)
    if not absent:
        return made
    return _with_absent(made, np.fromiter((one is _MISSING for one in values), np.bool_, len(values)))


def _kind_of(kind: type) -> type | None:
    """The kind of values of a class; None: they fit every kind."""
    if kind in (_NONE, _Missing):
        return None
    return float if kind is int else kind


def _without_odd(odd: set[int], values: Sequence[Any], owners: np.ndarray | None) -> Sequence[Any]:
    """Replaces values that are not of the most frequent kind by null; notes their rows."""
    counts = Counter(map(_kind_of, map(type, values)))
    counts.pop(None, None)
    most = counts.most_common(1)[0][0]
    found = list(values)
    for place, value in enumerate(values):
        if _kind_of(type(value)) not in (None, most):
            odd.add(place if owners is None else int(owners[place]))
            found[place] = None
    return found


def _with_absent(made: SchemalessColumn, absent: np.ndarray) -> SchemalessColumn:
    marks = absent * np.uint8(ABSENT)
    own = pa.array(marks)
    kind = made.marks.type
    if not pa.types.is_struct(kind):
        whole = made.marks
        return SchemalessColumn(
            made.array,
            own if whole.null_count == len(whole) else pa.array(np.maximum(marks, whole.fill_null(0).to_numpy())),
        )
    inside = made.marks.field(1)
    return SchemalessColumn(made.array, pa.StructArray.from_arrays([own, inside], fields=list(kind)))


def _scalars(values: Sequence[Any], kinds: set[type], before: pa.DataType, *, absent: bool) -> SchemalessColumn | None:
    """Texts, numbers and the like; None: no column holds them."""
    plain = [None if one is _MISSING else one for one in values] if absent else values
    if kinds == {int} and not before.equals(_DOUBLE):
        wanted = pa.int64()
    else:
        wanted = _DOUBLE if int in kinds else _SCALARS.get(next(iter(kinds)))
    if wanted is None:
        return None
    try:
        array = pa.array(plain, wanted)
    except _MISFITS:
        # Among doubles there was no room for a large integer; by themselves whole numbers stay integers.
        return _scalars(values, kinds, _NULL, absent=absent) if kinds == {int} and wanted is _DOUBLE else None
    if not isinstance(array, pa.Array):
        return None
    marks = pa.nulls(len(values), pa.uint8())
    if int in kinds and wanted is _DOUBLE:
        marks = pa.array(np.fromiter((WHOLE if type(one) is int else 0 for one in values), np.uint8, len(values)))
    return SchemalessColumn(array, marks)


def _names(values: Sequence[Any]) -> list[str] | None:
    """The names of the fields of objects, in the order in which they come; None: they are none of a struct."""
    shapes = dict.fromkeys(map(tuple, values))
    names: dict[object, None] = {}
    for shape in shapes:
        names.update(dict.fromkeys(shape))
        if len(names) > MAX_FIELDS:
            return None
    if set(map(type, names)) - {str}:
        return None
    found = cast("list[str]", list(names))
    try:
        "".join(found).encode()
    except UnicodeEncodeError:
        return None
    return found


def _objects(
    batch: _Batch,
    values: Sequence[Any],
    owners: np.ndarray | None,
    before: pa.DataType,
    depth: int,
    *,
    all_there: bool,
) -> SchemalessColumn | None:
    """Objects; None: they have no fields, or too many, or names that are no texts."""
    given = values if all_there else [one if type(one) is dict else _EMPTY for one in values]
    names = _names(given)
    if names is None:
        return None
    known = {one.name: one.type for one in before} if is_object(before) else {}
    everything = [*known, *(name for name in names if name not in known)]
    if len(everything) > MAX_FIELDS:
        everything = names
    if not everything:
        return None
    columns = [_field(batch, given, name, owners, known.get(name, _NULL), depth) for name in everything]
    return _struct_of(everything, columns, None if all_there else _mask(values, dict))


def _struct_of(names: Sequence[str], columns: Sequence[SchemalessColumn], mask: pa.Array | None) -> SchemalessColumn:
    fields = [pa.field(name, one.array.type) for name, one in zip(names, columns, strict=True)]
    array = pa.StructArray.from_arrays([one.array for one in columns], fields=fields, mask=mask)
    inside = pa.StructArray.from_arrays([one.marks for one in columns], names=names)
    return SchemalessColumn(array, _nested(inside, len(array), array.type))


def _field(
    batch: _Batch, values: Sequence[Any], name: str, owners: np.ndarray | None, before: pa.DataType, depth: int
) -> SchemalessColumn:
    try:
        found: list[object] = list(map(itemgetter(name), values))
    except KeyError:
        found = [one.get(name, _MISSING) for one in values]
    return _column(batch, found, owners, before, depth + 1)


def _nested(inside: pa.Array, rows: int, kind: pa.DataType) -> pa.Array:
    return pa.StructArray.from_arrays([pa.nulls(rows, pa.uint8()), inside], fields=list(marks_type(kind)))


def _mask(values: Sequence[Any], kind: type) -> pa.Array:
    return pa.array(np.fromiter((type(one) is not kind for one in values), np.bool_, len(values)))


def _lists(
    batch: _Batch,
    values: Sequence[Any],
    owners: np.ndarray | None,
    before: pa.DataType,
    depth: int,
    *,
    all_there: bool,
) -> SchemalessColumn:
    given = values if all_there else [one if type(one) is list else () for one in values]
    counts = np.fromiter(map(len, given), np.int64, len(given))
    rows = np.arange(len(values)) if owners is None else owners
    inner = before.value_type if pa.types.is_list(before) else _NULL
    items = _column(batch, list(chain.from_iterable(given)), np.repeat(rows, counts), inner, depth + 1)
    offsets = pa.array(np.append(0, np.cumsum(counts)), pa.int32())
    kind = pa.list_(pa.field("element", items.array.type))
    mask = None if all_there else _mask(values, list)
    array = pa.ListArray.from_arrays(offsets, items.array, type=kind, mask=mask)
    marks = pa.ListArray.from_arrays(offsets, items.marks, type=marks_type(kind).field("items").type)
    return SchemalessColumn(array, _nested(marks, len(values), kind))


def _variants(batch: _Batch, values: Sequence[Any], owners: np.ndarray | None) -> SchemalessColumn:
    """Values of any kind; what is nothing Connect knows is null, and an error of its row."""
    pairs: list[tuple[bytes, bytes]] = []
    nulls = np.zeros(len(values), np.bool_)
    for place, value in enumerate(values):
        pair = (NULL_VALUE, NO_KEYS)
        if value is None or value is _MISSING:
            nulls[place] = True
        else:
            try:
                pair = encode(value)
            except Exception as error:
                nulls[place] = True
                batch.errors.setdefault(place if owners is None else int(owners[place]), _told(error))
        pairs.append(pair)
    data, names = (pa.array(part, pa.binary()) for part in zip(*pairs, strict=True))
    array = pa.StructArray.from_arrays(
        [data, names], fields=list(VARIANT_FIELDS), mask=pa.array(nulls) if nulls.any() else None
    )
    assert array.type == VARIANT_ARROW
    return SchemalessColumn(array, pa.nulls(len(values), pa.uint8()))


def _told(error: Exception) -> Exception:
    if isinstance(error, DataException):
        return error
    if isinstance(error, RecursionError):
        return value_too_deep()
    wrapped = DataException(f"Cannot take a schemaless value into the pipeline: {error}")
    wrapped.__cause__ = error
    return wrapped
