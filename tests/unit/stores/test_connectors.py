"""The file in which a standalone worker keeps its connectors."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from penstock.errors import ConnectException
from penstock.model import TargetState
from penstock.stores.config import FileConnectorStore, StoredConnector


def opened(path: Path) -> FileConnectorStore:
    store = FileConnectorStore(path)
    store.start()
    return store


def test_what_is_put_is_there_after_a_restart_and_what_is_removed_is_not(tmp_path: Path) -> None:
    path = tmp_path / "connectors.json"
    store = opened(path)
    one = StoredConnector({"a": "b", "päss": "\ud800"}, TargetState.STOPPED, frozenset({"päss"}))
    store.put("x/y", one)
    store.put("z", StoredConnector({}))
    store.remove("z")
    store.remove("unknown")
    store.stop()

    store = opened(path)
    assert store.connectors() == {"x/y": one}
    store.stop()


def test_only_the_owner_can_read_it_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "connectors.json"
    store = opened(path)
    store.put("a", StoredConnector({"password": "p"}))
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes == {"connectors.json": 0o600, "connectors.json.lock": 0o600}
    store.stop()


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"format": 2, "connectors": {}}', '{"format": 1, "connectors": {"a": {"config": 5}}}']
)
def test_a_file_that_cannot_be_understood_is_never_taken_for_an_empty_one(tmp_path: Path, content: str) -> None:
    path = tmp_path / "connectors.json"
    path.write_text(content)
    with pytest.raises(ConnectException, match="corrupt or is not such a file"):
        opened(path)
    assert path.read_text() == content
    path.unlink()
    opened(path).stop()


def test_a_missing_and_an_empty_file_have_no_connectors(tmp_path: Path) -> None:
    path = tmp_path / "connectors.json"
    path.write_text("\n")
    store = opened(path)
    assert store.connectors() == {}
    store.stop()


def test_two_workers_cannot_use_one_file(tmp_path: Path) -> None:
    store = opened(tmp_path / "c")
    with pytest.raises(ConnectException, match="in use by another worker"):
        opened(tmp_path / "c")
    store.stop()
    opened(tmp_path / "c").stop()


def test_a_directory_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConnectException, match="must exist"):
        opened(tmp_path / "no" / "c")


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(tmp_path / "c")
    store.put("a", StoredConnector({"v": "1"}))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConnectException, match="No space left on device"):
        store.put("a", StoredConnector({"v": "2"}))
    assert store.connectors()["a"].config == {"v": "1"}
    monkeypatch.undo()
    store.stop()
    store = opened(tmp_path / "c")
    assert store.connectors()["a"].config == {"v": "1"}
    store.stop()
    with pytest.raises(ConnectException, match="was closed"):
        store.put("b", StoredConnector({}))


def test_secrets_may_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "connectors.json"
    path.write_text('{"format": 1, "connectors": {"a": {"config": {"k": "v"}, "target": "PAUSED"}}}')

    store = opened(path)

    assert store.connectors() == {"a": StoredConnector({"k": "v"}, TargetState.PAUSED)}
    store.stop()
