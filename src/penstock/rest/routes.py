"""The functions that answer requests. Runs on the REST thread; other threads read metrics and run code of plugins.

Reads use the herder's snapshot; changes await the herder.

Source: the classes of org.apache.kafka.connect.runtime.rest.resources; KIP-495, KIP-507, KIP-558, KIP-618, KIP-875,
KIP-976.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from penstock.errors import BadRequestException, NotFoundException
from penstock.herder import Health, Herder
from penstock.herder.offset_changes import AlterRequest, offsets_body
from penstock.model.payloads import ConnectorView
from penstock.rest.bodies import (
    MAX_BODY_BYTES,
    backfill_request,
    config_map,
    connector_name,
    create_request,
    offsets_request,
    parse_json,
    preview_body,
    read_body,
    read_json,
    same_name,
    timestamp_ms,
)
from penstock.rest.errors import Endpoint, Entry, json_response, not_json
from penstock.rest.services import Services, flag, raw_path, services, with_other_workers
from penstock.telemetry.logs import is_level, is_name
from penstock.telemetry.metrics import CONTENT_TYPE, metrics_text

log = logging.getLogger(__name__)

#: The digits that Java's Integer takes.
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)

#: Characters that stay unescaped in a part of a path (RFC 3986), as Java writes it; a slash in a name is escaped.
_PLAIN_IN_PATHS: Final = "!$&'()*+,;=:@"


def _named(request: Request) -> tuple[Services, str]:
    return services(request), request.path_params["name"]


async def _view(request: Request, message: str | None = None) -> ConnectorView:
    s, name = _named(request)
    await s.look_at([name])
    view = s.herder.connectors().get(name)
    if view is None:
        raise NotFoundException(message or f"Connector {name} not found")
    return view


def _task_number(request: Request) -> int:
    text = request.path_params["task"]
    if not _INTEGER.fullmatch(text) or not -(2**31) <= int(text) < 2**31:
        raise HTTPException(404)
    return int(text)


def _location(request: Request, name: str) -> dict[str, str]:
    return {"Location": f"{str(request.base_url).rstrip('/')}/connectors/{quote(name, safe=_PLAIN_IN_PATHS)}"}


async def _warnings(request: Request, name: str) -> dict[str, str]:
    """The header of an answer about a restarted connector that could not load its newest code."""
    s = services(request)
    view = s.herder.connectors().get(name)
    told = None if view is None else await s.on_thread("plugin-code", lambda: s.plugins.changed_code(view.config))
    if told is None:
        return {}
    return {"Warning": f'299 penstock "{told.encode("ascii", "backslashreplace").decode()}"'}


def _change(change: Callable[[Herder, str], Future[Any]], status: int, *, starts_code: bool = False) -> Endpoint:
    """A change of a connector without a body; if it starts code of a plugin, the answer has its warnings."""

    async def endpoint(request: Request) -> Response:
        s, name = _named(request)
        await s.answer(change(s.herder, name), name)
        return Response(status_code=status, headers=await _warnings(request, name) if starts_code else None)

    return endpoint


# ---------------------------------------------------------------------- connectors
async def _list_connectors(request: Request) -> Response:
    """Names, or with ``expand`` their info and status."""
    s = services(request)
    views = s.herder.connectors()
    expand = request.query_params.getlist("expand")
    if not expand:
        return json_response(list(views))
    await s.look_at(views)
    body: dict[str, dict[str, object]] = {}
    for name, view in views.items():
        parts = body.setdefault(name, {})
        if "info" in expand:
            parts["info"] = view.info_json()
        if "status" in expand and (status := view.status_json(s.herder.beside_state)) is not None:
            parts["status"] = status
    return json_response(body)


async def _create_connector(request: Request) -> Response:
    wanted = create_request(await read_json(request, as_written=True))
    s, name = services(request), wanted.name
    created = await s.answer(s.herder.put_connector(name, wanted.config, target=wanted.target, replace=False), name)
    return json_response(created.view.info_json(), 201, _location(request, name) | await _warnings(request, name))


async def _get_connector(request: Request) -> Response:
    return json_response((await _view(request)).info_json())


async def _get_config(request: Request) -> Response:
    return json_response(dict((await _view(request)).config))


async def _put_config(request: Request) -> Response:
    name = connector_name(request.path_params["name"])
    config = config_map(await read_json(request, as_written=True))
    same_name(name, config)
    s = services(request)
    done = await s.answer(s.herder.put_connector(name, config, target=None, replace=True), name)
    headers = (_location(request, name) if done.created else {}) | await _warnings(request, name)
    return json_response(done.view.info_json(), 201 if done.created else 200, headers)


async def _patch_config(request: Request) -> Response:
    """Changes some settings; null removes one."""
    name = connector_name(request.path_params["name"])
    patch = config_map(await read_json(request, as_written=True))
    s = services(request)
    done = await s.answer(s.herder.patch_connector(name, patch), name)
    return json_response(done.view.info_json(), headers=await _warnings(request, name))


async def _get_status(request: Request) -> Response:
    missing = f"No status found for connector {request.path_params['name']}"
    status = (await _view(request, missing)).status_json(services(request).herder.beside_state)
    if status is None:
        raise NotFoundException(missing)
    return json_response(status)


async def _explain(request: Request) -> Response:
    """The settings with their origin, the offsets, and the waits of the connector and its tasks."""
    s, name = _named(request)
    found = await s.answer(s.herder.explain(name), name, ends=True)
    return json_response(await with_other_workers(request, name, found))


async def _list_tasks(request: Request) -> Response:
    return json_response((await _view(request)).tasks_json())


async def _get_task_status(request: Request) -> Response:
    s, name = _named(request)
    number = _task_number(request)
    missing = f"No status found for task {name}-{number}"
    view = await _view(request, missing)
    status = next((one for one in view.tasks if one.id.task == number), None)
    if status is None:
        raise NotFoundException(missing)
    return json_response(status.to_json(s.herder.beside_state(status.id)))


async def _restart_task(request: Request) -> Response:
    s, name = _named(request)
    await s.answer(s.herder.restart_task(name, _task_number(request)), name)
    return Response(status_code=204, headers=await _warnings(request, name))


async def _restart_connector(request: Request) -> Response:
    """Restarts the connector, and with ``includeTasks`` its tasks."""
    s, name = _named(request)
    include_tasks, only_failed = flag(request, "includeTasks", False), flag(request, "onlyFailed", False)
    if not include_tasks and not only_failed:
        await s.answer(s.herder.restart_connector(name), name)
        return Response(status_code=204, headers=await _warnings(request, name))
    plan = await s.answer(
        s.herder.restart_connector_and_tasks(name, include_tasks=include_tasks, only_failed=only_failed), name
    )
    return json_response(plan, 202, await _warnings(request, name))


async def _get_offsets(request: Request) -> Response:
    s, name = _named(request)
    return json_response(offsets_body(await s.answer(s.herder.read_offsets(name), name)))


async def _alter_offsets(request: Request) -> Response:
    """Changes the offsets of a stopped connector."""
    s, name = _named(request)
    wanted = offsets_request(await read_json(request), dry_run=flag(request, "dry_run", False))
    return json_response(await s.answer(s.herder.alter_offsets(name, wanted), name))


async def _reset_offsets(request: Request) -> Response:
    """Removes the offsets of a stopped connector, or with ``timestamp`` sets those of a sink to a time."""
    s, name = _named(request)
    dry_run = flag(request, "dry_run", False)
    moment = request.query_params.get("timestamp")
    if moment is None:
        done = s.herder.reset_offsets(name, dry_run=dry_run)
    else:
        done = s.herder.alter_offsets(name, AlterRequest(timestamp_ms=timestamp_ms(moment), dry_run=dry_run))
    return json_response(await s.answer(done, name))


async def _get_topics(request: Request) -> Response:
    """The topics that the connector has used."""
    s, name = _named(request)
    if not s.topic_tracking:
        raise HTTPException(403, "Topic tracking is disabled.")
    return json_response({name: {"topics": s.herder.active_topics(name)}})


async def _reset_topics(request: Request) -> Response:
    s, name = _named(request)
    if not s.topic_tracking:
        raise HTTPException(403, "Topic tracking is disabled.")
    if not s.topic_reset:
        raise HTTPException(403, "Topic tracking reset is disabled.")
    s.herder.reset_active_topics(name)
    return Response(status_code=202)


async def _start_backfill(request: Request) -> Response:
    """Begins a backfill, or with ``dry_run`` returns its plan."""
    s, name = _named(request)
    wanted = backfill_request(await read_json(request), dry_run=flag(request, "dry_run", False))
    done = await s.answer(s.herder.start_backfill(name, wanted), name)
    return json_response(done, 200 if wanted.dry_run else 202)


async def _show_backfill(request: Request) -> Response:
    """The last backfill."""
    s, name = _named(request)
    return json_response(await s.answer(s.herder.backfill(name), name))


# ---------------------------------------------------------------------- between workers of a group
async def _put_task_configs(request: Request) -> Response:
    """Stores the task configurations that a connector on another worker has generated."""
    s, name = _named(request)
    _check_signature(request)
    body = await read_body(request, _most(s.herder.connectors().get(name)))
    _check_signature(request, body)
    await s.answer(s.herder.put_task_configs(name, _task_configs(body)), name)
    return Response(status_code=204)


async def _fence(request: Request) -> Response:
    """Ends the producers of all former tasks of a source connector."""
    s, name = _named(request)
    _check_signature(request)
    _check_signature(request, await read_body(request, _LARGEST_TASK))
    await s.answer(s.herder.fence_zombies(name), name)
    return Response(status_code=204)


async def _cluster(request: Request) -> Response:
    """The members of the group, the leader, and the work of this worker."""
    s = services(request)
    return json_response(await s.answer(s.herder.cluster()))


#: A task's configuration is one record of the config topic, which takes a mebibyte by default.
_LARGEST_TASK: Final = 1 << 20


def _most(view: ConnectorView | None) -> int:
    """Returns the most bytes that the task configurations of a connector may have together."""
    config: Mapping[str, str] = {} if view is None else view.config
    text = config.get("tasks.max", "1").strip()
    if config.get("tasks.max.enforce", "true").strip().lower() == "false" or not text.isdecimal() or len(text) > 1:
        return MAX_BODY_BYTES
    return min(MAX_BODY_BYTES, max(1, int(text)) * _LARGEST_TASK)


def _check_signature(request: Request, body: bytes | None = None) -> None:
    """Lets a signed request pass; before its body is read (None), a request with valid headers."""
    services(request).herder.check_signature(request.method, raw_path(request.scope), request.headers, body)


def _task_configs(body: bytes) -> list[dict[str, str]]:
    try:
        found = parse_json(body)
    except BadRequestException as error:
        raise BadRequestException(f"The task configurations are no JSON: {error.__cause__}") from None
    if not isinstance(found, list) or not all(isinstance(one, Mapping) for one in found):
        raise BadRequestException("Task configurations are a JSON list of objects")
    for one in found:
        for key, value in one.items():
            if value is not None and not isinstance(value, str):
                raise BadRequestException(f"The setting {key} of a task is no text")
    return [{key: value for key, value in one.items() if value is not None} for one in found]


# ---------------------------------------------------------------------- the worker
_STATUS = {Health.HEALTHY: 200, Health.STARTING: 503, Health.UNHEALTHY: 500}
_CONNECTOR_KINDS = {"source", "sink"}
_LISTED = {*_CONNECTOR_KINDS, "converter", "header_converter", "transformation", "predicate"}


async def _server_info(request: Request) -> Response:
    s = services(request)
    return json_response({"version": s.version, "commit": s.commit, "kafka_cluster_id": s.herder.kafka_cluster_id})


async def _health(request: Request) -> Response:
    state, message = services(request).herder.health()
    return json_response({"status": state.value, "message": message}, _STATUS[state])


@not_json
async def _metrics(request: Request) -> Response:
    """The worker's metrics, for Prometheus."""
    s = services(request)
    # The code of plugins computes some of them.
    text = await s.on_thread("read-metrics", lambda: metrics_text(s.metrics.read(), s.metrics.descriptions()))
    # A plugin's tag may have characters that cannot be encoded, for example half of a surrogate pair from a file's
    # name.
    return Response(text.encode(errors="replace"), media_type=CONTENT_TYPE)


async def _list_plugins(request: Request) -> Response:
    wanted = _CONNECTOR_KINDS if flag(request, "connectorsOnly", True) else _LISTED
    s = services(request)
    found = await s.on_thread("list-plugins", s.plugins.entries)
    return json_response([plugin.to_json() for plugin in found if plugin.type in wanted])


async def _plugin_config(request: Request) -> Response:
    """The settings that a plugin knows."""
    s, name = services(request), request.path_params["plugin"]
    return json_response(await s.on_thread("plugin-config", lambda: s.plugins.settings_of(name), ends=True))


async def _validate(request: Request) -> Response:
    """Checks a configuration: a definition, a value and the faults of each setting."""
    s, plugin = services(request), request.path_params["plugin"]
    config = config_map(await read_json(request, as_written=True))
    _same_class(config, plugin)
    infos = await s.answer(s.herder.validate_config(config), config.get("name") or "", ends=True)
    return json_response(infos.to_json())


async def _preview(request: Request) -> Response:
    """Previews a configuration on some records: of the source, of the sink's topics, or of the request."""
    s, plugin = services(request), request.path_params["plugin"]
    wanted = preview_body(await read_json(request))
    _same_class(wanted.config, plugin)
    future = s.herder.preview(wanted.config, wanted.records, wanted.limits)
    return json_response(await s.answer(future, wanted.config.get("name") or "preview", ends=True))


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
    return plugin.removesuffix("Connector") or plugin


async def _list_loggers(request: Request) -> Response:
    levels = services(request).loggers.all_levels()
    return json_response({name: level.to_json() for name, level in levels.items()})


async def _get_logger(request: Request) -> Response:
    name = request.path_params["logger"]
    level = services(request).loggers.level(name)
    if level is None:
        raise NotFoundException(f"Logger {name} not found.")
    return json_response(level.to_json())


async def _set_level(request: Request) -> Response:
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


_C: Final = "/connectors/{name}"
_P: Final = "/connector-plugins/{plugin}"

API: Final[tuple[Entry, ...]] = (
    ("GET", "/", _server_info),
    ("GET", "/health", _health),
    ("GET", "/metrics", _metrics),
    ("GET", "/cluster", _cluster),
    ("GET", "/connector-plugins", _list_plugins),
    ("GET", f"{_P}/config", _plugin_config),
    ("PUT", f"{_P}/config/validate", _validate),
    ("POST", f"{_P}/preview", _preview),
    ("GET", "/connectors", _list_connectors),
    ("POST", "/connectors", _create_connector),
    ("GET", _C, _get_connector),
    ("DELETE", _C, _change(lambda herder, name: herder.delete_connector(name), 204)),
    ("GET", f"{_C}/config", _get_config),
    ("PUT", f"{_C}/config", _put_config),
    ("PATCH", f"{_C}/config", _patch_config),
    ("GET", f"{_C}/status", _get_status),
    ("GET", f"{_C}/explain", _explain),
    ("GET", f"{_C}/tasks", _list_tasks),
    ("POST", f"{_C}/tasks", _put_task_configs),
    ("GET", f"{_C}/tasks/{{task}}/status", _get_task_status),
    ("POST", f"{_C}/tasks/{{task}}/restart", _restart_task),
    ("POST", f"{_C}/restart", _restart_connector),
    ("PUT", f"{_C}/pause", _change(lambda herder, name: herder.pause_connector(name), 202)),
    ("PUT", f"{_C}/resume", _change(lambda herder, name: herder.resume_connector(name), 202, starts_code=True)),
    ("PUT", f"{_C}/stop", _change(lambda herder, name: herder.stop_connector(name), 204)),
    ("GET", f"{_C}/offsets", _get_offsets),
    ("PATCH", f"{_C}/offsets", _alter_offsets),
    ("DELETE", f"{_C}/offsets", _reset_offsets),
    ("GET", f"{_C}/topics", _get_topics),
    ("PUT", f"{_C}/topics/reset", _reset_topics),
    ("POST", f"{_C}/backfill", _start_backfill),
    ("GET", f"{_C}/backfill", _show_backfill),
    ("DELETE", f"{_C}/backfill", _change(lambda herder, name: herder.cancel_backfill(name), 202)),
    ("PUT", f"{_C}/fence", _fence),
)
ADMIN: Final[tuple[Entry, ...]] = (
    ("GET", "/admin/loggers", _list_loggers),
    ("GET", "/admin/loggers/{logger}", _get_logger),
    ("PUT", "/admin/loggers/{logger}", _set_level),
)
