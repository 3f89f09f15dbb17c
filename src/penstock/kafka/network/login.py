"""Logs in over one connection: before it is used, and again before the session ends.

Main type: `Login`, one for each connection that needs one.

The broker limits the lifetime of a session. A new login then uses the open connection, after the requests in flight; no
other request is sent until it is complete.

Thread: the one that owns the connection.

Source: SaslClientAuthenticator of Kafka's clients; KIP-368.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from penstock.errors import SaslAuthenticationException
from penstock.kafka.network.credentials import Credentials
from penstock.kafka.network.sasl import BearerLogin, Exchange
from penstock.kafka.network.transport import Link, LinkLostException
from penstock.kafka.protocol.messages import (
    sasl_authenticate_request,
    sasl_authenticate_response,
    sasl_handshake_request,
    sasl_handshake_response,
)

#: A new login begins within this fraction of a session's lifetime.
_AGAIN: Final = (0.85, 0.95)


class Ask(Protocol):
    """Sends a request over a connection and passes on its answer."""

    def __call__(
        self, link: Link, make: Callable[[int], Sequence[bytes | memoryview]], answered: Callable[[memoryview], None]
    ) -> None:
        """Sends the request that ``make`` returns for a correlation id, and passes the response to ``answered``."""


class Login:
    """The logins over one connection.

    Args:
        link: the connection.
        credentials: the credentials.
        client_id: the client's name in the broker's log.
        ask: sends a request over the connection.
        clock: monotonic seconds.

    Attributes:
        begin_at: When the next login begins (monotonic seconds): at once for the first, later before the session ends.
    """

    def __init__(
        self, link: Link, credentials: Credentials, client_id: str, ask: Ask, clock: Callable[[], float]
    ) -> None:
        self._link = link
        self._credentials = credentials
        self._client_id = client_id
        self._ask = ask
        self._clock = clock
        self.begin_at = float("-inf")

    def begin(self) -> None:
        """Starts the login if the credentials are ready; otherwise call it again.

        Raises:
            SaslAuthenticationException: there are no credentials.
        """
        mechanism = self._credentials.mechanism(self._link.address.host)
        if mechanism is None:
            return
        self.begin_at = float("inf")
        self._link.usable = False
        exchange = Exchange(mechanism, self._link.address)

        def agreed(payload: memoryview) -> None:
            self._say(exchange, exchange.agreed(*sasl_handshake_response(payload)))

        self._ask(
            self._link,
            lambda number: [sasl_handshake_request(number, self._client_id, mechanism.name)],
            agreed,
        )

    def _say(self, exchange: Exchange, said: bytes) -> None:
        def answered(payload: memoryview) -> None:
            answer = sasl_authenticate_response(payload)
            try:
                more = exchange.answered(answer.error_code, answer.error_message, answer.said)
            except SaslAuthenticationException as error:
                if isinstance(exchange.mechanism, BearerLogin) and exchange.mechanism.is_expired:
                    # The next attempt fetches another token.
                    raise LinkLostException(f"The token had expired: {error}") from error
                raise
            if more is not None:
                self._say(exchange, more)
                return
            self._link.usable = True
            if answer.lifetime_ms > 0:
                self.begin_at = self._clock() + answer.lifetime_ms / 1000 * random.uniform(*_AGAIN)

        self._ask(self._link, lambda number: [sasl_authenticate_request(number, self._client_id, said)], answered)
