"""A worker's file."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from penstock.config import ConfigData, ConfigProvider, Password
from penstock.errors import ConfigException
from penstock.settings import (
    STANDALONE,
    WORKER,
    InvalidSettingsError,
    ProviderSettings,
    StandaloneSettings,
    WorkerSettings,
    resolve_placeholders,
)

MINIMUM = {
    "bootstrap.servers": "one:9092, two:9092",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "offset.storage.file.filename": "offsets",
}


def _faults(changes: dict[str, Any]) -> dict[str, tuple[str | None, str]]:
    config = {name: value for name, value in {**MINIMUM, **changes}.items() if value is not ...}
    with pytest.raises(InvalidSettingsError) as refused:
        StandaloneSettings.parse(config)
    assert all(fault.rule in str(refused.value) for fault in refused.value.faults)
    return {fault.key: (fault.value, fault.rule) for fault in refused.value.faults}


def test_the_defaults_are_those_of_kafka() -> None:
    settings = StandaloneSettings.parse(MINIMUM)
    assert settings.bootstrap_servers == ("one:9092", "two:9092")
    assert settings.offset_file == "offsets"
    assert settings.listeners == ("http://:8083",)
    assert settings.admin_listeners is None
    assert settings.header_converter.class_text == "org.apache.kafka.connect.storage.SimpleHeaderConverter"
    assert (settings.offset_flush_interval_ms, settings.offset_flush_timeout_ms) == (60000, 5000)
    assert settings.task_shutdown_graceful_timeout_ms == 5000
    assert (settings.plugin_path, settings.config_providers) == (None, ())
    assert (settings.override_policy, settings.override_allowlist) == ("All", ())
    assert settings.topic_creation_enable
    assert (settings.batch_max_records, settings.batch_max_bytes) == (100_000, 16_777_216)


def test_the_number_of_settings_is_kafkas_and_our_own() -> None:
    # 31 common and 20 for TLS; the allow list of overrides, three for Spark, one for Kafka, two for batches and users.
    assert len(WORKER.keys) == 31 + 20 + 1 + 3 + 1 + 2 + 2
    assert [name for name in STANDALONE.names() if name not in WORKER.keys] == [
        "offset.storage.file.filename",
        "config.storage.file.filename",
    ]
    assert all(key.doc for key in STANDALONE.keys.values())


def test_prefixes_take_a_file_apart() -> None:
    extra = {
        "key.converter.schemas.enable": "false",
        "producer.sasl.jaas.config": "secret",
        "spark.executor.memory": "1g",
        "something.unknown": "kept",
    }
    settings = StandaloneSettings.parse({**MINIMUM, **extra})
    assert settings.raw == {**MINIMUM, **extra}
    assert settings.key_converter.config == {"schemas.enable": "false"}
    assert settings.spark_settings() == {"spark.executor.memory": "1g"}
    assert "secret" not in repr(settings)


def test_the_rest_server_has_tls_settings_of_its_own_or_the_plain_ones() -> None:
    plain = {**MINIMUM, "ssl.keystore.location": "plain", "ssl.keystore.password": "p"}
    assert WorkerSettings.parse(plain).rest_tls_settings()["ssl.keystore.location"] == "plain"
    assert WorkerSettings.parse(plain).ssl_keystore_password == Password("p")
    assert WorkerSettings.parse(plain).ssl_key_password is None
    own = {**plain, "listeners.https.ssl.keystore.location": "own"}
    assert WorkerSettings.parse(own).rest_tls_settings() == {"ssl.keystore.location": "own"}


def test_all_faults_are_reported_at_once() -> None:
    found = _faults(
        {
            "value.converter": ...,
            "bootstrap.servers": " ",
            "offset.flush.interval.ms": "soon",
            "ssl.client.auth": "maybe",
            "batch.max.records": "0",
            "config.providers": "vault",
            "header.converter": None,
        }
    )
    assert found == {
        "value.converter": (None, 'Missing required configuration "value.converter" which has no default value.'),
        "bootstrap.servers": (
            " ",
            "Invalid value   for configuration bootstrap.servers: Expected at least one host:port",
        ),
        "offset.flush.interval.ms": (
            "soon",
            "Invalid value soon for configuration offset.flush.interval.ms: Not a number of type LONG",
        ),
        "ssl.client.auth": (
            "maybe",
            "Invalid value maybe for configuration ssl.client.auth: String must be one of: required, requested, none",
        ),
        "batch.max.records": (
            "0",
            "Invalid value 0 for configuration batch.max.records: Value must be at least 1",
        ),
        "config.providers": (
            "vault",
            'Missing required configuration "config.providers.vault.class" which has no default value.',
        ),
        "header.converter": (
            "null",
            "Invalid value null for configuration header.converter: Value must be non-null",
        ),
    }


@pytest.mark.parametrize("interval", ["0", "-5"])
def test_an_interval_that_would_commit_without_pause_is_refused(interval: str) -> None:
    rule = f"Invalid value {interval} for configuration offset.flush.interval.ms: Value must be at least 1"
    assert _faults({"offset.flush.interval.ms": interval}) == {"offset.flush.interval.ms": (interval, rule)}


@pytest.mark.parametrize("server", ["nohost", "host:", "host:port", "host:70000", "a b:c"])
def test_a_server_without_host_and_port_is_refused_by_name(server: str) -> None:
    rule = f"Invalid value {server} for configuration bootstrap.servers: Expected host:port"
    assert _faults({"bootstrap.servers": f"good:9092, {server}"}) == {"bootstrap.servers": (server, rule)}


@pytest.mark.parametrize("server", ["h:1", "10.0.0.1:9092", "[::1]:9092", "PLAINTEXT://h:9092", "h%eth0:1"])
def test_servers_that_kafkas_clients_take(server: str) -> None:
    assert StandaloneSettings.parse({**MINIMUM, "bootstrap.servers": server}).bootstrap_servers == (server,)


@pytest.mark.parametrize("url", ["", ",", "localhost:8083", "ftp://x:1", "http://x", "http://x:port", "http://x:99999"])
def test_listeners_must_be_urls_with_ports(url: str) -> None:
    assert list(_faults({"listeners": url})) == ["listeners"]


def test_admin_listeners_may_be_empty() -> None:
    assert StandaloneSettings.parse({**MINIMUM, "admin.listeners": ""}).admin_listeners == ()
    listed = StandaloneSettings.parse({**MINIMUM, "admin.listeners": "https://h:1"})
    assert listed.admin_listeners == ("https://h:1",)
    assert "admin.listeners" in _faults({"admin.listeners": "h"})


@pytest.mark.parametrize(
    "rules", ["", "set X-A: b", 'add Cache-Control:no-cache,"set X-B: a, b"', "setDate Expires: 1"]
)
def test_header_rules_that_kafka_takes(rules: str) -> None:
    assert StandaloneSettings.parse({**MINIMUM, "response.http.headers.config": rules}).response_headers == rules


@pytest.mark.parametrize("rules", ["X-A: b", "set X-A", "set : b", "remove X: y", "set X Y: z", "set A: b,"])
def test_header_rules_that_kafka_refuses(rules: str) -> None:
    assert "response.http.headers.config" in _faults({"response.http.headers.config": rules})


class _Vault(ConfigProvider):
    closed = 0

    def get(self, path: str, keys: Collection[str] | None = None) -> ConfigData:
        return ConfigData({key: f"{path}/{key}" for key in keys or ()})

    def close(self) -> None:
        type(self).closed += 1


def test_placeholders_in_the_file_are_resolved_by_its_own_providers() -> None:
    config = {
        **MINIMUM,
        "config.providers": "vault, vault",
        "config.providers.vault.class": " some.Vault ",
        "config.providers.vault.param.token": "t",
        "producer.sasl.password": "${vault:/kafka:pw}",
    }
    asked: list[ProviderSettings] = []

    def new_provider(settings: ProviderSettings) -> ConfigProvider:
        asked.append(settings)
        return _Vault()

    before = _Vault.closed
    resolved = resolve_placeholders(config, new_provider)
    assert resolved["producer.sasl.password"] == "/kafka/pw"
    assert asked == [ProviderSettings("vault", "some.Vault", {"token": "t"})]
    assert _Vault.closed == before + 1
    assert StandaloneSettings.parse(resolved).config_providers == tuple(asked)


def test_a_provider_that_cannot_be_made_closes_the_others() -> None:
    def new_provider(settings: ProviderSettings) -> ConfigProvider:
        if settings.name == "b":
            raise ConfigException("no such class")
        return _Vault()

    config = {"config.providers": "a,b", "config.providers.a.class": "A", "config.providers.b.class": "B"}
    before = _Vault.closed
    with pytest.raises(ConfigException, match="no such class"):
        resolve_placeholders(config, new_provider)
    assert _Vault.closed == before + 1
