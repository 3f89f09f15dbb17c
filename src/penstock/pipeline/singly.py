"""Small batches of many schemas, and batches with a deeply nested schema or a huge value, record by record.

A plan has one schema. Spark takes 100 ms and more to analyse what a schema adds to a plan, for each mix of schemas anew
and whatever the number of rows; a record takes some 50 microseconds through the methods that stock classes have for one
record. So a poll of fifty tables with a few rows each goes that way, and as bytes through one plan, like the records of
a user's own converter. ``penstock.spark.bypass=never`` keeps such batches in their own plans.

A schema that is nested deeply takes Spark seconds and more by itself (``nesting.py``). A value of a hundred megabytes
takes the whole heap of the JVM, in which the batches of all tasks are.

Main functions: ``singly`` (the same task without columns), ``not_for_plans`` and ``is_huge`` (whether a batch is such),
and ``without_spark`` (for looks at a few records). Thread: the task's pipeline thread; instances are those of the task,
which has one batch at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from penstock.api import ConnectRecord, Converter, Transformation
from penstock.api.transform import R
from penstock.config import ConfigDef
from penstock.data import ConnectHeaders, Schema, SchemaAndValue, Struct
from penstock.pipeline.batches import PipelineSpec, TransformStage
from penstock.pipeline.nesting import exceeds
from penstock.pipeline.segments import class_name

#: Fewer schemas are as quick in plans.
MIN_SCHEMAS: Final = 6
#: With more rows for each schema plans are quicker.
ROWS_EACH: Final = 300
#: Batches with more rows are not looked at.
MAX_ROWS: Final = 10_000
#: A plan holds a value about ten times: as it comes, in Spark's rows, which grow by doubling, and as it goes.
HUGE_BYTES: Final = 16 * 1024 * 1024
#: Huge values inside others are looked for in batches of so few records: a poll has no room for many.
_FEW: Final = 256
_LEVELS: Final = 3


class _SinglyConverter(Converter):
    """A converter without what it can do with columns."""

    def __init__(self, converter: Converter) -> None:
        self._converter = converter
        self.java_name = class_name(converter)

    def from_connect_data(
        self, topic: str, schema: Schema | None, value: object, headers: ConnectHeaders | None = None
    ) -> bytes | None:
        return self._converter.from_connect_data(topic, schema, value, headers)

    def to_connect_data(self, topic: str, data: bytes | None, headers: ConnectHeaders | None = None) -> SchemaAndValue:
        return self._converter.to_connect_data(topic, data, headers)


class _SinglyTransformation(Transformation):
    """A transform without what it can do with columns."""

    def __init__(self, transformation: Transformation) -> None:
        self._transformation = transformation
        self.java_name = class_name(transformation)

    def config(self) -> ConfigDef:
        return self._transformation.config()

    def apply(self, record: R) -> R | None:
        return self._transformation.apply(record)


def singly(spec: PipelineSpec) -> PipelineSpec | None:
    """The pipeline that does the same record by record; None = it cannot be done so, or must not.

    It shares converters and transforms with the other one: a batch goes through one of them.
    """
    transforms = [stage.transformation for stage in spec.transforms]
    if spec.nothing_beside_spark or not all(isinstance(one, Transformation) for one in transforms):
        return None
    return replace(
        spec,
        key_converter=_SinglyConverter(spec.key_converter),
        value_converter=_SinglyConverter(spec.value_converter),
        transforms=[_stage(stage) for stage in spec.transforms],
    )


def without_spark(spec: PipelineSpec) -> PipelineSpec:
    """The pipeline for a look at a few records: no Spark job, unless a transform of frames needs one."""
    alone = singly(spec)
    return spec if alone is None else replace(alone, without_spark=True)


def _stage(stage: TransformStage) -> TransformStage:
    return replace(stage, transformation=_SinglyTransformation(cast("Transformation", stage.transformation)))


def are_many(schemas: int, rows: int) -> bool:
    """Whether so many schemas in so many rows are quicker record by record.

    >>> are_many(50, 1_000), are_many(50, 50_000), are_many(2, 4)
    (True, False, False)
    """
    return schemas >= MIN_SCHEMAS and rows <= min(MAX_ROWS, schemas * ROWS_EACH)


def many_schemas(records: Sequence[ConnectRecord]) -> bool:
    """Whether a batch is quicker record by record. All of its maps have a schema then."""
    rows = len(records)
    if not MIN_SCHEMAS <= rows <= MAX_ROWS:
        return False
    sides = {(id(record.key_schema), id(record.value_schema)): record for record in records}
    if len(sides) < MIN_SCHEMAS:
        return False
    schemas = {(record.key_schema, record.value_schema) for record in sides.values()}
    return are_many(len(schemas), rows) and not any(map(_has_loose_maps, records))


def not_for_plans(records: Sequence[ConnectRecord]) -> bool:
    """Whether a batch goes record by record: it is quicker so, or takes more time or memory than a plan should."""
    return many_schemas(records) or _deep_schemas(records) or _huge_values(records)


def is_huge(table: pa.Table) -> bool:
    """Whether a text or bytes of a table is too large for a plan."""
    return table.nbytes > HUGE_BYTES and any(
        (pc.max(pc.binary_length(column)).as_py() or 0) > HUGE_BYTES
        for column in table.columns
        if column.nbytes > HUGE_BYTES and _has_length(column.type)
    )


def _has_length(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in tests)


def _huge_values(records: Sequence[ConnectRecord]) -> bool:
    levels = _LEVELS if len(records) <= _FEW else 0
    return any(_is_huge(record.value, levels) or _is_huge(record.key, levels) for record in records)


def _is_huge(value: object, levels: int) -> bool:
    if isinstance(value, (str, bytes)):
        return len(value) > HUGE_BYTES
    if not levels:
        return False
    if isinstance(value, Struct):
        return any(_is_huge(value.get_without_default(field.name), levels - 1) for field in value.schema.fields)
    if isinstance(value, dict):
        return any(_is_huge(item, levels - 1) for item in value.values())
    return isinstance(value, list) and any(_is_huge(item, levels - 1) for item in value[:_FEW])


def _deep_schemas(records: Sequence[ConnectRecord]) -> bool:
    found = {id(record.value_schema): record.value_schema for record in records}
    found |= {id(record.key_schema): record.key_schema for record in records}
    return any(map(exceeds, found.values()))


def _has_loose_maps(record: ConnectRecord) -> bool:
    """Whether a map without a schema is in it: columns write those in an order of their own."""
    return (record.key_schema is None and isinstance(record.key, (dict, list))) or (
        record.value_schema is None and isinstance(record.value, (dict, list))
    )
