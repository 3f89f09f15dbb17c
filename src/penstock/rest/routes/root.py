"""The worker itself: ``/``, ``/health``, ``/metrics``, ``/connector-plugins`` and ``/admin/loggers``.

Runs on the REST thread. Other threads read metrics, import plugins and run users' code.

Source: RootResource, ConnectorPluginsResource and LoggingResource of org.apache.kafka.connect.runtime.rest.resources;
KIP-495, KIP-976.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from penstock.errors import BadRequestException, NotFoundException
from penstock.herder import Health
from penstock.model.payloads import ServerInfo
from penstock.rest.bodies import config_map, preview_body, read_json
from penstock.rest.errors import json_response
from penstock.rest.routing import Entry, not_json
from penstock.rest.services import flag, services
from penstock.telemetry.logs import is_level, is_name
from penstock.telemetry.metrics import CONTENT_TYPE, metrics_text

_STATUS = {Health.HEALTHY: 200, Health.STARTING: 503, Health.UNHEALTHY: 500}


async def server_info(request: Request) -> Response:
    """Version, commit and the id of the Kafka cluster."""
    s = services(request)
    return json_response(ServerInfo(s.version, s.commit, s.herder.kafka_cluster_id).to_json())


async def health(request: Request) -> Response:
    """Reports if the worker is ready."""
    state, message = services(request).herder.health()
    return json_response({"status": state.value, "message": message}, _STATUS[state])


@not_json
async def metrics(request: Request) -> Response:
    """The worker's metrics, for Prometheus."""
    s = services(request)
    # The code of plugins computes some of them.
    text = await s.on_thread("read-metrics", lambda: metrics_text(s.metrics.read(), s.metrics.descriptions()))
    # A plugin's tag may have characters that cannot be encoded, for example half of a surrogate pair from a file's
    # name.
    return Response(text.encode(errors="replace"), media_type=CONTENT_TYPE)


_CONNECTOR_KINDS = {"source", "sink"}
_LISTED = {*_CONNECTOR_KINDS, "converter", "header_converter", "transformation", "predicate"}
_SUFFIX = "Connector"


async def list_plugins(request: Request) -> Response:
    """Lists the installed plugins."""
    wanted = _CONNECTOR_KINDS if flag(request, "connectorsOnly", True) else _LISTED
    s = services(request)
    found = await s.on_thread("list-plugins", s.plugins.entries)
    return json_response([plugin.to_json() for plugin in found if plugin.type in wanted])


async def plugin_config(request: Request) -> Response:
    """The settings that a plugin knows."""
    s, name = services(request), request.path_params["plugin"]
    return json_response(await s.on_thread("plugin-config", lambda: s.plugins.settings_of(name), ends=True))


async def validate(request: Request) -> Response:
    """Checks a configuration: a definition, a value and the faults of each setting."""
    s, plugin = services(request), request.path_params["plugin"]
    config = config_map(await read_json(request, as_written=True))
    _same_class(config, plugin)
    infos = await s.answer(s.herder.validate_config(config), config.get("name") or "", ends=True)
    return json_response(infos.to_json())


async def preview(request: Request) -> Response:
    """Previews a configuration on some records: of the source, of the sink's topics, or of the request."""
    s, plugin = services(request), request.path_params["plugin"]
    wanted = preview_body(await read_json(request))
    _same_class(wanted.config, plugin)
    future = s.herder.preview(wanted.config, wanted.records, wanted.limits)
    shown = await s.answer(future, wanted.config.get("name") or "", ends=True)
    return json_response(shown)


def _same_class(config: Mapping[str, str | None], plugin: str) -> None:
    included = config.get("connector.class")
    if not included:
        raise BadRequestException("The configuration contains no connector type: set connector.class")
    if not normalized(included).endswith(normalized(plugin)):
        raise BadRequestException(f"Included connector type {included} does not match request type {plugin}")


def normalized(plugin: str) -> str:
    """The name of a connector's class without its optional suffix.

    >>> normalized("FileStreamSourceConnector"), normalized("Connector")
    ('FileStreamSource', 'Connector')
    """
    return plugin.removesuffix(_SUFFIX) or plugin


_P = "/connector-plugins/{plugin}"


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


LOGGERS: list[Entry] = [
    ("GET", "/admin/loggers", list_loggers),
    ("GET", "/admin/loggers/{logger}", get_logger),
    ("PUT", "/admin/loggers/{logger}", set_level),
]


ROOT: list[Entry] = [
    ("GET", "/", server_info),
    ("GET", "/health", health),
    ("GET", "/metrics", metrics),
    ("GET", "/connector-plugins", list_plugins),
    ("GET", f"{_P}/config", plugin_config),
    ("PUT", f"{_P}/config/validate", validate),
    ("POST", f"{_P}/preview", preview),
]
