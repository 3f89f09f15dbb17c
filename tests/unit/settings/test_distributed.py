"""A distributed worker's file."""

from __future__ import annotations

import pytest

from penstock.kafka.group.settings import group_settings
from penstock.kafka.topic_log.internal_topics import InternalTopic, Kind
from penstock.model import ConnectorTaskId
from penstock.settings import DistributedSettings, InvalidSettingsError
from penstock.stores.offsets import MemoryOffsetStore
from penstock.worker.source.delivery_guarantee import SourceOffsets

MINIMUM = {"bootstrap.servers": "one:9092", "key.converter": "JsonConverter", "value.converter": "JsonConverter"}


def test_the_group_and_the_topics_have_the_names_of_kafkas_documentation_where_none_are_set() -> None:
    settings = DistributedSettings.parse(MINIMUM)

    assert settings.defaulted == (
        ("group.id", "connect-cluster"),
        ("config.storage.topic", "connect-configs"),
        ("offset.storage.topic", "connect-offsets"),
        ("status.storage.topic", "connect-status"),
    )
    assert (settings.group_id, settings.config_topic) == ("connect-cluster", "connect-configs")


def test_a_name_that_is_not_set_is_the_same_for_everybody_who_uses_it() -> None:
    settings = DistributedSettings.parse(MINIMUM)
    offsets = SourceOffsets(MemoryOffsetStore(), settings.raw, exactly_once=True)

    assert group_settings(settings.raw, client_id="c").group_id == settings.group_id
    assert offsets.transactional_id(ConnectorTaskId("a", 0)) == f"{settings.group_id}-a-0"
    topics = [InternalTopic.of(kind, settings.raw).name for kind in Kind]
    own = [settings.config_topic, settings.offset_topic, settings.status_topic, settings.bulk_storage_topic]
    assert topics == own


def test_what_is_set_is_not_told_as_a_default() -> None:
    settings = DistributedSettings.parse({**MINIMUM, "group.id": "mine", "config.storage.topic": "c"})

    assert [name for name, _ in settings.defaulted] == ["offset.storage.topic", "status.storage.topic"]
    assert (settings.raw["group.id"], settings.raw["config.storage.topic"]) == ("mine", "c")


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"group.id": " "}, "group.id"),
        ({"status.storage.topic": ""}, "status.storage.topic"),
        ({"status.storage.topic": "connect-configs"}, "status.storage.topic"),
        ({"heartbeat.interval.ms": "10000"}, "heartbeat.interval.ms"),
        ({"config.storage.replication.factor": "0"}, "config.storage.replication.factor"),
        ({"offset.storage.partitions": "0"}, "offset.storage.partitions"),
        ({"exactly.once.source.support": "maybe"}, "exactly.once.source.support"),
        ({"connect.protocol": "cooperative"}, "connect.protocol"),
        ({"inter.worker.key.size": "4"}, "inter.worker.key.size"),
        ({"inter.worker.signature.algorithm": "HmacSHA512"}, "inter.worker.verification.algorithms"),
        ({"inter.worker.signature.algorithm": "AESCMAC"}, "inter.worker.signature.algorithm"),
    ],
)
def test_what_cannot_work_is_refused_by_name(wrong: dict[str, str], key: str) -> None:
    with pytest.raises(InvalidSettingsError) as refused:
        DistributedSettings.parse({**MINIMUM, **wrong})

    assert key in {fault.key for fault in refused.value.faults}
    assert key in str(refused.value)
