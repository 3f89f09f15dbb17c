"""The connector's own thread: follows directories and committed offsets, and asks the worker for what follows from it.

Main types: `DirectoryMonitor`, one for each start of the connector, which owns the thread ``directory-monitor``;
`Assignment`, what the tasks were given.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.api import SourceConnectorContext
from penstock.connectors.directory.planning import (
    FILENAME_FIELD,
    Committed,
    FileTracker,
    Scan,
    StallWatch,
    Work,
    assign,
    parse_offset,
)
from penstock.connectors.directory.scanning import scan_directories
from penstock.connectors.directory.settings import DirectorySourceConfig
from penstock.errors import ConnectException, IllegalWorkerStateException

log = logging.getLogger(__name__)

Scanner = Callable[[DirectorySourceConfig, Callable[[str, str], None]], Scan]

# The connector's thread waits so long for the first look, and so long for the monitor to end.
FIRST_LOOK_S, END_S = 10.0, 3.0


@dataclass(frozen=True, slots=True)
class Assignment:
    """The files of each task, and the offsets that are not to be used."""

    groups: Sequence[Sequence[str]] = ()
    stale: Mapping[str, Committed] = field(default_factory=dict)

    def paths(self) -> set[str]:
        """All files that have a task."""
        return {path for group in self.groups for path in group}

    def fits(self, work: Work) -> bool:
        """Whether the tasks have just the files that need one, and know which offsets to leave alone."""
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
        assignment: Assignment,
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
    def assignment(self) -> Assignment:
        """What the tasks were given last."""
        with self._changed:
            return self._assignment

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread. One that hangs in storage that does not answer is left behind and does nothing more."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(END_S)
        if self._thread.is_alive():
            log.warning(
                "The thread that watches %s hangs in a call to the storage; it ends when the storage answers",
                ", ".join(self._config.paths),
            )

    def plan(self, max_tasks: int) -> Assignment:
        """Spreads the files that need a task; this is what the tasks have from now on.

        Right after a start it waits for the first look. When that takes long, or fails, the answer is the one before,
        and the monitor asks for a reconfiguration when it knows more.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._work is not None, FIRST_LOOK_S)
            if self._work is None:
                log.warning("The directories or offsets could not be looked at yet; the tasks stay as they are")
                return self._assignment
            groups = assign(self._work.remaining, self._assignment.groups, max_tasks)
            self._assignment = Assignment(groups, dict(self._work.stale))
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
