"""Fields of schemaless values, read from the bytes of a VARIANT column into typed Arrow columns.

``Variants`` is the position of one value in each row. A step moves to a field in all rows at once, and a read turns the
values into a column. Both are NumPy operations on the bytes of the whole column, never on one row.

Source: Parquet's VariantEncoding.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data import variant_format as v
from penstock.errors import DataException

#: The kind of value, as messages name it.
_KINDS: Final = (
    "null",
    "boolean",
    "integer",
    "number",
    "decimal",
    "string",
    "bytes",
    "date",
    "timestamp",
    "object",
    "array",
)
NULL, BOOLEAN, INTEGER, FLOAT, DECIMAL, STRING, BYTES, DATE, TIMESTAMP, OBJECT, ARRAY = range(11)
_OF_PRIMITIVE: Final = {
    v.NULL: NULL,
    **dict.fromkeys((v.TRUE, v.FALSE), BOOLEAN),
    **dict.fromkeys((v.INT8, v.INT16, v.INT32, v.INT64), INTEGER),
    **dict.fromkeys((v.FLOAT, v.DOUBLE), FLOAT),
    **dict.fromkeys((v.DECIMAL4, v.DECIMAL8, v.DECIMAL16), DECIMAL),
    v.DATE: DATE,
    **dict.fromkeys((v.TIMESTAMP, v.TIMESTAMP_NTZ), TIMESTAMP),
    v.BINARY: BYTES,
    v.STRING: STRING,
}
_WIDTHS: Final = {v.INT8: 1, v.INT16: 2, v.INT32: 4, v.INT64: 8}
_DIGITS: Final = 38
_MAX_SHAPES: Final = 4096

#: Casts an array of one kind to the requested type: the array, the type, and the row of the frame of each item.
Cast = Callable[["pa.Array", "pa.DataType", "np.ndarray"], "pa.Array"]


@dataclass(frozen=True)
class Variants:
    """One value in each of some rows.

    Attributes:
        data: The bytes of all values.
        starts: The position where each row's value begins; -1 if the row has no value.
        names: The number of each row's dictionary of names, in ``dictionaries``.
        dictionaries: The metadata binaries.
        rows: The frame row of each value, for messages.
    """

    data: np.ndarray
    starts: np.ndarray
    names: np.ndarray
    dictionaries: list[bytes]
    rows: np.ndarray

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> Variants:
        """The values of a VARIANT column."""
        array = column.combine_chunks()
        values = pc.struct_field(array, [0])
        buffers = values.buffers()
        offsets = np.frombuffer(buffers[1], np.int32)[values.offset : values.offset + len(values)].astype(np.int64)
        names = pc.struct_field(array, [1]).dictionary_encode()
        data = np.frombuffer(buffers[2], np.uint8) if buffers[2] is not None else np.zeros(0, np.uint8)
        starts = np.where(values.is_valid().to_numpy(zero_copy_only=False), offsets, -1)
        codes = names.indices.fill_null(0).to_numpy()
        # Numbers are read four or sixteen bytes at once, also at the end.
        return cls(
            np.append(data, np.zeros(16, np.uint8)), starts, codes, names.dictionary.to_pylist(), np.arange(len(starts))
        )

    # ------------------------------------------------------------------ where values are
    def step(self, name: str) -> Variants:
        """The field with this name; absent where the value is not an object or does not have the field."""
        ids = np.array([_names(one).get(name, -1) for one in self.dictionaries] or [-1])[self.names]
        left = np.flatnonzero((self.starts >= 0) & (ids >= 0))
        left = left[self.data[self.starts[left]] & 3 == v.OBJECT]
        found = np.full(len(self.starts), -1)
        starts, wanted = self.starts[left], ids[left]
        header = self.data[starts].astype(np.int64)
        count_size = np.where(header >> 6 & 1, 4, 1)
        id_size, offset_size = (header >> 4 & 3) + 1, (header >> 2 & 3) + 1
        count = self._numbers(starts + 1, count_size)
        ids_at = starts + 1 + count_size
        offsets_at = ids_at + count * id_size
        body = offsets_at + (count + 1) * offset_size
        place = 0
        live = np.arange(len(left))
        while len(live := live[count[live] > place]):
            here = self._numbers(ids_at[live] + place * id_size[live], id_size[live]) == wanted[live]
            hit = live[here]
            offsets = self._numbers(offsets_at[hit] + place * offset_size[hit], offset_size[hit])
            found[left[hit]] = body[hit] + offsets
            live = live[~here]
            place += 1
        return replace(self, starts=found)

    def _items(self) -> tuple[Variants, np.ndarray]:
        """The items of arrays, one after the other, and how many each row has."""
        there = np.flatnonzero(self.starts >= 0)
        starts = self.starts[there]
        header = self.data[starts].astype(np.int64)
        offset_size, count_size = (header >> 2 & 3) + 1, np.where(header >> 4 & 1, 4, 1)
        count = self._numbers(starts + 1, count_size)
        owner = np.repeat(np.arange(len(there)), count)
        index = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
        offsets_at = starts + 1 + count_size
        body = offsets_at + (count + 1) * offset_size
        places = body[owner] + self._numbers(offsets_at[owner] + index * offset_size[owner], offset_size[owner])
        counts = np.zeros(len(self.starts), np.int64)
        counts[there] = count
        return replace(self, starts=places, names=self.names[there][owner], rows=self.rows[there][owner]), counts

    def _numbers(self, at: np.ndarray, size: np.ndarray) -> np.ndarray:
        """Little-endian numbers of one to four bytes."""
        found = np.zeros(len(at), np.int64)
        for index in range(4):
            found |= np.where(index < size, self.data[at + index].astype(np.int64) << 8 * index, 0)
        return found

    def _picked(self, pick: np.ndarray) -> Variants:
        return replace(self, starts=self.starts[pick], names=self.names[pick], rows=self.rows[pick])

    # ------------------------------------------------------------------ what stands there
    def kinds(self) -> np.ndarray:
        """The kind of each value."""
        there = self.starts >= 0
        header = self.data[np.where(there, self.starts, 0)]
        table = np.full(64, -1)
        for primitive, kind in _OF_PRIMITIVE.items():
            table[primitive] = kind
        basic = header & 3
        of_basic = {v.PRIMITIVE: table[header >> 2], v.SHORT_STRING: STRING, v.OBJECT: OBJECT, v.ARRAY: ARRAY}
        found = np.select([basic == one for one in of_basic], list(of_basic.values()))
        return np.where(there, found, NULL)

    def read(self, wanted: pa.DataType | None, cast: Cast, name: str) -> pa.Array:
        """Returns the values as one column.

        Args:
            wanted: The type of the column; None: the type of the values found.
            cast: Casts the values of one kind, or raises.
            name: The field's name in messages.

        Raises:
            DataException: The values have no type in common, or do not fit the requested type.
        """
        kinds = self.kinds()
        parts: list[pa.Array] = []
        places: list[np.ndarray] = []
        made: list[tuple[int, pa.Array, np.ndarray]] = []
        for kind in np.unique(kinds).tolist():
            if kind == NULL:
                continue
            pick = np.flatnonzero(kinds == kind)
            made += [(kind, array, pick[mine]) for array, mine in self._picked(pick)._natural(kind, wanted, cast, name)]
        kind_wanted = _common(made, name) if wanted is None else wanted
        for _, array, pick in made:
            parts.append(cast(array, kind_wanted, self.rows[pick]))
            places.append(pick)
        if not parts:
            return pa.nulls(len(self.starts), kind_wanted)
        place = np.full(len(self.starts), -1)
        where = np.concatenate(places)
        place[where] = np.arange(len(where))
        whole = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        return whole.take(pa.array(place, mask=place < 0))

    @staticmethod
    def names_of(dictionary: bytes) -> list[str]:
        """The names in a dictionary: fields at any depth, including names that no value uses."""
        return list(_names(dictionary))

    def objects(self) -> list[object]:
        """The values as Python objects: dicts, lists, and PyArrow's Python values for scalars."""
        found: list[object] = [None] * len(self.starts)
        kinds = self.kinds()
        for kind in np.unique(kinds).tolist():
            if kind == NULL:
                continue
            pick = np.flatnonzero(kinds == kind)
            for place, value in zip(pick.tolist(), self._picked(pick)._objects_of(kind), strict=True):
                found[place] = value
        return found

    def _objects_of(self, kind: int) -> list[object]:
        """The values as Python objects; all values are of one kind."""
        if kind == OBJECT:
            made: list[dict[str, object]] = [{} for _ in self.starts]
            used = {name for one in np.unique(self.names).tolist() for name in _names(self.dictionaries[one])}
            for name in sorted(used):
                step = self.step(name)
                there = np.flatnonzero(step.starts >= 0)
                if len(there):
                    for place, value in zip(there.tolist(), step._picked(there).objects(), strict=True):
                        made[place][name] = value
            return list(made)
        if kind == ARRAY:
            items, counts = self._items()
            values, ends = items.objects(), np.cumsum(counts).tolist()
            return [values[end - count : end] for end, count in zip(ends, counts.tolist(), strict=True)]
        found: list[object] = [None] * len(self.starts)
        for array, mine in self._natural(kind, None, lambda cells, _kind, _rows: cells, ""):
            for place, value in zip(mine.tolist(), array.to_pylist(), strict=True):
                found[place] = value
        return found

    def _natural(
        self, kind: int, wanted: pa.DataType | None, cast: Cast, name: str
    ) -> Iterator[tuple[pa.Array, np.ndarray]]:
        """Columns of values of one kind each, in their natural type, with their positions."""
        everything = np.arange(len(self.starts))
        types = self.data[self.starts] >> 2
        match kind:
            case _ if kind == BOOLEAN:
                yield pa.array(types == v.TRUE), everything
            case _ if kind == INTEGER:
                yield pa.array(self._integers(types)), everything
            case _ if kind == FLOAT:
                wide = self._bytes(8).view("<f8").ravel()
                narrow = self._bytes(4).view("<f4").ravel()
                yield pa.array(np.where(types == v.DOUBLE, wide, narrow.astype(np.float64))), everything
            case _ if kind == DECIMAL:
                yield from self._decimals(types)
            case _ if kind == DATE:
                yield pa.array(self._bytes(4).view("<i4").ravel()).view(pa.date32()), everything
            case _ if kind == TIMESTAMP:
                yield pa.array(self._bytes(8).view("<i8").ravel()).view(pa.timestamp("us", "UTC")), everything
            case _ if kind in (STRING, BYTES):
                yield self._texts(binary=kind == BYTES), everything
            case _ if kind == ARRAY:
                yield self._list(wanted, cast, name), everything
            case _ if kind == OBJECT and wanted is not None and pa.types.is_struct(wanted):
                members = [self.step(one.name).read(one.type, cast, f"{name}.{one.name}") for one in wanted]
                yield pa.StructArray.from_arrays(members, fields=list(wanted)), everything
            case _:
                said = "an object" if kind == OBJECT else f"of a kind that has no column ({types[0]})"
                raise DataException(
                    f'The field "{name}" is {said}: name the fields inside of it ("{name}.field"), or give it a type: '
                    'pa.struct([("field", pa.string())])'
                )

    def _bytes(self, size: int, after: int = 1) -> np.ndarray:
        """The bytes that follow the header, a row each."""
        return np.ascontiguousarray(self.data[self.starts[:, None] + np.arange(after, after + size)])

    def _integers(self, types: np.ndarray) -> np.ndarray:
        found = np.zeros(len(types), np.int64)
        for kind, width in _WIDTHS.items():
            pick = np.flatnonzero(types == kind)
            found[pick] = self._picked(pick)._bytes(width).view(f"<i{width}").ravel()
        return found

    def _decimals(self, types: np.ndarray) -> Iterator[tuple[pa.Array, np.ndarray]]:
        scales = self.data[self.starts + 1]
        numbers = np.zeros((len(types), 2), "<i8")
        for kind, width in ((v.DECIMAL4, 4), (v.DECIMAL8, 8)):
            pick = np.flatnonzero(types == kind)
            numbers[pick, 0] = self._picked(pick)._bytes(width, 2).view(f"<i{width}").ravel()
            numbers[pick, 1] = numbers[pick, 0] >> 63
        pick = np.flatnonzero(types == v.DECIMAL16)
        numbers[pick] = self._picked(pick)._bytes(16, 2).view("<i8")
        for scale in np.unique(scales).tolist():
            pick = np.flatnonzero(scales == scale)
            buffer = pa.py_buffer(np.ascontiguousarray(numbers[pick]))
            yield pa.Array.from_buffers(pa.decimal128(_DIGITS, scale), len(pick), [None, buffer]), pick

    def _texts(self, *, binary: bool) -> pa.Array:
        header = self.data[self.starts]
        short = header & 3 == v.SHORT_STRING
        sizes = np.where(short, header >> 2, self._numbers(self.starts + 1, np.full(len(header), 4)))
        begins = self.starts + np.where(short, 1, 5)
        ends = np.cumsum(sizes)
        index = np.repeat(begins - (ends - sizes), sizes) + np.arange(ends[-1] if len(ends) else 0)
        offsets = np.append(np.zeros(1, np.int32), ends.astype(np.int32))
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(self.data[index]))]
        found = pa.Array.from_buffers(pa.binary(), len(header), buffers)
        if binary:
            return found
        try:
            return found.cast(pa.string())
        except pa.ArrowInvalid:
            # Half a surrogate pair cannot be stored in an Arrow string.
            return pa.array([one.decode("utf-8", "replace") for one in found.to_pylist()], pa.string())

    def _list(self, wanted: pa.DataType | None, cast: Cast, name: str) -> pa.Array:
        items, counts = self._items()
        is_list = wanted is not None and (pa.types.is_list(wanted) or pa.types.is_large_list(wanted))
        values = items.read(wanted.value_type if is_list else None, cast, f"{name}[]")  # type: ignore[union-attr]
        return pa.ListArray.from_arrays(pa.array(np.append(0, np.cumsum(counts)), pa.int32()), values)


def _common(made: list[tuple[int, pa.Array, np.ndarray]], name: str) -> pa.DataType:
    """The type that can hold all the values found; raises DataException if there is none."""
    kinds = {kind for kind, _, _ in made}
    types = {array.type for _, array, _ in made}
    if not types:
        return pa.null()
    if len(types) == 1:
        return types.pop()
    if FLOAT in kinds and kinds <= {INTEGER, FLOAT, DECIMAL}:
        return pa.float64()
    if kinds <= {INTEGER, DECIMAL}:
        return pa.decimal128(_DIGITS, max(array.type.scale for kind, array, _ in made if kind == DECIMAL))
    said = ", ".join(_KINDS[kind] for kind in sorted(kinds))
    raise DataException(
        f'The field "{name}" holds values of several kinds ({said}), which no column has: give it a type, and '
        "what does not fit is an error of its row"
    )


@lru_cache(maxsize=_MAX_SHAPES)
def _names(metadata: bytes) -> dict[str, int]:
    """The names of a dictionary, and their numbers."""
    size = (metadata[0] >> 6 & 3) + 1

    def number(index: int) -> int:
        return int.from_bytes(metadata[1 + index * size : 1 + (index + 1) * size], "little")

    count = number(0)
    base = 1 + (count + 2) * size
    texts = (metadata[base + number(1 + index) : base + number(2 + index)] for index in range(count))
    return {text.decode("utf-8", "surrogatepass"): index for index, text in enumerate(texts)}
