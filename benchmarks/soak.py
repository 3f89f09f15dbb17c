"""`python -m benchmarks.soak`: many small batches through a source and a sink pipeline; does anything grow?

What is watched: the JVM's heap after a collection, its threads and open files, queries that Spark remembers, plans that
the pipeline keeps; the worker's resident memory, threads and open files. Now and then records have a schema that nobody
has seen before, which is what fills caches. The first third is for warming up; from there to the end nothing may grow.

Thread: each lane, a source and a sink pipeline, runs its batches in a thread of its own; the main thread takes samples
between two rounds, when no batch is under way.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from testkit.processes.worker_process import resident_kb

from benchmarks.growth import grown
from penstock.api import SourceRecord
from penstock.converters.json.converter import JsonConverter
from penstock.converters.string import SimpleHeaderConverter, StringConverter
from penstock.data import Schema, SchemaBuilder, Struct, Type
from penstock.pipeline.batch.batches import (
    CONSUMED_SCHEMA,
    PipelineSpec,
    ProduceBatch,
    TransformStage,
)
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.plan.jobs import MAX_NUMBERS, MAX_PLANS, SparkJobs
from penstock.pipeline.spark.gate import Gate
from penstock.pipeline.spark.session import SparkRuntime
from penstock.transforms.extraction import HoistFieldValue
from penstock.transforms.field_values import InsertFieldValue

MEGABYTE: Final = 1024 * 1024
#: What a figure may differ by between the first third and the end before it counts as growth: share, then amount.
TOLERANCE: Final = {
    "heap_mb": (0.10, 10.0),
    "jvm_rss_mb": (0.10, 60.0),
    "jvm_threads": (0.0, 8.0),
    "jvm_files": (0.0, 10.0),
    "queries": (0.0, 10.0),
    "rss_mb": (0.05, 20.0),
    "threads": (0.0, 2.0),
    "files": (0.0, 4.0),
}


@dataclass(frozen=True)
class Sample:
    """What there was after so many batches."""

    batches: int
    per_second: float
    heap_mb: float
    jvm_rss_mb: float
    jvm_threads: int
    jvm_files: int
    queries: int
    plans: int
    rss_mb: float
    threads: int
    files: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the batches and prints the samples; the exit code is 1 when something grows."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batches", type=int, default=100_000, help="pairs of a source and a sink batch (%(default)s)")
    parser.add_argument("--lanes", type=int, default=2, help="pipelines that run at once (%(default)s)")
    parser.add_argument("--rows", type=int, default=20, help="records of a batch (%(default)s)")
    parser.add_argument("--every", type=int, default=0, help="batches between two samples (a twelfth of all)")
    parser.add_argument("--new-schema", type=int, default=25, help="a new schema each so many batches (%(default)s)")
    parser.add_argument("--minutes", type=float, default=0, help="end after so long, whatever the number of batches")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--json", type=Path, help="write the samples to this file")
    options = parser.parse_args(arguments)
    runtime = SparkRuntime({"spark.master": options.master})
    runtime.start()
    try:
        runtime.session(300)
        samples = run(runtime, options)
    finally:
        runtime.stop()
    if options.json:
        options.json.write_text(json.dumps([asdict(sample) for sample in samples], indent=1) + "\n")
    grown = growth(samples)
    for line in grown:
        print(f"GROWS {line}")
    print("something grows" if grown else "nothing grows")
    return 1 if grown else 0


def growth(samples: Sequence[Sample]) -> list[str]:
    """What grows, kept plans among it."""
    found = grown(samples, TOLERANCE)
    if samples and samples[-1].plans > MAX_PLANS + MAX_NUMBERS:
        found.append(f"plans: {samples[-1].plans}, more than are to be kept")
    return found


def run(runtime: SparkRuntime, options: argparse.Namespace) -> list[Sample]:
    """The batches; prints a line for each sample."""
    jobs = SparkJobs(runtime, Gate(2))
    lanes = [_Lane(runtime, jobs, options) for _ in range(options.lanes)]
    every = options.every or max(1, options.batches // 12)
    print("  batches  pairs/s | heap MB  rss MB threads files queries | plans | own rss MB threads files", flush=True)
    samples: list[Sample] = []
    began = last = time.monotonic()
    ends = began + options.minutes * 60 if options.minutes else math.inf
    done = 0
    with ThreadPoolExecutor(options.lanes) as pool:
        while done < options.batches and time.monotonic() < ends:
            numbers = range(done + 1, min(done + every, options.batches) + 1)
            shares = [numbers[first :: options.lanes] for first in range(options.lanes)]
            ran = sum(pool.map(_Lane.run, lanes, shares, [ends] * options.lanes))
            now = time.monotonic()
            done += ran
            samples.append(_sample(runtime, jobs, done, ran / (now - last)))
            last = time.monotonic()
            print(_line(samples[-1]), flush=True)
    return samples


class _Lane:
    """A source and a sink pipeline; what the one makes, the other reads."""

    def __init__(self, runtime: SparkRuntime, jobs: SparkJobs, options: argparse.Namespace) -> None:
        self._source, self._sink = _source(runtime, jobs), _sink(runtime, jobs)
        self._rows, self._new_schema = options.rows, options.new_schema

    def run(self, numbers: Sequence[int], ends: float) -> int:
        """The batches of these numbers, as far as the time allows; returns how many pairs ran."""
        for ran, number in enumerate(numbers):
            if time.monotonic() > ends:
                return ran
            fresh = number // self._new_schema if number % self._new_schema == 0 else 0
            made = self._source.run(_records(self._rows, number, fresh))
            read = self._sink.run(_consumed(made))
            assert not made.errors
            assert not read.errors
            assert read.records is not None
            assert len(read.records) == self._rows
        return len(numbers)


def _line(one: Sample) -> str:
    jvm = f"{one.heap_mb:7.1f} {one.jvm_rss_mb:7.0f} {one.jvm_threads:7} {one.jvm_files:5} {one.queries:7}"
    own = f"{one.rss_mb:14.0f} {one.threads:7} {one.files:5}"
    return f"{one.batches:9} {one.per_second:8.1f} | {jvm} | {one.plans:5} | {own}"


def _sample(runtime: SparkRuntime, jobs: SparkJobs, batches: int, per_second: float) -> Sample:
    gc.collect()
    session: Any = runtime.session()
    jvm = session._jvm
    for _ in range(2):
        # References that only a first collection frees are gone after the second.
        jvm.System.gc()
    memory = jvm.java.lang.Runtime.getRuntime()
    beans = jvm.java.lang.management.ManagementFactory
    pid = runtime.jvm_pid
    assert pid is not None
    return Sample(
        batches,
        per_second,
        (memory.totalMemory() - memory.freeMemory()) / MEGABYTE,
        resident_kb(pid) / 1024,
        beans.getThreadMXBean().getThreadCount(),
        len(os.listdir(f"/proc/{pid}/fd")),
        session._jsparkSession.sharedState().statusStore().executionsCount(),
        len(jobs._plans) + len(jobs._numbers),
        resident_kb(os.getpid()) / 1024,
        threading.active_count(),
        len(os.listdir("/proc/self/fd")),
    )


# ---------------------------------------------------------------------------------------------- pipelines and batches
def _json(is_key: bool) -> JsonConverter:
    converter = JsonConverter()
    converter.configure({"schemas.enable": "true"}, is_key)
    return converter


def _spec(transforms: Sequence[TransformStage] = ()) -> PipelineSpec:
    key, header = StringConverter(), SimpleHeaderConverter()
    key.configure({}, True)
    header.configure({})
    return PipelineSpec(key, _json(False), header, transforms, "soak")


def _source(runtime: SparkRuntime, jobs: SparkJobs) -> SourcePipeline:
    hoist, insert = HoistFieldValue(), InsertFieldValue()
    hoist.configure({"field": "line"})
    insert.configure({"static.field": "origin", "static.value": "soak"})
    stages = [TransformStage("hoist", hoist), TransformStage("insert", insert)]
    return SourcePipeline(runtime, _spec(stages), jobs)


def _sink(runtime: SparkRuntime, jobs: SparkJobs) -> SinkPipeline:
    return SinkPipeline(runtime, _spec(), jobs)


def _records(rows: int, number: int, fresh: int) -> list[SourceRecord]:
    """Text, schemaless maps and structs; with a number, structs of a schema of that number."""
    text = Schema(Type.STRING)
    struct = SchemaBuilder.struct().name(f"soak.{fresh}").field("a", text).field("n", Schema(Type.INT64)).build()
    made: list[SourceRecord] = []
    for row in range(rows):
        key = f"k{row}"
        if row % 3 == 0:
            made.append(SourceRecord({}, {}, "soak", f"line {number} {row}", value_schema=text, key=key))
        elif row % 3 == 1:
            made.append(SourceRecord({}, {}, "soak", {"b": [row, 1.5, None], "n": number}, key=key))
        else:
            value = Struct(struct).put("a", "x" * (row + 1)).put("n", number)
            made.append(SourceRecord({}, {}, "soak", value, value_schema=struct, key=key))
    return made


def _consumed(made: ProduceBatch) -> pa.Table:
    """What a consumer would fetch of it."""
    rows = made.table.num_rows
    columns: dict[str, Any] = {
        "partition": pa.array([0] * rows),
        "offset": pa.array(range(rows)),
        "timestamp": pa.array([1] * rows),
        "timestamp_type": pa.array([0] * rows),
    }
    columns |= {name: made.table.column(name).combine_chunks() for name in ("topic", "key", "value", "headers")}
    return pa.table([columns[one.name].cast(one.type) for one in CONSUMED_SCHEMA], CONSUMED_SCHEMA)


if __name__ == "__main__":
    sys.exit(main())
