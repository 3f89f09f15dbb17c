"""The web applications: routes over a herder, with Kafka Connect's error bodies, and their middleware.

Thread: applications run on the REST thread.
Source: Jetty's HeaderFilter and CrossOriginHandler, as Kafka Connect 4.3 sets them up.
"""

from __future__ import annotations

import csv
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any, Final

import re2
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.api.rest import RestFilter
from penstock.rest.errors import Entry, RawPaths, build_routes, error_response, json_response, on_http_error
from penstock.rest.extensions import ExtensionFilters
from penstock.rest.openapi import document
from penstock.rest.routes import ADMIN, API
from penstock.rest.services import Services

#: The limit in bytes of the bodies of all requests in progress. Parsed JSON takes some ten times the memory.
MOST_TOGETHER: Final = 32 * 1024 * 1024
#: Bodies up to this size, as nearly all are, have a separate budget, so that they do not wait for large ones.
SMALL: Final = 64 * 1024
MOST_SMALL: Final = 16 * 1024 * 1024

_CHANGES_NOTHING: Final = ("GET", "HEAD", "OPTIONS")
#: The content types that a page may send to any server without a preflight request. Source: the Fetch standard,
#: CORS-safelisted headers.
_SIMPLE: Final = ("", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data")
_DEFAULT_PORTS: Final = (":80", ":443")


class BodyBudget:
    """Bounds the memory of request bodies: the received bytes of a request count until its answer.

    Args:
        app: The application inside; all listeners share it.
    """

    def __init__(self, app: ASGIApp, most: int = MOST_TOGETHER, most_small: int = MOST_SMALL) -> None:
        self._app = app
        self._most = {"small": most_small, "large": most}
        self.held = {"small": 0, "large": 0}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
    """Refuses changes that a page of another site requests through its visitor's browser.

    A browser sends some requests, such as that for a restart, without a preflight request to the server.

    Args:
        app: The application inside.
        allowed: The pattern of the allowed origins (``access.control.allow.origin``); None for none.
    """

    def __init__(self, app: ASGIApp, allowed: Any = None) -> None:
        self._app = app
        self._allowed = allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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


@dataclass(frozen=True)
class HeaderRule:
    """A rule for one header of each answer.

    Attributes:
        value: Its text; for dates the milliseconds from now.
    """

    action: str
    name: str
    value: str


def parse_header_rules(text: str) -> list[HeaderRule]:
    """Reads ``response.http.headers.config``; the setting's validator has checked its form.

    >>> parse_header_rules('set X-A: b, "add Cache-Control: no-cache, no-store"')[1]
    HeaderRule(action='add', name='Cache-Control', value='no-cache, no-store')
    """
    rules = []
    for rule in next(csv.reader([text], skipinitialspace=True), []):
        action, _, header = rule.strip().partition(" ")
        name, _, value = header.partition(":")
        if action:
            rules.append(HeaderRule(action, name.strip(), value.strip()))
    return rules


class ResponseHeaders:
    """Adds headers to every answer, errors too."""

    def __init__(self, app: ASGIApp, rules: Sequence[HeaderRule], now_s: Callable[[], float] = time.time) -> None:
        self._app = app
        self._rules = tuple(rules)
        self._now_s = now_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for rule in self._rules:
                    self._apply(rule, headers)
            await send(message)

        await self._app(scope, receive, send_with_headers)

    def _apply(self, rule: HeaderRule, headers: MutableHeaders) -> None:
        value = rule.value
        if rule.action.endswith("Date"):
            try:
                value = formatdate(self._now_s() + int(value) / 1000, usegmt=True)
            except (ValueError, OverflowError):
                return
        if rule.action.startswith("set"):
            headers[rule.name] = value
        else:
            headers.append(rule.name, value)


def origin_pattern(origins: str) -> Any:
    """A pattern for the origins of ``access.control.allow.origin``, separated by commas; ``*`` stands for anything."""
    patterns = [re.escape(origin.strip()).replace(r"\*", ".*") for origin in origins.split(",") if origin.strip()]
    # Linear time, because a client chooses the text.
    return re2.compile(f"(?i:{'|'.join(patterns)})")


class CrossOrigin:
    """Lets browsers call from other origins.

    Args:
        origins: The allowed origins, separated by commas; ``*`` stands for anything.
        methods: The methods that they may use, separated by commas; empty for GET, POST, HEAD.
    """

    def __init__(self, app: ASGIApp, origins: str, methods: str) -> None:
        self._app = app
        self._origins = origin_pattern(origins)
        self._methods = [name.strip().upper() for name in methods.split(",") if name.strip()] or ["GET", "POST", "HEAD"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        asked = Headers(scope=scope)
        origin = asked.get("origin")
        allowed = origin if origin is not None and self._origins.fullmatch(origin) else None
        wanted = asked.get("access-control-request-method") if scope["method"] == "OPTIONS" else None

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.append("Vary", "Origin")
                if allowed is not None and (wanted is None or wanted.upper() in self._methods):
                    headers["Access-Control-Allow-Origin"] = allowed
                    if wanted is not None:
                        headers["Access-Control-Allow-Methods"] = ",".join(self._methods)
                        headers["Access-Control-Allow-Headers"] = "Content-Type"
                        headers["Access-Control-Max-Age"] = "60"
            await send(message)

        await self._app(scope, receive, send_with_headers)


@dataclass(frozen=True)
class AppOptions:
    """The options of the API.

    Attributes:
        admin: True if it serves the admin part, too.
        allow_origin: The origins that browsers may call from; empty for none.
        allow_methods: The methods that they may use.
        filters: The filters of extensions, before every request.
    """

    admin: bool = True
    header_rules: Sequence[HeaderRule] = ()
    allow_origin: str = ""
    allow_methods: str = ""
    filters: Sequence[RestFilter] = ()
    entries: Sequence[Entry] = ()


def build_app(services: Services, options: AppOptions | None = None) -> ASGIApp:
    """The application of a worker's main listeners."""
    options = options or AppOptions()
    described = json_response(document(services.version, admin=options.admin))

    async def openapi(request: Request) -> Response:
        """The description of the API."""
        return Response(described.body, media_type="application/json")

    entries = [*API, *(ADMIN if options.admin else ()), ("GET", "/openapi.json", openapi), *options.entries]
    app: ASGIApp = BodyBudget(_routed(services, entries))
    allowed = origin_pattern(options.allow_origin) if options.allow_origin.strip() else None
    app = ForeignOrigins(app, allowed)
    if allowed is not None:
        app = CrossOrigin(app, options.allow_origin, options.allow_methods)
    if options.filters:
        app = ExtensionFilters(app, options.filters, services)
    if options.header_rules:
        app = ResponseHeaders(app, options.header_rules)
    return app


def build_admin_app(services: Services, filters: Sequence[RestFilter] = ()) -> ASGIApp:
    """The application of ``admin.listeners``."""
    app: ASGIApp = ForeignOrigins(BodyBudget(_routed(services, ADMIN)))
    return ExtensionFilters(app, filters, services) if filters else app


def _routed(services: Services, entries: Sequence[Entry]) -> ASGIApp:
    app = Starlette(routes=build_routes(entries), exception_handlers={HTTPException: on_http_error})
    app.router.redirect_slashes = False
    app.state.services = services
    return RawPaths(app)
