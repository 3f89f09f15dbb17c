"""Directory source connector: divides the files of watched directories among tasks.

Main type: `DirectorySourceConnector`. The worker calls it on the connector's thread; what goes on in the background is
`DirectoryMonitor`, which it starts and stops.

The connector's own thread: follows directories and committed offsets, and asks the worker for what follows from it.

Main types: `DirectoryMonitor`, one for each start of the connector, which owns the thread ``directory-monitor``;
`TaskShare`, what the tasks were given. `scan_directories` looks which files are there, how large, how old.
"""

from __future__ import annotations

import contextvars
import fnmatch
import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.api import ExactlyOnceSupport, SourceConnector, SourceConnectorContext, Task
from penstock.connectors.directory.planning import (
    BYTES_FIELD,
    FILENAME_FIELD,
    POSITION_FIELD,
    SIZE_FIELD,
    Committed,
    FileState,
    FileTracker,
    Scan,
    StallWatch,
    Work,
    assign,
    is_count,
    parse_offset,
)
from penstock.connectors.directory.settings import (
    TASK_FILES_CONFIG,
    DirectorySourceConfig,
    TaskFiles,
    encode_files,
)
from penstock.connectors.directory.task import DirectorySourceTask
from penstock.errors import BadRequestException, ConnectException, IllegalWorkerStateException


def scan_directories(config: DirectorySourceConfig, complain: Callable[[str, str], None]) -> Scan:
    """Lists the files that match.

    Args:
        config: where and what to look for.
        complain: called for unreadable paths: the path, and a message for the log.
    """
    files: dict[str, FileState] = {}
    unreadable: set[str] = set()
    listed: set[str] = set()
    failed: set[str] = set()
    waiting = list(reversed(config.paths))
    while waiting:
        directory = waiting.pop()
        if directory in listed or directory in failed:
            continue
        try:
            entries = _entries(directory)
        except OSError as error:
            if directory not in config.paths and isinstance(error, FileNotFoundError):
                continue  # removed between the listing of its parent and now
            failed.add(directory)
            complain(
                directory,
                f"Cannot list directory {directory}: {error.strerror}. Its files are left as they are known until it "
                "can be; check that it exists and that the worker's user may read it",
            )
            continue
        listed.add(directory)
        for entry in entries:
            if config.recursive and _is_subdirectory(entry):
                waiting.append(entry.path)
            elif _matches(entry.name, config.file_pattern):
                state = _state(entry.path, complain)
                if isinstance(state, FileState):
                    files[entry.path] = state
                elif state:
                    unreadable.add(entry.path)
    return Scan([files[path] for path in sorted(files)], frozenset(unreadable), frozenset(failed))


def _entries(directory: str) -> list[os.DirEntry[str]]:
    with os.scandir(directory) as found:
        return sorted(found, key=lambda entry: entry.name)


def _is_subdirectory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
    except OSError:
        return False


def _matches(name: str, pattern: str) -> bool:
    """As a shell's glob: a leading dot has to be asked for."""
    if name.startswith(".") and not pattern.startswith("."):
        return False
    return fnmatch.fnmatchcase(name, pattern)


def _state(path: str, complain: Callable[[str, str], None]) -> FileState | bool:
    """The file; False when it is none or has gone, True when it is one but cannot be read."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        complain(path, f"Cannot look at file {path}: {error.strerror}. It is left out until that works")
        return True
    if not stat.S_ISREG(found.st_mode):
        return False
    try:
        path.encode()
    except UnicodeEncodeError:
        complain(path, f"The name of file {path!r} is not UTF-8, so no offset can be kept for it; it is left out")
        return False
    if not os.access(path, os.R_OK):
        complain(path, f"File {path} may not be read by the worker's user; it is left out until it may be")
        return True
    return FileState(path, found.st_size, found.st_mtime_ns, (found.st_dev, found.st_ino))


log = logging.getLogger(__name__)

Scanner = Callable[[DirectorySourceConfig, Callable[[str, str], None]], Scan]

# The connector's thread waits so long for the first look, and so long for the monitor to end.
FIRST_LOOK_S, END_S = 10.0, 3.0


@dataclass(frozen=True, slots=True)
class TaskShare:
    """The files of each task, and the offsets that are not to be used."""

    groups: Sequence[Sequence[str]] = ()
    stale: Mapping[str, Committed] = field(default_factory=dict)

    def paths(self) -> set[str]:
        """All files that have a task."""
        return {path for group in self.groups for path in group}

    def fits(self, work: Work) -> bool:
        """True if the tasks have exactly the files that need a task, and know which offsets to ignore."""
        return self.paths() == work.remaining.keys() and all(
            self.stale.get(path) == stale for path, stale in work.stale.items()
        )


class DirectoryMonitor:
    """Watches directories for one connector.

    Args:
        config: what to watch.
        context: the connector's; asked for offsets, and for reconfigurations and restarts.
        assignment: what the tasks were given before, so that files stay where they are.
        scanner: looks at the directories.
        clock: monotonic seconds.

    Thread: `plan` and `stop` are the connector's; `look` is the monitor's.
    """

    def __init__(
        self,
        config: DirectorySourceConfig,
        context: SourceConnectorContext,
        assignment: TaskShare,
        *,
        scanner: Scanner = scan_directories,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._context = context
        self._scanner = scanner
        self._clock = clock
        self._tracker = FileTracker(config.idle_ms / 1000)
        self._watch = StallWatch(config.stall_timeout_ms / 1000)
        self._complaints: dict[str, str] = {}
        self._stopping = threading.Event()
        # In a copy of the connector's context, so that log lines name the connector.
        watching = contextvars.copy_context()
        self._thread = threading.Thread(target=watching.run, args=(self._run,), name="directory-monitor", daemon=True)
        # Guards what the two threads share.
        self._changed = threading.Condition()
        self._work: Work | None = None
        self._assignment = assignment

    # ------------------------------------------------------------------ the connector's thread
    @property
    def assignment(self) -> TaskShare:
        """The last assignment of files to tasks."""
        with self._changed:
            return self._assignment

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread. One that hangs in storage that does not answer is abandoned and does nothing more."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(END_S)
        if self._thread.is_alive():
            log.warning(
                "The thread that watches %s hangs in a call to the storage; it ends when the storage answers",
                ", ".join(self._config.paths),
            )

    def plan(self, max_tasks: int) -> TaskShare:
        """Spreads the files that need a task, and notes the result as the tasks' share.

        Right after a start it waits for the first look. When that takes long, or fails, the answer is the one before,
        and the monitor asks for a reconfiguration when it knows more.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._work is not None, FIRST_LOOK_S)
            if self._work is None:
                log.warning("The directories or offsets could not be looked at yet; the tasks stay as they are")
                return self._assignment
            groups = assign(self._work.remaining, self._assignment.groups, max_tasks)
            self._assignment = TaskShare(groups, dict(self._work.stale))
            return self._assignment

    # ------------------------------------------------------------------ the monitor's thread
    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.look()
            except IllegalWorkerStateException as error:
                if not self._stopping.is_set():
                    log.info("No longer watching %s: %s", ", ".join(self._config.paths), error)
                return
            except ConnectException as error:
                self._complain("", f"Cannot read the committed offsets, trying again: {error}")
            except Exception as error:
                if not self._stopping.is_set():
                    self._context.raise_error(error)
                return
            self._stopping.wait(self._config.scan_interval_ms / 1000)

    def look(self) -> None:
        """Looks at the directories and offsets once, and asks the worker for what follows.

        Raises:
            ConnectException: the offsets cannot be read.
        """
        complaints: dict[str, str] = {}
        scan = self._scanner(self._config, complaints.__setitem__)
        for place, message in complaints.items():
            self._complain(place, message)
        paths = self._tracker.undecided(scan)
        offsets = self._offsets(paths)
        self._complaints = complaints
        now = self._clock()
        with self._changed:
            if self._stopping.is_set():
                return
            assignment = self._assignment
            work = self._tracker.observe(scan, offsets, assignment.paths(), now)
            self._work = work
            self._changed.notify_all()
        if not assignment.fits(work):
            log.info("The files to be read have changed; asking for new tasks")
            self._context.request_task_reconfiguration()
            return
        stalled = self._watch.stalled(assignment.groups, work, now)
        if stalled:
            log.warning(
                "Tasks %s have files to read but committed no new offset for %.1f s; restarting them",
                ", ".join(map(str, stalled)),
                self._config.stall_timeout_ms / 1000,
            )
            self._context.restart_tasks(stalled)

    def _offsets(self, paths: Sequence[str]) -> dict[str, Committed | None]:
        if not paths:
            return {}
        reader = self._context.offset_storage_reader()
        found = reader.offsets([{FILENAME_FIELD: path} for path in paths])
        return {path: parse_offset(path, offset) for path, offset in zip(paths, found, strict=True)}

    def _complain(self, place: str, message: str) -> None:
        """Logs a fault when it begins, not at every look."""
        if self._complaints.get(place) != message:
            log.warning("%s", message)
            self._complaints[place] = message


class DirectorySourceConnector(SourceConnector):
    """Streams the lines of all files in some directories, and follows its tasks through their committed offsets.

    It asks for new tasks when files appear, grow after they were finished, or are finished (no tasks at all when there
    is nothing to read), and restarts tasks that commit nothing although they have something to read.

    Source: KIP-131, Motivation.
    """

    config_class = DirectorySourceConfig

    def __init__(self) -> None:
        self._props: dict[str, str] = {}
        self._assignment = TaskShare()
        self._monitor: DirectoryMonitor | None = None

    def start(self, props: Mapping[str, str]) -> None:
        """Begins to watch.

        Raises:
            ConfigException: the settings are wrong.
        """
        self.stop()
        config = DirectorySourceConfig.parse(props)
        self._props = dict(props)
        self._monitor = DirectoryMonitor(config, self.context(), self._assignment)
        self._monitor.start()

    def task_class(self) -> type[Task]:
        """The columnar reader of many files."""
        return DirectorySourceTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """The files that are to be read, spread over at most `max_tasks` tasks; none when there is nothing to read."""
        if self._monitor is None:
            return []
        assignment = self._monitor.plan(max_tasks)
        configs = []
        for paths in assignment.groups:
            stale = {path: assignment.stale[path] for path in paths if path in assignment.stale}
            configs.append({**self._props, TASK_FILES_CONFIG: encode_files(TaskFiles(paths, stale))})
        return configs

    def stop(self) -> None:
        """Ends the watching; which task has which file is remembered for the next start."""
        if self._monitor is not None:
            self._monitor.stop()
            self._assignment = self._monitor.assignment
            self._monitor = None

    def obstacles(self, props: Mapping[str, str]) -> Sequence[str]:
        """Says which directories are missing or cannot be read, and that none of them has a file."""
        config, complaints = DirectorySourceConfig.parse(props), dict[str, str]()
        scan = scan_directories(config, complaints.__setitem__)
        if complaints:
            return [text.partition(". ")[0] for text in complaints.values()]
        none = f"no file in {', '.join(config.paths)} matches file.pattern={config.file_pattern}"
        return [] if scan.files else [none]

    def exactly_once_support(self, props: Mapping[str, str]) -> ExactlyOnceSupport:
        """Positions in files can be found again."""
        return ExactlyOnceSupport.SUPPORTED

    def alter_offsets(
        self,
        props: Mapping[str, str],
        offsets: Mapping[frozenset[tuple[str, object]], Mapping[str, object] | None],
    ) -> bool:
        """Checks new offsets. Removing is always allowed, also of entries that make no sense.

        Raises:
            BadRequestException: an offset is not a position in a file.
        """
        for partition, offset in offsets.items():
            if offset is not None:
                _check_offset(None if partition is None else dict(partition), offset)
        return True


def _check_offset(partition: Mapping[str, object] | None, offset: Mapping[str, object]) -> None:
    if partition is None or not isinstance(partition.get(FILENAME_FIELD), str):
        raise BadRequestException(f"A source partition has to hold the path of a file as '{FILENAME_FIELD}'")
    if not is_count(offset.get(POSITION_FIELD)):
        raise BadRequestException(
            f"The '{POSITION_FIELD}' in the offset of {partition[FILENAME_FIELD]} has to be a whole number of bytes, "
            f"0 or more, got {offset.get(POSITION_FIELD)!r}"
        )
    for name in (SIZE_FIELD, BYTES_FIELD):
        if name in offset and not is_count(offset[name]):
            raise BadRequestException(
                f"The '{name}' in the offset of {partition[FILENAME_FIELD]} has to be a whole number of bytes, 0 or "
                f"more, or to be left out, got {offset[name]!r}"
            )
