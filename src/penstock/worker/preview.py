"""What a connector's configuration would do to some records: each step of its chain, before and after.

Main type: ``Previewer``. Records come from the caller, from the source (``preview_source``), or from the sink's topics.
They go through the connector's own converters and transforms, record by record unless a transform needs frames; looking
transforms between the steps note what passes. Nothing is committed, nothing is written.

``Pace`` says when previews may begin: together they use a small share of the machine's time. On a machine without an
idle moment whatever a preview uses is taken from connectors that run. A low priority does not help, because half of the
work is done by threads of the worker; so it is spread over time.

Thread: ``preview`` blocks and is called on a thread of the caller's choice; a few run at once.
"""

from __future__ import annotations

import base64
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final, TypeVar, cast

import pyarrow as pa

from penstock.api import ConnectRecord, SinkRecord, SourceRecord, Transformation
from penstock.config import ConfigDef
from penstock.config.java_regex import compile_java
from penstock.data import Struct
from penstock.kafka.client_settings import consumer_settings
from penstock.kafka.topic_sampler import SampledMessage, sample
from penstock.model import ConnectorType
from penstock.model.preview import GivenRecord, PreviewRequest
from penstock.pipeline.batch.batches import (
    CONSUMED_SCHEMA,
    ConsumedBatch,
    PipelineSpec,
    RecordError,
    SourceRecords,
    TransformStage,
)
from penstock.pipeline.batch.sink import build_sink_pipeline
from penstock.pipeline.batch.source import build_source_pipeline
from penstock.pipeline.plan.jobs import SparkJobs
from penstock.pipeline.spark.gate import Gate
from penstock.pipeline.spark.session import SparkRuntime
from penstock.plugins import Plugins
from penstock.settings import InstalledPlugins, SinkSettings, SourceSettings
from penstock.settings.worker import WorkerSettings
from penstock.worker.preview_source import FirstRecords, SourceReaders
from penstock.worker.task_parts import TaskParts, make_parts

#: The share of all cores that previews may use.
SHARE: Final = 0.015
#: What a preview uses as far as is known before it has run, in CPU seconds; also what it counts at least, because not
#: all of it is measured (the request's way in and out).
USUAL_S: Final = 0.01
#: So many may begin at once after a rest: nobody who tries one and then another has to wait.
AHEAD: Final = 2


class Pace:
    """Says when previews may begin, by what those before them have used.

    Args:
        cores: How many cores there are.
    """

    def __init__(self, cores: int) -> None:
        self._rate = SHARE * cores
        self._lock = threading.Lock()
        #: Until then the share is used up.
        self._used_until = float("-inf")

    def begins(self, now: float) -> float:
        """Books a preview; how many seconds it has to wait before it begins.

        Args:
            now: Monotonic seconds.

        >>> pace = Pace(cores=2)
        >>> [round(pace.begins(now), 3) for now in (100.0, 100.0, 100.0, 101.0)]
        [0.0, 0.0, 0.333, 0.0]
        """
        with self._lock:
            each = USUAL_S / self._rate
            free = max(self._used_until, now)
            self._used_until = free + each
            return max(0.0, free - (AHEAD - 1) * each - now)

    def ended(self, used_s: float) -> None:
        """A preview that was booked has ended.

        Args:
            used_s: What it has used, in CPU seconds.
        """
        with self._lock:
            self._used_until += max(0.0, used_s - USUAL_S) / self._rate


R = TypeVar("R", bound=ConnectRecord)

#: Reading costs next to nothing, and a source that blocks holds up a place for all of its time.
_AT_ONCE: Final = 4
_SEQ: Final = "penstock.preview"


class Previewer:
    """Makes previews with the plugins and the Spark session of a worker.

    Args:
        settings: The worker's.
        plugins: Where classes come from.
        runtime: The Spark session.
    """

    def __init__(self, settings: WorkerSettings, plugins: Plugins, runtime: SparkRuntime) -> None:
        self._settings = settings
        self._plugins = plugins
        self._classes = InstalledPlugins(plugins)
        self._runtime = runtime
        # A gate of their own with room for one: previews wait for each other, and those of one plan share its job, but
        # they never stand in line before the batches of tasks.
        self._jobs = SparkJobs(runtime, Gate(1))
        self._turn = threading.BoundedSemaphore(_AT_ONCE)
        self._pace = Pace(os.cpu_count() or 1)
        self._readers = SourceReaders()

    def close(self) -> None:
        """Ends what reads sources."""
        self._readers.close()

    def preview(self, request: PreviewRequest) -> dict[str, object]:
        """Reads or takes records and shows what becomes of them.

        Raises:
            ConnectException: a part cannot be made, or the topics cannot be read.
        """
        with self._turn, self._paced() as used, ExitStack() as made:
            if request.type is ConnectorType.SINK:
                return self._sink(request, made)
            return self._source(request, made, used)

    @contextmanager
    def _paced(self) -> Iterator[list[float]]:
        """Waits until a preview may begin; takes what its processes have used, in CPU seconds."""
        threading.Event().wait(self._pace.begins(time.monotonic()))
        began = time.thread_time()
        used: list[float] = []
        try:
            yield used
        finally:
            self._pace.ended(time.thread_time() - began + sum(used))

    # ------------------------------------------------------------------ sources
    def _source(self, request: PreviewRequest, made: ExitStack, used: list[float]) -> dict[str, object]:
        settings = SourceSettings.parse(request.config, self._classes, topic_creation_enabled=False)
        parts = make_parts(self._settings, settings, self._plugins, made)
        if request.records is None:
            cls = self._plugins.resolve_connector(request.config["connector.class"])
            read = self._readers.first_records(cls, request.config, request.limits)
            used.append(read.cpu_s)
        else:
            read = FirstRecords([_source_record(one) for one in request.records[: request.limits.records]], "given")
        numbered = [_numbered(record, seq) for seq, record in enumerate(read.records)]
        looks, chain = _looking(parts)
        spec = self._spec(parts, chain)
        shown: list[dict[str, object]] = []
        if numbered:
            batch = build_source_pipeline(self._runtime, spec, self._jobs).run(SourceRecords(numbered))
            keys, values = (batch.table.column(name).to_pylist() for name in ("key", "value"))
            topics = batch.table.column("topic").to_pylist()
            for seq, record in enumerate(read.records):
                steps = _steps(parts, looks, seq, batch.errors.get(seq))
                one: dict[str, object] = {"input": _record_json(record), "steps": steps}
                if seq in batch.errors:
                    one["error"] = _error_json(batch.errors[seq])
                elif looks[-1].seen.get(seq) is not None and batch.origins is None:
                    message = {"topic": topics[seq], "key": _bytes_json(keys[seq]), "value": _bytes_json(values[seq])}
                    one["output"] = message
                shown.append(one)
        answer: dict[str, object] = {"type": "source", "ended_by": read.ended, "records": shown}
        if read.error is not None:
            answer["error"] = read.error
        return answer

    # ------------------------------------------------------------------ sinks
    def _sink(self, request: PreviewRequest, made: ExitStack) -> dict[str, object]:
        settings = SinkSettings.parse(request.config, self._classes)
        parts = make_parts(self._settings, settings, self._plugins, made)
        if request.records is None:
            messages = self._sampled(request, settings)
        else:
            messages = [_message(one, seq) for seq, one in enumerate(request.records[: request.limits.records])]
        looks, chain = _looking(parts)
        spec = self._spec(parts, chain)
        shown: list[dict[str, object]] = []
        if messages:
            seqs = {(one.topic, one.partition, one.offset): seq for seq, one in enumerate(messages)}
            for look in looks:
                look.number = lambda record: seqs[_origin(cast("SinkRecord", record))]
            batch = build_sink_pipeline(self._runtime, spec, self._jobs).run(_consumed(messages))
            for seq, message in enumerate(messages):
                one: dict[str, object] = {
                    "input": _message_json(message),
                    "steps": _steps(parts, looks, seq, batch.errors.get(seq)),
                }
                if seq in batch.errors:
                    one["error"] = _error_json(batch.errors[seq])
                else:
                    last = looks[-1].seen.get(seq)
                    one["output"] = None if last is None else _record_json(last)
                shown.append(one)
        return {
            "type": "sink",
            "ended_by": "given" if request.records is not None else "records" if messages else "end",
            "records": shown,
        }

    # ------------------------------------------------------------------ both
    def _spec(self, parts: TaskParts, chain: Sequence[TransformStage]) -> PipelineSpec:
        converters = parts.key_converter, parts.value_converter, parts.header_converter
        spec = PipelineSpec(*converters, chain, "preview", nothing_beside_spark=self._settings.all_through_spark)
        # Ten records are not worth a plan for each step, and tasks need the cores.
        return replace(spec, without_spark=not spec.nothing_beside_spark)

    def _sampled(self, request: PreviewRequest, settings: SinkSettings) -> list[SampledMessage]:
        client = consumer_settings(self._settings.raw, settings.raw, client_id="penstock-preview", group_id="preview")
        topics = compile_java(settings.topics_regex) if settings.topics_regex else settings.topics
        limits = request.limits
        return sample(
            client.checked().librdkafka, topics, records=limits.records, size=limits.bytes, seconds=limits.seconds
        )


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
    """What each transform made of one record, up to where it was dropped or failed."""
    found = []
    for stage, before, after in zip(parts.transforms, looks[:-1], looks[1:], strict=True):
        if seq not in before.seen:
            break
        step: dict[str, object] = {"transform": stage.alias, "before": _record_json(before.seen[seq])}
        if seq in after.seen:
            step["after"] = _record_json(after.seen[seq])
        elif error is not None:
            step["error"] = _error_json(error)
        else:
            step["dropped"] = True
        found.append(step)
    return found


# ------------------------------------------------------------------ records in
def _source_record(given: GivenRecord) -> SourceRecord:
    record = SourceRecord(
        None, None, given.topic, given.value, key=given.key, partition=given.partition, timestamp=given.timestamp
    )
    for name, text in given.headers.items():
        record.headers.add_string(name, text)
    return record


def _message(given: GivenRecord, seq: int) -> SampledMessage:
    headers = [(name, text.encode()) for name, text in given.headers.items()]
    kind = -1 if given.timestamp is None else 0
    key, value = _given_bytes(given.key), _given_bytes(given.value)
    return SampledMessage(given.topic, given.partition or 0, seq, given.timestamp, kind, key, value, headers)


def _given_bytes(value: object) -> bytes | None:
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    return json.dumps(value).encode()


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


def _consumed(messages: Sequence[SampledMessage]) -> ConsumedBatch:
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
    return ConsumedBatch(pa.table(arrays, schema=CONSUMED_SCHEMA))


# ------------------------------------------------------------------ records out
def _record_json(record: ConnectRecord) -> dict[str, object]:
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


def _message_json(message: SampledMessage) -> dict[str, object]:
    return {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp,
        "key": _bytes_json(message.key),
        "value": _bytes_json(message.value),
        "headers": [{"key": name, "value": _bytes_json(data)} for name, data in message.headers],
    }


def _error_json(error: RecordError) -> dict[str, object]:
    return {
        "stage": error.stage,
        "class": error.executing_class,
        "exception": error.exception_class,
        "message": error.message,
    }


def _bytes_json(data: bytes | None) -> object:
    """Text where it is text, else base64."""
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
