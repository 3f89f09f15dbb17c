"""The Java class of a value, as Java's messages name it.

Functions ``java_class`` (by schema) and ``java_class_of_value``.

Thread: constants and pure functions.
"""

from __future__ import annotations

import datetime
import decimal
from typing import Final

from penstock.data import FarDate, FarTime, FarTimestamp, Schema, Struct, Type
from penstock.data.text import Float32
from penstock.pipeline.columns.layout import is_decimal, logical_name

_CLASSES: Final = {
    Type.INT8: "java.lang.Byte",
    Type.INT16: "java.lang.Short",
    Type.INT32: "java.lang.Integer",
    Type.INT64: "java.lang.Long",
    Type.FLOAT32: "java.lang.Float",
    Type.FLOAT64: "java.lang.Double",
    Type.BOOLEAN: "java.lang.Boolean",
    Type.STRING: "java.lang.String",
    Type.BYTES: "[B",
    Type.ARRAY: "java.util.ArrayList",
    Type.MAP: "java.util.HashMap",
    Type.STRUCT: "org.apache.kafka.connect.data.Struct",
}
_PYTHON_CLASSES: Final[dict[type, str]] = {
    bool: "java.lang.Boolean",
    int: "java.lang.Long",
    float: "java.lang.Double",
    Float32: "java.lang.Float",
    str: "java.lang.String",
    bytes: "[B",
    list: "java.util.ArrayList",
    dict: "java.util.HashMap",
    Struct: "org.apache.kafka.connect.data.Struct",
    decimal.Decimal: "java.math.BigDecimal",
    datetime.date: "java.util.Date",
    datetime.time: "java.util.Date",
    datetime.datetime: "java.util.Date",
    FarDate: "java.util.Date",
    FarTime: "java.util.Date",
    FarTimestamp: "java.util.Date",
}


def java_class(schema: Schema) -> str:
    """The Java class of the values of a schema."""
    if is_decimal(schema):
        return "java.math.BigDecimal"
    return _CLASSES[schema.type] if logical_name(schema) is None else "java.util.Date"


def java_class_of_value(value: object, schema: Schema | None = None) -> str:
    """The Java class of a value, ``null`` for null.

    A subclass of a number says by ``connect_type`` how wide it is, as for ``infer_schema``.
    """
    if value is None:
        return "null"
    if schema is not None:
        return java_class(schema)
    kind = type(value)
    width = getattr(kind, "connect_type", None)
    return _CLASSES[width] if width in _CLASSES else _PYTHON_CLASSES.get(kind, kind.__name__)
