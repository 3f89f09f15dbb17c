"""Schema changes: chooses the schema of a file, and converts values to it.

Main types: ``Compatibility``, ``SchemaTrack``; ``projected`` converts a column from one schema to another. Pure; the
task's thread.

Source: org.apache.kafka.connect.data.SchemaProjector; ``schema.compatibility`` of Confluent's connectors.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.api.arrow import is_list, one_array
from penstock.data import Schema, Type
from penstock.errors import DataException
from penstock.files.widening import conform

_PROMOTIONS = (Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.FLOAT32, Type.FLOAT64)


class Compatibility(Enum):
    """Records of other schemas: into files of their own, or projected to the newest or the oldest version."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    FORWARD = "FORWARD"
    FULL = "FULL"


class SchemaTrack:
    """The schemas of the values of one topic, and the current one of files.

    Args:
        rule: Decides which one that is.
    """

    def __init__(self, rule: Compatibility) -> None:
        self._rule = rule
        self._known: list[Schema | None] = []
        self._current: tuple[Schema, pa.DataType] | None = None

    def number(self, schema: Schema | None) -> int:
        """A number that distinguishes files of different schemas."""
        for index, one in enumerate(self._known):
            if one is schema or one == schema:
                return index
        self._known.append(schema)
        return len(self._known) - 1

    def fit(
        self, column: pa.Array | pa.ChunkedArray, schema: Schema | None
    ) -> tuple[pa.Array | pa.ChunkedArray, Schema | None]:
        """Converts the values to the current schema of files; returns both.

        Args:
            column: The values, without nulls.
            schema: Their schema; None if they have none, and do not change.

        Raises:
            DataException: The schema has no version, or its values cannot be converted.
        """
        if schema is None or self._rule is Compatibility.NONE:
            return column, schema
        current = self._current
        if current is None or self._replaces(schema, current[0]):
            self._current = (schema, column.type)
            return column, schema
        if current[0] == schema:
            return column, schema
        return projected(one_array(column), schema, *current), current[0]

    def _replaces(self, schema: Schema, current: Schema) -> bool:
        if schema.version is None or current.version is None:
            if schema == current:
                return False
            raise DataException(
                f"schema.compatibility={self._rule.value} compares the versions of schemas, and {schema} has none; "
                "converters with a schema registry give versions. Set schema.compatibility=NONE for files by schema"
            )
        if self._rule is Compatibility.FORWARD:
            return schema.version < current.version
        return schema.version > current.version


def projected(
    array: pa.Array, source: Schema, target: Schema, wanted: pa.DataType, path: str = "the value"
) -> pa.Array:
    """Converts values of one schema to another.

    Args:
        array: The values.
        source: Their schema.
        target: The other one.
        wanted: The Arrow type of the target.
        path: The name of the values in messages.

    Raises:
        DataException: A type, a name, or a field without a default prevents it.
    """
    if source.type is not target.type and not _promotable(source.type, target.type):
        raise _misfit(path, f"{source.type.name} does not become {target.type.name}")
    if source.name != target.name or (source.type is not Type.STRUCT and source.parameters != target.parameters):
        raise _misfit(path, f"{source} is not {target}")
    if target.type is Type.STRUCT:
        members = [_member(array, source, one, wanted, f"{path}.{one.name}") for one in target.fields]
        found = pa.StructArray.from_arrays(members, fields=list(wanted), mask=array.is_null())
    elif target.type is Type.ARRAY and is_list(array.type) and source != target:
        assert source.value_schema is not None
        assert target.value_schema is not None
        items = projected(array.flatten(), source.value_schema, target.value_schema, wanted.value_type, f"{path}[]")
        counts = pc.fill_null(pc.list_value_length(array), 0)
        ends = pc.cumulative_sum(counts)
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends.cast(pa.int32())])
        mask = array.is_null() if array.null_count else None
        found = pa.ListArray.from_arrays(offsets, items, type=wanted, mask=mask)
    else:
        found = conform(array, wanted)
    if source.optional and not target.optional and found.null_count:
        if target.default is None:
            raise _misfit(path, "null comes where the other schema has no null and no default")
        found = pc.fill_null(found, pa.scalar(_default(target), wanted))
    return found


def _member(array: pa.Array, source: Schema, field: Any, wanted: pa.DataType, path: str) -> pa.Array:
    kind = wanted.field(field.name).type
    given = source.field(field.name)
    if given is not None:
        index = array.type.get_field_index(field.name)
        return projected(pc.struct_field(array, [index]), given.schema, field.schema, kind, path)
    if field.schema.default is not None:
        return pa.repeat(pa.scalar(_default(field.schema), kind), len(array))
    if not field.schema.optional:
        raise _misfit(path, "the field is missing, and the other schema has neither null nor a default for it")
    return pa.nulls(len(array), kind)


def _default(schema: Schema) -> object:
    value: Any = schema.default
    if schema.type is Type.STRUCT:
        return {one.name: value.get(one.name) for one in schema.fields}
    return value


def _promotable(source: Type, target: Type) -> bool:
    return source in _PROMOTIONS and target in _PROMOTIONS and _PROMOTIONS.index(source) <= _PROMOTIONS.index(target)


def _misfit(path: str, text: str) -> DataException:
    return DataException(f"A record does not fit the schema of its file (schema.compatibility): {path}: {text}")
