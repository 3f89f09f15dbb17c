"""Where the archive of Spark's classes is: a JVM maps it into memory instead of reading each class from 280 jars.

With it a session starts in about half the time. Nothing depends on it: a JVM that finds no archive, or one that does
not fit its version or the jars, reads the jars.

Main functions: `archive_path` and `archive_option`. `penstock.pipeline.class_archiving` makes it.

Thread: any.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from penstock.broker import cache_directory
from penstock.broker.java import java_command


def archive_path(environment: Mapping[str, str] | None = None) -> Path | None:
    """The archive of this Java and this PySpark, whether it is there or not; None without Java.

    Args:
        environment: the process environment when None.
    """
    environment = os.environ if environment is None else environment
    java = java_command(environment)
    spark = find_spec("pyspark")
    if java is None or spark is None or spark.origin is None:
        return None
    program = Path(java).resolve()
    parts = (str(program), str(program.stat().st_mtime_ns), version("pyspark"), spark.origin)
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    return cache_directory(environment) / f"spark-classes-{version('pyspark')}-{digest}.jsa"


def archive_option() -> str:
    """The JVM option that makes use of the archive; empty when there is none."""
    path = archive_path()
    return f'"-XX:SharedArchiveFile={path}" -Xshare:auto' if path is not None and path.is_file() else ""
