"""Partitions of Iceberg tables: parses transforms in settings, and divides rows by them.

Main functions: ``parse``, and ``split`` for the rows of each partition. Pure; any thread. Needs pyiceberg.

Source: Apache Iceberg's specification, "Partition Transforms".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)

from penstock.api.arrow import one_array
from penstock.connectors.tables.sizes import groups
from penstock.errors import ConfigException, ConnectException

_CALL: Final = re.compile(r"\s*(\w+)\s*\(\s*([^,()]+?)\s*(?:,\s*(\d+)\s*)?\)\s*")
_TIMES: Final = {"year": YearTransform, "month": MonthTransform, "day": DayTransform, "hour": HourTransform}
_HOUR_US: Final = 3_600_000_000


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A field by which rows are partitioned.

    Attributes:
        source: The column, with dots for nested ones.
        transform: The transform of its values.
        name: The name of the partition field.
    """

    source: str
    transform: Transform[Any, Any]
    name: str


def parse(term: str) -> PartitionField:
    """Parses a partition field in the syntax of Iceberg's sink.

    Raises:
        ConfigException: There is no such transform.

    >>> parse("bucket(id, 16)").name, parse("days(ts)").name, parse("kind").name
    ('id_bucket', 'ts_day', 'kind')
    """
    found = _CALL.fullmatch(term)
    if found is None:
        if re.search(r"[()]", term):
            raise ConfigException(_NO_TRANSFORM.format(term))
        return PartitionField(term, IdentityTransform(), term)
    kind, source, number = found[1].lower().removesuffix("s"), found[2], found[3]
    label = source.replace(".", "_")
    if kind in _TIMES and number is None:
        return PartitionField(source, _TIMES[kind](), f"{label}_{kind}")
    if kind == "bucket" and number:
        return PartitionField(source, BucketTransform(int(number)), f"{label}_bucket")
    if kind in ("truncate", "trunc") and number:
        return PartitionField(source, TruncateTransform(int(number)), f"{label}_trunc")
    if kind == "identity" and number is None:
        return PartitionField(source, IdentityTransform(), label)
    raise ConfigException(_NO_TRANSFORM.format(term))


_NO_TRANSFORM: Final = (
    "{} is no partition: write a field, or year(FIELD), month(FIELD), day(FIELD), hour(FIELD), bucket(FIELD, COUNT) or "
    "truncate(FIELD, WIDTH)"
)


def split(rows: pa.Table, spec: PartitionSpec, schema: Schema) -> Iterator[tuple[PartitionKey | None, pa.Table]]:
    """The rows of each partition, in their order.

    Raises:
        ConnectException: The table has an unknown transform.
    """
    if spec.is_unpartitioned() or not rows.num_rows:
        if rows.num_rows:
            yield None, rows
        return
    values: list[pa.Array] = []
    for field in spec.fields:
        name = schema.find_column_name(field.source_id) or ""
        values.append(transformed(_column(rows, name), field.transform, schema.find_field(field.source_id).field_type))
    for numbers in groups(values):
        first = int(numbers[0])
        key = PartitionKey(
            [
                PartitionFieldValue(field, cells[first].as_py())
                for field, cells in zip(spec.fields, values, strict=True)
            ],
            spec,
            schema,
        )
        yield key, rows if len(numbers) == rows.num_rows else rows.take(numbers)


def transformed(cells: pa.Array, transform: Transform[Any, Any], kind: Any) -> pa.Array:
    """The values of a partition field.

    Raises:
        ConnectException: The transform is unknown.
    """
    if isinstance(transform, IdentityTransform):
        return cells
    if isinstance(transform, VoidTransform):
        return pa.nulls(len(cells), pa.int32())
    if isinstance(transform, (YearTransform, MonthTransform)):
        since = pc.subtract(pc.year(cells), pa.scalar(1970, pa.int64()))
        if isinstance(transform, MonthTransform):
            since = pc.add(pc.multiply(since, 12), pc.subtract(pc.month(cells), pa.scalar(1, pa.int64())))
        return since.cast(pa.int32())
    if isinstance(transform, DayTransform):
        return cells.cast(pa.date32()).cast(pa.int32()) if pa.types.is_date(cells.type) else _since(cells, 24)
    if isinstance(transform, HourTransform):
        return _since(cells, 1)
    if isinstance(transform, (BucketTransform, TruncateTransform)):
        # A function of one value: one call for each distinct value.
        one = transform.transform(kind)
        encoded = cells.dictionary_encode()
        found = [one(value) for value in encoded.dictionary.to_pylist()]
        wanted = pa.int32() if isinstance(transform, BucketTransform) else cells.type
        return pa.array(found, wanted).take(encoded.indices)
    raise ConnectException(f"The table is partitioned by {transform}, which is not there: write to it with Spark")


def _since(cells: pa.Array, hours: int) -> pa.Array:
    """Days or hours since the epoch, rounded down, also before it."""
    us = cells.cast(pa.timestamp("us", cells.type.tz)).cast(pa.int64())
    filled = us.fill_null(0).to_numpy() // (_HOUR_US * hours)
    return pa.array(filled.astype(np.int32), mask=us.is_null().to_numpy(zero_copy_only=False))


def _column(rows: pa.Table, name: str) -> pa.Array:
    if name in rows.column_names:
        return one_array(rows.column(name))
    head, *path = name.split(".")
    found = one_array(rows.column(head))
    for one in path:
        found = pc.struct_field(found, [found.type.get_field_index(one)])
    return found
