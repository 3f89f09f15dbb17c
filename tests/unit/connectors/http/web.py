"""A web server in the test process, whose answers a test writes, and the contexts of tasks."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Request:
    """What the server was asked."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Reply:
    """What it answers."""

    body: Any = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Web:
    """A server. ``answer`` is called for each request, on threads of the server."""

    url: str
    answer: Callable[[Request], Reply]
    requests: list[Request] = field(default_factory=list)

    def paths(self) -> list[str]:
        return [one.path for one in self.requests]


@contextmanager
def serving(answer: Callable[[Request], Reply]) -> Iterator[Web]:
    """A server on a port that the system chose."""

    class Handler(BaseHTTPRequestHandler):
        def _do(self) -> None:
            size = int(self.headers.get("content-length", 0))
            request = Request(
                self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, self.rfile.read(size)
            )
            web.requests.append(request)
            reply = web.answer(request)
            body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            for name, value in {"content-length": str(len(body)), **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Nothing on the terminal."""

    for verb in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        setattr(Handler, f"do_{verb}", Handler._do)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    web = Web(f"http://127.0.0.1:{server.server_port}", answer)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
