"""Reads many JSON messages without a schema: as typed columns, as Java's texts, or as Python values.

A few messages of a large batch show which members to expect. Messages that match a pattern of these members are read as
structs: before Spark (``structs``), or by one ``from_json`` if Spark must not be bypassed. The others may match another
pattern; the rest is read record by record. Small batches use the patterns of earlier large ones. Sinks that write text
get the texts of these columns from Arrow, and of other messages kind by kind in Python.

For Python values, a pattern over the whole column finds the messages that the parser in C may read differently than
Java; ``values`` reads these, and those that the parser rejects, one by one.

Thread: one pipeline thread; the functions: any.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from penstock.converters.json.byte_columns import ShortcutMemory
from penstock.converters.json.structs import BOOLEAN, PLAIN_NAME, REAL, STRING, ObjectTexts, ReadTexts, bound_of, whole
from penstock.data import Type
from penstock.pipeline.columns.java_text import java_texts, text_of
from penstock.pipeline.columns.layout import TextBound, arrow_type, spark_type, with_bound
from penstock.pipeline.columns.sizes import bytes_of, offsets_of
from penstock.pipeline.plan import map_structs as objects
from penstock.pipeline.plan.map_structs import ValueDescription, as_struct, object_member, object_side
from penstock.pipeline.plan.step import (
    NOTHING,
    Made,
    NameColumn,
    ReadAtOnce,
    RecordColumns,
    Shape,
    Side,
    SideName,
    Sorted,
    Step,
    StepPlan,
    TextsAtOnce,
)

#: A number that the parser may read differently than Java: minus zero, a number with an exponent, or one with more
#: digits than fit in 64 bits. A match inside a text only costs time.
_INEXACT: Final = r"(?:\A|[:,\[ \t\r\n])(?:-0|-?[0-9]{19}|-?[0-9]+(?:\.[0-9]+)?[eE])"
_MANY_DIGITS: Final = 19
_ZERO: Final = np.uint8(ord("0"))
#: The bytes that are searched together, so that all marks stay in the processor's cache.
_LOOKED_AT: Final = 64 * 1024
#: The pattern searches all messages if more than one in this many may match it.
_FEW: Final = 4
#: The messages that are copied and parsed together.
_AT_A_TIME: Final = 256


def read_schemaless_column(column: pa.ChunkedArray, others: Sequence[int] = ()) -> tuple[list[object], list[int]]:
    """The values of many messages, the same as ``read_schemaless`` returns; None for null.

    Args:
        column: The messages.
        others: The positions of messages that are not read in any case.

    Returns:
        The values, and the ascending positions of messages that ``read_schemaless`` has to read.
    """
    rows = len(column)
    if column.null_count == rows:
        return [None] * rows, []
    odd = sorted({*others, *_inexact_rows(column)})
    hidden = column.is_null().to_numpy() if column.null_count else np.zeros(rows, dtype=bool)
    hidden[odd] = True
    values: list[object] = []
    # One function call for each message would take as long as the parser.
    keep, parse = values.append, orjson.loads
    # Messages of 1 KB leave the processor's cache before the parser comes to them if all are copied at once.
    for start in range(0, rows, _AT_A_TIME):
        messages = column.slice(start, _AT_A_TIME).to_pylist()
        for place in np.flatnonzero(hidden[start : start + _AT_A_TIME]).tolist():
            messages[place] = b"null"
        for message in messages:
            try:
                keep(parse(message))
            except orjson.JSONDecodeError:
                odd.append(len(values))
                keep(None)
    return values, sorted(odd)


def _inexact_rows(column: pa.ChunkedArray) -> list[int]:
    """The rows that match ``_INEXACT``. Only rows in which a number may be such a one are searched."""
    found: list[int] = []
    start = 0
    for chunk in column.chunks:
        data = bytes_of(chunk)
        if len(data):
            offsets = offsets_of(chunk)
            rows = np.unique(np.searchsorted(offsets - offsets[0], _inexact_places(data), side="right") - 1)
            if len(rows):
                some = chunk if len(rows) * _FEW > len(chunk) else chunk.take(pa.array(rows))
                hits = pc.match_substring_regex(some, _INEXACT).fill_null(False).to_numpy(zero_copy_only=False)
                found += (start + (np.flatnonzero(hits) if some is chunk else rows[hits])).tolist()
        start += len(chunk)
    return found


def _inexact_places(data: np.ndarray) -> np.ndarray:
    """Positions of numbers that may be inexact: a digit before an ``e``, a minus before a zero, and many digits."""
    found: list[np.ndarray] = [np.empty(0, np.int64)]
    for first in range(0, len(data), _LOOKED_AT):
        block = data[first : first + _LOOKED_AT + _MANY_DIGITS]
        digits = (block - _ZERO) < 10
        marks = digits[:-1] & ((block[1:] | 0x20) == ord("e"))
        marks |= (block[:-1] == ord("-")) & (block[1:] == _ZERO)
        found.append(first + np.flatnonzero(marks))
        # 19 digits in a row hold six that are three apart.
        some = digits[::3]
        two = some[:-1] & some[1:]
        four = two[:-2] & two[2:]
        found.append(first + 3 * np.flatnonzero(four[:-2] & two[4:]))
    return np.concatenate(found)


_PATTERNS: Final[Mapping[Type, str]] = {
    Type.STRING: STRING,
    Type.INT64: whole(18),
    Type.FLOAT64: REAL,
    Type.BOOLEAN: BOOLEAN,
}
#: The type of a member with only nulls: a null is the same in every column.
_NULLS: Final = ("null", ValueDescription.of(Type.INT64))
#: The number of sampled messages of a batch.
_SAMPLE: Final = 8
_GOLDEN_SECTION: Final = (5**0.5 - 1) / 2
#: The most kinds of objects that are distinguished in one batch.
_MAX_TOGETHER: Final = 4
#: After this many kinds no more are searched for, because each has its own plans.
_MAX_KINDS: Final = 16
#: A plan is only worthwhile for a kind with more than one in this many messages.
_WORTH: Final = 8


def as_read(objects_side: Side) -> Side:
    """The side of objects as ``ReadObjects`` receives it: a struct that does not count as objects yet."""
    return replace(objects_side, physical=as_struct(objects_side.physical))


@dataclass(frozen=True)
class ReadObjects(Step):
    """Reads keys or values of messages that are known to be such objects."""

    side: SideName
    known: Side

    def plan(self, shape: Shape) -> StepPlan:
        """See ``Step``. Uses the structs that Arrow has read, or else reads the messages with one ``from_json``."""
        if shape.side(self.side).absent:
            return StepPlan(shape.with_side(self.side, NOTHING))
        known = self.known
        if shape.side(self.side) == as_read(known):
            return StepPlan(shape.with_side(self.side, known))
        kind = spark_type(known.carrier, known.physical).simpleString()
        names = frozenset({self.side})

        def make(record: RecordColumns, keep: NameColumn) -> Made:
            return Made({self.side: keep(F.from_json(record.side(self.side).cast("string"), kind))})

        return StepPlan(shape.with_side(self.side, known), make, names, names)


class AlikeObjects:
    """Groups messages by their kind of object; remembers the kinds of large batches."""

    def __init__(self) -> None:
        self._layouts: dict[_Kinds, _Layout] = {}
        self._tries = ShortcutMemory(1)

    def sort(self, column: pa.ChunkedArray, *, read: bool) -> Sorted:
        """Groups messages, and with ``read`` reads them: a hint for each kind of object, None for the others."""
        few = len(column) < objects.MIN_ROWS
        if not (self._layouts if few else self._tries.worth(None)):
            return Sorted(hints=(None,))
        found = self._find(column, few=few, read=read)
        if not few:
            nothing = found.hints[0] is None
            self._tries.note(None, 2 if nothing else 0, 1)
        return found

    def read_all(self, column: pa.ChunkedArray) -> pa.ChunkedArray | None:
        """Reads messages as structs, with the members in the order of the messages; None = not all are alike."""
        few = len(column) < objects.MIN_ROWS
        wanted = column.is_valid().to_numpy()
        try:
            texts = column.cast(pa.string())
        except pa.ArrowInvalid:
            return None  # Not UTF-8.
        layout = self._layout_of(column, wanted, few=few)
        made = None if layout is None else layout.texts.read(texts, wanted, _struct_of(layout.kinds))
        if layout is None or made is None or (made.rows != wanted).any():
            return None
        if not few:
            self._layouts[layout.kinds] = layout
        return made.structs

    def _find(self, column: pa.ChunkedArray, *, few: bool, read: bool) -> Sorted:
        """The kinds with enough messages; all kinds in a small batch."""
        try:
            texts = column.cast(pa.string())
        except pa.ArrowInvalid:
            return Sorted(hints=(None,))  # not UTF-8
        enough = len(column) if few else max(objects.MIN_ROWS, len(column) // _WORTH)
        hints: list[Side | None] = []
        done: dict[int, tuple[Side, pa.ChunkedArray]] = {}
        codes = np.full(len(column), -1, dtype=np.int32)
        while (left := codes < 0).any() and len(hints) < _MAX_TOGETHER:
            layout = self._layout_of(column, left, few=few)
            if layout is None:
                break
            made = layout.read(texts, left) if read else None
            mine = left & layout.texts.matches(texts) if made is None else made.rows
            # A null message fits any kind.
            nulls = left & texts.is_null().to_numpy()
            if int(mine.sum() + nulls.sum()) < enough:
                break
            self._layouts[layout.kinds] = layout
            bound = bound_of(texts) if made is None else made.bound
            messages = layout.messages(bound, present=not nulls.any())
            if made is not None:
                done[len(hints)] = (as_read(messages), made.structs)
            mine = mine | nulls
            codes[mine] = len(hints)
            hints.append(messages)
        if left.any() or not hints:
            codes[left] = len(hints)
            hints.append(None)
        return Sorted(tuple(hints), codes if len(hints) > 1 else None, read=done)

    def _layout_of(self, column: pa.ChunkedArray, left: np.ndarray, *, few: bool) -> _Layout | None:
        """Guesses the layout of most remaining messages; None if they are not objects, or need another plan."""
        seen: list[tuple[_Kinds, int]] = []
        for row in _sample(column, left, 1 if few else _SAMPLE):
            kinds = _kinds_of(column[row].as_py())
            for index, (others, count) in enumerate(seen):
                if (merged := _merged(others, kinds)) is not None:
                    seen[index] = merged, count + 1
                    break
            else:
                if kinds is not None:
                    seen.append((kinds, 1))
        if not seen:
            return None
        kinds = max(seen, key=lambda one: one[1])[0]
        for layout in self._layouts.values():
            if _merged(layout.kinds, kinds) == layout.kinds:
                return layout
        if few or len(self._layouts) >= _MAX_KINDS:
            return None
        return _Layout(kinds, *_object_texts(kinds))


def _sample(column: pa.ChunkedArray, left: np.ndarray, most: int) -> list[int]:
    """Remaining rows that are not null: the first one, and others spread over the batch.

    Equal steps could always hit the same kind if several kinds alternate.
    """
    there = np.flatnonzero(left & column.is_valid().to_numpy())
    if len(there) > most:
        there = there[[int(index * _GOLDEN_SECTION % 1 * len(there)) for index in range(most)]]
    return [int(row) for row in there]


#: The members of an object in their order. None: a null, which says nothing.
_Kinds = tuple[tuple[str, "Type | _Kinds | None"], ...]


@dataclass(frozen=True, eq=False)
class _Layout:
    """A kind of object: its members, its texts, and the type of the objects."""

    kinds: _Kinds
    texts: ObjectTexts
    member: ValueDescription

    def read(self, texts: pa.ChunkedArray, wanted: np.ndarray) -> ReadTexts:
        """Reads the messages with this layout."""
        kind = arrow_type(self.member.schema, self.member.physical)
        return self.texts.read(texts, wanted, cast("pa.StructType", kind))

    def messages(self, bound: TextBound, *, present: bool) -> Side:
        """Messages with this layout, with the known bound of their strings; ``present``: none is null."""
        pairs = zip(self.member.schema.fields, self.member.physical.children, strict=True)
        members = {field.name: ValueDescription(field.schema, with_bound(physical, bound)) for field, physical in pairs}
        return object_side(members, present=present)


class _Pairs(list[tuple[str, Any]]):
    """The members of an object as written in its text."""


def _kinds_of(message: bytes) -> _Kinds | None:
    """Returns the kinds of a message's members; None if it is not an object, or no pattern is possible."""
    if not message.lstrip().startswith(b"{"):
        return None
    try:
        found = json.loads(message, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        return None
    return _kinds(found) if isinstance(found, _Pairs) else None


def _kinds(pairs: _Pairs) -> _Kinds | None:
    names = [name for name, _ in pairs]
    if not 0 < len(names) <= objects.MAX_MEMBERS or len(set(names)) < len(names):
        return None
    kinds: list[tuple[str, Type | _Kinds | None]] = []
    for name, value in pairs:
        kind = _kinds(value) if isinstance(value, _Pairs) else objects.KINDS.get(type(value))
        if (kind is None and value is not None) or not PLAIN_NAME.fullmatch(name):
            return None
        kinds.append((name, kind))
    return tuple(kinds)


def _merged(one: _Kinds, other: _Kinds | None) -> _Kinds | None:
    """Merges two kinds; nulls fit anything. None if the kinds differ."""
    if other is None or len(one) != len(other):
        return None
    both: list[tuple[str, Type | _Kinds | None]] = []
    for (name, mine), (its_name, its) in zip(one, other, strict=True):
        if isinstance(mine, tuple) and isinstance(its, tuple):
            kind: Type | _Kinds | None = _merged(mine, its)
            fits = kind is not None
        else:
            kind = its if mine is None else mine
            # An object is never null in a pattern.
            fits = mine == its or (not isinstance(kind, tuple) and (mine is None or its is None))
        if name != its_name or not fits:
            return None
        both.append((name, kind))
    return tuple(both)


def _struct_of(kinds: _Kinds) -> pa.StructType:
    """The type of such objects, with their members in this order."""
    members = []
    for name, kind in kinds:
        if isinstance(kind, tuple):
            members.append(pa.field(name, _struct_of(kind)))
        else:
            member = _NULLS[1] if kind is None else ValueDescription.of(kind)
            members.append(pa.field(name, arrow_type(member.schema, member.physical)))
    return pa.struct(members)


def _object_texts(kinds: _Kinds) -> tuple[ObjectTexts, ValueDescription]:
    """The texts of such objects, and their type."""
    members: dict[str, ValueDescription] = {}
    parts: list[tuple[str, str | ObjectTexts]] = []
    for name, kind in kinds:
        found: tuple[str | ObjectTexts, ValueDescription]
        if isinstance(kind, tuple):
            found = _object_texts(kind)
        else:
            found = _NULLS if kind is None else (f"null|{_PATTERNS[kind]}", ValueDescription.of(kind))
        texts, members[name] = found
        parts.append((name, texts))
    return ObjectTexts.of(parts), object_member(members, optional=False)


def json_texts(column: pa.ChunkedArray, found: Sorted, read: Callable[[pa.ChunkedArray], ReadAtOnce]) -> TextsAtOnce:
    """The texts of messages: of those that were read as columns, and of single ones that ``read`` reads as values."""
    left = np.ones(len(column), dtype=bool)
    place = np.empty(len(column), dtype=np.int64)
    chunks: list[pa.Array] = []
    count = 0
    for code in found.read:
        hint = found.hints[code]
        assert isinstance(hint, Side), "nothing else is read of plain JSON"
        mine = np.arange(len(column)) if found.codes is None else np.flatnonzero(found.codes == code)
        _, objects = found.read_rows(code, mine)
        assert hint.carrier is not None, "an object has a carrier"
        texts = [text_of(chunk, hint.carrier, hint.physical) for chunk in objects.chunks]
        if any(one is None for one in texts):
            continue
        chunks += texts
        place[mine] = count + np.arange(len(mine))
        left[mine] = False
        count += len(mine)
    if not left.any():
        return TextsAtOnce(_placed(chunks, place))
    others = np.flatnonzero(left)
    texts_of_others, odd = _printed(read(column.take(pa.array(others)) if count else column))
    place[others] = count + np.arange(len(others))
    return TextsAtOnce(_placed([*chunks, texts_of_others], place), others[odd].tolist())


def _placed(chunks: list[pa.Array], place: np.ndarray) -> pa.ChunkedArray:
    texts = pa.chunked_array(chunks, pa.string())
    return texts if (np.diff(place) == 1).all() else texts.take(pa.array(place))


def _printed(found: ReadAtOnce) -> tuple[pa.Array, np.ndarray]:
    """The texts of values, null for None; and the positions of values that have to be read one by one."""
    nulls = np.array([value is None for value in found.values])
    try:
        texts = java_texts(found.values)
    except RecursionError:
        return pa.nulls(len(nulls), pa.string()), np.arange(len(nulls))
    return pa.array(texts, pa.string(), mask=nulls), np.asarray(found.odd, dtype=np.int64)
