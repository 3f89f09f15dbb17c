"""A connection to one broker that never blocks: requests go out in order, answers come back in that order.

Main types: `Link`, `Expected` (who waits for an answer) and `LinkLostException`.

The owner selects on `Link.socket`, which may change until there is a connection, and calls `ready` when something can
be read or written. Requests are lists of buffers, which are written as they are, without being copied together.

Thread: the one of its owner.

Source: the Kafka protocol guide, "Network": size-delimited messages, answers in the order of requests.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from penstock.errors import KafkaRetriableException
from penstock.kafka.wire import Address, MalformedResponse, correlation_of

#: The most buffers that one call of the system takes; all systems allow that many.
_BUFFERS_AT_ONCE: Final = 64
_READ_BYTES: Final = 1 << 16
#: No answer to a producer is anywhere near that large: what says so is no Kafka broker.
_LARGEST_ANSWER: Final = 100 << 20
_SIZE: Final = struct.Struct(">i")


class LinkLostException(KafkaRetriableException):
    """A connection could not be made, or was lost, or its broker does not answer in time."""


@dataclass(slots=True)
class Expected:
    """An answer that is to come.

    Attributes:
        correlation: Number of the request.
        deadline: When the broker counts as gone (monotonic seconds).
        answered: Is given the answer without its size; raises MalformedResponse where it is none, before anything else.
        lost: Is told that there will be none.
    """

    correlation: int
    deadline: float
    answered: Callable[[memoryview], None]
    lost: Callable[[LinkLostException], None]


class Link:
    """One connection.

    Args:
        address: of the broker.
        now: monotonic seconds.
        connect_within: when connecting to one of its addresses counts as failed, in seconds from then.

    Attributes:
        address: Of the broker.
        usable: Set by the owner once it knows that the broker can be used.

    Raises:
        LinkLostException: the name cannot be resolved, or the connection is refused at once.
    """

    def __init__(self, address: Address, now: float, connect_within: float) -> None:
        self.address = address
        self.usable = False
        self._made = now
        self._connect_within = connect_within
        self._connect_by = now + connect_within
        self._connected = False
        self._out: deque[memoryview] = deque()
        self._in = bytearray()
        self._expected: deque[Expected] = deque()
        self.socket = self._connect()

    @property
    def under_way(self) -> int:
        """How many requests have no answer yet."""
        return len(self._expected)

    @property
    def events(self) -> int:
        """What to select for."""
        if not self._connected:
            return selectors.EVENT_WRITE
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out else 0)

    def deadline(self) -> float:
        """When something must have happened; infinity when nothing is awaited."""
        if not self._connected:
            return self._connect_by
        return self._expected[0].deadline if self._expected else float("inf")

    def request(self, buffers: Sequence[bytes | memoryview], expected: Expected) -> None:
        """Send a request, as far as it goes at once; the rest goes out when `ready` is called.

        Raises:
            LinkLostException: the connection is gone; nobody is told by `Expected.lost` yet.
        """
        self._expected.append(expected)
        self._out.extend(memoryview(buffer) for buffer in buffers if len(buffer))
        if self._connected:
            self._write()

    def ready(self, now: float) -> None:
        """Write and read what is possible, hand answers over.

        Raises:
            LinkLostException: the connection is gone, or too late.
            MalformedResponse: whoever is at the other end does not speak Kafka's protocol.
        """
        if not self._connected and not self._finish_connecting(now):
            return
        self._write()
        self._read()
        # What is here by now has come in time, however long nobody looked.
        if now > self.deadline():
            raise LinkLostException(f"The broker at {self.address} did not answer in time")

    def close(self, reason: LinkLostException) -> None:
        """End the connection; whoever waits for an answer is told. Closing again does nothing."""
        self.socket.close()
        while self._expected:
            self._expected.popleft().lost(reason)

    # ---------------------------------------------------------------- inside
    def _connect(self) -> socket.socket:
        try:
            found = socket.getaddrinfo(self.address.host, self.address.port, type=socket.SOCK_STREAM)
        except (OSError, ValueError) as error:
            # ValueError: what is no name at all.
            raise LinkLostException(f"The name of the broker {self.address} cannot be resolved: {error}") from error
        self._places = deque(found)
        return self._try_next()

    def _try_next(self) -> socket.socket:
        """A name may have addresses that the broker does not serve: each is tried."""
        while True:
            family, kind, protocol, _, place = self._places.popleft()
            made: socket.socket | None = None
            try:
                made = socket.socket(family, kind, protocol)
                made.setblocking(False)
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                fault = made.connect_ex(place)
                if fault in (0, errno.EINPROGRESS):
                    return made
                raise OSError(fault, os.strerror(fault))
            except OSError as error:
                if made is not None:
                    made.close()
                if not self._places:
                    raise LinkLostException(f"The broker at {self.address} cannot be reached: {error}") from error

    def _finish_connecting(self, now: float) -> bool:
        fault = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if not fault and self._has_peer():
            self._connected = True
            for expected in self._expected:
                expected.deadline += now - self._made
            return True
        if not fault and now <= self._connect_by:
            return False
        if not self._places:
            why = os.strerror(fault or errno.ETIMEDOUT)
            raise LinkLostException(f"The broker at {self.address} cannot be reached: {why}")
        self.socket.close()
        self.socket = self._try_next()
        self._connect_by = now + self._connect_within
        return False

    def _has_peer(self) -> bool:
        try:
            self.socket.getpeername()
        except OSError:
            return False
        return True

    def _write(self) -> None:
        try:
            while self._out:
                sent = self.socket.sendmsg(list(islice(self._out, _BUFFERS_AT_ONCE)))
                while sent:
                    head = self._out[0]
                    if sent < len(head):
                        self._out[0] = head[sent:]
                        break
                    sent -= len(head)
                    self._out.popleft()
        except BlockingIOError:
            return
        except OSError as error:
            raise self._gone(error) from error

    def _read(self) -> None:
        while True:
            try:
                found = self.socket.recv(_READ_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                raise self._gone(error) from error
            if not found:
                raise LinkLostException(f"The broker at {self.address} has closed the connection")
            self._in += found
            self._hand_over()
            if len(found) < _READ_BYTES:
                return

    def _hand_over(self) -> None:
        while len(self._in) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._in)
            if not _SIZE.size <= size <= _LARGEST_ANSWER:
                raise MalformedResponse(f"What answers at {self.address} is no Kafka broker: an answer of {size} bytes")
            end = _SIZE.size + size
            if len(self._in) < end:
                return
            payload = memoryview(bytes(self._in[_SIZE.size : end]))
            del self._in[:end]
            expected = self._expected[0] if self._expected else None
            if expected is None or correlation_of(payload) != expected.correlation:
                raise MalformedResponse(f"The broker at {self.address} answers what it was not asked")
            # Who cannot read the answer is still to be told that there will be none.
            expected.answered(payload)
            self._expected.popleft()

    def _gone(self, error: OSError) -> LinkLostException:
        return LinkLostException(f"The connection to the broker at {self.address} was lost: {error}")
