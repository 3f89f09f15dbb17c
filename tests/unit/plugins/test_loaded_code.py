"""Which files belong to a plugin, and when they count as changed."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import pytest

from penstock.plugins import registry as loaded_code
from penstock.plugins.registry import LoadedCode


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def write(path: Path, text: str = "X = 1\n") -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def load(*names: str) -> None:
    importlib.invalidate_caches()
    for name in names:
        importlib.import_module(name)


def test_all_of_the_directory_counts_for_code_that_is_not_installed(directory: Path) -> None:
    files = [write(directory / name) for name in ("lc_one.py", "lc_two.py", "lc_pack/__init__.py", "lc_pack/deep.py")]
    load("lc_one", "lc_two", "lc_pack.deep")
    code = LoadedCode()
    code.note("lc_pack.deep")
    assert code.changed(["lc_one"]) == code.changed(["lc_pack.deep"]) == []
    for file in files:
        file.write_text("X = 22\n")
    assert code.changed(["lc_one"]) == code.changed(["lc_pack.deep"]) == ["lc_one", "lc_pack", "lc_pack.deep", "lc_two"]
    assert code.changed([]) == code.changed(["penstock.transforms.types"]) == code.changed(["json"]) == []


def test_only_its_own_package_counts_for_code_that_is_installed(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loaded_code, "_INSTALLED", (f"{directory}{os.sep}",))
    mine, other = write(directory / "li_mine/__init__.py"), write(directory / "li_other.py")
    load("li_mine", "li_other")
    code = LoadedCode()
    assert code.changed(["li_mine"]) == []
    other.write_text("X = 22\n")
    assert code.changed(["li_mine"]) == []
    mine.write_text("X = 22\n")
    assert code.changed(["li_mine"]) == ["li_mine"]


def test_code_that_is_gone_has_changed_and_code_that_comes_back_as_it_was_has_not(directory: Path) -> None:
    file = write(directory / "lg_one.py")
    load("lg_one")
    code = LoadedCode()
    code.note("lg_one")
    state, text = file.stat(), file.read_text()
    file.unlink()
    assert code.changed(["lg_one"]) == ["lg_one"]
    write(file, text)
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert code.changed(["lg_one"]) == []
