"""Creates, changes, deletes connectors, and changes their target states.

Main type: ``Changes``; its methods are requests, coroutines of the herder's thread. The leader decides and stores them;
what they say comes into force wherever it is read.

Source: org.apache.kafka.connect.runtime.AbstractHerder, StandaloneHerder, DistributedHerder.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping

from penstock.errors import AlreadyExistsException, BadRequestException
from penstock.herder.control_plane import ControlPlane, plain
from penstock.herder.interface import Created
from penstock.herder.known_secrets import still_secret
from penstock.herder.wanted import Unit, connector_of
from penstock.model import TargetState
from penstock.model.cluster_config import ConfiguredConnector, Properties
from penstock.model.config_records import connector_entries, deletion_entries, target_entries, task_entries
from penstock.validation.secrets import check_known
from penstock.validation.setting_warnings import placeholder_warnings
from penstock.validation.validator import Checked

log = logging.getLogger(__name__)


def other_name(name: str, inside: str) -> BadRequestException:
    """The refusal of a configuration that names another connector."""
    return BadRequestException(
        f"Connector name configuration ({inside}) doesn't match connector name in the URL ({name})"
    )


def _check_name(name: str, patch: Mapping[str, str | None]) -> None:
    inside = patch.get("name", name)
    if inside is None:
        raise BadRequestException("The name of a connector cannot be removed from its configuration")
    if inside != name:
        raise other_name(name, inside)


class _OvertakenError(Exception):
    """Another change of the same configuration came first."""


class Changes:
    """Requests that change what is configured.

    Args:
        plane: What requests work with.
    """

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    async def put(self, name: str, config: dict[str, str | None], target: TargetState | None, replace: bool) -> Created:
        """Creates a connector, or with ``replace`` changes one that is there; checks it first.

        A standalone worker has also started it, and configured its tasks, when this is done.

        Raises:
            BadRequestException: the configuration is wrong.
            AlreadyExistsException: it is there and not to be replaced.
        """
        return await self._put(name, config, target, replace)

    async def _put(
        self,
        name: str,
        config: Mapping[str, str | None],
        target: TargetState | None,
        replace: bool,
        based_on: Properties | None = None,
    ) -> Created:
        """See ``put``.

        Raises:
            _OvertakenError: the configuration is not the one any more on which this one is based.
        """
        plane = self._plane
        parts = await plane.steady()
        given, checked = await self._checked(name, {**config, "name": name})
        async with plane.deciding(name):
            parts.membership.require_leader(given)
            known = plane.snapshot.connectors.get(name)
            if known is not None and not replace:
                raise AlreadyExistsException(f"Connector {name} already exists")
            if based_on is not None and (known is None or known.config != based_on):
                raise _OvertakenError
            created = known is None
            plane.facts.learn(name, given, checked)
            secrets = (
                frozenset[str]()
                if known is None
                else still_secret(known, plane.facts.known(name, known.config), checked)
            )
            await plane.write(connector_entries(name, given, target, secrets))
        if parts.membership.sole:
            await plane.running.outcome(name)
        view = plane.view(name)
        if view is None:
            plane.connector(name, f"Connector {name} was deleted meanwhile")
        assert view is not None
        return Created(created, view.info())

    async def _checked(self, name: str, config: dict[str, str | None]) -> tuple[dict[str, str], Checked]:
        """The configuration with its secrets, and what its check has found out."""
        plane = self._plane
        worker, validator = plane.worker, plane.parts.validator
        known = plane.snapshot.connectors.get(name)
        if known is not None:
            await self._look_at(name, known)
        config = plane.unmasked(name, config)

        def check() -> tuple[dict[str, str], Checked]:
            given = {key: value for key, value in config.items() if value is not None}
            found = worker.resolvable(given)
            checked = validator(config, {**config, **found.complete()})
            for warning in (*checked.warnings, *placeholder_warnings(found.unresolved)):
                log.warning("Connector %s: %s", name, warning)
            return given, checked

        with plane.stage(name, "validating the configuration"):
            given, checked = await plane.loop.off_loop(f"validate-{name}", check)
        check_known(given, checked.secrets)
        return given, checked

    async def _look_at(self, name: str, known: ConfiguredConnector) -> None:
        """Has the class of the present configuration say what its secrets are; where it cannot, all are."""
        with contextlib.suppress(Exception):
            await self._plane.facts.find(name, known.config)

    async def patch(self, name: str, patch: dict[str, str | None]) -> Created:
        """Changes some settings of a connector; None removes one."""
        plane = self._plane
        parts = await plane.steady()
        while True:
            await plane.read_all()
            known = plane.connector(name, f"Connector {name} not found")
            _check_name(name, patch)
            await self._look_at(name, known)
            before = plain(known.config)
            change = plane.unmasked(name, patch)
            parts.membership.require_leader(change)
            merged = {key: value for key, value in {**before, **change}.items() if value is not None}
            # Another change may come while this one is checked; then it is merged with that.
            with contextlib.suppress(_OvertakenError):
                return await self._put(name, merged, None, True, known.config)

    async def delete(self, name: str) -> None:
        """Ends a connector and forgets it; its offsets stay. Done when what ran of it here has ended."""
        plane = self._plane
        parts = await plane.steady()
        async with plane.deciding(name):
            parts.membership.require_leader()
            plane.connector(name, f"Connector {name} not found")
            units, before = self._units(name), plane.snapshot
            await plane.write(deletion_entries(name, before))
            if parts.cluster is not None:
                parts.cluster.on_deleted(name, before.connectors[name], before.fenced.get(name))
        with plane.stage(name, "ending the tasks"):
            await plane.running.settled(units)
        log.info("Deleted connector %s", name)

    async def set_target(self, name: str, target: TargetState) -> None:
        """Makes another state the target; done when that is stored, STOPPED when the tasks that ran here have ended."""
        plane = self._plane
        stops = target is TargetState.STOPPED
        parts = await plane.steady() if stops else await plane.ready()
        async with plane.deciding(name):
            if stops:
                parts.membership.require_leader()
            plane.connector(name, f"Unknown connector {name}")
            units = [unit for unit in self._units(name) if not isinstance(unit, str)]
            entries = [*(task_entries(name, ()) if stops else ()), *target_entries(name, target)]
            await plane.write(entries, leading=stops)
        if stops:
            with plane.stage(name, "ending the tasks"):
                await plane.running.settled(units)

    def _units(self, name: str) -> list[Unit]:
        """Returns the units of a connector that run on this worker."""
        return [unit for unit in self._plane.running.units if connector_of(unit) == name]
