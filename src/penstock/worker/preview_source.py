"""The first records of a source connector, read by a process that ends when the time is over.

Main function: ``first_records``. Blocks for the time that was allowed at most; any thread.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.api import SourceFrame, SourceRecord
from penstock.model.preview import PreviewLimits
from penstock.pipeline.frame import frame_to_records

_HEADER = 8
_CHUNK = 1 << 16


@dataclass(frozen=True)
class FirstRecords:
    """What a source gave.

    Attributes:
        records: In order.
        ended: What ended the reading: records, bytes, seconds, end or error.
        error: The text of the error.
    """

    records: list[SourceRecord]
    ended: str
    error: str | None = None


def first_records(cls: type, config: Mapping[str, str], limits: PreviewLimits) -> FirstRecords:
    """Reads the first records of a source; nothing is committed.

    Args:
        cls: The connector's class.
        config: Its settings.
        limits: When to stop.
    """
    read_end, write_end = os.pipe()
    request = {
        "class": f"{cls.__module__}:{cls.__qualname__}",
        "config": dict(config),
        "records": limits.records,
        "bytes": limits.bytes,
        "path": sys.path,
    }
    child = subprocess.Popen(
        [sys.executable, "-m", "penstock.worker.preview_child", str(write_end)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(write_end,),
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    os.close(write_end)
    try:
        assert child.stdin is not None
        with contextlib.suppress(BrokenPipeError), child.stdin as stdin:
            stdin.write(json.dumps(request).encode())
        return _collect(read_end, limits)
    finally:
        os.close(read_end)
        # The group: a source may have started processes of its own.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _collect(pipe: int, limits: PreviewLimits) -> FirstRecords:
    deadline = time.monotonic() + limits.seconds
    buffer = bytearray()
    records: list[SourceRecord] = []
    size = 0
    # Not select, which fails for pipes whose number is above a thousand: a busy worker has many files open.
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            return FirstRecords(records, "seconds")
        chunk = os.read(pipe, _CHUNK)
        if not chunk:
            ended = "records" if len(records) >= limits.records else "bytes" if size >= limits.bytes else "end"
            return FirstRecords(records[: limits.records], ended)
        buffer += chunk
        while len(buffer) >= _HEADER and len(buffer) >= _HEADER + int.from_bytes(buffer[:_HEADER], "big"):
            length = int.from_bytes(buffer[:_HEADER], "big")
            message = bytes(buffer[_HEADER : _HEADER + length])
            del buffer[: _HEADER + length]
            size += length
            kind, content = pickle.loads(message)
            if kind == "error":
                return FirstRecords(records, "error", content)
            if kind == "records":
                records += content
            else:
                table, topic, value_schema, key_schema, timestamp, partition = content
                frame = SourceFrame(table, topic, value_schema, {}, {}, key_schema, timestamp, partition)
                records += frame_to_records(frame)
