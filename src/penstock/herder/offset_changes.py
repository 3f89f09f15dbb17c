"""Requests about the offsets of one connector: parses, checks and serves them, with Kafka's error texts.

``OffsetChanges`` serves: its methods block (on a broker, a disk, or the connector's own hook). The functions are pure.

Source: AbstractHerder.alterConnectorOffsets, SinkUtils and ConnectUtils of Kafka Connect; KIP-875.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from penstock.api import Connector, SinkConnector, SourceConnector, TopicPartition
from penstock.errors import BadRequestException, ConflictException, ConnectException, DataException, RetriableException
from penstock.model import ConnectorType
from penstock.stores.offsets import key_bytes, partition_identity, value_bytes
from penstock.worker.connector_offsets import ConnectorOffsets, SinkPlan

if TYPE_CHECKING:
    from penstock.kafka.consumer.offsets import Subscription

TOPIC: Final = "kafka_topic"
PARTITION: Final = "kafka_partition"
OFFSET: Final = "kafka_offset"
TIMESTAMP: Final = "kafka_timestamp"

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_MAX_PARTITION: Final = 2**31 - 1
_MAX_OFFSET: Final = 2**63 - 1


@dataclass(frozen=True)
class OffsetEntry:
    """One entry of an offsets body, from JSON."""

    partition: Mapping[str, object] | None
    offset: Mapping[str, object] | None

    def to_json(self) -> dict[str, object]:
        return {
            "partition": None if self.partition is None else dict(self.partition),
            "offset": None if self.offset is None else dict(self.offset),
        }


@dataclass(frozen=True)
class AlterRequest:
    """A request to change offsets.

    Attributes:
        entries: The new offset of each partition.
        timestamp_ms: Instead of entries, for a sink: all partitions of its group are set to this time.
        dry_run: True to return the plan only.
    """

    entries: Sequence[OffsetEntry] = ()
    timestamp_ms: int | None = None
    dry_run: bool = False


def not_stopped(connector: str) -> BadRequestException:
    """The refusal to change the offsets of a connector that may run."""
    return BadRequestException(
        "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for the "
        f"specified connector by issuing a 'PUT' request to the '/connectors/{connector}/stop' endpoint"
    )


def sink_offsets(
    entries: Sequence[OffsetEntry],
) -> tuple[dict[TopicPartition, int | None], dict[TopicPartition, int]]:
    """The offsets, and the timestamps, that a sink's entries name; the last entry of a partition counts."""
    offsets: dict[TopicPartition, int | None] = {}
    timestamps: dict[TopicPartition, int] = {}
    for entry in entries:
        at = _topic_partition(entry.partition)
        offsets.pop(at, None)
        timestamps.pop(at, None)
        offset = entry.offset
        if offset is None:
            offsets[at] = None
        elif TIMESTAMP in offset and OFFSET in offset:
            raise BadRequestException(
                f"The offset of {at} has both '{OFFSET}' and '{TIMESTAMP}': leave one of them out"
            )
        elif TIMESTAMP in offset:
            timestamps[at] = _number(offset[TIMESTAMP], "timestamp", "Timestamps", _MAX_OFFSET)
        elif OFFSET not in offset:
            raise BadRequestException(
                f"The offset for a sink connector should either be null or contain the key '{OFFSET}'"
            )
        else:
            offsets[at] = _number(offset[OFFSET], "offset", "Offset values", _MAX_OFFSET)
    return offsets, timestamps


def source_offsets(entries: Sequence[OffsetEntry]) -> list[OffsetEntry]:
    """Returns a source's entries; raises BadRequestException for an entry that cannot be stored."""
    for entry in entries:
        try:
            key_bytes("", entry.partition)
            value_bytes(entry.offset)
        except DataException as error:
            raise BadRequestException(str(error)) from error
    return list(entries)


def entries_of_sink(offsets: Mapping[TopicPartition, int | None]) -> list[OffsetEntry]:
    """A sink's offsets as REST shows them."""
    return [
        OffsetEntry(
            {TOPIC: at.topic, PARTITION: at.partition},
            None if offset is None else {OFFSET: offset},
        )
        for at, offset in sorted(offsets.items())
    ]


def offsets_body(entries: Sequence[OffsetEntry]) -> dict[str, object]:
    """The body that lists offsets."""
    return {"offsets": [entry.to_json() for entry in entries]}


def done_message(verb: str, stated: bool) -> dict[str, object]:
    """The answer to a change (``altered`` or ``reset``); ``stated`` if the connector has declared that it handles
    offsets.
    """
    if stated:
        return {"message": f"The offsets for this connector have been {verb} successfully"}
    return {
        "message": f"The Connect framework-managed offsets for this connector have been {verb} successfully. However, "
        f"if this connector manages offsets externally, they will need to be manually {verb} in the system that the "
        "connector uses."
    }


def describe_sink_plan(verb: str, plan: SinkPlan, default_to_beginning: bool) -> dict[str, object]:
    """Describes the effect of a change (``altered`` or ``reset``) of a sink's offsets, for ``dry_run``.

    ``default_to_beginning`` is the start of a partition without an offset (``auto.offset.reset``).
    """
    listed = []
    again_sum = 0
    for at in sorted(plan.after):
        end = plan.ends[at]
        start = plan.beginnings[at] if default_to_beginning else end
        before, after = plan.before.get(at), plan.after[at]
        here = start if before is None else before
        there = start if after is None else after
        # Records removed from the log, or not written yet, are not read, whatever the offset.
        here, there = (min(max(at_offset, plan.beginnings[at]), end) for at_offset in (here, there))
        again, skipped = max(0, here - there), max(0, there - here)
        again_sum += again
        listed.append(
            {
                "partition": {TOPIC: at.topic, PARTITION: at.partition},
                "current": None if before is None else {OFFSET: before},
                "new": None if after is None else {OFFSET: after},
                "records_read_again": again,
                "records_skipped": skipped,
                "records_left": end - there,
            }
        )
    return {
        "message": f"Nothing was changed: the offsets would be {verb}; {again_sum} records would be read again",
        "dry_run": True,
        "offsets": listed,
    }


def describe_source_plan(verb: str, before: Sequence[OffsetEntry], after: Sequence[OffsetEntry]) -> dict[str, object]:
    """Describes the effect of a change of a source's offsets. Only the source system knows the number of records."""
    known = {partition_identity(entry.partition): entry.offset for entry in before}
    listed = [
        {
            "partition": None if entry.partition is None else dict(entry.partition),
            "current": known.get(partition_identity(entry.partition)),
            "new": entry.offset,
        }
        for entry in after
    ]
    return {
        "message": f"Nothing was changed: the offsets of {len(listed)} source partitions would be {verb}",
        "dry_run": True,
        "offsets": listed,
    }


def _topic_partition(partition: Mapping[str, object] | None) -> TopicPartition:
    if partition is None:
        raise BadRequestException("The partition for a sink connector offset cannot be null or missing")
    if TOPIC not in partition or PARTITION not in partition:
        raise BadRequestException(
            f"The partition for a sink connector offset must contain the keys '{TOPIC}' and '{PARTITION}'"
        )
    topic, number = partition[TOPIC], partition[PARTITION]
    if topic is None:
        raise BadRequestException("Kafka topic names must be valid strings and may not be null")
    if number is None:
        raise BadRequestException("Kafka partitions must be valid numbers and may not be null")
    return TopicPartition(str(topic), _number(number, "partition", "Partition values", _MAX_PARTITION))


def _number(value: object, what: str, noun: str, maximum: int) -> int:
    # As Java prints it: true, null.
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    whole = not isinstance(value, bool) and isinstance(value, int | str)
    if not whole or _INTEGER.fullmatch(text) is None or abs(int(text)) > maximum:
        raise BadRequestException(
            f"Failed to parse the following Kafka {what} value in the provided offsets: '{text}'. "
            f"{noun} for sink connectors need to be integers."
        )
    number = int(text)
    if number < 0:
        raise BadRequestException(f"The Kafka {what} {number} in the provided offsets must not be negative")
    return number


@dataclass(frozen=True)
class PreparedChange:
    """A change that its connector has accepted.

    Attributes:
        stated: True if the connector has declared that it handles offsets.
        write: Makes the change; may block for a broker or disk.
    """

    stated: bool
    write: Callable[[], None]


@dataclass(frozen=True)
class OffsetChanges:
    """The offsets of one connector.

    Attributes:
        config: Its settings, placeholders resolved.
        offsets: The offset stores.
        new_connector: Makes a fresh instance of its class.
        transactional_id: The id for changes of a source's offsets, if its tasks write in transactions.
    """

    connector: str
    type: ConnectorType
    config: Mapping[str, str]
    offsets: ConnectorOffsets
    new_connector: Callable[[], Connector]
    transactional_id: str | None = None

    def read(self) -> list[OffsetEntry]:
        if self.type is ConnectorType.SINK:
            return entries_of_sink(self.offsets.read_sink(self.connector, self.config))
        found = self.offsets.read_source(self.connector, self.config)
        return [OffsetEntry(partition, offset) for partition, offset in found]

    # ------------------------------------------------------------------ alter
    def prepare_alter(self, request: AlterRequest) -> PreparedChange:
        """Checks the request and asks the connector; raises ConnectException if either refuses."""
        if self.type is ConnectorType.SINK:
            wanted = self._sink_target(request)
            self.offsets.check_sink(self.connector, self.config, wanted)
            stated = self._ask_sink("alter", wanted)
            return PreparedChange(stated, lambda: self.offsets.alter_sink(self.connector, self.config, wanted))
        entries = self._source_target(request)
        stated = self._ask_source("alter", entries)
        partitions = [entry.partition for entry in entries]
        return PreparedChange(stated, lambda: self._write_source(entries, partitions))

    def plan_alter(self, request: AlterRequest) -> dict[str, object]:
        if self.type is ConnectorType.SINK:
            plan = self.offsets.plan_sink(self.connector, self.config, self._sink_target(request))
            return describe_sink_plan("altered", plan, self._begins_at_start())
        return describe_source_plan("altered", self.read(), self._source_target(request))

    # ------------------------------------------------------------------ reset
    def prepare_reset(self) -> PreparedChange:
        """Like ``prepare_alter``, for the removal of all offsets."""
        if self.type is ConnectorType.SINK:
            known = dict.fromkeys(self.offsets.read_sink(self.connector, self.config))
            instance = self.new_connector()
            if isinstance(instance, SinkConnector) and instance.has_positions:
                topics = self.subscription()
                known |= dict.fromkeys(self.offsets.partitions_of(self.connector, self.config, topics))
            stated = self._ask_sink("reset", known)
            return PreparedChange(stated, lambda: self.offsets.reset_sink(self.connector, self.config))
        entries = [replace(entry, offset=None) for entry in self.read()]
        stated = self._ask_source("reset", entries)
        return PreparedChange(stated, lambda: self._write_source(entries, None))

    def plan_reset(self) -> dict[str, object]:
        if self.type is ConnectorType.SINK:
            known = dict.fromkeys(self.offsets.read_sink(self.connector, self.config))
            plan = self.offsets.plan_sink(self.connector, self.config, known)
            return describe_sink_plan("reset", plan, self._begins_at_start())
        before = self.read()
        return describe_source_plan("reset", before, [replace(entry, offset=None) for entry in before])

    def subscription(self) -> Subscription:
        # Imported here: it brings the Kafka client, and the command imports this module before the REST server listens.
        from penstock.kafka.consumer.offsets import Subscription

        regex, topics = self.config.get("topics.regex"), self.config.get("topics") or ""
        if regex:
            return Subscription.matching(regex)
        return Subscription.of(filter(None, map(str.strip, topics.split(","))))

    # ------------------------------------------------------------------ parts
    def _sink_target(self, request: AlterRequest) -> dict[TopicPartition, int | None]:
        if request.timestamp_ms is not None:
            return {**self.offsets.at_timestamp(self.connector, self.config, (), request.timestamp_ms)}
        found, timestamps = sink_offsets(request.entries)
        for moment in sorted(set(timestamps.values())):
            partitions = [at for at, when in timestamps.items() if when == moment]
            found.update(self.offsets.at_timestamp(self.connector, self.config, partitions, moment))
        return found

    def _source_target(self, request: AlterRequest) -> list[OffsetEntry]:
        if request.timestamp_ms is not None:
            raise BadRequestException(
                f"Connector {self.connector} is a source: only the offsets of sinks can be set to a timestamp"
            )
        return source_offsets(request.entries)

    def _write_source(
        self, entries: Sequence[OffsetEntry], partitions: Collection[Mapping[str, object] | None] | None
    ) -> None:
        # First: with the new offsets and old markers, rows that are to be read again would count as written.
        self.offsets.forget_runs(self.connector, self.config, partitions)
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
        offsets = {
            None if entry.partition is None else frozenset(entry.partition.items()): entry.offset for entry in entries
        }
        return self._ask(verb, lambda: instance.alter_offsets(dict(self.config), offsets))  # type: ignore[arg-type]

    def _ask(self, verb: str, ask: Callable[[], bool]) -> bool:
        try:
            return bool(ask())
        except NotImplementedError as error:
            raise BadRequestException(
                f"Failed to {verb} offsets for connector {self.connector} because it doesn't support external "
                f"modification of offsets{f': {error}' if str(error) else ''}"
            ) from error
        except (RetriableException, ConflictException, BadRequestException):
            raise
        except ConnectException as error:
            raise BadRequestException(str(error)) from error
        except BaseException as error:
            raise ConnectException(
                f"Failed to {verb} offsets for connector {self.connector}: its alter_offsets raised "
                f"{type(error).__name__}: {error}"
            ) from error

    def _begins_at_start(self) -> bool:
        return self.config.get("consumer.override.auto.offset.reset", "earliest") == "earliest"
