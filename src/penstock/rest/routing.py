"""Routes by Kafka Connect's rules: trailing slashes, encoded slashes in names, 405 with all methods, 406.

Main names: ``build_routes``, ``RawPaths``, ``not_json``. Runs on the REST thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar
from urllib.parse import unquote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.herder.membership import NotHereException
from penstock.rest.errors import SHUTTING_DOWN, error_response, on_error
from penstock.rest.forwarding import forward, raw_path

Endpoint = Callable[[Request], Awaitable[Response]]
Entry = tuple[str, str, Endpoint]
E = TypeVar("E", bound=Endpoint)

_NOT_JSON: Final = "answers_not_json"


def not_json(endpoint: E) -> E:
    """Marks an endpoint whose answers are not JSON: a client need not accept JSON."""
    setattr(endpoint, _NOT_JSON, True)
    return endpoint


class RawPaths:
    """Routes by the path as sent, without a slash at its end.

    Decoding comes after routing (in ``build_routes``), so that a connector's name may hold an encoded slash.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on with its path as sent."""
        if scope["type"] == "http":
            scope = {**scope, "path": raw_path(scope).rstrip("/") or "/"}
        await self._app(scope, receive, send)


def build_routes(entries: Iterable[Entry]) -> list[Route]:
    """Builds one route for each path, so that the answer to a wrong method lists all allowed methods."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for method, path, endpoint in entries:
        by_path.setdefault(path, {})[method] = endpoint
    return [Route(path, _dispatch(methods), methods=list(methods)) for path, methods in by_path.items()]


def _dispatch(methods: dict[str, Endpoint]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        serve = methods["GET" if request.method == "HEAD" else request.method]
        if not accepts_json(request.headers.get("accept")) and not hasattr(serve, _NOT_JSON):
            raise HTTPException(406)
        params = request.path_params
        params.update({key: unquote(value) for key, value in params.items() if isinstance(value, str)})
        try:
            try:
                return await serve(request)
            except NotHereException as elsewhere:
                return await forward(request, elsewhere)
        except HTTPException:
            raise
        except asyncio.CancelledError:
            # The server ends and does not wait any longer; it would answer with plain text.
            return error_response(500, SHUTTING_DOWN)
        except Exception as error:
            return on_error(request, error, request.app.state.services.own_paths)

    return endpoint


def accepts_json(accept: str | None) -> bool:
    """True if a caller accepts JSON.

    >>> accepts_json(None), accepts_json("text/html, */*;q=0.1"), accepts_json("text/html")
    (True, True, False)
    """
    if not accept:
        return True
    kinds = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    return bool(kinds & {"application/json", "application/*", "*/*", "*"})
