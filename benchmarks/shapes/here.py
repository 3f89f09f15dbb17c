"""The command `bin/bench shapes --here`: CPU time a record of sinks' pipelines, by the shape of JSON messages.

Messages go through the real pipeline of a sink's task on a Spark session, in turn, batch by batch. Kafka, the connector
and Java's worker are not in it.

Main functions: `report`, `costs`. Thread: the main thread.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from benchmarks.figures import median
from benchmarks.shapes.messages import SHAPES, Format, Shape
from benchmarks.smt.here import consumed_table
from penstock.api import ValueForm
from penstock.cli.worker.worker import collect_rarely
from penstock.converters.json.converter import JsonConverter
from penstock.converters.string import SimpleHeaderConverter
from penstock.pipeline.batch.batches import PipelineSpec
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.plan.jobs import SparkJobs
from penstock.pipeline.spark.session import SparkRuntime

_TICKS: Final = os.sysconf("SC_CLK_TCK")
INTO: Final[Mapping[str, ValueForm | None]] = {
    "file sink (text)": ValueForm.TEXT,
    "record sink": None,
    "frame sink": ValueForm.COLUMNS,
}


@dataclass(frozen=True)
class Cost:
    """CPU time, in microseconds a record.

    Attributes:
        interpreter_us: Of this process, in the middle one of all batches.
        jvm_us: Of Spark's JVM, over all of them.
    """

    interpreter_us: float
    jvm_us: float

    @property
    def total_us(self) -> float:
        """Of both."""
        return self.interpreter_us + self.jvm_us


def report(only: str, file: Path | None) -> int:
    """Measures the shapes whose name contains a text, prints, and writes all figures to a file; the exit code is 0."""
    told: list[dict[str, object]] = []
    runtime = SparkRuntime({})
    try:
        collect_rarely()  # as a worker does
        for shape in SHAPES:
            for schemas in (False, True):
                form = Format.JSON_WITH_SCHEMAS if schemas else Format.JSON
                names = [into for into in INTO if only in f"{shape.name}, {form.value} -> {into}"]
                for into, cost in costs(runtime, shape, names, schemas=schemas).items():
                    row = f"{shape.name}, {form.value} -> {into}"
                    parts = f"interpreter {cost.interpreter_us:6.1f}  JVM {cost.jvm_us:6.1f}"
                    print(f"  {row:52} {cost.total_us:6.1f}  {parts}", flush=True)
                    told.append({"name": row, **asdict(cost)})
    finally:
        runtime.stop()
    if file:
        file.write_text(json.dumps(told, indent=2))
    return 0


def costs(
    runtime: SparkRuntime,
    shape: Shape,
    into: Sequence[str],
    *,
    schemas: bool = False,
    rows: int = 20_000,
    warm: int = 25,
    count: int = 25,
) -> Mapping[str, Cost]:
    """What sinks take, by their kind.

    Args:
        runtime: Owner of the session.
        shape: The messages.
        into: Keys of `INTO`.
        schemas: Whether messages are with their schemas.
        rows: Records in a batch.
        warm, count: Batches before it counts, and while it does.
    """
    runtime.session(300)
    batches = _batches(runtime, shape, into, rows, schemas=schemas)
    interpreter: dict[str, list[float]] = {name: [] for name in into}
    jvm = dict.fromkeys(into, 0.0)
    for number in range(warm + count):
        for name, batch in batches.items():
            before = time.process_time(), _jvm_seconds(runtime)
            batch()
            if number >= warm:
                interpreter[name].append((time.process_time() - before[0]) / rows * 1e6)
                jvm[name] += (_jvm_seconds(runtime) - before[1]) / count / rows * 1e6
    return {name: Cost(median(interpreter[name]), jvm[name]) for name in into}


def _batches(
    runtime: SparkRuntime, shape: Shape, into: Sequence[str], rows: int, *, schemas: bool
) -> Mapping[str, Callable[[], None]]:
    """What runs one batch, for each kind of sink."""
    jobs = SparkJobs(runtime)
    consumed = _table(shape, rows, schemas=schemas)

    def batch(form: ValueForm | None) -> Callable[[], None]:
        spec = PipelineSpec(_json(schemas, True), _json(schemas, False), SimpleHeaderConverter(), value_form=form)
        pipeline = SinkPipeline(runtime, spec, jobs)

        def run() -> None:
            made = pipeline.run(consumed)
            if made.errors:
                raise RuntimeError(f"{len(made.errors)} of {rows} records failed: {next(iter(made.errors.values()))}")

        return run

    return {name: batch(INTO[name]) for name in into}


def _table(shape: Shape, rows: int, *, schemas: bool) -> pa.Table:
    """Messages as a consumer fetches them."""
    keys, values = zip(*shape.json(rows, schemas=schemas), strict=True)
    table = consumed_table(pa.array(values, pa.binary()))
    return table.set_column(table.schema.get_field_index("key"), "key", pa.array(keys, pa.binary()))


def _json(schemas: bool, is_key: bool) -> JsonConverter:
    made = JsonConverter()
    made.configure({"schemas.enable": json.dumps(schemas)}, is_key)
    return made


def _jvm_seconds(runtime: SparkRuntime) -> float:
    stat = Path(f"/proc/{runtime.jvm_pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / _TICKS
