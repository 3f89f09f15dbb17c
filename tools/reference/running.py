"""Runs the examples of the documentation through the pipeline of a task, from their configuration on.

Main functions: ``run_chain`` (records through transforms) and ``convert`` (a value to a message and back). Both give
texts in the notation of the examples, so that they can be compared with what the page shows.

Thread: the caller's; each call builds and runs a pipeline of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from conformance.vectors.ends import Empty, EmptyHeader, LookUp, LookUpHeader, as_consumed, consumed
from conformance.vectors.model import simple_name
from testkit.processes.schema_registry import RegistryStandIn

from penstock.api import SinkRecord, SourceRecord
from penstock.data import ConnectHeaders, Header
from penstock.errors import ConnectException
from penstock.pipeline.batch.batches import PipelineSpec, RecordError, SinkBatch
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.spark.session import SparkRuntime
from penstock.plugins import Plugins
from penstock.settings import ConnectorSettings, StandaloneSettings
from penstock.settings.plugin_classes import InstalledPlugins
from penstock.worker.task_parts import TaskParts, make_parts
from tools.reference.examples import (
    BASE,
    DROPPED,
    ConverterExample,
    TransformExample,
    read_message,
    write_message,
    write_record,
)
from tools.reference.notation import read_typed, write_typed

_WORKER: Final = {
    "bootstrap.servers": "localhost:9092",
    "offset.storage.file.filename": "offsets",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
}
#: The schema registry of examples.
_REGISTRY: Final = "http://localhost:8081"
_NAME: Final = {"name": "example", "connector.class": "FileStreamSink"}


def run_chain(runtime: SparkRuntime, plugins: Plugins, example: TransformExample) -> str:
    """Runs an example's records through its chain and returns the result."""
    with ExitStack() as made:
        try:
            parts = _parts(plugins, example.properties, made)
        except ConnectException as error:
            return f"{type(error).__name__}: {error}"
        given = example.records()
        spec, batch = as_consumed(given, parts.transforms)
        return "\n\n".join(_outcomes(given, SinkPipeline(runtime, spec).run(batch)))


def _outcomes(given: Sequence[SinkRecord], batch: SinkBatch) -> list[str]:
    records = batch.records or [None] * len(given)
    origins = range(len(given)) if batch.origins is None else batch.origins.tolist()
    texts: list[str] = []
    for row, before in enumerate(given):
        if row in batch.errors:
            texts.append(_error(batch.errors[row]))
            continue
        pieces = [one for one, origin in zip(records, origins, strict=True) if origin == row and one is not None]
        texts += [write_record(one, before) for one in pieces] or [DROPPED]
    return texts


def convert(runtime: SparkRuntime, plugins: Plugins, example: ConverterExample) -> tuple[str | None, str | None]:
    """Returns what is written (None: the example writes nothing) and what is read from its message (None: no message).

    A schema registry that the example names is an empty one, which is there for this call.
    """
    with ExitStack() as made:
        properties = example.properties
        if _REGISTRY in properties.values():
            url = made.enter_context(RegistryStandIn()).url
            properties = {name: url if text == _REGISTRY else text for name, text in properties.items()}
        parts = _parts(plugins, properties, made)
        header = "header.converter" in example.properties
        written = None if example.value is None else _written(runtime, parts, example.value, header=header)
        read = None if example.fails else _read(runtime, parts, read_message(example.message), header=header)
        return written, read


def _written(runtime: SparkRuntime, parts: TaskParts, text: str, *, header: bool) -> str:
    schema, value = read_typed(text)
    headers = ConnectHeaders([Header("h", value, schema)]) if header else None
    record = (
        SourceRecord({}, {}, BASE.topic, None, headers=headers)
        if header
        else SourceRecord({}, {}, BASE.topic, value, value_schema=schema)
    )
    spec = (
        PipelineSpec(Empty(), Empty(), parts.header_converter, (), "example")
        if header
        else PipelineSpec(Empty(), parts.value_converter, EmptyHeader(), (), "example")
    )
    batch = SourcePipeline(runtime, spec).run([record])
    if batch.errors:
        return _error(batch.errors[0])
    row = batch.table.to_pylist()[0]
    return write_message(row["headers"][0]["value"] if header else row["value"])


def _read(runtime: SparkRuntime, parts: TaskParts, data: bytes | None, *, header: bool) -> str:
    nothing = LookUp([])
    if header:
        spec = PipelineSpec(nothing, nothing, parts.header_converter, (), "example")
        messages = consumed([BASE], [None], [None], [[("h", data)]])
    else:
        spec = PipelineSpec(nothing, parts.value_converter, LookUpHeader([]), (), "example")
        messages = consumed([BASE], [None], [data])
    batch = SinkPipeline(runtime, spec).run(messages)
    if batch.errors:
        return _error(batch.errors[0])
    record = (batch.records or [None])[0]
    assert record is not None, "converters drop nothing"
    found = next(iter(record.headers)) if header else None
    schema, value = (record.value_schema, record.value) if found is None else (found.schema, found.value)
    return " ".join(write_typed(schema, value))


def _error(error: RecordError) -> str:
    return f"{simple_name(error.exception_class)}: {error.message}".rstrip()


def _parts(plugins: Plugins, properties: Mapping[str, str], made: ExitStack) -> TaskParts:
    worker = StandaloneSettings.parse(_WORKER)
    settings = ConnectorSettings.parse({**properties, **_NAME}, InstalledPlugins(plugins))
    return make_parts(worker, settings, plugins, made)
