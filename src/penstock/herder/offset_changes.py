"""Serves requests about the offsets of one connector.

Main type: ``OffsetChanges``. Every method blocks (on a broker, a disk, or the connector's own hook) and is called on a
thread of the caller's choice; it holds no state.

Source: org.apache.kafka.connect.runtime.AbstractHerder.alterConnectorOffsets; KIP-875; runtime.md section 14.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.api import Connector, SinkConnector, SourceConnector, TopicPartition
from penstock.errors import BadRequestException, ConflictException, ConnectException
from penstock.herder.offset_requests import (
    AlterRequest,
    OffsetEntry,
    describe_sink_plan,
    describe_source_plan,
    entries_of_sink,
    frozen_partition,
    sink_offsets,
    source_offsets,
)
from penstock.model import ConnectorType
from penstock.worker.connector_offsets import ConnectorOffsets


@dataclass(frozen=True)
class PreparedChange:
    """A change that its connector has agreed to.

    Attributes:
        stated: Whether the connector said that it knows about offsets.
        write: Does it; may block for as long as a broker or disk takes.
    """

    stated: bool
    write: Callable[[], None]


@dataclass(frozen=True)
class OffsetChanges:
    """The offsets of one connector.

    Attributes:
        connector: Its name.
        type: Source or sink.
        config: Its settings, placeholders resolved.
        offsets: Where offsets are.
        new_connector: A fresh instance of its class.
        transactional_id: With which a source's offsets are changed, where its tasks write in transactions.
    """

    connector: str
    type: ConnectorType
    config: Mapping[str, str]
    offsets: ConnectorOffsets
    new_connector: Callable[[], Connector]
    transactional_id: str | None = None

    def read(self) -> list[OffsetEntry]:
        """The committed offsets."""
        if self.type is ConnectorType.SINK:
            return entries_of_sink(self.offsets.read_sink(self.connector, self.config))
        found = self.offsets.read_source(self.connector, self.config)
        return [OffsetEntry(partition, offset) for partition, offset in found]

    # ------------------------------------------------------------------ alter
    def prepare_alter(self, request: AlterRequest) -> PreparedChange:
        """Checks the request and asks the connector.

        Raises:
            BadRequestException: the request is wrong.
            ConnectException: the connector refuses.
        """
        if self.type is ConnectorType.SINK:
            wanted = self._sink_target(request)
            self.offsets.check_sink(self.connector, self.config, wanted)
            stated = self._ask_sink("alter", wanted)
            return PreparedChange(stated, lambda: self.offsets.alter_sink(self.connector, self.config, wanted))
        entries = self._source_target(request)
        stated = self._ask_source("alter", entries)
        return PreparedChange(stated, lambda: self._write_source(entries))

    def plan_alter(self, request: AlterRequest) -> dict[str, object]:
        """What the request would do."""
        if self.type is ConnectorType.SINK:
            plan = self.offsets.plan_sink(self.connector, self.config, self._sink_target(request))
            return describe_sink_plan("altered", plan, self._begins_at_start())
        return describe_source_plan("altered", self.read(), self._source_target(request))

    # ------------------------------------------------------------------ reset
    def prepare_reset(self) -> PreparedChange:
        """As ``prepare_alter``, for the removal of all offsets."""
        if self.type is ConnectorType.SINK:
            known = dict.fromkeys(self.offsets.read_sink(self.connector, self.config))
            stated = self._ask_sink("reset", known)
            return PreparedChange(stated, lambda: self.offsets.reset_sink(self.connector, self.config))
        entries = [replace(entry, offset=None) for entry in self.read()]
        stated = self._ask_source("reset", entries)
        return PreparedChange(stated, lambda: self._write_source(entries))

    def plan_reset(self) -> dict[str, object]:
        """What a reset would do."""
        if self.type is ConnectorType.SINK:
            known = dict.fromkeys(self.offsets.read_sink(self.connector, self.config))
            plan = self.offsets.plan_sink(self.connector, self.config, known)
            return describe_sink_plan("reset", plan, self._begins_at_start())
        before = self.read()
        return describe_source_plan("reset", before, [replace(entry, offset=None) for entry in before])

    # ------------------------------------------------------------------ parts
    def _sink_target(self, request: AlterRequest) -> dict[TopicPartition, int | None]:
        if request.timestamp_ms is not None:
            return {**self.offsets.at_timestamp(self.connector, self.config, (), request.timestamp_ms)}
        wanted = sink_offsets(request.entries)
        found = dict(wanted.offsets)
        for moment in sorted(set(wanted.timestamps.values())):
            partitions = [at for at, when in wanted.timestamps.items() if when == moment]
            found.update(self.offsets.at_timestamp(self.connector, self.config, partitions, moment))
        return found

    def _source_target(self, request: AlterRequest) -> list[OffsetEntry]:
        if request.timestamp_ms is not None:
            raise BadRequestException(
                f"Connector {self.connector} is a source: only the offsets of sinks can be set to a timestamp"
            )
        return source_offsets(request.entries)

    def _write_source(self, entries: Sequence[OffsetEntry]) -> None:
        offsets = [(entry.partition, entry.offset) for entry in entries]
        self.offsets.write_source(self.connector, self.config, offsets, self.transactional_id)

    def _ask_sink(self, verb: str, offsets: Mapping[TopicPartition, int | None]) -> bool:
        instance = self.new_connector()
        assert isinstance(instance, SinkConnector)
        return self._ask(verb, lambda: instance.alter_offsets(dict(self.config), dict(offsets)))

    def _ask_source(self, verb: str, entries: Sequence[OffsetEntry]) -> bool:
        instance = self.new_connector()
        assert isinstance(instance, SourceConnector)
        # A source partition may be null, which only a connector can judge.
        offsets = {frozen_partition(entry.partition): entry.offset for entry in entries}
        return self._ask(verb, lambda: instance.alter_offsets(dict(self.config), offsets))  # type: ignore[arg-type]

    def _ask(self, verb: str, ask: Callable[[], bool]) -> bool:
        try:
            return bool(ask())
        except NotImplementedError as error:
            raise BadRequestException(
                f"Failed to {verb} offsets for connector {self.connector} because it doesn't support external "
                f"modification of offsets{f': {error}' if str(error) else ''}"
            ) from error
        except (ConnectException, ConflictException):
            raise
        except Exception as error:
            raise ConnectException(
                f"Failed to {verb} offsets for connector {self.connector}: its alter_offsets raised "
                f"{type(error).__name__}: {error}"
            ) from error

    def _begins_at_start(self) -> bool:
        return self.config.get("consumer.override.auto.offset.reset", "earliest") == "earliest"
