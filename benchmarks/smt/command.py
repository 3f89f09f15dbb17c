"""The command behind `bin/bench smt`: runs the cases, prints the table, writes the JSON report.

Thread: the main thread.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from benchmarks.java_source import NoCompilerError
from benchmarks.smt.cases import BATCHES, Case, Kind, converter_cases, transform_cases
from benchmarks.smt.here import FIFTY, RECORDS_EACH, Pipelines, Rate
from benchmarks.smt.java import java_rates
from penstock.broker import KAFKA_VERSION
from penstock.pipeline.spark.session import SparkRuntime

#: What a stock transform may cost a record in a batch of 50,000, above a chain without transforms.
MAX_COST_US: Final = 3.0
#: What the batch of fifty schemas may take.
MAX_FIFTY_MS: Final = 500.0
#: What a chain with a transform in Python has to move.
MIN_PYTHON_RATE: Final = 100_000.0
_WARM_FIFTY: Final = 15
_MEASURED_FIFTY: Final = 15
_HEAD: Final = ("", "form", "here, 20", "here, 50,000", "Java, 20", "Java, 50,000", "CPU us a record", "above none")


def main(arguments: Sequence[str]) -> int:
    """Parses the arguments and runs; the exit code is 1 when a target was missed."""
    parser = argparse.ArgumentParser(prog="bin/bench smt", description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name contains this text")
    parser.add_argument("--form", choices=["typed", "schemaless"], help="cases of one form alone")
    parser.add_argument("--no-java", action="store_true", help="Penstock alone")
    parser.add_argument("--share", type=float, default=1, help="run this share of the usual batches, 0.3 for a look")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args(arguments)
    cases = [
        case
        for case in (*transform_cases(), *converter_cases())
        if options.only in case.name and options.form in (None, form_of(case))
    ]
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}, Kafka {KAFKA_VERSION}; records a second")
    java: Mapping[tuple[int, int], float] = {}
    if cases and not options.no_java:
        java = _java(cases)
    report: dict[str, Any] = {"cases": []}
    runtime = SparkRuntime({})
    try:
        pipelines = Pipelines(runtime, options.share)
        _print_row(_HEAD)
        for number, case in enumerate(cases):
            report["cases"].append(_measured(pipelines, number, case, java))
        for name, run in (("fifty schemas", _fifty), ("transform in Python", _python)):
            if options.only in name:
                report[name] = run(pipelines)
    finally:
        runtime.stop()
    missed = missed_targets(report)
    print("\n" + ("all targets are met" if not missed else "missed: " + "; ".join(missed)))
    if options.json:
        options.json.write_text(json.dumps(report, indent=2))
    return 1 if missed else 0


def form_of(case: Case) -> str:
    """For the table."""
    return "typed" if case.typed else "schemaless"


def _java(cases: Sequence[Case]) -> Mapping[tuple[int, int], float]:
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="penstock-smt-") as scratch:
        try:
            found = java_rates(cases, Path(scratch), warm_ms=400, measured_ms=400)
        except NoCompilerError as error:
            print(f"Without Java's figures: {error}, or run with --no-java")
            return {}
    print(f"Java Connect's classes on one thread: {time.monotonic() - started:.0f} s")
    return found


def _measured(pipelines: Pipelines, number: int, case: Case, java: Mapping[tuple[int, int], float]) -> dict[str, Any]:
    rates: dict[int, Rate] = {}
    cost: float | None = None
    for size in BATCHES:
        if case.kind is Kind.CHAIN and size == max(BATCHES):
            rates[size], none = pipelines.compared(case, size)
            cost = rates[size].cpu_us - none.cpu_us
        else:
            rates[size] = pipelines.measure([pipelines.batch(case, size)], size)[0]
    there = [java.get((number, size)) for size in BATCHES]
    _print_row(
        (
            case.name,
            form_of(case),
            *(f"{rates[size].rate:,.0f}" for size in BATCHES),
            *("" if rate is None else f"{rate:,.0f}" for rate in there),
            f"{rates[max(BATCHES)].cpu_us:.2f}",
            "" if cost is None else f"{cost:+.2f}",
        )
    )
    return {
        "name": case.name,
        "form": form_of(case),
        "steps": len(case.links),
        "here": {size: asdict(rate) for size, rate in rates.items()},
        "java": dict(zip(BATCHES, there, strict=True)),
        "cost_us": cost,
    }


def _fifty(pipelines: Pipelines) -> dict[str, float]:
    batch = pipelines.fifty_schemas()
    times = []
    for number in range(_WARM_FIFTY + _MEASURED_FIFTY):
        started = time.perf_counter()
        batch()
        if number >= _WARM_FIFTY:
            times.append((time.perf_counter() - started) * 1000)
    times.sort()
    middle = times[len(times) // 2]
    print(
        f"\n{FIFTY} schemas with {RECORDS_EACH} records each, a chain of two: {middle:.0f} ms a batch, "
        f"the slowest of {len(times)} {times[-1]:.0f} ms (target {MAX_FIFTY_MS:.0f})"
    )
    return {"middle_ms": middle, "slowest_ms": times[-1]}


def _python(pipelines: Pipelines) -> dict[str, dict[str, float]]:
    size = max(BATCHES)
    found: dict[str, dict[str, float]] = {}
    for name, make in (
        ("alone", pipelines.python_alone),
        ("alone, field by field", pipelines.python_anew),
        ("alone, stateless", pipelines.stateless_alone),
        ("between two", pipelines.with_python),
        ("between two, stateless", pipelines.with_stateless),
    ):
        spent: Counter[str] = Counter()

        def note(alias: str, seconds: float, spent: Counter[str] = spent) -> None:
            spent[alias] += seconds  # type: ignore[assignment]

        batch = make(size, note)
        pipelines.warm([batch], size)
        spent.clear()
        started = time.perf_counter()
        rounds = 5
        for _ in range(rounds):
            batch()
        elapsed = time.perf_counter() - started
        found[name] = {"rate": rounds * size / elapsed, "share": spent["python"] / elapsed}
        print(
            f"a transform in Python, {name}: {found[name]['rate']:,.0f} records/s, "
            f"{found[name]['share']:.0%} of the time in it (target {MIN_PYTHON_RATE:,.0f})"
        )
    return found


def missed_targets(report: Mapping[str, Any]) -> list[str]:
    """What a report falls short of, in words."""
    missed = [
        f"{one['name']}, {one['form']}: {one['cost_us']:.1f} us a record (at most {MAX_COST_US})"
        for one in report.get("cases", ())
        if one["cost_us"] is not None and one["cost_us"] > MAX_COST_US * max(1, one["steps"])
    ]
    if (fifty := report.get("fifty schemas")) and fifty["middle_ms"] > MAX_FIFTY_MS:
        missed.append(f"fifty schemas: {fifty['middle_ms']:.0f} ms (at most {MAX_FIFTY_MS:.0f})")
    if (python := report.get("transform in Python")) and python["alone"]["rate"] < MIN_PYTHON_RATE:
        missed.append(
            f"transform in Python: {python['alone']['rate']:,.0f} records/s (at least {MIN_PYTHON_RATE:,.0f})"
        )
    return missed


def _print_row(cells: Sequence[str]) -> None:
    name, form, *figures = cells
    print(f"  {name:30} {form:11}" + "".join(f"{figure:>16}" for figure in figures), flush=True)
