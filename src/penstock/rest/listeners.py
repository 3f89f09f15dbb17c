"""Where the REST API listens: the setting ``listeners`` and the sockets made of it.

Main types: ``Listener``, ``ListeningSocket``. ``open_listeners`` binds, so that a taken port ends the start of the
worker.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from penstock.errors import ConfigException, ConnectException

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
