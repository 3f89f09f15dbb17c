"""A REST server over a herder with doubles, and a client for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from penstock.herder import StandaloneHerder
from penstock.herder.plugin_catalog import PluginCatalog
from penstock.plugins import Plugins
from penstock.rest.app import AppOptions, build_app
from penstock.rest.listeners import Listener, open_listeners
from penstock.rest.server import RestServer, Served
from penstock.rest.services import Services
from penstock.stores.connectors import ConnectorStore
from penstock.testing.control_plane import SOURCE, Setup, running


def serve(
    herder: StandaloneHerder, timeout_s: float = 90.0, options: AppOptions | None = None, **more: Any
) -> RestServer:
    """A server on a free port of the loopback interface; it does not wait for open requests when it ends."""
    services = Services(
        herder,
        "4.3.0",
        "unknown",
        PluginCatalog(Plugins()),
        request_timeout_s=timeout_s,
        **more,
    )
    sockets = open_listeners([Listener("127.0.0.1", 0)])
    server = RestServer([Served(build_app(services, options), sockets)], patience_s=0.1)
    server.start()
    return server


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
    connectors: ConnectorStore | None = None,
    timeout_s: float = 90.0,
    options: AppOptions | None = None,
    **more: Any,
) -> Iterator[Api]:
    """A running worker without Kafka and Spark, and its API."""
    with running(connectors) as setup:
        server = serve(setup.herder, timeout_s, options, **more)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{server.ports[0]}", timeout=20) as client:
                yield Api(setup, client)
        finally:
            server.stop()
