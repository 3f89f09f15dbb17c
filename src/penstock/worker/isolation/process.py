"""The process of one task: starts it, calls it, ends it and reports its end.

Main type: ``TaskProcess``. It is a new Python process, not a fork: the worker has threads, a JVM and a Kafka client.
Settings cross over the socket; its command line and environment have none of them. It ends with the worker in every
case: the kernel kills it when the other end of a pipe is closed (see ``child``).

Threads: ``call`` from any; ``isolated-<task>`` reads answers and waits for the end, ``output-<task>`` reads what the
process prints, ``calls-shared`` serves the calls of threads that the author's code started.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from penstock.errors import ConnectException
from penstock.model import ConnectorTaskId
from penstock.telemetry import Stack, log_context, waiting_for
from penstock.threads import start_within
from penstock.worker.isolation.channel import Channel, ChannelClosed

log = logging.getLogger(__name__)
_output = logging.getLogger(f"{__package__}.output")

#: The time that a process may take to write out its output after a request to end.
_END_S: Final = 1.0
#: The time that its threads in the worker may take after that.
_JOIN_S: Final = 2.0
_LINE_BYTES: Final = 64 * 1024
#: The time limit for the stacks of its threads: a request for ``explain`` waits for them.
_STAND_S: Final = 0.5


class TaskProcess:
    """A process that holds one instance of a task.

    Args:
        task: The task.
        class_path: The class of the task, as in ``task.class``.
        memory_max: The most bytes of memory it may have; None for no limit.
    """

    def __init__(self, task: ConnectorTaskId, class_path: str, memory_max: int | None = None) -> None:
        self.task = task
        self._class_path = class_path
        self._memory_max = memory_max
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._life: int | None = None
        self._ended = False
        self._killed_for: str | None = None
        self._death: str | None = None
        #: Called when the process ends without a request; on its thread.
        self.on_death: Callable[[Exception], None] = lambda error: None

    @property
    def pid(self) -> int | None:
        """Its number, once it was started."""
        return None if self._process is None else self._process.pid

    @property
    def is_up(self) -> bool:
        """True if it can be asked."""
        return self._channel is not None and not self._ended and self._death is None

    def start(self, handle: Callable[[str, tuple[Any, ...]], Any]) -> None:
        """Starts it and has it make the task.

        Args:
            handle: Serves the task's calls of its context.

        Raises:
            ConnectException: The process cannot be started, or was ended before it was ready.
            Exception: The error of importing the task's class or creating an instance.
        """
        with self._lock:
            if self._ended:
                raise ConnectException(f"The process of task {self.task} is not started: the task is ending")
            try:
                self._start(handle)
            except OSError as error:
                raise ConnectException(
                    f"The process of task {self.task} (task.isolation=process) cannot be started: {error}; "
                    "memory, processes (ulimit -u) or open files (ulimit -n) may be used up"
                ) from error
        levels = {
            name: one.level
            for name, one in logging.root.manager.loggerDict.items()
            if isinstance(one, logging.Logger) and one.level
        }
        self.call("make", self._class_path, list(sys.path), {**levels, "": logging.root.level}, self._memory_max)

    def call(self, name: str, *args: Any, timeout_s: float | None = None) -> Any:
        """Calls the task's process; see ``Channel.call``.

        Raises:
            ConnectException: The process has ended; the message describes how.
        """
        channel = self._channel
        if channel is None:
            raise ConnectException(f"The process of task {self.task} was not started")
        try:
            with waiting_for("user_code", name, partial(self._stack, channel, channel.lane)):
                return channel.call(name, *args, timeout_s=timeout_s)
        except ChannelClosed:
            # The kind of end is known after the reading thread has ended.
            channel.join(_END_S + _JOIN_S)
            raise self._gone() from None

    def notify(self, name: str, *args: Any) -> None:
        """Sends a message to the task's process, without waiting.

        Raises:
            ConnectException: The process has ended; the message describes how.
        """
        channel = self._channel
        if channel is None:
            return
        try:
            channel.notify(name, *args)
        except ChannelClosed:
            raise self._gone() from None

    def kill(self) -> None:
        """Ends it at once, with all that it has started: its task missed its deadline. Returns at once. Thread: any."""
        with self._lock:
            already, self._ended = self._ended, True
            process, channel = self._process, self._channel
        if process is None or channel is None:
            return
        if not already:
            self._killed_for = "was killed: the task did not end within task.shutdown.graceful.timeout.ms"
            log.warning("The process %d of task %s is killed", process.pid, self.task)
        self._kill_group()
        channel.hang_up()

    def close(self) -> None:
        """Ends it, the task having stopped, and waits until nothing of it is left. Again: without effect."""
        with self._lock:
            self._ended = True
            channel = self._channel
        if channel is None:
            return
        channel.hang_up()
        if not channel.join(_END_S + _JOIN_S):
            log.error("The process %s of task %s does not end", self.pid, self.task)

    def _stack(self, channel: Channel, lane: str) -> Stack:
        """Returns the stack of the thread that serves a lane; empty if the process does not answer. Thread: any."""
        try:
            found: Stack = channel.call("stack", lane, timeout_s=_STAND_S)
        except (ChannelClosed, TimeoutError):
            return ()
        return found

    # ------------------------------------------------------------------ its life
    def _start(self, handle: Callable[[str, tuple[Any, ...]], Any]) -> None:
        with contextlib.ExitStack() as opened:
            ours, theirs = socket.socketpair()
            opened.callback(theirs.close)
            failed = opened.enter_context(contextlib.ExitStack())
            failed.callback(ours.close)
            watched, life = os.pipe()
            opened.callback(os.close, watched)
            failed.callback(os.close, life)
            printed, out = os.pipe()
            opened.callback(os.close, out)
            failed.callback(os.close, printed)
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.child", str(theirs.fileno()), str(watched)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                pass_fds=(theirs.fileno(), watched),
                process_group=0,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
            failed.pop_all()
        self._life = life
        self._channel = Channel(ours, self._in_context(handle), side="w", lane_threads=False)
        start_within(f"output-{self.task}", lambda: self._read_output(printed))
        self._channel.start(f"isolated-{self.task}", self._reap)

    def _in_context(self, handle: Callable[[str, tuple[Any, ...]], Any]) -> Callable[[str, tuple[Any, ...]], Any]:
        def serve(name: str, args: tuple[Any, ...]) -> Any:
            with log_context(self.task.connector, self.task.task):
                return handle(name, args)

        return serve

    def _reap(self) -> None:
        """The connection is closed: waits for the process, and ends its remaining children. Thread: isolated."""
        process = self._process
        assert process is not None
        # Not with wait(), which would free its number before its group is ended.
        self._await_exit(process.pid)
        self._kill_group()
        status = process.wait()
        with self._lock:
            expected, self._ended = self._ended, True
            self._death = self._killed_for or _ending(process.pid, status)
            life, self._life = self._life, None
        if life is not None:
            os.close(life)
        if not expected:
            error = self._gone()
            log.error("%s", error)
            self.on_death(error)

    def _await_exit(self, pid: int) -> None:
        watched = os.pidfd_open(pid)
        try:
            poll = select.poll()
            poll.register(watched, select.POLLIN)
            poll.poll(_END_S * 1000)
        finally:
            os.close(watched)

    def _kill_group(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)

    def _gone(self) -> ConnectException:
        return ConnectException(
            f"The process of task {self.task} (task.isolation=process) {self._death or self._killed_for or 'has ended'}"
        )

    def _read_output(self, printed: int) -> None:
        with log_context(self.task.connector, self.task.task), os.fdopen(printed, "rb") as lines:
            while line := lines.readline(_LINE_BYTES):
                _output.info("%s", line.decode(errors="replace").rstrip("\r\n"))


def _ending(pid: int, status: int) -> str:
    """Describes how a process ended.

    >>> _ending(17, 3)
    '(17) ended by itself, with exit status 3; restart the task to continue'
    >>> _ending(17, -11)
    '(17) was ended by signal 11 (SIGSEGV); restart the task to continue'
    """
    if status >= 0:
        return f"({pid}) ended by itself, with exit status {status}; restart the task to continue"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = "a real-time signal"
    why = ": somebody killed it, or the system was out of memory" if -status == signal.SIGKILL else ""
    return f"({pid}) was ended by signal {-status} ({name}){why}; restart the task to continue"
