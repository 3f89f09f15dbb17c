"""The mirror of topics on two clusters in memory: what it finds, makes, reads, and what goes wrong."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.shares import QUICK
from tests.unit.connectors.mirror.memory_cluster import MemoryCluster

from penstock.api import ExactlyOnceSupport
from penstock.clients import AccessRule, TopicSetting
from penstock.connectors.mirror.source import MirrorSource
from penstock.connectors.mirror.task import MirrorTask
from penstock.errors import ConnectException, KafkaException
from penstock.stores.offsets import MemoryOffsetStore
from penstock.testing import FrameSuite, SourceSuite, run_source
from penstock.testing.kit.contexts import KitSourceConnectorContext

CLUSTERS: dict[str, MemoryCluster] = {}


def _cluster(self: object, props: Mapping[str, str], side: str) -> Any:
    return CLUSTERS[side]


class Task(MirrorTask):
    cluster = _cluster


class Mirror(MirrorSource):
    task_class = Task
    cluster = _cluster


@pytest.fixture(autouse=True)
def clusters() -> Iterator[dict[str, MemoryCluster]]:
    CLUSTERS.update(source=MemoryCluster("east:1"), target=MemoryCluster("west:1"))
    yield CLUSTERS
    CLUSTERS.clear()


SETTINGS = {
    "source.cluster.alias": "east",
    "target.cluster.alias": "west",
    "source.cluster.bootstrap.servers": "east:1",
    "target.cluster.bootstrap.servers": "west:1",
    "replication.factor": "1",
    "consumer.poll.timeout.ms": "10",
}


class TestMirrorSource(FrameSuite, SourceSuite):
    connector = Mirror
    count = 12
    most_kills = 15 if QUICK else 60
    wrong: ClassVar = {"topics": "(", "replication.factor": "0", "source.cluster.alias": ""}

    def prepare(self, path: Path) -> dict[str, str]:
        CLUSTERS["source"].most = 3
        for topic in ("a", "b"):
            CLUSTERS["source"].create(topic, 2)
            for number in range(2):
                CLUSTERS["source"].send(topic, number, *(b"%d" % value for value in range(2)), None)
        return SETTINGS


def started(*, is_preview: bool = False, **settings: str) -> Mirror:
    mirror = Mirror()
    context = KitSourceConnectorContext("m", MemoryOffsetStore())
    context.is_preview = is_preview
    mirror.initialize(context)
    mirror.start({**SETTINGS, "name": "m", **{name.replace("_", "."): text for name, text in settings.items()}})
    return mirror


def parts(mirror: Mirror) -> list[tuple[str, int]]:
    return sorted((one["topic"], one["partition"]) for one in mirror._partitions)


def test_topics_are_made_with_partitions_and_settings_of_the_source(clusters: dict[str, MemoryCluster]) -> None:
    clusters["source"].create("orders", 3, retention_ms="5", min_insync_replicas="2")
    clusters["source"].there["orders"].settings["cleanup.policy"] = TopicSetting("delete", True)
    mirror = started()
    mirror.stop()

    made = clusters["target"].there["east.orders"]
    assert len(made.partitions) == 3
    assert {name: one.value for name, one in made.settings.items()} == {"retention.ms": "5"}
    assert parts(mirror) == [("orders", 0), ("orders", 1), ("orders", 2)]


def test_a_preview_leaves_the_target_as_it_is(clusters: dict[str, MemoryCluster]) -> None:
    clusters["source"].create("orders", 3, retention_ms="5")
    clusters["source"].create("grown", 2, retention_ms="5")
    clusters["target"].create("east.grown", 1)
    mirror = started(is_preview=True)
    mirror.stop()

    assert {name: len(one.partitions) for name, one in clusters["target"].there.items()} == {"east.grown": 1}
    assert clusters["target"].there["east.grown"].settings == {}
    assert parts(mirror) == [("grown", 0), ("grown", 1), ("orders", 0), ("orders", 1), ("orders", 2)]


def test_what_is_internal_excluded_or_from_the_target_is_not_mirrored(clusters: dict[str, MemoryCluster]) -> None:
    for topic in (
        "orders",
        "west.orders",
        "north.west.orders",
        "north.orders",
        "__consumer_offsets",
        "mm2-offset-syncs.west.internal",
        "north.checkpoints.internal",
        "heartbeats",
        "west.heartbeats",
        "copy.replica",
        "orders_tmp",
    ):
        clusters["source"].create(topic)
    mirror = started(topics="orders.*, .*", topics_exclude=".*_tmp, .*\\.replica, __.*, heartbeats")
    mirror.stop()

    # Heartbeats are mirrored whatever the patterns say.
    assert {topic for topic, _ in parts(mirror)} == {"orders", "north.orders", "heartbeats"}


def test_new_topics_and_partitions_are_found_while_it_runs(clusters: dict[str, MemoryCluster]) -> None:
    clusters["source"].create("a")
    mirror = started(topics="a|b")
    clusters["source"].create("b")
    clusters["source"].there["a"].partitions.append([])
    mirror._table._next["topics"] = 0.0

    assert len(mirror.partitions()) == 3
    assert len(clusters["target"].there["east.a"].partitions) == 2
    mirror.stop()


def test_settings_are_copied_where_they_differ(clusters: dict[str, MemoryCluster]) -> None:
    clusters["source"].create("a", 1, retention_ms="5")
    mirror = started(config_properties_exclude="segment.*")
    target = clusters["target"].there["east.a"].settings
    target |= {"cleanup.policy": TopicSetting("compact", False), "segment.bytes": TopicSetting("9", False)}
    source = clusters["source"].there["a"].settings
    source |= {
        "retention.ms": TopicSetting("6", False),
        "cleanup.policy": TopicSetting("delete", True),
        "segment.bytes": TopicSetting("1", False),
        "compression.type": TopicSetting("zstd", False),
    }
    mirror._keeper.copy_settings()

    # What is a default on the source becomes one on the target; what the target does not know is left out.
    assert target["retention.ms"] == TopicSetting("6", False)
    assert target["cleanup.policy"].is_default
    assert target["segment.bytes"].value == "9"
    before = len(clusters["target"].calls)
    mirror._keeper.copy_settings()
    assert "alter_topic_settings" not in clusters["target"].calls[before:]
    mirror.stop()


def test_access_rules_are_copied_for_reading(clusters: dict[str, MemoryCluster]) -> None:
    clusters["source"].create("a")
    clusters["source"].rules = [
        AccessRule("a", "User:r", "*", "READ"),
        AccessRule("a", "User:w", "*", "WRITE"),
        AccessRule("a", "User:all", "*", "ALL"),
        AccessRule("a", "User:no", "*", "WRITE", allows=False),
        AccessRule("__b", "User:r", "*", "READ"),
    ]
    clusters["target"].rules = []
    started().stop()

    assert clusters["target"].rules == [
        AccessRule("east.a", "User:r", "*", "READ"),
        AccessRule("east.a", "User:all", "*", "READ"),
        AccessRule("east.a", "User:no", "*", "WRITE", allows=False),
    ]


def test_a_topic_that_cannot_be_made_is_named_and_the_others_go_on(
    clusters: dict[str, MemoryCluster], caplog: pytest.LogCaptureFixture
) -> None:
    clusters["source"].create("a")
    clusters["source"].create("b", 3)
    clusters["target"].create("east.b", 2)
    clusters["target"].refuses = {
        "create_topic": "Replication factor: 2 larger than available brokers: 1",
        "add_partitions": "Topic authorization failed",
    }
    mirror = started()
    mirror._keeper.look()
    mirror.stop()

    assert parts(mirror) == [("b", 0), ("b", 1)]
    warned = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert len(warned) == 2, "each is said once"
    assert "The topic east.a cannot be made on the target, so a is not mirrored: Replication factor: 2" in warned[0]
    assert "The topic east.b has 2 partitions on the target and cannot get more" in warned[1]
    found = Mirror().obstacles({**SETTINGS, "name": "m"})
    assert found == [
        "the topic east.a has 0 of 1 partitions on the target yet, so not all of a is mirrored",
        "the topic east.b has 2 of 3 partitions on the target yet, so not all of b is mirrored",
    ]


def test_a_source_that_is_away_at_the_start_is_told_by_a_task_until_it_comes(
    clusters: dict[str, MemoryCluster],
) -> None:
    clusters["source"].create("a")
    clusters["source"].send("a", 0, b"1")
    clusters["source"].is_away = True
    with run_source(Mirror, SETTINGS) as run:
        assert run.poll() == []
        assert "does not answer: connection refused" in run.retries[-1]
        assert Mirror().obstacles({**SETTINGS}) == ["the cluster in memory does not answer: connection refused"]
        clusters["source"].is_away = False
        run.restart()
        run.poll()
        run.commit()
    assert run.values == [b"1"]


def test_a_source_that_goes_away_is_told_and_read_on(clusters: dict[str, MemoryCluster]) -> None:
    clusters["source"].create("a")
    clusters["source"].send("a", 0, b"1")
    with run_source(Mirror, SETTINGS) as run:
        run.poll()
        clusters["source"].is_away = True
        run.poll()
        assert "does not answer" in run.retries[-1]
        clusters["source"].is_away = False
        clusters["source"].send("a", 0, b"2")
        run.finish(2)
    assert run.values == [b"1", b"2"]


def test_offsets_are_those_of_mirrormaker(clusters: dict[str, MemoryCluster]) -> None:
    clusters["source"].create("a", 2)
    clusters["source"].send("a", 1, b"1", b"2", b"3")
    with run_source(Mirror, SETTINGS) as run:
        run.finish(3)
    assert run.offsets() == [({"cluster": "east", "partition": 1, "topic": "a"}, {"offset": 2})]


def test_retention_that_overtakes_the_reader_is_told(
    clusters: dict[str, MemoryCluster], caplog: pytest.LogCaptureFixture
) -> None:
    clusters["source"].create("a")
    clusters["source"].send("a", 0, *(b"%d" % number for number in range(5)))
    clusters["source"].most = 2
    with run_source(Mirror, SETTINGS) as run:
        run.poll()
        run.commit()
        clusters["source"].send("a", 0, b"5", b"6")
        clusters["source"].delete_before("a", 0, 6)
        run.restart()
        run.finish(len(run.values) + 1)
    assert run.values[-1] == b"6"
    assert "1 were deleted before they could be mirrored, from offset 5 on" in caplog.text


def test_a_topic_that_is_made_again_is_mirrored_from_its_beginning(
    clusters: dict[str, MemoryCluster], caplog: pytest.LogCaptureFixture
) -> None:
    clusters["source"].create("a")
    clusters["source"].send("a", 0, b"1", b"2", b"3")
    with run_source(Mirror, SETTINGS) as run:
        run.poll()
        del clusters["source"].there["a"]
        clusters["source"].create("a")
        clusters["source"].send("a", 0, b"again")
        run.finish(4)
    assert run.values == [b"1", b"2", b"3", b"again"]
    assert "the topic was made again, or its brokers have lost records" in caplog.text


def test_brokers_that_lost_records_cost_no_new_ones(
    clusters: dict[str, MemoryCluster], caplog: pytest.LogCaptureFixture
) -> None:
    clusters["source"].create("a")
    clusters["source"].send("a", 0, b"1", b"2", b"3")
    with run_source(Mirror, SETTINGS) as run:
        run.poll()
        del clusters["source"].there["a"].partitions[0][1:]
        clusters["source"].send("a", 0, b"new")
        run.finish(5)
    assert run.values == [b"1", b"2", b"3", b"1", b"new"]
    assert "its brokers have lost records. It is mirrored from its beginning" in caplog.text


def test_records_behind_a_gap_have_their_own_offsets(clusters: dict[str, MemoryCluster]) -> None:
    clusters["source"].create("a")
    clusters["source"].send("a", 0, *(b"%d" % number for number in range(9)))
    del clusters["source"].there["a"].partitions[0][1:8:2]
    with run_source(Mirror, SETTINGS) as run:
        run.finish(5)
        assert [one.source_offset for one in run.records] == [{"offset": at} for at in (0, 2, 4, 6, 8)]


def test_latest_leaves_out_what_was_there_before(clusters: dict[str, MemoryCluster]) -> None:
    clusters["source"].create("a")
    clusters["source"].send("a", 0, b"old")
    with run_source(Mirror, {**SETTINGS, "source.consumer.auto.offset.reset": "latest"}) as run:
        run.poll()
        clusters["source"].send("a", 0, b"new")
        run.finish(1)
    assert run.values == [b"new"]


def test_it_is_exactly_once_unless_open_transactions_are_read() -> None:
    level = "source.consumer.isolation.level"
    assert MirrorSource().exactly_once_support(SETTINGS) is ExactlyOnceSupport.SUPPORTED
    assert (
        MirrorSource().exactly_once_support({**SETTINGS, level: "read_uncommitted"}) is ExactlyOnceSupport.UNSUPPORTED
    )


@pytest.mark.parametrize(
    ("given", "name", "text"),
    [
        ({"topics": "a,("}, "topics", "Invalid regex"),
        ({"topics.exclude": "*"}, "topics.exclude", "Invalid regex"),
        ({"config.properties.exclude": "["}, "config.properties.exclude", "Invalid regex"),
        ({"replication.policy.class": "com.acme.Policy"}, "replication.policy.class", "No Java class can be run here"),
        ({"topic.filter.class": "com.acme.Filter"}, "topic.filter.class", "only DefaultTopicFilter is known"),
        ({"target.cluster.alias": "east"}, "target.cluster.alias", "must differ"),
        ({"replication.factor": "0"}, "replication.factor", "1 or more"),
        ({"source.cluster.bootstrap.servers": ""}, "source.cluster.bootstrap.servers", "has no bootstrap.servers"),
        ({"source.cluster.security.protocol": "TLS"}, "source.cluster.security.protocol", "one of: plaintext"),
        ({"source.consumer.plugin.library.paths": "/x"}, "source.consumer.plugin.library.paths", "loads a library"),
        ({"source.consumer.isolation.level": "some"}, "source.consumer.isolation.level", "one of: read_committed"),
    ],
)
def test_settings_that_do_not_work_are_named(given: dict[str, str], name: str, text: str) -> None:
    found = MirrorSource().validate({**SETTINGS, "name": "m", **given}).errors()
    assert list(found) == [name]
    assert text in found[name][0]


def test_a_usual_configuration_of_mirrormaker_has_no_faults() -> None:
    given = {
        "name": "mm2",
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "source.cluster.security.protocol": "SASL_PLAINTEXT",
        "source.cluster.sasl.mechanism": "SCRAM-SHA-512",
        "source.cluster.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="u" password="p";',
        "source.consumer.fetch.max.bytes": "1000000",
        "consumer.max.poll.records": "500",
        "producer.override.linger.ms": "5",
        "offset.lag.max": "100",
        "emit.heartbeats.interval.seconds": "5",
        "groups": ".*",
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
    }
    checked = MirrorSource().validate({**SETTINGS, **given})
    assert checked.errors() == {}
    # Named, so that nobody is warned that nothing reads them.
    assert {"source.cluster.sasl.mechanism", "consumer.max.poll.records", "groups"} <= {
        one.name for one in checked.config_values
    }


def test_offsets_that_a_user_sets_are_checked() -> None:
    partition = frozenset({"cluster": "east", "partition": 0, "topic": "a"}.items())
    assert MirrorSource().alter_offsets(SETTINGS, {partition: {"offset": 5}, frozenset({("x", 1)}): None})
    with pytest.raises(ConnectException, match="is no offset of a mirror"):
        MirrorSource().alter_offsets(SETTINGS, {partition: {"offset": -1}})
    with pytest.raises(ConnectException, match="is no source partition of a mirror"):
        MirrorSource().alter_offsets(SETTINGS, {frozenset({("topic", "a")}): {"offset": 1}})


def test_a_login_that_fails_fails_the_connector(clusters: dict[str, MemoryCluster]) -> None:
    clusters["source"].refuses = {"topics": "Authentication failed"}
    with pytest.raises(KafkaException, match="Authentication failed"):
        started()


def test_disabled_it_has_nothing_to_do(clusters: dict[str, MemoryCluster]) -> None:
    clusters["source"].create("a")
    mirror = started(enabled="false")
    mirror.stop()
    assert parts(mirror) == []
    assert Mirror().obstacles({**SETTINGS, "enabled": "false"}) == ["enabled is false"]


def test_what_has_no_topic_to_mirror_says_why(clusters: dict[str, MemoryCluster]) -> None:
    clusters["source"].create("a")
    clusters["source"].create("west.b")
    assert Mirror().obstacles({**SETTINGS, "topics": "x"}) == [
        "no topic of the source cluster east is to be mirrored: none of its 2 topics matches topics and not "
        "topics.exclude"
    ]
    assert Mirror().obstacles({**SETTINGS, "topics": "west.*"}) == [
        "no topic of the source cluster east is to be mirrored: those that match are internal, or come from west "
        "themselves"
    ]
