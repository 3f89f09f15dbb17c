"""The files that were read, stored in the source offsets.

Main type: ``FileLedger``. I/O by its reader only; the task's thread.

A file is identified by a hash of 55 bits of its address, time and size; another bit marks files that could not be read.
Files are assigned to 64 logs by their names, and logs to tasks. A log has full blocks of hashes, which are never
written again, and the newest hashes with the position in the current file::

    {"log": 7}               -> {"blocks": 3, "done": "..", "file": "a/b.csv", "at": 4096, "rows": 17, ..}
    {"log": 7, "block": 2}   -> {"done": ".."}

So a position takes at most a few kilobytes for any number of files, and a million files take 9.5 MB together.

Source: Penstock's own.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

import numpy as np

Offset = Mapping[str, Any]
#: The committed offsets of partitions, from ``OffsetStorageReader.offsets``.
ReadOffsets = Callable[[Sequence[Mapping[str, Any]]], Sequence["Offset | None"]]

LOG: Final = "log"
BLOCK: Final = "block"
DONE: Final = "done"
#: The number of hashes of a full block.
_BLOCK_FILES: Final = 512
_HASH_BYTES: Final = 7
#: The number of logs. It cannot change: offsets refer to logs.
LOGS: Final = 64
_FAILED: Final = 1
#: The number of files that may grow at the same time; rows of further ones come again after a restart.
_SUSPENDED: Final = 16


class FileOutcome(Enum):
    """The outcome of a finished file."""

    READ = "read"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class FilePosition:
    """A position in a file, or in a part of one.

    Attributes:
        at: The start of the block of rows: a byte; or above 32 bits a row group, stripe or block, below them a row.
        rows: The number of rows of the block that were read, without bad ones.
        line: The number of the first line of the block, from 1; 0 = not counted.
        letters: True if the bad rows of the block were reported.
    """

    at: int = 0
    rows: int = 0
    line: int = 1
    letters: bool = False


@dataclass(frozen=True, slots=True)
class FileInProgress:
    """The file that a task is reading.

    Attributes:
        file: Its key.
        part: The number of the part.
        identity: See ``identity``.
        version: The version from the store.
        size: Its size in bytes.
        place: The current position.
    """

    file: str
    part: int
    identity: int
    version: str
    size: int
    place: FilePosition


def identity(*parts: object) -> int:
    """A hash of a file, of 56 bits, the last of which is 0.

    >>> identity("s3://b/a.csv", 7) == identity("s3://b/a.csv", 7) != identity("s3://b/a.csv", 8)
    True
    """
    text = "\0".join(map(str, parts))
    found = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_HASH_BYTES).digest()
    return int.from_bytes(found, "big") & ~_FAILED


def as_text(key: str) -> str:
    """The key of a file for offsets, which are text: bytes of its name that are not UTF-8 are written as escapes.

    >>> as_text("a/b.csv"), as_text("a\\udcff")
    ('a/b.csv', 'a\\\\xff')
    """
    return key.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


class Log:
    """One log of this task.

    Args:
        number: Its number.
        head: Its committed offset.

    Attributes:
        blocks: The number of blocks.
    """

    def __init__(self, number: int, head: Offset) -> None:
        self.number = number
        self.blocks = _count(head)
        self._own: list[int] = _unpacked(head).tolist()
        # The number of them in a block that is being stored.
        self._rolled = 0
        self._reading: FileInProgress | None = None
        self._readings = [*_readings(head), *_suspended(head)]
        # Files that still grew when they were read to their end.
        self._suspended = _suspended(head)
        self._encoded = ""

    @property
    def partition(self) -> dict[str, Any]:
        """The source partition of the log."""
        return {LOG: self.number}

    @property
    def reading(self) -> FileInProgress | None:
        """The current file."""
        return self._reading

    @property
    def files(self) -> dict[int, bool]:
        """The newest files, each with True if it could not be read."""
        return {one & ~_FAILED: bool(one & _FAILED) for one in self._own}

    def reading_of(self, file: str, part: int) -> FileInProgress | None:
        """The position in a file that has been read in part."""
        return next((one for one in self._readings if (one.file, one.part) == (file, part)), None)

    def finish(self, file: int, outcome: FileOutcome) -> None:
        """Notes in the next offset that a file is finished, and that there is no current file."""
        self._own.append(file | (outcome is FileOutcome.FAILED))
        self._reading, self._encoded = None, ""

    def begin(self, reading: FileInProgress) -> None:
        """Notes the current file."""
        self._reading, place = reading, (reading.file, reading.part)
        self._readings = [one for one in self._readings if (one.file, one.part) != place]
        self._suspended = [one for one in self._suspended if (one.file, one.part) != place]

    def suspend(self, place: FilePosition) -> None:
        """Notes the position in an unfinished file, and that there is no current file."""
        if self._reading is not None and place != FilePosition():
            one = replace(self._reading, place=place)
            self._suspended = [*self._suspended, one][-_SUSPENDED:]
            self._readings.append(one)
        self._reading = None

    def offset(self, place: FilePosition | None = None) -> dict[str, Any]:
        """The offset, with a position in the current file; None if there is no current file."""
        self._encoded = self._encoded or _packed(self._own)
        found: dict[str, Any] = {DONE: self._encoded, "blocks": self.blocks}
        if self._reading is not None and place is not None:
            found |= _fields(replace(self._reading, place=place))
        if self._suspended:
            found["suspended"] = json.dumps([_fields(one) for one in self._suspended])
        return found

    def full_block(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The next block to store, as partition and offset; its hashes stay in the head until it is stored."""
        if self._rolled or len(self._own) < _BLOCK_FILES:
            return None
        self._rolled = _BLOCK_FILES
        self.blocks += 1
        return {LOG: self.number, BLOCK: self.blocks - 1}, {DONE: _packed(self._own[:_BLOCK_FILES])}

    @property
    def waits_for_block(self) -> bool:
        """True if a block may have been stored since."""
        return self._rolled > 0 and len(self._own) % _BLOCK_FILES == 0

    def stored(self) -> None:
        """Removes the hashes of the stored block from the head."""
        self._own, self._rolled, self._encoded = self._own[self._rolled :], 0, ""

    def keep(self, wanted: Callable[[int], bool]) -> None:
        """Forgets the newest files, except the wanted ones."""
        if not self._rolled:
            kept = [one for one in self._own if wanted(one & ~_FAILED)]
            if len(kept) < len(self._own):
                self._own, self._encoded = kept, ""

    @staticmethod
    def with_place(offset: Mapping[str, Any], reading: FileInProgress | None, place: FilePosition) -> dict[str, Any]:
        """An offset with another position in the current file."""
        return {**offset, **(_fields(replace(reading, place=place)) if reading is not None else {})}


class FileLedger:
    """All logs as they were committed, and the current ones of one task.

    Args:
        logs: The numbers of the logs that the task writes.
        read: Returns committed offsets.

    Attributes:
        is_open: True if finished files were not yet committed at the last call of ``refresh``.
    """

    def __init__(self, logs: Iterable[int], read: ReadOffsets) -> None:
        self.is_open = False
        self._read = read
        # The hashes in blocks, sorted, and for each its log and block as one number.
        self._packed = np.zeros(0, np.uint64)
        self._places = np.zeros(0, np.int64)
        self._present = np.zeros(0, bool)
        self._loaded: dict[tuple[int, int], np.ndarray] = {}
        # The hashes in the committed heads of logs, and uncommitted ones, with the failed bit.
        self._heads: dict[int, bool] = {}
        self._new: dict[int, bool] = {}
        self._seen: set[int] = set()
        self.logs: dict[int, Log] = {}
        heads = self.refresh()
        self.logs = {number: Log(number, heads.get(number, {})) for number in logs}
        for log in self.logs.values():
            # A block whose commit an earlier task did not see.
            log.keep(lambda file: self._index(file) is None)

    # ------------------------------------------------------------------------------------------------------- reading
    def outcome(self, file: int) -> FileOutcome | None:
        """The outcome of a file; None if it is not finished."""
        failed = self._new.get(file)
        return self.committed(file) if failed is None else _outcome(failed)

    def committed(self, file: int) -> FileOutcome | None:
        """The outcome of a file, if it was committed at the last call of ``refresh``."""
        failed = self._heads.get(file)
        if failed is not None:
            return _outcome(failed)
        index = self._index(file)
        return None if index is None else _outcome(bool(int(self._packed[index]) & _FAILED))

    def refresh(self) -> dict[int, Offset]:
        """Reads the committed heads of logs."""
        found = self._read([{LOG: number} for number in range(LOGS)])
        heads = {number: one for number, one in enumerate(found) if one is not None}
        places = [(log, block) for log, head in heads.items() for block in range(_count(head))]
        wanted = [one for one in places if one not in self._loaded]
        blocks = self._read([{LOG: log, BLOCK: block} for log, block in wanted]) if wanted else []
        new = {place: _unpacked(one) for place, one in zip(wanted, blocks, strict=True) if one is not None}
        if new:
            kept = self._packed[self._present]
            self._loaded |= new
            self._pack()
            # A new block has files that were read since the last listing.
            for files in (kept, *new.values()):
                self._present[np.searchsorted(self._packed, files)] = True
        self._heads = {
            one & ~_FAILED: bool(one & _FAILED) for head in heads.values() for one in _unpacked(head).tolist()
        }
        for log in self.logs.values():
            if (log.number, log.blocks - 1) in self._loaded:
                log.stored()
        self._new = {file: failed for file, failed in self._new.items() if self.committed(file) is None}
        self.is_open = bool(self._new)
        return heads

    # ------------------------------------------------------------------------------------------------------- writing
    def finish(self, log: Log, file: int, outcome: FileOutcome) -> None:
        """Notes in the next offset of a log that a file is finished."""
        log.finish(file, outcome)
        self._new[file] = outcome is FileOutcome.FAILED
        self._seen.add(file)
        self.is_open = True

    # ---------------------------------------------------------------------------------------------------- forgetting
    def saw(self, file: int) -> None:
        """Notes that a finished file still exists."""
        index = self._index(file)
        if index is None:
            self._seen.add(file)
        else:
            self._present[index] = True

    def forget(self) -> list[dict[str, Any]]:
        """Forgets files of this task that no longer exist, and begins a new search for existing ones.

        Only what was committed before is forgotten.

        Returns:
            The source partitions to forget.
        """
        there = set(np.unique(self._places[self._present]).tolist())
        gone = [(log, block) for log, block in self._loaded if log in self.logs and _place(log, block) not in there]
        for place in gone:
            del self._loaded[place]
        for log in self.logs.values():
            log.keep(lambda file: file in self._seen or file not in self._heads)
        self._seen = set(self._new)
        self._pack()
        return [{LOG: log, BLOCK: block} for log, block in gone]

    # ------------------------------------------------------------------------------------------------------- helpers
    def _index(self, file: int) -> int | None:
        index = int(np.searchsorted(self._packed, np.uint64(file)))
        is_there = index < len(self._packed) and int(self._packed[index]) & ~_FAILED == file
        return index if is_there else None

    def _pack(self) -> None:
        arrays = list(self._loaded.values())
        packed = np.concatenate([np.zeros(0, np.uint64), *arrays])
        places = [np.full(len(one), _place(*place), np.int64) for place, one in self._loaded.items()]
        order = np.argsort(packed, kind="stable")
        self._packed = packed[order]
        self._places = np.concatenate([np.zeros(0, np.int64), *places])[order]
        self._present = np.zeros(len(packed), bool)


def log_of(owner: str) -> int:
    """The number of the log of a file.

    >>> 0 <= log_of("a.csv") == log_of("a.csv") < LOGS
    True
    """
    return (identity(owner) >> 1) % LOGS


def is_offset(partition: Mapping[str, Any], offset: Offset) -> bool:
    """True if an offset was written by a ledger."""
    counts = [*partition.values(), offset.get("blocks", 0)]
    numbers = all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in counts)
    if DONE not in offset:
        return False
    try:
        _unpacked(offset)
        return LOG in partition and not partition.keys() - {LOG, BLOCK} and numbers
    except (ValueError, TypeError, AttributeError):
        return False


def _place(log: int, block: int) -> int:
    return block * LOGS + log


def _outcome(failed: bool) -> FileOutcome:
    return FileOutcome.FAILED if failed else FileOutcome.READ


def _count(head: Offset) -> int:
    found = head.get("blocks", 0)
    return found if isinstance(found, int) else 0


def _packed(files: Iterable[int]) -> str:
    """Hashes as text.

    >>> _unpacked({"done": _packed([2, 1 << 50])}).tolist()
    [2, 1125899906842624]
    """
    return base64.b64encode(b"".join(one.to_bytes(_HASH_BYTES, "big") for one in files)).decode()


def _unpacked(offset: Offset) -> np.ndarray:
    data = np.frombuffer(base64.b64decode(offset.get(DONE, ""), validate=True), np.uint8).reshape(-1, _HASH_BYTES)
    wide = np.zeros((len(data), 8), np.uint8)
    wide[:, 1:] = data
    return wide.view(">u8").reshape(-1).astype(np.uint64)


def _fields(one: FileInProgress) -> dict[str, Any]:
    place = one.place
    return {
        "file": one.file,
        "part": one.part,
        "id": one.identity,
        "version": one.version,
        "size": one.size,
        "at": place.at,
        "rows": place.rows,
        "line": place.line,
        "letters": place.letters,
    }


def _readings(head: Offset) -> list[FileInProgress]:
    try:
        place = FilePosition(head["at"], head["rows"], head["line"], bool(head["letters"]))
        return [FileInProgress(head["file"], head["part"], head["id"], head["version"], head["size"], place)]
    except KeyError:
        return []


def _suspended(head: Offset) -> list[FileInProgress]:
    return [reading for one in json.loads(head.get("suspended", "[]")) for reading in _readings(one)]
