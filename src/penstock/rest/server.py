"""The listeners of the REST API, and the thread that serves it.

Main types: ``RestServer``, ``Served`` (one application on some sockets); ``Listener``, ``ListeningSocket``: the setting
``listeners`` and the sockets made of it. ``open_listeners`` binds before anything is served, so that a taken port ends
the start of the worker; the thread ``rest``, owned by ``RestServer``, serves them all. ``BoundedConnection``: a client
that sends or takes nothing keeps a connection for a limited time only. The web server itself bounds only the time
between two requests.

Source: the idle timeout of Jetty's connectors.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock.errors import ConfigException, ConnectException
from penstock.pipeline.spark.scarcity import FILES_USED_UP
from penstock.telemetry.seldom_log import SeldomLog

_BACKLOG = 128
#: What the system says when it has no room for another connection.
NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
#: The event loop looks again a second after it was told so.
_FULL_S: Final = 0.9


@dataclass(frozen=True)
class Listener:
    """An address to listen on.

    Attributes:
        host: The host; empty for all addresses.
        port: The port; 0 for any free one.
        scheme: ``http`` or ``https``.
    """

    host: str
    port: int
    scheme: str = "http"

    @classmethod
    def parse(cls, text: str, setting: str = "listeners") -> Listener:
        """Reads a URI of the setting ``listeners``.

        >>> Listener.parse("http://:8083")
        Listener(host='', port=8083, scheme='http')
        >>> Listener.parse("HTTPS://[::1]:0")
        Listener(host='::1', port=0, scheme='https')

        Raises:
            ConfigException: not such a URI.
        """
        try:
            parts = urlsplit(text.strip())
            port = parts.port
        except ValueError as error:
            raise ConfigException(setting, text, f"{error}; write http://HOST:PORT") from error
        scheme = parts.scheme.lower()
        if scheme not in ("http", "https"):
            raise ConfigException(setting, text, "Only http:// and https:// are possible; write http://HOST:PORT")
        if port is None:
            raise ConfigException(setting, text, "The port is missing; write http://HOST:PORT")
        return cls(parts.hostname or "", port, scheme)


class ListeningSocket(socket.socket):
    """A listening socket that, after a refusal for lack of room, says for a while that no connection waits.

    The event loop asks for two thousand connections in one go, goes on asking when there is no room, and takes every
    refusal for a reason to begin again.
    """

    _full_until = 0.0

    def accept(self) -> tuple[socket.socket, Any]:
        """See ``socket.socket``."""
        if time.monotonic() < self._full_until:
            raise BlockingIOError(errno.EAGAIN, "There is no room for connections")
        try:
            return super().accept()
        except OSError as error:
            if error.errno in NO_ROOM:
                self._full_until = time.monotonic() + _FULL_S
            raise


def open_listeners(listeners: Sequence[Listener]) -> list[socket.socket]:
    """Binds all listeners.

    Raises:
        ConnectException: an address cannot be used; none is left open.
    """
    opened: list[socket.socket] = []
    try:
        for listener in listeners:
            opened.append(_bind(listener))
    except Exception:
        for sock in opened:
            sock.close()
        raise
    return opened


def shown(listener: Listener, sock: socket.socket) -> str:
    """The address of an open listener, for people."""
    host, port = sock.getsockname()[:2]
    return f"{listener.scheme}://[{host}]:{port}" if ":" in host else f"{listener.scheme}://{host}:{port}"


def _bind(listener: Listener) -> socket.socket:
    text = f"{listener.scheme}://{listener.host}:{listener.port}"
    try:
        if not listener.host and socket.has_dualstack_ipv6():
            address: tuple[str, int] = ("", listener.port)
            bound = socket.create_server(
                address, family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True, reuse_port=False
            )
        else:
            family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
            bound = socket.create_server((listener.host, listener.port), family=family, backlog=_BACKLOG)
        # Connections inherit it. Without it the second part of an answer waits for the client's word that it has the
        # first, and clients take their time for that: 40 ms.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return ListeningSocket(fileno=bound.detach())
    except OSError as error:
        raise ConnectException(
            f"The REST server cannot listen on {text}: {error.strerror or error}. "
            "Stop what uses the port or choose another in listeners"
        ) from error


#: A request has to be there as a whole in this time; more than its body may take, whose late coming has an answer.
REQUEST_TIMEOUT_S: Final = 45.0
#: An answer has to be taken in this time, once the network's buffers are full.
ANSWER_TIMEOUT_S: Final = 45.0


#: A body may come in so many pieces, and in one more for so many of its bytes: each takes the thread some time, however
#: small it is.
MOST_PIECES: Final = 2_000
BYTES_A_PIECE: Final = 64


class _FewPieces(h11.Connection):
    """Refuses a request whose body comes in very many very small pieces."""

    _left = MOST_PIECES * BYTES_A_PIECE

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        event = super().next_event()
        if isinstance(event, h11.Data):
            self._left += len(event.data) - BYTES_A_PIECE
            if self._left < 0:
                raise h11.RemoteProtocolError("The body comes in too many pieces", error_status_hint=400)
        elif isinstance(event, h11.Request):
            self._left = MOST_PIECES * BYTES_A_PIECE
        return event


class BoundedConnection(H11Protocol):
    """One connection of a client."""

    request_timeout_s = REQUEST_TIMEOUT_S
    answer_timeout_s = ANSWER_TIMEOUT_S
    _request_late: asyncio.TimerHandle | None = None
    _answer_late: asyncio.TimerHandle | None = None

    def __init__(self, config: uvicorn.Config, *args: Any, **more: Any) -> None:
        super().__init__(config, *args, **more)
        most = config.h11_max_incomplete_event_size
        self.conn = _FewPieces(h11.SERVER, *(() if most is None else (most,)))

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


log = logging.getLogger(__name__)
_seldom = SeldomLog(log)

STOP_TIMEOUT_S = 10.0
#: How long open requests may take when the worker ends.
PATIENCE_S = 3.0


@dataclass(frozen=True)
class Served:
    """An application and where it is served.

    Attributes:
        app: The application.
        sockets: Bound sockets; closed by ``RestServer.stop``.
        tls: How connections are encrypted; None for not at all.
    """

    app: ASGIApp
    sockets: Sequence[socket.socket]
    tls: ssl.SSLContext | None = None


class RestServer:
    """Serves applications on sockets that are bound already.

    Args:
        parts: What is served where.
        patience_s: How long open requests may take once it stops; what is left is answered with an error.

    Thread: made, started and stopped by the command's main thread; serves on the thread ``rest``.
    """

    def __init__(self, parts: Sequence[Served], patience_s: float = PATIENCE_S) -> None:
        self._parts = list(parts)
        self._servers = [_server(part, patience_s) for part in self._parts]
        self._thread = threading.Thread(target=self._serve, name="rest", daemon=True)

    @property
    def ports(self) -> list[int]:
        """The ports listened on."""
        return [int(sock.getsockname()[1]) for part in self._parts for sock in part.sockets]

    def start(self) -> None:
        """Begins to serve."""
        self._thread.start()

    def stop(self) -> None:
        """Ends open requests and the thread, and closes the sockets."""
        for server in self._servers:
            server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(STOP_TIMEOUT_S)
        for part in self._parts:
            for sock in part.sockets:
                sock.close()

    def _serve(self) -> None:
        try:
            asyncio.run(self._serve_all())
        except BaseException:
            log.exception("The REST server ended by an error")

    async def _serve_all(self) -> None:
        asyncio.get_running_loop().set_exception_handler(_on_loop_error)
        pairs = zip(self._servers, self._parts, strict=True)
        await asyncio.gather(*(server.serve(sockets=list(part.sockets)) for server, part in pairs))


def _on_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        _seldom.warning("room", "The REST server can take no connection: %s. %s", error.strerror, FILES_USED_UP)
    else:
        loop.default_exception_handler(context)


def _server(part: Served, patience_s: float) -> uvicorn.Server:
    config = uvicorn.Config(
        part.app,
        loop="asyncio",
        http=BoundedConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=patience_s,  # type: ignore[arg-type]  # only ever waited for
    )
    config.load()
    # Set after loading, because the library itself only takes names of files.
    config.ssl = part.tls
    return uvicorn.Server(config)
