"""Runs records through chains of transforms, as a source task and as a sink task."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import pyarrow as pa

from penstock.api import BaseTransformation, Converter, SinkRecord, SourceRecord, ValueForm
from penstock.converters.json.converter import JsonConverter
from penstock.converters.string import SimpleHeaderConverter
from penstock.data import ConnectHeaders, Schema
from penstock.pipeline.batch.batches import (
    CONSUMED_SCHEMA,
    PipelineSpec,
    ProduceBatch,
    SinkBatch,
    TransformStage,
)
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.spark.session import SparkRuntime

T = TypeVar("T")


@dataclass(frozen=True)
class Chain:
    """A chain of transforms with JSON converters without schemas."""

    runtime: SparkRuntime
    stages: Sequence[TransformStage]
    spent: Callable[[str, float], None] = lambda alias, seconds: None

    def _spec(self) -> PipelineSpec:
        return PipelineSpec(_json(), _json(), SimpleHeaderConverter(), self.stages, "chain", spent=self.spent)

    def source(self, records: Sequence[SourceRecord]) -> ProduceBatch:
        """Returns the result of a source task's records."""
        return SourcePipeline(self.runtime, self._spec()).run(records)

    def sink(self, values: Sequence[bytes | None], *, form: ValueForm | None = None) -> SinkBatch:
        """Returns the batch that a sink task is given for JSON messages; ``form`` is None for records."""
        spec = replace(self._spec(), value_form=form)
        return SinkPipeline(self.runtime, spec).run(consumed(values))


def consumed(values: Sequence[bytes | None], *, topics: Sequence[str] = ()) -> pa.Table:
    """Messages with these values, without keys and headers, of one partition or of one of each topic."""
    rows = len(values)
    columns: dict[str, Sequence[object]] = {
        "topic": topics or ["t"] * rows,
        "partition": [0] * rows,
        "offset": range(rows),
        "timestamp": [5] * rows,
        "timestamp_type": [0] * rows,
        "key": [None] * rows,
        "value": values,
        "headers": [None] * rows,
    }
    return pa.table([pa.array(columns[one.name], one.type) for one in CONSUMED_SCHEMA], schema=CONSUMED_SCHEMA)


def _json() -> Converter:
    converter = JsonConverter()
    converter.configure({"schemas.enable": "false"}, False)
    return converter


def stages(*transforms: BaseTransformation) -> list[TransformStage]:
    """A chain without predicates."""
    return [TransformStage(str(index), one) for index, one in enumerate(transforms)]


def configured(transform: T, settings: Mapping[str, object] | None = None) -> T:
    """A transform or predicate with its settings."""
    cast("Any", transform).configure(settings or {})
    return transform


def record(
    value: object,
    *,
    schema: Schema | None = None,
    headers: ConnectHeaders | None = None,
    topic: str = "t",
    key: object = None,
) -> SourceRecord:
    """A record of a source."""
    return SourceRecord({}, {}, topic, value, value_schema=schema, headers=headers, key=key, timestamp=5)


def sent(batch: ProduceBatch) -> list[Any]:
    """The values that are sent."""
    failed = set(batch.errors)
    origins = range(batch.table.num_rows) if batch.origins is None else batch.origins.tolist()
    rows = zip(origins, batch.table.column("value").to_pylist(), batch.table.column("dropped").to_pylist(), strict=True)
    return [value for origin, value, dropped in rows if origin not in failed and not dropped]


def put(batch: SinkBatch) -> list[Any]:
    """The values a sink task is given."""
    return [one.value for one in batch.records or () if isinstance(one, SinkRecord)]
