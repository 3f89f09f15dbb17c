"""``python -m conformance.vectors FILE...``: runs recorded vectors and says which of them fail.

Main function: ``main``. Exit status 0 when none fails, 1 when some do, 2 when there is nothing to run: wrong
arguments, files that cannot be read, no vector of the classes and kinds that are asked for.

Owning thread: the main thread; it starts the Spark session and stops it.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from testkit.spark_settings import QUICK_START

from conformance.vectors.deviations import Deviation, load_deviations
from conformance.vectors.model import UnusableVectorsError, Vector, Verdict, choose, load_vectors
from conformance.vectors.runner import BATCH_ROWS, PLAIN_KINDS, run_one_by_one, run_shuffled

SESSION_TIMEOUT_S = 180.0


@dataclass
class Report:
    """Counts verdicts and tells the failures as they come."""

    deviations: Sequence[Deviation]
    as_json: bool
    passed: int = 0
    failed: list[Verdict] = field(default_factory=list)
    meant: list[tuple[Verdict, Deviation]] = field(default_factory=list)
    messages: Counter[bool] = field(default_factory=Counter)
    passes: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, verdict: Verdict) -> None:
        """Counts one and prints it when it failed."""
        if verdict.passed:
            self.passed += 1
            self.passes[verdict.vector.kind, verdict.vector.cls] += 1
            if verdict.same_message is not None:
                self.messages[verdict.same_message] += 1
            return
        covering = next((rule for rule in self.deviations if rule.covers(verdict)), None)
        if covering is not None:
            self.meant.append((verdict, covering))
            return
        self.failed.append(verdict)
        if self.as_json:
            line = {"id": verdict.vector.id, "class": verdict.vector.cls, "reason": verdict.reason}
            print(json.dumps(line), flush=True)
        else:
            print(f"FAILED {verdict.vector.id}: {verdict.reason}", flush=True)

    def summary(self) -> None:
        """Prints the counts; the last line is for programs."""
        if not self.as_json:
            self._classes()
            for behaviour, count in sorted(Counter(rule.behaviour for _, rule in self.meant).items()):
                reason = next(rule.reason for rule in self.deviations if rule.behaviour == behaviour)
                print(f"deviation {behaviour}: {count} vectors. {reason}")
            compared = sum(self.messages.values())
            print(f"error messages equal to Java's: {self.messages[True]} of {compared}")
        elif self.meant:
            ids = {verdict.vector.id: rule.behaviour for verdict, rule in self.meant}
            print(json.dumps({"deviations": ids}))
        print(f"{len(self.meant)} deviations on purpose")
        print(f"{self.passed} passed, {len(self.failed)} failed")

    def _classes(self) -> None:
        """Prints the share of each class of which not every vector passed."""
        failed = Counter((one.vector.kind, one.vector.cls) for one in self.failed)
        meant = Counter((one.vector.kind, one.vector.cls) for one, _ in self.meant)
        for kind, cls in sorted({*failed, *meant}):
            passed, every = self.passes[kind, cls], self.passes[kind, cls] + failed[kind, cls] + meant[kind, cls]
            share = 100 * passed / every
            print(f"{kind} {cls}: {passed} of {every} passed ({share:.1f} %), {failed[kind, cls]} failed")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command. Returns its exit status."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.ERROR)
    try:
        recorded = [one for path in options.files for one in load_vectors(path)]
        vectors = choose(recorded, options.classes, options.kinds)
    except UnusableVectorsError as error:
        print(error, file=sys.stderr)
        return 2
    report = Report([] if options.strict else load_deviations(), options.json)
    _run(vectors, options, report)
    report.summary()
    return 1 if report.failed else 0


def _run(vectors: Sequence[Vector], options: argparse.Namespace, report: Report) -> None:
    plain = [one for one in vectors if one.kind in PLAIN_KINDS]
    run_one_by_one(plain, None, threads=1, seen=report.add)
    rest = [one for one in vectors if one.kind not in PLAIN_KINDS]
    if not rest:
        return
    from conformance.vectors.adapter import PipelineAdapter
    from penstock.pipeline.spark.session import SparkRuntime
    from penstock.plugins import Plugins

    conf = {"spark.remote": options.remote} if options.remote else QUICK_START | {"spark.master": options.master}
    runtime = SparkRuntime(conf)
    runtime.start()
    try:
        runtime.session(SESSION_TIMEOUT_S)
        adapter = PipelineAdapter(runtime, Plugins.discover())
        if options.shuffled:
            run_shuffled(rest, adapter, rows=options.rows, seed=options.seed, seen=report.add)
        else:
            run_one_by_one(rest, adapter, threads=options.threads, seen=report.add)
    finally:
        runtime.stop()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m conformance.vectors", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("files", nargs="+", type=Path, metavar="FILE", help="vectors, one JSON object a line")
    add("--class", dest="classes", action="append", default=[], metavar="NAME", help="only this class (repeatable)")
    add("--kind", dest="kinds", action="append", default=[], help="only this kind (repeatable)")
    add("--shuffled", action="store_true", help="all vectors of a class and configuration in one batch")
    add("--rows", type=int, default=BATCH_ROWS, help="size of a shuffled batch (%(default)s)")
    add("--seed", type=int, default=0, help="of the shuffling (%(default)s)")
    add("--threads", type=int, default=2, help="vectors at once, one by one (%(default)s)")
    add("--json", action="store_true", help="failures as JSON lines")
    add("--strict", action="store_true", help="count deviations on purpose as failures")
    add("--remote", metavar="URL", help="run on a Spark Connect server")
    add("--master", default="local[2]", help="Spark master without --remote (%(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
