"""The rules that the formats of a schema registry have in common: types of one name, and invalid Unicode.

Invalid Unicode is treated as in Java: invalid bytes are read as U+FFFD (``REPLACE``, an error handler for decoding),
half a surrogate pair is written as ``?``.

Source: java.lang.String, the constructor from bytes and getBytes with StandardCharsets.UTF_8.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from typing import Any, Final

from penstock.data import Decimal, Schema, Struct, Type

REPLACE: Final = "penstock-java"
_HALF: Final = re.compile("[\ud800-\udfff]")


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    start = error.start
    half = error.object[start : start + 3]
    # The three bytes of half a pair are one invalid character in Java, and three in Python.
    whole = len(half) == 3 and half[0] == 0xED and half[1] >= 0xA0 and 0x80 <= half[1] <= 0xBF and half[2] >> 6 == 2
    return "\ufffd", start + 3 if whole else error.end


codecs.register_error(REPLACE, _replace)


def without_halves(node: Any) -> Any:
    """Replaces halves of surrogate pairs by ``?`` in all texts of a value, at every depth.

    >>> without_halves({"a": ["x\\ud800y"]})
    {'a': ['x?y']}
    """
    if isinstance(node, str):
        return _HALF.sub("?", node)
    if isinstance(node, Struct):
        return Struct.unchecked(node.schema, [without_halves(one) for one in node.values])
    if isinstance(node, dict):
        return {without_halves(name): without_halves(one) for name, one in node.items()}
    if isinstance(node, (list, tuple)):
        return type(node)(map(without_halves, node))
    return node


def shape(schema: Schema, marks: Sequence[str]) -> object:
    """The names and types of all parts, without documentation, version, default and parameters.

    Args:
        schema: The schema; its own optionality is ignored.
        marks: Prefixes of parameters that count, because they make a different type.
    """
    kind = schema.type
    parts: object = None
    if kind is Type.STRUCT:
        parts = tuple((one.name, one.schema.optional, shape(one.schema, marks)) for one in schema.fields)
    elif kind in (Type.ARRAY, Type.MAP):
        inner = [schema.value_schema] if kind is Type.ARRAY else [schema.key_schema, schema.value_schema]
        parts = tuple(one and (one.optional, shape(one, marks)) for one in inner)
    said = tuple(one for one in (schema.parameters or {}).items() if one[0].startswith((*marks, Decimal.SCALE_FIELD)))
    return kind, schema.name, parts, said
