"""The command `bin/bench shapes --here`: CPU time a record of sinks' pipelines, by the shape of JSON messages.

Messages go through the real pipeline of a sink's task on a Spark session, in turn, batch by batch. Kafka, the connector
and Java's worker are not in it.

Main functions: `report`, `costs`. Thread: the main thread.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from benchmarks.shapes.messages import SHAPES, Format, Shape
from benchmarks.smt.here import consumed_table
from penstock.api import ValueForm
from penstock.converters.as_json import JsonConverter
from penstock.converters.headers import SimpleHeaderConverter
from penstock.kafka.collector import collect_rarely
from penstock.pipeline.batch.batches import ConsumedBatch, PipelineSpec
from penstock.pipeline.batch.sink import build_sink_pipeline
from penstock.pipeline.plan.jobs import SparkJobs
from penstock.pipeline.spark.session import SparkRuntime

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_INTO: Final[Mapping[str, ValueForm | None]] = {
    "file sink (text)": ValueForm.TEXT,
    "record sink": None,
    "frame sink": ValueForm.COLUMNS,
}


@dataclass
class Cost:
    """CPU time, in microseconds a record.

    Attributes:
        interpreter_us: Of this process.
        jvm_us: Of Spark's JVM.
    """

    interpreter_us: float = 0.0
    jvm_us: float = 0.0

    @property
    def total_us(self) -> float:
        """Of both."""
        return self.interpreter_us + self.jvm_us


def report(only: str, file: Path | None) -> int:
    """Measures the shapes whose name contains a text, prints, and writes all figures to a file; the exit code is 0."""
    told: list[dict[str, object]] = []
    for shape in SHAPES:
        for schemas in (False, True):
            form = Format.JSON_WITH_SCHEMAS if schemas else Format.JSON
            if only not in f"{shape.name}, {form.value} ->":
                continue
            for into, cost in costs(shape, schemas=schemas).items():
                row = f"{shape.name}, {form.value} -> {into}"
                print(
                    f"  {row:52} {cost.total_us:6.1f}  interpreter {cost.interpreter_us:6.1f}  JVM {cost.jvm_us:6.1f}",
                    flush=True,
                )
                told.append({"name": row, **asdict(cost)})
    if file:
        file.write_text(json.dumps(told, indent=2))
    return 0


def costs(shape: Shape, *, schemas: bool, rows: int = 20_000, warm: int = 25, count: int = 25) -> Mapping[str, Cost]:
    """What sinks take, by their kind.

    Args:
        shape: The messages.
        schemas: Whether they are with their schemas.
        rows: Records in a batch.
        warm, count: Batches before it counts, and while it does.
    """
    runtime = SparkRuntime({})
    try:
        runtime.session(300)
        collect_rarely()  # as a worker does
        return _measured(runtime, _batches(runtime, shape, rows, schemas=schemas), warm, count, rows)
    finally:
        runtime.stop()


def _batches(runtime: SparkRuntime, shape: Shape, rows: int, *, schemas: bool) -> Mapping[str, Callable[[], None]]:
    """What runs one batch, for each kind of sink."""
    jobs = SparkJobs(runtime)
    consumed = ConsumedBatch(_table(shape, rows, schemas=schemas))

    def batch(form: ValueForm | None) -> Callable[[], None]:
        spec = PipelineSpec(_json(schemas, True), _json(schemas, False), SimpleHeaderConverter(), value_form=form)
        pipeline = build_sink_pipeline(runtime, spec, jobs)

        def run() -> None:
            made = pipeline.run(consumed)
            if made.errors:
                raise RuntimeError(f"{len(made.errors)} of {rows} records failed: {next(iter(made.errors.values()))}")

        return run

    return {name: batch(form) for name, form in _INTO.items()}


def _table(shape: Shape, rows: int, *, schemas: bool) -> pa.Table:
    """Messages as a consumer fetches them."""
    keys, values = zip(*shape.json(rows, schemas=schemas), strict=True)
    table = consumed_table(pa.array(values, pa.binary()))
    return table.set_column(table.schema.get_field_index("key"), "key", pa.array(keys, pa.binary()))


def _json(schemas: bool, is_key: bool) -> JsonConverter:
    made = JsonConverter()
    made.configure({"schemas.enable": json.dumps(schemas)}, is_key)
    return made


def _measured(
    runtime: SparkRuntime, batches: Mapping[str, Callable[[], None]], warm: int, count: int, rows: int
) -> Mapping[str, Cost]:
    costs = {name: Cost() for name in batches}
    for number in range(warm + count):
        for name, batch in batches.items():
            before = time.process_time(), _jvm_seconds(runtime)
            batch()
            if number >= warm:
                costs[name].interpreter_us += (time.process_time() - before[0]) / count / rows * 1e6
                costs[name].jvm_us += (_jvm_seconds(runtime) - before[1]) / count / rows * 1e6
    return costs


def _jvm_seconds(runtime: SparkRuntime) -> float:
    stat = Path(f"/proc/{runtime.jvm_pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / _TICKS
