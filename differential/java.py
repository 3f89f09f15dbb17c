"""Asks Kafka Connect's own classes: compiles a program of this folder against their jars and runs it.

Main function: ``java_answers``. Thread: any; blocks.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.java_source import compile_java

from penstock.broker import CONNECT_COORDINATES, resolve_jars
from penstock.broker.jars import find_java

#: As the recorded vectors: English words in dates, no time zone but UTC.
_OPTIONS: Final = ["-Duser.timezone=UTC", "-Duser.language=en", "-Duser.country=US", "-Dfile.encoding=UTF-8"]
_TIMEOUT_S: Final = 1_800


def java_answers(
    cases: Sequence[Mapping[str, Any]],
    directory: Path,
    program: str = "Answers",
    jars: Sequence[Path] | None = None,
) -> list[dict[str, Any]]:
    """What Java makes of each case.

    Args:
        cases: The cases, in the form that the program reads.
        directory: For the class files and the cases.
        program: The class to run; its source, named after what follows the last dot, is in this folder.
        jars: What it needs; None = Kafka Connect.

    Raises:
        NoCompilerError: There is no ``javac``.
        RuntimeError: Java failed.
    """
    class_path = ":".join(map(str, resolve_jars(CONNECT_COORDINATES) if jars is None else jars))
    java = find_java()
    source = Path(__file__).with_name(f"{program.rpartition('.')[2]}.java")
    compile_java(java, source, class_path, directory)
    given = directory / "cases.jsonl"
    given.write_text("".join(json.dumps(case) + "\n" for case in cases), "ascii")
    command = [str(java), *_OPTIONS, "-cp", f"{directory}:{class_path}", program, str(given)]
    done = subprocess.run(command, check=False, capture_output=True, encoding="utf-8", timeout=_TIMEOUT_S)
    if done.returncode:
        raise RuntimeError(f"Java's side failed:\n{done.stderr[-3000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
