"""The herder of a worker: decides which connectors and tasks run, in a group of workers or standalone.

Requests are queued to its thread and run there as coroutines, reads are answered from the present snapshot. The
configuration comes from a store, and the assignment from the membership in a group; a standalone worker is a group of
one with a local store.

Thread: ``herder``, owned by its ``HerderLoop``, owns the state; the public methods are for any thread.
Source: org.apache.kafka.connect.runtime.AbstractHerder, StandaloneHerder, DistributedHerder.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import BadRequestException, NotFoundException, NotReadyException, stack_trace
from penstock.herder.changes import (
    BackfillRequests,
    ConfigurationChanges,
    Reconfiguration,
    Restarts,
    status_of,
    stored_status,
)
from penstock.herder.control_plane import ControlPlane, Created, Health, HerderParts, Views
from penstock.herder.loop import HerderLoop
from penstock.herder.offset_changes import AlterRequest, OffsetChanges, OffsetEntry
from penstock.herder.queries import Questions, progress_of
from penstock.herder.running import Running
from penstock.model import ConnectorTaskId, State, TargetState
from penstock.model.cluster_config import (
    Change,
    ClusterConfig,
    ConnectorChanged,
    RecordSkipped,
    RestartAsked,
    TargetChanged,
    TasksCommitted,
    logger_entries,
)
from penstock.model.payloads import BackfillRequest, ConnectorView, GivenRecord, PreviewLimits
from penstock.model.states import Unit, connector_of
from penstock.telemetry.waits import Standstill, connector_owner, standstill_of, standstills, task_owner
from penstock.validation.config_infos import ConfigInfos

if TYPE_CHECKING:
    from penstock.herder.cluster.worker_cluster import WorkerCluster

R = TypeVar("R")
log = logging.getLogger(__name__)

#: States that a worker reports of a unit that it may have lost: a newer status of another worker takes precedence.
_SAFE = (State.FAILED, State.UNASSIGNED)
#: The number of connectors and tasks without progress that the health endpoint names.
_TOLD = 10


class Herder:
    """Creates, changes, restarts and deletes connectors, and runs the units assigned to this worker.

    Requests made before ``serve`` wait for it; reads are answered from the first moment. ``worker_id`` is the
    ``host:port`` of the worker; a simulation brings its own loop.
    """

    def __init__(self, worker_id: str, loop: HerderLoop | None = None) -> None:
        self._loop = loop or HerderLoop("herder")
        #: The shared state of requests; belongs to the herder's thread.
        self.plane = ControlPlane(self._loop, worker_id)
        self.worker_id = worker_id
        self._changes = ConfigurationChanges(self.plane)
        self._restarts = Restarts(self.plane)
        self._reconfiguration = Reconfiguration(self.plane)
        self._questions = Questions(self.plane)
        self._backfills = BackfillRequests(self.plane)
        self._health = (Health.STARTING, "Worker is starting up.")

    # ------------------------------------------------------------------ lifecycle
    def start(self) -> None:
        self._loop.start()

    def serve(self, parts: HerderParts) -> None:
        """Starts the config store, begins to serve requests with this worker, and runs the stored connectors.

        Raises:
            ConnectException: the configuration cannot be read.
        """
        parts.config.start(lambda config, changes: self._loop.post(lambda: self._configured(config, changes)))
        self._loop.post(lambda: self._begin(parts))

    def say(self, health: Health, message: str) -> None:
        """Sets the answer of the health endpoint."""
        self._health = (health, message)

    def stop(self, timeout_s: float = 30.0) -> bool:
        """Stops every task and connector (each with its own deadline), then the thread.

        Returns:
            False if an instance had to be abandoned.
        """
        return self._loop.stop(self.shut_down, timeout_s)

    # ------------------------------------------------------------------ reads
    @property
    def kafka_cluster_id(self) -> str | None:
        return self.plane.parts.kafka_cluster_id if self.plane.serving else None

    def health(self) -> tuple[Health, str]:
        """The health of the worker, with a message that names connectors and tasks without progress."""
        if self._health[0] is Health.HEALTHY and (obstacle := self.plane.parts.membership.obstacle) is not None:
            return Health.STARTING, obstacle
        if self._health[0] is not Health.HEALTHY or not (still := standstills()):
            return self._health
        return Health.HEALTHY, " ".join([self._health[1], "These stand still:", *map(self._shown, still[:_TOLD])])

    def _shown(self, one: Standstill) -> str:
        return str(one) if one.connector is None else self.plane.redaction(one.connector).text(str(one))

    def beside_state(self, unit: ConnectorTaskId | str) -> Mapping[str, object]:
        """The fields besides the state of a task or connector, without secrets: ``waiting_for`` and, of a task,
        ``progress``, if it has them.
        """
        plane, is_task = self.plane, isinstance(unit, ConnectorTaskId)
        beside: dict[str, object] = {}
        if (found := standstill_of(task_owner(unit) if is_task else connector_owner(str(unit)))) is not None:
            beside["waiting_for"] = found.details
        if plane.serving and isinstance(unit, ConnectorTaskId):
            beside.update(progress_of(plane.parts.worker.hints(unit)))
        shown = plane.redaction(connector_of(unit)).body(beside) if beside else beside
        return shown if isinstance(shown, dict) else {}

    def connectors(self) -> Mapping[str, ConnectorView]:
        """All connectors as they are now; never waits. It includes the facts of their classes once they are known."""
        return Views(self.plane)

    def look_at(self, names: Iterable[str]) -> Future[None] | None:
        """Asks the classes of connectors for their facts, such as their secrets; None if all are known."""
        plane = self.plane
        if not plane.serving:
            return None
        known = plane.snapshot.connectors
        asked = [name for name in names if name in known and not plane.facts.looked_at(name, known[name].config)]

        async def look() -> None:
            await asyncio.gather(*map(self._look_at, asked))

        return self._loop.submit(look) if asked else None

    def active_topics(self, name: str) -> list[str]:
        """The topics that a connector has used since they were reset; never waits."""
        return self.plane.parts.statuses.topics(name) if self.plane.serving else []

    def reset_active_topics(self, name: str) -> None:
        """Forgets the topics that a connector has used."""
        if self.plane.serving:
            self.plane.parts.statuses.reset_topics(name)

    def busy_with(self, name: str) -> str | None:
        """The present step of a request about this connector, with the time it began."""
        return self.plane.stages.get(name)

    # ------------------------------------------------------------------ requests
    def put_connector(
        self,
        name: str,
        config: Mapping[str, str | None],
        *,
        target: TargetState | None = None,
        replace: bool = False,
    ) -> Future[Created]:
        """Creates a connector, or with ``replace`` changes an existing one.

        Done when it is stored; on a standalone worker when it has started and its tasks are configured. ``target`` is
        None for the present target state, or STARTED.
        """
        return self._about(name, lambda: self._changes.put(name, dict(config), target, replace))

    def _about(self, name: str, answer: Callable[[], Coroutine[Any, Any, R]]) -> Future[R]:
        """Serves a request about a connector, and removes the connector's secrets from errors."""

        async def told() -> R:
            try:
                return await answer()
            except Exception as error:
                shown = self.plane.redaction(name).error(error)
                if shown is error:
                    raise
                raise shown from None

        return self._loop.submit(told)

    def patch_connector(self, name: str, patch: Mapping[str, str | None]) -> Future[Created]:
        """Changes some settings of a connector; None removes one."""
        return self._about(name, lambda: self._changes.patch(name, dict(patch)))

    def delete_connector(self, name: str) -> Future[None]:
        """Deletes a connector; its offsets stay."""
        return self._about(name, lambda: self._changes.delete(name))

    def pause_connector(self, name: str) -> Future[None]:
        """Makes PAUSED the target; done when that is noted, not when it is reached."""
        return self._about(name, lambda: self._changes.set_target(name, TargetState.PAUSED))

    def resume_connector(self, name: str) -> Future[None]:
        """Makes STARTED the target; done when that is noted, not when it is reached."""
        return self._about(name, lambda: self._changes.set_target(name, TargetState.STARTED))

    def stop_connector(self, name: str) -> Future[None]:
        """Makes STOPPED the target; done when that is noted and the tasks that run here have ended."""
        return self._about(name, lambda: self._changes.set_target(name, TargetState.STOPPED))

    def restart_connector(self, name: str) -> Future[None]:
        """Replaces the connector's instance; its tasks keep running unless their configurations change."""
        return self._about(name, lambda: self._restarts.connector(name))

    def restart_connector_and_tasks(
        self, name: str, *, include_tasks: bool, only_failed: bool
    ) -> Future[dict[str, object]]:
        """Restarts the matching instances; answers with their status RESTARTING, before the restart is done."""
        return self._about(name, lambda: self._restarts.plan(name, include_tasks, only_failed))

    def restart_task(self, name: str, task: int) -> Future[None]:
        """Replaces one task."""
        return self._about(name, lambda: self._restarts.task(name, task))

    def validate_config(self, config: Mapping[str, str | None]) -> Future[ConfigInfos]:
        """Checks a configuration without creating anything."""
        return self._loop.submit(lambda: self._questions.validate(dict(config)))

    def preview(
        self, config: Mapping[str, str | None], records: Sequence[GivenRecord] | None, limits: PreviewLimits
    ) -> Future[dict[str, object]]:
        """Previews the results of a configuration for some records; creates and commits nothing."""
        return self._loop.submit(lambda: self._questions.preview(dict(config), records, limits))

    def explain(self, name: str) -> Future[dict[str, object]]:
        """The settings with their origin, the offsets, and the waits of the connector and its tasks."""
        return self._about(name, lambda: self._questions.explain(name))

    def start_backfill(self, name: str, request: BackfillRequest) -> Future[dict[str, object]]:
        """Begins to read a range again while the connector runs, or only plans the reads and writes."""
        return self._about(name, lambda: self._backfills.start(name, request))

    def backfill(self, name: str) -> Future[dict[str, object]]:
        """The last backfill of a connector."""
        return self._about(name, lambda: self._backfills.view(name))

    def cancel_backfill(self, name: str) -> Future[None]:
        """Ends the backfill of a connector; the records that it has written stay."""
        return self._about(name, lambda: self._backfills.cancel(name))

    def read_offsets(self, name: str) -> Future[Sequence[OffsetEntry]]:
        """The committed offsets of a connector."""
        return self._about(name, lambda: self._questions.read_offsets(name))

    def alter_offsets(self, name: str, request: AlterRequest) -> Future[dict[str, object]]:
        """Changes the offsets of a stopped connector; done when every reader sees them."""
        if request.dry_run:
            return self._about(
                name, lambda: self._questions.plan_offsets(name, lambda changes: changes.plan_alter(request))
            )
        return self._about(
            name,
            lambda: self._questions.change_offsets(name, "altered", lambda changes: changes.prepare_alter(request)),
        )

    def reset_offsets(self, name: str, *, dry_run: bool) -> Future[dict[str, object]]:
        """Removes the offsets of a stopped connector; done when no reader sees them."""
        if dry_run:
            return self._about(name, lambda: self._questions.plan_offsets(name, OffsetChanges.plan_reset))
        return self._about(name, lambda: self._questions.change_offsets(name, "reset", OffsetChanges.prepare_reset))

    def set_cluster_level(self, logger: str, level: str) -> Future[bool]:
        """Sets the level of a logger on every worker of the group; False if there is no group."""
        return self._loop.submit(lambda: self._set_cluster_level(logger, level))

    # ------------------------------------------------------------------ from other workers of the group
    def check_signature(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> None:
        """See ``WorkerCluster``."""
        cluster = self.plane.parts.cluster if self.plane.serving else None
        if cluster is None:
            raise BadRequestException("Internal request missing required signature")
        cluster.check_signature(method, path, headers, body)

    def put_task_configs(self, name: str, configs: Sequence[dict[str, str]]) -> Future[None]:
        """Stores task configurations that another worker has received from its connector."""
        return self._loop.submit(lambda: self._cluster().put_task_configs(name, configs))

    def fence_zombies(self, name: str) -> Future[None]:
        """Ends the producers of all former tasks of a source connector."""
        return self._loop.submit(lambda: self._cluster().fence_zombies(name))

    def cluster(self) -> Future[dict[str, object]]:
        """The members of the group, the leader, and the work of this worker."""
        return self._loop.submit(self._describe_cluster)

    # ------------------------------------------------------------------ from connectors and tasks, any thread
    def request_task_reconfiguration(self, connector: str) -> None:
        """Queues a request for the connector's task configurations."""
        self._loop.spawn(f"Reconfiguring the tasks of {connector}", lambda: self._reconfiguration.on_request(connector))

    def restart_tasks(self, connector: str, task_ids: Sequence[int] | None) -> None:
        """Queues restarts of these tasks, or all."""
        self._loop.spawn(f"Restarting tasks of {connector}", lambda: self._restarts.some_tasks(connector, task_ids))

    def on_connector_state(self, connector: str, state: State, trace: str | None) -> None:
        """Handles a state that a connector reports."""
        self._report(connector, state, trace)

    def on_task_state(self, task: ConnectorTaskId, state: State, trace: str | None) -> None:
        """Handles a state that a task reports."""
        self._report(task, state, trace)

    def _report(self, unit: Unit, state: State, trace: str | None) -> None:
        plane, name = self.plane, connector_of(unit)
        known = plane.snapshot.connectors.get(name)
        if known is None or (isinstance(unit, ConnectorTaskId) and unit.task >= len(known.tasks)):
            return
        told = None if trace is None else plane.redaction(name).text(trace)
        status = status_of(unit, state, plane, told, plane.facts.known(name, known.config).version)
        plane.parts.statuses.put(status, safe=state in _SAFE)

    # ------------------------------------------------------------------ the herder's thread
    def _begin(self, parts: HerderParts) -> None:
        running = Running(
            self.plane,
            beginning=self._beginning,
            note=self._note,
            started=self._reconfiguration.run,
            ended=self._ended,
        )
        self.plane.serve(parts, running)
        parts.membership.begin()
        self._health = (Health.HEALTHY, "Worker has completed startup and is ready to handle requests.")
        first = parts.config.snapshot
        self._configured(first, [ConnectorChanged(name, None, one.config) for name, one in first.connectors.items()])

    def _configured(self, config: ClusterConfig, changes: Sequence[Change]) -> None:
        """Applies a change of the configuration."""
        plane = self.plane
        if not plane.serving:
            # The first snapshot has the records that were read before the worker was ready.
            return
        before, plane.snapshot = plane.snapshot, config
        touched: set[str] = set()
        for change in changes:
            match change:
                case ConnectorChanged(name, was, now):
                    touched.add(name)
                    self._connector_changed(name, was, now)
                case RestartAsked(name, include_tasks, only_failed):
                    self._loop.begin(f"Restarting {name}", self._restarts.asked(name, include_tasks, only_failed))
                case RecordSkipped(offset, key, reason):
                    log.warning("The config topic's record %s at offset %d is ignored: %s", key, offset, reason)
                case TasksCommitted(name):
                    touched.add(name)
                    self._loop.begin(f"Looking at the tasks of {name}", self._reconfiguration.on_commit(name))
                case TargetChanged(name, target):
                    touched.add(name)
                    if target is TargetState.STARTED and plane.running.target(name) is target:
                        # It was stopped and resumed in one change. That affects its tasks, but not the connector.
                        self.request_task_reconfiguration(name)
                case _ if plane.parts.cluster is not None:
                    plane.parts.cluster.on_change(change)
        plane.parts.membership.configured(before, config)
        plane.reconcile(touched)
        for name in before.connectors.keys() - config.connectors.keys():
            self._let_go_if_ended(name)

    def _connector_changed(self, name: str, was: Mapping[str, str | None] | None, now: object) -> None:
        plane = self.plane
        if now is None:
            plane.facts.forget(name)
            # A connector that is created again at once is another one.
            plane.take_turn(unit for unit in plane.running.units if connector_of(unit) == name)
        elif now == was:
            plane.take_turn([name])
        else:
            self._loop.begin(f"Looking at connector {name}", self._look_at(name))

    async def _look_at(self, name: str) -> None:
        """Finds the facts of a connector for readers."""
        known = self.plane.snapshot.connectors.get(name)
        if known is not None:
            try:
                await self.plane.facts.find(name, known.config)
            except Exception as error:
                # The start of the connector reports the error; readers see an unknown type and no values.
                log.debug("Connector %s cannot be looked at: %s", name, error)
            # The specs of its tasks may depend on its type.
            self.plane.reconcile([name])

    def _beginning(self, unit: Unit) -> None:
        """Reports UNASSIGNED for a unit without a status, or with another worker's status."""
        status = stored_status(self.plane.parts.statuses, unit)
        if status is None or status.worker_id != self.worker_id:
            self._report(unit, State.UNASSIGNED, None)

    def _note(self, unit: Unit, state: State, error: BaseException | None) -> None:
        self._report(unit, state, None if error is None else stack_trace(error))

    def _ended(self, unit: Unit) -> None:
        """Handles the end of a unit: the status of a deleted unit is removed, whichever worker ran it."""
        plane, name = self.plane, connector_of(unit)
        plane.ended(unit)
        known = plane.snapshot.connectors.get(name)
        if known is None or (isinstance(unit, ConnectorTaskId) and unit.task >= len(known.tasks)):
            plane.parts.statuses.forget(unit)
        if known is None and self._let_go_if_ended(name):
            plane.parts.statuses.reset_topics(name)

    def _let_go_if_ended(self, name: str) -> bool:
        """Drops the state of a deleted connector; False while one of its units runs here."""
        plane = self.plane
        if any(connector_of(unit) == name for unit in plane.running.units):
            return False
        plane.parts.on_deleted(name)
        return True

    def _cluster(self) -> WorkerCluster:
        cluster = self.plane.parts.cluster
        if cluster is None:
            raise NotFoundException("This worker is standalone: no other workers share its work")
        return cluster

    async def _set_cluster_level(self, logger: str, level: str) -> bool:
        parts = await self.plane.ready()
        if parts.cluster is None:
            return False
        await self.plane.write(logger_entries(logger, level), leading=False)
        return True

    async def _describe_cluster(self) -> dict[str, object]:
        if not self.plane.serving:
            raise NotReadyException(self._health[1])
        return await self._cluster().describe()

    async def shut_down(self) -> None:
        """Ends everything that runs here, and leaves the group. Thread: the herder's."""
        self._health = (Health.UNHEALTHY, "Worker is shutting down.")
        if self.plane.serving:
            self.plane.worker.backfills.end_all()
            await self.plane.running.end_all()
            await self.plane.parts.membership.close()
