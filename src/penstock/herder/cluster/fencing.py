"""Ends the producers of former tasks of a source connector before those of now begin: exactly-once sources.

Main types: ``FencingRounds``, which the leader does; ``FencingRound``, what one has to do. Main functions:
``plan_fencing``, which decides it, and ``task_id`` and ``offsets_id``, the transactional ids of a connector.

A round is recorded in the config topic: how many producers there may be after it. Task configurations that are
committed later ask for the next one. Invariant 4, Invariant 7.

Thread: the herder's; ``plan_fencing`` and the ids are pure.
Source: KIP-618; DistributedHerder.fenceZombieSourceTasks, Worker.fenceZombies of Kafka Connect; KIP-875.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.errors import (
    ConflictException,
    ConnectException,
    KafkaException,
    KafkaRetriableException,
    TransactionalIdAuthorizationException,
)
from penstock.herder.control_plane import ControlPlane, plain
from penstock.model.cluster_config import ClusterConfig, ConfiguredConnector
from penstock.model.config_records import fencing_entries

log = logging.getLogger(__name__)

#: A name that ends like one of a task: its own id would be that of another connector's task.
_LIKE_TASK: Final = re.compile(r".*-[0-9]+", re.DOTALL)
#: What ending a task may take beyond its deadline, and how often its status is looked at.
_END_SLACK_S: Final = 5.0
_LOOK_S: Final = 0.1

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


@dataclass(frozen=True)
class FencingRound:
    """The work to be done before the tasks of a connector begin.

    Attributes:
        tasks: The transactional ids of former tasks.
        offsets: That of a change of offsets.
        count: How many producers there may be from now on.
    """

    tasks: tuple[str, ...]
    offsets: str
    count: int


def plan_fencing(config: ClusterConfig, connector: str, group_id: str) -> FencingRound | None:
    """The round that a connector needs before its tasks begin; None where the last one still counts."""
    known = config.connectors[connector]
    before, count = config.fenced.get(connector), len(known.tasks)
    if before is not None and connector not in config.unfenced:
        return None
    # A single task of now ends a single one of before by itself. Without a record there was none.
    alone = before is None or (before == 1 and count == 1)
    tasks = () if alone or before is None else tuple(task_id(group_id, connector, one) for one in range(before))
    return FencingRound(tasks, offsets_id(group_id, connector), count)


class FencingRounds:
    """The rounds of a leader. Of one connector there is one at a time; whoever asks meanwhile waits for that.

    Args:
        plane: What requests work with.
        require_leader: Lets the leader pass alone.
        group_id: Of the group.
        fence: Fences producers; blocks.
    """

    def __init__(self, plane: ControlPlane, require_leader: Callable[[], None], group_id: str, fence: Fence) -> None:
        self._plane = plane
        self._require_leader = require_leader
        self._group_id = group_id
        self._fence = fence
        self._under_way: dict[str, asyncio.Task[None]] = {}

    async def run(self, connector: str) -> None:
        """Does the round that a connector needs.

        Raises:
            ConflictException: its task configurations have changed meanwhile, another worker leads, or Kafka has not
            answered in time: to be tried again.
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
        planned = plan_fencing(plane.snapshot, name, self._group_id)
        if planned is None:
            return
        with plane.stage(name, "fencing the producers of former tasks"):
            await self._end_producers(name, known, planned.tasks, planned.offsets)
        async with plane.storing:
            self._require_leader()
            await plane.read_all()
            now = plane.connector(name, f"Connector {name} not found")
            if (now.generation, len(now.tasks)) != (known.generation, planned.count):
                raise ConflictException(
                    f"The tasks of connector {name} have got other configurations while its former tasks were being "
                    "fenced; try again"
                )
            await plane.write(fencing_entries(name, planned.count))
        log.info("Connector %s: the producers of %d former tasks were fenced", name, len(planned.tasks))

    async def run_for_change(self, connector: str) -> str:
        """Does the round that a stopped connector needs before its offsets are changed; raises as `run`.

        Returns:
            The transactional id to change them with. Every later round ends whoever still does.
        """
        await self.run(connector)
        return offsets_id(self._group_id, connector)

    async def forget(self, name: str, known: ConfiguredConnector, count: int) -> None:
        """Fences the tasks of a connector that was deleted, then forgets how many there were."""
        plane, loop = self._plane, asyncio.get_running_loop()
        end = loop.time() + plane.worker.task_stop_timeout_s + _END_SLACK_S
        while plane.parts.statuses.tasks(name) and loop.time() < end:
            await asyncio.sleep(_LOOK_S)
        ids = [task_id(self._group_id, name, one) for one in range(count)]
        await self._end_producers(name, known, ids, offsets_id(self._group_id, name))
        async with plane.storing:
            self._require_leader()
            await plane.read_all()
            if name not in plane.snapshot.connectors and plane.snapshot.fenced.get(name) == count:
                await plane.write([(key, None) for key, _ in fencing_entries(name, 0)])

    async def _end_producers(self, name: str, known: ConfiguredConnector, tasks: Sequence[str], offsets: str) -> None:
        worker, given = self._plane.worker, plain(known.config)

        def fence() -> Mapping[str, KafkaException]:
            return self._fence(name, worker.resolve(given), [*tasks, offsets])

        failures = dict(await self._plane.loop.off_loop(f"fence-{name}", fence))
        if isinstance(failures.get(offsets), TransactionalIdAuthorizationException):
            # Nobody of this user's can have sent with it, then.
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
