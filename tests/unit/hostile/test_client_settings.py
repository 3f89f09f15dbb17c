"""Settings of Kafka's clients that load code, files or processes, from connectors and requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient
from tests.unit.hostile.native_code import NativeCode, build
from tools.reference import librdkafka

from penstock.errors import BadRequestException, ConfigException
from penstock.kafka.settings import librdkafka as listing
from penstock.kafka.settings.client import (
    ClientSettings,
    admin_settings,
    client_knows,
    consumer_settings,
    producer_settings,
    translate,
)
from penstock.kafka.settings.librdkafka import (
    PROPERTIES,
    fault_of,
    is_secret_of_librdkafka,
    kept_from_connectors,
    property_for,
    reason_kept_from_connectors,
)
from penstock.kafka.settings.table import (
    SETTINGS,
    ClientKind,
    OverridePolicy,
    Treatment,
    is_client_secret,
    parse_policy,
    policy_of,
    setting_for,
)
from penstock.kafka.topic_log.internal_topics import connector_offset_log
from penstock.plugins import Plugins
from penstock.validation.validator import ConnectorValidator

SOURCE = {"name": "a", "connector.class": "FileStreamSource", "topic": "t", "file": "/nowhere"}
SINK = {"name": "a", "connector.class": "FileStreamSink", "topics": "t", "file": "/nowhere"}
WORKER = {"bootstrap.servers": "127.0.0.1:1"}
#: Texts that open no file or connection by themselves; every other text setting is in one of the tables here.
PLAIN_TEXTS = frozenset(
    {
        "bootstrap.servers",
        "broker.version.fallback",
        "client.id",
        "client.rack",
        "group.id",
        "group.instance.id",
        "group.protocol.type",
        "group.remote.assignor",
        "https.ca.pem",
        "metadata.broker.list",
        "partition.assignment.strategy",
        "partitioner",
        "sasl.kerberos.service.name",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.oauthbearer.assertion.claim.aud",
        "sasl.oauthbearer.assertion.claim.iss",
        "sasl.oauthbearer.assertion.claim.sub",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.extensions",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.sub.claim.name",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.username",
        "share.acknowledgement.mode",
        "ssl.ca.certificate.stores",
        "ssl.ca.pem",
        "ssl.certificate.pem",
        "ssl.cipher.suites",
        "ssl.curves.list",
        "ssl.keystore.location",
        "ssl.sigalgs.list",
        "transactional.id",
    }
)
#: What loads code or files of its own, runs commands or processes, or is no text at all.
DANGEROUS = [
    "default_topic_conf",
    "enable.sasl.oauthbearer.unsecure.jwt",
    "error_cb",
    "interceptors",
    "internal.termination.signal",
    "logger",
    "oauth_cb",
    "offset.store.path",
    "on_commit",
    "plugin.library.paths",
    "plugin.of.a.later.version",
    "sasl.kerberos.keytab",
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.principal",
    "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.template.file",
    "sasl.oauthbearer.metadata.authentication.type",
    "security.providers",
    "ssl.ca.location",
    "ssl.engine.factory.class",
    "ssl.engine.id",
    "ssl.engine.location",
    "ssl.key.location",
    "ssl.provider",
    "ssl.providers",
    "test.mock.num.brokers",
    "topic.blacklist",
]
POLICIES = ["All", "None", "Principal", "Allowlist"]
ALLOWLIST = ",".join(DANGEROUS)


def of_policy(name: str) -> Mapping[str, str]:
    """A worker's properties with a policy; the allow list names all that is dangerous."""
    return {
        **WORKER,
        "connector.client.config.override.policy": name,
        "connector.client.config.override.allowlist": ALLOWLIST,
    }


@pytest.fixture(autouse=True)
def _no_client_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """To make one is an error here."""

    def made(*given: object, **more: object) -> NoReturn:
        raise AssertionError(f"a client was made with {given} {more}")

    monkeypatch.setattr(ck, "Consumer", made)
    monkeypatch.setattr("confluent_kafka.admin.AdminClient", made)
    monkeypatch.setattr("penstock.kafka.admin.AdminClient", made)


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> NativeCode:
    return build(tmp_path_factory.mktemp("native"))


def loading(prefix: str, native: NativeCode) -> dict[str, str]:
    return {
        f"{prefix}plugin.library.paths": str(native.library),
        f"{prefix}security.protocol": "SSL",
        f"{prefix}ssl.engine.id": "dynamic",
        f"{prefix}ssl.engine.location": str(native.library),
        f"{prefix}ssl.providers": f"default,../../../../../..{native.library.with_suffix('')}",
    }


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", [kind.value for kind in ClientKind])
@pytest.mark.parametrize("connector", [SOURCE, SINK], ids=["source", "sink"])
def test_no_library_is_loaded_by_validating_or_creating(
    connector: Mapping[str, str], kind: str, policy: str, native: NativeCode
) -> None:
    worker = of_policy(policy)
    config: dict[str, str | None] = {**connector, **loading(f"{kind}.override.", native)}
    validator = ConnectorValidator(Plugins(), policy_of(worker), worker)

    infos = validator.infos(config, config)
    with pytest.raises(BadRequestException):
        validator(config, config)
    validator.facts({name: text for name, text in config.items() if text is not None})

    refused = {one.name for one in infos.findings if one.value.error_messages}
    assert {f"{kind}.override.{name}" for name in ("plugin.library.paths", "ssl.engine.location", "ssl.providers")} <= (
        refused
    )
    assert not native.was_loaded()


def clients(worker: Mapping[str, str], connector: Mapping[str, str]) -> Iterator[ClientSettings]:
    """The settings of every client that is made for a connector."""
    yield producer_settings(worker, connector, client_id="p")
    yield producer_settings(worker, connector, client_id="p", transactional_id="t")
    yield consumer_settings(worker, connector, client_id="c", group_id="g")
    yield admin_settings(worker, connector, client_id="a")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", DANGEROUS)
def test_what_is_stored_or_allowed_by_mistake_reaches_no_client(name: str, policy: str) -> None:
    worker = of_policy(policy)
    for kind in ClientKind:
        config = {f"{kind.value}.override.{name}": "/tmp/evil"}
        own = [client for client in clients(worker, config) if client.kind is kind]
        for client in own:
            assert [fault.name for fault in client.refused] == [name]
            assert name not in {**client.librdkafka, **client.own, **client.java}
            with pytest.raises(ConfigException, match="A connector may not set"):
                client.checked()


@pytest.mark.parametrize("policy", POLICIES)
def test_what_the_policy_forbids_is_looked_at_by_nothing(policy: str, tmp_path: Path) -> None:
    worker = of_policy(policy)
    store = tmp_path / "store.pem"
    store.write_text("no key here: s3cret", encoding="utf-8")
    given = {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": str(store)}
    for kind in ClientKind:
        config = {f"{kind.value}.override.{name}": text for name, text in given.items()}
        for client in (client for client in clients(worker, config) if client.kind is kind):
            refused = {fault.name: fault.reason for fault in client.refused}
            allowed = {"All": set(given), "Principal": {"security.protocol"}}.get(policy, set())
            assert {name for name, why in refused.items() if "policy does not allow" in why} == set(given) - allowed
            assert (client.tls is not None) == ("security.protocol" in allowed)


def test_a_forbidden_group_is_none_and_the_workers_own_settings_of_logs_are_no_overrides() -> None:
    worker = of_policy("None")
    given = consumer_settings(worker, {"consumer.override.group.id": "others"}, client_id="c", group_id="mine")
    assert given.java["group.id"] == "mine"
    with pytest.raises(ConfigException, match=r"'None' policy does not allow 'group\.id'"):
        given.checked()
    log = connector_offset_log(worker, {}, "a", transactional=True)
    assert log.reader["isolation.level"] == "read_committed"
    assert log.reader["enable.auto.commit"] is False


@pytest.mark.parametrize("name", DANGEROUS)
def test_a_client_that_the_connector_does_not_use_is_no_way_round(name: str) -> None:
    for connector, kind in ((SOURCE, "consumer"), (SOURCE, "admin"), (SINK, "producer"), (SINK, "admin")):
        setting = f"{kind}.override.{name}"
        config = {**connector, setting: "x"}
        found = ConnectorValidator(Plugins(), None, WORKER).infos(config, config).findings
        assert [one.name for one in found if one.value.error_messages] == [setting]


def test_the_workers_file_may_name_libraries_and_commands_but_no_objects() -> None:
    given = {"plugin.library.paths": "monitoring-interceptor", "ssl.providers": "default,legacy", "debug": "all"}
    worker = {**WORKER, **{f"consumer.{name}": text for name, text in given.items()}, "consumer.error_cb": "print"}
    client = consumer_settings(worker, {}, client_id="c", group_id="g").checked()
    assert given.items() <= client.librdkafka.items()
    assert "error_cb" not in client.librdkafka
    assert [left.name for left in client.unused] == ["error_cb"]


def test_the_table_is_that_of_the_installed_library() -> None:
    listed = Path(listing.__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    assert listed == librdkafka.properties()
    assert list(PROPERTIES) == [row.split(" ")[0] for row in listed]


def test_every_text_of_librdkafka_was_decided_upon() -> None:
    for name, one in PROPERTIES.items():
        if one.type != "text":
            continue
        decided = [
            name in PLAIN_TEXTS,
            is_secret_of_librdkafka(name),
            reason_kept_from_connectors(name) is not None,
        ]
        assert any(decided), f"{name}: may a connector give it, and is it a secret?"
        assert not (decided[0] and (decided[1] or decided[2])), name
    assert not PLAIN_TEXTS - PROPERTIES.keys()
    assert all("file" not in name and "location" not in name for name in PLAIN_TEXTS - {"ssl.keystore.location"})
    assert all(row.treatment is Treatment.USED for row in SETTINGS if row.name == "ssl.keystore.location")


def test_a_name_is_secret_whichever_client_it_is_given_to() -> None:
    for name in ("sasl.password", "sasl.oauthbearer.client.secret", "ssl.key.pem", "sasl.jaas.config", "my.api.key"):
        assert is_client_secret(name), name
    for name in ("acks", "sasl.username", "ssl.ca.location", "sasl.oauthbearer.token.endpoint.url"):
        assert not is_client_secret(name), name


@pytest.mark.parametrize("kind", [ClientKind.CONSUMER, ClientKind.ADMIN])
def test_values_are_checked_without_the_library_as_it_checks_them(
    kind: ClientKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    values = [
        "1",
        " 10 ",
        "-1",
        "0",
        "999999999999",
        "x",
        "true",
        "FALSE",
        "1_0",
        "\N{ARABIC-INDIC DIGIT THREE}",
        "1.5",
    ]
    harmless = [name for name, one in PROPERTIES.items() if one.type in ("integer", "boolean", "choice")]
    wrong = []
    for name in harmless:
        if not client_knows(kind, name) or setting_for(kind, name) or reason_kept_from_connectors(name):
            continue
        for text in [*values, *PROPERTIES[name].choices]:
            if fault_of(name, text) is not None:
                continue
            given: dict[str, Any] = {"log_level": 0, name: text.strip()}
            try:
                if kind is ClientKind.ADMIN:
                    AdminClient(given)
                else:
                    ck.Consumer({"group.id": "g", "heartbeat.interval.ms": "1", **given}).close()
            except ck.KafkaException as error:
                said = str(error)
                if "Invalid value" in said or "Expected" in said or "outside allowed range" in said:
                    wrong.append((name, text, said))
    assert wrong == []


def test_a_value_that_the_library_would_refuse_is_an_error_of_the_validation() -> None:
    given = translate(ClientKind.CONSUMER, {"queued.min.messages": "many", "broker.address.family": "v5"})
    assert {fault.name: fault.reason for fault in given.refused} == {
        "queued.min.messages": "it is a number from 1 to 10000000",
        "broker.address.family": "it is one of any, v4, v6",
    }


@pytest.mark.parametrize("option", ["principal", "keyTab"])
@pytest.mark.parametrize(
    "text", ["x; touch /tmp/x", "$(touch x)", "`x`", "-S", "a%{sasl.password}", "a\nb", "a|b", "a&b", "a'b", "a>b"]
)
def test_who_logs_in_with_kerberos_is_no_command_of_the_shell(option: str, text: str) -> None:
    given = {"principal": "me/host@REALM", "keyTab": "/etc/k.keytab", option: text}
    options = " ".join(f'{name}="{value}"' for name, value in given.items())
    module = "com.sun.security.auth.module.Krb5LoginModule"
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.jaas.config": f"{module} required {options};",
    }
    for kind in ClientKind:
        assert [fault.name for fault in translate(kind, settings).refused] == ["sasl.jaas.config"]
        assert translate(kind, settings).sasl is None
        good = {**settings, "sasl.jaas.config": f'{module} required principal="me/h@R" keyTab="/etc/k.keytab";'}
        assert translate(kind, good).refused == ()


def test_policies_are_parsed_alike_for_validation_and_for_clients() -> None:
    assert policy_of({}) == OverridePolicy() == parse_policy("All", ())
    assert policy_of(of_policy("Allowlist")) == parse_policy("Allowlist", DANGEROUS)
    assert set(DANGEROUS) - {"ssl.engine.factory.class"} - kept_from_connectors().keys() == {
        "oauth_cb",
        "plugin.of.a.later.version",
        "ssl.provider",
        "test.mock.num.brokers",
    }
    assert property_for("error_cb") is None
