"""The archive for executors: what is in it, and that it can be imported."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import penstock
from penstock.errors import ConnectException
from penstock.worker.bulk import packing


def test_what_executors_need_is_named_and_what_spark_has_is_not() -> None:
    needed = packing.needed()
    assert {"pyarrow", "confluent-kafka", "numpy"} <= set(needed)
    assert not {"pyspark", "py4j", "penstock", "fastapi"} & set(needed)


def test_an_archive_has_penstock_and_modules_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "needed", lambda: ["click"])  # a small one, in the place of PyArrow
    own = tmp_path / "own"
    (own / "__pycache__").mkdir(parents=True)
    (own / "__pycache__" / "x.pyc").touch()
    (own / "own_transform.py").write_text("HERE = True\n")
    target = tmp_path / "executors.tar.gz"
    assert packing.pack(target, [own]) == ["penstock", "click", "own"]

    with tarfile.open(target) as archive:
        assert not [name for name in archive.getnames() if "__pycache__" in name]
        archive.extractall(tmp_path / "there", filter="data")
    code = "import penstock, click, own_transform as o; print(penstock.__version__, penstock.__file__, o.HERE)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "there")},
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout.split() == [penstock.__version__, str(tmp_path / "there/penstock/__init__.py"), "True"]


def test_an_archive_of_another_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConnectException, match=r"end with \.tar\.gz"):
        packing.pack(tmp_path / "executors.zip")


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "needed", list)
    with pytest.raises(ConnectException, match="cannot be made"):
        packing.pack(tmp_path / "missing" / "executors.tar.gz")
