"""A shared library whose constructor leaves a file behind: who loads it is found out."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_SOURCE = """
#include <stdio.h>
__attribute__((constructor)) static void loaded(void) {{
    FILE *mark = fopen("{mark}", "a");
    if (mark) {{ fputs("loaded\\n", mark); fclose(mark); }}
}}
"""


@dataclass(frozen=True)
class NativeCode:
    """The library, and the file that is there once it was loaded."""

    library: Path
    mark: Path

    def was_loaded(self) -> bool:
        return self.mark.exists()


def build(directory: Path) -> NativeCode:
    """Compiles the library; without a compiler it is a file that no loader takes, and only other traces are left."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    made = NativeCode(directory / "native.so", directory / "loaded")
    if compiler is None:
        made.library.write_text("no library", encoding="utf-8")
        return made
    source = directory / "native.c"
    source.write_text(_SOURCE.format(mark=made.mark), encoding="utf-8")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made.library, source], check=True, timeout=60)
    return made
