import base64
import json
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import confluent_kafka as ck
import pyarrow as pa
import pytest
from testkit.brokers.group_member import group_member
from testkit.doubles.source_doubles import produce_batch

from penstock.api import OffsetAndMetadata, RecordMetadata, TopicPartition
from penstock.broker import EmbeddedBroker, free_port
from penstock.errors import AlreadyExistsException, KafkaException, KafkaRetriableException
from penstock.kafka.admin import GroupClient, TopicAdmin, TopicDescription
from penstock.kafka.producer.column_producer import ColumnProducer
from penstock.kafka.producer.in_flight import FailedDelivery
from penstock.kafka.settings.client import admin_settings, producer_settings
from penstock.kafka.settings.producer import ColumnSettings

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@dataclass(frozen=True)
class Wanted:
    name: str
    partitions: int = 1
    replication_factor: int = 1
    configs: Mapping[str, str] = field(default_factory=dict)


@pytest.fixture
def admin(broker: EmbeddedBroker) -> Iterator[GroupClient]:
    settings = admin_settings({"bootstrap.servers": broker.bootstrap_servers}, client_id="admin-test").checked()
    client = GroupClient(settings, name="admin-test", timeout_s=20)
    yield client
    client.close()


def new_name(stem: str) -> str:
    return f"{stem}-{uuid.uuid4().hex[:8]}"


def test_a_cluster_has_an_id_that_stays(admin: GroupClient) -> None:
    assert len(admin.cluster_id()) == 22
    assert admin.cluster_id() == admin.cluster_id()


def test_a_topic_is_made_as_specified_and_asking_does_not_make_one(admin: GroupClient) -> None:
    topic, absent = new_name("made"), new_name("absent")

    admin.create_topic(Wanted(topic, partitions=3, configs={"cleanup.policy": "compact"}))

    assert admin.topic_exists(topic)
    assert not admin.topic_exists(absent)
    assert admin.describe_topics([topic, absent]) == {topic: TopicDescription(topic, 3, 1)}


def test_numbers_of_minus_one_are_the_brokers_defaults(admin: GroupClient) -> None:
    topic = new_name("default")

    admin.create_topic(Wanted(topic, partitions=-1, replication_factor=-1))

    assert admin.describe_topics([topic]) == {topic: TopicDescription(topic, 1, 1)}


def test_an_existing_topic_is_an_error_of_its_own_and_none_in_a_race(admin: GroupClient) -> None:
    topic = new_name("raced")
    made: list[set[str]] = []
    racers = [threading.Thread(target=lambda: made.append(admin.create_topics([Wanted(topic)]))) for _ in range(4)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(30)

    assert sorted(map(len, made)) == [0, 0, 0, 1]
    with pytest.raises(AlreadyExistsException, match=topic):
        admin.create_topic(Wanted(topic))


def test_a_topic_that_cannot_be_made_says_why(admin: GroupClient) -> None:
    with pytest.raises(KafkaException, match=r"creating the topic .* failed: .*[Rr]eplication"):
        admin.create_topic(Wanted(new_name("replicated"), replication_factor=3))
    with pytest.raises(KafkaException, match="creating the topic"):
        admin.create_topic(Wanted("not a name"))


def test_group_offsets_are_changed_listed_and_deleted(admin: GroupClient) -> None:
    topic, group = new_name("offsets"), new_name("connect")
    admin.create_topic(Wanted(topic, partitions=3))
    assert admin.group_offsets(group) == {}

    admin.alter_group_offsets(group, {TopicPartition(topic, 0): 5, TopicPartition(topic, 2): 7})
    assert admin.group_offsets(group) == {
        TopicPartition(topic, 0): OffsetAndMetadata(5),
        TopicPartition(topic, 2): OffsetAndMetadata(7),
    }

    admin.delete_group_offsets(group, [TopicPartition(topic, 0), TopicPartition(topic, 1)])
    assert admin.group_offsets(group) == {TopicPartition(topic, 2): OffsetAndMetadata(7)}

    admin.delete_group(group)
    assert admin.group_offsets(group) == {}
    admin.delete_group(group)


def test_offsets_of_a_group_with_members_cannot_be_changed(admin: GroupClient, broker: EmbeddedBroker) -> None:
    topic, group = new_name("busy"), new_name("connect")
    admin.create_topic(Wanted(topic, partitions=2))
    admin.require_idle(group)
    admin.alter_group_offsets(group, {TopicPartition(topic, 0): 3})
    admin.require_idle(group)
    refused = {
        "changing the offsets of": lambda: admin.alter_group_offsets(group, {TopicPartition(topic, 0): 5}),
        "deleting offsets of": lambda: admin.delete_group_offsets(group, [TopicPartition(topic, 0)]),
        "deleting the": lambda: admin.delete_group(group),
        "looking for members of": lambda: admin.require_idle(group),
    }

    with group_member(broker.bootstrap_servers, group, topic):
        for doing, change in refused.items():
            with pytest.raises(KafkaException, match=f"{doing} group {group}") as refusal:
                change()
            assert admin.group_busy(refusal.value), doing
        assert admin.group_offsets(group) == {TopicPartition(topic, 0): OffsetAndMetadata(3)}

    admin.require_idle(group)


def test_deleting_one_offset_leaves_the_others_with_their_metadata(admin: GroupClient, broker: EmbeddedBroker) -> None:
    topic, group = new_name("noted"), new_name("connect")
    admin.create_topic(Wanted(topic, partitions=3))
    with group_member(broker.bootstrap_servers, group, topic) as consumer:
        noted = [ck.TopicPartition(topic, number, 4 + number, f"note {number}") for number in range(2)]
        consumer.commit(offsets=noted, asynchronous=False)

    admin.delete_group_offsets(group, [TopicPartition(topic, 0), TopicPartition(topic, 2)])

    assert admin.group_offsets(group) == {TopicPartition(topic, 1): OffsetAndMetadata(5, "note 1")}


def test_offsets_of_a_group_that_is_not_there_are_deleted_already(admin: GroupClient) -> None:
    topic, group = new_name("never"), new_name("connect")
    admin.create_topic(Wanted(topic))

    admin.delete_group_offsets(group, [TopicPartition(topic, 0)])

    assert admin.group_offsets(group) == {}


def test_deleting_offsets_without_a_broker_is_a_retriable_error() -> None:
    client = admin_settings({"bootstrap.servers": f"127.0.0.1:{free_port()}"}, client_id="lost")
    admin = GroupClient(client, name="lost", timeout_s=1)

    with pytest.raises(KafkaRetriableException, match="deleting offsets of group g failed"):
        admin.delete_group_offsets("g", [TopicPartition("t", 0)])
    admin.close()


class Places:
    """Notes where each row is."""

    def __init__(self) -> None:
        self.places: dict[int, RecordMetadata] = {}

    def delivered(
        self, first: int, end: int, failures: Sequence[FailedDelivery], metadata: Mapping[int, RecordMetadata] | None
    ) -> None:
        assert not failures
        self.places.update(metadata or {})


def test_equal_keys_go_to_the_partition_that_java_chooses(admin: GroupClient, broker: EmbeddedBroker) -> None:
    vectors = json.loads((Path(__file__).parents[2] / "data" / "kafka" / "murmur2.json").read_text(encoding="utf-8"))
    topic = new_name("keyed")
    admin.create_topic(Wanted(topic, partitions=6))
    keys = [base64.b64decode(vector["key"]) for vector in vectors]
    columns = produce_batch([""] * len(keys), [topic] * len(keys))
    at = columns.table.column_names.index("key")
    table = columns.table.set_column(at, "key", pa.array(keys, pa.binary()))
    client = ColumnSettings.of(
        producer_settings({"bootstrap.servers": broker.bootstrap_servers}, {}, client_id="keyed")
    )
    producer = ColumnProducer(client, name="keyed", each_row=True)
    answers = Places()
    producer.send(replace(columns, table=table, has_keys=True), answers)
    assert producer.close(30)
    landed = {keys[row]: place.partition for row, place in answers.places.items()}

    expected = {base64.b64decode(vector["key"]): vector["partitions"]["6"] for vector in vectors}
    assert landed == expected
    ends = admin.end_offsets([TopicPartition(topic, number) for number in range(6)])
    assert sum(ends.values()) == len(vectors)
    assert set(admin.beginning_offsets(ends).values()) == {0}


def test_an_unreachable_broker_is_a_retriable_error_that_names_it() -> None:
    port = free_port()
    admin = TopicAdmin({"bootstrap.servers": f"127.0.0.1:{port}"}, name="lost", timeout_s=1)

    with pytest.raises(KafkaRetriableException, match=f"lost: asking for the cluster id failed.*127.0.0.1:{port}"):
        admin.cluster_id()
    admin.close()
    with pytest.raises(KafkaException, match="is closed"):
        admin.cluster_id()
