"""Routes with Kafka Connect's manners: trailing slashes, encoded slashes in names, 405 with all methods, 406.

Main names: ``build_routes``, ``RawPaths``. Runs on the REST thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from urllib.parse import unquote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.rest.errors import SHUTTING_DOWN, error_response, on_error

Endpoint = Callable[[Request], Awaitable[Response]]
Entry = tuple[str, str, Endpoint]


class RawPaths:
    """Routes by the path as it was sent, without a slash at its end.

    Decoding comes after routing (in ``build_routes``), so that a connector's name may hold an encoded slash.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            raw = scope.get("raw_path") or scope["path"].encode()
            path = raw.partition(b"?")[0].decode("latin-1").rstrip("/") or "/"
            scope = {**scope, "path": path}
        await self._app(scope, receive, send)


def build_routes(entries: Iterable[Entry]) -> list[Route]:
    """One route for each path, so that a wrong method is answered with all the right ones."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for method, path, endpoint in entries:
        by_path.setdefault(path, {})[method] = endpoint
    return [Route(path, _dispatch(methods), methods=list(methods)) for path, methods in by_path.items()]


def _dispatch(methods: dict[str, Endpoint]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        if not accepts_json(request.headers.get("accept")):
            raise HTTPException(406)
        params = request.path_params
        params.update({key: unquote(value) for key, value in params.items() if isinstance(value, str)})
        try:
            return await methods["GET" if request.method == "HEAD" else request.method](request)
        except HTTPException:
            raise
        except asyncio.CancelledError:
            # The server ends and does not wait any longer; it would answer with plain text.
            return error_response(500, SHUTTING_DOWN)
        except Exception as error:
            return on_error(request, error)

    return endpoint


def accepts_json(accept: str | None) -> bool:
    """Whether a caller takes JSON.

    >>> accepts_json(None), accepts_json("text/html, */*;q=0.1"), accepts_json("text/html")
    (True, True, False)
    """
    if not accept:
        return True
    kinds = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    return bool(kinds & {"application/json", "application/*", "*/*", "*"})
