"""The connections of a producer to its brokers: created on demand, reused, and closed.

Thread: the owner's; only ``wake`` and ``trouble`` may be called from any thread.

Source: NetworkClient and ClusterConnectionStates of Kafka's clients; KIP-899 (rebootstrap).
"""

from __future__ import annotations

import logging
import random
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from penstock.errors import AuthenticationException, KafkaException, KafkaRetriableException
from penstock.kafka.network.credentials import Login, credentials_of
from penstock.kafka.network.transport import Expected, Link, LinkLostException, NamePendingException, TransportSettings
from penstock.kafka.protocol import (
    API_VERSIONS,
    BrokerEndpoint,
    BrokerRequest,
    MalformedResponse,
    Message,
    UnsupportedVersionException,
    framed,
    request,
    response,
)
from penstock.kafka.settings.producer import ColumnSettings, backoff
from penstock.kafka.settings.security import client_context
from penstock.telemetry.logs import SeldomLog

logger = logging.getLogger(__name__)

_LONGEST_WAIT_S: Final = 1.0
#: The wait while nothing is in flight. A worker may have a thousand idle producers.
_LONGEST_REST_S: Final = 60.0

Lost = Callable[[LinkLostException], None]


def _nobody(_: LinkLostException) -> None:
    pass


def transport_settings(settings: ColumnSettings) -> TransportSettings:
    """The settings of the connections of a client. Raises ``ConfigException`` if a key, a certificate or a package
    cannot be used.
    """
    tls = None if settings.tls is None else client_context(settings.tls)
    return TransportSettings(
        settings.connect_timeout, tls=tls, send_buffer=settings.send_buffer, receive_buffer=settings.receive_buffer
    )


class ProducerConnections:
    """The connections of one producer.

    Args:
        dropped: Called after a connection was lost.
        seldom: The log for warnings, if the owner keeps one across several instances; None to create one.

    Attributes:
        fatal: The permanent error because of which no broker can be used; None as long as retries may help.
    """

    def __init__(
        self,
        settings: ColumnSettings,
        name: str,
        needs: Iterable[Message],
        clock: Callable[[], float],
        dropped: Callable[[], None],
        seldom: SeldomLog | None = None,
        *,
        owner: str = "",
        refused: Callable[[KafkaException], float] | None = None,
        transport: TransportSettings | None = None,
    ) -> None:
        self.fatal: KafkaException | None = None
        self._settings = settings
        self._owner = owner or f"The producer of {name}"
        self._refused = refused
        self._needs = needs
        self._clock = clock
        self._dropped = dropped
        self._seldom = seldom or SeldomLog(logger)
        self._transport = transport or transport_settings(settings)
        self._credentials = None if settings.sasl is None else credentials_of(settings.sasl, name, self.wake)
        self._bootstrap = settings.bootstrap if not settings.canonical_names else ()
        self._links: dict[BrokerEndpoint, Link] = {}
        self._logins: dict[Link, Login] = {}
        self._failures: dict[BrokerEndpoint, tuple[int, float]] = {}
        self._turn = 0
        self._correlation = 0
        self._selector = selectors.DefaultSelector()
        self._watched: dict[Link, tuple[socket.socket, int]] = {}
        self._waker, self._woken = socket.socketpair()
        self._waking = threading.Lock()
        for end in (self._waker, self._woken):
            end.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)

    def wake(self) -> None:
        """Ends the current or next wait. Thread: any."""
        # The lock excludes `close`: the system may reuse the number of a closed socket at once.
        with self._waking:
            try:
                self._waker.send(b"w")
            except OSError:
                # The buffer is full, so the wait ends in any case; or the socket is closed.
                return

    @property
    def trouble(self) -> str | None:
        """The last error, if any. Thread: any."""
        return self._seldom.last

    def warn(self, key: object, text: str, *args: object) -> None:
        """Logs a warning about the producer, at most once a minute for each key."""
        self._seldom.warning(key, "%s" + text, self._owner, *args)

    # ---------------------------------------------------------------- selection
    def any(
        self, now: float, known: Mapping[int, BrokerEndpoint], besides: BrokerEndpoint | None = None
    ) -> Link | None:
        """A usable connection; creates one to another broker than ``besides`` if there is none."""
        usable = [link for link in self._links.values() if link.usable]
        if usable:
            # Answers come in the order of requests, so an idle connection, or one that is not stuck, answers soonest.
            return min(usable, key=lambda link: link.under_way)
        if self._links.keys() - {besides}:
            return None
        if known and not self._settings.rebootstrap:
            places = list(known.values())
        else:
            places = [*known.values(), *self._bootstrap_servers()]
        for _ in places:
            place = places[self._turn % len(places)]
            self._turn += 1
            if place != besides and self.to(place, now) is not None:
                break
        return None

    def _bootstrap_servers(self) -> Sequence[BrokerEndpoint]:
        if self._bootstrap:
            return self._bootstrap
        found: list[BrokerEndpoint] = []
        for address in self._settings.bootstrap:
            try:
                places = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
                names = [socket.getnameinfo(place[4], socket.NI_NAMEREQD)[0] for place in places]
            except (OSError, ValueError) as error:
                self.warn(address, ": the canonical name of %s cannot be found: %s", address, error)
                continue
            found += [BrokerEndpoint(name, address.port) for name in names]
        self._bootstrap = tuple(dict.fromkeys(found))
        return self._bootstrap

    def usable(self, address: BrokerEndpoint) -> Link | None:
        """The connection to a broker, if there is one that can be used."""
        link = self._links.get(address)
        return link if link is not None and link.usable else None

    def to(self, address: BrokerEndpoint, now: float) -> Link | None:
        """The connection to a broker; starts one if there is none and enough time has passed since it failed."""
        link = self._links.get(address)
        if link is not None:
            return link
        if self.fatal is not None or now < self._failures.get(address, (0, 0.0))[1]:
            return None
        transport, failed = self._transport, self._failures.get(address, (0, 0.0))[0]
        if failed and transport.connect_most:
            within = backoff(transport.connect_within, transport.connect_most, failed)
            transport = replace(transport, connect_within=within)
        try:
            link = Link(address, now, transport)
        except NamePendingException:
            return None
        except LinkLostException as error:
            self._note_failure(address, error)
            return None
        self._links[address] = link
        made = link
        self.ask(link, request(API_VERSIONS), lambda payload: self._versions(made, payload))
        return link

    def ask(
        self,
        link: Link,
        asked: BrokerRequest,
        answered: Callable[[memoryview], None],
        lost: Lost = _nobody,
        *,
        has_answer: bool = True,
        timeout: float | None = None,
    ) -> None:
        """Sends a request over a connection.

        Args:
            lost: called if there will be no answer.
            has_answer: True if the broker answers it.
        """
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        deadline = self._clock() + (self._settings.request_timeout if timeout is None else timeout)
        expected = Expected(self._correlation, deadline, answered, lost)
        link.request(framed(asked, self._correlation, self._settings.client_id), expected, answered=has_answer)

    # ---------------------------------------------------------------- lifecycle of a connection
    def _versions(self, link: Link, payload: memoryview) -> None:
        code, ranges = response(API_VERSIONS, payload)
        link.versions = versions = {api: (lowest, highest) for api, lowest, highest in ranges}
        for api, version, *_ in self._needs:
            lowest, highest = versions.get(api, (0, -1))
            if code or not lowest <= version <= highest:
                raise UnsupportedVersionException(
                    f"The broker at {link.address} does not take {api.name} requests of version {version}; "
                    "brokers since Kafka 2.4 do, and since 2.5 those of transactions"
                )
        if self._credentials is None:
            link.usable = True
        else:
            self._logins[link] = Login(link, self._credentials, self.ask, self._clock)
            self._logins[link].begin()
        self._failures.pop(link.address, None)

    def _note_failure(self, address: BrokerEndpoint, error: KafkaException) -> None:
        failed = self._failures.get(address, (0, 0.0))[0]
        wait = backoff(self._settings.reconnect_backoff, self._settings.reconnect_backoff_max, failed)
        self._failures[address] = (failed + 1, self._clock() + wait * random.uniform(0.8, 1.2))
        self.warn(address, ": %s; the client keeps trying", error)

    def drop(self, link: Link, error: LinkLostException) -> None:
        """Drops a connection; its requests in flight are lost."""
        if self._links.get(link.address) is link:
            del self._links[link.address]
        self._logins.pop(link, None)
        watched = self._watched.pop(link, None)
        if watched is not None:
            self._selector.unregister(watched[0])
        link.close(error)

    def fail(self, link: Link, error: KafkaException) -> None:
        """Drops an unusable connection; calls `dropped`, and `lost` of all requests that wait for its answers."""
        idle = not link.under_way and link.usable
        if isinstance(error, AuthenticationException | UnsupportedVersionException):
            if self._refused is None:
                self.fatal = self.fatal or error
                logger.error("%s: %s", self._owner, error)
            else:
                self._failures[link.address] = (0, self._clock() + self._refused(error))
        elif idle:
            # Brokers close unused connections.
            logger.debug("%s: %s", self._owner, error)
        else:
            self._note_failure(link.address, error)
        self.drop(link, error if isinstance(error, LinkLostException) else LinkLostException(str(error)))
        self._dropped()

    def close(self) -> None:
        """Ends all connections and notifies all waiting requests."""
        for link in list(self._links.values()):
            self.drop(link, LinkLostException("The producer was closed"))
        self._selector.close()
        with self._waking:
            self._waker.close()
        self._woken.close()
        if self._credentials is not None:
            self._credentials.close()

    # ---------------------------------------------------------------- waiting
    def tend(self, now: float) -> None:
        """Performs due logins, and closes unused connections."""
        for link, login in list(self._logins.items()):
            if now >= login.begin_at:
                try:
                    login.begin()
                except AuthenticationException as error:
                    self.fail(link, error)
        if self._settings.idle:
            for link in list(self._links.values()):
                if link.usable and not link.under_way and now - link.used_at > self._settings.idle:
                    self.drop(link, LinkLostException("It was not used"))

    def times(self, tried: float, *, waiting: bool) -> list[float]:
        """The times of the next work that no event announces.

        Args:
            waiting: True if failed connections are needed.
        """
        found = [link.deadline() for link in self._links.values()]
        found += [login.begin_at for login in self._logins.values()]
        if self._settings.idle:
            found += [link.used_at + self._settings.idle for link in self._links.values()]
        if waiting:
            found += [until for _, until in self._failures.values()]
        return [time for time in found if time > tried]

    def wait(self, timeout: float) -> None:
        """Waits for an event on a connection, `wake`, or the end of the time; then handles the events."""
        for link in list(self._links.values()):
            self._watch(link)
        rests = all(link.usable and not link.under_way for link in self._links.values())
        longest = _LONGEST_REST_S if rests else _LONGEST_WAIT_S
        happened = {key.fileobj for key, _ in self._selector.select(max(0.0, min(timeout, longest)))}
        if self._woken in happened:
            self._drain_wakes()
        now = self._clock()
        for link in list(self._links.values()):
            watched = self._watched.get(link)
            if (watched is None or watched[0] not in happened) and now <= link.deadline():
                continue
            try:
                link.ready(now)
            except (
                LinkLostException,
                MalformedResponse,
                AuthenticationException,
                UnsupportedVersionException,
            ) as error:
                self.fail(link, error)

    def _watch(self, link: Link) -> None:
        wanted = (link.socket, link.events)
        present = self._watched.get(link)
        if present == wanted:
            return
        if present is not None and present[0] is link.socket:
            self._selector.modify(link.socket, link.events)
        else:
            if present is not None:
                self._selector.unregister(present[0])
            self._selector.register(link.socket, link.events)
        self._watched[link] = wanted

    def _drain_wakes(self) -> None:
        try:
            while self._woken.recv(4096):
                pass
        except BlockingIOError:
            return


_PAUSE_S: Final = 0.05


class Conversation:
    """Synchronous requests to the brokers of one cluster."""

    def __init__(
        self,
        settings: ColumnSettings,
        name: str,
        needs: Iterable[Message],
        timeout_s: float,
        seldom: SeldomLog,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._deadline = clock() + timeout_s
        self._timeout_s = timeout_s
        self._connections = ProducerConnections(settings, name, needs, clock, lambda: None, seldom)

    def close(self) -> None:
        """Ends all connections."""
        self._connections.close()

    def extend(self, seconds: float) -> None:
        """Gives the following requests this much time, or the remaining time if that is more."""
        self._deadline = max(self._deadline, self._clock() + seconds)

    def ask(
        self,
        to: BrokerEndpoint | None,
        asked: BrokerRequest,
        what: str,
        read: Callable[[memoryview], Any] | None = None,
    ) -> Any:
        """Sends a request to a broker and waits for the answer; repeats it if the connection is lost.

        Args:
            to: The broker; None for any.
            asked: The request.
            what: The request, for messages.
            read: Reads the answer; None for the values of its fields.

        Raises:
            KafkaRetriableException: There is no answer in time.
            KafkaException: The broker does not support such requests, or refuses the login.
        """
        found: list[Any] = []

        def answered(payload: memoryview) -> None:
            found.append(response(asked.message, payload) if read is None else read(payload))

        while not found:
            lost: list[object] = []
            self._connections.ask(self._link(to, what), asked, answered, lost.append)
            while not found and not lost:
                self._wait(what)
        return found[0]

    def _link(self, to: BrokerEndpoint | None, what: str) -> Link:
        while True:
            now = self._clock()
            link = self._connections.any(now, {}) if to is None else self._connections.to(to, now)
            if link is not None and link.usable:
                return link
            self._wait(what)

    def _wait(self, what: str) -> None:
        if self._connections.fatal is not None:
            raise self._connections.fatal
        now = self._clock()
        if now >= self._deadline:
            raise KafkaRetriableException(
                f"{what} took longer than {self._timeout_s:g} s: {self._connections.trouble or 'no broker answers'}"
            )
        self._connections.tend(now)
        self._connections.wait(min(_PAUSE_S, self._deadline - now))
