"""Requests about consumer groups that the Kafka client does not support.

Main type: ``GroupClient``, a ``TopicAdmin`` that also deletes single committed offsets (KIP-496), over connections of
the worker's own. ``offset_delete_request`` and ``offset_delete_response`` are the bytes of the protocol; they are pure.

Thread: any; a call blocks, and opens and closes its own connections.

Source: KIP-496; the Kafka protocol guide, "OffsetDelete".
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import confluent_kafka as ck

from penstock.api import TopicPartition
from penstock.errors import KafkaRetriableException
from penstock.kafka.admin.topics import MISSING_GROUP, TopicAdmin
from penstock.kafka.network.connections import Conversation
from penstock.kafka.producer.transaction_coordinator import find_coordinator_response, find_group_coordinator_request
from penstock.kafka.protocol.messages import INT16, INT32, VERSIONS, Api, body, header, sized, string
from penstock.kafka.settings.client import ClientSettings
from penstock.kafka.settings.producer import ColumnSettings, own_connections
from penstock.telemetry.logs import SeldomLog

logger = logging.getLogger(__name__)

_NONE: Final = 0
_NEEDS: Final = {api: VERSIONS[api] for api in (Api.FIND_COORDINATOR, Api.OFFSET_DELETE)}


def offset_delete_request(correlation: int, client_id: str, group: str, partitions: Iterable[TopicPartition]) -> bytes:
    """Asks the coordinator of a group to delete the offsets of some partitions."""
    topics: dict[str, list[int]] = {}
    for at in partitions:
        topics.setdefault(at.topic, []).append(at.partition)
    listed = b"".join(
        string(topic) + INT32.pack(len(numbers)) + b"".join(INT32.pack(number) for number in numbers)
        for topic, numbers in topics.items()
    )
    return sized(header(Api.OFFSET_DELETE, correlation, client_id), string(group), INT32.pack(len(topics)), listed)


def offset_delete_response(payload: memoryview) -> tuple[int, Mapping[TopicPartition, int]]:
    """Returns the error code of the group, and that of each partition.

    Raises:
        MalformedResponse: The bytes do not follow the protocol.
    """
    fields = body(payload, Api.OFFSET_DELETE)
    code = fields.integer(INT16)
    fields.integer(INT32)  # throttle time
    found: dict[TopicPartition, int] = {}

    def topic() -> None:
        name = fields.string()

        def partition() -> None:
            number = fields.integer(INT32)
            found[TopicPartition(name, number)] = fields.integer(INT16)

        fields.array(partition)

    fields.array(topic)
    fields.end()
    return code, found


def delete_offsets(
    settings: ColumnSettings, group: str, partitions: Iterable[TopicPartition], timeout_s: float, *, name: str
) -> tuple[int, Mapping[TopicPartition, int]]:
    """Deletes the committed offsets of these partitions; all other offsets stay as they are.

    Args:
        settings: The addresses of the brokers, and the login.
        group: The group's id.
        partitions: The partitions; one without a committed offset is no error.
        timeout_s: The time limit.
        name: Names the client in messages.

    Returns:
        The error code of the group, which may come from the search for its coordinator, and the error code of each
        partition; 0 for none.

    Raises:
        KafkaRetriableException: No broker answers in time.
        KafkaException: A broker refuses the login, or does not support these requests.
    """
    asked = list(partitions)
    talk = Conversation(settings, name, _NEEDS, timeout_s, SeldomLog(logger))
    try:
        coordinator = talk.ask(
            None,
            lambda number, client: find_group_coordinator_request(number, client, group),
            find_coordinator_response,
            f"Asking for the coordinator of group {group}",
        )
        if coordinator.error_code != _NONE:
            return coordinator.error_code, {}
        return talk.ask(
            coordinator.address,
            lambda number, client: offset_delete_request(number, client, group, asked),
            offset_delete_response,
            f"Deleting offsets of group {group}",
        )
    finally:
        talk.close()


@dataclass(frozen=True)
class _Answered:
    """A completed answer with the interface of a future."""

    codes: Mapping[TopicPartition, int]

    def result(self, timeout: float) -> Mapping[TopicPartition, int]:
        return self.codes


class GroupClient(TopicAdmin):
    """Topics and consumer groups of one cluster.

    Args:
        client: The settings of an admin client.
        name: Names the client in messages.
        timeout_s: The time limit of a call.

    Raises:
        ConfigException: A setting is refused.
    """

    def __init__(self, client: ClientSettings, *, name: str, timeout_s: float) -> None:
        super().__init__(dict(client.checked().librdkafka), name=name, timeout_s=timeout_s)
        self._client_settings = client

    def delete_group_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Deletes the offsets of these partitions; other offsets stay, with their metadata.

        A partition without a committed offset is no error.

        Raises:
            KafkaException: A member of the group reads one of their topics, or the cluster refused or did not answer.
        """
        named = list(partitions)
        if not named:
            return
        connections = own_connections(self._client_settings)
        doing = f"deleting offsets of group {group}"

        def request(_: object, left: float) -> _Answered:
            try:
                code, answers = delete_offsets(connections, group, named, left, name=f"{self._name} (offsets)")
            except KafkaRetriableException as error:
                raise ck.KafkaException(ck.KafkaError(ck.KafkaError._TIMED_OUT, str(error))) from error
            if code:
                raise ck.KafkaException(ck.KafkaError(code))
            return _Answered(answers)

        answers: Mapping[TopicPartition, int] = self.ask(doing, request, missing=MISSING_GROUP, otherwise={})
        for at, code in answers.items():
            if code:
                self._refuse_partition(doing, at, ck.KafkaError(code))
