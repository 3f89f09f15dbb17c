"""Chooses the next files, and moves or deletes files that were read.

Main types: ``Listing``; ``FileUnit``, a file or a part of one; ``Cleanup``. The task's thread.

In the order of their names files are read while the listing continues, so the first one is read at once, whatever their
number. For any other order the whole list is read, and the first files are kept.

Source: the settings of the SpoolDir connectors, ``files.sort.attributes``, ``file.minimum.age.ms``, ``cleanup.policy``,
``finished.path`` and ``error.path``.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

import numpy as np

from penstock.config.java_pattern import JavaPattern
from penstock.connectors.files.source.archive import Archive, Beside
from penstock.connectors.files.source.ledger import LOGS, FileLedger, FileOutcome, identity, log_of
from penstock.errors import ConnectException
from penstock.files import Found, Store
from penstock.files.manifests import CLAIMS, MANIFESTS, OWNERS

#: The number of files that are kept of a sorted list.
_MOST: Final = 50_000
#: The number of skipped files after which control returns for a moment.
_TICK: Final = 500


@dataclass(frozen=True, slots=True)
class FileUnit:
    """A file, or a part of a large one.

    Attributes:
        found: The file.
        identity: The identity of the file or the part; see ``ledger``.
        part: The number of the part, from 0.
        parts: The number of parts.
        share: The bytes of a part.
        log: The number of its log.
        beside: Its separate files; see ``archive``.
    """

    found: Found
    identity: int
    part: int = 0
    parts: int = 1
    share: int = 0
    log: int = 0
    beside: Beside = field(default_factory=dict)

    @property
    def span(self) -> tuple[int, int] | None:
        """The bytes of the part; None for the whole file."""
        if self.parts == 1:
            return None
        last = self.part == self.parts - 1
        return self.part * self.share, self.found.size if last else (self.part + 1) * self.share


@dataclass(frozen=True, slots=True)
class FileSelection:
    """Selects the files to read, and their order.

    Attributes:
        address: The address of the store: a part of the identity of files.
        pattern: The pattern for names of files; None: any that begins with neither a dot nor an underscore.
        recursive: True to search directories.
        skipped: Directories to exclude.
        minimum_age_ms: The minimum time since the last change.
        most_bytes: The size above which files are excluded; None for no limit.
        least_bytes: The size below which files are excluded.
        order: Attributes of ``files.sort.attributes``; ``NameAsc``: as they are listed.
        attributes: The attributes that identify a file: ``path``, ``lastModified``, ``size``, ``name``.
        owner: The text by which a file is assigned to a task: files with the same text are read in order.
        split: Returns the bytes of a part of a file; 0: the file is read as a whole.
        logs: The numbers of the logs of the task; see ``ledger``.
        busy: The extension of files to exclude; empty for none.
    """

    address: str
    pattern: JavaPattern | None = None
    recursive: bool = True
    skipped: frozenset[str] = frozenset()
    minimum_age_ms: int = 0
    most_bytes: int | None = None
    least_bytes: int = 0
    order: tuple[str, ...] = ("NameAsc",)
    attributes: tuple[str, ...] = ("path", "lastModified", "size")
    owner: Callable[[Found], str] = lambda found: found.key
    split: Callable[[Found], int] = lambda _: 0
    logs: frozenset[int] = frozenset(range(LOGS))
    busy: str = ""

    def skips(self, directory: str) -> bool:
        """True if a directory is not searched."""
        name = directory.rpartition("/")[2]
        return (
            not self.recursive or directory in self.skipped or name.startswith((".", "_tmp", MANIFESTS, CLAIMS, OWNERS))
        )

    def takes(self, found: Found) -> bool:
        """True if a file is to be read, at any age."""
        if self.busy and found.name.endswith(self.busy):
            return False
        if self.pattern is None:
            fits = not found.name.startswith((".", "_"))
        else:
            fits = self.pattern.matches(found.name)
        return fits and found.size >= self.least_bytes and (self.most_bytes is None or found.size <= self.most_bytes)

    def is_old_enough(self, found: Found, now_ms: float) -> bool:
        """True if a file was not changed recently."""
        return self.minimum_age_ms <= 0 or now_ms - found.time_ns / 1e6 >= self.minimum_age_ms

    def identity(self, found: Found, part: str = "") -> int:
        """The identity of a file, or of a part of one, in the ledger."""
        values = {
            "path": found.key,
            "uri": found.key,
            "name": found.name,
            "lastModified": found.time_ns,
            "size": found.size,
        }
        return identity(self.address, *(values[one] for one in self.attributes), part)

    def is_own(self, found: Found, part: str = "") -> bool:
        """True if a file is assigned to this task."""
        return self.log(found, part) in self.logs

    def log(self, found: Found, part: str = "") -> int:
        """The number of the log of a file, or of a part of one."""
        return log_of(self.owner(found) + part)

    def units(self, found: Found) -> list[FileUnit]:
        """The file, or its parts, of all tasks."""
        share = self.split(found)
        parts = -(-found.size // share) if share else 1
        if parts <= 1:
            return [FileUnit(found, self.identity(found), log=self.log(found))]
        return [
            FileUnit(found, self.identity(found, f"{one}/{parts}"), one, parts, share, self.log(found, str(one)))
            for one in range(parts)
        ]


class Listing:
    """One listing of all files.

    Args:
        store: The store of the files.
        selection: Selects files.
        ledger: Knows the finished files.
        now_ms: The current time.
        clean: Called with each finished file, and its outcome; returns True if the file is gone now.
        archive: Joins related files of ``FileSink``; None for separate files.

    Attributes:
        listed: The number of files so far.
        waiting: The number of files that were too new.
    """

    def __init__(
        self,
        store: Store,
        selection: FileSelection,
        ledger: FileLedger,
        now_ms: Callable[[], float],
        clean: Callable[[Found, FileOutcome], bool] = lambda *_: False,
        archive: Archive | None = None,
    ) -> None:
        self.listed = 0
        self.waiting = 0
        self._store, self._selection, self._ledger = store, selection, ledger
        self._now_ms, self._clean = now_ms, clean
        self._archive = archive

    def __iter__(self) -> Iterator[FileUnit | None]:
        """Yields the units to read, in order; None if there are none yet, so that the caller may do other work."""
        order = self._selection.order
        if order == ("NameAsc",):
            yield from self._new()
            return
        found = []
        for one in self._new():
            if one is None:
                yield None
            else:
                found.append(one)
                if len(found) > 2 * _MOST:
                    found = heapq.nsmallest(_MOST, found, key=lambda unit: sort_key(unit.found, order))
        yield from sorted(found, key=lambda unit: (sort_key(unit.found, order), unit.part))

    def _new(self) -> Iterator[FileUnit | None]:
        selection = self._selection
        for found, beside in self._together(self._store.walk(selection.skips)):
            if not selection.takes(found):
                continue
            self.listed += 1
            if self.listed % _TICK == 0:
                yield None
            yield from self._units(found, beside)

    def _together(self, files: Iterator[Found]) -> Iterator[tuple[Found, Beside]]:
        if self._archive is None:
            return ((found, {}) for found in files)
        self._archive.begin()
        return self._archive.together(files)

    def _units(self, found: Found, beside: Beside) -> Iterator[FileUnit]:
        selection, ledger = self._selection, self._ledger
        whole = selection.identity(found)
        if ledger.outcome(whole) is not None:
            self._done(found, whole, beside)
            return
        if not selection.is_old_enough(found, self._now_ms()):
            self.waiting += 1
            return
        units = selection.units(found)
        if len(units) == 1:
            if units[0].log in selection.logs:
                yield replace(units[0], beside=beside)
            return
        for one in units:
            if ledger.outcome(one.identity) is None:
                if one.log in selection.logs:
                    yield one
            else:
                ledger.saw(one.identity)
        if selection.is_own(found):
            fates = [ledger.committed(one.identity) for one in units]
            if None not in fates:
                # Several tasks have read the parts: now the whole file is finished.
                outcome = FileOutcome.FAILED if FileOutcome.FAILED in fates else FileOutcome.READ
                ledger.finish(ledger.logs[selection.log(found)], whole, outcome)

    def _done(self, found: Found, whole: int, beside: Beside) -> None:
        outcome = self._ledger.committed(whole) if self._selection.is_own(found) else None
        if outcome is not None:
            # The file itself goes last, so that one that stays is retried with its separate files.
            for one in beside.values():
                self._clean(one, outcome)
        if outcome is None or not self._clean(found, outcome):
            self._ledger.saw(whole)


def sort_key(found: Found, order: Sequence[str]) -> tuple[object, ...]:
    """A file's key in an order.

    >>> one, other = Found("a", 2, 1), Found("b", 1, 1)
    >>> sorted([one, other], key=lambda file: sort_key(file, ["LastModifiedAsc", "LengthAsc"]))[0].key
    'b'
    """
    return (*(_KEYS[one](found) for one in order), found.key)


class _Down(str):
    """A text that sorts in descending order."""

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)


_KEYS: Final[dict[str, Callable[[Found], object]]] = {
    "NameAsc": lambda found: found.name,
    "NameDesc": lambda found: _Down(found.name),
    "LengthAsc": lambda found: found.size,
    "LengthDesc": lambda found: -found.size,
    "LastModifiedAsc": lambda found: found.time_ns,
    "LastModifiedDesc": lambda found: -found.time_ns,
}
#: The supported orders.
ORDERS: Final = tuple(_KEYS)


log = logging.getLogger(__name__)

_DAY_NS: Final = 86_400_000_000_000


class OnDone(Enum):
    """The treatment of files that were read."""

    AUTO = ""
    NONE = "NONE"
    DELETE = "DELETE"
    MOVE = "MOVE"
    MOVE_BY_DATE = "MOVEBYDATE"


@dataclass
class Cleanup:
    """Moves and deletes files whose records are in Kafka, with their offsets.

    A file that cannot be moved stays, is not read again, and is retried with the next listing.

    Attributes:
        store: The store of the files.
        policy: The policy for files that were read.
        finished: The target of files that were read.
        failed: The target of files that could not be read; empty: they stay.
    """

    store: Store
    policy: OnDone
    finished: str = ""
    failed: str = ""
    _complaint: str = field(default="", repr=False)

    def __call__(self, found: Found, outcome: FileOutcome) -> bool:
        """Moves or deletes a file.

        Returns:
            True if the file is gone.
        """
        try:
            if outcome is FileOutcome.FAILED:
                if not self.failed:
                    return False
                self.store.move(found.key, f"{self.failed}/{found.key}")
            elif self.policy is OnDone.DELETE:
                self.store.delete(found.key)
            elif self.policy is OnDone.NONE:
                return False
            else:
                self.store.move(found.key, f"{self.finished}/{self._day(found)}{found.key}")
        except ConnectException as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.warning("A file that was read stays where it is, and is tried again: %s", error)
            return False
        return True

    def _day(self, found: Found) -> str:
        if self.policy is not OnDone.MOVE_BY_DATE:
            return ""
        # Any time of a file has a day, also one after the last of Python's dates.
        return f"{np.datetime64(found.time_ns // _DAY_NS, 'D')}/"
