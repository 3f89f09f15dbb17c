"""What the built-in sources say they lack."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.connectors.directory import DirectorySourceConnector
from penstock.connectors.file.source import FileStreamSourceConnector


def of_file(path: Path) -> list[str]:
    return list(FileStreamSourceConnector().obstacles({"file": str(path), "topic": "t"}))


def of_directory(*paths: Path, pattern: str = "*.txt") -> list[str]:
    props = {"directories": ",".join(map(str, paths)), "topic": "t", "file.pattern": pattern}
    return list(DirectorySourceConnector().obstacles(props))


def test_a_file_that_is_there_lacks_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    assert of_file(tmp_path / "a.txt") == []
    assert of_directory(tmp_path) == []
    assert list(FileStreamSourceConnector().obstacles({"topic": "t"})) == []


def test_a_missing_file_or_directory_is_named(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    assert of_file(gone) == [f"the file {gone} does not exist; it is read as soon as it does"]
    deeper = gone / "a.txt"
    assert of_file(deeper) == [f"the file {deeper} cannot be found: the directory {gone} does not exist"]
    assert of_file(tmp_path) == [f"{tmp_path} is a directory and no file"]
    assert of_directory(gone) == [f"Cannot list directory {gone}: No such file or directory"]


def test_directories_without_a_matching_file_are_named_with_the_pattern(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n")
    assert of_directory(tmp_path) == [f"no file in {tmp_path} matches file.pattern=*.txt"]


def test_what_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, closed = tmp_path / "a.txt", tmp_path / "closed"
    path.write_text("a\n")
    closed.mkdir()
    # Root, whom tests may run as, may read everything.
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert of_file(path) == [f"the file {path} may not be read by the worker's user"]
    unread = f"File {path} may not be read by the worker's user; it is left out until it may be"
    assert of_directory(tmp_path) == [unread]
    why = f"the directory {closed} cannot be entered by the worker's user"
    assert of_file(closed / "a.txt") == [f"the file {closed / 'a.txt'} cannot be found: {why}"]
