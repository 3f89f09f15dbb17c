import itertools
import logging
import re
from collections.abc import Mapping
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient

from penstock.errors import ConfigException
from penstock.kafka.consumer.consumer import RecordConsumer
from penstock.kafka.protocol import BrokerEndpoint
from penstock.kafka.settings.client import (
    CLIENT_LOG,
    ClientSettings,
    admin_client_id,
    admin_settings,
    client_knows,
    consumer_settings,
    dead_letter_admin_id,
    dead_letter_producer_id,
    producer_settings,
    refused_for_all,
    refused_overrides,
    sink_consumer_id,
    sink_instance_id,
    source_producer_id,
    translate,
)
from penstock.kafka.settings.librdkafka import property_for
from penstock.kafka.settings.producer import ColumnSettings
from penstock.kafka.settings.table import SETTINGS, ClientKind, OverridePolicy, Setting, Treatment, setting_names
from penstock.kafka.settings.values import Compression

JAVA_NAMES = Path(__file__).parents[3] / "data" / "kafka" / "client-configs-4.3.0.tsv"
GROUP: dict[ClientKind, dict[str, str]] = {ClientKind.CONSUMER: {"group.id": "g"}, ClientKind.ADMIN: {}}
PRODUCER, CONSUMER, ADMIN = ClientKind.PRODUCER, ClientKind.CONSUMER, ClientKind.ADMIN


def java_configs() -> list[tuple[ClientKind, str, str, str]]:
    """Client, name, type and default of every setting, as the ConfigDefs of Kafka 4.3.0 list them."""
    rows = [line.split("\t") for line in JAVA_NAMES.read_text(encoding="utf-8").splitlines()]
    return [(ClientKind(kind), name, java_type, default) for kind, name, java_type, default in rows]


def translated(kind: ClientKind, **java: str) -> ClientSettings:
    """Settings with dots written as double underscores."""
    return translate(kind, {name.replace("__", "."): text for name, text in java.items()})


@pytest.mark.parametrize("kind", list(ClientKind))
def test_every_name_of_kafkas_client_has_a_row_and_no_row_is_invented(kind: ClientKind) -> None:
    assert setting_names(kind) == {name for client, name, _, _ in java_configs() if client is kind}


def test_every_row_says_what_becomes_of_the_setting() -> None:
    for row in SETTINGS:
        if row.treatment is Treatment.USED:
            assert row.targets or row.family or row.clients == {PRODUCER}, row.name
        else:
            assert row.reason, row.name
            assert not row.targets, row.name


def test_no_name_of_a_client_has_two_rows() -> None:
    for kind in ClientKind:
        names = [row.name for row in SETTINGS if kind in row.clients]
        assert len(names) == len(set(names))


def test_all_names_of_librdkafka_in_the_table_exist() -> None:
    for row in SETTINGS:
        for target in row.targets:
            for _kind in row.clients - {PRODUCER}:
                assert property_for(target) is not None, f"{row.name} -> {target}"


@pytest.mark.parametrize("kind", list(ClientKind))
def test_javas_own_defaults_are_accepted_whole_and_make_a_client(kind: ClientKind) -> None:
    defaults = {
        name: "" if default == "null" else default
        for client, name, _, default in java_configs()
        if client is kind and default != "<required>"
    }

    settings = translate(kind, defaults | {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}).checked()

    given = {name: text for name, text in settings.librdkafka.items() if kind is CONSUMER or name != "group.id"}
    if kind is PRODUCER:
        assert ColumnSettings.of(settings).bootstrap == (BrokerEndpoint("127.0.0.1", 1),)
    elif kind is CONSUMER:
        ck.Consumer({**given, "log_level": 0}).close()
    else:
        AdminClient({**given, "log_level": 0})


def test_values_are_converted() -> None:
    given = translated(
        PRODUCER,
        buffer__memory="1000",
        linger__ms="9223372036854775807",
        request__timeout__ms="900000",
        max__request__size="52428800",
        send__buffer__bytes="-1",
        metadata__max__age__ms="1000",
        acks="-1",
        compression__type="zstd",
        compression__zstd__level="22",
        compression__gzip__level="3",
        bootstrap__servers="a:1, b:2",
        batch__size="0",
        retries="2147483647",
    )

    assert given.refused == ()
    expected = {
        "buffer.memory": 1000,
        "request.timeout.ms": 900_000,
        "max.request.size": 52_428_800,
        "send.buffer.bytes": 0,
        "metadata.max.age.ms": 1000,
        "acks": "all",
        "bootstrap.servers": "a:1,b:2",
        "batch.size": 1,
        "retries": 2_147_483_647,
    }
    assert expected.items() <= given.own.items()
    assert given.librdkafka == {}
    assert given.compression == Compression.named("zstd", 22)
    assert {left.name for left in given.unused} == {"compression.gzip.level", "linger.ms"}
    reading = translated(CONSUMER, metadata__max__age__ms="1000", send__buffer__bytes="-1")
    assert {"topic.metadata.refresh.interval.ms": 1000, "socket.send.buffer.bytes": 0}.items() <= (
        reading.librdkafka.items()
    )
    assert reading.refresh_s == 1.0
    assert translate(CONSUMER, {}).refresh_s == 10.0


def test_javas_defaults_count_where_librdkafkas_differ() -> None:
    assert {
        "isolation.level": "read_uncommitted",
        "partition.assignment.strategy": "range",
        "allow.auto.create.topics": True,
        "socket.timeout.ms": 30_000,
    }.items() <= translated(CONSUMER).librdkafka.items()
    assert {"partitioner.class": "", "max.request.size": 1_048_576}.items() <= translated(PRODUCER).own.items()


@pytest.mark.parametrize(
    ("kind", "name", "text", "reason"),
    [
        (PRODUCER, "retry.backoff.ms", "soon", "Not a number of type LONG"),
        (PRODUCER, "enable.idempotence", "yes", "Expected value to be either true or false"),
        (PRODUCER, "acks", "2", "String must be one of: all, -1, 0, 1"),
        (PRODUCER, "compression.type", "brotli", "String must be one of: none, gzip"),
        (PRODUCER, "compression.gzip.level", "10", "Value must be between -1 and 9"),
        (PRODUCER, "partitioner.class", "com.example.Mine", "a Java partitioner cannot be loaded"),
        (PRODUCER, "transaction.two.phase.commit.enable", "true", "two-phase commit"),
        (PRODUCER, "interceptor.classes", "com.example.Monitor", "Java interceptors cannot be loaded"),
        (CONSUMER, "auto.offset.reset", "by_duration:1 day", "must be a duration in ISO 8601, such as P7D"),
        (CONSUMER, "auto.offset.reset", "by_duration:", "must be a duration in ISO 8601"),
        (CONSUMER, "auto.offset.reset", "by_duration:-P1D", "a duration must not be negative"),
        (CONSUMER, "auto.offset.reset", "by_duration", "String must be one of: earliest, latest, none, by_duration:<"),
        (CONSUMER, "partition.assignment.strategy", "org.apache.kafka.clients.consumer.StickyAssignor", "choose from"),
        (CONSUMER, "isolation.level", "none", "String must be one of"),
        (ADMIN, "bootstrap.controllers", "a:1", "use bootstrap.servers"),
        (ADMIN, "ssl.engine.factory.class", "com.example.Engine", "Java TLS engine"),
        (ADMIN, "security.protocol", "TLS", "String must be one of: plaintext, ssl"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(kind: ClientKind, name: str, text: str, reason: str) -> None:
    settings = translate(kind, {name: text})

    assert [(left.name, left.value) for left in settings.refused] == [(name, text)]
    with pytest.raises(ConfigException, match=f"Invalid value {text} for configuration {name}: .*{reason}"):
        settings.checked()


def test_all_refused_settings_are_named_at_once_and_secrets_stay_hidden() -> None:
    settings = translated(
        PRODUCER,
        client__id="p",
        retry__backoff__ms="soon",
        retries="many",
        security__protocol="SASL_SSL",
        sasl__mechanism="PLAIN",
        sasl__jaas__config="s3cret",
    )

    with pytest.raises(ConfigException) as caught:
        settings.checked()
    text = str(caught.value)
    assert text.startswith("3 settings of the producer p cannot be used:\n  retry.backoff.ms = soon: ")
    assert "retries = many" in text
    assert "sasl.jaas.config = [hidden]" in text
    assert "s3cret" not in text + repr(settings)


def test_names_of_librdkafka_pass_and_unknown_names_are_reported_without_their_secrets() -> None:
    given = translate(
        CONSUMER,
        {"queued.min.messages": " 10", "compresion.type": "lz4", "my.password": "x", "metrics.context.a": "b"},
    )

    assert given.librdkafka["queued.min.messages"] == "10"
    assert [(left.name, left.value) for left in given.unused] == [
        ("compresion.type", "lz4"),
        ("my.password", "[hidden]"),
    ]
    assert "neither Kafka's consumer nor librdkafka" in given.unused[0].reason


def test_a_producer_has_javas_names_alone_and_says_which_one_may_be_meant() -> None:
    given = translate(
        PRODUCER, {"queue.buffering.max.kbytes": "1", "compresion.type": "lz4", "sasl.password": "x", "debug": "all"}
    )

    told = {left.name: (left.value, left.reason) for left in given.unused}
    assert told["queue.buffering.max.kbytes"] == (
        "1",
        "Kafka's producer has no such setting. Did you mean buffer.memory?",
    )
    assert told["compresion.type"][1].endswith("Did you mean compression.type?")
    assert told["sasl.password"] == ("[hidden]", "Kafka's producer has no such setting. Did you mean sasl.jaas.config?")
    assert told["debug"] == ("all", "Kafka's producer has no such setting")
    assert not {"queue.buffering.max.kbytes", "debug"} & given.own.keys()


def test_librdkafkas_names_are_known_without_asking_it() -> None:
    assert client_knows(ADMIN, "statistics.interval.ms")
    assert client_knows(CONSUMER, "queued.min.messages")
    assert not client_knows(ADMIN, "queued.min.messages")
    assert not client_knows(CONSUMER, "queue.buffering.max.kbytes")
    assert not client_knows(ADMIN, "statistics.interval")
    assert not client_knows(ADMIN, "stats_cb")


def test_a_connectors_override_wins_over_the_workers_prefix_and_that_over_the_defaults() -> None:
    worker = {
        "bootstrap.servers": "a:1",
        "batch.size": "99",
        "producer.batch.size": "1",
        "producer.acks": "1",
        "consumer.acks": "0",
    }
    connector = {"producer.override.batch.size": "2", "producer.override.client.id": "mine", "batch.size": "3"}

    given = producer_settings(worker, connector, client_id=source_producer_id("orders", 3))

    assert given.client_id == "mine"
    assert {"bootstrap.servers": "a:1", "batch.size": 2, "acks": "1"}.items() <= given.own.items()


def test_a_source_tasks_producer_stores_nothing_twice_and_never_gives_up() -> None:
    given = producer_settings({"bootstrap.servers": "a:1"}, {}, client_id=source_producer_id("orders", 3))

    assert {
        "client.id": "connector-producer-orders-3",
        "acks": "all",
        "enable.idempotence": True,
        "max.in.flight.requests.per.connection": 5,
        "delivery.timeout.ms": 2_147_483_647,
    }.items() <= given.own.items()
    assert given.unused == ()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("enable.idempotence", "false"),
        ("acks", "1"),
        ("retries", "0"),
        ("max.in.flight.requests.per.connection", "6"),
    ],
)
def test_what_a_user_asks_for_counts_more_than_idempotence(name: str, text: str) -> None:
    worker = {"bootstrap.servers": "a:1", f"producer.{name}": text}
    given = producer_settings(worker, {}, client_id="c").checked().own
    assert given["enable.idempotence"] is False
    assert given["max.in.flight.requests.per.connection"] == (6 if name.startswith("max.in") else 1)


def test_fewer_requests_under_way_leave_idempotence_on() -> None:
    connector = {"producer.override.max.in.flight.requests.per.connection": "1"}
    given = producer_settings({"bootstrap.servers": "a:1"}, connector, client_id="c").own
    assert (given["enable.idempotence"], given["max.in.flight.requests.per.connection"]) == (True, 1)


def test_a_sink_tasks_consumer_has_connects_defaults() -> None:
    given = consumer_settings(
        {"bootstrap.servers": "a:1", "consumer.max.poll.records": "7"},
        {"consumer.override.auto.offset.reset": "none"},
        client_id=sink_consumer_id("orders", 0),
        group_id="connect-orders",
    )

    assert {
        "client.id": "connector-consumer-orders-0",
        "group.id": "connect-orders",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
    }.items() <= given.librdkafka.items()
    assert [left.name for left in given.unused] == ["max.poll.records"]


def test_an_admin_client_takes_the_workers_own_client_settings_too() -> None:
    worker = {
        "bootstrap.servers": "a:1",
        "request.timeout.ms": "5000",
        "retry.backoff.ms": "7",
        "offset.storage.file.filename": "/x",
        "admin.retry.backoff.ms": "8",
        "default.api.timeout.ms": "9000",
    }

    given = admin_settings(worker, {"admin.override.client.rack": "r"}, client_id=admin_client_id("orders", 1))

    assert given.client_id == "connector-adminclient-orders-1"
    assert {"socket.timeout.ms": 5000, "retry.backoff.ms": 8}.items() <= given.librdkafka.items()
    assert not any("offset.storage" in name for name in given.librdkafka)
    assert given.api_timeout_s == 9.0


def test_an_admin_client_says_nothing_of_settings_that_were_meant_for_the_worker() -> None:
    worker = {"bootstrap.servers": "a:1", "config.providers": "file", "metrics.num.samples": "2"}

    assert admin_settings(worker, {}, client_id="a").unused == ()
    own = admin_settings(worker, {"admin.override.metrics.num.samples": "3"}, client_id="a").unused
    assert [(left.name, left.value) for left in own] == [("metrics.num.samples", "3")]


def test_what_a_worker_sets_wrong_for_all_is_told_apart_from_what_a_connector_overrides() -> None:
    worker = {"bootstrap.servers": "a:1", "producer.acks": "7", "security.protocol": "carrier pigeon"}
    assert [fault.name for fault in refused_for_all(PRODUCER, worker)] == ["acks"]
    assert [fault.name for fault in refused_for_all(CONSUMER, worker)] == []
    assert [fault.name for fault in refused_for_all(ADMIN, worker)] == ["security.protocol"]
    connector = {"producer.override.batch.size": "soon", "admin.override.retries": "2"}
    assert [fault.name for fault in refused_overrides(PRODUCER, worker, connector, OverridePolicy())] == ["batch.size"]
    assert refused_overrides(ADMIN, worker, connector, OverridePolicy()) == ()


def test_client_ids_are_connects() -> None:
    assert admin_client_id("c") == "connector-adminclient-c"
    assert dead_letter_producer_id("c", 2) == "connector-dlq-producer-c-2"
    assert dead_letter_admin_id("c", 2) == "connector-dlq-adminclient-c-2"


def test_settings_that_librdkafka_would_refuse_together_are_made_to_fit() -> None:
    impatient = translated(CONSUMER, group__id="g", max__poll__interval__ms="10000")
    broker_side = translated(CONSUMER, group__id="g", group__protocol="CONSUMER", session__timeout__ms="1000")

    assert impatient.librdkafka["session.timeout.ms"] == 10_000
    assert [left.name for left in broker_side.unused] == ["session.timeout.ms"]
    assert "partition.assignment.strategy" not in broker_side.librdkafka
    for settings in (impatient, broker_side):
        ck.Consumer({**settings.librdkafka, "log_level": 0}).close()


@pytest.mark.parametrize("kind", [CONSUMER, ADMIN])
def test_librdkafka_takes_any_two_settings_that_java_takes_together(kind: ClientKind) -> None:
    # Each number at some points of its range, and two of them at the ends of theirs, one pair in seven.
    names = [name for client, name, java_type, _ in java_configs() if client is kind and java_type in ("INT", "LONG")]
    points = [{name: number} for name in names for number in ("0", "1000", "86400000")]
    ends = [(name, number) for name in names for number in ("1", "2147483647")]
    pairs = [dict(pair) for pair in itertools.combinations(ends, 2) if pair[0][0] != pair[1][0]]
    make = ck.Consumer if kind is CONSUMER else AdminClient
    refused: dict[str, Mapping[str, str]] = {}
    made = 0
    for chosen in points + pairs[::7]:
        client = translate(kind, {"bootstrap.servers": "127.0.0.1:1", **GROUP[kind], **chosen})
        if client.refused:
            continue
        made += 1
        try:
            make({**client.librdkafka, "log_level": 0})
        except ck.KafkaException as exc:
            refused[exc.args[0].str()] = chosen
    assert made > 50
    assert refused == {}


@pytest.mark.parametrize(
    ("worker", "connector", "default", "suffix", "found"),
    [
        ({}, {}, "penstock-1-a-0", "-0", "penstock-1-a-0"),
        ({}, {}, None, "-0", None),
        ({"consumer.group.instance.id": "mine"}, {}, "penstock-1-a-0", "", "mine"),
        ({"consumer.group.instance.id": "mine"}, {"consumer.override.group.instance.id": "its"}, None, "-1", "its-1"),
        ({}, {"consumer.override.group.instance.id": ""}, "penstock-1-a-0", "-1", None),
    ],
)
def test_a_users_own_id_of_a_static_member_counts_and_tells_tasks_apart(
    worker: dict[str, str], connector: dict[str, str], default: str | None, suffix: str, found: str | None
) -> None:
    given = consumer_settings(
        {"bootstrap.servers": "k:1", **worker},
        connector,
        client_id="c",
        group_id="g",
        instance_id=default,
        instance_suffix=suffix,
    )
    assert given.librdkafka.get("group.instance.id") == found


def test_ids_of_static_members_are_what_kafka_allows_and_differ() -> None:
    names = ["a", "A", "a b", "a_b", "\N{GREEK SMALL LETTER ALPHA}", "/", "x" * 300, "x" * 301, "a-1"]
    ids = [sink_instance_id("0123456789abcdef", name, task) for name in names for task in (0, 1, 1000)]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", one) for one in ids)


#: A value of each setting that is used, and is not what the client does without it. Families have tests of their own.
USED: Mapping[str, str] = {
    "acks": "1",
    "allow.auto.create.topics": "false",
    "auto.offset.reset": "latest",
    "batch.size": "4711",
    "bootstrap.servers": "127.0.0.1:2",
    "buffer.memory": "4711000",
    "check.crcs": "false",
    "client.dns.lookup": "resolve_canonical_bootstrap_servers_only",
    "client.id": "mine",
    "client.rack": "r",
    "connections.max.idle.ms": "4711",
    "delivery.timeout.ms": "4711",
    "enable.idempotence": "false",
    "enable.metrics.push": "false",
    "fetch.max.bytes": "4711",
    "fetch.max.wait.ms": "471",
    "fetch.min.bytes": "471",
    "group.id": "mine",
    "group.instance.id": "mine",
    "group.protocol": "consumer",
    "group.remote.assignor": "uniform",
    "heartbeat.interval.ms": "471",
    "isolation.level": "read_committed",
    "max.in.flight.requests.per.connection": "2",
    "max.partition.fetch.bytes": "4711",
    "max.poll.interval.ms": "400000",
    "max.request.size": "4711",
    "metadata.max.age.ms": "4711",
    "metadata.recovery.rebootstrap.trigger.ms": "4711",
    "metadata.recovery.strategy": "none",
    "partition.assignment.strategy": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
    "partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner",
    "partitioner.ignore.keys": "true",
    "receive.buffer.bytes": "4711",
    "reconnect.backoff.max.ms": "4711",
    "reconnect.backoff.ms": "471",
    "request.timeout.ms": "4711",
    "retries": "3",
    "retry.backoff.max.ms": "4711",
    "retry.backoff.ms": "471",
    "sasl.kerberos.min.time.before.relogin": "4711",
    "sasl.oauthbearer.sub.claim.name": "who",
    "security.protocol": "SSL",
    "send.buffer.bytes": "4711",
    "session.timeout.ms": "7000",
    "socket.connection.setup.timeout.ms": "4711",
    "transaction.timeout.ms": "4711",
    "transactional.id": "theirs",
}
ROWS_USED = [
    pytest.param(kind, row, id=f"{kind.value}-{row.name}")
    for row in SETTINGS
    for kind in sorted(row.clients, key=lambda one: one.value)
    if row.treatment is Treatment.USED and row.family is None
]


@pytest.mark.parametrize(("kind", "row"), ROWS_USED)
def test_a_setting_that_is_used_changes_what_the_client_is_made_with(kind: ClientKind, row: Setting) -> None:
    worker, own = {"bootstrap.servers": "127.0.0.1:1"}, {f"{kind.value}.override.{row.name}": USED[row.name]}
    if kind is PRODUCER:
        # One of transactions is the worker's to give.
        transactional = USED[row.name] if row.name == "transactional.id" else None
        plain = ColumnSettings.of(producer_settings(worker, {}, client_id="c"))
        if transactional is not None:
            own = {}
        given = producer_settings(worker, own, client_id="c", transactional_id=transactional)
        assert ColumnSettings.of(given) != plain
        return
    if kind is ADMIN:
        library = admin_settings(worker, own, client_id="c").checked().librdkafka
        assert library != admin_settings(worker, {}, client_id="c").checked().librdkafka
        AdminClient({**library, "log_level": 0})
        return
    before, after = (
        RecordConsumer.client_settings(consumer_settings(worker, one, client_id="c", group_id="g").checked().librdkafka)
        for one in ({}, own)
    )
    assert {name for name in after if after[name] != before.get(name)} & {*row.targets, "security.protocol"}
    ck.Consumer({**after, "log_level": 0}).close()


def test_lines_of_the_client_pass_unless_the_worker_says_the_same(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for facility in ("FAIL", "ERROR", "CONFWARN"):
        CLIENT_LOG.warning("%s [%s] %s", facility, "rdkafka#consumer-1", "text")
    assert caplog.messages == ["CONFWARN [rdkafka#consumer-1] text"]
    caplog.set_level(logging.DEBUG)
    CLIENT_LOG.warning("%s [%s] %s", "FAIL", "rdkafka#consumer-1", "text")
    assert caplog.messages[1:] == ["FAIL [rdkafka#consumer-1] text"]
