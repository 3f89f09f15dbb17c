"""Reads unambiguous payloads of a known schema before Spark (``structs``) instead of in the plan.

Most messages with a schema have the usual form: its members in order, with the usual notation of numbers and strings. A
pattern finds these; the other messages stay bytes, in a separate group.

Main type: ``PlainPayloads``. Thread: a task's pipeline thread.
Source: org.apache.kafka.connect.json.JsonConverter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.converters.json.arrow.byte_columns import ShortcutMemory
from penstock.converters.json.arrow.structs import (
    BOOLEAN,
    PLAIN_NAME,
    REAL,
    SCIENTIFIC,
    STRING,
    ObjectTexts,
    array_texts,
    whole,
)
from penstock.converters.json.envelope import Envelope
from penstock.converters.json.spark.lenient import layout_of
from penstock.data import Schema, Type
from penstock.data.logical import LOGICAL_NAMES, Date, Timestamp
from penstock.pipeline.columns.layout import arrow_type, with_bound
from penstock.pipeline.plan import map_structs as objects
from penstock.pipeline.plan.step import Side, Sorted

_NUMBER: Final = f"{whole(15)}|{REAL}|{SCIENTIFIC}"
_SCALARS: Final[Mapping[Type, str]] = {
    Type.INT8: whole(2),
    Type.INT16: whole(4),
    Type.INT32: whole(9),
    Type.INT64: whole(18),
    Type.FLOAT32: _NUMBER,
    Type.FLOAT64: _NUMBER,
    Type.BOOLEAN: BOOLEAN,
    Type.STRING: STRING,
}
#: Logical types for which every number of the type is valid.
_ANY_NUMBER: Final = frozenset(((Timestamp.LOGICAL_NAME, Type.INT64), (Date.LOGICAL_NAME, Type.INT32)))
#: The pattern has found too few if it leaves more than one in this many messages.
_WORTH: Final = 2
_MAX_KNOWN: Final = 1_000
#: A longer pattern of an array exceeds the matcher's memory and then takes many times as long.
_MAX_PATTERN: Final = 8_000
#: The only member of the objects as which payloads are read that are no objects themselves.
_MEMBER: Final = "value"


class PlainPayloads:
    """Reads payloads; remembers schemas for which it found too few.

    In a small batch it reads all payloads or none: building the full plan only for some of them would take seconds.

    Args:
        defaults: True if nulls are replaced by defaults.
    """

    def __init__(self, *, defaults: bool) -> None:
        self._defaults = defaults
        self._tries = ShortcutMemory(_WORTH)

    def read(self, found: Sorted, column: pa.ChunkedArray, content: Schema | None) -> Sorted:
        """Returns the sorted messages, with the payloads that could be read.

        Args:
            found: Messages sorted by their schemas; those of an `Envelope` are the rest after ``"payload":``.
            column: The sorted messages.
            content: The schema of messages that consist only of the payload, or None.
        """
        try:
            texts = column.cast(pa.string())
        except pa.ArrowInvalid:
            return found  # Not UTF-8.
        for index, hint in enumerate(found.hints):
            schema = hint.schema if isinstance(hint, Envelope) else content
            inside = "payload" if isinstance(hint, Envelope) else None
            found = self._read_one(found, texts, index, schema, inside)
        return found

    def _read_one(
        self,
        found: Sorted,
        texts: pa.ChunkedArray,
        index: int,
        schema: Schema | None,
        inside: str | None,
    ) -> Sorted:
        wanted = None if schema is None else _texts_of(schema, self._defaults)
        if schema is None or wanted is None or not self._tries.worth(schema):
            return found
        mine = np.ones(len(texts), dtype=bool) if found.codes is None else found.codes == index
        size = int(mine.sum())
        layout = layout_of(schema)
        kind = arrow_type(schema, layout)
        is_object = schema.type is Type.STRUCT
        if is_object:
            made = wanted.read(texts, mine, cast("pa.StructType", kind), inside=inside)
        else:
            made = wanted.read(_in_objects(texts, inside), mine, pa.struct([(_MEMBER, kind)]))
            made = replace(made, structs=pc.struct_field(made.structs, _MEMBER))
        left = size - int(made.rows.sum())
        if size < objects.MIN_ROWS:
            if left:
                return found
        elif not self._tries.note(schema, left, size):
            return found
        side = Side.of(schema, with_bound(layout, made.bound), present=is_object or not schema.optional)
        found = replace(found, read={**found.read, index: (side, made.structs)})
        return found.with_hint(found.hints[index], mine & ~made.rows, len(texts)) if left else found


@lru_cache(maxsize=_MAX_KNOWN)
def _texts_of(schema: Schema, defaults: bool) -> ObjectTexts | None:
    """The texts of objects with a schema, or with another value as their only member; None = some need a plan."""
    if schema.type is not Type.STRUCT:
        only = _value_pattern(schema, defaults)
        return None if only is None else ObjectTexts.of([(_MEMBER, only)])
    if not 0 < len(schema.fields) <= objects.MAX_MEMBERS:
        return None
    members: list[tuple[str, str | ObjectTexts]] = []
    for field in schema.fields:
        value = _value_pattern(field.schema, defaults)
        if value is None or not PLAIN_NAME.fullmatch(field.name):
            return None
        members.append((field.name, value))
    return ObjectTexts.of(members)


def _value_pattern(schema: Schema, defaults: bool) -> str | ObjectTexts | None:
    may_be_null = schema.optional and (schema.default is None or not defaults)
    if schema.type in (Type.STRUCT, Type.ARRAY):
        inner = _texts_of(schema, defaults) if schema.type is Type.STRUCT else _array_of(schema, defaults)
        return replace(inner, pattern=f"null|{inner.pattern}") if inner is not None and may_be_null else inner
    if schema.name not in LOGICAL_NAMES or (schema.name, schema.type) in _ANY_NUMBER:
        value = _SCALARS.get(schema.type)
    else:
        return None
    return f"null|{value}" if value is not None and may_be_null else value


def _in_objects(texts: pa.ChunkedArray, inside: str | None) -> pa.ChunkedArray:
    """Payloads as objects with one member; those in an envelope are followed by its brace."""
    return pc.binary_join_element_wise(f'{{"{_MEMBER}":', texts, "" if inside is not None else "}", "")


def _array_of(schema: Schema, defaults: bool) -> ObjectTexts | None:
    """The texts of arrays with a schema. The pattern contains that of an item twice."""
    if schema.name in LOGICAL_NAMES or schema.value_schema is None:
        return None
    item = _value_pattern(schema.value_schema, defaults)
    found = None if item is None else array_texts(item)
    return found if found is not None and len(found.pattern) <= _MAX_PATTERN else None
