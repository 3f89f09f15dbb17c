"""Requests for backfills: they run on the worker that runs the connector.

Main type: ``BackfillRequests``. Its methods are coroutines of the herder's thread; blocking calls run on separate
threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from penstock.errors import ConflictException, NotFoundException
from penstock.herder.control_plane import ControlPlane, plain
from penstock.model import ConnectorType, TargetState
from penstock.model.backfill import BackfillPlan, BackfillQuestion, BackfillRequest
from penstock.worker.backfill.runs import backfill_task
from penstock.worker.task.slot import (
    TaskRequest,
)


class BackfillRequests:
    """Serves requests for backfills.

    Args:
        plane: The shared state of requests.
    """

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    async def start(self, name: str, request: BackfillRequest) -> dict[str, object]:
        """Begins a backfill, or plans it only.

        Raises:
            NotFoundException: There is no such connector, or nothing to read.
            ConflictException: It has no tasks; AlreadyExistsException: it has a backfill.
            BadRequestException: The request is not possible.
            NotHereException: Another worker runs the connector.
        """
        await self._here(name)
        plane, worker = self._plane, self._plane.worker
        known = plane.connector(name, f"Connector {name} not found")
        if plane.snapshot.target(name) is TargetState.STOPPED or not known.tasks:
            raise ConflictException(
                f"Connector {name} has no tasks whose settings a backfill could use: it is stopped, or has not started "
                f"yet. Resume it with PUT /connectors/{name}/resume"
            )
        given, tasks = plain(known.config), [plain(one) for one in known.tasks]
        facts = await plane.facts.find(name, known.config)

        def resolved(task: Mapping[str, str]) -> Mapping[str, str]:
            found = worker.resolvable(task).data
            plane.secrets.note(name, task, found)
            return found

        def planned() -> tuple[BackfillPlan, TaskRequest]:
            config = worker.resolve(given)
            plane.secrets.note(name, given, config)
            readers = [partial(resolved, task) for task in tasks]
            plan = worker.plan_backfill(BackfillQuestion(name, facts.type, config, readers, request))
            first = readers[0]
            wanted = TaskRequest(backfill_task(name), facts.type, config, first(), first, False, 1, backfill=plan)
            return plan, wanted

        with plane.stage(name, "planning a backfill"):
            plan, wanted = await plane.loop.off_loop(f"backfill-plan-{name}", planned)
        if request.dry_run:
            return plan.to_json(name)
        if not plan.reads:
            what = "messages" if facts.type is ConnectorType.SINK else "rows"
            what += "" if request.of is None else f" of {request.of!r}"
            raise NotFoundException(f"Connector {name} has no {what} in that range: there is nothing to read again")
        # Another worker may have it by now.
        await self._here(name)
        return worker.start_backfill(wanted, plan).to_json()

    async def view(self, name: str) -> dict[str, object]:
        """The last backfill of a connector.

        Raises:
            NotFoundException: It had none on this worker.
        """
        await self._here(name)
        self._plane.connector(name, f"Connector {name} not found")
        found = self._plane.worker.backfills.view(name)
        if found is None:
            raise NotFoundException(f"Connector {name} has had no backfill on this worker")
        shown = self._plane.redaction(name).body(found.to_json())
        assert isinstance(shown, dict)
        return shown

    async def cancel(self, name: str) -> None:
        """Ends the backfill of a connector; the records that it has written stay.

        Raises:
            NotFoundException: None is running.
        """
        await self._here(name)
        self._plane.connector(name, f"Connector {name} not found")
        self._plane.worker.backfills.cancel(name)

    async def _here(self, name: str) -> None:
        parts = await self._plane.steady(dealt=True)
        parts.membership.require_stable()
        self._plane.connector(name, f"Connector {name} not found")
        parts.membership.require_owner(name)
