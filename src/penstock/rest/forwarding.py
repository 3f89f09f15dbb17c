"""Calls other workers of the group to serve a request.

Main functions: ``forward`` passes a request on to the worker that can serve it. A request that this worker cannot serve
raises ``NotHereException`` with the address of that worker. A request is passed on at most twice: the first worker
sends it to the leader or to the worker of a task, with ``forward=true``; that worker may pass it on once more, with
``forward=false``. ``with_other_workers`` completes an explanation, because only a task's own worker knows its wait.
``raw_path`` is the path of a request as sent.

Thread: the REST server's; calls to other workers run in parallel on separate threads.
Source: org.apache.kafka.connect.runtime.rest.HerderRequestHandler.completeOrForwardRequest.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from penstock.errors import ConflictException
from penstock.herder.membership import NotHereException
from penstock.model.payloads import ConnectorView
from penstock.rest.services import Services, UnreachableWorkerException, services
from penstock.worker.task.waiting import because


def raw_path(scope: Scope) -> str:
    """The path as sent, without the query, even if the request names the whole address, as to a proxy."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    path = raw.partition(b"?")[0].decode("latin-1")
    if path.startswith("/"):
        return path
    try:
        return urlsplit(path).path or path
    except ValueError:
        return path


_FORWARD: Final = "forward"
_CONFLICT: Final = "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"
#: Headers of the connection, and headers that this worker sets itself.
_NOT_PASSED_ON: Final = ("connection", "content-length", "date", "server", "transfer-encoding", "keep-alive")


async def forward(request: Request, elsewhere: NotHereException) -> Response:
    """The answer of the worker that can serve a request.

    Raises:
        ConflictException: it was passed on twice already, or the worker is unknown now.
    """
    s = services(request)
    passed_on = request.query_params.get(_FORWARD)
    if passed_on is not None and passed_on.strip().lower() != "true":
        raise ConflictException(_CONFLICT)
    if elsewhere.url is None or s.workers is None:
        raise ConflictException(str(elsewhere))
    workers, url = s.workers, elsewhere.url
    query = [(name, value) for name, value in request.query_params.multi_items() if name != _FORWARD]
    path = f"{raw_path(request.scope)}?{urlencode([*query, (_FORWARD, 'true' if passed_on is None else 'false')])}"
    body = _body(request, elsewhere)
    headers = {}
    if (login := request.headers.get("authorization")) is not None:
        headers["Authorization"] = login
    method = request.method
    answer = await s.on_thread("forward", lambda: workers.ask(method, url, path, body, headers))
    passed = {name: value for name, value in answer.headers.items() if name not in _NOT_PASSED_ON}
    if (location := passed.get("location")) is not None:
        # The client knows this worker's address; it may not be able to reach other workers.
        passed["location"] = f"{str(request.base_url).rstrip('/')}/connectors/{location.rpartition('/')[2]}"
    return Response(answer.body, answer.status, passed)


def _body(request: Request, elsewhere: NotHereException) -> bytes:
    """The body as received, or with the complete configuration if the request has only a part of it."""
    body: bytes = getattr(request.state, "body", b"")
    if elsewhere.config is None:
        return body
    config = dict(elsewhere.config)
    whole = json.loads(body)
    if isinstance(whole, Mapping) and isinstance(whole.get("config"), Mapping) and request.method == "POST":
        return _json({**whole, "name": whole.get("name", config.get("name")), "config": config})
    return _json(config)


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


#: The fields of a task or connector that only its own worker knows.
_THEIRS: Final = ("waiting_for", "progress", "backfill")
#: The time limit of another worker's answer in seconds; slower workers are left out.
_TIMEOUT_S: Final = 5.0


async def with_other_workers(request: Request, name: str, found: Mapping[str, Any]) -> Mapping[str, Any]:
    """An explanation in which each part comes from the worker that runs it.

    Args:
        request: The request for the explanation; with ``forward=false`` it comes from another worker, which completes
            it.
        name: The connector.
        found: This worker's part of the explanation.
    """
    s = services(request)
    view = s.herder.connectors().get(name)
    if s.workers is None or view is None or request.query_params.get("forward") == "false":
        return found
    places = _places(view, s.herder.worker_id)
    asked = sorted(set(places.values()))
    answers = dict(zip(asked, await asyncio.gather(*(_ask(s, request, one) for one in asked)), strict=True))
    tasks = [_part(places.get(task["id"]), answers, task, task["id"]) for task in found["tasks"]]
    whole = {"waiting_for": found["waiting_for"]}
    roads = _summed([found, *(answer for answer in answers.values() if not isinstance(answer, str))])
    return {**found, **_part(places.get(None), answers, whole, None), "tasks": tasks, "roads": roads}


def _summed(parts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Sums the counts of a connector's records by path over all workers, most first."""
    found: Counter[tuple[str, str | None]] = Counter()
    for part in parts:
        for one in part.get("roads", ()):
            found[one["road"], one["why"]] += one["records"]
    return [{"road": road, "why": why, "records": count} for (road, why), count in found.most_common()]


def _places(view: ConnectorView, here: str) -> dict[int | None, str]:
    """The addresses of other workers, by the task that they run; None is the key of the connector's worker."""
    places: dict[int | None, str] = {status.id.task: status.worker_id for status in view.tasks}
    if view.status is not None:
        places[None] = view.status.worker_id
    return {part: worker_id for part, worker_id in places.items() if worker_id != here}


async def _ask(s: Services, request: Request, worker_id: str) -> Mapping[str, Any] | str:
    """Calls another worker; returns an error text if its answer cannot be used."""
    assert s.workers is not None
    workers, path = s.workers, f"{raw_path(request.scope)}?forward=false"
    login = request.headers.get("authorization")
    headers = {} if login is None else {"Authorization": login}
    try:
        answer = await s.on_thread(
            "explain-elsewhere",
            lambda: workers.ask("GET", f"{s.scheme}://{worker_id}", path, headers=headers, timeout_s=_TIMEOUT_S),
        )
        body = json.loads(answer.body)
    except (UnreachableWorkerException, ValueError, RecursionError) as error:
        return str(error)
    return body if answer.status == 200 and isinstance(body, dict) else answer.message


def _part(
    worker_id: str | None,
    answers: Mapping[str, Mapping[str, Any] | str],
    here: Mapping[str, Any],
    task: int | None,
) -> Mapping[str, Any]:
    if worker_id is None:
        return here
    answer = answers[worker_id]
    if isinstance(answer, str):
        return {**here, "waiting_for": because("worker_away").because(f"{worker_id}: {answer}").to_json()}
    parts = [answer] if task is None else [one for one in answer.get("tasks", ()) if one.get("id") == task]
    return {**here, **{field: parts[0][field] for field in _THEIRS if field in parts[0]}} if parts else here
