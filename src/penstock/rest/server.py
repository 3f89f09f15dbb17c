"""The thread that serves the REST API.

Main types: ``RestServer``, ``Listener``. ``open_listeners`` binds first, so that a taken port ends the start of the
worker; the thread ``rest``, owned by ``RestServer``, serves.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import uvicorn
from starlette.types import ASGIApp

from penstock.errors import ConfigException, ConnectException

log = logging.getLogger(__name__)

STOP_TIMEOUT_S = 10.0
_BACKLOG = 128


@dataclass(frozen=True)
class Listener:
    """An address to listen on.

    Attributes:
        host: The host; empty for all addresses.
        port: The port; 0 for any free one.
    """

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Listener:
        """Reads a URI of the setting ``listeners``.

        >>> Listener.parse("http://:8083")
        Listener(host='', port=8083)
        >>> Listener.parse("HTTP://[::1]:0")
        Listener(host='::1', port=0)

        Raises:
            ConfigException: not such a URI.
        """
        try:
            parts = urlsplit(text.strip())
            port = parts.port
        except ValueError as error:
            raise ConfigException("listeners", text, f"{error}; write http://HOST:PORT") from error
        if parts.scheme.lower() != "http":
            raise ConfigException("listeners", text, "Only http:// listeners are supported; write http://HOST:PORT")
        if port is None:
            raise ConfigException("listeners", text, "The port is missing; write http://HOST:PORT")
        return cls(parts.hostname or "", port)


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


def _bind(listener: Listener) -> socket.socket:
    shown = f"http://{listener.host}:{listener.port}"
    try:
        if not listener.host and socket.has_dualstack_ipv6():
            address: tuple[str, int] = ("", listener.port)
            return socket.create_server(
                address, family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True, reuse_port=False
            )
        family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
        return socket.create_server((listener.host, listener.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ConnectException(
            f"The REST server cannot listen on {shown}: {error.strerror or error}. "
            "Stop what uses the port or choose another in listeners"
        ) from error


class RestServer:
    """Serves one application on sockets that are bound already.

    Args:
        app: The application.
        sockets: Bound sockets; closed by ``stop``.

    Thread: made, started and stopped by the command's main thread; serves on the thread ``rest``.
    """

    def __init__(self, app: ASGIApp, sockets: Sequence[socket.socket]) -> None:
        self._sockets = list(sockets)
        config = uvicorn.Config(
            app,
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=3,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="rest", daemon=True)

    @property
    def ports(self) -> list[int]:
        """The ports listened on."""
        return [int(sock.getsockname()[1]) for sock in self._sockets]

    def start(self) -> None:
        """Begins to serve."""
        self._thread.start()

    def stop(self) -> None:
        """Ends open requests and the thread, and closes the sockets."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(STOP_TIMEOUT_S)
        for sock in self._sockets:
            sock.close()

    def _serve(self) -> None:
        try:
            self._server.run(sockets=self._sockets)
        except BaseException:
            log.exception("The REST server ended by an error")
