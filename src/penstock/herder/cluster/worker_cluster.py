"""A worker as a member of a group: requests from the other workers, and requests to them.

Thread: the herder's, but for ``check_signature``.
Source: org.apache.kafka.connect.runtime.distributed.DistributedHerder.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from penstock.errors import (
    BadRequestException,
    ConflictException,
    ConnectException,
    ForbiddenException,
    KafkaException,
    KafkaRetriableException,
)
from penstock.herder.cluster.connect_protocol import Subprotocol
from penstock.herder.cluster.leader import FencingRounds, LeaderDuties
from penstock.herder.cluster.member import WorkerGroup
from penstock.herder.cluster.session_keys import Verifier
from penstock.herder.control_plane import ControlPlane, NotHereException
from penstock.herder.running import AssignedTask
from penstock.model import ConnectorTaskId, ConnectorType, TargetState
from penstock.model.cluster_config import Change, ConfiguredConnector, LoggerLevelAsked, SessionKeyChanged, task_entries
from penstock.model.states import Unit, all_units

log = logging.getLogger(__name__)

_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 60.0
#: The interval at which a wait for a heartbeat checks for the answer.
_LOOK_S: Final = 0.05


class OtherWorkers(Protocol):
    """Requests to workers, which REST sends. Every method blocks: any thread except the herder's.

    Each raises ConnectException if the other worker cannot be reached or refuses.
    """

    def put_task_configs(self, url: str, connector: str, configs: Sequence[dict[str, str]]) -> None:
        """Asks the leader to store the task configurations of a connector."""

    def fence(self, url: str, connector: str) -> None:
        """Asks the leader to end the producers of all former tasks of a source connector."""

    def restart_task(self, url: str, task: ConnectorTaskId) -> None:
        """Asks a worker to restart a task that it runs."""


def wait_for(holds: Callable[[], bool], timeout_s: float) -> bool:
    """Blocks until a condition is true, for at most ``timeout_s`` seconds; returns True if it is."""
    pause, end = threading.Event(), time.monotonic() + timeout_s
    while not (found := holds()) and time.monotonic() < end:
        pause.wait(_LOOK_S)
    return found


class WorkerCluster:
    """One worker of several.

    Args:
        plane: The shared state of requests.
        group: The worker's membership.
        duties: The duties of the leader.
        verifier: Checks signatures.
        others: Sends requests to the other workers.
        set_level: Sets the level of a logger of this worker.
        fencing: Ends the producers of former tasks, while this worker leads; None if sources are not exactly-once.
        wait_for: See the function ``wait_for``.
    """

    def __init__(
        self,
        plane: ControlPlane,
        group: WorkerGroup,
        duties: LeaderDuties,
        verifier: Verifier,
        others: OtherWorkers,
        set_level: Callable[[str, str], object],
        fencing: FencingRounds | None = None,
        wait_for: Callable[[Callable[[], bool], float], bool] = wait_for,
    ) -> None:
        self._plane = plane
        self._group = group
        self._duties = duties
        self._verifier = verifier
        self._others = others
        self._set_level = set_level
        self._fencing = fencing
        self._wait_for = wait_for

    # ------------------------------------------------------------------ requests of other workers
    def check_signature(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> None:
        """Checks that a request comes from a worker of the group; ``body`` is None before it is read. Thread: any."""
        protocol = self._group.place.protocol
        if protocol in (Subprotocol.EAGER, Subprotocol.COMPATIBLE):
            # The protocol of the group decides: not every worker of it may be able to sign.
            return
        key = self._plane.snapshot.session_key
        body_alone = protocol is not Subprotocol.PENSTOCK
        self._verifier.check(key, method, path, headers, body, body_alone=body_alone)

    async def put_task_configs(self, name: str, configs: Sequence[dict[str, str]]) -> None:
        """Stores task configurations that another worker has received from its connector."""
        await self._plane.ready()
        await self._store(name, configs)

    async def fence_zombies(self, name: str) -> None:
        """Ends the producers of all former tasks of a source connector."""
        if self._fencing is None:
            raise BadRequestException(
                "exactly.once.source.support is disabled on this worker: there is nothing to fence"
            )
        await self._plane.ready()
        await self._fencing.run(name)

    async def describe(self) -> dict[str, object]:
        """The members, the leader, and the work of this worker."""
        group, place = self._group, self._group.place
        body: dict[str, object] = {
            "worker_id": self._plane.worker_id,
            "group_id": group.settings.group_id,
            "config_topic": group.settings.config_topic,
            "obstacle": group.obstacle,
            "member_id": place.member_id or None,
            "generation": place.generation,
            "protocol": None if place.protocol is None else place.protocol.value,
            "leader": place.leader_url,
            "is_leader": place.leads,
            "config_offset": self._plane.snapshot.offset,
            **_listed(place.assigned),
            "next_rebalance_in_ms": group.delay_left_ms(),
        }
        if place.leads:
            dealt = group.dealt
            body["members"] = [
                {"member_id": member, "url": url, **_listed(unit for unit, at in dealt.owners.items() if at == url)}
                for member, url in sorted(dealt.members.items())
            ]
            body["waiting"] = _listed(set(all_units(dealt.task_counts)) - dealt.owners.keys())
            if self._duties.foreign_key:
                body["warning"] = "another group of workers writes to this config topic"
        return body

    # ------------------------------------------------------------------ requests to other workers
    async def publish(self, name: str, configs: Sequence[dict[str, str]], counts: Callable[[], bool]) -> None:
        """Stores the task configurations of a connector that runs here. Retries as long as they count, because no other
        worker stores them.
        """
        pause = _FIRST_PAUSE_S
        while counts():
            try:
                stored = await self._elsewhere(
                    "tasks", self._group.require_leader, lambda url: self._others.put_task_configs(url, name, configs)
                )
                if not stored and counts():
                    await self._store(name, configs)
                return
            except (ConnectException, KafkaException) as error:
                log.warning(
                    "The task configurations of connector %s could not be stored; the next try is in %.2f s: %s",
                    name,
                    pause,
                    error,
                )
            await self._group.next_round(pause)
            pause = min(_LONGEST_PAUSE_S, 2 * pause)

    async def restart_elsewhere(self, task: ConnectorTaskId) -> None:
        """Restarts a task that another worker runs."""
        await self._elsewhere(
            "restart", lambda: self._group.require_owner(task), lambda url: self._others.restart_task(url, task)
        )

    async def _elsewhere(self, thread: str, require: Callable[[], None], ask: Callable[[str], None]) -> bool:
        """Asks the worker that ``require`` names, unless it is this one: then the result is False.

        Raises:
            NotHereException: the worker is unknown now.
        """
        try:
            require()
        except NotHereException as elsewhere:
            url = elsewhere.url
            if url is None:
                raise
            await self._plane.loop.off_loop(thread, lambda: ask(url))
            return True
        return False

    async def _store(self, name: str, configs: Sequence[dict[str, str]]) -> None:
        """Stores task configurations, as the leader."""
        plane = self._plane
        async with plane.storing:
            self._group.require_leader()
            await plane.read_all()
            plane.connector(name, f"Connector {name} not found")
            if configs and plane.snapshot.target(name) is TargetState.STOPPED:
                raise BadRequestException(
                    f"Cannot submit non-empty set of task configs for connector {name}: it is stopped, and has no tasks"
                )
            await plane.write(task_entries(name, configs))

    def on_fenced(self) -> None:
        """Called when another worker has taken the leader's right to write."""
        self._duties.reclaim()

    def on_change(self, change: Change) -> None:
        """Called with other changes of the config store: log levels, session keys."""
        match change:
            case LoggerLevelAsked(logger, level):
                self._set_level(logger, level)
            case SessionKeyChanged():
                self._duties.on_session_key()

    # ------------------------------------------------------------------ exactly-once sources
    def fences(self, connector: str) -> bool | None:
        """True if each commit of a connector's tasks ends all tasks before it (exactly-once sources); None while its
        class has not answered yet.
        """
        plane = self._plane
        known = plane.snapshot.connectors.get(connector)
        if self._fencing is None or known is None:
            return False
        if not plane.facts.looked_at(connector, known.config):
            return None
        return plane.facts.known(connector, known.config).type is ConnectorType.SOURCE

    async def prepare(self, task: ConnectorTaskId, counts: Callable[[], bool]) -> bool:
        """Ends the former producers of a task that is about to be built. Retries as long as the task counts, unless the
        leader says that it cannot succeed.

        Returns:
            True if it may begin; False only if it shall no longer run here.

        Raises:
            ConnectException: the error that fails the task.
        """
        pause, refused = _FIRST_PAUSE_S, False
        while counts():
            if not self.fences(task.connector):
                return True
            try:
                await self._fence(task.connector)
                return True
            except ForbiddenException:
                # The group may sign with another key by now, which this worker has not read yet.
                if refused:
                    raise
                refused = True
                await self._plane.read_all()
                continue
            except (ConflictException, NotHereException) as error:
                log.warning("Task %s waits, and asks again in %.2f s: %s", task, pause, error)
            await self._group.next_round(pause)
            pause = min(_LONGEST_PAUSE_S, 2 * pause)
        return False

    async def _fence(self, connector: str) -> None:
        """Asks the leader to end the producers of former tasks."""
        assert self._fencing is not None
        if not await self._elsewhere(
            "fence", self._group.require_leader, lambda url: self._others.fence(url, connector)
        ):
            await self._fencing.run(connector)

    def confirm(self, task: ConnectorTaskId, spec: AssignedTask, counts: Callable[[], bool]) -> None:
        """Raises ConnectException unless a task shall still run here, with the same settings. Waits for an unreadable
        config topic, as long as the task counts. Blocks; not the herder's thread.
        """
        store = self._plane.parts.config

        def read() -> bool:
            try:
                store.refresh(self._group.settings.worker_sync_timeout_ms / 1000)
            except (ConnectException, KafkaException) as error:
                log.warning("Task %s waits, because the config topic cannot be read: %s", task, error)
                return not counts()
            return True

        if not self._wait_for(read, math.inf):
            raise KafkaRetriableException("The config topic cannot be read")
        config = store.snapshot
        known = config.connectors.get(task.connector)
        if known is None or task.task >= len(known.tasks) or known.generation != spec.generation:
            raise ConnectException(f"Task {task} has got another configuration while it was starting")
        if task not in set(self._group.place.assigned):
            raise ConnectException(f"Task {task} was given to another worker while it was starting")

    def confirm_owner(self, task: ConnectorTaskId, since_s: float) -> bool:
        """True if the group has confirmed after this monotonic time that a task is this worker's. Blocks; not the
        herder's thread.
        """
        group = self._group

        def owns() -> bool:
            return group.heard_since(since_s) and task in set(group.place.assigned)

        return self._wait_for(owns, group.settings.session_timeout_ms / 1000)

    async def fence_for_change(self, connector: str) -> str | None:
        """Called before the offsets of a stopped connector are changed.

        Returns:
            The transactional id with which they are changed, where tasks write them in transactions; else None.
        """
        plane = self._plane
        if self._fencing is None:
            return None
        known = plane.connector(connector, f"Connector {connector} not found")
        # The connector may run on another worker, so this worker may not have asked its class yet.
        if (await plane.facts.find(connector, known.config)).type is not ConnectorType.SOURCE:
            return None
        return await self._fencing.run_for_change(connector)

    def on_deleted(self, connector: str, known: ConfiguredConnector, fenced: int | None) -> None:
        """Called on the leader when a connector was deleted; ``fenced`` is the recorded number of its producers."""
        if self._fencing is not None and fenced is not None:
            self._plane.loop.begin(f"Fencing the tasks of {connector}", self._fencing.forget(connector, known, fenced))


def _listed(units: Iterable[Unit]) -> dict[str, object]:
    """Connectors by name and tasks by connector and number, as JSON."""
    found = list(units)
    tasks = sorted(unit for unit in found if isinstance(unit, ConnectorTaskId))
    return {
        "connectors": sorted(unit for unit in found if isinstance(unit, str)),
        "tasks": [task.to_json() for task in tasks],
    }
