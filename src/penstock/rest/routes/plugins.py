"""``/connector-plugins``. Runs on the REST thread; importing plugins and running users' code happens on other threads.

Source: org.apache.kafka.connect.runtime.rest.resources.ConnectorPluginsResource.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from penstock.errors import BadRequestException
from penstock.rest.bodies import config_map, preview_body, read_json
from penstock.rest.errors import json_response
from penstock.rest.routing import Entry
from penstock.rest.services import flag, services

_CONNECTORS = {"source", "sink"}
_LISTED = {*_CONNECTORS, "converter", "header_converter", "transformation", "predicate"}
_SUFFIX = "Connector"


async def list_plugins(request: Request) -> Response:
    """Lists the installed plugins."""
    wanted = _CONNECTORS if flag(request, "connectorsOnly", True) else _LISTED
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

ENTRIES: list[Entry] = [
    ("GET", "/connector-plugins", list_plugins),
    ("GET", f"{_P}/config", plugin_config),
    ("PUT", f"{_P}/config/validate", validate),
    ("POST", f"{_P}/preview", preview),
]
