"""Java's text of typed columns that were read in front of Spark, made by Arrow: a fraction of what a plan takes.

It says what ``penstock.pipeline.plan.frame_values`` says in Spark's columns, for the kinds that JSON has.

Main function: ``text_of``. Thread: any; pure functions.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data import Schema, Type
from penstock.data.text import hash_map_order
from penstock.pipeline.columns.layout import Layout, LayoutKind
from penstock.pipeline.columns.texts.numbers import float_texts

_WHOLE: Final = frozenset({Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.BOOLEAN})


def text_of(column: pa.Array, schema: Schema, physical: Layout) -> pa.StringArray | None:
    """The text of each value, null for null; None = the column has a kind that has to go through Spark.

    Args:
        column: The values.
        schema: What they are.
        physical: How they are stored: an object prints as a map, a struct as a ``Struct``.
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
