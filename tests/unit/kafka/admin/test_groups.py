"""The bytes of OffsetDelete, and the settings of the connections that carry it."""

from __future__ import annotations

import struct

import pytest

from penstock.api import TopicPartition
from penstock.errors import ConfigException
from penstock.kafka.admin.groups import offset_delete_request, offset_delete_response
from penstock.kafka.producer.transaction_coordinator import find_group_coordinator_request
from penstock.kafka.protocol.messages import MalformedResponse
from penstock.kafka.settings.client import admin_settings
from penstock.kafka.settings.producer import own_connections


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def test_a_request_lists_partitions_by_topic() -> None:
    places = [TopicPartition("t", 0), TopicPartition("u", 5), TopicPartition("t", 2)]

    request = offset_delete_request(7, "me", "g", places)

    listed = text("t") + struct.pack(">iii", 2, 0, 2) + text("u") + struct.pack(">ii", 1, 5)
    body = struct.pack(">hhi", 47, 0, 7) + text("me") + text("g") + struct.pack(">i", 2) + listed
    assert request == struct.pack(">i", len(body)) + body


def test_the_coordinator_of_a_group_is_asked_for_by_its_kind() -> None:
    request = find_group_coordinator_request(1, "me", "g")

    assert request.endswith(text("me") + text("g") + b"\0")


def test_an_answer_has_the_code_of_the_group_and_of_each_partition() -> None:
    payload = struct.pack(">ihii", 7, 0, 100, 1) + text("t") + struct.pack(">iihih", 2, 0, 0, 2, 86)

    code, found = offset_delete_response(memoryview(payload))

    assert code == 0
    assert found == {TopicPartition("t", 0): 0, TopicPartition("t", 2): 86}


@pytest.mark.parametrize("size", [0, 5, 11, 15, 20])
def test_an_answer_that_is_cut_off_is_malformed(size: int) -> None:
    payload = struct.pack(">ihii", 7, 0, 100, 1) + text("t") + struct.pack(">iih", 1, 0, 0)

    with pytest.raises(MalformedResponse):
        offset_delete_response(memoryview(payload[:size]))


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
