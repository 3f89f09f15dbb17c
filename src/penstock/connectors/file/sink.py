"""FileStream sink: appends each value as a line to a file, or to standard output.

Main types: `FileStreamSinkConnector`, `FileStreamSinkTask`. The task is columnar: it receives text (`ValueForm.TEXT`,
as printed by Java's `toString`), Arrow joins it, and one write appends a batch.
"""

from __future__ import annotations

import logging
import os
import stat
import sys
from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock.api import (
    FrameSinkTask,
    OffsetAndMetadata,
    SinkConnector,
    SinkFrame,
    Task,
    TopicPartition,
    ValueForm,
)
from penstock.config import AbstractConfig, ConfigDef, Importance, setting
from penstock.errors import ConnectException

log = logging.getLogger(__name__)


class FileStreamSinkConfig(AbstractConfig):
    """The settings of the file sink."""

    file: str | None = setting(
        default=None,
        importance=Importance.HIGH,
        doc="The file that lines are appended to. Without it, they go to standard output.",
    )


class FileStreamSinkConnector(SinkConnector):
    """Appends to one file; each task opens it for itself.

    Source: the documentation's chapter on Kafka Connect, "Sink Tasks".
    """

    def __init__(self) -> None:
        self._props: dict[str, str] = {}

    def start(self, props: Mapping[str, str]) -> None:
        """Takes the settings."""
        FileStreamSinkConfig.parse(props)
        self._props = dict(props)

    def task_class(self) -> type[Task]:
        """The columnar line writer."""
        return FileStreamSinkTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """The same configuration for each task: an append by one never cuts through an append by another."""
        return [dict(self._props) for _ in range(max_tasks)]

    def stop(self) -> None:
        """Nothing to do."""

    def config(self) -> ConfigDef:
        """`file`."""
        return FileStreamSinkConfig.definition()

    def alter_offsets(self, props: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        """Any offsets do: consumer offsets are the only position this connector has."""
        return True


class FileStreamSinkTask(FrameSinkTask):
    """Appends the text of each value and a line feed."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.file.FileStreamSinkTask"
    value_form = ValueForm.TEXT

    def __init__(self) -> None:
        self._path: str | None = None
        self._fd = -1
        self._is_file = False
        self._fragment: bytes | None = None

    def start(self, props: Mapping[str, str]) -> None:
        """Opens the file for appending, makes it when it is not there.

        Raises:
            ConnectException: the file cannot be opened or made.
        """
        path = FileStreamSinkConfig.parse(props).file or None
        self._path = path
        if path is None:
            sys.stdout.flush()
            self._fd = sys.stdout.fileno()
            return
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ConnectException(
                f"Couldn't find or create file '{path}' for FileStreamSinkTask: {error.strerror}. Check the path and "
                "that the worker's user may write there, then restart the task"
            ) from error
        self._is_file = stat.S_ISREG(os.fstat(self._fd).st_mode)
        if self._is_file:
            self._fragment = _last_line_without_end(self._fd)

    def put(self, frame: SinkFrame) -> None:
        """Appends one batch with one write.

        Raises:
            ConnectException: the file cannot be written to (for example: the disk is full).
        """
        if not frame.num_rows:
            return
        values = frame.table.column("value").combine_chunks()
        # A frame that was not made by a worker may have a column without a type where all is null.
        values = values.cast(pa.string()) if pa.types.is_null(values.type) else values
        values = values.fill_null("null")  # Java's text of null.
        if isinstance(values, pa.ChunkedArray):
            values = pa.concat_arrays(values.chunks)
        if self._fragment is not None:
            self._mend(self._fragment, values)
            self._fragment = None
        joined = pc.binary_join(pa.LargeListArray.from_arrays([0, len(values)], values), "\n")[0]
        self._write(joined.as_buffer())

    def flush(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Makes all rows put so far durable."""
        if self._is_file:
            os.fsync(self._fd)

    def stop(self) -> None:
        """Closes the file."""
        if self._path is not None and self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _write(self, lines: bytes | pa.Buffer) -> None:
        """Writes lines and a last line feed with one system call, if the system takes it all."""
        buffers = [memoryview(lines), memoryview(b"\n")]
        try:
            while buffers:
                written = os.writev(self._fd, buffers)
                while buffers and written >= len(buffers[0]):
                    written -= len(buffers.pop(0))
                if buffers:
                    buffers[0] = buffers[0][written:]
        except OSError as error:
            raise ConnectException(
                f"Cannot write to {self._path or 'standard output'}: {error.strerror}. The records of this batch are "
                "delivered again when the task is restarted"
            ) from error

    def _mend(self, fragment: bytes, values: pa.StringArray) -> None:
        """Keeps the first line apart from an unfinished last line that the file had before.

        A process that is killed in a write leaves one; its record was not committed, so it is in this batch and the
        fragment can go. Anything else was there before us and is kept, ended by a line feed.
        """
        again = pc.any(pc.starts_with(values.cast(pa.binary()), fragment)).as_py()
        size = os.fstat(self._fd).st_size
        if _last_line_without_end(self._fd) != fragment:
            return  # another task has appended meanwhile
        if again:
            log.warning(
                "File %s ended in the middle of a line that is delivered again; the half is dropped", self._path
            )
            os.ftruncate(self._fd, size - len(fragment))
        else:
            self._write(b"")


def _last_line_without_end(fd: int, limit: int = 16 * 1024 * 1024) -> bytes | None:
    """Returns the bytes that follow the last line feed of a file, or None if there are none."""
    size = os.fstat(fd).st_size
    tail, step = b"", 64 * 1024
    while len(tail) < min(size, limit):
        step = min(step * 2, limit)
        length = min(step, size)
        tail = os.pread(fd, length, size - length)
        if b"\n" in tail:
            break
    return tail.rpartition(b"\n")[2] or None
