"""The narrow place where vectors meet the pipeline: records in, outcomes out, through ``penstock.pipeline`` on Spark.

Main type: ``PipelineAdapter``. It uses the pipeline as the worker does, by its public entry points only:

* Sink records come from converters of our own that look a record's parts up by the number that stands in its bytes.
* Source records are seen after the chain by a classic transform of our own, ``Capture``, at its end.

Owning thread: any; an adapter keeps no state but the runtime, and every call builds its own pipeline.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import pyarrow as pa

from conformance.vectors.codec import decode_schema, decode_value, encode_schema, encode_value
from conformance.vectors.ends import Capture, Empty, EmptyHeader, LookUp, LookUpHeader, as_consumed, consumed
from conformance.vectors.model import Failure, Outcome, Success, simple_name, transform_class
from penstock.api import (
    ConnectRecord,
    Converter,
    HeaderConverter,
    Predicate,
    SinkRecord,
    SourceRecord,
    Transformation,
)
from penstock.data import ConnectHeaders, Header, Schema
from penstock.pipeline.batch.batches import (
    PipelineSpec,
    ProduceBatch,
    RecordError,
    SinkBatch,
    TransformStage,
)
from penstock.plugins import PluginKind, PluginNotFoundException, Plugins

if TYPE_CHECKING:
    from penstock.pipeline.spark.session import SparkRuntime

T = TypeVar("T")
R = TypeVar("R", bound=ConnectRecord)

_CONNECT: Final = "org.apache.kafka.connect"
_CONVERTER_PACKAGES: Final = {"JsonConverter": "json", "StringConverter": "storage", "SimpleHeaderConverter": "storage"}
_APPLIED: Final = "penstock.vectors.applied"


@dataclass(frozen=True)
class ConverterInput:
    """The input of a converter in a vector: a value with its schema, or bytes."""

    schema: Schema | None = None
    value: object = None
    data: bytes | None = None
    topic: str = "t"
    key: str = "h"


class PipelineAdapter:
    """Runs classes on records through the pipeline. Thread: any number of threads.

    Args:
        runtime: Owner of a started Spark session.
        plugins: Where classes are found.
    """

    def __init__(self, runtime: SparkRuntime, plugins: Plugins) -> None:
        self._runtime = runtime
        self._plugins = plugins

    # ------------------------------------------------------------------------------------- transforms and predicates
    def apply_transform(self, records: Sequence[ConnectRecord], cls: str, config: Mapping[str, Any]) -> list[Outcome]:
        """Each record after a transform: ``{"record": ...}``, None for a dropped one."""
        name = transform_class(cls)
        made = self._make(PluginKind.TRANSFORMATION, name, lambda one: cast("Transformation", one).configure(config))
        if isinstance(made, Failure):
            return [made] * max(1, len(records))
        if not records:
            return [Success({"configured": True})]
        outcomes = self._through([TransformStage("t", cast("Transformation", made))], records)
        return [
            one if isinstance(one, Failure) else Success({"record": None if one is None else encode_record(one)})
            for one in outcomes
        ]

    def test_predicate(
        self, records: Sequence[ConnectRecord], cls: str, config: Mapping[str, Any], *, negate: bool
    ) -> list[Outcome]:
        """For each record whether a transform guarded by a predicate ran, and so what the predicate said."""
        name = f"{_CONNECT}.transforms.predicates.{cls}"
        made = self._make(PluginKind.PREDICATE, name, lambda one: cast("Predicate", one).configure(config))
        if isinstance(made, Failure):
            return [made] * len(records)
        # A stock transform as the mark: then the predicate is a column, too.
        mark = self._plugins.new(PluginKind.TRANSFORMATION, f"{_CONNECT}.transforms.InsertHeader")
        cast("Transformation", mark).configure({"header": _APPLIED, "value.literal": "true"})
        stage = TransformStage("t", cast("Transformation", mark), cast("Predicate", made), negate)
        found: list[Outcome] = []
        for one in self._through([stage], records):
            if isinstance(one, Failure) or one is None:
                found.append(one if one is not None else Success({"dropped": True}))
                continue
            applied = one.headers.last_with_name(_APPLIED) is not None
            found.append(Success({"applied": applied, "test": applied != negate}))
        return found

    def _through(
        self, stages: Sequence[TransformStage], records: Sequence[ConnectRecord]
    ) -> list[ConnectRecord | Failure | None]:
        """Each record after a chain; records are all of sinks or all of sources."""
        if isinstance(records[0], SinkRecord):
            return self._through_sink(stages, cast("Sequence[SinkRecord]", records))
        return self._through_source(stages, cast("Sequence[SourceRecord]", records))

    def _through_sink(
        self, stages: Sequence[TransformStage], records: Sequence[SinkRecord]
    ) -> list[ConnectRecord | Failure | None]:
        spec, batch = as_consumed(records, stages)
        result = self._run_sink(spec, batch)
        if isinstance(result, Failure):
            return [result] * len(records)
        kept = result.records or [None] * len(records)
        return [
            _failure(result.errors[seq]) if seq in result.errors else cast("ConnectRecord | None", kept[seq])
            for seq in range(len(records))
        ]

    def _through_source(
        self, stages: Sequence[TransformStage], records: Sequence[SourceRecord]
    ) -> list[ConnectRecord | Failure | None]:
        numbered = [_numbered(one, seq) for seq, one in enumerate(records)]
        capture = Capture()
        empty = Empty()
        chain = [*stages, TransformStage("capture", capture)]
        result = self._run_source(PipelineSpec(empty, empty, EmptyHeader(), chain, "vectors"), numbered)
        if isinstance(result, Failure):
            return [result] * len(records)
        return [
            _failure(result.errors[seq]) if seq in result.errors else capture.seen.get(seq)
            for seq in range(len(records))
        ]

    # ---------------------------------------------------------------------------------------------------- converters
    def from_connect(
        self, inputs: Sequence[ConverterInput], cls: str, config: Mapping[str, Any], *, is_key: bool
    ) -> list[Outcome]:
        """The bytes a converter makes of values: ``{"base64": ...}``."""
        made = self._converter(cls, config, is_key)
        if isinstance(made, Failure):
            return [made] * len(inputs)
        records = [
            _source_record(one.topic, key=one.value, key_schema=one.schema)
            if is_key
            else _source_record(one.topic, value=one.value, value_schema=one.schema)
            for one in inputs
        ]
        key, value = (made, Empty()) if is_key else (Empty(), made)
        # Nothing beside Spark: what is judged are the columns, also where a batch has many schemas.
        spec = PipelineSpec(key, value, EmptyHeader(), (), "vectors", nothing_beside_spark=True)
        result = self._run_source(spec, records)
        if isinstance(result, Failure):
            return [result] * len(inputs)
        column = result.table.column("key" if is_key else "value").to_pylist()
        return [
            _failure(result.errors[seq]) if seq in result.errors else Success({"base64": base64_text(data)})
            for seq, data in enumerate(column)
        ]

    def to_connect(
        self, inputs: Sequence[ConverterInput], cls: str, config: Mapping[str, Any], *, is_key: bool
    ) -> list[Outcome]:
        """The value a converter makes of bytes: ``{"schema": ..., "value": ...}``."""
        made = self._converter(cls, config, is_key)
        if isinstance(made, Failure):
            return [made] * len(inputs)
        nothing: list[bytes | None] = [None] * len(inputs)
        data = [one.data for one in inputs]
        key, value = (made, LookUp([])) if is_key else (LookUp([]), made)
        spec = PipelineSpec(key, value, LookUpHeader([]), (), "vectors", nothing_beside_spark=True)
        records = [SinkRecord(one.topic, 0, seq, None) for seq, one in enumerate(inputs)]
        result = self._run_sink(spec, consumed(records, *((data, nothing) if is_key else (nothing, data))))
        if isinstance(result, Failure):
            return [result] * len(inputs)
        found: list[Outcome] = []
        for seq, one in enumerate(result.records or nothing):
            if seq in result.errors or not isinstance(one, SinkRecord):
                found.append(_failure(result.errors[seq]) if seq in result.errors else Success({"dropped": True}))
                continue
            schema, content = (one.key_schema, one.key) if is_key else (one.value_schema, one.value)
            found.append(Success({"schema": encode_schema(schema), "value": encode_value(content, schema)}))
        return found

    def from_header(self, inputs: Sequence[ConverterInput], cls: str, config: Mapping[str, Any]) -> list[Outcome]:
        """The bytes a header converter makes of values."""
        made = self._header_converter(cls, config)
        if isinstance(made, Failure):
            return [made] * len(inputs)
        records = [
            SourceRecord({}, {}, one.topic, None, headers=ConnectHeaders([Header(one.key, one.value, one.schema)]))
            for one in inputs
        ]
        result = self._run_source(PipelineSpec(Empty(), Empty(), made, (), "vectors"), records)
        if isinstance(result, Failure):
            return [result] * len(inputs)
        column = result.table.column("headers").to_pylist()
        return [
            _failure(result.errors[seq])
            if seq in result.errors
            else Success({"base64": base64_text(headers[0]["value"])})
            for seq, headers in enumerate(column)
        ]

    def to_header(self, inputs: Sequence[ConverterInput], cls: str, config: Mapping[str, Any]) -> list[Outcome]:
        """The value a header converter makes of bytes."""
        made = self._header_converter(cls, config)
        if isinstance(made, Failure):
            return [made] * len(inputs)
        nothing: list[bytes | None] = [None] * len(inputs)
        records = [SinkRecord(one.topic, 0, seq, None) for seq, one in enumerate(inputs)]
        headers = [[(one.key, one.data)] for one in inputs]
        spec = PipelineSpec(LookUp([]), LookUp([]), made, (), "vectors")
        result = self._run_sink(spec, consumed(records, nothing, nothing, headers))
        if isinstance(result, Failure):
            return [result] * len(inputs)
        found: list[Outcome] = []
        for seq, one in enumerate(result.records or nothing):
            header = next(iter(one.headers), None) if isinstance(one, SinkRecord) else None
            if seq in result.errors or header is None:
                found.append(_failure(result.errors[seq]) if seq in result.errors else Success({"header": None}))
                continue
            value = encode_value(header.value, header.schema)
            found.append(Success({"schema": encode_schema(header.schema), "value": value}))
        return found

    # ------------------------------------------------------------------------------------------------------- running
    def _converter(self, cls: str, config: Mapping[str, Any], is_key: bool) -> Converter | Failure:
        def configure(one: object) -> None:
            cast("Converter", one).configure(config, is_key)

        made = self._make(PluginKind.CONVERTER, _converter_class(cls), configure)
        return made if isinstance(made, Failure) else cast("Converter", made)

    def _header_converter(self, cls: str, config: Mapping[str, Any]) -> HeaderConverter | Failure:
        def configure(one: object) -> None:
            if isinstance(one, Converter):
                one.configure(config, False)
            else:
                cast("HeaderConverter", one).configure(config)

        made = self._make(PluginKind.HEADER_CONVERTER, _converter_class(cls), configure)
        return made if isinstance(made, Failure) else cast("HeaderConverter", made)

    def _make(self, kind: PluginKind, name: str, configure: Callable[[object], None]) -> object:
        try:
            made = self._plugins.new(kind, name)
        except PluginNotFoundException as error:
            return Failure("configure", "PluginNotFoundException", str(error), "unknown class")
        try:
            configure(made)
        except Exception as error:
            return Failure.of("configure", error)
        return made

    def _run_source(self, spec: PipelineSpec, records: Sequence[SourceRecord]) -> ProduceBatch | Failure:
        from penstock.pipeline.batch.source.path import SourcePipeline

        def run() -> ProduceBatch:
            return SourcePipeline(self._runtime, spec).run(records)

        return _guarded(run)

    def _run_sink(self, spec: PipelineSpec, batch: pa.Table) -> SinkBatch | Failure:
        from penstock.pipeline.batch.sink.path import SinkPipeline

        def run() -> SinkBatch:
            return SinkPipeline(self._runtime, spec).run(batch)

        return _guarded(run)


def _guarded(run: Callable[[], T]) -> T | Failure:
    """An error of the whole batch is never the right answer: errors of records are data."""
    try:
        return run()
    except Exception as error:
        unusable = f"the whole batch failed with {type(error).__qualname__}: {error}"
        return Failure("apply", type(error).__qualname__, str(error), unusable)


# --------------------------------------------------------------------------------------------------- records and bytes
def decode_record(data: Mapping[str, Any]) -> ConnectRecord:
    """The record a vector writes."""
    key_schema, value_schema = decode_schema(data["keySchema"]), decode_schema(data["valueSchema"])
    headers = [_decode_header(one) for one in data["headers"]]
    common = {
        "key": decode_value(data["key"], key_schema),
        "key_schema": key_schema,
        "value_schema": value_schema,
        "timestamp": data["timestamp"],
        "headers": ConnectHeaders(headers) if headers else None,
    }
    value = decode_value(data["value"], value_schema)
    if data["recordType"] == "source":
        return _source_record(data["topic"], value=value, partition=data["partition"], **common)
    return SinkRecord(data["topic"], data["partition"], data["offset"], value, **common)


def _decode_header(data: Mapping[str, Any]) -> Header:
    schema = decode_schema(data["schema"])
    return Header(data["key"], decode_value(data["value"], schema), schema)


def encode_record(record: ConnectRecord) -> dict[str, Any]:
    """A record as a vector writes it."""
    return {
        "topic": record.topic,
        "partition": record.kafka_partition,
        "timestamp": record.timestamp,
        "headers": [
            {"key": one.key, "schema": encode_schema(one.schema), "value": encode_value(one.value, one.schema)}
            for one in record.headers
        ],
        "keySchema": encode_schema(record.key_schema),
        "key": encode_value(record.key, record.key_schema),
        "valueSchema": encode_schema(record.value_schema),
        "value": encode_value(record.value, record.value_schema),
    }


def _source_record(topic: str, **parts: Any) -> SourceRecord:
    """A source record with just these parts; the constructor would give a Struct without a schema its own."""
    return SourceRecord({}, {}, topic, None).new_record(**parts)


def _numbered(record: SourceRecord, seq: int) -> SourceRecord:
    """A copy that can be told by its offset."""
    copy = record.new_record()
    copy.source_partition, copy.source_offset = {}, {"seq": seq}
    return copy


def base64_text(data: bytes | None) -> str | None:
    """Bytes as a vector writes them; null stays null."""
    return None if data is None else base64.b64encode(data).decode("ascii")


def _failure(error: RecordError) -> Failure:
    return Failure("apply", simple_name(error.exception_class), error.message)


def _converter_class(cls: str) -> str:
    return f"{_CONNECT}.{_CONVERTER_PACKAGES.get(cls, 'converters')}.{cls}"
