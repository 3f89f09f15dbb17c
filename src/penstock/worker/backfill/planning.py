"""The messages that a request for a backfill of a sink means: ``sink_ranges``.

Asks Kafka; any thread but the herder's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from penstock.api import TopicPartition
from penstock.errors import BadRequestException, NotFoundException
from penstock.kafka.consumer.subscription import Subscription
from penstock.model.backfill import BackfillRange, BackfillRequest


class Offsets(Protocol):
    """The part of ``TopicAdmin`` that is needed here."""

    def existing_partitions(self, topics: Collection[str] | None) -> set[TopicPartition]:
        """All partitions of topics that exist."""

    def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of the first record that each partition still has."""

    def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition."""

    def offsets_at(self, partitions: Collection[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int]:
        """The first offset of each partition whose record is not older."""


def sink_ranges(request: BackfillRequest, subscription: Subscription, admin: Offsets) -> list[BackfillRange]:
    """The ranges that are read; those without messages are left out.

    Args:
        request: The request.
        subscription: The connector's topics.
        admin: Asks Kafka.

    Raises:
        BadRequestException: An offset or a topic is none of the connector's.
        NotFoundException: None of its topics exists.
    """
    topics = None if subscription.pattern is not None else subscription.topics
    existing = admin.existing_partitions(topics)
    places = sorted(one for one in existing if topics is not None or subscription.covers(one.topic))
    if not places:
        raise NotFoundException("None of the connector's topics exists: there is nothing to read again")
    begins, ends = admin.beginning_offsets(places), admin.end_offsets(places)
    if request.of is not None:
        raise BadRequestException("of names a part of a source; the parts of a sink are partitions of topics: offsets")
    if request.span is not None:
        raise BadRequestException(
            "The offsets of a sink are ranges of topics: objects with kafka_topic, kafka_partition, start_offset and "
            "end_offset, on the command line TOPIC:PARTITION=START..END"
        )
    if request.ranges:
        found = [_checked(one, begins, ends) for one in request.ranges]
        seen = [(one.topic, one.partition) for one in found]
        if len(set(seen)) < len(seen):
            raise BadRequestException("A partition is there twice: a backfill reads one range of each")
    else:
        assert request.start_ms is not None, "a request has times or offsets"
        starts = admin.offsets_at(places, request.start_ms)
        stops = ends if request.end_ms is None else admin.offsets_at(places, request.end_ms)
        found = [BackfillRange(*one, max(starts[one], begins[one]), min(stops[one], ends[one])) for one in places]
    return sorted(one for one in found if one.start < one.end)


def _checked(
    one: BackfillRange, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> BackfillRange:
    place = TopicPartition(one.topic, one.partition)
    if place not in ends:
        raise BadRequestException(f"{one.topic}-{one.partition} is no partition of the connector's topics")
    if not begins[place] <= one.start < one.end <= ends[place]:
        raise BadRequestException(
            f"{one.topic}-{one.partition} has the offsets {begins[place]} to {ends[place]}, and {one.start} to "
            f"{one.end} was asked for: the end is greater than the start, and both are among them"
        )
    return one
