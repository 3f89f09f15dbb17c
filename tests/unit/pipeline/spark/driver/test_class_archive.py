"""Where the archive of Spark's classes is looked for, and what is said when it cannot be made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.broker.jars import ArchiveFailedException
from penstock.pipeline.spark.driver.class_archive import archive_option, archive_path, archive_spark


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
