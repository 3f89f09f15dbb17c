"""Completes what one worker knows of a connector by what others know that run parts of it.

Main function: ``with_other_workers``, for explanations: what a task waits for, only its own worker sees.

Thread: the REST server's; other workers are asked on threads of their own, side by side.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from starlette.requests import Request

from penstock.model.payloads import ConnectorView
from penstock.rest.paths import raw_path
from penstock.rest.services import Services, services
from penstock.rest.worker_client import UnreachableWorkerException
from penstock.worker.waiting import because

#: A worker that is slower than this is left out.
_TIMEOUT_S: Final = 5.0


async def with_other_workers(request: Request, name: str, found: Mapping[str, Any]) -> Mapping[str, Any]:
    """An explanation in which each part comes from the worker that runs it.

    Args:
        request: That for the explanation; one with ``forward=false`` comes from another worker, which does the rest.
        name: The connector.
        found: What this worker knows.
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
    """How many records of a connector took which road on all workers, most first."""
    found: Counter[tuple[str, str | None]] = Counter()
    for part in parts:
        for one in part.get("roads", ()):
            found[one["road"], one["why"]] += one["records"]
    return [{"road": road, "why": why, "records": count} for (road, why), count in found.most_common()]


def _places(view: ConnectorView, here: str) -> dict[int | None, str]:
    """The address of the worker that runs each task, and under None that of the connector's; others than this one."""
    places: dict[int | None, str] = {status.id.task: status.worker_id for status in view.tasks}
    if view.status is not None:
        places[None] = view.status.worker_id
    return {part: worker_id for part, worker_id in places.items() if worker_id != here}


async def _ask(s: Services, request: Request, worker_id: str) -> Mapping[str, Any] | str:
    """What another worker says; a text where it says nothing that helps."""
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
    return {**here, "waiting_for": parts[0]["waiting_for"]} if parts else here
