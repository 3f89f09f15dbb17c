"""Decisions of the directory source: what is to be read, which task reads it, which task is stuck.

Main types: `FileTracker` (what needs a task), `StallWatch` (who is stuck); main functions: `assign` (who reads what),
`resume_position` (where to go on). No I/O; the time is an argument. Used by one thread at a time.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

log = logging.getLogger(__name__)

FILENAME_FIELD = "filename"
POSITION_FIELD = "position"
SIZE_FIELD = "size"
BYTES_FIELD = "bytes"

_MISSING_LIMIT = 100_000


# ---------------------------------------------------------------------- offsets
@dataclass(frozen=True, slots=True)
class Committed:
    """A committed offset: bytes that are in Kafka, and the size the file had then, if that is known."""

    position: int
    size: int | None = None


def parse_offset(path: str, offset: Mapping[str, object] | None) -> Committed | None:
    """The committed offset of a file; one that makes no sense is reported and counts as none, so nothing is lost."""
    if offset is None:
        return None
    position, size = offset.get(POSITION_FIELD), offset.get(SIZE_FIELD)
    if not is_count(position):
        log.warning(
            "The committed offset of file %s is %r, which has no position: it is read from its start",
            path,
            dict(offset),
        )
        return None
    assert isinstance(position, int)
    return Committed(position, size if isinstance(size, int) and is_count(size) else None)


def is_count(value: object) -> bool:
    """True for a whole number, 0 or more."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def resume_position(size: int, committed: Committed | None) -> int:
    """Returns where to resume in a file of this size. One that has become smaller is another file: read from its start.

    >>> resume_position(10, Committed(6, 8)), resume_position(7, Committed(6, 8)), resume_position(10, None)
    (6, 0, 0)
    """
    if committed is None or size < max(committed.position, committed.size or 0):
        return 0
    return committed.position


# ---------------------------------------------------------------------- what needs a task
@dataclass(frozen=True, slots=True)
class FileState:
    """A file as a scan found it. `identity` is device and inode."""

    path: str
    size: int
    mtime_ns: int
    identity: tuple[int, int] = (0, 0)

    def is_replaced_by(self, now: FileState) -> bool:
        """True if another file has this name now: it is shorter than before, or both its identity and its time of
        change differ (some shared storage changes inodes at will, so the inode does not suffice)."""
        return now.size < self.size or (now.identity != self.identity and now.mtime_ns != self.mtime_ns)


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of a scan of the directories.

    Attributes:
        files: the files that match and can be read.
        unreadable: files that match and are there, but cannot be read.
        failed: the directories that could not be listed; nothing is known of what is below them.
    """

    files: Sequence[FileState]
    unreadable: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()

    def may_still_have(self, path: str) -> bool:
        """True if a file that was not found may still exist."""
        if path in self.unreadable:
            return True
        return any(path.startswith(directory.rstrip(os.sep) + os.sep) for directory in self.failed)


@dataclass(slots=True)
class _Known:
    state: FileState
    changed_at: float
    committed: Committed | None = None
    stale: Committed | None = None
    gone: bool = False
    unreachable: bool = False
    finished: bool = False

    @property
    def remaining(self) -> int:
        valid = self.committed if self.stale is None or self.committed != self.stale else None
        return max(0, self.state.size - resume_position(self.state.size, valid))


@dataclass(frozen=True, slots=True)
class Work:
    """The files that need a task.

    Attributes:
        remaining: the files that need a task, with the bytes that are not in Kafka yet (0: all are, but the file was
            written to a moment ago).
        stale: files among them that became other files after the given offset was committed.
        readable: the files that can be read now; no progress is expected of others (gone, unreachable).
        committed: the committed offset of each.
    """

    remaining: Mapping[str, int] = field(default_factory=dict)
    stale: Mapping[str, Committed] = field(default_factory=dict)
    readable: frozenset[str] = frozenset()
    committed: Mapping[str, Committed | None] = field(default_factory=dict)


class FileTracker:
    """Follows files from scan to scan.

    A file needs a task while it has bytes that are not in Kafka; one that has a task keeps it until it has also stayed
    the same for the idle time. Files without anything to read never get one.
    """

    def __init__(self, idle_s: float) -> None:
        self._idle_s = idle_s
        self._known: dict[str, _Known] = {}
        self._missing: dict[str, FileState] = {}

    def undecided(self, scan: Scan) -> list[str]:
        """The files whose offsets are to be read: all except finished ones that have not changed since."""
        found = {state.path: state for state in scan.files}
        paths = [path for path, state in found.items() if not self._rests(state)]
        return paths + [path for path in self._known if path not in found]

    def observe(
        self, scan: Scan, offsets: Mapping[str, Committed | None], assigned: Collection[str], now: float
    ) -> Work:
        """Takes in a scan and the offsets that were read after it.

        Args:
            scan: what is there.
            offsets: the committed offsets of the undecided files.
            assigned: the files that have a task.
            now: monotonic seconds.
        """
        found = set()
        for state in scan.files:
            found.add(state.path)
            if not self._rests(state):
                self._see(state, offsets.get(state.path), state.path in assigned, now)
        for path in [path for path in self._known if path not in found]:
            self._miss(path, scan, offsets.get(path), path in assigned, now)
        needed = {path: known for path, known in self._known.items() if self._needs_task(known, path in assigned, now)}
        for path, known in self._known.items():
            known.finished = path not in needed and not known.remaining and not known.gone and not known.unreachable
        return Work(
            remaining={path: known.remaining for path, known in needed.items()},
            stale={path: known.stale for path, known in needed.items() if known.stale is not None},
            readable=frozenset(path for path, known in needed.items() if not known.gone and not known.unreachable),
            committed={path: known.committed for path, known in needed.items()},
        )

    def _rests(self, state: FileState) -> bool:
        known = self._known.get(state.path)
        return known is not None and known.finished and known.state == state

    def _see(self, state: FileState, committed: Committed | None, assigned: bool, now: float) -> None:
        known = self._known.get(state.path)
        if known is None:
            known = self._known[state.path] = _Known(state, now, committed)
            missing = self._missing.pop(state.path, None)
            if committed is not None and missing is not None and missing.is_replaced_by(state):
                log.warning("File %s was removed and made again; it is read from its start", state.path)
                known.stale = committed
            return
        before, known.state = known.state, state
        known.gone = known.unreachable = False
        if before != state:
            known.changed_at = now
        # The task of an assigned file still has the old one open, and sees the change itself at its end.
        if not assigned and committed is not None and before.is_replaced_by(state):
            log.warning("File %s was truncated or replaced; it is read from its start", state.path)
            known.stale = committed
        self._commit(known, committed)

    def _miss(self, path: str, scan: Scan, committed: Committed | None, assigned: bool, now: float) -> None:
        known = self._known[path]
        self._commit(known, committed, now if known.gone else None)
        if scan.may_still_have(path):
            known.unreachable = True
        elif not assigned:
            # Remembered, to tell a new file of that name from a directory that was away for a moment.
            self._missing[path] = self._known.pop(path).state
            if len(self._missing) > _MISSING_LIMIT:
                del self._missing[next(iter(self._missing))]
        elif not known.gone:
            known.gone, known.changed_at = True, now
            if known.remaining:
                log.warning(
                    "File %s was removed with %d bytes that are not committed yet; what its task has open is still "
                    "read, the rest cannot be",
                    path,
                    known.remaining,
                )

    def _commit(self, known: _Known, committed: Committed | None, moved_at: float | None = None) -> None:
        if committed == known.committed:
            return
        known.committed = committed
        if committed != known.stale:
            known.stale = None
        if moved_at is not None:
            known.changed_at = moved_at

    def _needs_task(self, known: _Known, assigned: bool, now: float) -> bool:
        resting = now - known.changed_at >= self._idle_s
        if known.gone:
            return assigned and not resting
        if known.unreachable and not assigned:
            return False
        return known.remaining > 0 or (assigned and not resting)


# ---------------------------------------------------------------------- who reads what
def assign(remaining: Mapping[str, int], previous: Sequence[Sequence[str]], max_tasks: int) -> list[list[str]]:
    """Spreads files over tasks: as many tasks as there are files, at most `max_tasks`, none of them empty.

    A file stays with the task it has. A new one goes, the largest first, to the task with the fewest bytes to read. A
    task that is left without files gets the largest one of the task with the most bytes. The same arguments give the
    same answer.

    Args:
        remaining: the files, with the bytes there are to read.
        previous: the files of each task so far.
        max_tasks: ``tasks.max``.

    >>> assign({"a": 10, "b": 7, "c": 5}, [], 2)
    [['a'], ['b', 'c']]
    >>> assign({"b": 7, "c": 5, "d": 1}, [["a"], ["b", "c"]], 2)
    [['d'], ['b', 'c']]
    """
    groups: list[list[str]] = [[] for _ in range(min(max_tasks, len(remaining)))]
    placed: set[str] = set()
    for group, files in zip(groups, previous, strict=False):
        kept = [path for path in dict.fromkeys(files) if path in remaining and path not in placed]
        group += kept
        placed.update(kept)
    loads = [sum(remaining[path] for path in group) for group in groups]
    for path in sorted(remaining.keys() - placed, key=lambda path: (-remaining[path], path)):
        index = min(range(len(groups)), key=lambda i: (bool(groups[i]), loads[i], len(groups[i]), i))
        groups[index].append(path)
        loads[index] += remaining[path]
    for index, group in enumerate(groups):
        if group:
            continue
        donor = max((i for i in range(len(groups)) if len(groups[i]) > 1), key=lambda i: (loads[i], len(groups[i]), -i))
        moved = min(groups[donor], key=lambda path: (-remaining[path], path))
        groups[donor].remove(moved)
        group.append(moved)
        loads[donor] -= remaining[moved]
        loads[index] += remaining[moved]
    return [sorted(group) for group in groups]


# ---------------------------------------------------------------------- who is stuck
class StallWatch:
    """Finds tasks that have something to read and commit nothing. A hanging and a failed task look the same.

    Args:
        timeout_s: how long a task may go without a new offset. A task that was reported gets as long again.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._watched: dict[int, tuple[object, float]] = {}

    def stalled(self, groups: Iterable[Sequence[str]], work: Work, now: float) -> list[int]:
        """The numbers of the tasks that are stuck."""
        watched: dict[int, tuple[object, float]] = {}
        found = []
        for task, files in enumerate(groups):
            if not any(work.remaining.get(path) and path in work.readable for path in files):
                continue
            progress = (tuple(files), tuple(work.committed.get(path) for path in files))
            before, since = self._watched.get(task, (None, now))
            if before != progress:
                since = now
            elif now - since >= self._timeout_s:
                found.append(task)
                since = now
            watched[task] = (progress, since)
        self._watched = watched
        return found
