"""A REST server over a herder with doubles, and a client for it.

Main names: ``serving`` (both, for one test), ``serve`` (a server of its own, for tests that stop it), ``SHARED``.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from starlette.types import ASGIApp, Receive, Scope, Send
from testkit.doubles.control_plane import SOURCE, Setup, running

from penstock.herder import Herder
from penstock.plugins import Plugins
from penstock.rest.app import AppOptions, build_app
from penstock.rest.server import Listener, RestServer, Served, open_listeners
from penstock.rest.services import Services
from penstock.stores.config import FileConnectorStore
from penstock.validation.plugin_checks import PluginCatalog

#: Tests speak without TLS; to read which authorities are trusted takes longer than most of them.
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def application(herder: Herder, timeout_s: float = 90.0, options: AppOptions | None = None, **more: Any) -> ASGIApp:
    """The REST API of a herder."""
    services = Services(
        herder,
        "4.3.0",
        "unknown",
        PluginCatalog(Plugins()),
        request_timeout_s=timeout_s,
        **more,
    )
    return build_app(services, options)


def start_server(app: ASGIApp) -> RestServer:
    """A server on a free port of the loopback interface; it does not wait for open requests when it ends."""
    server = RestServer([Served(app, open_listeners([Listener("127.0.0.1", 0)]))], patience_s=0.1)
    server.start()
    return server


def serve(herder: Herder, timeout_s: float = 90.0) -> RestServer:
    """A server for one herder."""
    return start_server(application(herder, timeout_s))


class SharedServer:
    """A server that shows the application of one test after another: to end one takes 0.15 s."""

    def __init__(self) -> None:
        self._app: ASGIApp | None = None
        self._server: RestServer | None = None

    def show(self, app: ASGIApp) -> int:
        """Requests go to this application from now on; the port."""
        self._app = app
        if self._server is None:
            self._server = start_server(self)
        return self._server.ports[0]

    def stop(self) -> None:
        """Ends it, if it was started."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._app is not None
        await self._app(scope, receive, send)


#: Ended by a fixture when all tests have run.
SHARED = SharedServer()


class Api:
    """A client and what is behind the server."""

    def __init__(self, setup: Setup, client: httpx.Client) -> None:
        self.setup = setup
        self.http = client

    def call(self, method: str, path: str, body: object = None, **more: Any) -> tuple[int, Any]:
        """Status and decoded body; None for an empty one."""
        answer = (
            self.http.request(method, path, json=body, **more)
            if body is not None
            else self.http.request(method, path, **more)
        )
        return answer.status_code, answer.json() if answer.content else None

    def create(self, name: str, **config: str) -> tuple[int, Any]:
        """Creates a probe."""
        return self.call("POST", "/connectors", {"name": name, "config": {"connector.class": SOURCE, **config}})

    def error(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        """Status and message of a refusal."""
        status, answer = self.call(method, path, body)
        assert answer["error_code"] == status
        return status, answer["message"]


@contextmanager
def serving(
    connectors: FileConnectorStore | None = None,
    timeout_s: float = 90.0,
    options: AppOptions | None = None,
    **more: Any,
) -> Iterator[Api]:
    """A running worker without Kafka and Spark, and its API."""
    with running(connectors) as setup:
        port = SHARED.show(application(setup.herder, timeout_s, options, metrics=setup.metrics, **more))
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20, verify=_NO_TLS) as client:
            yield Api(setup, client)
