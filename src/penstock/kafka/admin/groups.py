"""Requests about consumer groups that the Kafka client does not support.

Main type: ``GroupClient``, a ``TopicAdmin`` that also deletes single offsets. Thread: any; calls block.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import confluent_kafka as ck

from penstock.api import TopicPartition
from penstock.errors import KafkaRetriableException
from penstock.kafka.admin.offset_deletion import delete_offsets
from penstock.kafka.admin.topics import MISSING_GROUP, TopicAdmin
from penstock.kafka.settings.client import ClientSettings
from penstock.kafka.settings.producer import own_connections


@dataclass(frozen=True)
class _Answered:
    """An answer that is already complete, with the interface of a future."""

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
