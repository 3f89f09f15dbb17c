"""The check that the required values inside the values of a batch are all there: plans are smaller if they are.

Main function: ``has_all_required``. A value is required when its schema is not optional. A validated Struct has all of
them, but the rows of a frame are not validated.

Thread: pure functions.
"""

from __future__ import annotations

import pyarrow as pa

from penstock.data import Schema
from penstock.pipeline.columns.layout import Layout, LayoutKind


def has_all_required(schema: Schema | None, physical: Layout, column: pa.Array | pa.ChunkedArray) -> bool:
    """True if no required value is null, at any depth below the values of a column; they themselves may be null.

    >>> from penstock.data import STRING_SCHEMA, SchemaBuilder
    >>> from penstock.pipeline.columns.layout import default_physical
    >>> schema = SchemaBuilder.struct().field("a", STRING_SCHEMA).build()
    >>> [has_all_required(schema, default_physical(schema), pa.array([one, None])) for one in ({"a": "x"}, {"a": None})]
    [True, False]
    """
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return all(_has_all(schema, physical, chunk) for chunk in chunks if len(chunk))


def _has_all(schema: Schema | None, physical: Layout, chunk: pa.Array) -> bool:
    if schema is None:
        return True
    members: list[tuple[Schema | None, pa.Array]]
    match physical.form:
        case LayoutKind.STRUCT:
            values = chunk.drop_null() if chunk.null_count else chunk
            members = [(field.schema, values.field(place)) for place, field in enumerate(schema.fields)]
        case LayoutKind.ARRAY:
            members = [(schema.value_schema, chunk.flatten())]
        case LayoutKind.MAP:
            members = [(schema.key_schema, chunk.keys), (schema.value_schema, chunk.items)]
        case LayoutKind.ENTRIES:
            entries = chunk.flatten()
            members = [(schema.key_schema, entries.field(0)), (schema.value_schema, entries.field(1))]
        case _:
            return True
    return all(
        (inner is None or inner.optional or not values.null_count) and _has_all(inner, layout, values)
        for (inner, values), layout in zip(members, physical.children, strict=True)
    )
