"""Archives of classes: where they are, how a JVM is told of one, and what is said when one cannot be made."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.broker.class_archive import ArchiveFailedException, kafka_archive, make_archive, sharing


@pytest.fixture
def java(tmp_path: Path) -> Path:
    program = tmp_path / "java"
    program.touch()
    return program


def test_brokers_of_one_cache_share_an_archive(java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    found = kafka_archive(java)

    assert found.parent == tmp_path / "cache"
    assert found == kafka_archive(java, tmp_path / "cache")
    assert found != kafka_archive(java, tmp_path / "jars of another place")


def test_a_jvm_is_told_of_an_archive_that_is_there(tmp_path: Path) -> None:
    archive = tmp_path / "classes.jsa"

    assert sharing(archive) == sharing(None) == []
    archive.touch()
    assert sharing(archive) == [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"]


def test_an_archive_is_in_its_place_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "new" / "classes.jsa"

    def record(made: Path) -> str:
        made.write_text("classes")
        assert not target.exists()
        return ""

    assert make_archive(target, record) == target
    assert [path.name for path in target.parent.iterdir()] == ["classes.jsa"]


def test_what_a_program_said_that_wrote_no_archive_is_in_the_error(tmp_path: Path) -> None:
    target = tmp_path / "kafka-classes.jsa"

    with pytest.raises(ArchiveFailedException, match="The classes of kafka-classes could not be archived: no room"):
        make_archive(target, lambda made: "no room")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ArchiveFailedException, match=r"could not be archived as .*file/classes\.jsa"):
        make_archive(tmp_path / "file" / "classes.jsa", lambda made: "")
