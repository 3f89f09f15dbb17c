"""The process that runs the plans of previews, as the worker sees it: started when it is needed, ended when it is late.

Main type: ``PreviewProcess``. A user's code for Spark may take any time and all memory: it gets a separate session
(``session`` is the process itself). Settings and records cross over a socket; its command line and environment have
none of them.

Thread: any; previews with frames wait for each other. ``previews-session`` reads answers.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.api import SourceRecord
from penstock.errors import ConnectException
from penstock.kafka.consumer.sampler import SampledMessage
from penstock.settings.worker import WorkerSettings
from penstock.worker.isolation.channel import Channel, ChannelClosed
from penstock.worker.preview.chain import unfinished
from penstock.worker.preview.session import SETTINGS

#: The time limit of the start of the session, on a busy machine.
_START_S: Final = 60.0
#: The extra time in which a preview's process may report that its time is over. User code in Python is ended after
#: that.
_GRACE_S: Final = 5.0
_END_S: Final = 5.0
#: The priority is lower than the worker's: a preview must not slow connectors that run.
_NICENESS: Final = 5


class PreviewProcess:
    """Runs chains with frames in a process of its own.

    Args:
        settings: The worker's.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._turn = threading.Lock()
        self._state = threading.Lock()
        self._closed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._life: int | None = None

    def of_source(
        self, config: Mapping[str, str], records: Sequence[SourceRecord], limit_s: float
    ) -> list[dict[str, object]]:
        """Previews the records of a source.

        Args:
            config: The connector's settings.
            records: The records.
            limit_s: The time limit of the chain for all of them, after the session has started.

        Returns:
            The view of each; with an error if the preview has not finished.

        Raises:
            ConnectException: The session is missing, or a part of the chain cannot be made.
        """
        return self._shown("source", config, records, limit_s)

    def of_sink(
        self, config: Mapping[str, str], messages: Sequence[SampledMessage], limit_s: float
    ) -> list[dict[str, object]]:
        """Previews the messages of a sink's topics; see ``of_source``."""
        return self._shown("sink", config, messages, limit_s)

    def close(self) -> None:
        with self._state:
            self._closed = True
        self._end()

    def _shown(
        self, kind: str, config: Mapping[str, str], given: Sequence[Any], limit_s: float
    ) -> list[dict[str, object]]:
        with self._turn:
            # An idle process ends by itself after a while; the first try may find that out.
            for is_fresh in (self._channel is None, True):
                channel = self._channel or self._start()
                try:
                    how, content = channel.call(kind, dict(config), list(given), limit_s, timeout_s=limit_s + _GRACE_S)
                except ChannelClosed:
                    self._end()
                    if is_fresh:
                        how, content = "gone", None
                        break
                except TimeoutError:
                    self._end()
                    how, content = "late", limit_s
                    break
                else:
                    break
        if how == "shown":
            return list(content)
        return [unfinished(one, _TOLD[how].format(limit_s=limit_s, memory=_MEMORY)) for one in given]

    # ------------------------------------------------------------------ the process
    def _start(self) -> Channel:
        """Starts it. Caller has the turn.

        Raises:
            ConnectException: It cannot be started.
        """
        ours, theirs = socket.socketpair()
        watched, life = os.pipe()
        try:
            with self._state:
                if self._closed:
                    raise ConnectException("The worker is stopping")
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "penstock.worker.preview.session", str(theirs.fileno()), str(watched)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(), watched),
                    process_group=0,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                )
                self._life = life
                self._channel = Channel(ours, _serve, side="w", lane_threads=False)
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, self._process.pid, _NICENESS)
            self._channel.start("previews-session", _nothing)
        except OSError as error:
            ours.close()
            os.close(life)
            raise ConnectException(f"The process for previews cannot be started: {error}") from error
        finally:
            theirs.close()
            os.close(watched)
        channel = self._channel
        try:
            channel.call("start", list(sys.path), self._settings, _START_S, timeout_s=_START_S + _GRACE_S)
        except (ChannelClosed, TimeoutError) as error:
            self._end()
            raise ConnectException(
                f"The Spark session for previews is not up after {_START_S:.0f} s; the machine may be busy or its "
                "memory used up: try again"
            ) from error
        except BaseException:
            self._end()
            raise
        return channel

    def _end(self) -> None:
        with self._state:
            process, self._process = self._process, None
            channel, self._channel = self._channel, None
            life, self._life = self._life, None
        if process is None or channel is None or life is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(life)
        channel.hang_up()
        channel.join(_END_S)


_MEMORY: Final = SETTINGS["spark.driver.memory"]
_TOLD: Final = {
    "late": (
        "the transforms took longer than {limit_s:.0f} s, and were ended: look for expressions that make very much of "
        "these records, or for patterns that try very many ways; limits.seconds of a preview gives more time"
    ),
    "lost": (
        "the transforms ended the Spark session of the preview, which has {memory} of memory: look for expressions "
        "that make very much of these records, or give the preview fewer or smaller ones"
    ),
    "large": "the transforms make more of these records than a preview can show: give it fewer or smaller ones",
    "gone": "the transforms ended the process of the preview",
}


def _serve(name: str, args: tuple[Any, ...]) -> Any:
    raise ConnectException(f"A preview has nothing to ask the worker for: {name}")


def _nothing() -> None:
    """Does nothing: the channel answers the waiting callers."""
