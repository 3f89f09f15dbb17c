"""What the admin client makes of brokers that are coming back, without any.

The bytes of OffsetDelete, and the settings of the connections that carry it.
"""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import confluent_kafka as ck
import pytest

from penstock.api import TopicPartition
from penstock.errors import ConfigException, KafkaException, KafkaRetriableException
from penstock.kafka.admin import TopicAdmin
from penstock.kafka.protocol import (
    OFFSET_DELETE,
    MalformedResponse,
    by_place,
    by_topic,
    find_group_coordinator_request,
    framed,
    request,
    response,
)
from penstock.kafka.settings.client import admin_settings
from penstock.kafka.settings.producer import own_connections


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


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def test_a_request_lists_partitions_by_topic() -> None:
    places = [TopicPartition("t", 0), TopicPartition("u", 5), TopicPartition("t", 2)]

    asked = request(OFFSET_DELETE, "g", by_topic(places))

    listed = text("t") + struct.pack(">iii", 2, 0, 2) + text("u") + struct.pack(">ii", 1, 5)
    body = struct.pack(">hhi", 47, 0, 7) + text("me") + text("g") + struct.pack(">i", 2) + listed
    assert b"".join(framed(asked, 7, "me")) == struct.pack(">i", len(body)) + body


def test_the_coordinator_of_a_group_is_asked_for_by_its_kind() -> None:
    asked = framed(find_group_coordinator_request("g"), 1, "me")

    assert b"".join(asked).endswith(text("me") + text("g") + b"\0")


def test_an_answer_has_the_code_of_the_group_and_of_each_partition() -> None:
    payload = struct.pack(">ihii", 7, 0, 100, 1) + text("t") + struct.pack(">iihih", 2, 0, 0, 2, 86)

    code, _, topics = response(OFFSET_DELETE, memoryview(payload))

    assert code == 0
    assert by_place(topics) == {TopicPartition("t", 0): 0, TopicPartition("t", 2): 86}


@pytest.mark.parametrize("size", [0, 5, 11, 15, 20])
def test_an_answer_that_is_cut_off_is_malformed(size: int) -> None:
    payload = struct.pack(">ihii", 7, 0, 100, 1) + text("t") + struct.pack(">iih", 1, 0, 0)

    with pytest.raises(MalformedResponse):
        response(OFFSET_DELETE, memoryview(payload[:size]))


def test_own_connections_have_the_addresses_and_the_login_of_the_admin_client() -> None:
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";'
    worker = {
        "bootstrap.servers": "one:1,two:2",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": login,
        "admin.request.timeout.ms": "7000",
        "connector.client.config.override.policy": "All",
    }

    found = own_connections(admin_settings(worker, {"admin.override.request.timeout.ms": "9000"}, client_id="me"))

    assert [(one.host, one.port) for one in found.bootstrap] == [("one", 1), ("two", 2)]
    assert found.client_id == "me"
    assert found.request_timeout == 9.0
    assert found.tls is not None
    assert found.sasl is not None
    assert found.sasl.username == "a"


def test_own_connections_refuse_what_the_admin_client_refuses() -> None:
    with pytest.raises(ConfigException):
        own_connections(admin_settings({"bootstrap.servers": "a:1", "security.protocol": "MAGIC"}, client_id="me"))
