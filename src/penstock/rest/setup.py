"""Puts the REST server of a worker together out of its settings.

Main types: ``RestSettings`` (the part of the worker's settings that is needed), ``WorkerRest``. Made, started and
stopped by the command's main thread.

Source: org.apache.kafka.connect.runtime.rest.RestServer.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from starlette.types import ASGIApp

from penstock.errors import ConfigException
from penstock.rest.app import AppOptions, build_admin_app, build_app
from penstock.rest.extensions import Extensions, HerderState
from penstock.rest.middleware import parse_header_rules
from penstock.rest.server import Listener, RestServer, Served, open_listeners, shown
from penstock.rest.services import Services
from penstock.rest.tls import server_context
from penstock.settings.worker import WorkerSettings

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RestSettings:
    """The settings of a REST server.

    Attributes:
        listeners: Where the API is served.
        admin_listeners: Where log levels are served; None for with the API, empty for nowhere.
        advertised_host: What other programs are told; None for that of the listener.
        advertised_port: The same for the port.
        advertised_scheme: Which listener other programs are told of; None for http when there is one.
        tls: ``ssl.*`` of https listeners.
        admin_tls: ``ssl.*`` of https admin listeners.
        raw: All settings of the worker, for extensions.
    """

    listeners: Sequence[Listener]
    admin_listeners: Sequence[Listener] | None = None
    advertised_host: str | None = None
    advertised_port: int | None = None
    advertised_scheme: str | None = None
    allow_origin: str = ""
    allow_methods: str = ""
    response_headers: str = ""
    extension_classes: Sequence[str] = ()
    tls: Mapping[str, str] = field(default_factory=dict, repr=False)
    admin_tls: Mapping[str, str] = field(default_factory=dict, repr=False)
    raw: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, settings: WorkerSettings) -> RestSettings:
        """The settings of a worker.

        Raises:
            ConfigException: a listener cannot be used.
        """
        scheme = settings.advertised_protocol
        if scheme is not None and scheme.strip().lower() not in ("http", "https"):
            raise ConfigException("rest.advertised.listener", scheme, "Must be http or https")
        listeners = [Listener.parse(text) for text in settings.listeners]
        admin = settings.admin_listeners
        return cls(
            listeners,
            None if admin is None else [Listener.parse(text, "admin.listeners") for text in admin if text.strip()],
            settings.advertised_host,
            settings.advertised_port,
            None if scheme is None else scheme.strip().lower(),
            settings.allow_origin,
            settings.allow_methods,
            settings.response_headers,
            settings.rest_extension_classes,
            settings.rest_tls_settings(),
            settings.rest_tls_settings("admin.listeners.https."),
            settings.raw,
        )

    def advertised(self, ports: Sequence[int]) -> tuple[str, str]:
        """Protocol and ``host:port`` of the worker, as other programs are told it.

        Args:
            ports: Those that the listeners are bound to.
        """
        wanted = self.advertised_scheme
        schemes = [listener.scheme for listener in self.listeners]
        if wanted is None:
            wanted = "http" if "http" in schemes else "https"
        if wanted not in schemes:
            raise ConfigException("rest.advertised.listener", wanted, "No listener has this protocol")
        chosen = schemes.index(wanted)
        host = self.advertised_host or self.listeners[chosen].host
        if host in ("", "0.0.0.0", "::"):
            try:
                host = socket.gethostbyname(socket.gethostname())
            except OSError:
                host = "127.0.0.1"
        return wanted, f"{host}:{self.advertised_port or ports[chosen]}"


class WorkerRest:
    """The sockets of a worker's REST server, then the server on them.

    Args:
        settings: Of the server.

    Attributes:
        advertised: ``host:port``, the id of the worker.
        advertised_url: The address, as other workers use it.

    Raises:
        ConnectException: an address cannot be used.
        ConfigException: a certificate cannot be used, or no listener is the advertised one.
    """

    def __init__(self, settings: RestSettings) -> None:
        self._settings = settings
        self._opened = ExitStack()
        admin = settings.admin_listeners or ()
        everything = [*settings.listeners, *admin]
        tls = server_context(settings.tls) if any(one.scheme == "https" for one in settings.listeners) else None
        admin_tls = server_context(settings.admin_tls) if any(one.scheme == "https" for one in admin) else None
        sockets = open_listeners(everything)
        for sock in sockets:
            self._opened.callback(sock.close)
        self._main = list(zip(settings.listeners, sockets, strict=False))
        self._admin = list(zip(admin, sockets[len(self._main) :], strict=True))
        self._contexts = {"main": tls, "admin": admin_tls}
        try:
            scheme, self.advertised = settings.advertised([int(sock.getsockname()[1]) for _, sock in self._main])
        except ConfigException:
            self._opened.close()
            raise
        self.advertised_url = f"{scheme}://{self.advertised}/"

    def start(self, services: Services) -> None:
        """Begins to serve.

        Raises:
            ConfigException: an extension cannot be used.
        """
        settings = self._settings
        extensions = Extensions(settings.extension_classes, settings.raw, HerderState(services.herder))
        self._opened.callback(extensions.close)
        options = AppOptions(
            settings.admin_listeners is None,
            parse_header_rules(settings.response_headers),
            settings.allow_origin,
            settings.allow_methods,
            extensions.filters,
            extensions.entries,
        )
        parts = self._parts(build_app(services, options), self._main, "main")
        if self._admin:
            parts += self._parts(build_admin_app(services, extensions.admin_filters), self._admin, "admin")
        server = RestServer(parts)
        server.start()
        self._opened.callback(server.stop)
        addresses = ", ".join(shown(listener, sock) for listener, sock in [*self._main, *self._admin])
        log.info("REST server listening on %s, advertised as %s", addresses, self.advertised)

    def stop(self) -> None:
        """Ends open requests, extensions and sockets. Safe to call twice."""
        self._opened.close()

    def _parts(self, app: ASGIApp, bound: Sequence[tuple[Listener, socket.socket]], group: str) -> list[Served]:
        parts = []
        for scheme, tls in (("http", None), ("https", self._contexts[group])):
            sockets = [sock for listener, sock in bound if listener.scheme == scheme]
            if sockets:
                parts.append(Served(app, sockets, tls))
        return parts
