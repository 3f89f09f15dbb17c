"""Reads JSON objects with known members, and unambiguous payloads of a known schema, as structs.

Spark's ``from_json`` makes a parser, a decoder and buffers of 12 KB for each message: two microseconds in a warm JVM,
ten while it is still compiling; VARIANT takes more. Objects with the same layout as a sample are split at their quotes
(``cut_objects``), with a quarter of the work of a pattern and a parser; Arrow reads the others as one text, all without
Python's lock. Arrow only reads objects that a pattern has matched. The pattern excludes everything that parsers read
differently: half of a surrogate pair, large numbers and leading zeros, minus zero, members that are missing, repeated
or in another order. Messages with a schema that do not match stay bytes, in a separate group (``PlainPayloads``).

If a message has no backslash and no control character, every quote begins or ends a string. So the text between two
quotes is either a string or the text around strings: colons, commas, numbers. A message that equals a known object in
everything except its values is an object with the same members.

Thread: a task's pipeline thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from penstock.api.arrow import one_array
from penstock.converters.json.byte_columns import ShortcutMemory
from penstock.converters.json.envelope import Envelope
from penstock.converters.json.lenient import layout_of
from penstock.data import Schema, Type
from penstock.data.logical import LOGICAL_NAMES, Date, Timestamp
from penstock.pipeline.columns.layout import TextBound, arrow_type, with_bound
from penstock.pipeline.columns.sizes import bytes_of, has_byte, offsets_of, places_below, places_of
from penstock.pipeline.plan import map_structs as objects
from penstock.pipeline.plan.step import Side, Sorted

_BACKSLASH_BYTE: Final = 0x5C
_QUOTE: Final = 0x22
_FIRST_PRINTABLE: Final = 0x20
_AROUND: Final = re.compile(r"( *: *)([^ ,}]+)( *[,}][ }]*)")


@dataclass(frozen=True)
class FlatMember:
    """A member whose value is a string (no pattern), a number or a boolean; its name needs no escapes."""

    name: str
    pattern: str | None


@dataclass(frozen=True)
class QuoteLayout:
    """The layout of messages: the texts before, between and after values, and the number of quotes."""

    runs: tuple[bytes, ...]
    quotes: int


def quote_layout(message: str, members: Sequence[FlatMember]) -> QuoteLayout | None:
    """Returns the layout of a JSON object, or None if it does not have exactly these members, in this order.

    >>> quote_layout('{"id": 1, "name":"x"}', [FlatMember("id", "[0-9]+"), FlatMember("name", None)])
    QuoteLayout(runs=(b'{"id": ', b', "name":"', b'"}'), quotes=6)
    """
    pieces = message.split('"')
    runs = [pieces[0]]
    at = 1
    for member in members:
        if at + 1 >= len(pieces) or pieces[at] != member.name:
            return None
        runs[-1] += f'"{member.name}"'
        if member.pattern is None:
            if at + 3 >= len(pieces):
                return None
            runs[-1] += f'{pieces[at + 1]}"'
            runs.append(f'"{pieces[at + 3]}')
            at += 4
        else:
            around = _AROUND.fullmatch(pieces[at + 1])
            if around is None:
                return None
            runs[-1] += around[1]
            runs.append(around[3])
            at += 2
    return QuoteLayout(tuple(run.encode() for run in runs), len(pieces) - 1) if at == len(pieces) else None


def cut_objects(
    texts: pa.StringArray, layout: QuoteLayout, members: Sequence[FlatMember], wanted: np.ndarray
) -> tuple[np.ndarray, dict[str, pa.StringArray]]:
    """Splits the wanted objects with this layout; returns their rows, and in these rows the text of each member's
    values.
    """
    if not len(texts):
        return np.empty(0, np.int64), {member.name: texts for member in members}
    data = bytes_of(texts)
    bounds = offsets_of(texts)
    bounds = bounds - bounds[0]
    begins, ends = bounds[:-1], bounds[1:]
    quotes = places_of(data, _QUOTE)
    firsts = np.searchsorted(quotes, begins)
    fits = wanted & (np.searchsorted(quotes, ends) - firsts == layout.quotes)
    fits[_rows_of_odd(data, bounds)] = False
    rows = np.flatnonzero(fits)
    found = _quotes_of(quotes, firsts, rows, layout.quotes)
    cuts, good = _cut(begins[rows], ends[rows], found, layout, members)
    rows, parts = rows[good], _texts(data, cuts[good])
    same = _equal(parts, len(rows), layout.runs)
    # Runs and values alternate.
    rows, first = rows[same], np.flatnonzero(same) * 2 * len(layout.runs)
    cut: dict[str, pa.StringArray] = {}
    right = np.ones(len(rows), dtype=bool)
    for index, member in enumerate(members):
        cut[member.name] = parts.take(pa.array(first + 2 * index + 1))
        if member.pattern is not None:
            matched = pc.match_substring_regex(cut[member.name], f"\\A(?:{member.pattern})\\z")
            right &= matched.to_numpy(zero_copy_only=False)
    if not right.all():
        kept = pa.array(right)
        rows, cut = rows[right], {name: column.filter(kept) for name, column in cut.items()}
    return rows, cut


def _quotes_of(quotes: np.ndarray, firsts: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
    """The positions of the quotes of each row, from its first quote on; a view if all rows have the same number."""
    each = len(quotes) // len(rows) if len(rows) else 0
    if each and len(quotes) == each * len(rows) and (firsts[rows] == np.arange(each - count, len(quotes), each)).all():
        return quotes.reshape(len(rows), each)[:, each - count :]
    found: np.ndarray = quotes[firsts[rows][:, None] + np.arange(count)]
    return found


def _cut(
    begins: np.ndarray, ends: np.ndarray, quotes: np.ndarray, layout: QuoteLayout, members: Sequence[FlatMember]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the bounds of the runs and values of each row, and the rows that have room for them."""
    bounds = np.empty((len(begins), 2 * len(layout.runs)), np.int32)
    bounds[:, 0] = at = begins
    seen = 0
    for index, (member, (run, after)) in enumerate(zip(members, pairwise(layout.runs), strict=True)):
        seen += run.count(b'"')
        bounds[:, 2 * index + 1] = at + len(run)
        if member.pattern is None:
            at = quotes[:, seen]
        else:
            # The text after a number ends where the next name begins, or with the message.
            at = (quotes[:, seen] if seen < layout.quotes else ends) - len(after.split(b'"')[0])
        bounds[:, 2 * index + 2] = at
    bounds[:, -1] = ends
    good = (np.diff(bounds, axis=1) >= 0).all(axis=1)
    return bounds, good & (ends - at == len(layout.runs[-1]))


def _texts(data: np.ndarray, bounds: np.ndarray) -> pa.StringArray:
    """Parts of a text, each row followed by the text before the next row; nothing is copied."""
    flat = np.append(bounds.ravel(), bounds[-1:, -1])
    if not len(flat):
        return pa.array([], pa.string())
    return pa.StringArray.from_buffers(len(flat) - 1, pa.py_buffer(flat), pa.py_buffer(data))


def _equal(parts: pa.StringArray, rows: int, runs: Sequence[bytes]) -> np.ndarray:
    """Marks the rows that have exactly these runs, given that the lengths match."""
    places = np.arange(rows)[:, None] * (2 * len(runs)) + 2 * np.arange(len(runs))
    found = parts.take(pa.array(places.ravel())).buffers()[2]
    expected = np.frombuffer(b"".join(runs), np.uint8)
    there = np.frombuffer(found, np.uint8, rows * len(expected)) if rows else np.empty(0, np.uint8)
    same: np.ndarray = (there.reshape(rows, len(expected)) == expected).all(axis=1)
    return same


def _rows_of_odd(data: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """The rows in which a quote may be part of a string, or a character is not allowed."""
    odd = places_of(data, _BACKSLASH_BYTE)
    if data.min(initial=_FIRST_PRINTABLE) < _FIRST_PRINTABLE:
        odd = np.concatenate([odd, places_below(data, _FIRST_PRINTABLE)])
    return np.unique(np.searchsorted(bounds, odd, side="right") - 1)


#: Names without escapes in JSON and in patterns.
PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SPACE: Final = "[ \\t\\r\\n]*"
_ESCAPE: Final = '\\\\(?:["\\\\/bfnrt]|u(?:[0-9a-cA-CefEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}))'
STRING: Final = f'"(?:[^"\\\\\\x00-\\x1f]|{_ESCAPE})*"'
BOOLEAN: Final = "true|false"
REAL: Final = "-?[1-9][0-9]{0,14}\\.[0-9]{1,17}|0\\.[0-9]{1,17}|-0\\.0{0,8}[1-9][0-9]{0,8}"
#: Numbers as Java writes large or small doubles.
SCIENTIFIC: Final = "-?[1-9]\\.[0-9]{1,17}E-?[0-9]{1,2}"

_FIRST_BEYOND_BMP: Final = 0xF0
_BACKSLASH: Final = ord("\\")


#: Shorter chunks are joined.
_PART_ROWS: Final = 1_000
#: The number of messages that are searched for a sample of the layout.
_SAMPLE: Final = 8
_MAX_LAYOUTS: Final = 16


def whole(digits: int) -> str:
    """The pattern of whole numbers with at most the given number of digits."""
    return f"0|-?[1-9][0-9]{{0,{digits - 1}}}"


@dataclass(frozen=True)
class ObjectTexts:
    """The texts of objects with given members; also of arrays as members (``array_texts``).

    Attributes:
        pattern: Their pattern, without surrounding space.
        flat: The members; None = one of them is itself an object or an array.
        known: Layouts that such texts have, each with what they are inside of (see ``read``).
    """

    pattern: str
    flat: tuple[FlatMember, ...] | None
    known: set[tuple[QuoteLayout, str | None]] = field(default_factory=set, compare=False)

    @classmethod
    def of(cls, members: Iterable[tuple[str, str | ObjectTexts]]) -> ObjectTexts:
        """Texts of objects with these members in order, each with the pattern of its value."""
        parts: list[str] = []
        flat: list[FlatMember] | None = []
        for name, value in members:
            if isinstance(value, ObjectTexts):
                flat, pattern = None, value.pattern
            else:
                pattern = value
                if flat is not None:
                    flat.append(FlatMember(name, None if value.removeprefix("null|") == STRING else value))
            parts.append(f'"{re.escape(name)}"{_SPACE}:{_SPACE}(?:{pattern})')
        pattern = f"\\{{{_SPACE}{f'{_SPACE},{_SPACE}'.join(parts)}{_SPACE}\\}}"
        return cls(pattern, None if flat is None else tuple(flat))

    def matches(self, texts: pa.ChunkedArray, inside: str | None = None) -> np.ndarray:
        """Marks the texts that are such objects; nulls are not. For ``inside`` see ``read``."""
        end = "" if inside is None else f"{_SPACE}\\}}"
        found = pc.match_substring_regex(texts, f"\\A{_SPACE}{self.pattern}{end}{_SPACE}\\z")
        matched: np.ndarray = found.fill_null(False).to_numpy().astype(bool)
        return matched

    def read(
        self, texts: pa.ChunkedArray, wanted: np.ndarray, kind: pa.StructType, *, inside: str | None = None
    ) -> ReadTexts:
        """Reads the wanted texts that are such objects.

        Args:
            texts: Strings.
            wanted: The rows to check.
            kind: The structs to make, in any order of these members; all of them may be null.
            inside: Each text is the rest of an object after the name of this member, its last one, and the colon.
        """
        rows, structs = self._cut(texts, wanted, kind, inside)
        left = wanted.copy()
        left[rows] = False
        if left.any():
            left &= self.matches(_alone(texts, left), inside)
        if not len(rows):
            if not left.any():
                return ReadTexts(left, pa.chunked_array([pa.nulls(len(texts), kind)]), TextBound.CLEAN)
            others = _alone(texts, left)
            return ReadTexts(left, pa.chunked_array([_read_structs(others, kind, inside)]), bound_of(others))
        bound = _bound_of(texts, TextBound.CLEAN)
        taken = left.copy()
        taken[rows] = True
        if len(rows) < len(texts):
            place = np.zeros(len(texts), dtype=np.int64)
            place[rows] = np.arange(len(rows))
            if left.any():
                others = _alone(texts, left)
                structs = pa.chunked_array([*structs.chunks, _read_structs(others, kind, inside)])
                bound = min(bound, bound_of(others))
                place[left] = len(rows) + np.flatnonzero(left)
            structs = structs.take(pa.array(place, mask=~taken))
        return ReadTexts(taken, structs, bound)

    def _cut(
        self, texts: pa.ChunkedArray, wanted: np.ndarray, kind: pa.StructType, inside: str | None
    ) -> tuple[np.ndarray, pa.ChunkedArray]:
        """The rows with the layout of a sample, and their structs."""
        rows: list[np.ndarray] = [np.empty(0, np.int64)]
        structs: list[pa.StructArray] = []
        layout = None if self.flat is None else self._layout(_sample(texts, wanted), inside)
        start = 0
        for part in _parts(texts) if layout is not None else ():
            assert layout is not None and self.flat is not None, "there is no part else"  # noqa: PT018
            mine = slice(start, start + len(part))
            found, cut = cut_objects(part, layout, self.flat, wanted[mine])
            rows.append(found + start)
            columns = [_typed(cut[one.name], one.type) for one in kind]
            structs.append(pa.StructArray.from_arrays(columns, fields=list(kind)))
            start += len(part)
        return np.concatenate(rows), pa.chunked_array(structs, kind)

    def _layout(self, sample: pa.ChunkedArray, inside: str | None) -> QuoteLayout | None:
        """Returns the layout of the first text of a sample that is such an object."""
        assert self.flat is not None, "asked of flat objects alone"
        for text in sample.drop_null().to_pylist():
            layout = quote_layout(text, self.flat)
            # To compile the whole pattern for each batch takes as long as to read a thousand messages.
            if layout is not None and (layout, inside) not in self.known:
                if not self.matches(pa.chunked_array([[text]]), inside).all():
                    continue
                if len(self.known) >= _MAX_LAYOUTS:
                    self.known.clear()
                self.known.add((layout, inside))
            if layout is not None:
                return layout
        return None


def _sample(texts: pa.ChunkedArray, wanted: np.ndarray) -> pa.ChunkedArray:
    """The first texts. One by one, because `take` copies all chunks."""
    found = [texts[row].as_py() for row in np.flatnonzero(wanted)[:_SAMPLE].tolist()]
    return pa.chunked_array([pa.array(found, pa.string())])


def _parts(texts: pa.ChunkedArray) -> Iterator[pa.StringArray]:
    """The chunks, with short ones joined: processing a chunk costs the same as copying some hundred messages."""
    held: list[pa.StringArray] = []
    for chunk in texts.chunks:
        held.append(chunk)
        if sum(map(len, held)) >= _PART_ROWS:
            yield one_array(pa.chunked_array(held))
            held = []
    if held:
        yield one_array(pa.chunked_array(held))


def array_texts(item: str | ObjectTexts) -> ObjectTexts:
    """The texts of arrays as values of members."""
    one = item.pattern if isinstance(item, ObjectTexts) else item
    items = f"(?:(?:{one}){_SPACE},{_SPACE})*(?:{one})"
    return ObjectTexts(f"\\[{_SPACE}(?:{items}{_SPACE})?\\]", None)


@dataclass(frozen=True)
class ReadTexts:
    """The rows of texts that were read, a struct for every text, null for the others, and the bound of all strings."""

    rows: np.ndarray
    structs: pa.ChunkedArray
    bound: TextBound


def _alone(texts: pa.ChunkedArray, rows: np.ndarray) -> pa.ChunkedArray:
    return texts if rows.all() else pc.if_else(pa.array(rows), texts, pa.scalar(None, pa.string()))


def _typed(texts: pa.StringArray, kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(kind):
        return texts
    nulls = pc.equal(texts, "null")
    if nulls.true_count:
        texts = pc.if_else(nulls, pa.scalar(None, pa.string()), texts)
    # Java reads a number as a double first.
    return texts.cast(pa.float64()).cast(kind, safe=False) if pa.types.is_float32(kind) else texts.cast(kind)


def _bound_of(texts: pa.ChunkedArray, bound: TextBound) -> TextBound:
    """Returns the bound of all strings, given the bound that holds if no character is beyond U+FFFF."""
    beyond = any(bytes_of(chunk).max(initial=0) >= _FIRST_BEYOND_BMP for chunk in texts.chunks)
    return TextBound.ANY if beyond else bound


def bound_of(texts: pa.ChunkedArray) -> TextBound:
    """Returns the bound of all strings in texts of objects."""
    escapes = any(has_byte(bytes_of(chunk), _BACKSLASH) for chunk in texts.chunks)
    return _bound_of(texts, TextBound.BMP if escapes else TextBound.CLEAN)


def _read_structs(texts: pa.ChunkedArray, kind: pa.StructType, inside: str | None) -> pa.StructArray:
    """Parses texts that match the pattern; null stays null."""
    rows = len(texts)
    before, nothing = ("", "{}") if inside is None else (f'{{"{inside}":', "{}}")
    given = pc.fill_null(texts, nothing).combine_chunks()
    whole_text = pa.ListArray.from_arrays(pa.array([0, rows], pa.int32()), given)
    joined = memoryview(pc.binary_join(whole_text, f"\n{before}")[0].as_buffer())
    if before:
        joined = memoryview(b"".join((before.encode(), joined)))
    read = cast("pa.StructType", _with_doubles(kind))
    members = list(read) if inside is None else [pa.field(inside, read)]
    table = pj.read_json(
        pa.BufferReader(joined),
        # One block, on this thread: the other core works on the previous batch.
        pj.ReadOptions(use_threads=False, block_size=len(joined) + 1),
        pj.ParseOptions(explicit_schema=pa.schema(members), newlines_in_values=True, unexpected_field_behavior="error"),
    )
    assert table.num_rows == rows, "one object a text"
    columns = [column.combine_chunks() for column in table.columns]
    if inside is not None:
        columns = columns[0].flatten()
    mask = pc.is_null(texts).combine_chunks() if texts.null_count else None
    found = pa.StructArray.from_arrays(columns, fields=list(read), mask=mask)
    return cast("pa.StructArray", found if read.equals(kind) else found.cast(kind, safe=False))


def _with_doubles(kind: pa.DataType) -> pa.DataType:
    """A type with doubles for floats: Java reads a number as a double first."""
    if pa.types.is_float32(kind):
        return pa.float64()
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(_with_doubles(one.type)) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_doubles(kind.value_type)))
    return kind


_NUMBER: Final = f"{whole(15)}|{REAL}|{SCIENTIFIC}"
_SCALARS: Final[Mapping[Type, str]] = {
    Type.INT8: whole(2),
    Type.INT16: whole(4),
    Type.INT32: whole(9),
    Type.INT64: whole(18),
    Type.FLOAT32: _NUMBER,
    Type.FLOAT64: _NUMBER,
    Type.BOOLEAN: BOOLEAN,
    Type.STRING: STRING,
}
#: Logical types for which every number of the type is valid.
_ANY_NUMBER: Final = frozenset(((Timestamp.LOGICAL_NAME, Type.INT64), (Date.LOGICAL_NAME, Type.INT32)))
#: The pattern has found too few if it leaves more than one in this many messages.
_WORTH: Final = 2
_MAX_KNOWN: Final = 1_000
#: A longer pattern of an array exceeds the matcher's memory and then takes many times as long.
_MAX_PATTERN: Final = 8_000
#: The only member of the objects as which payloads are read that are no objects themselves.
_MEMBER: Final = "value"


class PlainPayloads:
    """Reads payloads; remembers schemas for which it found too few.

    In a small batch it reads all payloads or none: building the full plan only for some of them would take seconds.
    """

    def __init__(self, *, defaults: bool) -> None:
        self._defaults = defaults
        self._tries = ShortcutMemory(_WORTH)

    def read(self, found: Sorted, column: pa.ChunkedArray, content: Schema | None) -> Sorted:
        """Returns the sorted messages, with the payloads that could be read.

        Args:
            found: Messages sorted by their schemas; those of an `Envelope` are the rest after ``"payload":``.
            column: The sorted messages.
            content: The schema of messages that consist only of the payload, or None.
        """
        try:
            texts = column.cast(pa.string())
        except pa.ArrowInvalid:
            return found  # Not UTF-8.
        for index, hint in enumerate(found.hints):
            schema = hint.schema if isinstance(hint, Envelope) else content
            inside = "payload" if isinstance(hint, Envelope) else None
            found = self._read_one(found, texts, index, schema, inside)
        return found

    def _read_one(
        self, found: Sorted, texts: pa.ChunkedArray, index: int, schema: Schema | None, inside: str | None
    ) -> Sorted:
        wanted = None if schema is None else _texts_of(schema, self._defaults)
        if schema is None or wanted is None or not self._tries.worth(schema):
            return found
        mine = np.ones(len(texts), dtype=bool) if found.codes is None else found.codes == index
        size = int(mine.sum())
        layout = layout_of(schema)
        kind = arrow_type(schema, layout)
        is_object = schema.type is Type.STRUCT
        if is_object:
            made = wanted.read(texts, mine, cast("pa.StructType", kind), inside=inside)
        else:
            # As objects with one member; payloads in an envelope are followed by its brace.
            wrapped = pc.binary_join_element_wise(f'{{"{_MEMBER}":', texts, "" if inside is not None else "}", "")
            made = wanted.read(wrapped, mine, pa.struct([(_MEMBER, kind)]))
            made = replace(made, structs=pc.struct_field(made.structs, _MEMBER))
        left = size - int(made.rows.sum())
        if size < objects.MIN_ROWS:
            if left:
                return found
        elif not self._tries.note(schema, left, size):
            return found
        side = Side.of(schema, with_bound(layout, made.bound), present=is_object or not schema.optional)
        found = replace(found, read={**found.read, index: (side, made.structs)})
        return found.with_hint(found.hints[index], mine & ~made.rows, len(texts)) if left else found


@lru_cache(maxsize=_MAX_KNOWN)
def _texts_of(schema: Schema, defaults: bool) -> ObjectTexts | None:
    """The texts of objects with a schema, or with another value as their only member; None = some need a plan."""
    if schema.type is not Type.STRUCT:
        only = _value_pattern(schema, defaults)
        return None if only is None else ObjectTexts.of([(_MEMBER, only)])
    if not 0 < len(schema.fields) <= objects.MAX_MEMBERS:
        return None
    members: list[tuple[str, str | ObjectTexts]] = []
    for one in schema.fields:
        value = _value_pattern(one.schema, defaults)
        if value is None or not PLAIN_NAME.fullmatch(one.name):
            return None
        members.append((one.name, value))
    return ObjectTexts.of(members)


def _value_pattern(schema: Schema, defaults: bool) -> str | ObjectTexts | None:
    may_be_null = schema.optional and (schema.default is None or not defaults)
    if schema.type in (Type.STRUCT, Type.ARRAY):
        inner = _texts_of(schema, defaults) if schema.type is Type.STRUCT else _array_of(schema, defaults)
        return replace(inner, pattern=f"null|{inner.pattern}") if inner is not None and may_be_null else inner
    if schema.name not in LOGICAL_NAMES or (schema.name, schema.type) in _ANY_NUMBER:
        value = _SCALARS.get(schema.type)
    else:
        return None
    return f"null|{value}" if value is not None and may_be_null else value


def _array_of(schema: Schema, defaults: bool) -> ObjectTexts | None:
    """The texts of arrays with a schema. The pattern contains that of an item twice."""
    if schema.name in LOGICAL_NAMES or schema.value_schema is None:
        return None
    item = _value_pattern(schema.value_schema, defaults)
    found = None if item is None else array_texts(item)
    return found if found is not None and len(found.pattern) <= _MAX_PATTERN else None
