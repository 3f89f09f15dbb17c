"""`QueryChunks` makes chunks of records from tables. Pure; any thread. Source: Penstock's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.api import Chunk, SourceFrame
from penstock.api.arrow import struct_column
from penstock.api.partitioned import Partition
from penstock.connectors.spark.names import quoted
from penstock.data import Schema, Type
from penstock.errors import ConnectException

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, eq=False)
class RowsChunk(Chunk):
    """A chunk whose rows are values as a whole, whatever its columns are called.

    Attributes:
        time_column: The column with the timestamps of the records; "": none.
    """

    time_column: str = ""

    def frame(self, partition: Partition) -> SourceFrame:
        """See ``Chunk.frame``."""
        rows: Any = self.data
        columns = pa.table({"value": struct_column(rows, rows.column_names)})
        if self.key:
            columns = columns.append_column("key", struct_column(rows, self.key))
        if self.time_column:
            columns = columns.append_column("timestamp", rows.column(self.time_column))
        return SourceFrame(
            columns,
            self.topic,
            self.value_schema,
            partition,
            self.offset or {},
            key_schema=self.key_schema,
            offset_after=self.offset_after,
        )


class QueryChunks:
    """Makes chunks of the rows of one query.

    Args:
        schema: The schema of the rows, a struct.
        topic: The topic.
        key: The columns of the key.
        time_column: The column of the timestamps; "": none.

    Raises:
        ConnectException: A column does not exist, or has an unsuitable type.
    """

    def __init__(self, schema: Schema, topic: str, key: Sequence[str], time_column: str) -> None:
        there = [field.name for field in schema.fields]
        for name, setting in [*((one, "key.columns") for one in key), (time_column, "timestamp.column")]:
            if name and name not in there:
                raise ConnectException(f"{setting}: there is no column {name}; there are {', '.join(there)}")
        fields = {field.name: field for field in schema.fields}
        if time_column:
            kind = fields[time_column].schema
            if kind.type is not Type.INT64:
                raise ConnectException(
                    f"timestamp.column: {time_column} is {kind}; a record's timestamp is a timestamp, or "
                    "milliseconds as bigint"
                )
        self._schema, self._topic, self._key, self._time = schema, topic, tuple(key), time_column
        keys = [fields[name] for name in key]
        self._key_schema = (
            Schema(Type.STRUCT, fields=tuple(type(one)(one.name, place, one.schema) for place, one in enumerate(keys)))
            if key
            else None
        )

    @property
    def schema(self) -> Schema:
        """The schema of the values."""
        return self._schema

    @property
    def key_schema(self) -> Schema | None:
        """The schema of the keys; None: there are none."""
        return self._key_schema

    def columns_of(self, rows: DataFrame) -> DataFrame:
        """Rows as the columns of a frame: ``value``, and ``key`` and ``timestamp`` if configured. Lazy."""
        from pyspark.sql import functions

        columns = [functions.struct(*(rows[quoted(name)] for name in rows.columns)).alias("value")]
        if self._key:
            columns.append(functions.struct(*(rows[quoted(name)] for name in self._key)).alias("key"))
        if self._time:
            columns.append(rows[quoted(self._time)].alias("timestamp"))
        return rows.select(*columns)

    def chunk(
        self,
        rows: pa.Table,
        offset: Mapping[str, Any],
        offset_after: Callable[[int], Mapping[str, Any]] | None = None,
    ) -> Chunk:
        """A chunk of rows, and the position after the last of them."""
        return RowsChunk(
            rows,
            self._topic,
            offset=offset,
            offset_after=offset_after,
            key=self._key,
            value_schema=self._schema,
            key_schema=self._key_schema,
            time_column=self._time,
        )
