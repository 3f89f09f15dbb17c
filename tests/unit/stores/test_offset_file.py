import os
import random
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.errors import OffsetStoreException
from penstock.stores.interface import OffsetStore
from penstock.stores.offset_file import RENAMED, TEMPORARY_WRITTEN, FileOffsetStore, decode, encode


@contextmanager
def opened(path: Path) -> Iterator[FileOffsetStore]:
    store = FileOffsetStore(path)
    store.start()
    try:
        yield store
    finally:
        store.stop()


def test_it_is_an_offset_store(tmp_path: Path) -> None:
    assert isinstance(FileOffsetStore(tmp_path / "offsets"), OffsetStore)


def test_entries_are_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "connect.offsets"
    with opened(path) as store:
        store.set({b"a": b"1", b"b": b"2"})
        store.set({b"a": b"3", b"b": None})

    with opened(path) as store:
        assert store.get([b"a", b"b", b"c"]) == {b"a": b"3", b"b": None, b"c": None}
        assert store.entries() == {b"a": b"3"}


@pytest.mark.parametrize("content", [None, b""])
def test_a_missing_or_empty_file_counts_as_empty(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "connect.offsets"
    if content is not None:
        path.write_bytes(content)

    with opened(path) as store:
        assert store.entries() == {}


def test_null_values_of_a_java_file_count_as_removed(tmp_path: Path) -> None:
    path = tmp_path / "connect.offsets"
    path.write_bytes(encode({b"a": b"1", b"gone": None}))

    with opened(path) as store:
        assert store.entries() == {b"a": b"1"}


def test_a_source_partition_that_a_file_has_twice_is_told_and_becomes_one_with_the_next_write(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "connect.offsets"
    path.write_bytes(encode({b'["c",{"t":1,"d":2}]': b"5", b'["c",{"d":2,"t":1}]': b"2", b'["c",{"t":3}]': b"1"}))

    with opened(path) as store:
        assert store.get([b'["c",{"t":1,"d":2}]', b'["c",{"d":2,"t":1}]']) == {
            b'["c",{"t":1,"d":2}]': b"5",
            b'["c",{"d":2,"t":1}]': b"2",
        }
        store.set({b'["c",{"d":2,"t":1}]': b"9"})

    assert 'more than once, with their keys in different orders, as in ["c",{"t":1,"d":2}] and' in caplog.text
    assert decode(path.read_bytes()) == {b'["c",{"t":1,"d":2}]': b"9", b'["c",{"t":3}]': b"1"}


def test_a_second_worker_is_refused_with_the_name_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "connect.offsets"

    with opened(path):
        with pytest.raises(OffsetStoreException, match=r"connect\.offsets is in use by another worker"):
            FileOffsetStore(path).start()
        # A link to the same file is the same file.
        (tmp_path / "other").symlink_to(path)
        with pytest.raises(OffsetStoreException, match="in use by another worker"):
            FileOffsetStore(tmp_path / "other").start()
    with opened(path) as store:
        assert store.entries() == {}


@pytest.mark.parametrize("content", [b"not java", encode({b"a": b"1"})[:-3]])
def test_a_corrupt_file_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "connect.offsets"
    path.write_bytes(content)

    with pytest.raises(OffsetStoreException, match=r"connect\.offsets is corrupt .* Restore the file"):
        FileOffsetStore(path).start()

    assert path.read_bytes() == content
    path.unlink()
    with opened(path) as store:
        assert store.entries() == {}


def test_a_full_disk_raises_and_leaves_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "connect.offsets"
    with opened(path) as store:
        store.set({b"a": b"1"})
        before = path.read_bytes()
        # Writes to /dev/full fail as on a full disk.
        (tmp_path / "connect.offsets.tmp").symlink_to("/dev/full")

        with pytest.raises(OffsetStoreException, match=r"connect\.offsets: No space left on device"):
            store.set({b"a": b"2"})

        assert path.read_bytes() == before
        assert store.get([b"a"]) == {b"a": b"1"}
        store.set({b"a": b"3"})
        assert decode(path.read_bytes()) == {b"a": b"3"}


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(OffsetStoreException, match=r"The directory of the offsets file .* does not exist"):
        FileOffsetStore(tmp_path / "nowhere" / "connect.offsets").start()


def test_a_directory_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OffsetStoreException, match="not a regular file"):
        FileOffsetStore(tmp_path).start()


def test_a_device_keeps_offsets_in_memory(caplog: pytest.LogCaptureFixture) -> None:
    with opened(Path(os.devnull)) as store:
        store.set({b"a": b"1"})
        assert store.entries() == {b"a": b"1"}

    assert "offsets are lost" in caplog.text
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)


def test_links_and_permissions_survive_a_write(tmp_path: Path) -> None:
    target = tmp_path / "real.offsets"
    target.write_bytes(b"")
    target.chmod(0o640)
    link = tmp_path / "link.offsets"
    link.symlink_to(target)

    with opened(link) as store:
        store.set({b"a": b"1"})

    assert link.is_symlink()
    assert decode(target.read_bytes()) == {b"a": b"1"}
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_only_the_owner_can_read_new_files_and_lock_them(tmp_path: Path) -> None:
    with opened(tmp_path / "new.offsets") as store:
        store.set({b"a": b"1"})
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}

    assert modes == {"new.offsets": 0o600, "new.offsets.lock": 0o600}


def test_a_store_that_is_not_started_refuses(tmp_path: Path) -> None:
    store = FileOffsetStore(tmp_path / "connect.offsets")

    for call in (store.entries, lambda: store.get([b"a"]), lambda: store.set({b"a": b"1"})):
        with pytest.raises(OffsetStoreException, match="not started"):
            call()
    store.stop()


class Gate:
    """Holds the first write between its temporary file and the rename until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()
        self.writes = 0

    def __call__(self, point: str) -> None:
        if point == TEMPORARY_WRITTEN:
            self.writes += 1
            self.reached.set()
            assert self.open.wait(10)


def while_one_writes(path: Path) -> tuple[FileOffsetStore, Gate, threading.Thread]:
    """A store in which a writer has come to the gate, where it waits."""
    gate = Gate()
    store = FileOffsetStore(path, at_point=gate)
    store.start()
    first = threading.Thread(target=store.set, args=({b"first": b"1"},))
    first.start()
    assert gate.reached.wait(10)
    return store, gate, first


def test_of_writers_that_wait_with_one_key_in_two_spellings_the_last_one_wins(tmp_path: Path) -> None:
    path = tmp_path / "connect.offsets"
    store, gate, first = while_one_writes(path)
    for key, value in ((b'{"t":1,"d":2}', b"1"), (b'{"d":2,"t":1}', b"2"), (b'{"t":1,"d":2}', b"3")):
        with pytest.raises(OffsetStoreException, match=r"not written .* in time"):
            store.set({key: value}, timeout_s=0.01)
    gate.open.set()
    first.join(10)
    store.set({b"last": b"1"})

    assert decode(path.read_bytes()) == {b"first": b"1", b'{"d":2,"t":1}': b"3", b"last": b"1"}
    store.stop()


def test_writers_that_wait_share_one_write_and_each_returns_when_it_is_durable(tmp_path: Path) -> None:
    path = tmp_path / "connect.offsets"
    store, gate, first = while_one_writes(path)
    seen_durable: list[bool] = []

    def write(index: int) -> None:
        store.set({b"%d" % index: b"x"})
        seen_durable.append(decode(path.read_bytes()).get(b"%d" % index) == b"x")

    others = [threading.Thread(target=write, args=(index,)) for index in range(8)]
    for thread in others:
        thread.start()
    with pytest.raises(OffsetStoreException, match=r"not written .* in time"):
        store.set({b"late": b"1"}, timeout_s=0.01)
    gate.open.set()
    for thread in [first, *others]:
        thread.join(10)

    assert seen_durable == [True] * 8
    assert 2 <= gate.writes <= 9
    store.stop()


_CRASHING = """
import os, signal, sys
from penstock.stores.offset_file import FileOffsetStore
path, point, left = sys.argv[1], sys.argv[2], int(sys.argv[3])
def crash(reached):
    global left
    left -= reached == point
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
store = FileOffsetStore(path, at_point=crash)
store.start()
number = max([0, *(int(value) for value in store.entries().values())])
while True:
    number += 1
    store.set({b"a": b"%d" % number, b"b": b"%d" % number, b"padding": b"%d" % number})
    print(number, flush=True)
"""


def run_until_killed(path: Path, point: str, writes: int) -> int:
    """Writes ascending numbers in a process that kills itself; the last number whose write returned."""
    done = subprocess.run(
        [sys.executable, "-c", _CRASHING, str(path), point, str(writes)], check=False, capture_output=True, text=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    return max([0, *map(int, done.stdout.split())])


@pytest.mark.slow
@pytest.mark.parametrize(("point", "lost"), [(TEMPORARY_WRITTEN, 0), (RENAMED, 1)])
def test_a_crash_at_a_named_point_leaves_the_old_or_the_new_content(tmp_path: Path, point: str, lost: int) -> None:
    path = tmp_path / "connect.offsets"

    acknowledged = run_until_killed(path, point, 2)

    assert acknowledged == 2
    with opened(path) as store:
        assert set(store.entries().values()) == {b"%d" % (acknowledged + lost)}
        store.set({b"a": b"99"})
    assert decode(path.read_bytes())[b"a"] == b"99"


@pytest.mark.slow
def test_a_kill_at_any_moment_keeps_every_acknowledged_offset(tmp_path: Path) -> None:
    path = tmp_path / "connect.offsets"
    moments = random.Random(5)
    newest = 0
    for _ in range(6):
        writer = subprocess.Popen(
            [sys.executable, "-c", _CRASHING, str(path), "never", "0"], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        for _ in range(moments.randrange(1, 60)):
            newest = int(writer.stdout.readline())
        writer.kill()
        newest = max([newest, *map(int, writer.stdout.read().split())])
        writer.wait()
        writer.stdout.close()

        with opened(path) as store:
            values = set(store.entries().values())
        assert len(values) == 1
        assert newest <= int(values.pop()) <= newest + 1
