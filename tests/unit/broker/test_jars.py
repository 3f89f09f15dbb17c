"""

Archives of classes: where they are, how a JVM is told of one, and what is said when one cannot be made.
"""

import os
import stat
import threading
from pathlib import Path
from xml.etree import ElementTree

import pytest

from penstock.broker import jars
from penstock.broker.jars import (
    BROKER_COORDINATES,
    CONNECT_COORDINATES,
    ArchiveFailedException,
    JarsNotFoundException,
    cache_directory,
    ivy_module,
    ivy_settings,
    jar_directory,
    kafka_archive,
    make_archive,
    resolve_jars,
    sharing,
)

# Stands for Java: answers -version, then does what Ivy would, in the directory that the last argument names.
FAKE_JAVA = """#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "21.0.1"' >&2; exit 0; fi
echo run >> "{log}"
for last; do :; done
{action}
"""
FETCH = 'echo jar > "${last%/*}/org.x_b-1.jar"; echo jar > "${last%/*}/org.x_a-1.jar"'


@pytest.fixture
def fake_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts a fake java on the path; call it with the shell line it runs."""

    def install(action: str) -> Path:
        home = tmp_path / "java"
        (home / "bin").mkdir(parents=True, exist_ok=True)
        command = home / "bin" / "java"
        log = tmp_path / "runs"
        log.touch()
        command.write_text(FAKE_JAVA.format(log=log, action=action))
        command.chmod(command.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("JAVA_HOME", str(home))
        return log

    return install


def test_the_cache_is_where_the_environment_says() -> None:
    home = str(Path.home())

    assert cache_directory({"PENSTOCK_CACHE": "/c"}) == Path("/c")
    assert cache_directory({"XDG_CACHE_HOME": "/x"}) == Path("/x/penstock")
    assert cache_directory({}) == Path(home) / ".cache" / "penstock"


def test_a_list_of_coordinates_has_one_directory_whatever_its_order() -> None:
    there, back = ("g:a:1", "g:b:2"), ("g:b:2", "g:a:1")

    assert (
        jar_directory(there, Path("/c")).name.rpartition("-")[2]
        == jar_directory(back, Path("/c")).name.rpartition("-")[2]
    )
    assert jar_directory(BROKER_COORDINATES, Path("/c")) != jar_directory(CONNECT_COORDINATES, Path("/c"))


def test_jars_are_fetched_once_and_appear_when_complete(tmp_path: Path, fake_java) -> None:
    log = fake_java(FETCH)

    first = resolve_jars(["org.x:b:1"], tmp_path / "cache")
    second = resolve_jars(["org.x:b:1"], tmp_path / "cache")

    assert [path.name for path in first] == ["org.x_a-1.jar", "org.x_b-1.jar"]
    assert first == second
    assert log.read_text().split() == ["run"]
    assert [path.name for path in first[0].parent.parent.iterdir()] == [first[0].parent.name]


def test_several_at_once_wait_for_one_fetch(tmp_path: Path, fake_java) -> None:
    log = fake_java(FETCH)
    found: list[list[Path]] = []
    askers = [
        threading.Thread(target=lambda: found.append(resolve_jars(["org.x:b:1"], tmp_path / "cache"))) for _ in range(4)
    ]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join(30)

    assert [len(paths) for paths in found] == [2, 2, 2, 2]
    assert log.read_text().split() == ["run"]


def test_a_failed_fetch_leaves_nothing_and_says_what_to_check(tmp_path: Path, fake_java) -> None:
    fake_java(FETCH + "; echo 'Server access error: no route to host'; exit 1")

    with pytest.raises(JarsNotFoundException, match=r"(?s)org\.x:b:1 .* reaches the network .*no route to host"):
        resolve_jars(["org.x:b:1"], tmp_path / "cache")

    assert list((tmp_path / "cache" / "jars").iterdir()) == []


def test_an_answer_without_jars_is_an_error(tmp_path: Path, fake_java) -> None:
    fake_java("exit 0")

    with pytest.raises(JarsNotFoundException, match="found no jars"):
        resolve_jars(["org.x:b:1"], tmp_path / "cache")


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, fake_java) -> None:
    fake_java(FETCH)
    (tmp_path / "cache").write_text("a file")

    with pytest.raises(JarsNotFoundException, match=r"jar cache .*cache cannot be written.*PENSTOCK_CACHE"):
        resolve_jars(["org.x:b:1"], tmp_path / "cache")


@pytest.mark.parametrize("coordinates", [[], ["org.x:b"], ["org.x::1"]])
def test_malformed_coordinates_are_refused(coordinates: list[str], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="group:artifact:version"):
        resolve_jars(coordinates, tmp_path)


def test_ivys_files_are_well_formed_and_carry_the_mirror() -> None:
    module = ElementTree.fromstring(ivy_module(["org.x:a&b:1"]))
    plain = ElementTree.fromstring(ivy_settings(Path("/c"), None))
    mirrored = ElementTree.fromstring(ivy_settings(Path("/c"), "https://mirror/maven"))

    assert [found.get("name") for found in module.iter("dependency")] == ["a&b"]
    assert [found.get("root") for found in plain.iter("ibiblio")] == [None]
    assert [found.get("root") for found in mirrored.iter("ibiblio")] == ["https://mirror/maven/"]


def test_pyspark_carries_ivy() -> None:
    assert os.access(jars._ivy_jar(), os.R_OK)


@pytest.fixture
def java(tmp_path: Path) -> Path:
    program = tmp_path / "java"
    program.touch()
    return program


def test_brokers_of_one_cache_share_an_archive(java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    found = kafka_archive(java)

    assert found.parent == tmp_path / "cache"
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "another"))
    assert found.name != kafka_archive(java).name


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
