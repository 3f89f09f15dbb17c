"""Converts schemaless values to JSON and back, for the path of single records.

``read_schemaless`` and ``write_schemaless`` use a parser and a writer in C. ``reading`` and ``writing`` handle values
where these differ from Java, such as large integers or characters beyond U+FFFF.

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
#: Bytes of characters beyond U+FFFF, and escapes with letters as digits, which Java writes in upper case.
_OTHERWISE: Final = re.compile(rb"[\xf0-\xff]|\\u")
#: Floats in this range have no exponent in either writer.
_LOW, _HIGH = 1e-3, 1e7


def read_schemaless(data: bytes) -> object:
    """The value of the first JSON value in a message; None for a blank message.

    Raises:
        ValueError: The message does not begin with a JSON value.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return read_value(None, first_json(data))
    return value if _is_exact(value) else read_value(None, first_json(data))


def _is_exact(value: Any) -> bool:
    """True if Java reads the same value: Java wraps integers to 64 bits and has no minus zero."""
    kind = type(value)
    if kind is dict:
        return all(map(_is_exact, value.values()))
    if kind is list:
        return all(map(_is_exact, value))
    if kind is int:
        return bool(-_MAX <= value < _MAX)
    # This parser returns a float for a number that is too large for an integer.
    return kind is not float or bool(value != 0 and -_MAX < value < _MAX)


def write_schemaless(value: object, *, numeric: bool, defaults: bool) -> bytes:
    """The JSON of a value. Maps are sorted by key, independent of the batch.

    Raises:
        DataException: The value, or a part of it, cannot be expressed in JSON.
    """
    if _is_plain(value):
        try:
            data = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        except orjson.JSONEncodeError:
            pass  # Half of a surrogate pair, or nested too deeply.
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
    """True if the writer in C writes the value like Java, apart from its texts."""
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
