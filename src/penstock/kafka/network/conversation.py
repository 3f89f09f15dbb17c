"""Synchronous requests to brokers, one after the other, for the few that a worker makes occasionally.

Main type: ``Conversation``, over the connections of a producer, with its login.

Thread: the one that creates it, which blocks and also calls ``close``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from penstock.errors import KafkaRetriableException
from penstock.kafka.network.connections import ProducerConnections
from penstock.kafka.network.transport import Link
from penstock.kafka.protocol.messages import Api, BrokerEndpoint
from penstock.kafka.settings.producer import ColumnSettings
from penstock.telemetry.logs import SeldomLog

T = TypeVar("T")

_PAUSE_S: Final = 0.05


class Conversation:
    """Synchronous requests to the brokers of one cluster.

    Args:
        settings: The addresses of the brokers, and the login.
        name: For messages.
        needs: The requests that a broker must support, with their versions.
        timeout_s: The timeout of all requests together.
        seldom: The log for warnings about connections.
        clock: Monotonic seconds.

    Raises:
        ConfigException: A key, a certificate or a package cannot be used.
    """

    def __init__(
        self,
        settings: ColumnSettings,
        name: str,
        needs: Mapping[Api, int],
        timeout_s: float,
        seldom: SeldomLog,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client_id = settings.client_id
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
        self, to: BrokerEndpoint | None, make: Callable[[int, str], bytes], read: Callable[[memoryview], T], what: str
    ) -> T:
        """Sends a request to a broker and waits for the answer; repeats it if the connection is lost.

        Args:
            to: The broker; None for any.
            make: Makes the request from its number and the client's id.
            read: Reads the answer.
            what: The request, for messages.

        Raises:
            KafkaRetriableException: There is no answer in time.
            KafkaException: The broker does not support such requests, or refuses the login.
        """
        found: list[T] = []
        while not found:
            link = self._link(to, what)
            lost: list[object] = []
            self._connections.ask(
                link,
                lambda number: [make(number, self._client_id)],
                lambda payload: found.append(read(payload)),
                lost.append,
            )
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
