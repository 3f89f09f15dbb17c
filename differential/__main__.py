"""Compares random chains of stock transforms with Kafka Connect's own classes: ``python -m differential``.

Each case is a chain, JsonConverter at both ends and a batch of records; it goes through Penstock's pipeline on Spark
and, record by record, through Java's classes, which need a JDK. Prints what differs, the case that showed it, and a
last line with counts; the exit status is 1 where something differs. What is found belongs into
``tests/data/vectors/regressions.jsonl``, or onto docs/compatibility.md.

Thread: the main thread.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.java_source import NoCompilerError
from testkit.spark_settings import QUICK_START

from differential.cases import Cases
from differential.here import Here
from differential.java import java_answers
from penstock.pipeline.spark.session import SparkRuntime
from penstock.plugins import Plugins

_SESSION_TIMEOUT_S = 120.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command. Returns its exit status."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.ERROR)
    cases = Cases(options.seed, options.rows)
    made = [cases.case() for _ in range(options.count)]
    try:
        with tempfile.TemporaryDirectory() as directory:
            answers = java_answers(made, Path(directory))
    except NoCompilerError as error:
        print(error, file=sys.stderr)
        return 2
    runtime = SparkRuntime(QUICK_START | {"spark.master": "local[2]"})
    runtime.start()
    found = 0
    try:
        runtime.session(_SESSION_TIMEOUT_S)
        here = Here(runtime, Plugins.discover())
        for number, (case, answer) in enumerate(zip(made, answers, strict=True)):
            for one in here.differences(case, answer):
                found += 1
                print(f"case {number}, record {one.place}, chain {json.dumps(case['chain'])}")
                print(f"  given {json.dumps(case['records'][one.place]) if one.place >= 0 else ''}")
                print(f"  here  {one.here}\n  Java  {one.java}", flush=True)
    finally:
        runtime.stop()
    print(f"seed {options.seed}: {len(made)} cases, {len(made) * options.rows} records, {found} differ")
    return 1 if found else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m differential", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="equal seeds make equal cases (%(default)s)")
    parser.add_argument("--count", type=int, default=200, help="how many cases (%(default)s)")
    parser.add_argument("--rows", type=int, default=10, help="records of each (%(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
