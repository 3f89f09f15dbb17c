"""The web application: routes over a herder, with Kafka Connect's error bodies.

Main function: ``build_app``. Runs on the REST thread.
"""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from penstock.rest.errors import on_http_error
from penstock.rest.routes import connectors, loggers, offsets, plugins, root
from penstock.rest.routing import RawPaths, build_routes
from penstock.rest.services import Services


def build_app(services: Services) -> ASGIApp:
    """The application of a worker's main listeners."""
    app = Starlette(
        routes=build_routes([*root.ENTRIES, *plugins.ENTRIES, *connectors.ENTRIES, *offsets.ENTRIES, *loggers.ENTRIES]),
        exception_handlers={HTTPException: on_http_error},
    )
    app.router.redirect_slashes = False
    app.state.services = services
    return RawPaths(app)
