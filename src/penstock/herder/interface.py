"""What REST and the command line need of a herder.

Main types: ``Herder`` (a protocol), ``Health``. Requests return futures at once; reads answer from a snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from penstock.herder.config_infos import ConfigInfos
from penstock.herder.offset_requests import AlterRequest, OffsetEntry
from penstock.model import TargetState
from penstock.model.payloads import ConnectorInfo, ConnectorView
from penstock.model.preview import GivenRecord, PreviewLimits


class Health(Enum):
    """How the worker as a whole is, with the text of the health endpoint."""

    STARTING = "starting"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"


@dataclass(frozen=True)
class Created:
    """The outcome of a request that creates or changes a connector."""

    created: bool
    info: ConnectorInfo


class Herder(Protocol):
    """What should run, and how to change it. Thread: any, for every method."""

    @property
    def kafka_cluster_id(self) -> str | None:
        """The id of the Kafka cluster; None while it is not known."""

    def health(self) -> tuple[Health, str]:
        """How the worker is, with a message."""

    def connectors(self) -> Mapping[str, ConnectorView]:
        """All connectors as they are now; never waits."""

    def put_connector(
        self, name: str, config: Mapping[str, str | None], *, target: TargetState | None, replace: bool
    ) -> Future[Created]:
        """Creates a connector, or with ``replace`` changes one that is there."""

    def patch_connector(self, name: str, patch: Mapping[str, str | None]) -> Future[Created]:
        """Changes some settings of a connector; None removes one."""

    def delete_connector(self, name: str) -> Future[None]:
        """Ends a connector and forgets it."""

    def pause_connector(self, name: str) -> Future[None]:
        """Makes PAUSED the target."""

    def resume_connector(self, name: str) -> Future[None]:
        """Makes STARTED the target."""

    def stop_connector(self, name: str) -> Future[None]:
        """Makes STOPPED the target."""

    def restart_connector(self, name: str) -> Future[None]:
        """Replaces the connector's instance; its tasks go on unless their configurations change."""

    def restart_connector_and_tasks(
        self, name: str, *, include_tasks: bool, only_failed: bool
    ) -> Future[dict[str, object]]:
        """Restarts what matches; answers the status with RESTARTING for that."""

    def restart_task(self, name: str, task: int) -> Future[None]:
        """Replaces one task."""

    # ------------------------------------------------------------------ offsets
    def read_offsets(self, name: str) -> Future[Sequence[OffsetEntry]]:
        """The committed offsets of a connector."""

    def alter_offsets(self, name: str, request: AlterRequest) -> Future[dict[str, object]]:
        """Changes the offsets of a stopped connector; answers what to tell the caller."""

    def reset_offsets(self, name: str, *, dry_run: bool) -> Future[dict[str, object]]:
        """Removes the offsets of a stopped connector; answers what to tell the caller."""

    # ------------------------------------------------------------------ the rest
    def validate_config(self, config: Mapping[str, str | None]) -> Future[ConfigInfos]:
        """Checks a configuration without creating anything."""

    def preview(
        self, config: Mapping[str, str | None], records: Sequence[GivenRecord] | None, limits: PreviewLimits
    ) -> Future[dict[str, object]]:
        """Shows what a configuration would do to some records; creates and commits nothing."""

    def explain(self, name: str) -> Future[dict[str, object]]:
        """Settings with their origin, offsets, and what connector and tasks wait for."""

    def active_topics(self, name: str) -> list[str]:
        """The topics that a connector has used since they were reset; never waits."""

    def reset_active_topics(self, name: str) -> None:
        """Forgets them."""

    def busy_with(self, name: str) -> str | None:
        """What a request about this connector waits for now, with the time it began; None when nothing."""
