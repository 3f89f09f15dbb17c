"""A connection to one broker that never blocks: requests go out in order, and responses come back in the same order.

Main types: `Link` and `Expected` (an expected response).

The owner selects on `Link.socket`, which may change until there is a connection, and calls `ready` when something can
be read or written. Requests are lists of buffers, which are written without being copied together.

Thread: its owner's.

Source: the Kafka protocol guide, "Network": size-delimited messages, responses in the order of requests.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.kafka.network.transport import LinkLostException, Transport, TransportSettings
from penstock.kafka.protocol.fields import MalformedResponse
from penstock.kafka.protocol.messages import BrokerEndpoint, correlation_of

#: Responses to a producer are far smaller: a peer that announces more is not a Kafka broker.
_LARGEST_ANSWER: Final = 100 << 20
_SIZE: Final = struct.Struct(">i")
#: The beginning of a TLS message: an alert, because no handshake has begun.
_TLS_ALERT: Final = b"\x15\x03"
_NOTHING: Final = memoryview(b"")


@dataclass(slots=True)
class Expected:
    """An expected response.

    Attributes:
        correlation: Number of the request.
        deadline: When the connection counts as lost (monotonic seconds).
        answered: Receives the response without its size; raises MalformedResponse if it is invalid, before it does
            anything else. Its exceptions end the connection.
        lost: Called if no response will come.
    """

    correlation: int
    deadline: float
    answered: Callable[[memoryview], None]
    lost: Callable[[LinkLostException], None]


class Link:
    """One connection.

    Args:
        address: the address of the broker.
        now: monotonic seconds.
        settings: the settings of the connection.

    Attributes:
        address: The address of the broker.
        usable: Set by the owner once it knows that the broker can be used.
        used_at: The time of the last request or answer (monotonic seconds).

    Raises:
        LinkLostException: the name cannot be resolved, or the connection is refused at once.
    """

    def __init__(self, address: BrokerEndpoint, now: float, settings: TransportSettings) -> None:
        self.address = address
        self.usable = False
        self.used_at = now
        self._made = now
        self._transport = Transport(address, now, settings)
        self._out: deque[memoryview] = deque()
        self._in = bytearray()
        self._expected: deque[Expected] = deque()
        #: Requests without an answer, with the count of all bytes up to their ends.
        self._unanswered: deque[tuple[int, Expected]] = deque()
        self._asked_bytes = self._sent_bytes = 0
        self._heard = False

    @property
    def socket(self) -> socket.socket:
        """The socket to select on."""
        return self._transport.socket

    @property
    def under_way(self) -> int:
        """The number of requests that wait for their answer or, if they get none, to be sent."""
        return len(self._expected) + len(self._unanswered)

    @property
    def events(self) -> int:
        """The events to select for."""
        return self._transport.events(bool(self._out) or bool(self._unanswered))

    def deadline(self) -> float:
        """The time by which the connection must be open, or the next answer arrive; infinity if nothing is expected."""
        if not self._transport.is_open:
            return self._transport.deadline
        waiting = [self._expected[0].deadline] if self._expected else []
        waiting += [self._unanswered[0][1].deadline] if self._unanswered else []
        return min(waiting, default=float("inf"))

    def request(self, buffers: Sequence[bytes | memoryview], expected: Expected, *, answered: bool = True) -> None:
        """Sends as much of a request as possible at once; `ready` sends the rest.

        Args:
            buffers: the request, with its size.
            expected: the expected response.
            answered: True if the broker responds. If not, `Expected.answered` is called without data after all is sent.
        """
        self._out.extend(memoryview(buffer) for buffer in buffers if len(buffer))
        self._asked_bytes += sum(map(len, buffers))
        if answered:
            self._expected.append(expected)
        else:
            self._unanswered.append((self._asked_bytes, expected))
        if self._transport.is_open:
            # An error here recurs when the owner calls `ready`, as it will: a lost connection is readable.
            with contextlib.suppress(LinkLostException):
                self._write()

    def ready(self, now: float) -> None:
        """Writes and reads without blocking, and passes on responses.

        Raises:
            LinkLostException: the connection is gone, or too late.
            MalformedResponse: the peer does not speak Kafka's protocol.
            AuthenticationException: broker and client do not accept each other.
        """
        if not self._transport.is_open:
            if not self._transport.advance(now):
                return
            for expected in (*self._expected, *(one for _, one in self._unanswered)):
                expected.deadline += now - self._made
        self._write()
        self._tell_sent(now)
        self._read(now)
        # Responses that have arrived are in time, however late they are processed.
        if now > self.deadline():
            raise LinkLostException(f"The broker at {self.address} did not answer in time")

    def close(self, reason: LinkLostException) -> None:
        """Ends the connection and notifies all waiting requests. Closing again does nothing."""
        self._transport.close()
        while self._expected:
            self._expected.popleft().lost(reason)
        while self._unanswered:
            self._unanswered.popleft()[1].lost(reason)

    # ---------------------------------------------------------------- inside
    def _write(self) -> None:
        self._sent_bytes += self._transport.send(self._out)

    def _tell_sent(self, now: float) -> None:
        while self._unanswered and self._unanswered[0][0] <= self._sent_bytes:
            self.used_at = now
            self._unanswered.popleft()[1].answered(_NOTHING)

    def _read(self, now: float) -> None:
        try:
            while (found := self._transport.receive()) is not None:
                self.used_at = now
                self._in += found
                self._hand_over()
        except LinkLostException as error:
            if self._heard or not self._expected:
                raise
            raise LinkLostException(
                f"{error} before it has answered anything; if it always does, it wants TLS there (security.protocol)"
            ) from error

    def _hand_over(self) -> None:
        while len(self._in) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._in)
            if not _SIZE.size <= size <= _LARGEST_ANSWER:
                raise MalformedResponse(self._no_broker(size))
            end = _SIZE.size + size
            if len(self._in) < end:
                return
            payload = memoryview(bytes(self._in[_SIZE.size : end]))
            del self._in[:end]
            expected = self._expected[0] if self._expected else None
            if expected is None or correlation_of(payload) != expected.correlation:
                raise MalformedResponse(f"The broker at {self.address} answers what it was not asked")
            # Even if its callback cannot read the response, it must learn that none will come.
            expected.answered(payload)
            self._expected.popleft()
            self._heard = True

    def _no_broker(self, size: int) -> str:
        if self._in.startswith(_TLS_ALERT) and not self._heard:
            return (
                f"The broker at {self.address} speaks TLS: set security.protocol=SSL (with a login SASL_SSL), or give "
                "its port without TLS"
            )
        return f"What answers at {self.address} is no Kafka broker: an answer of {size} bytes"
