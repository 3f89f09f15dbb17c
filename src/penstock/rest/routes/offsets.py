"""``/connectors/{name}/offsets`` and ``/connectors/{name}/topics``. Runs on the REST thread.

Source: org.apache.kafka.connect.runtime.rest.resources.ConnectorsResource; KIP-875, KIP-558.
"""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from penstock.herder.offset_changes import AlterRequest, offsets_body
from penstock.rest.bodies import offsets_request, read_json, timestamp_ms
from penstock.rest.errors import json_response
from penstock.rest.routing import Entry
from penstock.rest.services import flag, services


async def get_offsets(request: Request) -> Response:
    """The committed offsets."""
    s, name = services(request), request.path_params["name"]
    return json_response(offsets_body(await s.answer(s.herder.read_offsets(name), name)))


async def alter_offsets(request: Request) -> Response:
    """Changes the offsets of a stopped connector."""
    s, name = services(request), request.path_params["name"]
    wanted = offsets_request(await read_json(request), dry_run=flag(request, "dry_run", False))
    done = await s.answer(s.herder.alter_offsets(name, wanted), name)
    return json_response(done)


async def reset_offsets(request: Request) -> Response:
    """Removes the offsets of a stopped connector, or with ``timestamp`` sets those of a sink to a time."""
    s, name = services(request), request.path_params["name"]
    dry_run = flag(request, "dry_run", False)
    moment = request.query_params.get("timestamp")
    if moment is None:
        done = await s.answer(s.herder.reset_offsets(name, dry_run=dry_run), name)
        return json_response(done)
    wanted = AlterRequest(timestamp_ms=timestamp_ms(moment), dry_run=dry_run)
    done = await s.answer(s.herder.alter_offsets(name, wanted), name)
    return json_response(done)


async def get_topics(request: Request) -> Response:
    """The topics that the connector has used."""
    s, name = services(request), request.path_params["name"]
    if not s.topic_tracking:
        raise HTTPException(403, "Topic tracking is disabled.")
    return json_response({name: {"topics": s.herder.active_topics(name)}})


async def reset_topics(request: Request) -> Response:
    """Forgets these topics."""
    s = services(request)
    if not s.topic_tracking:
        raise HTTPException(403, "Topic tracking is disabled.")
    if not s.topic_reset:
        raise HTTPException(403, "Topic tracking reset is disabled.")
    s.herder.reset_active_topics(request.path_params["name"])
    return Response(status_code=202)


_C = "/connectors/{name}"

ENTRIES: list[Entry] = [
    ("GET", f"{_C}/offsets", get_offsets),
    ("PATCH", f"{_C}/offsets", alter_offsets),
    ("DELETE", f"{_C}/offsets", reset_offsets),
    ("GET", f"{_C}/topics", get_topics),
    ("PUT", f"{_C}/topics/reset", reset_topics),
]
