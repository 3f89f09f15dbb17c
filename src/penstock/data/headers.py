"""Headers of a record: ordered, and a key may occur more than once. ``Header`` and ``ConnectHeaders``.

Owning thread: the one that owns the record; ``Header`` is immutable.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, time
from typing import NamedTuple

from penstock.data.logical import Date, Decimal, Time, Timestamp
from penstock.data.schema import (
    BOOLEAN_SCHEMA,
    BYTES_SCHEMA,
    FLOAT32_SCHEMA,
    FLOAT64_SCHEMA,
    INT8_SCHEMA,
    INT16_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    OPTIONAL_BYTES_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Schema,
    Type,
)
from penstock.data.structs import Struct, check_value
from penstock.errors import DataException


class Header(NamedTuple):
    """One header: a key, and a value with its schema (None = schemaless).

    Source: org.apache.kafka.connect.header.Header.
    """

    key: str
    value: object
    schema: Schema | None = None

    def with_value(self, schema: Schema | None, value: object) -> Header:
        """The same key with another value. Java's ``with``."""
        return Header(self.key, value, schema)

    def rename(self, key: str) -> Header:
        """The same value under another key; returns itself if the key is the same."""
        return self if key == self.key else Header(key, self.value, self.schema)


class ConnectHeaders:
    """An ordered list of headers. Methods that change it return it.

    >>> headers = ConnectHeaders().add_string("source", "a").add_long("line", 7).add_string("source", "b")
    >>> [header.value for header in headers.all_with_name("source")]
    ['a', 'b']
    >>> headers.last_with_name("source").value
    'b'

    Source: org.apache.kafka.connect.header.ConnectHeaders.
    """

    __slots__ = ("_headers",)

    def __init__(self, headers: Iterable[Header] = ()) -> None:
        self._headers: list[Header] = list(headers)

    def size(self) -> int:
        """Returns the number of headers."""
        return len(self._headers)

    def is_empty(self) -> bool:
        """True if there are no headers."""
        return not self._headers

    def all_with_name(self, key: str) -> Iterator[Header]:
        """The headers with a key, in order."""
        return iter([header for header in self._headers if header.key == key])

    def last_with_name(self, key: str) -> Header | None:
        """The last header with a key, or None."""
        return next((header for header in reversed(self._headers) if header.key == key), None)

    def add(self, key: str | Header, value: object = None, schema: Schema | None = None) -> ConnectHeaders:
        """Appends a header: a ``Header``, or a key with a value and its schema.

        Raises:
            DataException: The value is not of the schema's type.
        """
        if isinstance(key, Header):
            self._headers.append(key)
            return self
        if schema is not None:
            _check_fits(schema, value)
        self._headers.append(Header(key, value, schema))
        return self

    def add_string(self, key: str, value: str | None) -> ConnectHeaders:
        """Adds a STRING."""
        return self._put(key, value, OPTIONAL_STRING_SCHEMA if value is None else STRING_SCHEMA)

    def add_bytes(self, key: str, value: bytes | None) -> ConnectHeaders:
        """Adds BYTES."""
        return self._put(key, value, OPTIONAL_BYTES_SCHEMA if value is None else BYTES_SCHEMA)

    def add_boolean(self, key: str, value: bool) -> ConnectHeaders:
        """Adds a BOOLEAN."""
        return self._put(key, value, BOOLEAN_SCHEMA)

    def add_byte(self, key: str, value: int) -> ConnectHeaders:
        """Adds an INT8."""
        return self.add(key, value, INT8_SCHEMA)

    def add_short(self, key: str, value: int) -> ConnectHeaders:
        """Adds an INT16."""
        return self.add(key, value, INT16_SCHEMA)

    def add_int(self, key: str, value: int) -> ConnectHeaders:
        """Adds an INT32."""
        return self.add(key, value, INT32_SCHEMA)

    def add_long(self, key: str, value: int) -> ConnectHeaders:
        """Adds an INT64."""
        return self.add(key, value, INT64_SCHEMA)

    def add_float(self, key: str, value: float) -> ConnectHeaders:
        """Adds a FLOAT32."""
        return self._put(key, float(value), FLOAT32_SCHEMA)

    def add_double(self, key: str, value: float) -> ConnectHeaders:
        """Adds a FLOAT64."""
        return self._put(key, float(value), FLOAT64_SCHEMA)

    def add_list(self, key: str, value: list[object] | None, schema: Schema | None) -> ConnectHeaders:
        """Adds an ARRAY; a null value has no schema."""
        return self._add_typed(key, value, schema, Type.ARRAY)

    def add_map(self, key: str, value: dict[object, object] | None, schema: Schema | None) -> ConnectHeaders:
        """Adds a MAP; a null value has no schema."""
        return self._add_typed(key, value, schema, Type.MAP)

    def add_struct(self, key: str, value: Struct | None) -> ConnectHeaders:
        """Adds a STRUCT; a null value has no schema."""
        return self._put(key, value, None if value is None else value.schema)

    def add_decimal(self, key: str, value: decimal.Decimal | None) -> ConnectHeaders:
        """Adds a Decimal with the scale of the value; a null value has no schema."""
        if value is None:
            return self._put(key, None, None)
        exponent = value.as_tuple().exponent
        if not isinstance(exponent, int):
            raise DataException(f"Decimal value {value} has no finite value and cannot be a header")
        return self._put(key, value, Decimal.schema(-exponent))

    def add_date(self, key: str, value: date | int | None) -> ConnectHeaders:
        """Adds a Date."""
        if value is not None:
            Date.from_logical(Date.SCHEMA, value)
        return self._put(key, value, Date.SCHEMA)

    def add_time(self, key: str, value: time | int | None) -> ConnectHeaders:
        """Adds a Time."""
        if value is not None:
            Time.from_logical(Time.SCHEMA, value)
        return self._put(key, value, Time.SCHEMA)

    def add_timestamp(self, key: str, value: datetime | int | None) -> ConnectHeaders:
        """Adds a Timestamp."""
        if value is not None:
            Timestamp.from_logical(Timestamp.SCHEMA, value)
        return self._put(key, value, Timestamp.SCHEMA)

    def remove(self, key: str) -> ConnectHeaders:
        """Removes all headers with a key."""
        self._headers = [header for header in self._headers if header.key != key]
        return self

    def retain_latest(self, key: str | None = None) -> ConnectHeaders:
        """Removes all headers except the last one of a key, or of each key."""
        seen: set[str] = set()
        kept: list[Header] = []
        for header in reversed(self._headers):
            if (key is None or header.key == key) and header.key in seen:
                continue
            seen.add(header.key)
            kept.append(header)
        kept.reverse()
        self._headers = kept
        return self

    def clear(self) -> ConnectHeaders:
        """Removes all headers."""
        self._headers = []
        return self

    def duplicate(self) -> ConnectHeaders:
        """A copy; changes to it do not affect the original."""
        copy = ConnectHeaders.__new__(ConnectHeaders)
        copy._headers = self._headers.copy()
        return copy

    def apply(self, transform: Callable[[Header], Header | None], key: str | None = None) -> ConnectHeaders:
        """Replaces each header (of a key, or all) by the result of ``transform``; None removes the header."""
        changed = (transform(h) if key is None or h.key == key else h for h in self._headers)
        self._headers = [header for header in changed if header is not None]
        return self

    def _put(self, key: str, value: object, schema: Schema | None) -> ConnectHeaders:
        self._headers.append(Header(key, value, schema))
        return self

    def _add_typed(self, key: str, value: object, schema: Schema | None, kind: Type) -> ConnectHeaders:
        if value is None:
            return self._put(key, None, None)
        if schema is None or schema.type is not kind:
            found = "no schema" if schema is None else schema.type.name
            raise DataException(f"Expecting {kind.name} but instead found {found}")
        return self._put(key, value, schema)

    def __iter__(self) -> Iterator[Header]:
        return iter(self._headers)

    def __len__(self) -> int:
        return len(self._headers)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConnectHeaders):
            return NotImplemented
        return self._headers == other._headers

    # Mutable, like a list.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ConnectHeaders({self._headers!r})"


def _check_fits(schema: Schema, value: object) -> None:
    if value is None:
        if not schema.optional:
            raise DataException(f"A null value requires an optional schema but was {schema}")
        return
    # Only the outermost type is checked, as in Java: the elements of an array may differ from its schema.
    if schema.type is Type.ARRAY or schema.type is Type.MAP or schema.type is Type.STRUCT:
        expected = {Type.ARRAY: list, Type.MAP: dict, Type.STRUCT: Struct}[schema.type]
        if isinstance(value, expected):
            return
        raise DataException(f"The value {value} is not compatible with the schema {schema}")
    check_value(schema, value, "header value")
