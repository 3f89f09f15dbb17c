"""From a request to its answer: Kafka Connect's rules for paths and methods, status codes, and the bodies of errors.

Paths may end with a slash, and names may have encoded slashes; a wrong method gets 405 with all methods.

Source: org.apache.kafka.connect.runtime.rest.errors.ConnectExceptionMapper.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import CancelledError
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.errors import (
    AlreadyExistsException,
    BadRequestException,
    ConfigException,
    ConflictException,
    ForbiddenException,
    NotFoundException,
    NotReadyException,
    OffsetStoreException,
)
from penstock.herder.control_plane import NotHereException
from penstock.rest.services import RequestTimeout, forward, raw_path
from penstock.threads import NoThreadException

log = logging.getLogger(__name__)

#: The status codes of the errors of requests; every other error is the worker's: 500.
STATUS_OF: tuple[tuple[type[Exception], int], ...] = (
    (BadRequestException, 400),
    (ConfigException, 400),
    (NotFoundException, 404),
    (AlreadyExistsException, 409),
    (ConflictException, 409),
    (ForbiddenException, 403),
    (NotReadyException, 503),
    (OffsetStoreException, 503),
    (NoThreadException, 503),
)

#: The answer to requests that still wait when the worker ends.
SHUTTING_DOWN: Final = "Worker is shutting down"


def status_of(error: Exception) -> int:
    """The status code for an error.

    >>> status_of(NotFoundException("Connector a not found")), status_of(KeyError("a"))
    (404, 500)
    """
    return next((status for kind, status in STATUS_OF if isinstance(error, kind)), 500)


def json_response(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Response(json_bytes(body), status, headers, media_type="application/json")


def json_bytes(body: object) -> bytes:
    """JSON of any value that a plugin's code may have put into an answer.

    Integers of any size are written out. Halves of surrogate pairs become ``?``, numbers that are not finite null, and
    values of other types their text.

    >>> json_bytes({"n": 2**70, "half": "\\ud800", "not": float("nan")})
    b'{"n":1180591620717411303424,"half":"?","not":null}'
    """
    try:
        return orjson.dumps(body)
    except TypeError:
        # orjson rejects large integers, halves of surrogate pairs and other types.
        text = json.dumps(_plain(body), ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "replace")


def _plain(value: object) -> object:
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if value.bit_length() < _BITS else str(hex(value))
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return str(value)


#: Python writes integers of up to some thousand digits only; larger ones are written in hexadecimal.
_BITS: Final = 14_000


def without_paths(text: str, own: Mapping[str, str]) -> str:
    """Replaces the worker's own files and directories in a message by the settings that name them.

    >>> without_paths("The offsets file /var/lib/off is corrupt", {"/var/lib/off": "offset.storage.file.filename"})
    'The offsets file [offset.storage.file.filename] is corrupt'
    """
    for path in sorted(own, key=len, reverse=True):
        text = text.replace(path, f"[{own[path]}]")
    return text


def own_paths(settings: Mapping[str, str]) -> dict[str, str]:
    """The absolute paths among a worker's settings, with their settings' names: ``without_paths`` hides them.

    >>> own_paths({"plugin.path": "/opt/a, /opt/b", "group.id": "g", "listeners": "http://:8083"})
    {'/opt/a': 'plugin.path', '/opt/b': 'plugin.path'}
    """
    return {
        path: name
        for name, value in settings.items()
        for path in (part.strip().rstrip("/") for part in value.split(","))
        if path.startswith("/") and len(path) > 1
    }


def error_body(status: int, message: str | None) -> bytes:
    """Kafka Connect's error body.

    >>> error_body(404, "Connector a not found")
    b'{"error_code":404,"message":"Connector a not found"}'
    """
    return json_bytes({"error_code": status, "message": message})


def error_response(status: int, message: str | None) -> Response:
    """An answer with Kafka Connect's error body."""
    return Response(error_body(status, message), status, media_type="application/json")


def on_error(request: Request, error: Exception, own: Mapping[str, str]) -> Response:
    """Answers a failed request.

    Args:
        own: The paths that ``without_paths`` hides.
    """
    if isinstance(error, RequestTimeout):
        return error_response(500, str(error))
    if isinstance(error, CancelledError):
        return error_response(500, SHUTTING_DOWN)
    if isinstance(error, ClientDisconnect):
        # The client has gone and does not receive this answer.
        return error_response(400, "The client went away before its request was complete")
    status = status_of(error)
    if status == 500:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return error_response(500, without_paths(str(error), own) or type(error).__name__)
    return error_response(status, without_paths(str(error), own))


async def on_http_error(request: Request, error: Exception) -> Response:
    """Answers requests that the framework refuses: unknown paths and methods."""
    assert isinstance(error, HTTPException)
    if request.method == "OPTIONS" and error.status_code == 405:
        allowed = ",".join(sorted({*(error.headers or {}).get("Allow", "").replace(" ", "").split(","), "OPTIONS"}))
        return Response(allowed, 200, {"Allow": allowed}, media_type="text/plain")
    phrase = HTTPStatus(error.status_code).phrase
    # Starlette sets the phrase if the error has no text of its own.
    own = error.detail if error.detail and error.detail != phrase else None
    if own is not None:
        return error_response(error.status_code, own)
    return Response(
        error_body(error.status_code, f"HTTP {error.status_code} {phrase}"), error.status_code, error.headers
    )


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
