"""Penstock's stock transforms and converters, through the real pipeline on a Spark session.

Main type: `Pipelines`. A batch of records goes the way of a plain record task: records to Arrow, the plan, bytes for
Kafka. A converter that reads goes the way of a sink that takes columns. What a transform costs is told by CPU time of
this process and of the JVM, above the same records through a chain without transforms, batch by batch in turn.

Thread: the main thread.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa

from benchmarks.figures import median
from benchmarks.smt.cases import TOPIC, TWO, Case, Data, Kind, Link, empty, messages
from benchmarks.smt.upper_case import StatelessUpperCase, UpperCase, UpperCaseAnew
from penstock.api import BaseTransformation, Converter, SourceRecord, Transformation, ValueForm
from penstock.cli.worker.worker import collect_rarely
from penstock.converters.json.converter import JsonConverter
from penstock.converters.primitives import ByteArrayConverter
from penstock.converters.string import SimpleHeaderConverter
from penstock.data import ConnectHeaders, Schema, SchemaBuilder, Struct, Type
from penstock.pipeline.batch.batches import (
    CONSUMED_SCHEMA,
    PipelineSpec,
    TransformStage,
)
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.plan.jobs import SparkJobs
from penstock.pipeline.spark.session import SparkRuntime
from penstock.plugins import PluginKind, Plugins

_TICKS: Final = os.sysconf("SC_CLK_TCK")
#: Batches before it counts, and while it does, by the size of a batch.
_WARM: Final[Mapping[int, int]] = {20: 20, 50_000: 10}
_MEASURED: Final[Mapping[int, int]] = {20: 15, 50_000: 8}
FIFTY: Final = 50
RECORDS_EACH: Final = 20

Batch = Callable[[], object]


@dataclass(frozen=True)
class Rate:
    """What batches of one size gave.

    Attributes:
        rate: Records a second, by the middle one of the batches' times.
        batch_ms: That time.
        cpu_us: CPU time a record, of this process and the JVM.
    """

    rate: float
    batch_ms: float
    cpu_us: float


class Pipelines:
    """Makes and measures pipelines on one Spark session.

    Args:
        runtime: Owner of the session, started.
        share: How many of the usual batches are run; 1 = all.
    """

    def __init__(self, runtime: SparkRuntime, share: float = 1) -> None:
        self._runtime = runtime
        self._share = share
        self._jobs = SparkJobs(runtime)
        self._plugins = Plugins.discover()
        runtime.session(300)
        collect_rarely()  # as a worker does

    # ------------------------------------------------------------------ measuring
    def warm(self, batches: Sequence[Batch], size: int) -> None:
        """Runs some kinds of batches in turn, until the JVM has compiled most of what they need."""
        for _ in range(max(2, round(_WARM[size] * self._share))):
            for batch in batches:
                batch()

    def measure(self, batches: Sequence[Batch], size: int) -> list[Rate]:
        """Runs some kinds of batches in turn, so that what else the machine does falls on all of them."""
        self.warm(batches, size)
        times: list[list[float]] = [[] for _ in batches]
        spent = [0.0 for _ in batches]
        count = max(2, round(_MEASURED[size] * self._share))
        for _ in range(count):
            for place, batch in enumerate(batches):
                before, started = self._cpu_seconds(), time.perf_counter()
                batch()
                times[place].append(time.perf_counter() - started)
                spent[place] += self._cpu_seconds() - before
        middles = [median(one) for one in times]
        return [
            Rate(size / middle, middle * 1000, seconds / count / size * 1e6)
            for middle, seconds in zip(middles, spent, strict=True)
        ]

    def _cpu_seconds(self) -> float:
        stat = Path(f"/proc/{self._runtime.jvm_pid}/stat").read_text().rpartition(")")[2].split()
        return time.process_time() + (int(stat[11]) + int(stat[12])) / _TICKS

    # ------------------------------------------------------------------ batches
    def batch(self, case: Case, size: int) -> Batch:
        """What runs one batch of a case."""
        if case.kind is Kind.READ:
            return self._reading(case, size)
        records = _records(case.data, case.typed, size)
        if case.kind is Kind.WRITE:
            pipeline = SourcePipeline(self._runtime, self._spec(self._converter(case.links[0])), self._jobs)
        else:
            converter = _json(case.typed)
            pipeline = SourcePipeline(self._runtime, self._spec(converter, self._stages(case.links)), self._jobs)
        return _checked(lambda: pipeline.run(records))

    def _reading(self, case: Case, size: int) -> Batch:
        write = Case(case.name, Kind.WRITE, case.links, case.data, case.typed)
        made = cast("Any", self.batch(write, size)())
        wire = made.table.column("value").combine_chunks()
        spec = self._spec(self._converter(case.links[0]), form=ValueForm.COLUMNS)
        pipeline = SinkPipeline(self._runtime, spec, self._jobs)
        consumed = consumed_table(wire)
        return _checked(lambda: pipeline.run(consumed))

    def fifty_schemas(self) -> Batch:
        """A batch of fifty schemas with some records each, through a chain of two."""
        records = [_versioned(schema, row) for row in range(RECORDS_EACH) for schema in _schemas()]
        spec = self._spec(_json(True), self._stages(TWO))
        pipeline = SourcePipeline(self._runtime, spec, self._jobs)
        return _checked(lambda: pipeline.run(records))

    def with_python(self, size: int, spent: Callable[[str, float], None]) -> Batch:
        """A chain with a record-wise transform in Python between two stock ones."""
        first, last = self._stages(TWO)
        return self._python([first, _python_stage(UpperCase), last], size, spent)

    def with_stateless(self, size: int, spent: Callable[[str, float], None]) -> Batch:
        """The same with one that any process may run."""
        first, last = self._stages(TWO)
        return self._python([first, _python_stage(StatelessUpperCase), last], size, spent)

    def python_alone(self, size: int, spent: Callable[[str, float], None]) -> Batch:
        """A chain of one record-wise transform in Python."""
        return self._python([_python_stage(UpperCase)], size, spent)

    def stateless_alone(self, size: int, spent: Callable[[str, float], None]) -> Batch:
        """A chain of one that any process may run."""
        return self._python([_python_stage(StatelessUpperCase)], size, spent)

    def python_anew(self, size: int, spent: Callable[[str, float], None]) -> Batch:
        """The same with one that builds its structs field by field."""
        return self._python([_python_stage(UpperCaseAnew)], size, spent)

    def _python(self, stages: Sequence[TransformStage], size: int, spent: Callable[[str, float], None]) -> Batch:
        spec = self._spec(_json(False), stages, spent=spent)
        pipeline = SourcePipeline(self._runtime, spec, self._jobs)
        records = _records(Data.FLAT, True, size)
        return _checked(lambda: pipeline.run(records))

    def compared(self, case: Case, size: int) -> list[Rate]:
        """A chain, and the same records through none."""
        return self.measure([self.batch(case, size), self.batch(empty(case.data, typed=case.typed), size)], size)

    # ------------------------------------------------------------------ parts
    def _spec(
        self,
        converter: Converter,
        stages: Sequence[TransformStage] = (),
        form: ValueForm | None = None,
        spent: Callable[[str, float], None] = lambda alias, seconds: None,
    ) -> PipelineSpec:
        keys = ByteArrayConverter() if not stages else _json(False)
        if not stages:
            keys.configure({}, True)
        return PipelineSpec(keys, converter, SimpleHeaderConverter(), stages, "smt", value_form=form, spent=spent)

    def _converter(self, link: Link) -> Converter:
        made = cast("Converter", self._plugins.new(PluginKind.CONVERTER, link.java))
        made.configure(dict(link.settings), False)
        return made

    def _stages(self, links: Sequence[Link]) -> list[TransformStage]:
        stages = []
        for number, link in enumerate(links):
            made = cast("BaseTransformation", self._plugins.new(PluginKind.TRANSFORMATION, link.java))
            made.configure(dict(link.settings))
            stages.append(TransformStage(f"t{number}", made))
        return stages


def _python_stage(kind: type[Transformation]) -> TransformStage:
    transform = kind()
    transform.configure({})
    return TransformStage("python", transform)


def _checked(run: Callable[[], Any]) -> Batch:
    """A batch that must not have a failed record."""

    def batch() -> object:
        made = run()
        if made.errors:
            raise RuntimeError(f"{len(made.errors)} records failed, the first with {next(iter(made.errors.values()))}")
        return made

    return batch


def consumed_table(wire: pa.Array) -> pa.Table:
    """Messages as a consumer fetches them."""
    rows = len(wire)
    columns = {
        "topic": pa.repeat(pa.scalar(TOPIC), rows),
        "partition": pa.repeat(pa.scalar(0, pa.int32()), rows),
        "offset": pa.array(range(rows), pa.int64()),
        "timestamp": pa.repeat(pa.scalar(1, pa.int64()), rows),
        "timestamp_type": pa.repeat(pa.scalar(0, pa.int8()), rows),
        "key": pa.nulls(rows, pa.binary()),
        "value": wire,
        "headers": pa.nulls(rows, CONSUMED_SCHEMA.field("headers").type),
    }
    return pa.table([columns[one.name] for one in CONSUMED_SCHEMA], schema=CONSUMED_SCHEMA)


def _json(schemas: bool) -> JsonConverter:
    made = JsonConverter()
    made.configure({"schemas.enable": json.dumps(schemas)}, False)
    return made


@lru_cache(maxsize=4)
def _records(data: Data, typed: bool, size: int) -> list[SourceRecord]:
    """The records, which are made once for all cases that follow each other."""
    reader = _json(typed)
    headers = ConnectHeaders().add_string("trace", "on") if data is Data.HEADERS else None
    found = []
    for number, message in enumerate(messages(data, typed=typed, count=size)):
        read = reader.to_connect_data(TOPIC, message)
        record = SourceRecord(
            {},
            {"at": number},
            TOPIC,
            read.value,
            value_schema=read.schema,
            timestamp=1_700_000_000_000,
            headers=headers,
        )
        found.append(record)
    return found


def _schemas() -> list[Schema]:
    found = []
    for number in range(FIFTY):
        builder = SchemaBuilder.struct().name(f"table{number}").field("id", Schema(Type.INT64))
        for column in range(number % 5 + 1):
            builder.field(f"column{column}", Schema(Type.STRING))
        found.append(builder.build())
    return found


def _versioned(schema: Schema, row: int) -> SourceRecord:
    value = Struct(schema).put("id", row)
    for field in schema.fields[1:]:
        value.put(field, f"{field.name} {row}")
    return SourceRecord({}, {}, TOPIC, value, value_schema=schema)
