"""Takes some records through a connector's converters and transforms, and notes the result of each step.

Main type: ``ChainView``. Observing transforms between the steps note the records; nothing is committed or written. The
result is JSON. A chain with frames (``has_frames``) runs Spark plans that users wrote: ``session`` has the process for
it.

Thread: a thread of the caller's; a view may be used by several.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final, TypeVar, cast

import pyarrow as pa

from penstock.api import ConnectRecord, FrameTransformation, SinkRecord, SourceRecord, Transformation
from penstock.config import ConfigDef
from penstock.data import Struct
from penstock.errors import ConnectException
from penstock.kafka.consumer.sampler import SampledMessage
from penstock.pipeline.batch.batches import CONSUMED_SCHEMA, PipelineSpec, RecordError, Stage, TransformStage
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.plan.jobs import SparkJobs
from penstock.pipeline.spark.gate import Gate
from penstock.pipeline.spark.session import SparkRuntime
from penstock.plugins import Plugins
from penstock.settings import InstalledPlugins, SinkSettings, SourceSettings
from penstock.settings.worker import WorkerSettings
from penstock.worker.task_parts import TaskParts, make_parts

R = TypeVar("R", bound=ConnectRecord)

_SEQ: Final = "penstock.preview"


def has_frames(parts: TaskParts) -> bool:
    """True if a transform works on frames: it runs Spark plans of its own."""
    return any(isinstance(stage.transformation, FrameTransformation) for stage in parts.transforms)


class ChainView:
    """Runs records through chains and shows the results, with the plugins and the Spark session of a process."""

    def __init__(self, settings: WorkerSettings, plugins: Plugins, runtime: SparkRuntime) -> None:
        self._settings = settings
        self._plugins = plugins
        self._classes = InstalledPlugins(plugins)
        self._runtime = runtime
        # A separate gate with room for one: previews wait for each other, and previews of one plan share its job, but
        # they never queue before the batches of tasks.
        self._jobs = SparkJobs(runtime, Gate(1))

    def source_parts(self, config: Mapping[str, str], made: ExitStack) -> TaskParts:
        settings = SourceSettings.parse(config, self._classes, topic_creation_enabled=False)
        return make_parts(self._settings, settings, self._plugins, made)

    def sink_parts(self, settings: SinkSettings, made: ExitStack) -> TaskParts:
        return make_parts(self._settings, settings, self._plugins, made)

    def sink_settings(self, config: Mapping[str, str]) -> SinkSettings:
        return SinkSettings.parse(config, self._classes)

    def of_source(self, parts: TaskParts, records: Sequence[SourceRecord]) -> list[dict[str, object]]:
        if not records:
            return []
        looks, chain = _looking(parts)
        numbered = [_numbered(record, seq) for seq, record in enumerate(records)]
        batch = SourcePipeline(self._runtime, self._spec(parts, chain), self._jobs).run(numbered)
        keys, values = (batch.table.column(name).to_pylist() for name in ("key", "value"))
        topics = batch.table.column("topic").to_pylist()
        shown: list[dict[str, object]] = []
        for seq, record in enumerate(records):
            steps = _steps(parts, looks, seq, batch.errors.get(seq))
            one: dict[str, object] = {"input": record_json(record), "steps": steps}
            if seq in batch.errors:
                one["error"] = _error_json(batch.errors[seq])
            elif looks[-1].seen.get(seq) is not None and batch.origins is None:
                message = {"topic": topics[seq], "key": _bytes_json(keys[seq]), "value": _bytes_json(values[seq])}
                one["output"] = message
            shown.append(one)
        return shown

    def of_sink(self, parts: TaskParts, messages: Sequence[SampledMessage]) -> list[dict[str, object]]:
        if not messages:
            return []
        looks, chain = _looking(parts)
        seqs = {(one.topic, one.partition, one.offset): seq for seq, one in enumerate(messages)}
        for look in looks:
            look.number = lambda record: seqs[_origin(cast("SinkRecord", record))]
        batch = SinkPipeline(self._runtime, self._spec(parts, chain), self._jobs).run(_consumed(messages))
        shown: list[dict[str, object]] = []
        for seq, message in enumerate(messages):
            one: dict[str, object] = {
                "input": message_json(message),
                "steps": _steps(parts, looks, seq, batch.errors.get(seq)),
            }
            if seq in batch.errors:
                one["error"] = _error_json(batch.errors[seq])
            else:
                last = looks[-1].seen.get(seq)
                one["output"] = None if last is None else record_json(last)
            shown.append(one)
        return shown

    def _spec(self, parts: TaskParts, chain: Sequence[TransformStage]) -> PipelineSpec:
        converters = parts.key_converter, parts.value_converter, parts.header_converter
        spec = PipelineSpec(*converters, chain, "preview", nothing_beside_spark=self._settings.all_through_spark)
        # Ten records are not worth a plan for each step, and tasks need the cores.
        return replace(spec, without_spark=not spec.nothing_beside_spark)


class _Look(Transformation):
    """Notes every record that comes by, by its number, and lets it pass."""

    def __init__(self) -> None:
        self.seen: dict[int, ConnectRecord] = {}
        self.number: Callable[[ConnectRecord], int] = _number_of_source

    def config(self) -> ConfigDef:
        return ConfigDef()

    def apply(self, record: R) -> R | None:
        self.seen[self.number(record)] = record
        return record


def _looking(parts: TaskParts) -> tuple[list[_Look], list[TransformStage]]:
    """The chain with a look before the first step and after each."""
    looks = [_Look()]
    chain = [TransformStage("look-0", looks[0])]
    for number, stage in enumerate(parts.transforms, start=1):
        look = _Look()
        looks.append(look)
        chain += [stage, TransformStage(f"look-{number}", look)]
    return looks, chain


def _steps(parts: TaskParts, looks: Sequence[_Look], seq: int, error: RecordError | None) -> list[dict[str, object]]:
    """Returns the result of each transform for one record, up to where it was dropped or failed."""
    found = []
    for stage, before, after in zip(parts.transforms, looks[:-1], looks[1:], strict=True):
        if seq not in before.seen:
            break
        step: dict[str, object] = {"transform": stage.alias, "before": record_json(before.seen[seq])}
        if seq in after.seen:
            step["after"] = record_json(after.seen[seq])
        elif error is not None:
            step["error"] = _error_json(error)
        else:
            step["dropped"] = True
        found.append(step)
    return found


def _numbered(record: SourceRecord, seq: int) -> SourceRecord:
    return SourceRecord(
        {},
        {_SEQ: seq},
        record.topic,
        record.value,
        value_schema=record.value_schema,
        key=record.key,
        key_schema=record.key_schema,
        partition=record.kafka_partition,
        timestamp=record.timestamp,
        headers=record.raw_headers,
    )


def _number_of_source(record: ConnectRecord) -> int:
    offset = cast("SourceRecord", record).source_offset
    assert offset is not None
    return cast("int", offset[_SEQ])


def _origin(record: SinkRecord) -> tuple[str, int, int]:
    return record.original_topic, record.original_kafka_partition or 0, record.original_kafka_offset


def _consumed(messages: Sequence[SampledMessage]) -> pa.Table:
    columns: Mapping[str, list[Any]] = {
        "topic": [one.topic for one in messages],
        "partition": [one.partition for one in messages],
        "offset": [one.offset for one in messages],
        "timestamp": [one.timestamp for one in messages],
        "timestamp_type": [one.timestamp_type for one in messages],
        "key": [one.key for one in messages],
        "value": [one.value for one in messages],
        "headers": [[{"key": name, "value": data} for name, data in one.headers] or None for one in messages],
    }
    arrays = [pa.array(columns[field.name], field.type) for field in CONSUMED_SCHEMA]
    return pa.table(arrays, schema=CONSUMED_SCHEMA)


# ------------------------------------------------------------------ records out
def record_json(record: ConnectRecord) -> dict[str, object]:
    """A record as JSON can show it."""
    found: dict[str, object] = {
        "topic": record.topic,
        "partition": record.kafka_partition,
        "timestamp": record.timestamp,
        "key": plain(record.key),
        "value": plain(record.value),
        "key_schema": None if record.key_schema is None else record.key_schema.type.value,
        "value_schema": None if record.value_schema is None else record.value_schema.type.value,
    }
    if record.raw_headers is not None and not record.raw_headers.is_empty():
        found["headers"] = [{"key": header.key, "value": plain(header.value)} for header in record.raw_headers]
    return found


def message_json(message: SampledMessage) -> dict[str, object]:
    """A message as JSON can show it."""
    return {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp,
        "key": _bytes_json(message.key),
        "value": _bytes_json(message.value),
        "headers": [{"key": name, "value": _bytes_json(data)} for name, data in message.headers],
    }


def unfinished(record: SourceRecord | SampledMessage, told: str) -> dict[str, object]:
    """Returns the entry for a record whose preview has not finished."""
    shown = record_json(record) if isinstance(record, SourceRecord) else message_json(record)
    error = {"stage": Stage.TRANSFORMATION, "class": None, "exception": ConnectException.java_name, "message": told}
    return {"input": shown, "steps": [], "error": error}


def _error_json(error: RecordError) -> dict[str, object]:
    return {
        "stage": error.stage,
        "class": error.executing_class,
        "exception": error.exception_class,
        "message": error.message,
    }


def _bytes_json(data: bytes | None) -> object:
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def plain(value: object) -> object:
    """Connect data as JSON can show it.

    >>> plain({1: b"a", "b": [None, 2.5]})
    {'1': {'base64': 'YQ=='}, 'b': [None, 2.5]}
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if value == value and abs(value) != float("inf") else str(value)
        case bytes() | bytearray() | memoryview():
            return {"base64": base64.b64encode(value).decode()}
        case list() | tuple():
            return [plain(item) for item in value]
        case Struct():
            return {field.name: plain(value.get(field.name)) for field in value.schema.fields}
        case Mapping():
            return {key if isinstance(key, str) else str(key): plain(item) for key, item in value.items()}
        case _:
            return str(value)
