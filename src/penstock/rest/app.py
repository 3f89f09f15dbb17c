"""The web applications: routes over a herder, with Kafka Connect's error bodies, and what happens around them.

Main functions: ``build_app`` (the API), ``build_admin_app`` (log levels alone, for ``admin.listeners``). Applications
run on the REST thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from penstock.api.rest import RestFilter
from penstock.rest.errors import json_response, on_http_error
from penstock.rest.extensions import ExtensionFilters
from penstock.rest.guards import BodyBudget, ForeignOrigins
from penstock.rest.middleware import CrossOrigin, HeaderRule, ResponseHeaders, origin_pattern
from penstock.rest.openapi import document
from penstock.rest.routes import backfills, connectors, internal, loggers, offsets, plugins, root
from penstock.rest.routing import Entry, RawPaths, build_routes
from penstock.rest.services import Services

API: Sequence[Entry] = (
    *root.ENTRIES,
    *plugins.ENTRIES,
    *connectors.ENTRIES,
    *offsets.ENTRIES,
    *internal.ENTRIES,
    *backfills.ENTRIES,
)
ADMIN: Sequence[Entry] = tuple(loggers.ENTRIES)


@dataclass(frozen=True)
class AppOptions:
    """The options of the API.

    Attributes:
        admin: Whether it has the admin part too.
        header_rules: Headers of its answers.
        allow_origin: The origins that browsers may call from; empty for none.
        allow_methods: The methods that they may use.
        filters: What extensions put before every request.
        entries: Paths of extensions.
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
