"""Passes requests on to the worker of the group that can serve them.

Main function: ``forward``. What this worker cannot serve raises ``NotHereException`` with the address of the one that
can. A request is passed on at most twice: the first worker sends it to the leader or to where a
task runs, with ``forward=true``; that one may pass it on once more, with ``forward=false``.

Thread: the REST server's; the request is made on another.
Source: org.apache.kafka.connect.runtime.rest.HerderRequestHandler.completeOrForwardRequest; rest.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from penstock.errors import ConflictException
from penstock.herder.membership import NotHereException
from penstock.rest.paths import raw_path
from penstock.rest.services import services

_FORWARD: Final = "forward"
_CONFLICT: Final = "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"
#: What of an answer is the connection's, or is written anew.
_NOT_PASSED_ON: Final = ("connection", "content-length", "date", "server", "transfer-encoding", "keep-alive")


async def forward(request: Request, elsewhere: NotHereException) -> Response:
    """The answer of the worker that can serve a request.

    Raises:
        ConflictException: it was passed on often enough, or nobody knows that worker now.
    """
    s = services(request)
    passed_on = request.query_params.get(_FORWARD)
    if passed_on is not None and passed_on.strip().lower() != "true":
        raise ConflictException(_CONFLICT)
    if elsewhere.url is None or s.workers is None:
        raise ConflictException(str(elsewhere))
    workers, url = s.workers, elsewhere.url
    query = [(name, value) for name, value in request.query_params.multi_items() if name != _FORWARD]
    path = f"{raw_path(request.scope)}?{urlencode([*query, (_FORWARD, 'true' if passed_on is None else 'false')])}"
    body = _body(request, elsewhere)
    headers = {}
    if (login := request.headers.get("authorization")) is not None:
        headers["Authorization"] = login
    method = request.method
    answer = await s.on_thread("forward", lambda: workers.ask(method, url, path, body, headers))
    passed = {name: value for name, value in answer.headers.items() if name not in _NOT_PASSED_ON}
    if (location := passed.get("location")) is not None:
        # The client knows this worker; others it may not reach.
        passed["location"] = f"{str(request.base_url).rstrip('/')}/connectors/{location.rpartition('/')[2]}"
    return Response(answer.body, answer.status, passed)


def _body(request: Request, elsewhere: NotHereException) -> bytes:
    """The body as it came; with the configuration that was meant, where it says less."""
    body: bytes = getattr(request.state, "body", b"")
    if elsewhere.config is None:
        return body
    config = dict(elsewhere.config)
    whole = json.loads(body)
    if isinstance(whole, Mapping) and isinstance(whole.get("config"), Mapping) and request.method == "POST":
        return _json({**whole, "name": whole.get("name", config.get("name")), "config": config})
    return _json(config)


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
