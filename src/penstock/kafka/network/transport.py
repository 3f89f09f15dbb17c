"""Bytes to and from one broker, over TCP or TLS, without ever blocking.

The owner selects on ``Link.socket``, which may change until there is a connection, and calls ``ready`` when something
can be read or written. A name may have addresses that the broker does not serve: all are tried. Handshake errors
because of certificates, versions or ciphers are permanent; a connection that just ends is not.

Source: SslTransportLayer and NetworkClient of Kafka's clients; the Kafka protocol guide, "Network".
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice
from typing import Any, Final

from penstock.errors import KafkaRetriableException, SslAuthenticationException
from penstock.kafka.protocol import BrokerEndpoint, MalformedResponse, correlation_of

#: The maximum number of buffers of one system call; all systems allow this many.
_BUFFERS_AT_ONCE: Final = 64
_READ_BYTES: Final = 1 << 16
#: The largest number of bytes that TLS encrypts at once.
_TLS_RECORD: Final = 1 << 14
#: OpenSSL's error if the peer does not speak TLS.
_NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"})
#: A broker's alert for a handshake that it rejects.
_REFUSALS: Final = (
    "HANDSHAKE_FAILURE",
    "BAD_CERTIFICATE",
    "CERTIFICATE",
    "UNKNOWN_CA",
    "ACCESS_DENIED",
    "PROTOCOL_VERSION",
    "INSUFFICIENT_SECURITY",
    "UNRECOGNIZED_NAME",
    "NO_PROTOCOLS_AVAILABLE",
    "NO_CIPHERS_AVAILABLE",
    "UNSUPPORTED_PROTOCOL",
)


class LinkLostException(KafkaRetriableException):
    """A connection could not be made, or was lost, or its broker does not answer in time."""


class NamePendingException(LinkLostException):
    """A connection cannot be made yet, because its broker's name is being looked up."""


Lookup = Callable[..., list[Any]]


@dataclass(frozen=True)
class TransportSettings:
    """The settings of connections.

    Attributes:
        connect_within: The timeout for connecting to one address, and then for the handshake, in seconds each.
        connect_most: It is doubled after each failure, up to this; 0 if it does not grow.
        tls: The encryption; None for none.
        send_buffer, receive_buffer: The sizes of the system's buffers; 0 for its default.
        dead_after: The time after which a connection to a dead machine ends, in seconds; 0 for the system's default.
        lookup: ``socket.getaddrinfo``, or a function with its parameters that does not block.
    """

    connect_within: float
    connect_most: float = 0
    tls: ssl.SSLContext | None = None
    send_buffer: int = 0
    receive_buffer: int = 0
    dead_after: float = 0
    lookup: Lookup = socket.getaddrinfo


class _State(Enum):
    CONNECTING = auto()
    HANDSHAKING = auto()
    OPEN = auto()


class Transport:
    """One connection.

    Attributes:
        socket: The socket to select on; it may change until the transport is open.
        deadline: The time by which it must be open; infinity once it is.
    """

    def __init__(self, address: BrokerEndpoint, now: float, settings: TransportSettings) -> None:
        self._address = address
        self._settings = settings
        self._state = _State.CONNECTING
        self._wanted = selectors.EVENT_WRITE
        self._record: memoryview | None = None
        self._heard = False
        self.deadline = now + settings.connect_within
        self._tls: ssl.SSLSocket | None = None
        self.socket: socket.socket = self._connect()

    @property
    def is_open(self) -> bool:
        """True if bytes can be sent and received."""
        return self._state is _State.OPEN

    def events(self, has_more: bool) -> int:
        """Returns the events to select for; `has_more` is True if there are bytes to send."""
        if not self.is_open:
            return self._wanted
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if has_more or self._record else 0)

    def advance(self, now: float) -> bool:
        """Continues connecting; True if the transport is open now.

        Raises:
            LinkLostException: connecting failed, or took too long.
            SslAuthenticationException: the handshake fails, and will fail again.
        """
        if self._state is _State.CONNECTING and self._connected(now):
            self.deadline = now + self._settings.connect_within
            self._begin_tls()
        if self._state is _State.HANDSHAKING:
            self._shake_hands(now)
        if self.is_open:
            self.deadline = float("inf")
        return self.is_open

    def send(self, out: deque[memoryview]) -> int:
        """Sends bytes without blocking, removes them from `out`, and returns their number."""
        total = 0
        try:
            while out or self._record:
                sent = self._send_encrypted(out) if self._tls is not None else self._send_plain(out)
                total += sent
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError as error:
            raise self._gone(error) from error
        return total

    def receive(self) -> bytes | None:
        """Returns the bytes that have arrived, or None if there are none now. Raises ``SslAuthenticationException`` if
        the broker does not accept the client's certificate.
        """
        try:
            found = self.socket.recv(_READ_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except ssl.SSLError as error:
            # With TLS 1.3 the client is ready before the broker has checked its certificate.
            if not self._heard and _is_refusal(error):
                raise self._refused(error) from error
            raise self._gone(error) from error
        except OSError as error:
            raise self._gone(error) from error
        if not found:
            raise LinkLostException(f"The broker at {self._address} has closed the connection")
        self._heard = True
        return found

    def close(self) -> None:
        """Ends the connection, and notifies the peer if that does not block."""
        if self._tls is not None and self.is_open:
            with contextlib.suppress(OSError, ValueError):
                self._tls.unwrap()
        self.socket.close()

    # ---------------------------------------------------------------- connecting
    def _connect(self) -> socket.socket:
        try:
            found = self._settings.lookup(self._address.host, self._address.port, type=socket.SOCK_STREAM)
        except (OSError, ValueError) as error:
            # ValueError: an invalid name.
            raise LinkLostException(f"The name of the broker {self._address} cannot be resolved: {error}") from error
        self._places = deque(found)
        return self._try_next()

    def _try_next(self) -> socket.socket:
        while True:
            family, kind, protocol, _, place = self._places.popleft()
            made: socket.socket | None = None
            try:
                made = socket.socket(family, kind, protocol)
                made.setblocking(False)
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                if self._settings.send_buffer:
                    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._settings.send_buffer)
                if self._settings.receive_buffer:
                    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._settings.receive_buffer)
                if self._settings.dead_after:
                    for name, value in _dead_machine_options(self._settings.dead_after):
                        made.setsockopt(socket.IPPROTO_TCP, name, value)
                fault = made.connect_ex(place)
                if fault in (0, errno.EINPROGRESS):
                    return made
                raise OSError(fault, os.strerror(fault))
            except OSError as error:
                if made is not None:
                    made.close()
                if not self._places:
                    raise LinkLostException(f"The broker at {self._address} cannot be reached: {error}") from error

    def _connected(self, now: float) -> bool:
        fault = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if not fault and self._has_peer():
            return True
        if not fault and now <= self.deadline:
            return False
        if not self._places:
            why = os.strerror(fault or errno.ETIMEDOUT)
            raise LinkLostException(f"The broker at {self._address} cannot be reached: {why}")
        self.socket.close()
        self.socket = self._try_next()
        self.deadline = now + self._settings.connect_within
        return False

    def _has_peer(self) -> bool:
        try:
            self.socket.getpeername()
        except OSError:
            return False
        return True

    # ---------------------------------------------------------------- TLS
    def _begin_tls(self) -> None:
        if self._settings.tls is None:
            self._state = _State.OPEN
            return
        try:
            # Certificates have names without a trailing dot.
            self._tls = self._settings.tls.wrap_socket(
                self.socket, server_hostname=self._address.host.rstrip("."), do_handshake_on_connect=False
            )
        except OSError as error:
            raise self._gone(error) from error
        except ValueError as error:
            raise SslAuthenticationException(f"{self._address.host!r} is not a valid name for TLS: {error}") from error
        self.socket = self._tls
        self._state = _State.HANDSHAKING

    def _shake_hands(self, now: float) -> None:
        assert self._tls is not None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._wanted = selectors.EVENT_READ
        except ssl.SSLWantWriteError:
            self._wanted = selectors.EVENT_WRITE
        except ssl.SSLCertVerificationError as error:
            raise SslAuthenticationException(
                f"The certificate of the broker at {self._address} is not accepted: {error.verify_message}. "
                "ssl.truststore.* says which certificates are trusted, ssl.endpoint.identification.algorithm whether "
                "they must be for the broker's name"
            ) from error
        except ssl.SSLEOFError as error:
            raise self._ended() from error
        except ssl.SSLError as error:
            if error.reason in _NO_TLS:
                raise SslAuthenticationException(
                    f"The server at {self._address} does not speak TLS: give its port for TLS, or "
                    "security.protocol=PLAINTEXT (with a login SASL_PLAINTEXT)"
                ) from error
            if _is_refusal(error):
                raise self._refused(error) from error
            raise self._gone(error) from error
        except OSError as error:
            raise self._ended() from error
        else:
            self._state = _State.OPEN
            return
        if now > self.deadline:
            raise LinkLostException(f"The TLS handshake with the broker at {self._address} did not end in time")

    def _ended(self) -> LinkLostException:
        return LinkLostException(
            f"The broker at {self._address} has ended the connection within the TLS handshake; if it always does, it "
            "listens there without TLS (security.protocol), or does not want the client's certificate (ssl.keystore.*)"
        )

    def _refused(self, error: ssl.SSLError) -> SslAuthenticationException:
        reason = (error.reason or str(error)).lower().replace("_", " ")
        return SslAuthenticationException(
            f"The broker at {self._address} and the client do not agree on TLS: {reason}. Check ssl.keystore.* (the "
            "client's certificate), ssl.enabled.protocols and ssl.cipher.suites"
        )

    # ---------------------------------------------------------------- bytes
    def _send_plain(self, out: deque[memoryview]) -> int:
        sent = total = self.socket.sendmsg(list(islice(out, _BUFFERS_AT_ONCE)))
        while sent:
            head = out[0]
            if sent < len(head):
                out[0] = head[sent:]
                break
            sent -= len(head)
            out.popleft()
        return total

    def _send_encrypted(self, out: deque[memoryview]) -> int:
        if self._record is None:
            self._record = _next_record(out)
        # OpenSSL requires the same bytes again after it could not send them.
        sent = self.socket.send(self._record)
        self._record = self._record[sent:] if sent < len(self._record) else None
        return sent

    def _gone(self, error: OSError) -> LinkLostException:
        return LinkLostException(f"The connection to the broker at {self._address} was lost: {error}")


def _dead_machine_options(seconds: float) -> list[tuple[int, int]]:
    """The options of TCP that end a connection to a dead machine in time, even while an answer takes long."""
    probe = max(1, int(seconds / 4))
    return [
        (socket.TCP_KEEPIDLE, probe),
        (socket.TCP_KEEPINTVL, probe),
        (socket.TCP_KEEPCNT, 3),
        (socket.TCP_USER_TIMEOUT, int(seconds * 1000)),
    ]


def _is_refusal(error: ssl.SSLError) -> bool:
    return any(word in (error.reason or "") for word in _REFUSALS)


def _next_record(out: deque[memoryview]) -> memoryview:
    """The bytes to encrypt next: a part of one large buffer, or several small ones together."""
    if len(out[0]) >= _TLS_RECORD:
        head = out[0]
        if len(head) > _TLS_RECORD:
            out[0] = head[_TLS_RECORD:]
        else:
            out.popleft()
        return head[:_TLS_RECORD]
    parts: list[memoryview] = []
    room = _TLS_RECORD
    while out and room:
        head = out.popleft()
        if len(head) > room:
            out.appendleft(head[room:])
            head = head[:room]
        parts.append(head)
        room -= len(head)
    return memoryview(b"".join(parts))


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

    Attributes:
        usable: Set by the owner once it knows that the broker can be used.
        versions: The lowest and highest version of each request that the broker takes, by API key.
        used_at: The time of the last request or answer (monotonic seconds).
    """

    def __init__(self, address: BrokerEndpoint, now: float, settings: TransportSettings) -> None:
        self.address = address
        self.usable = False
        self.versions: Mapping[int, tuple[int, int]] = {}
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
        """The number of requests that wait for their answer or, if they get none, for being sent."""
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
            answered: True if the broker responds. If not, `Expected.answered` is called without data after all is sent.
        """
        self._out.extend(memoryview(buffer) for buffer in buffers if len(buffer))
        self._asked_bytes += sum(map(len, buffers))
        if answered:
            self._expected.append(expected)
        else:
            self._unanswered.append((self._asked_bytes, expected))
        if self._transport.is_open:
            # An error here recurs when the owner calls `ready`, because a lost connection becomes readable.
            with contextlib.suppress(LinkLostException):
                self._write()

    def ready(self, now: float) -> None:
        """Writes and reads without blocking, and passes on responses.

        Raises:
            LinkLostException: the connection is gone, or too late.
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
                raise MalformedResponse(f"The broker at {self.address} sent a response without a request")
            # Removed only afterwards: if the callback cannot read the response, `lost` must still be called.
            expected.answered(payload)
            self._expected.popleft()
            self._heard = True

    def _no_broker(self, size: int) -> str:
        if self._in.startswith(_TLS_ALERT) and not self._heard:
            return (
                f"The broker at {self.address} speaks TLS: set security.protocol=SSL (with a login SASL_SSL), or give "
                "its port without TLS"
            )
        return f"The server at {self.address} is not a Kafka broker: it announces an answer of {size} bytes"
