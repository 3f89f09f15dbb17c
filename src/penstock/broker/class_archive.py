"""Archives of the classes of a program: a JVM maps one into memory instead of reading each class from its jars.

A program then starts in about half the time. Nothing depends on an archive: a JVM that finds none, or one that does not
fit its version or its jars, reads the jars.

Main functions: `archive_file` (its path), `sharing` (the options that use it), `make_archive`; for the
embedded broker `kafka_archive`. Spark's is ``penstock.pipeline.spark.driver.class_archive``.

Thread: any.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from penstock.broker.jars import BROKER_COORDINATES, KAFKA_VERSION, cache_directory, jar_directory
from penstock.errors import ConnectException


class ArchiveFailedException(ConnectException):
    """An archive could not be made: the message says why."""


def archive_file(program: str, java: Path, parts: Sequence[str], environment: Mapping[str, str] | None = None) -> Path:
    """The archive of a program's classes in the cache; it may not exist yet.

    Args:
        program: names the file.
        java: the Java that runs the program; another build of it has another archive.
        parts: further inputs of the archive, such as the class path.
        environment: None for the process environment.
    """
    java = java.resolve()
    text = "\n".join((str(java), str(java.stat().st_mtime_ns), *parts))
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return cache_directory(environment) / f"{program}-{digest}.jsa"


def kafka_archive(java: Path, cache: Path | None = None) -> Path:
    """The archive of the embedded broker's classes; it may not exist yet.

    Args:
        java: the Java that runs the broker.
        cache: the directory of its jars; None for `cache_directory()`.
    """
    jars = jar_directory(BROKER_COORDINATES, cache_directory() if cache is None else cache)
    return archive_file(f"kafka-classes-{KAFKA_VERSION}", java, [str(jars)])


def sharing(archive: Path | None) -> list[str]:
    """The JVM's options that use an archive; empty if it does not exist."""
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"] if archive is not None and archive.is_file() else []


def make_archive(target: Path, record: Callable[[Path], str]) -> Path:
    """Makes an archive; replaces an existing one.

    Args:
        target: The file.
        record: Runs the program to its end, which writes its classes to the given path; returns the program's output,
            for the error message.

    Returns:
        The file.

    Raises:
        ArchiveFailedException: The program does not start, or the file cannot be written.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".classes-", dir=target.parent) as scratch:
            made = Path(scratch, "archive.jsa")
            said = record(made)
            if not made.is_file():
                raise ArchiveFailedException(f"The classes of {target.stem} could not be archived: {said[-500:]}")
            made.replace(target)
    except OSError as error:
        raise ArchiveFailedException(f"Classes could not be archived as {target}: {error}") from error
    return target
