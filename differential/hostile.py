"""Records what Java Kafka Connect answers to the hostile suite: ``python -m differential.hostile FILE``.

A worker of Java's gets each request of ``differential.hostile_cases`` that means something to it; statuses and messages
become lines of the file, which the tests compare ours with. It needs Java, and takes a minute or two.

Thread: the main thread.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from testkit.processes.java_worker import JavaWorker

from differential.hostile_cases import CASES, Case, ask, prepare
from penstock.broker import EmbeddedBroker


def main() -> None:
    """Runs the worker, asks, and writes the file."""
    parser = argparse.ArgumentParser(prog="python -m differential.hostile", description=__doc__)
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    lines: list[str] = []
    with (
        tempfile.TemporaryDirectory(prefix="penstock-hostile-") as scratch,
        EmbeddedBroker(Path(scratch) / "kafka") as broker,
    ):
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "hostile",
            **{f"{kind}.storage.topic": f"hostile-{kind}" for kind in ("config", "offset", "status")},
            **{f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")},
        }
        with JavaWorker(Path(scratch) / "worker", settings) as worker:
            for case in CASES:
                if case.java:
                    lines.append(_line(worker, case))
    options.file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} answers in {options.file}")


def _line(worker: JavaWorker, case: Case) -> str:
    # No path of Java's reaches a name with a slash, or a very long one: such a connector stays.
    worker.wait(
        lambda: (status := prepare(worker.port).status) < 500 and status != 409, "the connector with secrets is there"
    )
    began = time.monotonic()
    answer = ask(worker.port, case)
    print(f"{answer.status} in {time.monotonic() - began:.1f} s: {case.name}: {answer.message[:100]!a}", flush=True)
    told = {"case": case.name, "status": answer.status, "message": answer.message, "shows": answer.shows}
    return json.dumps({**told, "wrong": answer.wrong} if answer.wrong else told)


if __name__ == "__main__":
    main()
