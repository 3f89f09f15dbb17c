"""Payloads of a known schema that leave no doubt, read by Arrow (``json_structs.py``) and not by the plan.

Of the messages of one schema most hold what a writer made by that schema: its members in their order, numbers and
strings as they are usually written. A pattern finds these; the others stay bytes, as a group of their own.

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

from penstock.converters.json_envelope import Envelope
from penstock.converters.json_layouts import layout_of
from penstock.converters.json_patterns import PLAIN_NAME
from penstock.converters.json_structs import (
    BOOLEAN,
    REAL,
    SCIENTIFIC,
    SPACE,
    STRING,
    bound_of,
    matches,
    object_pattern,
    read_structs,
    whole,
)
from penstock.data import Schema, Type
from penstock.data.logical import LOGICAL_NAMES, Date, Timestamp
from penstock.pipeline.columns.text_bounds import with_bound
from penstock.pipeline.columns.types import arrow_type
from penstock.pipeline.plan import objects
from penstock.pipeline.plan.quick_steps import QuickTries
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
#: Logical types of which every number of that type is one.
_ANY_NUMBER: Final = frozenset(((Timestamp.LOGICAL_NAME, Type.INT64), (Date.LOGICAL_NAME, Type.INT32)))
#: More messages left than one in so many: the pattern has found too few.
_WORTH: Final = 2
_MAX_KNOWN: Final = 1_000


class PlainPayloads:
    """Reads payloads; remembers of which schemas it found enough, or too few.

    A few payloads are read where many of their schema were before: the full plan, made just for the end of a backlog,
    would take seconds.

    Args:
        defaults: Whether nulls are replaced by defaults.
    """

    def __init__(self, *, defaults: bool) -> None:
        self._defaults = defaults
        self._tries = QuickTries(_WORTH)
        self._known: set[Schema] = set()

    def read(self, found: Sorted, column: pa.ChunkedArray, content: Schema | None) -> Sorted:
        """What was sorted, with the payloads that could be read.

        Args:
            found: Messages sorted by their schemas; those of an `Envelope` are the rest behind ``"payload":``.
            column: The messages, as they were sorted.
            content: The schema of messages that are the payload alone, or None.
        """
        try:
            texts = column.cast(pa.string())
        except pa.ArrowInvalid:
            return found  # not UTF-8
        for index, hint in enumerate(found.hints):
            schema = hint.schema if isinstance(hint, Envelope) else content
            found = self._read_one(found, texts, index, schema, "payload" if isinstance(hint, Envelope) else None)
        return found

    def _read_one(
        self, found: Sorted, texts: pa.ChunkedArray, index: int, schema: Schema | None, inside: str | None
    ) -> Sorted:
        pattern = None if schema is None else _pattern_of(schema, self._defaults)
        mine = np.ones(len(texts), dtype=bool) if found.codes is None else found.codes == index
        size = int(mine.sum())
        few = size < objects.MIN_ROWS
        if schema is None or pattern is None:
            return found
        if not (schema in self._known if few else self._tries.worth(schema)):
            return found
        plain = matches(texts, pattern if inside is None else f"{pattern}{SPACE}\\}}")
        taken = mine & plain.fill_null(False).to_numpy().astype(bool)
        left = size - int(taken.sum())
        if few:
            if left:
                return found
        else:
            self._tries.note(schema, left, size)
            if left * _WORTH > size:
                return found
            if len(self._known) < _MAX_KNOWN:
                self._known.add(schema)
        if not taken.all():
            texts = pc.if_else(pa.array(taken), texts, pa.scalar(None, pa.string()))
        physical = with_bound(layout_of(schema), bound_of(texts))
        structs = read_structs(texts, cast("pa.StructType", arrow_type(schema, physical)), inside=inside)
        side = Side.of(schema, physical, present=True)
        found = replace(found, read={**found.read, index: (side, pa.chunked_array([structs]))})
        return found.with_hint(found.hints[index], mine & ~taken, len(texts)) if left else found


@lru_cache(maxsize=_MAX_KNOWN)
def _pattern_of(schema: Schema, defaults: bool) -> str | None:
    """The pattern of objects of a schema; None = it has members that take more than a look."""
    if schema.type is not Type.STRUCT or not 0 < len(schema.fields) <= objects.MAX_MEMBERS:
        return None
    members: list[tuple[str, str]] = []
    for field in schema.fields:
        value = _value_pattern(field.schema, defaults)
        if value is None or not PLAIN_NAME.fullmatch(field.name):
            return None
        members.append((field.name, value))
    return object_pattern(members)


def _value_pattern(schema: Schema, defaults: bool) -> str | None:
    if schema.type is Type.STRUCT:
        value = _pattern_of(schema, defaults)
    elif schema.name not in LOGICAL_NAMES or (schema.name, schema.type) in _ANY_NUMBER:
        value = _SCALARS.get(schema.type)
    else:
        value = None
    may_be_null = schema.optional and (schema.default is None or not defaults)
    return f"null|{value}" if value is not None and may_be_null else value
