"""The command `bin/bench shapes`: CPU time a record of sinks, by the shape of JSON messages.

Messages go through the real pipeline of a sink's task on a Spark session, in turn, batch by batch. Kafka, the connector
and Java's worker are not in it.

Main function: `main`. Thread: the main thread.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

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


@dataclass(frozen=True)
class Shape:
    """Messages of one shape.

    Attributes:
        name: For the table.
        fields: The fields of their JSON schema.
        value: Makes the value of a message of its number.
        keys: Whether they have keys.
    """

    name: str
    fields: Sequence[Mapping[str, object]]
    value: Callable[[int], Mapping[str, object]]
    keys: bool = False

    def messages(self, count: int, *, schemas: bool) -> pa.Table:
        """So many messages as a consumer fetches them."""
        schema = {"type": "struct", "optional": False, "fields": self.fields}
        key_schema = {"type": "string", "optional": False}
        values = [_message(self.value(row), schema if schemas else None) for row in range(count)]
        table = consumed_table(pa.array(values, pa.binary()))
        if not self.keys:
            return table
        keys = [_message(f"key-{row}", key_schema if schemas else None) for row in range(count)]
        return table.set_column(table.schema.get_field_index("key"), "key", pa.array(keys, pa.binary()))


def _message(value: object, schema: object | None) -> bytes:
    whole = value if schema is None else {"schema": schema, "payload": value}
    return json.dumps(whole, separators=(",", ":")).encode()


def _field(name: str, kind: str) -> dict[str, object]:
    return {"field": name, "type": kind, "optional": True}


def _flat(row: int) -> Mapping[str, object]:
    chance = random.Random(row)
    return {
        "id": 100_000 + row,
        "name": f"cust-{chance.randrange(99_999):05}",
        "amount": round(1 + chance.random() * 1000, 2),
        "active": chance.random() < 0.5,
        "city": chance.choice(["Bern", "Lyon", "Graz"]),
        "at": 1_700_000_000_000 + row,
        "code": f"{chance.getrandbits(32):08x}",
        "none": None,
        "maybe": None if row % 2 else row % 1000,
        "qty": row % 99,
    }


_FLAT_TYPES: Final = ("int64", "string", "double", "boolean", "string", "int64", "string", "string", "int64", "int64")
SHAPES: Final = (
    Shape("flat", [_field(name, kind) for name, kind in zip(_flat(0), _FLAT_TYPES, strict=True)], _flat),
    Shape(
        "nested",
        [
            _field("id", "int64"),
            {
                "field": "who",
                "type": "struct",
                "optional": True,
                "fields": [_field("n", "string"), _field("a", "int64")],
            },
            {"field": "tags", "type": "array", "optional": True, "items": {"type": "string", "optional": True}},
        ],
        lambda row: {"id": row, "who": {"n": f"name-{row}", "a": row % 90}, "tags": ["red", "green", f"tag-{row}"]},
    ),
    Shape(
        "1 KB with keys",
        [_field("id", "int64"), *(_field(f"field{number}", "string") for number in range(10))],
        lambda row: {"id": row, **{f"field{number}": "abcdefghij" * 8 for number in range(10)}},
        keys=True,
    ),
)


@dataclass
class Cost:
    """CPU time, in microseconds a record.

    Attributes:
        interpreter_us: Of this process.
        jvm_us: Of Spark's JVM.
    """

    interpreter_us: float = 0.0
    jvm_us: float = 0.0


def main(arguments: list[str]) -> int:
    """Parses the arguments, measures and prints; the exit code is 0."""
    parser = argparse.ArgumentParser(prog="bin/bench shapes", description=__doc__)
    parser.add_argument("--only", default="", help="shapes whose name contains this text")
    parser.add_argument("--rows", type=int, default=20_000, help="records in a batch (20,000)")
    parser.add_argument("--warm", type=int, default=25, help="batches of each row before it counts (25)")
    parser.add_argument("--batches", type=int, default=25, help="batches of each row that count (25)")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args(arguments)
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}; CPU microseconds a record")
    runtime = SparkRuntime({})
    report: list[dict[str, object]] = []
    try:
        runtime.session(300)
        collect_rarely()  # as a worker does
        for shape in SHAPES:
            for schemas in (False, True) if options.only in shape.name else ():
                batches = _batches(runtime, shape, options.rows, schemas=schemas)
                costs = _measured(runtime, batches, options.warm, options.batches, options.rows)
                for into, cost in costs.items():
                    row = f"{shape.name}, {'JSON with schemas' if schemas else 'JSON'} -> {into}"
                    total = cost.interpreter_us + cost.jvm_us
                    print(
                        f"  {row:52} {total:6.1f}  interpreter {cost.interpreter_us:6.1f}  JVM {cost.jvm_us:6.1f}",
                        flush=True,
                    )
                    report.append({"name": row, **asdict(cost)})
    finally:
        runtime.stop()
    if options.json:
        options.json.write_text(json.dumps(report, indent=2))
    return 0


def _batches(runtime: SparkRuntime, shape: Shape, rows: int, *, schemas: bool) -> Mapping[str, Callable[[], None]]:
    """What runs one batch, for each kind of sink."""
    jobs = SparkJobs(runtime)
    consumed = ConsumedBatch(shape.messages(rows, schemas=schemas))

    def batch(form: ValueForm | None) -> Callable[[], None]:
        spec = PipelineSpec(_json(schemas, True), _json(schemas, False), SimpleHeaderConverter(), value_form=form)
        pipeline = build_sink_pipeline(runtime, spec, jobs)

        def run() -> None:
            made = pipeline.run(consumed)
            if made.errors:
                raise RuntimeError(f"{len(made.errors)} of {rows} records failed: {next(iter(made.errors.values()))}")

        return run

    return {name: batch(form) for name, form in _INTO.items()}


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
