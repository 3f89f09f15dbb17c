"""The rules that the formats of a schema registry have in common.

Invalid Unicode is treated as in Java: invalid bytes are read as U+FFFD (``REPLACE``, an error handler for decoding),
half a surrogate pair is written as ``?``.

Source: java.lang.String, the constructor from bytes and getBytes with StandardCharsets.UTF_8.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn
from urllib.parse import quote

from penstock.data import Date, Decimal, Schema, Struct, Time, Timestamp, Type
from penstock.errors import DataException

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


LOGICAL: Final[Mapping[str | None, Any]] = {one.LOGICAL_NAME: one for one in (Decimal, Date, Time, Timestamp)}
INTEGER_BITS: Final = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}


_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9_]", re.ASCII)


def scrubbed(name: str, *, may_begin: str = "") -> str:
    """Turns a text into a valid name of Avro, where it ``may_begin`` with ``_``, or of Protobuf.

    >>> scrubbed("a-b c"), scrubbed("3d"), scrubbed("\u00e4"), scrubbed("_id"), scrubbed("_id", may_begin="_")
    ('a_b_c', 'x3d', '_C3_A4', 'x_id', '_id')
    """
    if not name or (_PLAIN.fullmatch(name) and (name[0] != "_" or may_begin)):
        return name
    encoded = quote(name, safe="*", errors="replace").replace("~", "%7E").replace("%20", "+")
    odd = encoded[0].isdigit() or (encoded[0] == "_" and not may_begin)
    return _NOT_PLAIN.sub("_", f"x{encoded}" if odd else encoded)


def value_part(whole: Schema) -> Schema:
    """The schema of an array's elements or a map's values."""
    return _part(whole, whole.value_schema)


def key_part(whole: Schema) -> Schema:
    """The schema of a map's keys."""
    return _part(whole, whole.key_schema)


def _part(whole: Schema, part: Schema | None) -> Schema:
    if part is None:
        raise DataException(f"{whole} does not say of which type its elements are; give them a schema")
    return part


def refuse(kind: Type, value: object) -> NoReturn:
    """Raises the error for a value of another type than its schema's."""
    raise DataException(f"Invalid type for {kind.name}: {type(value).__name__}")


def check_struct(schema: Schema, value: Any, mismatch: str) -> None:
    """Refuses a value that is no struct of a schema."""
    if not isinstance(value, Struct):
        refuse(Type.STRUCT, value)
    if value.schema is not schema and value.schema != schema:
        raise DataException(mismatch)


def check_logical(name: str, value: object, *classes: type) -> None:
    """Refuses a value of a logical type that is of none of these classes, which Java calls BigDecimal and Date."""
    if not isinstance(value, classes) or isinstance(value, bool):
        expected = "BigDecimal" if name == "Decimal" else "Date"
        raise DataException(f"Invalid type for {name}, expected {expected} but was {type(value).__name__}")


def shape(schema: Schema, marks: Sequence[str]) -> object:
    """The names and types of all parts, without documentation, version, default, and parameters without one of these
    prefixes.
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
