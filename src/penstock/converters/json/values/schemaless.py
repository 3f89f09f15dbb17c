"""Schemaless values as JSON and back, for values that go record by record.

``read_schemaless`` and ``write_schemaless`` use a parser and a writer in C. What these read or write in another way
than Java, a large integer or a character beyond U+FFFF say, takes ``reading`` and ``writing``.

Thread: pure functions.
Source: org.apache.kafka.connect.json.JsonConverter.
"""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

from penstock.converters.json.values.reading import read_value
from penstock.converters.json.values.tree import first_json
from penstock.converters.json.values.writing import UntypedValueError, place_of_untyped, write_value
from penstock.errors import DataException

_MAX: Final = 2**63
_TEXT: Final = frozenset((str,))
#: Bytes of characters beyond U+FFFF, and escapes with digits, which Java writes as capitals.
_OTHERWISE: Final = re.compile(rb"[\xf0-\xff]|\\u")
#: What both write without an exponent.
_LOW, _HIGH = 1e-3, 1e7


def read_schemaless(data: bytes) -> object:
    """The value of the first JSON value in a message; None for a blank one.

    Raises:
        ValueError: It does not begin with a JSON value.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return read_value(None, first_json(data))
    return value if _is_exact(value) else read_value(None, first_json(data))


def _is_exact(value: Any) -> bool:
    """True if a value is what Java reads: integers wrap to 64 bits, and there is no minus zero."""
    kind = type(value)
    if kind is dict:
        return all(map(_is_exact, value.values()))
    if kind is list:
        return all(map(_is_exact, value))
    if kind is int:
        return bool(-_MAX <= value < _MAX)
    # What is too large for an integer is a float here.
    return kind is not float or bool(value != 0 and -_MAX < value < _MAX)


def write_schemaless(value: object, *, numeric: bool, defaults: bool) -> bytes:
    """The JSON of a value. Maps are in the order of their keys, however many records come with them.

    Raises:
        DataException: It, or a part of it, has no JSON.
    """
    if _is_plain(value):
        try:
            data = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        except orjson.JSONEncodeError:
            pass  # half of a surrogate pair, or too deep
        else:
            if not _OTHERWISE.search(data):
                return data
    try:
        return write_value(None, value, numeric=numeric, defaults=defaults).encode()
    except UntypedValueError as error:
        place = place_of_untyped(value)
        where = "" if place is None else f" It is the value of {place}."
        raise DataException(
            f"{error}{where} Give it a type with a schema (value_schema of the record or frame, a table with typed "
            "columns), or make text or a number of it"
        ) from None


def _is_plain(value: Any) -> bool:
    """True if the writer in C writes everything but texts as Java does."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return True
    if kind is dict:
        return {*map(type, value)} <= _TEXT and all(map(_is_plain, value.values()))
    if kind is list:
        return all(map(_is_plain, value))
    if kind is int:
        return bool(-_MAX <= value < _MAX)
    return kind is float and (value == 0 or _LOW <= value < _HIGH or -_HIGH < value <= -_LOW)
