"""Whoever waits for a file is woken when it changes, and by nothing else but its own event."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from testkit.waiting import await_true

from penstock.connectors.file import source as watch_module
from penstock.connectors.file.source import FileWatch, mark_of


def waited(watch: FileWatch, path: Path, event: threading.Event | None = None, seen: object = "now") -> list[float]:
    """A thread that waits for a file up to 20 s; the list gets how long it took."""
    took: list[float] = []
    mark = mark_of(str(path)) if seen == "now" else None

    def wait() -> None:
        started = time.monotonic()
        watch.wait(str(path), mark, event or threading.Event(), 20)
        took.append(time.monotonic() - started)

    threading.Thread(target=wait).start()
    return took


def test_an_append_a_replacement_a_new_file_and_a_removal_wake(tmp_path: Path) -> None:
    watch = FileWatch()
    paths = {name: tmp_path / name for name in ("appended", "replaced", "new", "removed", "still")}
    for name, path in paths.items():
        if name != "new":
            path.write_text("one\n")
    took = {name: waited(watch, path) for name, path in paths.items() if name != "still"}
    event = threading.Event()
    still = waited(watch, paths["still"], event)
    with paths["appended"].open("a") as more:
        more.write("two\n")
    other = tmp_path / "other"
    other.write_text("two\n")
    other.rename(paths["replaced"])
    paths["new"].touch()
    paths["removed"].unlink()
    await_true(lambda: all(took.values()))
    assert still == []
    event.set()
    await_true(lambda: bool(still))
    assert not event.is_set()


def test_what_changed_between_the_look_and_the_wait_wakes_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("one\n")
    watch = FileWatch()
    took = waited(watch, path, seen=None)
    await_true(lambda: bool(took))


def test_the_thread_ends_when_nobody_waits_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "LINGER_S", 0.5)
    watch = FileWatch()

    def running() -> int:
        return [thread.name for thread in threading.enumerate()].count("file-watch")

    before = running()
    watch.wait(str(tmp_path / "none"), None, threading.Event(), 0.01)
    assert running() == before + 1
    await_true(lambda: running() <= before, timeout_s=10)
    took = waited(watch, tmp_path / "none")
    (tmp_path / "none").touch()
    await_true(lambda: bool(took))
