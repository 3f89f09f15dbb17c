"""What is said of a JVM that is gone, without asking it.

Where the archive of Spark's classes is looked for, and what is said when it cannot be made.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.jars import ArchiveFailedException
from penstock.pipeline.spark.jvm import archive_option, archive_path, archive_spark, brief, how_ended
from penstock.pipeline.spark.session import SparkRuntime


class JavaError(Exception):
    """Its message is in the JVM, as with Py4J's."""

    def __str__(self) -> str:
        raise ConnectionRefusedError("gone")


def test_an_error_whose_message_died_with_the_jvm_is_told_by_its_class() -> None:
    assert brief(JavaError()) == "JavaError: "


def test_only_the_first_line_of_a_message_is_told() -> None:
    assert brief(ValueError("\nfirst\nsecond")) == "ValueError: first"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (3, "ran out of memory (spark.driver.memory is 2g)"),
        (52, "ran out of memory (spark.driver.memory is 2g)"),
        (-9, "was killed, as the system does when memory runs out"),
        (-6, "ended with exit code -6"),
        (134, "ended with exit code 134"),
        (None, "does not answer"),
    ],
)
def test_a_jvm_that_ended_for_lack_of_memory_is_named_as_that(code: int | None, told: str) -> None:
    assert how_ended(code, "2g") == told


class GoneJvm:
    """A JVM that was killed a moment ago: nobody has looked yet."""

    def lost_by(self, error: BaseException) -> bool:
        return isinstance(error, ConnectionError)


def test_a_session_that_somebody_found_gone_is_gone_for_all_at_once() -> None:
    runtime: Any = SparkRuntime({"spark.master": "local[1]"})
    runtime._driver, runtime._session, runtime._generation = GoneJvm(), object(), 1

    assert not runtime.is_lost(1, ValueError("of the job"))
    assert runtime.up
    assert runtime.is_lost(1, ConnectionRefusedError("refused"))
    # Who tries again now would find the JVM gone again.
    assert not runtime.up


def java(home: Path, script: str = "exit 1") -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return home


def test_each_java_has_its_own_archive_in_the_cache(tmp_path: Path) -> None:
    cache = {"PENSTOCK_CACHE": str(tmp_path / "cache")}
    first = archive_path(cache | {"JAVA_HOME": str(java(tmp_path / "one"))})
    second = archive_path(cache | {"JAVA_HOME": str(java(tmp_path / "two"))})
    assert first is not None
    assert second is not None
    assert first.parent == second.parent == tmp_path / "cache"
    assert first != second
    program = tmp_path / "one" / "bin" / "java"
    os.utime(program, (1, 1))  # another build in the same place
    assert archive_path(cache | {"JAVA_HOME": str(tmp_path / "one")}) != first


def test_without_java_there_is_no_archive_and_no_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert archive_path() is None
    assert archive_option() == ""
    with pytest.raises(ArchiveFailedException, match="install Java 17"):
        archive_spark()


def test_the_option_is_there_when_the_archive_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path / "java")))
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    path = archive_path()
    assert path is not None
    assert archive_option() == ""
    path.touch()
    assert archive_option() == f'"-XX:SharedArchiveFile={path}" -Xshare:auto'


@pytest.mark.slow
def test_a_java_that_does_not_start_is_reported_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path / "java", "echo no such machine >&2; exit 1")))
    target = tmp_path / "cache" / "classes.jsa"
    with pytest.raises(ArchiveFailedException, match="could not be archived"):
        archive_spark(target)
    assert list(target.parent.iterdir()) == []
