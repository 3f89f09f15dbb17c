"""FileStream source: the lines of a file, or of standard input, as records.

Main types: `FileStreamSourceConnector`, `FileStreamSourceTask`, a model for authors: they use only the public API. The
task is columnar: lines go from the file to Spark as one Arrow column and never become Python strings. `FileWatch` wakes
tasks that wait for their files, with one thread for all of them, because hundreds of threads that poll a hundred times
a second keep a core busy; `Mark` is the observed state of a file.

Threads: the task's; `wait` is called on it. `FileWatch` owns the thread `file-watch`, which runs while a task waits and
a moment longer.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from penstock.api import (
    ExactlyOnceSupport,
    FrameSourceTask,
    SourceConnector,
    SourceFrame,
    Task,
)
from penstock.config import AbstractConfig, ConfigDef, Importance, NonEmptyString, setting
from penstock.connectors.file.reader import LineReader, PlacedLines, unreadable
from penstock.data import STRING_SCHEMA
from penstock.errors import BadRequestException

#: The interval of checks of the files, in seconds.
LOOK_S = 0.01
#: The time for which the thread stays after the last wait, in seconds.
LINGER_S = 2.0

Mark = tuple[int, int, int, int] | None


def mark_of(path: str) -> Mark:
    """Returns the device, inode, size and time of change of a file, which show a change; None if it is missing."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


@dataclass(eq=False)
class _Waiting:
    path: str
    seen: Mark
    woken: threading.Event


class FileWatch:
    """Files that are waited for. Thread: any."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: set[_Waiting] = set()
        self._running = False

    def wait(self, path: str, seen: Mark, woken: threading.Event, timeout_s: float) -> None:
        """Waits until a file has changed, or the event is set; then clears the event.

        Args:
            path: the file.
            seen: its state before it was read to its end.
            woken: set when the file has changed; other threads may set it to end the wait.
            timeout_s: the timeout.
        """
        entry = _Waiting(path, seen, woken)
        with self._changed:
            self._waiting.add(entry)
            if not self._running:
                self._running = True
                threading.Thread(target=self._run, name="file-watch", daemon=True).start()
            self._changed.notify_all()
        try:
            woken.wait(timeout_s)
        finally:
            with self._changed:
                self._waiting.discard(entry)
            woken.clear()

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._waiting, LINGER_S):
                    self._running = False
                    return
                entries = list(self._waiting)
            for entry in entries:
                if mark_of(entry.path) != entry.seen:
                    entry.woken.set()
            pause.wait(LOOK_S)


FILENAME_FIELD = "filename"
POSITION_FIELD = "position"


class FileStreamSourceConfig(AbstractConfig):
    """The settings of the file source."""

    file: str | None = setting(
        default=None,
        importance=Importance.HIGH,
        doc="The file to read, line by line. Without it, standard input is read.",
    )
    topic: str = setting(
        validator=NonEmptyString(),
        importance=Importance.HIGH,
        doc="The topic that the lines are written to.",
    )
    batch_size: int = setting(
        default=2000,
        importance=Importance.LOW,
        doc="The largest number of lines that one poll returns. If it is not set, a poll returns all the lines of a "
        "chunk of the file.",
    )


# A file that was written to a moment ago is looked at often; idle ones are watched for all tasks together.
LOOK_WAIT_S, BUSY_FOR_S = 0.005, 1.0
POLL_LIMIT_S = 1.0
_WATCH = FileWatch()


class FileStreamSourceConnector(SourceConnector):
    """Reads one file with one task.

    Source: the documentation's chapter on Kafka Connect, "Connector Example".
    """

    def __init__(self) -> None:
        self._props: dict[str, str] = {}

    def start(self, props: Mapping[str, str]) -> None:
        """Takes the settings; nothing runs in the background."""
        FileStreamSourceConfig.parse(props)
        self._props = dict(props)

    def task_class(self) -> type[Task]:
        """The columnar line reader."""
        return FileStreamSourceTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """One configuration: a single file makes a single stream."""
        return [self._props]

    def stop(self) -> None:
        """Nothing to do."""

    def config(self) -> ConfigDef:
        """`file`, `topic`, `batch.size`."""
        return FileStreamSourceConfig.definition()

    def obstacles(self, props: Mapping[str, str]) -> Sequence[str]:
        """Says that the file is missing, or cannot be read."""
        path = props.get("file")
        return [] if not path else unreadable(path)

    def exactly_once_support(self, props: Mapping[str, str]) -> ExactlyOnceSupport:
        """Positions in a file can be found again, positions in standard input cannot."""
        return ExactlyOnceSupport.SUPPORTED if props.get("file") else ExactlyOnceSupport.UNSUPPORTED

    def alter_offsets(
        self,
        props: Mapping[str, str],
        offsets: Mapping[frozenset[tuple[str, object]], Mapping[str, object] | None],
    ) -> bool:
        """Checks new offsets.

        Raises:
            BadRequestException: standard input is read, or an offset is not a position in a file.
        """
        if not props.get("file"):
            raise BadRequestException(
                "Offsets cannot be modified if the 'file' configuration is unspecified. This is because "
                "stdin is used for input and offsets are not tracked."
            )
        for partition, offset in offsets.items():
            # Removing is always allowed, even for invalid entries, which could otherwise never be removed.
            if offset is not None:
                _check_offset(dict(partition) if partition is not None else None, offset)
        return True


def _check_offset(partition: Mapping[str, object] | None, offset: Mapping[str, object]) -> None:
    if POSITION_FIELD not in offset:
        raise BadRequestException(f"Offset objects should either be null or contain the key '{POSITION_FIELD}'")
    position = offset[POSITION_FIELD]
    if not isinstance(position, int) or isinstance(position, bool):
        text = f"The value for the '{POSITION_FIELD}' key in the offset is expected to be a Long value"
        raise BadRequestException(text)
    if position < 0:
        text = f"The value for the '{POSITION_FIELD}' key in the offset should be a non-negative value"
        raise BadRequestException(text)
    if partition is None:
        raise BadRequestException("Partition objects cannot be null")
    if FILENAME_FIELD not in partition:
        raise BadRequestException(f"Partition objects should contain the key '{FILENAME_FIELD}'")


class FileStreamSourceTask(FrameSourceTask):
    """Follows one file and hands over its complete lines as frames.

    Offsets: `{"filename": path}` -> `{"position": bytes up to the end of the line}`.
    """

    java_name: ClassVar[str] = "org.apache.kafka.connect.file.FileStreamSourceTask"

    def __init__(self) -> None:
        self._reader: LineReader | None = None
        self._rest: PlacedLines | None = None
        self._partition: dict[str, object] = {}
        self._topic = ""
        self._max_lines: int | None = None
        self._last_data_s = 0.0
        self._path: str | None = None
        self._woken = threading.Event()

    def start(self, props: Mapping[str, str]) -> None:
        """Finds the committed position.

        Raises:
            BadRequestException: the committed offset is not one of ours.
        """
        config = FileStreamSourceConfig.parse(props)
        path = config.file or None
        self._path = path
        self._topic = config.topic
        if "batch.size" in props:
            self._max_lines = max(1, config.batch_size)
        self._partition = {FILENAME_FIELD: path}
        self._reader = LineReader(path, self._committed_position(path))

    def _committed_position(self, path: str | None) -> int:
        if path is None:
            return 0
        offset = self.context.offset_storage_reader().offset(self._partition)
        position = (offset or {}).get(POSITION_FIELD)
        if position is None:
            # Nothing was read yet, or a stream, which has no positions.
            return 0
        if not isinstance(position, int) or isinstance(position, bool) or position < 0:
            raise BadRequestException(
                f"The committed offset of file {path} is {offset!r}, but '{POSITION_FIELD}' has to be a whole number "
                "of bytes, 0 or more. Correct it with PATCH /connectors/<name>/offsets"
            )
        return position

    def poll(self) -> SourceFrame | None:
        """The next lines; waits up to a second for some to be appended."""
        assert self._reader is not None
        deadline = time.monotonic() + POLL_LIMIT_S
        while not self.context.stopping.is_set():
            # Before the file is read, so that lines that are appended later count as a change.
            seen = None if self._path is None else mark_of(self._path)
            chunk = self._rest or self._reader.read()
            now = time.monotonic()
            if chunk is not None:
                self._last_data_s = now
                return self._frame(chunk)
            if now >= deadline:
                return None
            if self._path is None or now - self._last_data_s < BUSY_FOR_S:
                self.context.stopping.wait(LOOK_WAIT_S)
            else:
                _WATCH.wait(self._path, seen, self._woken, deadline - now)
        return None

    def wakeup(self) -> None:
        """Ends the wait for more lines. Thread: any."""
        self._woken.set()

    def stop(self) -> None:
        """Closes the file."""
        if self._reader is not None:
            self._reader.close()

    def _frame(self, chunk: PlacedLines) -> SourceFrame:
        lines, self._rest = chunk.lines, None
        if self._max_lines is not None and len(lines.values) > self._max_lines:
            self._rest = PlacedLines(lines.slice(self._max_lines, len(lines.values)), chunk.start, chunk.resume)
            lines = lines.slice(0, self._max_lines)
        return SourceFrame(
            data=pa.table({"value": lines.values}),
            topic=self._topic,
            value_schema=STRING_SCHEMA,
            source_partition=self._partition,
            source_offset={POSITION_FIELD: chunk.resume if self._rest is None else _position(chunk, lines.ends[-1])},
            timestamp=int(time.time() * 1000),
            offset_after=_offset_after(chunk, lines.ends),
        )


def _position(chunk: PlacedLines, end: int) -> int | None:
    return None if chunk.start is None else chunk.start + int(end)


def _offset_after(chunk: PlacedLines, ends: object) -> Callable[[int], Mapping[str, object]]:
    def offset_after(row: int) -> Mapping[str, object]:
        return {POSITION_FIELD: _position(chunk, ends[row])}  # type: ignore[index]

    return offset_after
