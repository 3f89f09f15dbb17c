"""Java Connect's own classes in a tight loop: compiles `Harness.java` against its jars and runs it.

Main function: `java_rates`.

Thread: any; blocks.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.java_source import compile_java
from benchmarks.smt.cases import BATCHES, TOPIC, Case, Data, messages
from penstock.broker import CONNECT_COORDINATES, resolve_jars
from penstock.broker.jars import find_java

_SOURCE: Final = Path(__file__).with_name("Harness.java")
_OPTIONS: Final = ["-Xms512M", "-Xmx2G", "-XX:+UseG1GC"]
_TIMEOUT_S: Final = 1_800


def java_rates(
    cases: Sequence[Case], directory: Path, *, warm_ms: int, measured_ms: int
) -> Mapping[tuple[int, int], float]:
    """Records a second of each case, by its place among the cases and the size of the batch.

    Args:
        cases: What to run.
        directory: For the class files and the records.
        warm_ms, measured_ms: How long each case runs before and while it is measured.

    Raises:
        NoCompilerError: there is no `javac`.
        RuntimeError: the harness failed.
    """
    class_path = ":".join(map(str, resolve_jars(CONNECT_COORDINATES)))
    java = find_java()
    compile_java(java, _SOURCE, class_path, directory)
    plan = directory / "cases.jsonl"
    plan.write_text("".join(json.dumps(_told(number, case, directory)) + "\n" for number, case in enumerate(cases)))
    main = ["-cp", f"{directory}:{class_path}", "Harness", str(plan), str(warm_ms), str(measured_ms)]
    done = subprocess.run(
        [str(java), *_OPTIONS, *main], check=False, capture_output=True, text=True, timeout=_TIMEOUT_S
    )
    if done.returncode:
        raise RuntimeError(f"Java's harness failed:\n{done.stderr[-3000:]}")
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {(one["case"], one["size"]): one["rate"] for one in found}


def _told(number: int, case: Case, directory: Path) -> dict[str, Any]:
    data = directory / f"{case.data.value}-{'typed' if case.typed else 'plain'}.jsonl"
    if not data.exists():
        data.write_bytes(b"\n".join(messages(case.data, typed=case.typed, count=max(BATCHES))) + b"\n")
    return {
        "case": number,
        "kind": case.kind.value,
        "links": [{"java": link.java, "settings": dict(link.settings)} for link in case.links],
        "data": str(data),
        "typed": case.typed,
        "headers": case.data is Data.HEADERS,
        "sizes": BATCHES,
        "topic": TOPIC,
    }
