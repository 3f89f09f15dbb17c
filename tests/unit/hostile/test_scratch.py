"""Temporary directories of sessions: only what this user's ended workers of this host have left is removed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.pipeline.spark.jvm import (
    SCRATCH_PREFIX,
    classic_settings,
    make_scratch,
    remove_scratch,
    remove_stale_scratch,
)

ENDED = 4_000_000


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def left_behind(temporary: Path) -> Path:
    """The directory of a process that has ended."""
    text = "from penstock.pipeline.spark.jvm import make_scratch; print(make_scratch())"
    env = {**os.environ, "TMPDIR": str(temporary)}
    done = subprocess.run([sys.executable, "-c", text], env=env, capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


def test_what_an_ended_process_left_is_removed(temporary: Path) -> None:
    path = left_behind(temporary)
    assert path.is_dir()
    remove_stale_scratch()
    assert not path.exists()


def test_what_a_process_holds_stays_whatever_its_number_says(temporary: Path) -> None:
    path = Path(make_scratch())
    other = path.rename(temporary / f"{SCRATCH_PREFIX}{ENDED}-x")
    remove_stale_scratch()
    assert other.is_dir()
    other.rename(path)
    remove_scratch(str(path))
    assert not path.exists()


def test_what_another_host_left_stays(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = left_behind(temporary)
    monkeypatch.setattr("socket.gethostname", lambda: "another")
    remove_stale_scratch()
    assert path.is_dir()


def test_what_is_another_users_or_nobodys_stays(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unmarked = temporary / f"{SCRATCH_PREFIX}{ENDED}-y"
    unmarked.mkdir()
    target = temporary / "target"
    target.mkdir()
    (target / "owner").write_text("x")
    link = temporary / f"{SCRATCH_PREFIX}{ENDED}-z"
    link.symlink_to(target)
    path = left_behind(temporary)
    with monkeypatch.context() as other:
        other.setattr("os.geteuid", lambda: 12_345)
        remove_stale_scratch()
        assert path.is_dir()
    remove_stale_scratch()
    assert (unmarked.is_dir(), target.is_dir(), path.exists()) == (True, True, False)


@pytest.mark.parametrize(("scratch", "sockets"), [("/tmp/penstock-spark-1-abc", "true"), ("/tmp/" + "x" * 80, None)])
def test_python_workers_listen_where_nobody_else_reaches(scratch: str, sockets: str | None) -> None:
    settings = classic_settings({}, scratch)
    assert settings.get("spark.python.unix.domain.socket.enabled") == sockets
    assert settings.get("spark.python.unix.domain.socket.dir") == (scratch if sockets else None)
    assert "spark.python.unix.domain.socket.enabled" not in classic_settings({"spark.master": "yarn"}, scratch)
