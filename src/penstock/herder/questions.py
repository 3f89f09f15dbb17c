"""Serves requests that start and stop nothing: offsets, validation, previews, explanations.

Main type: ``Questions``. Its methods are coroutines of the herder's thread; what blocks in them runs on threads of its
own. Only a change of offsets holds a lock, so that nobody resumes the connector meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from penstock.errors import ConnectException, KafkaException
from penstock.herder.control_plane import ControlPlane, plain
from penstock.herder.explanation import (
    effective_settings,
    explain_commit,
    explain_offsets,
    explain_roads,
    explain_waiting,
    look_around,
)
from penstock.herder.offset_requests import OffsetChanges, OffsetEntry, PreparedChange, done_message, not_stopped
from penstock.model import TargetState
from penstock.model.preview import GivenRecord, PreviewLimits, PreviewRequest
from penstock.validation.config_infos import ConfigInfos
from penstock.validation.redaction import Redaction
from penstock.validation.secrets import redaction_of
from penstock.validation.setting_warnings import placeholder_warnings

log = logging.getLogger(__name__)

#: As long as a REST request may take.
OFFSETS_TIMEOUT_S: Final = 90.0
#: What tasks on other workers may take to end beyond their deadline, and how often their statuses are looked at.
_STOP_SLACK_S: Final = 5.0
_LOOK_S: Final = 0.02


class Questions:
    """Answers about the connectors of a herder.

    Args:
        plane: What requests work with.
        hook_timeout_s: How long a connector's ``alter_offsets`` may take.
    """

    def __init__(self, plane: ControlPlane, hook_timeout_s: float = OFFSETS_TIMEOUT_S) -> None:
        self._hook_timeout_s = hook_timeout_s
        self._plane = plane

    async def read_offsets(self, name: str) -> Sequence[OffsetEntry]:
        """The committed offsets."""
        changes = await self._offset_changes(name)
        return await self._plane.loop.off_loop(f"offsets-{name}", changes.read)

    async def plan_offsets(self, name: str, plan: Callable[[OffsetChanges], dict[str, object]]) -> dict[str, object]:
        """Describes what a change would do."""
        changes = await self._offset_changes(name)
        return await self._plane.loop.off_loop(f"offsets-{name}", lambda: plan(changes))

    async def change_offsets(
        self, name: str, verb: str, prepare: Callable[[OffsetChanges], PreparedChange]
    ) -> dict[str, object]:
        """Asks the connector, then writes. Other changes of the connector wait meanwhile, so that it stays stopped."""
        plane = self._plane
        parts = await plane.steady(dealt=True)
        parts.membership.require_stable()
        self._require_stopped(name)
        parts.membership.require_leader()
        async with plane.offsets_lock(name):
            await plane.read_all()
            self._require_stopped(name)
            await self._tasks_gone(name)
            changing = None
            if parts.cluster is not None:
                changing = await parts.cluster.fence_for_change(name)
                self._require_stopped(name)
            changes = replace(await self._offset_changes(name), transactional_id=changing)
            with plane.stage(name, "changing the offsets"):
                prepared = await self._prepared(name, lambda: prepare(changes))
                await plane.loop.off_loop(f"offsets-{name}", prepared.write)
        log.info("The offsets of connector %s were %s", name, verb)
        return done_message(verb, prepared.stated)

    async def _prepared(self, name: str, prepare: Callable[[], PreparedChange]) -> PreparedChange:
        """Asks the connector about a change. A connector that does not answer must not keep others waiting for ever."""
        try:
            async with asyncio.timeout(self._hook_timeout_s):
                return await self._plane.loop.off_loop(f"offsets-{name}", prepare)
        except TimeoutError:
            raise ConnectException(
                f"Connector {name} did not answer within {self._hook_timeout_s:g} s whether its offsets may be changed "
                "(alter_offsets), or Kafka did not: nothing was changed"
            ) from None

    async def _tasks_gone(self, name: str) -> None:
        """Waits for tasks that end on other workers: what they commit last must not come behind the change."""
        plane, loop = self._plane, asyncio.get_running_loop()
        end = loop.time() + plane.worker.task_stop_timeout_s + _STOP_SLACK_S
        with plane.stage(name, "ending the tasks"):
            while plane.parts.statuses.tasks(name) and loop.time() < end:
                await asyncio.sleep(_LOOK_S)

    def _require_stopped(self, name: str) -> None:
        known = self._plane.connector(name, f"Connector {name} not found")
        if self._plane.snapshot.target(name) is not TargetState.STOPPED or known.tasks:
            raise not_stopped(name)

    async def _offset_changes(self, name: str) -> OffsetChanges:
        plane = self._plane
        parts = await plane.ready()
        known = plane.connector(name, f"Connector {name} not found")
        given = plain(known.config)
        config = await plane.loop.off_loop(f"resolve-{name}", lambda: parts.worker.resolvable(given).data)
        # Where its class is missing, this says which.
        checked = await plane.facts.find(name, known.config)
        new_connector = partial(parts.validator.new_connector, config)
        return OffsetChanges(name, checked.type, config, parts.worker.offsets, new_connector)

    async def explain(self, name: str) -> dict[str, object]:
        """Settings with their origin, offsets, and what connector and tasks wait for."""
        plane = self._plane
        parts = await plane.ready()
        worker, validator = parts.worker, parts.validator
        changes = await self._offset_changes(name)
        known = plane.connector(name, f"Connector {name} not found")
        view, busy = plane.view(name), plane.stages.get(name)
        assert view is not None
        given, secrets = plain(known.config), plane.secrets.names(name, known)
        # Nothing may run here that has noted what placeholders stand for.
        plane.secrets.note(name, given, changes.config)
        redaction = plane.redaction(name)

        def explain() -> dict[str, object]:
            infos = validator.infos(given, changes.config)
            offsets: list[dict[str, object]] = []
            problem: dict[str, str] = {}
            try:
                offsets = explain_offsets(changes)
            except KafkaException as error:
                problem = {"offsets_error": redaction.text(str(error))}
            last = worker.backfills.view(name)
            beside = {} if last is None else {"backfill": redaction.body(last.to_json())}
            connector, tasks = explain_waiting(
                view,
                busy,
                spark_up=worker.spark_up,
                spark_trouble=worker.spark_trouble,
                around=look_around(changes, view.target, problem.get("offsets_error")),
                hints=worker.hints,
            )
            return {
                "name": name,
                "type": view.type.value,
                "state": None if view.status is None else view.status.state.value,
                "target": view.target.value,
                "waiting_for": redaction.body(connector),
                "tasks": redaction.body(tasks),
                "roads": explain_roads(worker.roads(name)),
                "offsets": offsets,
                **problem,
                **beside,
                "next_commit": explain_commit(
                    view.type, worker.settings, changes.config, exactly_once=worker.exactly_once
                ),
                "settings": effective_settings(infos, given, worker.settings, secrets, view.type),
            }

        return await self._plane.loop.off_loop(f"explain-{name}", explain, ends=True)

    async def preview(
        self, config: dict[str, str | None], records: Sequence[GivenRecord] | None, limits: PreviewLimits
    ) -> dict[str, object]:
        """Previews what a configuration would do to some records."""
        parts = await self._plane.ready()
        worker, validator = parts.worker, parts.validator
        config.setdefault("name", "preview")
        config = self._plane.unmasked(config["name"] or "", config)

        def check() -> tuple[PreviewRequest, Redaction]:
            resolved = worker.resolve({key: value for key, value in config.items() if value is not None})
            checked = validator(config, {**config, **resolved})
            redaction = redaction_of(config, resolved, checked.secrets)
            return PreviewRequest(checked.type, resolved, records, limits), redaction

        # The check may be ended; the preview has a limit of its own.
        wanted, redaction = await self._plane.loop.off_loop("preview-check", check, ends=True)

        def show() -> dict[str, object]:
            try:
                shown = redaction.body(worker.preview(wanted))
            except Exception as error:
                raise redaction.error(error) from None
            assert isinstance(shown, dict)
            return shown

        return await self._plane.loop.off_loop("preview", show)

    async def validate(self, config: dict[str, str | None]) -> ConfigInfos:
        """All settings of a configuration, with their faults."""
        parts = await self._plane.ready()
        worker, validator = parts.worker, parts.validator
        config = self._plane.unmasked(config.get("name") or "", config)

        def check() -> ConfigInfos:
            resolved = worker.resolvable({key: value for key, value in config.items() if value is not None})
            infos = validator.infos(config, {**config, **resolved.data})
            return replace(infos, warnings=[*infos.warnings, *placeholder_warnings(resolved.unresolved)])

        name = config.get("name") or ""
        with self._plane.stage(name, "validating the configuration"):
            return await self._plane.loop.off_loop(f"validate-{name}", check, ends=True)
