"""What the admin client makes of brokers that are coming back, without any."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import confluent_kafka as ck
import pytest

from penstock.api import TopicPartition
from penstock.errors import KafkaException, KafkaRetriableException
from penstock.kafka.admin.topics import TopicAdmin


class Answers:
    """A client whose requests fail with these codes, one after the other, and are then answered."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)

    def poll(self, timeout_s: float) -> int:
        return 0

    def list_offsets(self, wanted: dict[ck.TopicPartition, Any], **_: Any) -> dict[ck.TopicPartition, Any]:
        return dict.fromkeys(wanted, self)

    def result(self, timeout_s: float) -> Any:
        if self.codes:
            raise ck.KafkaException(ck.KafkaError(self.codes.pop(0), "Failed to query partition leaders"))
        return SimpleNamespace(offset=7)


def admin(client: Answers) -> TopicAdmin:
    made = TopicAdmin({"bootstrap.servers": "127.0.0.1:1"}, name="test", timeout_s=5)
    made._client = client  # type: ignore[assignment]
    return made


@pytest.mark.parametrize("code", [ck.KafkaError._NOENT, ck.KafkaError.LEADER_NOT_AVAILABLE])
def test_partitions_without_leaders_are_asked_for_again(code: int) -> None:
    at = TopicPartition("t", 0)

    assert admin(Answers(code, code)).beginning_offsets([at]) == {at: 7}


@pytest.mark.parametrize("code", [ck.KafkaError._NOENT, ck.KafkaError._TIMED_OUT])
def test_who_asks_in_vain_may_ask_again_later(code: int) -> None:
    with pytest.raises(KafkaRetriableException, match=r"check bootstrap\.servers"):
        admin(Answers(*[code] * 1000)).beginning_offsets([TopicPartition("t", 0)], timeout_s=0)


def test_what_was_refused_is_not_asked_again() -> None:
    client = Answers(ck.KafkaError.TOPIC_AUTHORIZATION_FAILED)

    with pytest.raises(KafkaException) as refused:
        admin(client).beginning_offsets([TopicPartition("t", 0)])

    assert not isinstance(refused.value, KafkaRetriableException)
    assert client.codes == []


class Offsets(Answers):
    """The same for offsets of a group: each answer is about a partition, and may be an error of that one."""

    def alter_consumer_group_offsets(self, requests: list[Any], **_: Any) -> dict[str, Any]:
        return {requests[0].group_id: self}

    def result(self, timeout_s: float) -> Any:
        error = ck.KafkaError(self.codes.pop(0)) if self.codes else None
        return SimpleNamespace(topic_partitions=[SimpleNamespace(topic="t", partition=0, error=error)])


def test_offsets_of_a_group_whose_coordinator_moves_are_set_later() -> None:
    client = Offsets(ck.KafkaError.NOT_COORDINATOR, ck.KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
    admin(client).alter_group_offsets("g", {TopicPartition("t", 0): 5})
    assert client.codes == []


def test_offsets_that_a_broker_refuses_for_a_partition_are_an_error() -> None:
    with pytest.raises(KafkaException, match="at t-0 failed"):
        admin(Offsets(ck.KafkaError.UNKNOWN_TOPIC_OR_PART)).alter_group_offsets("g", {TopicPartition("t", 0): 5})
