"""Compiles a Java source file against jars, for what has to be asked of Java itself.

Main function: ``compile_java``. Thread: any; blocks.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

_TIMEOUT_S: Final = 1_800


class NoCompilerError(RuntimeError):
    """The Java runtime that was found has no compiler."""


def compile_java(java: Path, source: Path, class_path: str, directory: Path) -> None:
    """Compiles one file, and those beside it that it uses.

    Args:
        java: The ``java`` command whose compiler is wanted.
        source: The file.
        class_path: What it needs.
        directory: For the class files.

    Raises:
        NoCompilerError: There is no ``javac`` beside it.
        RuntimeError: The file cannot be compiled.
    """
    compiler = java.resolve().with_name("javac")
    if not compiler.exists():
        raise NoCompilerError(f"{java} is a runtime without a compiler (no {compiler.name} beside it): install a JDK")
    command = [str(compiler), "-nowarn", "-cp", class_path, "-d", str(directory)]
    command += ["-sourcepath", str(source.parent), str(source)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_TIMEOUT_S)
    if done.returncode:
        raise RuntimeError(f"{source.name} cannot be compiled:\n{done.stderr[-3000:]}")
