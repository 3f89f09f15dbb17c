"""Which files were read: offsets stay small, nothing is lost on the way into blocks, and what is gone is forgotten."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from penstock.connectors.files.source.ledger import (
    LOGS,
    FileInProgress,
    FileLedger,
    FileOutcome,
    FilePosition,
    identity,
    is_offset,
)
from penstock.connectors.files.source.listing import FileSelection, FileUnit, Listing
from penstock.files import Found, Store


class Offsets:
    """A store of offsets."""

    def __init__(self) -> None:
        self.kept: dict[str, Mapping[str, Any]] = {}
        self.written = 0

    def read(self, partitions: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any] | None]:
        return [self.kept.get(json.dumps(dict(one), sort_keys=True)) for one in partitions]

    def write(self, partition: Mapping[str, Any], offset: Mapping[str, Any] | None) -> None:
        name = json.dumps(dict(partition), sort_keys=True)
        if offset is None:
            self.kept.pop(name, None)
        else:
            self.kept[name] = offset
            self.written += len(json.dumps(offset))

    @property
    def nbytes(self) -> int:
        return sum(len(name) + len(json.dumps(one)) for name, one in self.kept.items())


class Names(Store):
    """A store of names, without files."""

    def __init__(self, names: Callable[[], Iterator[str]]) -> None:
        self.names = names

    def walk(self, skip: Callable[[str], bool], below: str = "") -> Iterator[Found]:
        for name in self.names():
            yield Found(name, 1, 1)

    put = create_if_absent = list_from = delete = end_unfinished = check = look_at = open = move = None  # type: ignore


SELECTION = FileSelection("s3://b")


def units(store: Store, ledger: FileLedger, selection: FileSelection = SELECTION) -> Iterator[FileUnit | None]:
    return iter(Listing(store, selection, ledger, lambda: 1e15))


def read(ledger: FileLedger, offsets: Offsets, unit: FileUnit, outcome: FileOutcome = FileOutcome.READ) -> None:
    """Reads a file, as the task does, and commits."""
    log = ledger.logs[unit.log]
    if log.waits_for_block:
        ledger.refresh()
    if (block := log.full_block()) is not None:
        offsets.write(*block)
    ledger.finish(log, unit.identity, outcome)
    offsets.write(log.partition, log.offset())


@pytest.mark.slow
def test_files_take_less_than_ten_bytes_each_and_each_offset_a_few_kilobytes() -> None:
    count = 60_000
    store, offsets = Names(lambda: (f"year=2026/file-{number:07d}.parquet" for number in range(count))), Offsets()
    ledger = FileLedger(range(LOGS), offsets.read)

    found = units(store, ledger)
    first = next(found)
    assert first is not None
    assert first.found.key.endswith("0000000.parquet")

    # As if all were read in an instant: the logs are filled without an offset for each file.
    for number in range(count):
        unit = SELECTION.units(Found(f"year=2026/file-{number:07d}.parquet", 1, 1))[0]
        log = ledger.logs[unit.log]
        ledger.finish(log, unit.identity, FileOutcome.READ)
        if (block := log.full_block()) is not None:
            offsets.write(*block)
            log.stored()
    for log in ledger.logs.values():
        offsets.write(log.partition, log.offset())
    assert offsets.nbytes < 10 * count
    assert max(len(json.dumps(one)) for one in offsets.kept.values()) < 8_000

    later = FileLedger(range(LOGS), offsets.read)
    names = [f"year=2026/file-{number:07d}.parquet" for number in range(count)]
    store.names = lambda: iter([*names[:1000], "year=2026/file-0000500b.parquet", *names[-1000:]])
    assert [one.found.key for one in units(store, later) if one] == ["year=2026/file-0000500b.parquet"]


@pytest.mark.parametrize("committed_every", [60, 607])
def test_a_kill_at_any_time_forgets_no_file_that_was_committed(committed_every: int) -> None:
    """Offsets of some files are lost with the process; blocks and heads may be stored one without the other."""
    store, offsets = Names(lambda: (f"{number:05d}" for number in range(1500))), Offsets()
    selection = FileSelection("s3://b", owner=lambda _: "all")
    known: set[str] = set()
    while True:
        ledger = FileLedger(range(LOGS), offsets.read)
        got = [one for one in units(store, ledger, selection) if one]
        assert {one.found.key for one in got}.isdisjoint(known)
        if not got:
            break
        for number, unit in enumerate(got[: committed_every + 5], 1):
            log = ledger.logs[unit.log]
            if log.waits_for_block:
                ledger.refresh()
            if (block := log.full_block()) is not None and number % 2:
                offsets.write(*block)
            ledger.finish(log, unit.identity, FileOutcome.READ)
            if number in (committed_every, len(got)):
                offsets.write(log.partition, log.offset())
                known |= {one.found.key for one in got[:number]}
    assert len(known) == 1500


def test_files_that_are_gone_are_forgotten_once_they_were_committed_and_may_come_again() -> None:
    names = [f"{number:04d}" for number in range(1500)]
    store, offsets = Names(lambda: iter(names)), Offsets()
    selection = FileSelection("s3://b", owner=lambda _: "all")
    ledger = FileLedger(range(LOGS), offsets.read)
    for unit in [one for one in units(store, ledger, selection) if one]:
        read(ledger, offsets, unit)
    ledger.refresh()
    assert ledger.forget() == []
    full = offsets.nbytes

    names = names[1400:]
    for _ in range(2):
        assert [one for one in units(store, ledger, selection) if one] == []
        for partition in ledger.forget():
            offsets.write(partition, None)
        for log in ledger.logs.values():
            if log.files:
                offsets.write(log.partition, log.offset())
    assert offsets.nbytes < full / 3
    assert [one for one in units(store, FileLedger(range(LOGS), offsets.read), selection) if one] == []

    names = ["0000", *names]
    assert [one.found.key for one in units(store, ledger, selection) if one] == ["0000"]


def test_a_place_in_a_file_is_kept_beside_those_that_grow() -> None:
    offsets = Offsets()
    ledger = FileLedger([3], offsets.read)
    log = ledger.logs[3]
    for number in range(3):
        log.begin(FileInProgress(f"{number}.txt", 0, identity(number), "v", 10, FilePosition()))
        log.suspend(FilePosition(number, 0, 5 if number else 1))
    log.begin(FileInProgress("1.txt", 0, identity(1), "v", 20, FilePosition(1)))
    offsets.write(log.partition, log.offset(FilePosition(7, 2, 6)))

    again = FileLedger([3], offsets.read).logs[3]
    assert {name: found.place for name in "012" if (found := again.reading_of(f"{name}.txt", 0))} == {
        "1": FilePosition(7, 2, 6),
        "2": FilePosition(2, 0, 5),
    }
    assert is_offset({"log": 3}, log.offset())
    assert not is_offset({"log": 3}, {"done": "?"})
    assert not is_offset({"file": "a"}, {})


def test_files_that_could_not_be_read_are_known_as_such() -> None:
    offsets = Offsets()
    ledger = FileLedger(range(LOGS), offsets.read)
    for name, outcome in (("a", FileOutcome.READ), ("b", FileOutcome.FAILED)):
        read(ledger, offsets, SELECTION.units(Found(name, 1, 1))[0], outcome)
    later = FileLedger(range(LOGS), offsets.read)
    found = {name: later.committed(SELECTION.identity(Found(name, 1, 1))) for name in "abc"}
    assert found == {"a": FileOutcome.READ, "b": FileOutcome.FAILED, "c": None}


def test_parts_of_a_file_are_read_by_several_tasks_and_the_file_is_done_with_behind_all_of_them() -> None:
    offsets, store = Offsets(), Names(lambda: iter(["a"]))
    ledgers = [FileLedger(range(one, LOGS, 2), offsets.read) for one in range(2)]
    selections = [FileSelection("s3://b", split=lambda _: 1, logs=frozenset(range(one, LOGS, 2))) for one in range(2)]
    store.walk = lambda skip, below="": iter([Found("a", 6, 1)])  # type: ignore[method-assign]
    parts = []
    for ledger, selection in zip(ledgers, selections, strict=True):
        for unit in units(store, ledger, selection):
            assert unit is not None
            parts.append(unit.part)
            read(ledger, offsets, unit)
    assert sorted(parts) == list(range(6))

    for ledger, selection in zip(ledgers, selections, strict=True):
        ledger.refresh()
        assert list(units(store, ledger, selection)) == []
    whole = selections[0].identity(Found("a", 6, 1))
    assert sum(ledger.outcome(whole) is FileOutcome.READ for ledger in ledgers) == 1
