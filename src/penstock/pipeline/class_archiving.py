"""Makes the archive of Spark's classes that `penstock.pipeline.class_archive` tells of.

Main function: `make_archive`. A JVM can only write down its classes when it ends, and PySpark has one JVM in a process,
so this module is run as a process of its own: it starts a session as a worker does, has it do what workers do, and ends
it.

Thread: the calling one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from penstock.errors import ConnectException
from penstock.pipeline.class_archive import archive_path

#: Starting Spark and writing some 150 MB, on a busy machine.
_TIME_S = 600
#: What chains are made of; what else they use is read from the jars.
_EXPRESSIONS = (
    "to_json(named_struct('line', value, 'n', length(value))) as json",
    "cast(encode(concat('{\"line\":\"', value, '\"}'), 'UTF-8') as binary) as bytes",
    "to_json(try_parse_json(concat('{\"a\":\"', value, '\"}'))) as variant",
    "regexp_replace(value, '^(x+)$', '$1') as replaced",
    "from_json(concat('{\"a\":\"', value, '\"}'), 'a string').a as parsed",
    "if(try_cast(value as bigint) is null, 'none', value) as chosen",
    "transform(array(value), v -> upper(v)) as several",
)


class ArchiveFailedException(ConnectException):
    """The archive could not be made: the message says why."""


def make_archive(target: Path | None = None) -> Path:
    """Makes the archive, or makes it again.

    Args:
        target: The file; where workers look for it when None.

    Raises:
        ArchiveFailedException: there is no Java, Spark does not start, or the file cannot be written.
    """
    target = archive_path() if target is None else target
    if target is None:
        raise ArchiveFailedException("No Java was found: install Java 17 or newer, or set JAVA_HOME")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".spark-classes-", dir=target.parent) as scratch:
            made = Path(scratch, "archive.jsa")
            command = [sys.executable, "-m", __name__, str(made)]
            ended = subprocess.run(command, capture_output=True, text=True, timeout=_TIME_S, check=False)
            if not made.is_file():
                raise ArchiveFailedException(f"Spark's classes could not be archived: {ended.stderr.strip()[-500:]}")
            made.replace(target)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ArchiveFailedException(f"Spark's classes could not be archived as {target}: {error}") from error
    return target


def _record(made: str) -> None:
    """Run a session whose JVM writes its classes to this file at its end."""
    import pyarrow as pa
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    from penstock.pipeline.driver_jvm import classic_settings

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
