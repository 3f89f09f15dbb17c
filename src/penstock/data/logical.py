"""Logical types: values with a special meaning, stored as a primitive type and identified by the schema's name.

========== ====== ======================= ==================================================================
class      type   Python value            stored as
========== ====== ======================= ==================================================================
Decimal    BYTES  ``decimal.Decimal``     two's complement, big endian, of the unscaled value; parameter scale
Date       INT32  ``datetime.date``       days since 1970-01-01
Time       INT32  ``datetime.time``       milliseconds since midnight
Timestamp  INT64  aware ``datetime``      milliseconds since 1970-01-01T00:00Z
========== ====== ======================= ==================================================================

Connect's range is wider than Python's. A value outside Python's range is a ``FarDate``, ``FarTime`` or
``FarTimestamp``: the stored number as an int whose class names the type when there is no schema. With a schema a plain
int is also accepted.

Owning thread: none; pure functions and immutable values.
"""

from __future__ import annotations

import decimal
from datetime import UTC, date, datetime, time, timedelta
from typing import ClassVar, Final

from penstock.data.schema import Schema, SchemaBuilder
from penstock.errors import DataException

MILLIS_PER_DAY: Final = 86_400_000


class FarMoment(int):
    """A date, time or timestamp outside Python's range: the stored number, as an int with a type.

    Source: Penstock's own; Java uses java.util.Date for all.
    """

    __slots__ = ()

    @property
    def millis(self) -> int:
        """Milliseconds since 1970, or of the day."""
        return int(self)

    def __str__(self) -> str:
        return int.__repr__(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int(self)})"


class FarDate(FarMoment):
    """A Date outside the years 1 to 9999: days since 1970-01-01.

    >>> FarDate(2_932_897), FarDate(2_932_897) == 2_932_897
    (FarDate(2932897), True)

    Source: Penstock's own; in Java a java.util.Date.
    """

    __slots__ = ()

    @property
    def millis(self) -> int:
        """See ``FarMoment``."""
        return int(self) * MILLIS_PER_DAY


class FarTime(FarMoment):
    """A Time, in milliseconds, that Python cannot represent. The only valid one is 24:00, the end of the day.

    Source: Penstock's own; in Java a java.util.Date.
    """

    __slots__ = ()


class FarTimestamp(FarMoment):
    """A Timestamp outside the years 1 to 9999: milliseconds since 1970-01-01T00:00Z.

    Source: Penstock's own; in Java a java.util.Date.
    """

    __slots__ = ()


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = _EPOCH.toordinal()
_MILLI: Final = timedelta(milliseconds=1)
_EXACT: Final = decimal.Context(prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


class Decimal:
    """An exact number with a fixed number of decimal places, the ``scale``.

    Source: org.apache.kafka.connect.data.Decimal.
    """

    LOGICAL_NAME: ClassVar[str] = "org.apache.kafka.connect.data.Decimal"
    SCALE_FIELD: ClassVar[str] = "scale"

    @classmethod
    def builder(cls, scale: int) -> SchemaBuilder:
        """A builder for this schema, to add ``optional`` or a default."""
        return SchemaBuilder.bytes().name(cls.LOGICAL_NAME).parameter(cls.SCALE_FIELD, str(scale)).version(1)

    @classmethod
    def schema(cls, scale: int) -> Schema:
        """The required schema with this scale."""
        return cls.builder(scale).build()

    @classmethod
    def scale(cls, schema: Schema) -> int:
        """The scale of a schema.

        Raises:
            DataException: The schema has no scale, or one that is not an integer.
        """
        text = (schema.parameters or {}).get(cls.SCALE_FIELD)
        if text is None:
            raise DataException("Invalid Decimal schema: scale parameter not found.")
        try:
            return int(text)
        except ValueError as problem:
            raise DataException("Invalid scale parameter found in Decimal schema: ") from problem

    @classmethod
    def from_logical(cls, schema: Schema, value: decimal.Decimal) -> bytes:
        """Encodes a number as bytes.

        Raises:
            DataException: The number has another scale than the schema, or is not finite.

        >>> Decimal.from_logical(Decimal.schema(2), decimal.Decimal("1.56"))
        b'\\x00\\x9c'
        """
        sign, digits, exponent = value.as_tuple()
        if not isinstance(exponent, int):
            raise DataException(f"Decimal value {value} has no finite value and cannot be encoded")
        schema_scale = cls.scale(schema)
        if -exponent != schema_scale:
            raise DataException(
                f"Decimal value has mismatching scale for given Decimal schema. "
                f"Schema has scale {schema_scale}, value has scale {-exponent}."
            )
        # Not int("".join(digits)): Python refuses to parse more than 4300 digits.
        unscaled = int(decimal.Decimal((sign, digits, 0)))
        negative_bits = (~unscaled if unscaled < 0 else unscaled).bit_length()
        return unscaled.to_bytes(negative_bits // 8 + 1, "big", signed=True)

    @classmethod
    def to_logical(cls, schema: Schema, value: bytes) -> decimal.Decimal:
        """Decodes the bytes of a number.

        >>> Decimal.to_logical(Decimal.schema(2), b"\\x00\\x9c")
        Decimal('1.56')
        """
        unscaled = int.from_bytes(value, "big", signed=True)
        return decimal.Decimal(unscaled).scaleb(-cls.scale(schema), _EXACT)


class Date:
    """A calendar date without time zone. Source: org.apache.kafka.connect.data.Date."""

    LOGICAL_NAME: ClassVar[str] = "org.apache.kafka.connect.data.Date"
    SCHEMA: ClassVar[Schema]

    @classmethod
    def builder(cls) -> SchemaBuilder:
        """A builder for this schema, to add ``optional`` or a default."""
        return SchemaBuilder.int32().name(cls.LOGICAL_NAME).version(1)

    @classmethod
    def schema(cls) -> Schema:
        """The required schema."""
        return cls.SCHEMA

    @classmethod
    def from_logical(cls, schema: Schema, value: date | int) -> int:
        """Days since 1970-01-01.

        Raises:
            DataException: The schema is not of this type, or the value has a time part.

        >>> Date.from_logical(Date.SCHEMA, date(1970, 2, 1))
        31
        """
        _check_name(cls.LOGICAL_NAME, schema, "Date")
        if isinstance(value, datetime):
            millis = _epoch_millis(value)
            if millis % MILLIS_PER_DAY:
                raise DataException("Kafka Connect Date type should not have any time fields set to non-zero values.")
            return millis // MILLIS_PER_DAY
        return value.toordinal() - _EPOCH_DAY if isinstance(value, date) else _number(value, "Date")

    @classmethod
    def to_logical(cls, schema: Schema, value: int) -> date | FarDate:
        """The date this many days after 1970-01-01; a ``FarDate`` outside the years 1 to 9999."""
        _check_name(cls.LOGICAL_NAME, schema, "Date")
        try:
            return date.fromordinal(value + _EPOCH_DAY)
        except (ValueError, OverflowError):
            return FarDate(value)


class Time:
    """A time of day without time zone. Source: org.apache.kafka.connect.data.Time."""

    LOGICAL_NAME: ClassVar[str] = "org.apache.kafka.connect.data.Time"
    SCHEMA: ClassVar[Schema]

    @classmethod
    def builder(cls) -> SchemaBuilder:
        """A builder for this schema, to add ``optional`` or a default."""
        return SchemaBuilder.int32().name(cls.LOGICAL_NAME).version(1)

    @classmethod
    def schema(cls) -> Schema:
        """The required schema."""
        return cls.SCHEMA

    @classmethod
    def from_logical(cls, schema: Schema, value: time | int) -> int:
        """Milliseconds since midnight; smaller units are cut off.

        Raises:
            DataException: The schema is not of this type, or the number is not within one day.

        >>> Time.from_logical(Time.SCHEMA, time(0, 0, 1, 500_000))
        1500
        """
        _check_name(cls.LOGICAL_NAME, schema, "Time")
        if isinstance(value, time):
            return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000
        millis = _number(value, "Time")
        if not 0 <= millis <= MILLIS_PER_DAY:
            raise DataException("Kafka Connect Time type should not have any date fields set to non-zero values.")
        return millis

    @classmethod
    def to_logical(cls, schema: Schema, value: int) -> time | FarTime:
        """The time this many milliseconds after midnight; a ``FarTime`` for exactly one day.

        Raises:
            DataException: The schema is not of this type, or the number is not within one day.
        """
        _check_name(cls.LOGICAL_NAME, schema, "Time")
        if not 0 <= value <= MILLIS_PER_DAY:
            raise DataException(
                f"Time values must use number of milliseconds greater than 0 and less than {MILLIS_PER_DAY}"
            )
        if value == MILLIS_PER_DAY:
            return FarTime(value)
        return (_EPOCH + value * _MILLI).time()


class Timestamp:
    """A moment, to the millisecond. Source: org.apache.kafka.connect.data.Timestamp."""

    LOGICAL_NAME: ClassVar[str] = "org.apache.kafka.connect.data.Timestamp"
    SCHEMA: ClassVar[Schema]

    @classmethod
    def builder(cls) -> SchemaBuilder:
        """A builder for this schema, to add ``optional`` or a default."""
        return SchemaBuilder.int64().name(cls.LOGICAL_NAME).version(1)

    @classmethod
    def schema(cls) -> Schema:
        """The required schema."""
        return cls.SCHEMA

    @classmethod
    def from_logical(cls, schema: Schema, value: datetime | int) -> int:
        """Milliseconds since 1970-01-01T00:00Z; smaller units are rounded towards the past.

        Raises:
            DataException: The schema is not of this type, or the datetime has no time zone.

        >>> Timestamp.from_logical(Timestamp.SCHEMA, datetime(1970, 1, 1, 0, 1, tzinfo=UTC))
        60000
        """
        _check_name(cls.LOGICAL_NAME, schema, "Timestamp")
        return _epoch_millis(value) if isinstance(value, datetime) else _number(value, "Timestamp")

    @classmethod
    def to_logical(cls, schema: Schema, value: int) -> datetime | FarTimestamp:
        """The moment in UTC; a ``FarTimestamp`` outside the years 1 to 9999."""
        _check_name(cls.LOGICAL_NAME, schema, "Timestamp")
        try:
            return _EPOCH + value * _MILLI
        except OverflowError:
            return FarTimestamp(value)


def _epoch_millis(value: datetime) -> int:
    if value.tzinfo is None:
        raise DataException(f"The datetime {value} names no time zone; use datetime(..., tzinfo=timezone.utc)")
    return (value - _EPOCH) // _MILLI


def _number(value: int, what: str) -> int:
    """A number of days or milliseconds; rejects booleans, which are ints in Python."""
    if isinstance(value, bool):
        raise DataException(f"Invalid type for {what}, expected Date but was bool")
    return int(value) if isinstance(value, FarMoment) else value


def _check_name(logical_name: str, schema: Schema, what: str) -> None:
    if schema.name != logical_name:
        raise DataException(f"Requested conversion of {what} object but the schema does not match.")


Date.SCHEMA = Date.builder().build()
Time.SCHEMA = Time.builder().build()
Timestamp.SCHEMA = Timestamp.builder().build()

LOGICAL_NAMES: Final = frozenset({Decimal.LOGICAL_NAME, Date.LOGICAL_NAME, Time.LOGICAL_NAME, Timestamp.LOGICAL_NAME})
