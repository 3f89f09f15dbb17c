"""Java's text of typed columns and of many schemaless values, as ``to_java_text`` prints it, in a third of the time.

Values without schemas are printed kind by kind, and maps with the same keys together, one key after the other. Typed
columns that were read before Spark are printed by Arrow, in a fraction of what a plan takes; the text is that of
``penstock.pipeline.plan.frame_values``, for the kinds that JSON has. Java and Arrow print the same shortest digits of a
number, but lay them out in different ways. The names of Java's classes, as its messages have them, are here too.

Source: java.lang.Double.toString and java.lang.Float.toString of Java 19.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data import FarDate, FarTime, FarTimestamp, Schema, Struct, Type
from penstock.data.text import PLAIN_FROM, PLAIN_TO, Float32, hash_map_order, java_double, java_float, to_java_text
from penstock.pipeline.columns.layout import Layout, LayoutKind, is_decimal, logical_name

_WHOLE: Final = frozenset({Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.BOOLEAN})


def text_of(column: pa.Array, schema: Schema, physical: Layout) -> pa.StringArray | None:
    """The text of each value, null for null; None = the column has a kind that has to go through Spark.

    An object prints as a map, a struct as a ``Struct``.
    """
    match physical.form:
        case LayoutKind.SCALAR if schema.name is None:
            return _scalar_text(column, schema)
        case LayoutKind.ARRAY:
            return _array_text(column, schema, physical)
        case LayoutKind.OBJECT:
            return _object_text(column, schema, physical)
        case LayoutKind.STRUCT:
            return _struct_text(column, schema, physical)
        case _:
            return None


def _scalar_text(column: pa.Array, schema: Schema) -> pa.StringArray | None:
    if schema.type is Type.STRING:
        return column
    if schema.type in _WHOLE:
        return column.cast(pa.string())
    return float_texts(column) if schema.type is Type.FLOAT64 else None


def _array_text(column: pa.ListArray, schema: Schema, physical: Layout) -> pa.StringArray | None:
    assert schema.value_schema is not None, "an array has items"
    # The items of the lists that are not null, one after the other.
    texts = text_of(column.flatten(), schema.value_schema, physical.children[0])
    if texts is None:
        return None
    ends = np.concatenate([[0], np.cumsum(pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False))])
    lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), texts.fill_null("null"))
    return _there(_joined("[", pc.binary_join(lists, ", "), "]"), column)


def _object_text(column: pa.StructArray, schema: Schema, physical: Layout) -> pa.StringArray | None:
    texts = _field_texts(column, schema, physical)
    if texts is None:
        return None
    parts: list[pa.Array | str] = []
    for index, name in enumerate(hash_map_order(tuple(texts))):
        parts += [f"{', ' if index else '{'}{name}=", texts[name].fill_null("null")]
    return _there(_joined(*parts, "}") if parts else _every(column, "{}"), column)


def _struct_text(column: pa.StructArray, schema: Schema, physical: Layout) -> pa.StringArray | None:
    texts = _field_texts(column, schema, physical)
    if texts is None:
        return None
    if not texts:
        return _there(_every(column, "Struct{}"), column)
    # What is null is left out with its name, and the comma in front of it.
    fields = _joined(*(_joined(f",{name}=", text).fill_null("") for name, text in texts.items()))
    inner = pc.binary_replace_slice(fields, start=0, stop=1, replacement="")
    return _there(_joined("Struct{", inner, "}"), column)


def _field_texts(column: pa.StructArray, schema: Schema, physical: Layout) -> dict[str, pa.StringArray] | None:
    found: dict[str, pa.StringArray] = {}
    for field, child in zip(schema.fields, physical.children, strict=True):
        text = text_of(pc.struct_field(column, field.name), field.schema, child)
        if text is None:
            return None
        found[field.name] = text
    return found


def _joined(*parts: pa.Array | str) -> pa.StringArray:
    return pc.binary_join_element_wise(*parts, "")


def _every(column: pa.Array, text: str) -> pa.StringArray:
    return pa.array([text] * len(column), pa.string())


def _there(texts: pa.StringArray, column: pa.Array) -> pa.StringArray:
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string())) if column.null_count else texts


#: Below these a number may have so few digits that Java, which prints two at least, takes others than the shortest one.
_COARSE: Final = {pa.float64(): 1e-300, pa.float32(): 1e-37}
_EXPONENT: Final = r"^(?P<sign>-?)(?P<first>\d)(?:\.(?P<rest>\d+))?e(?P<minus>-?)\+?0*(?P<exponent>\d+)$"
_LARGE: Final = r"^(?P<sign>-?)(?P<first>[1-9])(?P<whole>\d+)(?:\.(?P<rest>\d+))?$"
_SMALL: Final = r"^(?P<sign>-?)0\.(?P<zeros>0+)(?P<first>[1-9])(?P<rest>\d*)$"


def float_texts(column: pa.Array) -> pa.StringArray:
    """The text of each number, null for null.

    >>> float_texts(pa.array([1.0, 2.5e7, 0.0, 1e-7, float("nan"), None])).to_pylist()
    ['1.0', '2.5E7', '0.0', '1.0E-7', 'NaN', None]
    """
    sizes = np.abs(column.fill_null(1.0).to_numpy(zero_copy_only=False))
    texts = column.cast(pa.string())
    usual = ((sizes >= PLAIN_FROM) & (sizes < PLAIN_TO)) | (sizes == 0)
    if not usual.all():
        odd = np.flatnonzero(~usual)
        place = np.arange(len(texts))
        place[odd] = len(texts) + np.arange(len(odd))
        made = _odd_texts(column.take(pa.array(odd)), texts.take(pa.array(odd)), sizes[odd])
        texts = pa.concat_arrays([texts, made]).take(pa.array(place))
    whole = pc.and_(pc.equal(pc.find_substring(texts, "."), -1), pa.array(usual))
    return pc.if_else(whole, pc.binary_join_element_wise(texts, ".0", ""), texts) if whole.true_count else texts


def _odd_texts(column: pa.Array, texts: pa.StringArray, sizes: np.ndarray) -> pa.StringArray:
    """The texts of numbers that Java prints with an exponent, or as words."""
    coarse = sizes < _COARSE[column.type]
    made = [_of_words(column), _of_exponents(texts), _of_large(texts), _of_small(texts)]
    if coarse.any():
        one = java_float if pa.types.is_float32(column.type) else java_double
        few = pa.array(np.flatnonzero(coarse))
        alone = pa.array([one(value) for value in column.take(few).to_pylist()], pa.string())
        place = np.zeros(len(column), np.int64)
        place[coarse] = np.arange(len(few))
        made.insert(0, alone.take(pa.array(place, mask=~coarse)))
    return pc.coalesce(*made)


def _of_words(column: pa.Array) -> pa.StringArray:
    infinite = pc.if_else(pc.greater(column, 0), "Infinity", "-Infinity")
    nothing = pa.scalar(None, pa.string())
    return pc.if_else(pc.is_nan(column), "NaN", pc.if_else(pc.is_inf(column), infinite, nothing))


def _of_exponents(texts: pa.StringArray) -> pa.StringArray:
    sign, first, rest, minus, exponent = pc.extract_regex(texts, _EXPONENT).flatten()
    return _scientific(sign, first, rest, pc.binary_join_element_wise(minus, exponent, ""))


def _of_large(texts: pa.StringArray) -> pa.StringArray:
    sign, first, whole, rest = pc.extract_regex(texts, _LARGE).flatten()
    digits = pc.utf8_rtrim(pc.binary_join_element_wise(whole, rest, ""), "0")
    return _scientific(sign, first, digits, pc.binary_length(whole).cast(pa.string()))


def _of_small(texts: pa.StringArray) -> pa.StringArray:
    sign, zeros, first, rest = pc.extract_regex(texts, _SMALL).flatten()
    exponent = pc.binary_join_element_wise("-", pc.add(pc.binary_length(zeros), 1).cast(pa.string()), "")
    return _scientific(sign, first, rest, exponent)


def _scientific(sign: pa.Array, first: pa.Array, rest: pa.Array, exponent: pa.Array) -> pa.StringArray:
    rest = pc.if_else(pc.equal(rest, ""), "0", rest)
    return pc.binary_join_element_wise(sign, first, ".", rest, "E", exponent, "")


#: Fewer maps with the same keys are printed one by one.
_TOGETHER: Final = 4
_BOOLEANS: Final[Mapping[object, str]] = {True: "true", False: "false"}


def java_texts(values: Sequence[Any]) -> Sequence[str]:
    """The texts of values of any kinds that a parser of JSON makes, in their order.

    >>> java_texts([{"source": 1, "line": None}, {"source": 1e7, "line": [True]}, "text"])
    ['{line=null, source=1}', '{line=[true], source=1.0E7}', 'text']

    Raises:
        RecursionError: A value is nested too deeply.
    """
    kinds = {*map(type, values)}
    if len(kinds) == 1:
        return _PRINTERS.get(kinds.pop(), _others)(values)
    found = [""] * len(values)
    for kind in kinds:
        rows = [row for row, value in enumerate(values) if type(value) is kind]
        mine = _PRINTERS.get(kind, _others)([values[row] for row in rows])
        for row, text in zip(rows, mine, strict=True):
            found[row] = text
    return found


def _others(values: Sequence[Any]) -> Sequence[str]:
    return list(map(to_java_text, values))


def _doubles(values: Sequence[float]) -> Sequence[str]:
    sizes = np.abs(np.array(values))
    plain = ((sizes >= PLAIN_FROM) & (sizes < PLAIN_TO)).all()
    return list(map(repr if plain else java_double, values))


def _lists(values: Sequence[list[Any]]) -> Sequence[str]:
    items = java_texts([item for value in values for item in value])
    found: list[str] = []
    at = 0
    for value in values:
        end = at + len(value)
        found.append("[" + ", ".join(items[at:end]) + "]")
        at = end
    return found


def _maps(values: Sequence[dict[str, Any]]) -> Sequence[str]:
    keys = list(map(tuple, values))
    sets = {*keys}
    if len(sets) == 1:
        return _alike(sets.pop(), values)
    found = [""] * len(values)
    rows_of: dict[tuple[str, ...], list[int]] = {}
    for row, names in enumerate(keys):
        rows_of.setdefault(names, []).append(row)
    for names, rows in rows_of.items():
        mine = [values[row] for row in rows]
        texts = _others(mine) if len(mine) < _TOGETHER else _alike(names, mine)
        for row, text in zip(rows, texts, strict=True):
            found[row] = text
    return found


def _alike(names: tuple[str, ...], values: Sequence[dict[str, Any]]) -> Sequence[str]:
    """Maps with these keys in this order."""
    if not names:
        return ["{}"] * len(values)
    columns = dict(zip(names, zip(*map(dict.values, values), strict=True), strict=True))
    parts: list[Iterable[str]] = []
    for index, name in enumerate(hash_map_order(names)):
        parts += [repeat(f"{', ' if index else '{'}{name}="), java_texts(columns[name])]
    # Half the time of a template.
    return list(map("".join, zip(*parts, repeat("}"), strict=False)))


_PRINTERS: Final[Mapping[type, Callable[[Sequence[Any]], Sequence[str]]]] = {
    str: lambda values: values,
    int: lambda values: list(map(str, values)),
    bool: lambda values: [_BOOLEANS[value] for value in values],
    type(None): lambda values: ["null"] * len(values),
    float: _doubles,
    list: _lists,
    dict: _maps,
}


# ---------------------------------------------------------------------------------------------- names of Java's classes
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
