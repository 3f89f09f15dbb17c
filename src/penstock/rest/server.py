"""The thread that serves the REST API.

Main types: ``RestServer``, ``Served`` (one application on some sockets). Sockets are bound before
(``penstock.rest.listeners``); the thread ``rest``, owned by ``RestServer``, serves them all.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from penstock.pipeline.spark.scarcity import FILES_USED_UP
from penstock.rest.connections import BoundedConnection
from penstock.rest.listeners import NO_ROOM
from penstock.telemetry.seldom_log import SeldomLog

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
