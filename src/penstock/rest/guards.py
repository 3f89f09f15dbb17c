"""Refuses requests before any route sees them: bodies that take too much together, and calls of foreign web pages.

Main types: ``BodyBudget``, ``ForeignOrigins``. Runs on the REST thread.
"""

from __future__ import annotations

from typing import Any, Final

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.rest.errors import error_response

#: The most bytes that the bodies of all requests in progress have together. Parsed JSON takes some ten times as much.
MOST_TOGETHER: Final = 32 * 1024 * 1024
#: Bodies up to this size, as nearly all are, have a budget of their own, so that large ones do not keep them waiting.
SMALL: Final = 64 * 1024
MOST_SMALL: Final = 16 * 1024 * 1024

_CHANGES_NOTHING: Final = ("GET", "HEAD", "OPTIONS")
#: The content types that a page may send to any server without a preflight request. Source: the Fetch standard,
#: CORS-safelisted headers.
_SIMPLE: Final = ("", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data")
_DEFAULT_PORTS: Final = (":80", ":443")


class BodyBudget:
    """Bounds the memory of request bodies: what a request has sent counts from its arrival to the answer.

    Args:
        app: Answers; shared by all listeners.
        most: Bytes of all large bodies together.
        most_small: Bytes of all small bodies together.
    """

    def __init__(self, app: ASGIApp, most: int = MOST_TOGETHER, most_small: int = MOST_SMALL) -> None:
        self._app = app
        self._most = {"small": most_small, "large": most}
        self.held = {"small": 0, "large": 0}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        kind, size = "small", 0

        def count(more: int) -> None:
            nonlocal kind, size
            self.held[kind] += more
            size += more
            if kind == "small" and size > SMALL:
                self.held["small"] -= size
                kind = "large"
                self.held["large"] += size

        async def counted() -> Message:
            message = await receive()
            count(len(message.get("body", b"")))
            if self.held[kind] > self._most[kind]:
                raise HTTPException(
                    503,
                    f"The bodies of all requests in progress have more than {self._most[kind]} bytes together; try "
                    "again a little later",
                )
            return message

        try:
            await self._app(scope, counted, send)
        finally:
            self.held[kind] -= size


class ForeignOrigins:
    """Refuses changes that a page of another site has its visitor's browser ask for.

    A browser sends some requests, such as that for a restart, without a preflight request to the server.

    Args:
        app: Answers.
        allowed: Matches origins that may call, as ``access.control.allow.origin`` says; None for none.
    """

    def __init__(self, app: ASGIApp, allowed: Any = None) -> None:
        self._app = app
        self._allowed = allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] == "http" and scope["method"] not in _CHANGES_NOTHING:
            asked = Headers(scope=scope)
            origin = asked.get("origin")
            kind = asked.get("content-type", "").partition(";")[0].strip().lower()
            if origin is not None and kind in _SIMPLE and not self._may_call(origin, asked.get("host", "")):
                message = (
                    f"A page of {origin[:100]} may not change anything here: access.control.allow.origin does not name "
                    "it. A program that is no browser sends no header Origin, or content of type application/json"
                )
                await error_response(403, message)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _may_call(self, origin: str, host: str) -> bool:
        if self._allowed is not None and self._allowed.fullmatch(origin):
            return True
        # Without the scheme: a proxy in front may speak https for this worker.
        return bool(host) and _without_default_port(origin.partition("://")[2]) == _without_default_port(host)


def _without_default_port(place: str) -> str:
    place = place.lower()
    return next((place.removesuffix(port) for port in _DEFAULT_PORTS if place.endswith(port)), place)
