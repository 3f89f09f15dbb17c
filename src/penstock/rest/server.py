"""The REST server of a worker: its listeners, the thread that serves them, and TLS.

Listeners are bound before anything is served, so that a taken port fails the start of the worker. ``ssl.*`` settings
are read once, at the start.

Thread: the command's main thread makes, starts and stops the server, which serves on the thread ``rest``.
Source: org.apache.kafka.connect.runtime.rest.RestServer and util.SSLUtils; the idle timeout of Jetty's connectors.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock.errors import ConfigException, ConnectException
from penstock.keystores import (
    enabled_versions,
    key_material,
    load_key,
    set_ciphers,
    set_versions,
    trust,
    trusted_certificates,
)
from penstock.rest.app import AppOptions, build_admin_app, build_app, parse_header_rules
from penstock.rest.extensions import Extensions, HerderState
from penstock.rest.services import Services
from penstock.settings.worker import WorkerSettings
from penstock.telemetry.logs import SeldomLog
from penstock.threads import FILES_USED_UP


def listeners_of(settings: WorkerSettings) -> list[Listener]:
    """The addresses of the API, checked with the other settings of addresses.

    Raises:
        ConfigException: one of them cannot be used.
    """
    scheme = settings.advertised_protocol
    if scheme is not None and scheme.strip().lower() not in ("http", "https"):
        raise ConfigException("rest.advertised.listener", scheme, "Must be http or https")
    _admin_listeners(settings)
    return [Listener.parse(text) for text in settings.listeners]


def _admin_listeners(settings: WorkerSettings) -> list[Listener]:
    return [Listener.parse(text, "admin.listeners") for text in settings.admin_listeners or () if text.strip()]


def advertised(settings: WorkerSettings, listeners: Sequence[Listener], ports: Sequence[int]) -> tuple[str, str]:
    """The advertised protocol and ``host:port`` of a worker whose listeners have these ports."""
    schemes = [listener.scheme for listener in listeners]
    wanted = (settings.advertised_protocol or "").strip().lower() or ("http" if "http" in schemes else "https")
    if wanted not in schemes:
        raise ConfigException("rest.advertised.listener", wanted, "No listener has this protocol")
    chosen = schemes.index(wanted)
    host = settings.advertised_host or listeners[chosen].host
    if host in ("", "0.0.0.0", "::"):
        try:
            host = socket.gethostbyname(socket.gethostname())
        except OSError:
            host = "127.0.0.1"
    return wanted, f"{host}:{settings.advertised_port or ports[chosen]}"


class WorkerRest:
    """The sockets of a worker's REST server, then the server on them.

    Attributes:
        advertised: ``host:port``, the id of the worker.

    Raises:
        ConnectException: an address cannot be used.
        ConfigException: a certificate cannot be used, or no listener is the advertised one.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._opened = ExitStack()
        main, admin = listeners_of(settings), _admin_listeners(settings)
        self._tls = _context(main, settings.rest_tls_settings())
        self._admin_tls = _context(admin, settings.rest_tls_settings("admin.listeners.https."))
        sockets = open_listeners([*main, *admin])
        for sock in sockets:
            self._opened.callback(sock.close)
        self._main = list(zip(main, sockets, strict=False))
        self._admin = list(zip(admin, sockets[len(main) :], strict=True))
        try:
            ports = [int(sock.getsockname()[1]) for _, sock in self._main]
            scheme, self.advertised = advertised(settings, main, ports)
        except ConfigException:
            self._opened.close()
            raise
        self.advertised_url = f"{scheme}://{self.advertised}/"

    def start(self, services: Services) -> None:
        """Begins to serve."""
        settings = self._settings
        extensions = Extensions(settings.rest_extension_classes, settings.raw, HerderState(services.herder))
        self._opened.callback(extensions.close)
        options = AppOptions(
            settings.admin_listeners is None,
            parse_header_rules(settings.response_headers),
            settings.allow_origin,
            settings.allow_methods,
            extensions.filters,
            extensions.entries,
        )
        parts = _parts(build_app(services, options), self._main, self._tls)
        if self._admin:
            parts += _parts(build_admin_app(services, extensions.admin_filters), self._admin, self._admin_tls)
        server = RestServer(parts)
        server.start()
        self._opened.callback(server.stop)
        addresses = ", ".join(shown(listener, sock) for listener, sock in [*self._main, *self._admin])
        log.info("REST server listening on %s, advertised as %s", addresses, self.advertised)

    def stop(self) -> None:
        """Ends open requests, extensions and sockets. Safe to call twice."""
        self._opened.close()


def _context(listeners: Sequence[Listener], settings: Mapping[str, str]) -> ssl.SSLContext | None:
    return server_context(settings) if any(one.scheme == "https" for one in listeners) else None


def _parts(app: ASGIApp, bound: Sequence[tuple[Listener, socket.socket]], tls: ssl.SSLContext | None) -> list[Served]:
    by_scheme = {"http": None, "https": tls}
    sockets = {scheme: [sock for listener, sock in bound if listener.scheme == scheme] for scheme in by_scheme}
    return [Served(app, sockets[scheme], by_scheme[scheme]) for scheme in by_scheme if sockets[scheme]]


_BACKLOG = 128
#: The system's errors when it has no room for another connection.
NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
#: The event loop tries again a second after such an error.
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
    """A listening socket that reports no waiting connections for a while after the system had no room for one.

    The event loop accepts up to two thousand connections in one go, keeps trying when there is no room, and starts over
    after every refusal.
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
    """Binds all listeners."""
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
        # Connections inherit it. Without it the second part of an answer waits until the client acknowledges the first,
        # which clients delay by 40 ms.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return ListeningSocket(fileno=bound.detach())
    except OSError as error:
        raise ConnectException(
            f"The REST server cannot listen on {text}: {error.strerror or error}. "
            "Stop what uses the port or choose another in listeners"
        ) from error


#: A body may arrive in this many pieces, and in one more for each ``BYTES_A_PIECE`` bytes: each piece takes some time
#: of the thread, however small it is.
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
    """One connection of a client.

    The web server itself limits only the time between two requests.
    """

    #: The time in which a whole request must arrive; longer than the limit of its body: a late body gets an answer.
    request_timeout_s = 45.0
    #: The time in which a client must receive an answer, once the network's buffers are full.
    answer_timeout_s = 45.0
    _request_late: asyncio.TimerHandle | None = None
    _answer_late: asyncio.TimerHandle | None = None

    def __init__(self, config: uvicorn.Config, *args: Any, **more: Any) -> None:
        super().__init__(config, *args, **more)
        most = config.h11_max_incomplete_event_size
        self.conn = _FewPieces(h11.SERVER, *(() if most is None else (most,)))

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Starts the time limit of the first request."""
        super().connection_made(transport)
        # `pause_writing` is called as soon as the client stops receiving data. With a limit of 0 a connection with TLS
        # counts as full while it is empty.
        transport.set_write_buffer_limits(high=1)
        self._watch_request()

    def data_received(self, data: bytes) -> None:
        """Handles received bytes, and checks if the request is complete."""
        super().data_received(data)
        self._watch_request()

    def pause_writing(self) -> None:
        """Starts the time limit of the answer: the client does not receive the sent data."""
        super().pause_writing()
        if self._answer_late is None:
            self._answer_late = self.loop.call_later(self.answer_timeout_s, self._drop)

    def resume_writing(self) -> None:
        """Ends the time limit: the client has received the sent data."""
        super().resume_writing()
        _cancel(self._answer_late)
        self._answer_late = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends both time limits: the connection is closed."""
        _cancel(self._request_late)
        self._request_late = None
        _cancel(self._answer_late)
        self._answer_late = None
        super().connection_lost(exc)

    def _unsupported_upgrade_warning(self) -> None:
        """Logs nothing: a request to upgrade gets a plain answer, and there is no package to install."""

    def _watch_request(self) -> None:
        """Limits the time from the first byte of a request, or from the start of the connection, to its last byte."""
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
#: The time that open requests may take when the worker ends.
PATIENCE_S = 3.0


@dataclass(frozen=True)
class Served:
    """An application and the sockets on which it is served.

    Attributes:
        sockets: Bound sockets; closed by ``RestServer.stop``.
        tls: The encryption of connections; None for none.
    """

    app: ASGIApp
    sockets: Sequence[socket.socket]
    tls: ssl.SSLContext | None = None


class RestServer:
    """Serves applications on bound sockets.

    Args:
        patience_s: The time that open requests may take after a stop; the remaining ones are answered with an error.

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
    # Set after loading, because the library accepts only file names.
    config.ssl = part.tls
    return uvicorn.Server(config)


_CLIENT_AUTH: Final = {"required": ssl.CERT_REQUIRED, "requested": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}


def server_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    """Creates the TLS context of https listeners.

    Args:
        settings: ``ssl.*``, without the prefix of a group of listeners.
    """
    context = _new_context(ssl.PROTOCOL_TLS_SERVER, settings)
    _load_keys(context, settings)
    auth = settings.get("ssl.client.auth", "none").strip().lower()
    if auth not in _CLIENT_AUTH:
        raise ConfigException("ssl.client.auth", auth, "String must be one of: required, requested, none")
    trusted = trusted_certificates(settings)
    if trusted:
        trust(context, trusted)
    elif auth != "none":
        raise ConfigException(
            "ssl.client.auth", auth, "Certificates of clients need ssl.truststore.location or .certificates"
        )
    context.verify_mode = _CLIENT_AUTH[auth]
    return context


def client_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    """Creates the TLS context for requests to other workers at https addresses.

    Args:
        settings: ``ssl.*``, without the prefix of a group of listeners.
    """
    context = _new_context(ssl.PROTOCOL_TLS_CLIENT, settings)
    if trusted := trusted_certificates(settings):
        trust(context, trusted)
    else:
        context.load_default_certs()
    if key_material(settings):
        # Where listeners ask clients for a certificate, workers show the one that they serve with.
        _load_keys(context, settings)
    algorithm = settings.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    context.check_hostname = algorithm == "https"
    return context


def _new_context(protocol: int, settings: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    set_versions(context, enabled_versions(settings.get("ssl.enabled.protocols", "")))
    suites = settings.get("ssl.cipher.suites", "").split(",")
    set_ciphers(context, [name.strip() for name in suites if name.strip()])
    return context


def _load_keys(context: ssl.SSLContext, settings: Mapping[str, str]) -> None:
    materials = key_material(settings)
    if not materials:
        raise ConfigException(
            "An https listener needs a certificate: set ssl.keystore.location to a PKCS12, JKS or PEM file with the "
            "private key and the certificate chain, or ssl.keystore.key and ssl.keystore.certificate.chain to their "
            "text (with the prefix listeners.https. or without)"
        )
    # Of each kind of key (RSA, EC) the last one loaded is used; it should be the first one of the file.
    for material in reversed(materials):
        load_key(context, material, settings.get("ssl.keystore.location") or "")
