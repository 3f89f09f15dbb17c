"""``/connectors/{name}/backfill``. Runs on the REST thread. Source: Penstock's own."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from penstock.rest.bodies import backfill_request, read_json
from penstock.rest.errors import json_response
from penstock.rest.routing import Entry
from penstock.rest.services import flag, services


async def start(request: Request) -> Response:
    """Begins a backfill, or with ``dry_run`` returns its plan."""
    s, name = services(request), request.path_params["name"]
    wanted = backfill_request(await read_json(request), dry_run=flag(request, "dry_run", False))
    done = await s.answer(s.herder.start_backfill(name, wanted), name)
    return json_response(done, 200 if wanted.dry_run else 202)


async def show(request: Request) -> Response:
    """The last backfill."""
    s, name = services(request), request.path_params["name"]
    found = await s.answer(s.herder.backfill(name), name)
    return json_response(found)


async def cancel(request: Request) -> Response:
    """Ends the backfill that is running."""
    s, name = services(request), request.path_params["name"]
    await s.answer(s.herder.cancel_backfill(name), name)
    return Response(status_code=202)


_B = "/connectors/{name}/backfill"

ENTRIES: list[Entry] = [("POST", _B, start), ("GET", _B, show), ("DELETE", _B, cancel)]
