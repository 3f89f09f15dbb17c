"""Logical types as Protobuf messages: confluent.type.Decimal, google.type.Date, TimeOfDay, and
google.protobuf.Timestamp.

Main tables: ``LOGICAL_READERS`` by message type, ``LOGICAL_WRITERS`` by schema name. Thread: pure functions.
Source: io.confluent.connect.protobuf.ProtobufData; DecimalUtils; com.google.protobuf.util.Timestamps.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from typing import Any, Final

from penstock.converters.registry.protobuf.names import DATE, DECIMAL, TIME, TIMESTAMP
from penstock.data import Date, Decimal, Schema, Time, Timestamp
from penstock.errors import DataException

_EXACT: Final = decimal.Context(prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
_NANOS_A_MILLI: Final = 1_000_000
#: The years 1 to 9999, in seconds since 1970.
_FIRST_SECOND: Final = -62_135_596_800
_LAST_SECOND: Final = 253_402_300_799


# ------------------------------------------------------------------------------------------------ reading
def _read_decimal(schema: Schema, value: Any) -> Any:
    number = decimal.Decimal(int.from_bytes(value.value, "big", signed=True)).scaleb(-value.scale, _EXACT)
    if value.precision and len(number.as_tuple().digits) > value.precision:
        context = decimal.Context(prec=value.precision, rounding=decimal.ROUND_HALF_UP)
        return context.plus(number)
    return number


def _read_date(schema: Schema, value: Any) -> Any:
    try:
        return date(value.year, value.month, value.day)
    except ValueError as error:
        raise DataException(f"{value.year}-{value.month}-{value.day} is no date from year 1 to 9999") from error


def _read_time(schema: Schema, value: Any) -> Any:
    hours, minutes, seconds, nanos = value.hours, value.minutes, value.seconds, value.nanos
    if not (0 <= hours < 24 and 0 <= minutes < 60 and 0 <= seconds < 60 and 0 <= nanos < 1_000_000_000):
        raise DataException(f"{hours}:{minutes}:{seconds} and {nanos} nanoseconds is no time of a day")
    return Time.to_logical(schema, ((hours * 60 + minutes) * 60 + seconds) * 1000 + nanos // _NANOS_A_MILLI)


def _read_timestamp(schema: Schema, value: Any) -> Any:
    return Timestamp.to_logical(schema, _timestamp_millis(value.seconds, value.nanos))


def _timestamp_millis(seconds: int, nanos: int) -> int:
    """Milliseconds since 1970 of a timestamp that Protobuf's own library accepts."""
    if not (_FIRST_SECOND <= seconds <= _LAST_SECOND and 0 <= nanos < 1_000_000_000):
        raise DataException(
            f"{seconds} seconds since 1970 and {nanos} nanoseconds is no Protobuf timestamp: those are of the "
            "years 1 to 9999"
        )
    return seconds * 1000 + nanos // _NANOS_A_MILLI


#: Values of messages of these types.
LOGICAL_READERS: Final[Mapping[str, Callable[[Schema, Any], Any]]] = {
    DECIMAL: _read_decimal,
    DATE: _read_date,
    TIME: _read_time,
    TIMESTAMP: _read_timestamp,
}


# ------------------------------------------------------------------------------------------------ writing
def _write_decimal(schema: Schema, target: Any, value: Any) -> None:
    if not isinstance(value, decimal.Decimal):
        raise DataException(f"Invalid type for Decimal, expected BigDecimal but was {type(value).__name__}")
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise DataException(f"Decimal value {value} has no finite value and cannot be encoded")
    unscaled = int(decimal.Decimal((sign, digits, 0)))
    bits = (~unscaled if unscaled < 0 else unscaled).bit_length()
    target.value = unscaled.to_bytes(bits // 8 + 1, "big", signed=True)
    target.precision = len(digits)
    target.scale = -exponent


def _write_date(schema: Schema, target: Any, value: Any) -> None:
    if isinstance(value, int):
        value = Date.to_logical(schema, value)
    elif isinstance(value, datetime):
        value = Date.to_logical(schema, Date.from_logical(schema, value))
    if not isinstance(value, date):
        raise DataException(f"Invalid date {value}: Protobuf's go from year 1 to 9999")
    target.year, target.month, target.day = value.year, value.month, value.day


def _write_time(schema: Schema, target: Any, value: Any) -> None:
    if not isinstance(value, (time, int)):
        raise DataException(f"Invalid type for Time, expected Date but was {type(value).__name__}")
    seconds, millis = divmod(Time.from_logical(schema, value), 1000)
    minutes, target.seconds = divmod(seconds, 60)
    target.hours, target.minutes = divmod(minutes, 60)
    target.nanos = millis * _NANOS_A_MILLI


def _write_timestamp(schema: Schema, target: Any, value: Any) -> None:
    if not isinstance(value, (datetime, int)):
        raise DataException(f"Invalid type for Timestamp, expected Date but was {type(value).__name__}")
    seconds, millis = divmod(Timestamp.from_logical(schema, value), 1000)
    _timestamp_millis(seconds, 0)
    target.seconds = seconds
    target.nanos = millis * _NANOS_A_MILLI


#: Puts values of schemas of these names into messages.
LOGICAL_WRITERS: Final[Mapping[str | None, Callable[[Schema, Any, Any], None]]] = {
    Decimal.LOGICAL_NAME: _write_decimal,
    Date.LOGICAL_NAME: _write_date,
    Time.LOGICAL_NAME: _write_time,
    Timestamp.LOGICAL_NAME: _write_timestamp,
}
