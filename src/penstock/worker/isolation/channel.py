"""Calls between a worker and the process of a task, in both directions at once over one socket.

Each thread that calls has its *lane*: on the other side one thread serves it, and the waiting thread serves the calls
back. So a task's methods keep to their threads, and ``stop`` reaches a task whose ``poll`` blocks.

Thread: ``call`` and ``notify`` from any; one thread reads; a thread for each lane of the other side, or one for all of
them. Of a ``HandedOverObjects`` one adds, one asks.
"""

from __future__ import annotations

import itertools
import logging
import pickle
import queue
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from penstock.errors import ConnectException
from penstock.pipeline.batch.transfer import CrossedError, described, rebuilt
from penstock.threads import OwnedThread, start_within


class HandedOverObjects:
    """The objects that were handed over, in order. They are requested in the same order, and then released.

    >>> handed = HandedOverObjects()
    >>> first, second = "a", "b"
    >>> handed.add([first, second])
    >>> handed.number_of(second), handed.at(1)
    (1, 'b')
    """

    def __init__(self) -> None:
        self._left: deque[object] = deque()
        self._first = 0

    def add(self, items: Iterable[object]) -> None:
        """Notes the objects that were handed over."""
        self._left.extend(items)

    def number_of(self, item: object) -> int:
        """Returns the number of an object; releases the objects before it.

        Raises:
            LookupError: It is unknown, or a later object was requested before.
        """
        while self._left:
            if self._left[0] is item:
                return self._first
            self._let_go()
        raise LookupError("the hook is for a record that the task has not returned")

    def at(self, number: int) -> object:
        """Returns the object of a number; releases the objects before it.

        Raises:
            LookupError: It was released.
        """
        while self._left and self._first < number:
            self._let_go()
        if not self._left or self._first != number:
            raise LookupError(f"number {number} of what the task has handed over is not there any more")
        return self._left[0]

    def _let_go(self) -> None:
        self._left.popleft()
        self._first += 1


log = logging.getLogger(__name__)

_CALL, _NOTICE, _RESULT, _ERROR = range(4)
_SIZE: Final = struct.Struct("!I")
_SHARED: Final = "shared"


class ChannelClosed(Exception):
    """The other side has gone."""


def thread_of(lane: str) -> str:
    """The name of the thread that serves a lane of the other side."""
    return f"calls-{lane}"


@dataclass
class _Message:
    kind: int
    lane: str
    number: int
    name: str
    parts: list[bytearray]

    def content(self) -> Any:
        """Unpickles the message that was sent. On the thread that needs it: an author's class may be slow, or fail."""
        return pickle.loads(self.parts[0], buffers=self.parts[1:])


class Channel:
    """One end of the connection.

    Args:
        connection: A connected stream socket; closed with the channel.
        lane_threads: True if each lane of the other side gets a thread; else one thread serves all lanes in which no
            thread waits.
    """

    def __init__(
        self, connection: socket.socket, handle: Callable[[str, tuple[Any, ...]], Any], *, side: str, lane_threads: bool
    ) -> None:
        self._connection = connection
        self._handle = handle
        self._side = side
        self._lane_threads = lane_threads
        self._numbers = itertools.count(1)
        self._sending = threading.Lock()
        self._lock = threading.Lock()
        self._lanes: dict[str, queue.SimpleQueue[_Message | None]] = {}
        self._closed = False
        self._local = threading.local()
        self._reader: OwnedThread | None = None

    def start(self, name: str, on_closed: Callable[[], None]) -> None:
        """Starts the thread that reads; when the connection is closed it calls ``on_closed`` and ends."""

        def run() -> None:
            self._read()
            on_closed()
            self.close()

        self._reader = start_within(name, run)

    def join(self, timeout_s: float) -> bool:
        """Waits for the end of the thread that reads."""
        return self._reader is None or self._reader.join(timeout_s)

    def call(self, name: str, *args: Any, timeout_s: float | None = None) -> Any:
        """Calls the other side and waits for the answer; serves calls back while it waits.

        Raises:
            ChannelClosed: The other side has gone.
            TimeoutError: The other side has not answered in time.
            BaseException: The error raised there, with its class, message and frames.
        """
        lane = self.lane
        number = next(self._numbers)
        with self._lock:
            if self._closed:
                raise ChannelClosed
            answers = self._lanes.get(lane)
            own = answers is None
            if answers is None:
                answers = self._lanes[lane] = queue.SimpleQueue()
        try:
            self._send(_CALL, lane, number, name, args)
            del args
            return self._answer(answers, number, name, timeout_s)
        finally:
            if own:
                with self._lock:
                    self._lanes.pop(lane, None)

    def notify(self, name: str, *args: Any) -> None:
        """Sends a message to the other side, in order with the calls of this thread; does not wait."""
        self._send(_NOTICE, self.lane, 0, name, args)

    def hang_up(self) -> None:
        """Ends the connection: the thread that reads notices, on both sides. Returns at once."""
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def close(self) -> None:
        """Ends the connection; every call that waits, and every later one, fails."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            waiting = list(self._lanes.values())
        for one in waiting:
            one.put(None)
        self.hang_up()
        with self._sending:
            self._connection.close()

    # ------------------------------------------------------------------ calls
    @property
    def lane(self) -> str:
        """The lane that this thread serves at the moment; its own lane if it serves none."""
        return getattr(self._local, "lane", None) or f"{self._side}{threading.get_ident()}"

    def _answer(
        self, answers: queue.SimpleQueue[_Message | None], number: int, name: str, timeout_s: float | None
    ) -> Any:
        while True:
            try:
                message = answers.get(timeout=timeout_s)
            except queue.Empty:
                raise TimeoutError(f"{name} was not answered within {timeout_s} s") from None
            if message is None:
                raise ChannelClosed
            if message.kind in (_CALL, _NOTICE):
                self._execute(message)
            elif message.number == number:
                break
        try:
            content = message.content()
        except Exception as error:
            raise ConnectException(
                f"What {name} gave cannot be read on the other side of task.isolation=process: "
                f"{type(error).__name__}: {error}"
            ) from error
        if message.kind == _ERROR:
            assert isinstance(content, CrossedError)
            raise rebuilt(content)
        return content

    def _execute(self, message: _Message) -> None:
        kind, number, name = message.kind, message.number, message.name
        before = getattr(self._local, "lane", None)
        self._local.lane = message.lane
        try:
            args = message.content()
            message.parts = []
            result = self._handle(name, args)
            del args
            if kind == _CALL:
                self._send(_RESULT, message.lane, number, name, result)
        except ChannelClosed:
            return
        except BaseException as error:
            if kind == _CALL:
                self._send_error(message, error)
            else:
                log.exception("The task's %s() raised; the event that it reports stands", name)
        finally:
            self._local.lane = before

    def _send_error(self, message: _Message, error: BaseException) -> None:
        try:
            self._send(_ERROR, message.lane, message.number, message.name, described(error))
        except ChannelClosed:
            return

    def _serve(self, messages: queue.SimpleQueue[_Message | None]) -> None:
        while (message := messages.get()) is not None:
            self._execute(message)
            # Records are not to be kept in memory while waiting for the next.
            del message

    # ------------------------------------------------------------------ the wire
    def _send(self, kind: int, lane: str, number: int, name: str, content: Any) -> None:
        buffers: list[pickle.PickleBuffer] = []
        try:
            payload = pickle.dumps(content, protocol=5, buffer_callback=buffers.append)
        except Exception as error:
            raise ConnectException(
                f"What {name} takes or gives cannot cross between the worker and the process of a task with "
                f"task.isolation=process: {type(error).__name__}: {error}. Use Connect's types and plain Python values"
            ) from error
        parts: list[Any] = [payload, *(one.raw() for one in buffers)]
        head = pickle.dumps((kind, lane, number, name, [len(part) for part in parts]))
        with self._sending:
            try:
                self._connection.sendall(_SIZE.pack(len(head)) + head)
                for part in parts:
                    self._connection.sendall(part)
            except OSError as error:
                raise ChannelClosed from error

    def _read(self) -> None:
        try:
            while True:
                (size,) = _SIZE.unpack(self._received(_SIZE.size))
                kind, lane, number, name, sizes = pickle.loads(self._received(size))
                self._dispatch(_Message(kind, lane, number, name, [self._received(one) for one in sizes]))
        except (OSError, EOFError):
            return
        except Exception:
            log.exception(
                "The other side of task.isolation=process sent data that is not a message; the connection is closed"
            )

    def _received(self, size: int) -> bytearray:
        data = bytearray(size)
        view, at = memoryview(data), 0
        while at < size:
            count = self._connection.recv_into(view[at:])
            if not count:
                raise EOFError
            at += count
        return data

    def _dispatch(self, message: _Message) -> None:
        with self._lock:
            lane = self._lanes.get(message.lane)
            if lane is None and message.kind in (_RESULT, _ERROR):
                # The caller no longer waits for it.
                return
            name = message.lane if self._lane_threads else _SHARED
            new = False
            if lane is None and (lane := self._lanes.get(name)) is None:
                lane, new = queue.SimpleQueue(), True
                self._lanes[name] = lane
            lane.put(message)
        if new:
            start_within(thread_of(name), lambda: self._serve(lane))
