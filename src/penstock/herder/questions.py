"""Serves requests that start and stop nothing: offsets, validation, previews, explanations.

Main type: ``Questions``. Its methods are coroutines of the herder's thread; what blocks in them runs on threads of its
own. Only a change of offsets holds locks: ``ConnectorEntry.offsets`` all the time, so that nobody resumes the connector
meanwhile, and ``ConnectorEntry.bounded`` while it writes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final

from penstock.errors import ConnectException, KafkaException
from penstock.herder.config_infos import ConfigInfos
from penstock.herder.explanation import (
    effective_settings,
    explain_commit,
    explain_offsets,
    explain_waiting,
    look_around,
)
from penstock.herder.loop import HerderLoop
from penstock.herder.offset_changes import OffsetChanges, PreparedChange
from penstock.herder.offset_requests import OffsetEntry, done_message, not_stopped
from penstock.herder.registry import ConnectorEntry, Registry
from penstock.herder.secrets import unmasked
from penstock.herder.setting_warnings import placeholder_warnings
from penstock.herder.validation import Validator
from penstock.model import ConnectorType, TargetState
from penstock.model.preview import GivenRecord, PreviewLimits, PreviewRequest
from penstock.worker.worker import Worker

log = logging.getLogger(__name__)

#: As long as a REST request may take.
OFFSETS_TIMEOUT_S: Final = 90.0


class Questions:
    """Answers about the connectors of a herder.

    Args:
        loop: The herder's thread.
        registry: Its connectors.
        ready: Waits until the worker is there.
        stage: Says what requests about a connector wait for.
        stages: What they wait for now.
        hook_timeout_s: How long a connector's ``alter_offsets`` may take.
    """

    def __init__(
        self,
        loop: HerderLoop,
        registry: Registry,
        ready: Callable[[], Awaitable[tuple[Worker, Validator]]],
        stage: Callable[[str, str], AbstractContextManager[None]],
        stages: Mapping[str, str],
        hook_timeout_s: float = OFFSETS_TIMEOUT_S,
    ) -> None:
        self._hook_timeout_s = hook_timeout_s
        self._loop = loop
        self._registry = registry
        self._ready = ready
        self._stage = stage
        self._stages = stages

    async def read_offsets(self, name: str) -> Sequence[OffsetEntry]:
        """The committed offsets."""
        changes = await self._offset_changes(name)
        return await self._loop.off_loop(f"offsets-{name}", changes.read)

    async def plan_offsets(self, name: str, plan: Callable[[OffsetChanges], dict[str, object]]) -> dict[str, object]:
        """What a change would do."""
        changes = await self._offset_changes(name)
        return await self._loop.off_loop(f"offsets-{name}", lambda: plan(changes))

    async def change_offsets(
        self, name: str, verb: str, prepare: Callable[[OffsetChanges], PreparedChange]
    ) -> dict[str, object]:
        """Asks the connector, then writes. Other changes of the connector wait meanwhile, so that it stays stopped."""
        await self._ready()
        entry = self._stopped_entry(name)
        async with entry.offsets:
            if self._stopped_entry(name) is not entry:
                raise not_stopped(name)
            changes = await self._offset_changes(name)
            with self._stage(name, "changing the offsets"):
                prepared = await self._prepared(name, lambda: prepare(changes))
                async with entry.bounded:
                    await self._loop.off_loop(f"offsets-{name}", prepared.write)
        log.info("The offsets of connector %s were %s", name, verb)
        return done_message(verb, prepared.stated)

    async def _prepared(self, name: str, prepare: Callable[[], PreparedChange]) -> PreparedChange:
        """What the connector says to a change. One that says nothing must not keep others waiting for ever."""
        try:
            async with asyncio.timeout(self._hook_timeout_s):
                return await self._loop.off_loop(f"offsets-{name}", prepare)
        except TimeoutError:
            raise ConnectException(
                f"Connector {name} did not answer within {self._hook_timeout_s:g} s whether its offsets may be changed "
                "(alter_offsets), or Kafka did not: nothing was changed"
            ) from None

    def _stopped_entry(self, name: str) -> ConnectorEntry:
        entry = self._registry.entry(name, f"Connector {name} not found")
        if entry.target is not TargetState.STOPPED or entry.task_configs:
            raise not_stopped(name)
        return entry

    async def _offset_changes(self, name: str) -> OffsetChanges:
        worker, validator = await self._ready()
        entry = self._registry.entry(name, f"Connector {name} not found")
        config = await self._loop.off_loop(f"resolve-{name}", lambda: worker.resolvable(entry.config).data)
        if entry.checked.type is ConnectorType.UNKNOWN:
            # A stored connector whose class is missing: this says which.
            await self._loop.off_loop(f"validate-{name}", lambda: validator.new_connector(config))
        return OffsetChanges(name, entry.checked.type, config, worker.offsets, lambda: validator.new_connector(config))

    async def explain(self, name: str) -> dict[str, object]:
        """Settings with their origin, offsets, and what connector and tasks wait for."""
        worker, validator = await self._ready()
        entry = self._registry.entry(name, f"Connector {name} not found")
        changes = await self._offset_changes(name)
        view, busy = entry.view(), self._stages.get(name)
        secrets = entry.checked.secrets

        def explain() -> dict[str, object]:
            infos = validator.infos(entry.config, changes.config)
            offsets: list[dict[str, object]] = []
            problem: dict[str, str] = {}
            try:
                offsets = explain_offsets(changes)
            except KafkaException as error:
                problem = {"offsets_error": str(error)}
            connector, tasks = explain_waiting(
                view,
                busy,
                spark_up=worker.spark_up,
                around=look_around(changes, view.target, problem.get("offsets_error")),
                retry_at_ms=worker.retry_at_ms,
                round_began=worker.round_began,
                hints=worker.hints,
            )
            return {
                "name": name,
                "type": view.type.value,
                "state": None if view.status is None else view.status.state.value,
                "target": view.target.value,
                "waiting_for": connector,
                "tasks": list(tasks),
                "offsets": offsets,
                **problem,
                "next_commit": explain_commit(view.type, worker.settings),
                "settings": effective_settings(infos, entry.config, worker.settings, secrets, view.type),
            }

        return await self._loop.off_loop(f"explain-{name}", explain)

    async def preview(
        self, config: dict[str, str | None], records: Sequence[GivenRecord] | None, limits: PreviewLimits
    ) -> dict[str, object]:
        """What a configuration would do to some records."""
        worker, validator = await self._ready()
        config.setdefault("name", "preview")
        known = self._registry.entries.get(config["name"] or "")
        if known is not None:
            config = unmasked(config, known.config, known.checked.secrets)

        def show() -> dict[str, object]:
            resolved = worker.resolve({key: value for key, value in config.items() if value is not None})
            checked = validator(config, {**config, **resolved})
            return worker.preview(PreviewRequest(checked.type, resolved, records, limits))

        return await self._loop.off_loop("preview", show)

    async def validate(self, config: dict[str, str | None]) -> ConfigInfos:
        """All settings of a configuration, with their faults."""
        worker, validator = await self._ready()
        known = self._registry.entries.get(config.get("name") or "")
        if known is not None:
            config = unmasked(config, known.config, known.checked.secrets)

        def check() -> ConfigInfos:
            resolved = worker.resolvable({key: value for key, value in config.items() if value is not None})
            infos = validator.infos(config, {**config, **resolved.data})
            return replace(infos, warnings=[*infos.warnings, *placeholder_warnings(resolved.unresolved)])

        name = config.get("name") or ""
        with self._stage(name, "validating the configuration"):
            return await self._loop.off_loop(f"validate-{name}", check)
