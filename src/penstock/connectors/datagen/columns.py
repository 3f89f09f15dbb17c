"""Values by their numbers: the same seed and the same numbers give the same values, whatever was generated before.

Main types: ``ValueGenerator`` and its kinds. Each generates the values of a run of rows with NumPy, so that a task can
resume at any row after a restart. Main function: ``random_bits``. Pure; any thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.data import Schema

Bits = npt.NDArray[np.uint64]
_GOLDEN: Final = 0x9E3779B97F4A7C15
_MASK: Final = (1 << 64) - 1
_LETTERS: Final = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz0123456789", np.uint8)


def random_bits(key: int, numbers: Bits) -> Bits:
    """64 random bits for each number: SplitMix64, which computes the bits of any number directly.

    >>> one, both = random_bits(7, np.array([5], np.uint64)), random_bits(7, np.array([4, 5], np.uint64))
    >>> bool(one[0] == both[1] != both[0])
    True
    """
    z = numbers * np.uint64(_GOLDEN) + np.uint64(key & _MASK)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def derived(key: int, name: str) -> int:
    """The key of a part: another for each name."""
    for byte in name.encode():
        key = ((key ^ byte) * 0x100000001B3 + _GOLDEN) & _MASK
    return key


def fractions(key: int, numbers: Bits) -> npt.NDArray[np.float64]:
    """A number from 0 to 1, without 1, for each."""
    return (random_bits(key, numbers) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def below(key: int, numbers: Bits, limit: int) -> npt.NDArray[np.int64]:
    """An integer from 0 to below a limit for each."""
    return (random_bits(key, numbers) % np.uint64(limit)).astype(np.int64)


def _as_type(whole: npt.NDArray[np.int64], wanted: pa.DataType) -> pa.Array:
    """Integers as a narrower type; values that are too large wrap, as in Java."""
    made = pa.array(whole)
    if wanted.bit_width == 32:
        made = made.cast(pa.int32(), safe=False)
    return made.cast(wanted)


class ValueGenerator(ABC):
    """Makes the values of a field."""

    schema: Schema
    type: pa.DataType

    @abstractmethod
    def make(self, key: int, numbers: Bits) -> pa.Array:
        """The values of rows.

        Args:
            key: The seed of this field.
            numbers: The numbers of the rows.
        """


@dataclass(frozen=True)
class Constant(ValueGenerator):
    """Null, or an empty record: one value in all rows."""

    schema: Schema
    type: pa.DataType

    def make(self, key: int, numbers: Bits) -> pa.Array:
        """See ``ValueGenerator``."""
        return pa.nulls(len(numbers), self.type)


@dataclass(frozen=True)
class Options(ValueGenerator):
    """One of a few values."""

    schema: Schema
    type: pa.DataType
    values: Any

    def make(self, key: int, numbers: Bits) -> pa.Array:
        """See ``ValueGenerator``."""
        return self.values.take(pa.array(below(key, numbers, len(self.values))))


@dataclass(frozen=True)
class Booleans(ValueGenerator):
    """True with a chance."""

    schema: Schema
    type: pa.DataType
    odds: float = 0.5

    def make(self, key: int, numbers: Bits) -> pa.Array:
        """See ``ValueGenerator``."""
        return pa.array(fractions(key, numbers) < self.odds)


@dataclass(frozen=True)
class Integers(ValueGenerator):
    """Integers of a range, whose upper end is not in it."""

    schema: Schema
    type: pa.DataType
    low: int
    high: int

    def make(self, key: int, numbers: Bits) -> pa.Array:
        """See ``ValueGenerator``."""
        bits = random_bits(key, numbers)
        width = self.high - self.low
        made = bits if width > _MASK else bits % np.uint64(width)
        # Two's complement: the sum is right whatever the signs.
        return _as_type((made + np.uint64(self.low & _MASK)).view(np.int64), self.type)


@dataclass(frozen=True)
class Steps(ValueGenerator):
    """Numbers that go up, or down, and begin again."""

    schema: Schema
    type: pa.DataType
    start: int | float
    step: int | float
    count: int | None

    def make(self, key: int, numbers: Bits) -> pa.Array:
        """See ``ValueGenerator``."""
        places = (numbers % np.uint64(self.count)) if self.count else numbers
        if pa.types.is_floating(self.type):
            return pa.array(places.astype(np.float64) * self.step + self.start).cast(self.type)
        with np.errstate(over="ignore"):
            return _as_type(places.astype(np.int64) * np.int64(self.step) + np.int64(self.start), self.type)


@dataclass(frozen=True)
class Floats(ValueGenerator):
    """Numbers of a range."""

    schema: Schema
    type: pa.DataType
    low: float
    high: float

    def make(self, key: int, numbers: Bits) -> pa.Array:
        """See ``ValueGenerator``."""
        return pa.array(fractions(key, numbers) * (self.high - self.low) + self.low).cast(self.type)


@dataclass(frozen=True)
class Texts(ValueGenerator):
    """Random letters and digits, or random bytes, of a length that may vary."""

    schema: Schema
    type: pa.DataType
    shortest: int
    longest: int

    def make(self, key: int, numbers: Bits) -> pa.Array:
        """See ``ValueGenerator``."""
        rows, most = len(numbers), self.longest
        lengths = below(derived(key, "length"), numbers, self.longest - self.shortest + 1) + self.shortest
        words = max(1, -(-most // 8))
        parts = [random_bits(derived(key, str(word)), numbers) for word in range(words)]
        # Little-endian, so that the same seed gives the same bytes everywhere.
        data = np.column_stack(parts).astype("<u8").view(np.uint8).reshape(rows, words * 8)[:, :most]
        if pa.types.is_string(self.type):
            data = _LETTERS[data % len(_LETTERS)]
        kept = data[np.arange(most)[None, :] < lengths[:, None]]
        offsets = np.zeros(rows + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(kept))]
        return pa.Array.from_buffers(self.type, rows, buffers)


@dataclass(frozen=True)
class Affixed(ValueGenerator):
    """Text with a prefix and a suffix; other values are converted to text first."""

    schema: Schema
    type: pa.DataType
    inner: ValueGenerator
    prefix: str
    suffix: str

    def make(self, key: int, numbers: Bits) -> pa.Array:
        """See ``ValueGenerator``."""
        import pyarrow.compute as pc

        return pc.binary_join_element_wise(
            self.prefix, self.inner.make(key, numbers).cast(pa.string()), self.suffix, ""
        )


@dataclass(frozen=True)
class Nullable(ValueGenerator):
    """Null with a chance."""

    schema: Schema
    type: pa.DataType
    inner: ValueGenerator
    nulls: float

    def make(self, key: int, numbers: Bits) -> pa.Array:
        """See ``ValueGenerator``."""
        import pyarrow.compute as pc

        there = pa.array(fractions(derived(key, "null"), numbers) >= self.nulls)
        return pc.if_else(there, self.inner.make(key, numbers), pa.scalar(None, self.type))


@dataclass(frozen=True)
class Lists(ValueGenerator):
    """Lists of a length that may vary; also maps, whose keys are numbered."""

    schema: Schema
    type: pa.DataType
    items: ValueGenerator
    shortest: int
    longest: int

    def make(self, key: int, numbers: Bits) -> pa.Array:
        """See ``ValueGenerator``."""
        lengths = below(derived(key, "length"), numbers, self.longest - self.shortest + 1) + self.shortest
        offsets = np.zeros(len(numbers) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        place = np.arange(offsets[-1], dtype=np.int64) - np.repeat(offsets[:-1].astype(np.int64), lengths)
        inner = random_bits(derived(key, "row"), np.repeat(numbers, lengths)) + place.astype(np.uint64)
        items = self.items.make(derived(key, "item"), inner)
        if not pa.types.is_map(self.type):
            return pa.ListArray.from_arrays(pa.array(offsets), items, type=self.type)
        keys = Affixed(self.schema, pa.string(), _Given(pa.array(place)), "key_", "").make(key, inner)
        return pa.MapArray.from_arrays(pa.array(offsets), keys, items, type=self.type)


@dataclass(frozen=True)
class _Given(ValueGenerator):
    """Values that are known already."""

    values: Any

    def make(self, key: int, numbers: Bits) -> pa.Array:
        return self.values


@dataclass(frozen=True)
class RecordGenerator(ValueGenerator):
    """Records of fields."""

    schema: Schema
    type: pa.DataType
    names: Sequence[str]
    columns: Sequence[ValueGenerator]

    def make(self, key: int, numbers: Bits) -> pa.Array:
        """See ``ValueGenerator``."""
        made = [one.make(derived(key, name), numbers) for name, one in zip(self.names, self.columns, strict=True)]
        return pa.StructArray.from_arrays(made, fields=list(self.type))
