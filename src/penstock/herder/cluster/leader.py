"""The duties of the leader of a group other than the assignment.

A record in the config topic holds the number of producers that there may be after a round of fencing. Task
configurations that are committed later require another round. Invariant 4, Invariant 7.

Thread: the herder's; ``plan_fencing`` and the ids are pure.
Source: DistributedHerder (tick, updateDeletedConnectorStatus, updateDeletedTaskStatus, fenceZombieSourceTasks) and
    Worker.fenceZombies of Kafka Connect; KIP-507, KIP-618, KIP-875.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from penstock.errors import (
    ConflictException,
    ConnectException,
    KafkaException,
    KafkaRetriableException,
    TransactionalIdAuthorizationException,
)
from penstock.herder.cluster.connect_protocol import Subprotocol
from penstock.herder.cluster.member import WorkerGroup
from penstock.herder.cluster.session_keys import key_due_ms, new_key
from penstock.herder.control_plane import ControlPlane
from penstock.model.cluster_config import (
    ClusterConfig,
    ConfiguredConnector,
    SessionKey,
    fencing_entries,
    plain,
    session_key_entries,
)
from penstock.settings import DistributedSettings

log = logging.getLogger(__name__)
#: A name that ends like one of a task: its own id could be that of another connector's task.
_LIKE_TASK: Final = re.compile(r".*-[0-9]+", re.DOTALL)
#: The interval of the checks of a task's status, and the time that a task may take to end after its deadline.
_LOOK_S: Final = 0.1
_PAUSE_S: Final = 0.25
#: The number of kept keys: the stored one, and keys whose writes have an unknown outcome.
_KEPT_KEYS: Final = 8
#: The time that a task may take to end after its deadline.
_END_SLACK_S: Final = 5.0
_SIGNED: Final = (Subprotocol.SESSIONED, Subprotocol.PENSTOCK)
Fence = Callable[[str, Mapping[str, str], Sequence[str]], Mapping[str, KafkaException]]
"""Fences the producers of a connector (its name, its resolved settings, the ids); why some could not be, by id."""


def task_id(group_id: str, connector: str, task: int) -> str:
    """The transactional id of a task.

    >>> task_id("connect", "orders", 2)
    'connect-orders-2'
    """
    return f"{group_id}-{connector}-{task}"


def offsets_id(group_id: str, connector: str) -> str:
    """The transactional id with which the leader changes the offsets of a stopped connector.

    >>> offsets_id("connect", "orders"), offsets_id("connect", "orders-0")
    ('connect-orders', 'connect-orders-0-0')
    """
    # The id of KIP-875, unless it may be that of a task of another connector; then the one that Java uses.
    return task_id(group_id, connector, 0) if _LIKE_TASK.fullmatch(connector) else f"{group_id}-{connector}"


def plan_fencing(config: ClusterConfig, connector: str, group_id: str) -> tuple[str, ...] | None:
    """The transactional ids of former tasks, to be fenced before a connector's tasks begin; None if the last round of
    fencing still counts.
    """
    before = config.fenced.get(connector)
    if before is not None and connector not in config.unfenced:
        return None
    # A single new task fences a single former one by itself. Without a record there was no former task.
    if before is None or (before == 1 and len(config.connectors[connector].tasks) == 1):
        return ()
    return tuple(task_id(group_id, connector, one) for one in range(before))


class FencingRounds:
    """Ends the producers of former tasks of a source connector before the present tasks begin (exactly-once sources).

    One round of a connector runs at a time; other callers wait for it. ``fence`` blocks.
    """

    def __init__(self, plane: ControlPlane, require_leader: Callable[[], None], group_id: str, fence: Fence) -> None:
        self._plane = plane
        self._require_leader = require_leader
        self._group_id = group_id
        self._fence = fence
        self._under_way: dict[str, asyncio.Task[None]] = {}

    async def run(self, connector: str) -> None:
        """Runs the round that a connector needs.

        Raises:
            ConflictException: its task configurations have changed during the round, another worker is the leader, or
                Kafka has not answered in time: the caller may retry.
            ConnectException: a producer could not be fenced.
        """
        round_ = self._under_way.get(connector)
        if round_ is None:
            round_ = self._under_way[connector] = asyncio.create_task(self._run(connector))
            round_.add_done_callback(lambda done: self._under_way.pop(connector, None))
        try:
            await asyncio.shield(round_)
        except KafkaRetriableException as error:
            raise ConflictException(f"The producers of connector {connector} are not fenced yet: {error}") from error

    async def _run(self, name: str) -> None:
        plane = self._plane
        self._require_leader()
        await plane.read_all()
        known = plane.connector(name, f"Connector {name} not found")
        former = plan_fencing(plane.snapshot, name, self._group_id)
        if former is None:
            return
        with plane.stage(name, "fencing the producers of former tasks"):
            await self._end_producers(name, known, former)
        async with plane.storing:
            self._require_leader()
            await plane.read_all()
            now = plane.connector(name, f"Connector {name} not found")
            if (now.generation, len(now.tasks)) != (known.generation, len(known.tasks)):
                raise ConflictException(
                    f"The tasks of connector {name} have got other configurations while its former tasks were being "
                    "fenced; try again"
                )
            await plane.write(fencing_entries(name, len(known.tasks)))
        log.info("Connector %s: the producers of %d former tasks were fenced", name, len(former))

    async def run_for_change(self, connector: str) -> str:
        """Runs the round that a stopped connector needs before its offsets are changed; raises like ``run``.

        Returns the transactional id for the change. Every later round fences a change that is still in progress.
        """
        await self.run(connector)
        return offsets_id(self._group_id, connector)

    async def forget(self, name: str, known: ConfiguredConnector, count: int) -> None:
        """Fences the tasks of a deleted connector, then removes the record of their number."""
        plane, loop = self._plane, asyncio.get_running_loop()
        end = loop.time() + plane.worker.task_stop_timeout_s + _END_SLACK_S
        while plane.parts.statuses.tasks(name) and loop.time() < end:
            await asyncio.sleep(_LOOK_S)
        ids = [task_id(self._group_id, name, one) for one in range(count)]
        await self._end_producers(name, known, ids)
        async with plane.storing:
            self._require_leader()
            await plane.read_all()
            if name not in plane.snapshot.connectors and plane.snapshot.fenced.get(name) == count:
                await plane.write([(key, None) for key, _ in fencing_entries(name, 0)])

    async def _end_producers(self, name: str, known: ConfiguredConnector, tasks: Sequence[str]) -> None:
        worker, given, offsets = self._plane.worker, plain(known.config), offsets_id(self._group_id, name)

        def fence() -> Mapping[str, KafkaException]:
            return self._fence(name, worker.resolve(given), [*tasks, offsets])

        failures = dict(await self._plane.loop.off_loop(f"fence-{name}", fence))
        if isinstance(failures.get(offsets), TransactionalIdAuthorizationException):
            # This user cannot have sent records with it.
            log.info("Connector %s: %s", name, failures.pop(offsets))
        if failures:
            first = next(iter(failures.values()))
            if all(isinstance(one, KafkaRetriableException) for one in failures.values()):
                raise ConflictException(
                    f"{len(failures)} producers of former tasks of connector {name} are not fenced yet; try again: "
                    f"{first}"
                ) from first
            raise ConnectException(
                f"{len(failures)} producers of former tasks of connector {name} could not be fenced, so that its tasks "
                f"do not begin: {first}"
            ) from first


class LeaderDuties:
    """Makes and replaces the session key with which workers sign, keeps the right to write the config topic, and
    removes the statuses of deleted connectors and tasks, while this worker leads.
    """

    def __init__(
        self,
        plane: ControlPlane,
        group: WorkerGroup,
        settings: DistributedSettings,
        *,
        clock_ms: Callable[[], int],
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._plane = plane
        self._group = group
        self._settings = settings
        self._clock_ms = clock_ms
        self._random_bytes = random_bytes
        self._leading: asyncio.Task[None] | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._claimed = False
        # The last keys that it has made as the leader.
        self._own_keys: list[SessionKey] = []
        #: True if a worker outside of the group has written a session key while this worker led. Read by any thread.
        self.foreign_key = False

    def on_round(self, leads: bool) -> None:
        """Called when a round has come into force."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        if leads:
            self._sweeping = self._plane.loop.begin("Forgetting statuses", self._sweep())
            if self._leading is None or self._leading.done():
                self._leading = self._plane.loop.begin("Leading the group", self._lead())
        else:
            self._stop_leading()
            self._claimed, self._own_keys, self.foreign_key = False, [], False

    def on_session_key(self) -> None:
        """Called when a session key was read."""
        key = self._plane.snapshot.session_key
        if self._group.place.leads and self._own_keys and key not in self._own_keys and not self.foreign_key:
            self._plane.loop.begin("Looking for another group", self._find_other_group())

    def reclaim(self) -> None:
        """Called when another writer has taken the right to write the config topic; the leader takes it back."""
        self._claimed = False
        self._stop_leading()
        self.on_round(self._group.place.leads)

    def _stop_leading(self) -> None:
        if self._leading is not None:
            self._leading.cancel()
            self._leading = None

    async def _find_other_group(self) -> None:
        """Handles a key of another worker: that is the next leader, of which this worker hears soon, or of another
        group.
        """
        loop = asyncio.get_running_loop()
        since_s = loop.time()
        while not self._group.heard_since(since_s):
            if not self._group.place.leads or loop.time() > since_s + self._group.settings.session_timeout_ms / 1000:
                return
            await asyncio.sleep(_PAUSE_S)
        if not self._group.place.leads or self.foreign_key:
            return
        self.foreign_key = True
        log.error(
            "Another group of workers writes to the config topic %s: a session key in it is none of the group %s, "
            "which this worker leads. What either group configures, both run: give each group.id topics of its own",
            self._settings.config_topic,
            self._settings.group_id,
        )
        # With a key of this group, the other one finds out, too.
        self._stop_leading()
        self._leading = self._plane.loop.begin("Leading the group", self._lead())

    async def _lead(self) -> None:
        while True:
            try:
                await self._claim()
                due_ms = await self._keep_key()
            except (ConnectException, KafkaException) as error:
                log.warning("The leader cannot claim the config topic or write a session key, and retries: %s", error)
                await asyncio.sleep(_PAUSE_S)
                continue
            if due_ms is None:
                return
            await asyncio.sleep(due_ms / 1000)

    async def _claim(self) -> None:
        """Takes the right to write the config topic from former leaders."""
        if not self._claimed:
            await self._plane.loop.off_loop("claim", self._plane.parts.config.claim)
            self._claimed = True

    async def _keep_key(self) -> int | None:
        """Makes a session key if one is due; returns the milliseconds until the next one.

        A new leader makes one in any case, so that another leader on this config topic notices it.
        """
        settings = self._settings.keys
        if self._group.place.protocol not in _SIGNED:
            return None
        known = self._plane.snapshot.session_key
        due_ms = key_due_ms(known, settings, self._clock_ms()) if known in self._own_keys else 0
        if due_ms == 0:
            key = new_key(settings, self._clock_ms(), self._random_bytes)
            self._own_keys = [*self._own_keys[-_KEPT_KEYS:], key]
            await self._plane.write(session_key_entries(key))
            log.info("The leader has written another session key for the group %s", self._settings.group_id)
            due_ms = key_due_ms(key, settings, self._clock_ms())
        return due_ms

    async def _sweep(self) -> None:
        """Removes the statuses of deleted connectors and tasks: of lost workers at once, of others after their deadline
        to end.

        A worker removes the statuses of its own ended instances.
        """
        there = {urlsplit(url).netloc for url in self._group.dealt.members.values()}
        self._forget_statuses(lambda worker_id: worker_id not in there)
        await asyncio.sleep(self._settings.task_shutdown_graceful_timeout_ms / 1000 + _END_SLACK_S)
        self._forget_statuses(lambda worker_id: True)

    def _forget_statuses(self, ended: Callable[[str], bool]) -> None:
        statuses, snapshot = self._plane.parts.statuses, self._plane.snapshot
        for name in statuses.names():
            known = snapshot.connectors.get(name)
            count = 0 if known is None else len(known.tasks)
            gone = [task for task in statuses.tasks(name) if task.id.task >= count and ended(task.worker_id)]
            for task in gone:
                statuses.forget(task.id)
            status = statuses.connector(name)
            if known is None and (status is None or ended(status.worker_id)):
                statuses.forget(name)
                statuses.reset_topics(name)
