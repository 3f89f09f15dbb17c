"""A file sink task in the test's own process, and frames for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from testkit.doubles.contexts import ReportingSinkContext

from penstock.api import OffsetAndMetadata, SinkFrame, TopicPartition
from penstock.connectors.files.sink.task import FileSinkTask
from penstock.data import INT64_SCHEMA, OPTIONAL_STRING_SCHEMA, STRING_SCHEMA, Schema, SchemaBuilder
from penstock.pipeline.columns.layout import VARIANT_FIELDS
from penstock.pipeline.columns.variant import encode

VALUE = SchemaBuilder.struct().field("id", INT64_SCHEMA).field("name", OPTIONAL_STRING_SCHEMA).build()
KIND = pa.struct([("id", pa.int64()), ("name", pa.string())])
HERE = TopicPartition("t", 0)


class Context(ReportingSinkContext):
    """The worker's context, called by the clock."""

    def every(self, seconds: float, call: Callable[[], object]) -> Callable[[], None]:
        self.call = call
        return lambda: None


class Writing:
    """A started sink task.

    Args:
        directory: Where its files go.
        settings: Its settings beside those.
        tolerant: Whether bad rows may be reported.
        cluster: The id of the Kafka cluster.
    """

    def __init__(self, directory: Path, tolerant: bool = True, cluster: str | None = None, **settings: str) -> None:
        self.directory = directory
        self.props = {
            "name": "s",
            "topics": "t",
            "url": str(directory),
            "retry.backoff.ms": "0",
            "rotate.schedule.interval.ms": "-1",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        self.context = Context(self.props, tolerant)
        self.context._kafka_cluster_id = cluster
        self.task = FileSinkTask()
        self.task.initialize(self.context)
        self.task.start(self.props)
        self.task.open([HERE])

    def put(self, *args: Any, **named: Any) -> None:
        """Gives the task a frame."""
        self.task.put(frame(*args, context=self.context, **named))

    def commit(self, reached: int, *, closing: bool = False) -> int | None:
        """What the task says may be committed of the partition."""
        self.context.closing = closing
        found = self.task.pre_commit({HERE: OffsetAndMetadata(reached)})
        self.context.closing = False
        return found[HERE].offset if HERE in found else None

    def files(self) -> list[str]:
        """The files, below the directory of topics."""
        root = self.directory / "topics"
        return sorted(str(one.relative_to(root)) for one in root.rglob("*") if one.is_file())

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of a Parquet file."""
        rows: list[dict[str, Any]] = pq.ParquetFile(self.directory / "topics" / name).read().to_pylist()
        return rows


def frame(
    values: Sequence[Any] | pa.Array,
    schema: Schema | None = VALUE,
    *,
    first: int = 0,
    kind: pa.DataType | None = None,
    topic: str = "t",
    times: Sequence[int] | None = None,
    offsets: Sequence[int] | None = None,
    keys: Sequence[Any] | pa.Array | None = None,
    continued: bool = False,
    context: Any = None,
    partition: int = 0,
    read_from: str = "t",
) -> SinkFrame:
    """Records of the topic ``read_from`` with the offsets from ``first`` on; ``topic`` is where a router sent them."""
    count = len(values)
    if schema is VALUE and kind is None:
        kind = KIND
    at = list(offsets) if offsets is not None else list(range(first, first + count))
    headers = pa.array([[]] * count, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    table = pa.table(
        {
            "topic": [topic] * count,
            "partition": pa.array([partition] * count, pa.int32()),
            "offset": pa.array(at, pa.int64()),
            "timestamp": pa.array(times if times is not None else np.zeros(count, np.int64), pa.int64()),
            "key": pa.nulls(count, pa.string()) if keys is None else keys,
            "value": values if isinstance(values, pa.Array) else pa.array(values, kind),
            "headers": headers,
        }
    )
    origin = pa.table(
        {
            "topic": [read_from] * count,
            "partition": pa.array([partition] * count, pa.int32()),
            "offset": pa.array(at, pa.int64()),
        }
    )
    return SinkFrame(table, STRING_SCHEMA, schema, origin=origin, continued=continued, _context=context)


def records(first: int, count: int, name: str | None = "x") -> list[dict[str, Any]]:
    """Values whose ``id`` is their offset."""
    return [{"id": number, "name": name} for number in range(first, first + count)]


def schemaless(values: Sequence[object]) -> pa.Array:
    """Values as JSON without a schema has them."""
    pairs = [(b"\x00", b"\x01\x00\x00") if value is None else encode(value) for value in values]
    data, names = pa.array([one[0] for one in pairs], pa.binary()), pa.array([one[1] for one in pairs], pa.binary())
    mask = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays([data, names], fields=list(VARIANT_FIELDS), mask=mask)
