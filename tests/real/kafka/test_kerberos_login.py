"""A login with a Kerberos ticket at a real broker, with a key distribution centre of its own."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from testkit.brokers.embedded import SecuredBroker
from testkit.brokers.group_owner import QUICK, GroupOwner, run_member
from testkit.doubles.source_doubles import produce_batch
from testkit.processes.transaction_worker import Ignored, read_committed

from penstock.broker import free_port
from penstock.kafka.producer.column_producer import ColumnProducer
from penstock.kafka.settings.client import producer_settings
from penstock.kafka.settings.producer import ColumnSettings

pytestmark = [
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("gssapi") is None or shutil.which("krb5kdc") is None,
        reason="it needs penstock[kerberos] and a key distribution centre (Debian: libkrb5-dev, krb5-kdc)",
    ),
]

WAIT_S = 60.0
MODULE = "com.sun.security.auth.module.Krb5LoginModule"


@dataclass
class Realm:
    """A realm with a broker and a client."""

    config: Path
    broker_keys: Path
    client_keys: Path


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    home = tmp_path_factory.mktemp("realm")
    port = free_port()
    made = Realm(home / "krb5.conf", home / "broker.keytab", home / "client.keytab")
    made.config.write_text(
        "[libdefaults]\n default_realm = TEST\n dns_canonicalize_hostname = false\n rdns = false\n"
        f" udp_preference_limit = 1\n[realms]\n TEST = {{\n  kdc = 127.0.0.1:{port}\n }}\n"
    )
    (home / "kdc.conf").write_text(
        f"[kdcdefaults]\n kdc_ports = {port}\n kdc_tcp_ports = {port}\n[realms]\n TEST = {{\n"
        f"  database_name = {home}/principal\n  key_stash_file = {home}/stash\n  acl_file = {home}/acl\n }}\n"
    )
    environment = {**os.environ, "KRB5_CONFIG": str(made.config), "KRB5_KDC_PROFILE": str(home / "kdc.conf")}

    def run(*command: str) -> None:
        subprocess.run(command, check=True, capture_output=True, env=environment, timeout=60)

    run("/usr/sbin/kdb5_util", "create", "-r", "TEST", "-s", "-P", "master")
    for principal, keys in (("kafka/127.0.0.1", made.broker_keys), ("me", made.client_keys)):
        run("/usr/sbin/kadmin.local", "-q", f"addprinc -randkey {principal}@TEST")
        run("/usr/sbin/kadmin.local", "-q", f"ktadd -k {keys} {principal}@TEST")
    kdc = subprocess.Popen(["/usr/sbin/krb5kdc", "-n"], env=environment)
    yield made
    kdc.kill()
    kdc.wait()


@pytest.fixture
def settings(realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Settings of a client of a broker that takes tickets alone; `plain` is where that broker asks for none."""
    monkeypatch.setenv("KRB5_CONFIG", str(realm.config))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={realm.config}")
    listener = {
        "sasl.enabled.mechanisms": "GSSAPI",
        "gssapi.sasl.jaas.config": f'{MODULE} required useKeyTab=true storeKey=true keyTab="{realm.broker_keys}" '
        'principal="kafka/127.0.0.1@TEST";',
        "sasl.kerberos.service.name": "kafka",
    }
    with SecuredBroker(tmp_path / "kafka", listeners={"SASL_PLAINTEXT": listener}) as broker:
        yield {
            "plain": broker.bootstrap_servers,
            "bootstrap.servers": broker.bootstrap_of("SASL_PLAINTEXT"),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": f'{MODULE} required useKeyTab=true keyTab="{realm.client_keys}" principal="me@TEST";',
        }


def test_a_producer_logs_in_with_the_key_of_its_principal(settings: dict[str, str]) -> None:
    plain = settings.pop("plain")
    worker = {f"producer.{name}": text for name, text in settings.items()}
    made = ColumnProducer(ColumnSettings.of(producer_settings(worker, {}, client_id="c")), name="kerberos")
    try:
        made.send(produce_batch(["a", "b"], ["tickets"] * 2), Ignored())
        assert made.wait_delivered(WAIT_S), made.trouble
    finally:
        made.close(0)
    assert [value for _, value in read_committed(plain, "tickets")] == [b"a", b"b"]


def test_a_member_of_a_group_logs_in_with_the_key_of_its_principal(settings: dict[str, str]) -> None:
    with run_member(settings | {"group.id": "tickets", **QUICK}, owner := GroupOwner("one")):
        owner.wait_joined("one of 1", timeout_s=WAIT_S)
        assert not owner.all("refused")
