"""The topics of a distributed worker on a real broker: made, checked, refused."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from testkit.brokers.log_lab import LogLab
from testkit.waiting import await_true

from penstock.broker import EmbeddedBroker
from penstock.errors import ConfigException, KafkaException, ProducerFencedException
from penstock.kafka.topic_log.internal_topics import InternalTopic, Kind, ensure

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.fixture
def lab(broker: EmbeddedBroker) -> Iterator[LogLab]:
    with LogLab(broker.bootstrap_servers) as lab:
        yield lab


@pytest.fixture(scope="module")
def guarded_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker that asks who may do what; everybody may where nothing is said."""
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with EmbeddedBroker(tmp_path_factory.mktemp("guarded"), properties=properties) as node:
        yield node


@contextmanager
def denied(servers: str, operation: AclOperation, *resources: tuple[ResourceType, str]) -> Iterator[None]:
    """Nobody may do this while the block runs; everything else stays allowed, though now there are rules."""
    admin: Any = AdminClient({"bootstrap.servers": servers})
    pairs = (AclOperation.ALL, AclPermissionType.ALLOW), (operation, AclPermissionType.DENY)
    rules = [
        (kind, name, ResourcePatternType.LITERAL, "User:*", "*", *pair) for kind, name in resources for pair in pairs
    ]
    for future in admin.create_acls([AclBinding(*rule) for rule in rules]).values():
        future.result(20)
    # The controller has them; the broker follows.
    await_true(lambda: all(admin.describe_acls(AclBindingFilter(*rule)).result(20) for rule in rules))
    try:
        yield
    finally:
        for future in admin.delete_acls([AclBindingFilter(*rule) for rule in rules]).values():
            future.result(20)


def made(lab: LogLab, name: str, partitions: int = 1, **configs: str) -> None:
    admin: Any = AdminClient({"bootstrap.servers": lab.worker["bootstrap.servers"]})
    configs = {key.replace("_", "."): text for key, text in configs.items()}
    admin.create_topics([NewTopic(name, partitions, 1, config=configs)])[name].result(20)


def settings_of(lab: LogLab, name: str) -> dict[str, str]:
    admin: Any = AdminClient({"bootstrap.servers": lab.worker["bootstrap.servers"]})
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    return {key: entry.value for key, entry in admin.describe_configs([resource])[resource].result(20).items()}


def test_three_topics_are_made_compacted_as_the_settings_say(lab: LogLab) -> None:
    lab.worker |= {
        "offset.storage.partitions": "3",
        "config.storage.partitions": "7",
        "config.storage.cleanup.policy": "delete",
        "status.storage.segment.bytes": "1048576",
        "offset.storage.file.filename": "/left/over",
    }

    names = [lab.topic(kind) for kind in Kind]

    found = lab.admin.describe_topics(names)
    assert [found[name].partitions for name in names] == [1, 3, 5, 5]
    assert [settings_of(lab, name)["cleanup.policy"] for name in names] == ["compact"] * 4
    assert settings_of(lab, names[2])["segment.bytes"] == "1048576"


def test_minus_one_is_the_brokers_default(lab: LogLab) -> None:
    lab.worker |= {"offset.storage.partitions": "-1", "offset.storage.replication.factor": "-1"}

    name = lab.topic(Kind.OFFSET)

    assert lab.admin.describe_topics([name])[name].partitions == 1


@pytest.mark.parametrize("kind", Kind)
def test_more_replicas_than_brokers_are_refused_with_the_setting(lab: LogLab, kind: Kind) -> None:
    lab.worker[f"{kind.value}.replication.factor"] = "3"

    with pytest.raises(ConfigException, match=r"and there are 1 now") as raised:
        lab.topic(kind)

    assert raised.value.name == f"{kind.value}.replication.factor"


def test_a_topic_setting_that_the_broker_does_not_know_is_refused_with_its_name(lab: LogLab) -> None:
    lab.worker["status.storage.segment.sise"] = "1"

    with pytest.raises(ConfigException, match=r"status\.storage\.segment\.sise = 1"):
        lab.topic(Kind.STATUS)


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
@pytest.mark.parametrize("kind", Kind)
def test_a_topic_that_is_not_compacted_alone_is_refused(lab: LogLab, kind: Kind, policy: str) -> None:
    name = InternalTopic.of(kind, lab.worker).name
    made(lab, name, cleanup_policy=policy)

    with pytest.raises(
        ConfigException, match=rf"but it has cleanup\.policy={policy}: .*--entity-name {name}"
    ) as raised:
        lab.topic(kind)

    assert raised.value.name == f"{kind.value}.topic"


def test_a_compacted_topic_that_was_made_by_hand_is_taken(lab: LogLab) -> None:
    name = InternalTopic.of(Kind.OFFSET, lab.worker).name
    made(lab, name, partitions=2, cleanup_policy="compact")

    assert lab.topic(Kind.OFFSET) == name


def test_a_config_topic_with_two_partitions_is_refused(lab: LogLab) -> None:
    made(lab, InternalTopic.of(Kind.CONFIG, lab.worker).name, partitions=2, cleanup_policy="compact")

    with pytest.raises(ConfigException, match=r"config\.storage\.topic: .*single partition.* it has 2"):
        lab.topic(Kind.CONFIG)


def test_workers_that_start_at_once_do_not_get_in_each_others_way(lab: LogLab) -> None:
    topics = [InternalTopic.of(kind, lab.worker) for kind in Kind]
    errors: list[Exception] = []

    def start() -> None:
        try:
            for topic in topics:
                ensure(lab.admin, topic)
        except Exception as error:
            errors.append(error)

    workers = [threading.Thread(target=start) for _ in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)

    assert errors == []


def test_a_connectors_own_offsets_topic_is_made_as_the_workers_would_be(lab: LogLab) -> None:
    lab.worker["offset.storage.partitions"] = "4"
    name = f"{lab.group}-own"

    ensure(lab.admin, InternalTopic.of_connector(lab.worker, name))

    assert lab.admin.describe_topics([name])[name].partitions == 4
    made(lab, f"{name}-2", cleanup_policy="delete")
    with pytest.raises(ConfigException, match=r"for configuration offsets\.storage\.topic"):
        ensure(lab.admin, InternalTopic.of_connector(lab.worker, f"{name}-2"))


def test_without_the_right_to_look_a_topic_is_taken_as_it_is(
    guarded_broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    servers = guarded_broker.bootstrap_servers
    with LogLab(servers) as lab:
        name = InternalTopic.of(Kind.STATUS, lab.worker).name
        made(lab, name, cleanup_policy="delete")
        with denied(servers, AclOperation.DESCRIBE_CONFIGS, (ResourceType.TOPIC, name)):
            assert lab.topic(Kind.STATUS) == name
        lines = [record.message for record in caplog.records if "internal_topics" in record.name]
        assert len(lines) == 1
        assert f"may not look at the settings of the topic {name}" in lines[0]


def test_without_the_right_to_create_the_error_says_what_to_do(guarded_broker: EmbeddedBroker) -> None:
    servers = guarded_broker.bootstrap_servers
    with LogLab(servers) as lab:
        name = InternalTopic.of(Kind.CONFIG, lab.worker).name
        resources = (ResourceType.BROKER, "kafka-cluster"), (ResourceType.TOPIC, name)
        with (
            denied(servers, AclOperation.CREATE, *resources),
            pytest.raises(
                KafkaException, match=rf"{name} \(config\.storage\.topic\) does not exist.*by hand with.*compact"
            ),
        ):
            lab.topic(Kind.CONFIG)


def test_a_log_that_must_not_be_read_says_which_rights_it_needs(guarded_broker: EmbeddedBroker) -> None:
    servers = guarded_broker.bootstrap_servers
    with LogLab(servers) as lab:
        writer, _ = lab.started(Kind.STATUS)
        writer.write([(b"a", b"1")])
        log = lab.log(Kind.STATUS)
        with (
            denied(servers, AclOperation.READ, (ResourceType.TOPIC, log.topic)),
            pytest.raises(KafkaException, match=rf"{log.topic} cannot be read: .*Read and Describe"),
        ):
            log.start(lambda records: None, 30)


def test_a_transactional_id_that_must_not_be_used_says_so(guarded_broker: EmbeddedBroker) -> None:
    servers = guarded_broker.bootstrap_servers
    with LogLab(servers) as lab:
        log, _ = lab.started(transactional=True)
        transactional_id = f"connect-cluster-{lab.group}"
        with (
            denied(servers, AclOperation.WRITE, (ResourceType.TRANSACTIONAL_ID, transactional_id)),
            pytest.raises(KafkaException, match=rf"{transactional_id} could not be claimed.*allows WRITE and DESCRIBE"),
        ):
            log.claim(30)


def test_a_topic_that_must_not_be_written_is_named_and_is_written_once_it_may_be(
    guarded_broker: EmbeddedBroker,
) -> None:
    servers = guarded_broker.bootstrap_servers
    with LogLab(servers) as lab:
        log, seen = lab.started(transactional=True)
        log.claim(30)
        told: list[Exception | None] = []
        with denied(servers, AclOperation.WRITE, (ResourceType.TOPIC, log.topic)):
            log.write_async(b"status", b"1", told.append, wanted=lambda: True)
            await_true(lambda: len(told) == 1)
            with pytest.raises(
                KafkaException, match=rf"record a could not be written to the topic {log.topic}.*may not"
            ):
                log.write([(b"a", b"1")])
            with pytest.raises(KafkaException, match=rf"could not write \(topic {log.topic}\): .*may not") as raised:
                log.write([(b"a", b"2")], transactional=True)

        # The claim was kept: nothing but the transaction is lost.
        def written() -> bool:
            try:
                log.write([(b"a", b"3")], transactional=True)
            except ProducerFencedException:
                raise
            except KafkaException:
                return False
            return True

        await_true(written)
        log.write([(b"b", b"1")])

    assert type(raised.value) is type(told[0]) is KafkaException
    assert seen.values() == {b"a": b"3", b"b": b"1"}
