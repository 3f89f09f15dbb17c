"""``/connector-plugins``. Runs on the REST thread; what imports plugins runs on another.

Source: org.apache.kafka.connect.runtime.rest.resources.ConnectorPluginsResource.
"""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from penstock.rest.errors import json_response
from penstock.rest.routing import Entry
from penstock.rest.services import flag, services

_CONNECTORS = {"source", "sink"}
_LISTED = {*_CONNECTORS, "converter", "header_converter", "transformation", "predicate"}


async def list_plugins(request: Request) -> Response:
    """What is installed."""
    wanted = _CONNECTORS if flag(request, "connectorsOnly", True) else _LISTED
    found = await asyncio.to_thread(services(request).list_plugins)
    return json_response([plugin.to_json() for plugin in found if plugin.type in wanted])


ENTRIES: list[Entry] = [("GET", "/connector-plugins", list_plugins)]
