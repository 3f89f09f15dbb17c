"""A file that takes another's place."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from penstock.stores.offset_file import RENAMED, TEMPORARY_WRITTEN, replace_file


@pytest.fixture(autouse=True)
def _umask() -> object:
    before = os.umask(0o027)
    yield
    os.umask(before)


def mode_of(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


@pytest.mark.parametrize(("before", "after"), [(None, 0o600), (0o644, 0o644), (0o666, 0o666), (0o600, 0o600)])
def test_a_file_that_is_there_keeps_its_mode_and_a_new_one_is_its_owners(
    before: int | None, after: int, tmp_path: Path
) -> None:
    file = tmp_path / "f"
    if before is not None:
        file.write_bytes(b"old")
        file.chmod(before)

    replace_file(file, b"new")

    assert (file.read_bytes(), mode_of(file)) == (b"new", after)
    assert list(tmp_path.iterdir()) == [file]


def test_the_temporary_file_is_its_owners_while_it_is_written_in_a_longer_ones_place(tmp_path: Path) -> None:
    file = tmp_path / "f"
    left = tmp_path / "f.tmp"
    left.write_bytes(b"left by a crash, and longer")
    points: list[tuple[str, bytes | None]] = []

    replace_file(file, b"new", lambda point: points.append((point, left.read_bytes() if left.exists() else None)))

    assert points == [(TEMPORARY_WRITTEN, b"new"), (RENAMED, None)]
    assert file.read_bytes() == b"new"


def test_when_it_cannot_be_written_the_old_one_is_there_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"old")

    def full(point: str) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        replace_file(file, b"new", full)

    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]
