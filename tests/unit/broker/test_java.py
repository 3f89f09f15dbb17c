import stat
from pathlib import Path

import pytest

from penstock.broker.jars import JavaNotFoundException, find_java


def fake_java(directory: Path, shown: str, code: int = 0) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    command = directory / "java"
    command.write_text(f"#!/bin/sh\necho '{shown}' >&2\nexit {code}\n")
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    return command


def test_java_home_wins_over_the_path(tmp_path: Path) -> None:
    at_home = fake_java(tmp_path / "home" / "bin", 'openjdk version "17.0.1"')
    on_path = fake_java(tmp_path / "bin", 'openjdk version "21"')

    assert find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)}) == at_home
    assert find_java({"PATH": str(on_path.parent)}) == on_path


@pytest.mark.parametrize(
    ("shown", "code", "reason"),
    [
        ('java version "1.8.0_392"', 0, "is version 8; install a Java runtime, version 17"),
        ('openjdk version "11.0.2"', 0, "is version 11"),
        ("something else", 0, "is of an unknown version"),
        ("broken", 1, "does not run"),
    ],
)
def test_an_unsuitable_java_says_what_it_is_and_what_to_install(
    tmp_path: Path, shown: str, code: int, reason: str
) -> None:
    command = fake_java(tmp_path, shown, code)

    with pytest.raises(JavaNotFoundException, match=reason):
        find_java({"PATH": str(command.parent)})


def test_no_java_at_all_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(JavaNotFoundException, match="no java command on the PATH"):
        find_java({"PATH": str(tmp_path)})
    with pytest.raises(JavaNotFoundException, match="JAVA_HOME is set, but it has no bin/java"):
        find_java({"JAVA_HOME": str(tmp_path)})
