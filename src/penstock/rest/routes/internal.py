"""The routes for requests between workers of a group. Runs on the REST thread.

Source: org.apache.kafka.connect.runtime.rest.resources.InternalClusterResource; KIP-507, KIP-618.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from penstock.errors import BadRequestException
from penstock.model.payloads import ConnectorView
from penstock.rest.bodies import MAX_BODY_BYTES, parse_json, read_body
from penstock.rest.errors import json_response
from penstock.rest.forwarding import raw_path
from penstock.rest.routing import Entry
from penstock.rest.services import services


async def put_task_configs(request: Request) -> Response:
    """Stores the task configurations that a connector on another worker has generated."""
    s, name = services(request), request.path_params["name"]
    _check(request)
    body = await read_body(request, _most(s.herder.connectors().get(name)))
    _check(request, body)
    await s.answer(s.herder.put_task_configs(name, _task_configs(body)), name)
    return Response(status_code=204)


async def fence(request: Request) -> Response:
    """Ends the producers of all former tasks of a source connector."""
    s, name = services(request), request.path_params["name"]
    _check(request)
    _check(request, await read_body(request, _LARGEST_TASK))
    await s.answer(s.herder.fence_zombies(name), name)
    return Response(status_code=204)


async def cluster(request: Request) -> Response:
    """The members of the group, the leader, and the work of this worker."""
    s = services(request)
    found = await s.answer(s.herder.cluster())
    return json_response(found)


#: A task's configuration is one record of the config topic, which takes a mebibyte by default.
_LARGEST_TASK: Final = 1 << 20


def _most(view: ConnectorView | None) -> int:
    """Returns the most bytes that the task configurations of a connector may have together."""
    config: Mapping[str, str] = {} if view is None else view.config
    text = config.get("tasks.max", "1").strip()
    if config.get("tasks.max.enforce", "true").strip().lower() == "false" or not text.isdecimal() or len(text) > 1:
        return MAX_BODY_BYTES
    return min(MAX_BODY_BYTES, max(1, int(text)) * _LARGEST_TASK)


def _check(request: Request, body: bytes | None = None) -> None:
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


INTERNAL: list[Entry] = [
    ("POST", "/connectors/{name}/tasks", put_task_configs),
    ("PUT", "/connectors/{name}/fence", fence),
    ("GET", "/cluster", cluster),
]
