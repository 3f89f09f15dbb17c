"""Connections of a group's member to brokers, and its event loop, on kafka-python.

Main types: ``Access`` (encryption and login), ``GroupConnections``, ``GroupLoop``. Logins are the same as for every
client of the worker (``penstock.kafka.network.sasl``), and a failed connection reports its cause. ``GroupCalls`` runs
long calls on other threads than that of the heartbeats: calls of a member's owner, and host name lookups, one after the
other. Only this module and ``coordinator`` import that library.

Thread: the member's own; ``GroupLoop.post`` any; ``GroupCalls.close`` the owner's.

Source: NetworkClient, ClusterConnectionStates and SaslClientAuthenticator of Kafka's clients.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from kafka import errors
from kafka.errors import KafkaError, KafkaTimeoutError
from kafka.future import Future
from kafka.net.compat import KafkaNetClient
from kafka.net.inet import KafkaNetSocket
from kafka.net.manager import KafkaConnectionManager
from kafka.net.sasl import register_sasl_mechanism
from kafka.net.sasl.abc import SaslMechanism
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport
from kafka.net.wakeup_notifier import WakeupNotifier

from penstock.errors import SaslAuthenticationException
from penstock.kafka.group.events import LOGIN_REFUSED, TLS_FAILED
from penstock.kafka.group.settings import GroupSettings, NetworkSettings
from penstock.kafka.network.credentials import Credentials, credentials_of
from penstock.kafka.network.sasl import Mechanism
from penstock.kafka.settings.security import client_context

Ended = Callable[[object, BaseException | None], None]


class GroupCalls:
    """Runs calls one after the other."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Callable[[], object], Ended]] = deque()
        self._thread: threading.Thread | None = None

    def submit(self, call: Callable[[], object], ended: Ended) -> None:
        """Runs a call after all earlier calls have ended.

        Args:
            ended: Receives the call's result or exception, on the thread of the call.
        """
        with self._lock:
            self._waiting.append((call, ended))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def close(self, timeout_s: float) -> bool:
        """Drops calls that have not begun, and waits for a running one; False if that does not end in time."""
        with self._lock:
            self._waiting.clear()
            thread = self._thread
        if thread is not None:
            thread.join(timeout_s)
        return thread is None or not thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                call, ended = self._waiting.popleft()
            try:
                result = call()
            except BaseException as error:
                ended(None, error)
            else:
                ended(result, None)


_LARGEST_ANSWER_BYTES: Final = 100 << 20
_LOGIN_PAUSE_S: Final = 0.02
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
#: A broker's error for a login that it rejects.
LOGIN_ERRORS: Final = (
    errors.SaslAuthenticationFailedError,
    errors.UnsupportedSaslMechanismError,
    errors.IllegalSaslStateError,
)
#: Runs a call on another thread; a coroutine waits for the result.
Elsewhere = Callable[[GroupCalls, Callable[[], object]], Future]


@dataclass
class Access:
    """Encryption, login and name lookup for brokers; survives restarts of the loop.

    Attributes:
        tls: Encrypts connections; None for plain ones.
        credentials: The credentials; None for no login.
    """

    tls: ssl.SSLContext | None = None
    credentials: Credentials | None = None
    names: GroupCalls = field(default_factory=lambda: GroupCalls("group-names"))

    @classmethod
    def of(cls, settings: GroupSettings) -> Access:
        tls = None if settings.tls is None else client_context(settings.tls)
        credentials = None
        if settings.sasl is not None:
            credentials = credentials_of(settings.sasl, f"the group {settings.group_id}", lambda: None)
        return cls(tls, credentials)

    def close(self, timeout_s: float) -> bool:
        """Waits for its threads; False if one has not ended in time."""
        if self.credentials is not None:
            self.credentials.close()
        return self.names.close(timeout_s)


class GroupConnections(KafkaConnectionManager):  # type: ignore[misc]
    """The library's connections, extended by the cause of failed attempts.

    They look up names on another thread, because a resolver may take seconds, and close failed attempts.

    Args:
        refused: Called with code and text when a broker rejects the connection permanently; returns the seconds for
            which not to try that broker again.
    """

    def __init__(
        self,
        net: Any,
        settings: GroupSettings,
        access: Access,
        refused: Callable[[str, str], float],
        elsewhere: Elsewhere,
    ) -> None:
        self._access = access
        self._tell_refused = refused
        self._elsewhere = elsewhere
        self._let_alone_s: dict[Any, float] = {}
        self._ready: dict[str, Mechanism] = {}
        # The library passes this on to the login; it is the only setting of the library that may be any object.
        super().__init__(net, sasl_oauth_token_provider=self, **_library_settings(settings, access.tls is not None))

    def get_connection(self, node_id: Any, **options: Any) -> Any:
        """See ``KafkaConnectionManager``. A new connection also reports its failure to this object."""
        known = node_id in self._conns
        connection = super().get_connection(node_id, **options)
        if not known:
            connection.init_future.add_errback(partial(self._failed, node_id))
        return connection

    def _failed(self, node_id: Any, error: Exception) -> None:
        # Some errors of an encrypted connection appear on reading, other errors during the connection attempt.
        encryption = next((one for one in (error.__cause__, *error.args) if isinstance(one, ssl.SSLError)), None)
        if isinstance(error, LOGIN_ERRORS):
            self._let_alone_s[node_id] = self._tell_refused(LOGIN_REFUSED, str(error))
        elif encryption is not None:
            self._let_alone_s[node_id] = self._tell_refused(TLS_FAILED, str(encryption))

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        if self._access.credentials is not None:
            await self._ready_to_log_in(node.host, timeout_at)
        connection: Any = None
        try:
            connection = await self._connected(node, timeout_at)
            if self._access.tls is None:
                return _PlainTransport(self._net, connection, host=node.host)
            transport = _EncryptedTransport(self._net, connection, host=node.host, ssl_context=self._access.tls)
            connection = transport._sock
            await self._handshaken(connection, timeout_at)
            return transport
        except BaseException as error:
            self._ready.pop(node.host, None)
            if connection is not None:
                connection.close()
            if not isinstance(error, OSError | ValueError | KafkaTimeoutError):
                raise
            raise errors.KafkaConnectionError(f"no encrypted connection to {node.host}:{node.port}: {error}") from error

    async def _ready_to_log_in(self, host: str, timeout_at: float | None) -> None:
        """Waits for a token or ticket, which may have to be fetched first."""
        while (ready := self._mechanism(host)) is None:
            if timeout_at is not None and time.monotonic() > timeout_at:
                raise errors.KafkaConnectionError(f"nothing has come to log in at {host} with")
            await self._net.sleep(_LOGIN_PAUSE_S)
        self._ready[host] = ready

    def begin_login(self, host: str) -> Mechanism:
        """One login at a broker, with prepared credentials, or new ones for a login over an open connection.

        Raises:
            KafkaError: there are no credentials.
        """
        if (ready := self._ready.pop(host, None) or self._mechanism(host)) is None:
            raise errors.KafkaConnectionError(f"nothing is there yet to log in at {host} with")
        return ready

    def _mechanism(self, host: str) -> Mechanism | None:
        assert self._access.credentials is not None
        try:
            return self._access.credentials.mechanism(host)
        except SaslAuthenticationException as error:
            raise errors.SaslAuthenticationFailedError(str(error)) from error

    async def _connected(self, node: Any, timeout_at: float | None) -> socket.socket:
        last: BaseException | None = None
        addresses = await self._addresses(node.host, node.port)
        for left, (family, kind, protocol, _, address) in zip(range(len(addresses), 0, -1), addresses, strict=True):
            # A dead address must not use up the time of the other addresses.
            now = time.monotonic()
            until = None if timeout_at is None else now + (timeout_at - now) / left
            connection = socket.socket(family, kind, protocol)
            connection.setblocking(False)
            try:
                for option in self.config["socket_options"]:
                    connection.setsockopt(*option)
                await KafkaNetSocket().sock_connect(self._net, connection, address, timeout_at=until)
                return connection
            except (OSError, KafkaError) as error:
                connection.close()
                last = error
            except BaseException:
                connection.close()
                raise
        raise errors.KafkaConnectionError(f"no connection to {node.host}:{node.port}: {last}") from last

    async def _addresses(self, host: str, port: int) -> Sequence[Any]:
        try:
            return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except socket.gaierror:
            pass
        looking_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        try:
            return list(await self._elsewhere(self._access.names, looking_up))
        except OSError as error:
            raise errors.KafkaConnectionError(f"the host {host} is not found: {error}") from error

    async def _handshaken(self, connection: Any, timeout_at: float | None) -> None:
        while True:
            try:
                connection.do_handshake()
                return
            except ssl.SSLWantReadError:
                await self._net.wait_read(connection, timeout_at)
            except ssl.SSLWantWriteError:
                await self._net.wait_write(connection, timeout_at)

    def update_backoff(self, node_id: Any) -> float:
        """See ``KafkaConnectionManager``. A refused login or a failed handshake of TLS waits longer."""
        wait_ms = float(super().update_backoff(node_id))
        if (alone_s := self._let_alone_s.pop(node_id, None)) is None:
            return wait_ms
        failures, _, setup_ms = self._backoff[node_id]
        self._backoff[node_id] = (failures, time.monotonic() + alone_s, setup_ms)
        return alone_s * 1000

    def reset_backoff(self, node_id: Any) -> None:
        """See ``KafkaConnectionManager``. A failed login does not count as a connection."""
        if node_id in self._let_alone_s:
            # The library counts a connection as successful even if the login over it has failed.
            self.update_backoff(node_id)
        else:
            super().reset_backoff(node_id)

    def maybe_raise_auth_failure(self, node_id: Any) -> None:
        """See ``KafkaConnectionManager``. Raises nothing: a password may be corrected, so the broker is tried again."""


class _PlainTransport(KafkaTCPTransport):  # type: ignore[misc]
    """A connection that passes on the last bytes before its end, such as a broker's reason for refusing a login.

    The library drops them if both are read at once. The next read returns the end.
    """

    def _sock_recv(self) -> tuple[bytes, Exception | None]:
        data, error = super()._sock_recv()
        return data, None if data else error


class _EncryptedTransport(_PlainTransport, KafkaSSLTransport):  # type: ignore[misc]
    """The same, encrypted."""


class _Login(SaslMechanism):  # type: ignore[misc]
    """One login through the library's interface, by a mechanism of the worker's clients."""

    def __init__(self, **config: Any) -> None:
        self._mechanism: Mechanism = config["sasl_oauth_token_provider"].begin_login(config["host"])
        self._said: bytes | None = self._mechanism.first()

    def auth_bytes(self) -> bytes:
        return self._said or b""

    def receive(self, auth_bytes: bytes) -> None:
        try:
            self._said = self._mechanism.respond(auth_bytes)
        except SaslAuthenticationException as error:
            raise errors.SaslAuthenticationFailedError(str(error)) from error

    def is_done(self) -> bool:
        return self._said is None

    def is_authenticated(self) -> bool:
        return self._said is None

    def auth_details(self) -> str:
        return f"Logged in with {self._mechanism.name}"


for _name in _MECHANISMS:
    register_sasl_mechanism(_name, _Login, overwrite=True)


def _library_settings(settings: GroupSettings, encrypted: bool) -> Mapping[str, object]:
    network = settings.network
    encryption = "SSL" if encrypted else "PLAINTEXT"
    if settings.sasl is not None:
        encryption = "SASL_SSL" if encrypted else "SASL_PLAINTEXT"
    return {
        "bootstrap_servers": list(network.bootstrap_servers),
        "client_id": settings.client_id,
        "client_dns_lookup": network.client_dns_lookup,
        "client_software_name": "penstock",
        "connections_max_idle_ms": network.connections_max_idle_ms,
        "metadata_max_age_ms": network.metadata_max_age_ms,
        "receive_message_max_bytes": _LARGEST_ANSWER_BYTES,
        "reconnect_backoff_ms": network.reconnect_backoff_ms,
        "reconnect_backoff_max_ms": network.reconnect_backoff_max_ms,
        "request_timeout_ms": network.request_timeout_ms,
        "sasl_mechanism": None if settings.sasl is None else settings.sasl.mechanism,
        "security_protocol": encryption,
        "socket_connection_setup_timeout_ms": network.connection_setup_ms,
        "socket_connection_setup_timeout_max_ms": network.connection_setup_max_ms,
        "socket_options": _socket_options(network, settings.session_timeout_ms),
    }


def _socket_options(network: NetworkSettings, session_timeout_ms: int) -> list[tuple[int, int, int]]:
    """Socket options that end a connection to a dead machine within the session timeout, even during a JoinGroup."""
    probe_s = max(1, session_timeout_ms // 4000)
    options = [
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, probe_s),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, probe_s),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, session_timeout_ms),
    ]
    if network.send_buffer_bytes:
        options.append((socket.SOL_SOCKET, socket.SO_SNDBUF, network.send_buffer_bytes))
    if network.receive_buffer_bytes:
        options.append((socket.SOL_SOCKET, socket.SO_RCVBUF, network.receive_buffer_bytes))
    return options


__all__ = ["GroupLoop", "KafkaError", "KafkaTimeoutError", "error_code"]

_LAST_TURNS: Final = 20
_FRESH_EACH_S: Final = 1.0
_FRESH_AFTER_FAILURE_S: Final = 30.0


def error_code(error: KafkaError) -> str:
    """Kafka's name of an error."""
    if isinstance(error, LOGIN_ERRORS):
        return LOGIN_REFUSED
    return str(getattr(error, "message", None) or type(error).__name__)


class GroupLoop:
    """An event loop with the connections to brokers.

    Args:
        refused: Called with code and text when a broker rejects the connection permanently; returns the seconds for
            which not to try that broker again.
    """

    def __init__(self, settings: GroupSettings, access: Access, refused: Callable[[str, str], float]) -> None:
        self._selector: Any = NetworkSelector(client_id=settings.client_id)
        self._access = access
        self._found = False
        self._has_tokens = settings.sasl is not None and settings.sasl.tokens is not None
        self._fresh_at = 0.0
        self.manager: Any = GroupConnections(self._selector, settings, access, refused, self.elsewhere)
        self.client: Any = KafkaNetClient(net=self._selector, manager=self.manager)

    def turn(self) -> None:
        self._selector.poll()

    def begin(self, coroutine: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs a coroutine concurrently with the others, until it ends or the loop is closed."""
        self._selector.call_soon(coroutine)

    def post(self, call: Callable[[], None]) -> None:
        """Runs a call on the loop; does nothing when the loop has ended. Thread: any."""
        try:
            self._selector.call_soon_threadsafe(partial(_once, call))
        except RuntimeError:
            pass

    def bell(self) -> Any:
        """An event that a coroutine waits for, with or without a time limit; ``notify`` wakes it."""
        return WakeupNotifier(self._selector)

    def elsewhere(self, calls: GroupCalls, call: Callable[[], object]) -> Any:
        """Runs a call on another thread; a coroutine waits for its result or exception."""
        result = Future()

        def ended(value: object, error: BaseException | None) -> None:
            self.post((lambda: result.success(value)) if error is None else (lambda: result.failure(error)))

        calls.submit(call, ended)
        return result

    async def within(self, awaited: Any, timeout_ms: float) -> Any:
        return await self.manager.wait_for(awaited, timeout_ms)

    async def pause(self, seconds: float) -> None:
        await self._selector.sleep(seconds)

    async def found_brokers(self, timeout_ms: float) -> bool:
        """Asks the bootstrap servers once for the brokers; True if they have responded."""
        if not self._found:
            try:
                await self.within(self.manager.bootstrap_async(), timeout_ms)
            except KafkaTimeoutError:
                return False
            self._found = True
        return True

    def keep_login_fresh(self) -> None:
        """Fetches another token before the last one expires: the next login cannot wait for it."""
        now = time.monotonic()
        if not self._has_tokens or self._access.credentials is None or now < self._fresh_at:
            return
        try:
            self._access.credentials.mechanism("")
            self._fresh_at = now + _FRESH_EACH_S
        except SaslAuthenticationException:
            # The next login reports it.
            self._fresh_at = now + _FRESH_AFTER_FAILURE_S

    def find_brokers_anew(self) -> None:
        """Asks the bootstrap servers again, because brokers may have new addresses. An attempt in progress
        continues.
        """
        self.manager.bootstrap_async()

    def close(self, ended: Callable[[], bool]) -> None:
        """Ends all connections.

        Args:
            ended: True when every call that ends by itself has ended; they get a moment.
        """
        for _ in range(_LAST_TURNS):
            if ended():
                break
            self._selector.poll(timeout_ms=1)
        self.client.close()


async def _once(call: Callable[[], None]) -> None:
    call()
