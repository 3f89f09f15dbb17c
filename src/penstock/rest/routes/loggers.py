"""``/admin/loggers``. Runs on the REST thread.

Source: org.apache.kafka.connect.runtime.rest.resources.LoggingResource; KIP-495, KIP-976.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from penstock.errors import BadRequestException, NotFoundException
from penstock.rest.bodies import read_json
from penstock.rest.errors import json_response
from penstock.rest.routing import Entry
from penstock.rest.services import services
from penstock.telemetry.logs import is_level, is_name

log = logging.getLogger(__name__)


async def list_loggers(request: Request) -> Response:
    """The level of each logger."""
    levels = services(request).loggers.all_levels()
    return json_response({name: level.to_json() for name, level in levels.items()})


async def get_logger(request: Request) -> Response:
    """The level of one logger."""
    name = request.path_params["logger"]
    level = services(request).loggers.level(name)
    if level is None:
        raise NotFoundException(f"Logger {name} not found.")
    return json_response(level.to_json())


async def set_level(request: Request) -> Response:
    """Changes a logger and those below it, here or (``scope=cluster``) on every worker."""
    body = await read_json(request)
    if not isinstance(body, Mapping):
        raise BadRequestException("The request body must be a JSON object with level")
    level = body.get("level")
    if level is None:
        raise BadRequestException("Desired 'level' parameter was not specified in request.")
    if not isinstance(level, str) or not is_level(level):
        raise NotFoundException(f"invalid log level '{level}'.")
    scope = (request.query_params.get("scope") or "worker").strip().lower()
    if scope not in ("worker", "cluster"):
        log.warning("Unknown scope %r of a change of log levels; worker is assumed", scope)
    s, name = services(request), request.path_params["logger"]
    if not is_name(name):
        raise BadRequestException(f"No logger has a name of {len(name)} characters; 1000 are the most")
    if scope == "cluster" and await s.answer(s.herder.set_cluster_level(name, level)):
        return Response(status_code=204)
    changed = s.loggers.set_level(name, level)
    # A standalone worker is the whole cluster.
    return Response(status_code=204) if scope == "cluster" else json_response(changed)


ENTRIES: list[Entry] = [
    ("GET", "/admin/loggers", list_loggers),
    ("GET", "/admin/loggers/{logger}", get_logger),
    ("PUT", "/admin/loggers/{logger}", set_level),
]
