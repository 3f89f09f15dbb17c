"""The archive of Spark's classes, with which a session starts in half the time (``penstock.broker.jars``).

Main functions: `archive_path` and `archive_option` say where it is and make use of it, `archive_spark` makes it. A JVM
can only write down its classes when it ends, and PySpark has one JVM in a process, so this module is run as a process
of its own for that: it starts a session as a worker does, has it do what workers do, and ends it.

Thread: any; the calling one makes the archive.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from penstock.broker.jars import ArchiveFailedException, archive_file, java_command, make_archive, sharing

#: Starting Spark and writing some 150 MB, on a busy machine.
_TIME_S = 600
#: The expressions of chains; other classes are read from the jars.
_EXPRESSIONS = (
    "to_json(named_struct('line', value, 'n', length(value))) as json",
    "cast(encode(concat('{\"line\":\"', value, '\"}'), 'UTF-8') as binary) as bytes",
    "to_json(try_parse_json(concat('{\"a\":\"', value, '\"}'))) as variant",
    "regexp_replace(value, '^(x+)$', '$1') as replaced",
    "from_json(concat('{\"a\":\"', value, '\"}'), 'a string').a as parsed",
    "if(try_cast(value as bigint) is null, 'none', value) as chosen",
    "transform(array(value), v -> upper(v)) as several",
)


def archive_path(environment: Mapping[str, str] | None = None) -> Path | None:
    """The archive of this Java and this PySpark, whether it is there or not; None without Java."""
    environment = os.environ if environment is None else environment
    java = java_command(environment)
    spark = find_spec("pyspark")
    if java is None or spark is None or spark.origin is None:
        return None
    release = version("pyspark")
    return archive_file(f"spark-classes-{release}", Path(java), [release, spark.origin], environment)


def archive_option() -> str:
    """The JVM option that makes use of the archive; empty when there is none."""
    found = sharing(archive_path())
    return f'"{found[0]}" {found[1]}' if found else ""


def archive_spark(target: Path | None = None) -> Path:
    """Makes the archive, or makes it again.

    Args:
        target: The file; where workers look for it when None.

    Raises:
        ArchiveFailedException: there is no Java, Spark does not start, or the file cannot be written.
    """
    target = archive_path() if target is None else target
    if target is None:
        raise ArchiveFailedException("No Java was found: install Java 17 or newer, or set JAVA_HOME")

    def record(made: Path) -> str:
        command = [sys.executable, "-m", __name__, str(made)]
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=_TIME_S, check=False).stderr.strip()
        except subprocess.TimeoutExpired as error:
            return str(error)

    return make_archive(target, record)


def _record(made: str) -> None:
    """Run a session whose JVM writes its classes to this file at its end."""
    import pyarrow as pa
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    from penstock.pipeline.spark.driver.jvm import classic_settings

    scratch = os.path.join(os.path.dirname(made), "spark")
    os.mkdir(scratch)
    settings = classic_settings({"spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={made}"}, scratch)
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    session = SparkSession.builder.config(conf=conf).getOrCreate()
    # Few rows are worked on without a job, many with one.
    for rows in (3, 20_000):
        frame = session.createDataFrame(pa.table({"value": ["x" * 90] * rows}))
        frame.select("*").selectExpr(*_EXPRESSIONS).toArrow()
    process = session.sparkContext._gateway.proc  # type: ignore[union-attr]
    session.stop()
    process.stdin.close()
    process.wait(_TIME_S)


if __name__ == "__main__":
    _record(sys.argv[1])
