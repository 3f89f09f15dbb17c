"""Connections that end: a client that sends or takes nothing keeps one for a limited time only.

Main type: ``BoundedConnection``. On the REST thread. The web server itself bounds only the time between two requests.

Source: the idle timeout of Jetty's connectors.
"""

from __future__ import annotations

import asyncio
from typing import Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

#: A request has to be there as a whole in this time; more than its body may take, whose late coming has an answer.
REQUEST_TIMEOUT_S: Final = 45.0
#: An answer has to be taken in this time, once the network's buffers are full.
ANSWER_TIMEOUT_S: Final = 45.0


class BoundedConnection(H11Protocol):
    """One connection of a client."""

    request_timeout_s = REQUEST_TIMEOUT_S
    answer_timeout_s = ANSWER_TIMEOUT_S
    _request_late: asyncio.TimerHandle | None = None
    _answer_late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has come."""
        super().connection_made(transport)
        # Then `pause_writing` comes as soon as the client does not take what is sent. With a limit of 0 a connection
        # with TLS counts as full while it is empty.
        transport.set_write_buffer_limits(high=1)
        self._watch_request()

    def data_received(self, data: bytes) -> None:
        """Some bytes of a request."""
        super().data_received(data)
        self._watch_request()

    def pause_writing(self) -> None:
        """The client does not take what is sent."""
        super().pause_writing()
        if self._answer_late is None:
            self._answer_late = self.loop.call_later(self.answer_timeout_s, self._drop)

    def resume_writing(self) -> None:
        """The client has taken all."""
        super().resume_writing()
        _cancel(self._answer_late)
        self._answer_late = None

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        _cancel(self._request_late)
        self._request_late = None
        _cancel(self._answer_late)
        self._answer_late = None
        super().connection_lost(exc)

    def _unsupported_upgrade_warning(self) -> None:
        """Says nothing: a request to talk otherwise is answered as it is, and nobody needs to install anything."""

    def _watch_request(self) -> None:
        """The time runs from the first byte of a request to its last, and for the first one from the connection on."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            _cancel(self._request_late)
            self._request_late = None
        elif self._request_late is None and not self.transport.is_closing():
            self._request_late = self.loop.call_later(self.request_timeout_s, self._drop)

    def _drop(self) -> None:
        self.transport.abort()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
