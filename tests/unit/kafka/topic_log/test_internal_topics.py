"""What a worker's settings say of its internal topics."""

import pytest

from penstock.errors import ConfigException
from penstock.kafka.topic_log.internal_topics import InternalTopic, Kind

WORKER = {
    "config.storage.topic": "configs",
    "offset.storage.topic": "offsets",
    "status.storage.topic": "statuses",
}


def test_defaults_are_javas() -> None:
    found = [InternalTopic.of(kind, WORKER) for kind in Kind]

    assert [(topic.name, topic.partitions, topic.replication_factor) for topic in found] == [
        ("configs", 1, 3),
        ("offsets", 25, 3),
        ("statuses", 5, 3),
        ("penstock-bulk", 5, -1),
    ]
    assert all(topic.configs == {"cleanup.policy": "compact"} for topic in found)


def test_further_settings_become_the_topics(caplog: pytest.LogCaptureFixture) -> None:
    worker = {
        **WORKER,
        "config.storage.partitions": "4",
        "config.storage.min.insync.replicas": "2",
        "config.storage.cleanup.policy": "delete",
        "config.storage.file.filename": "/left/over",
        "offset.storage.segment.ms": "1",
    }

    topic = InternalTopic.of(Kind.CONFIG, worker)

    assert topic.partitions == 1
    assert topic.configs == {"min.insync.replicas": "2", "cleanup.policy": "compact"}
    assert "config.storage.cleanup.policy = delete is ignored" in caplog.text


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("offset.storage.partitions", "0"),
        ("offset.storage.partitions", "many"),
        ("offset.storage.replication.factor", "-2"),
        ("offset.storage.topic", " "),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_setting(setting: str, text: str) -> None:
    with pytest.raises(ConfigException) as raised:
        InternalTopic.of(Kind.OFFSET, {**WORKER, setting: text})

    assert raised.value.name == setting


def test_a_connectors_own_offsets_topic_is_named_by_the_connector() -> None:
    topic = InternalTopic.of_connector({**WORKER, "offset.storage.partitions": "7"}, "own")

    assert (topic.name, topic.partitions, topic.named_by) == ("own", 7, "offsets.storage.topic")
