import socket
import ssl
from pathlib import Path

import confluent_kafka as ck
import pytest

from penstock.kafka.settings.client import admin_settings
from penstock.kafka.settings.security import (
    SaslSettings,
    TlsSettings,
    TranslatedFamily,
    client_context,
    librdkafka_sasl,
    librdkafka_tls,
    parse_jaas,
    sasl,
    tls,
)
from penstock.kafka.settings.values import RdValue, assignors
from penstock.keystores import openssl_cipher

STORES = Path(__file__).parents[3] / "data" / "tls"

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"


def told_tls(part: TranslatedFamily[TlsSettings]) -> dict[str, RdValue]:
    return {} if part.value is None else librdkafka_tls(part.value)


def told_sasl(part: TranslatedFamily[SaslSettings]) -> dict[str, RdValue]:
    return {} if part.value is None else librdkafka_sasl(part.value)


def test_pem_files_and_pem_text_describe_keys_and_trust() -> None:
    files = tls(
        {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(STORES / "ca.pem"),
            "ssl.keystore.type": "pem",
            "ssl.keystore.location": str(STORES / "client.pem"),
            "ssl.key.password": "k",
        }
    )
    text = tls(
        {
            "security.protocol": "SSL",
            "ssl.truststore.certificates": "CA",
            "ssl.keystore.key": "KEY",
            "ssl.keystore.certificate.chain": "CHAIN",
            "ssl.key.password": "k",
        }
    )

    own = (STORES / "client.pem").read_text()
    assert told_tls(files) == {
        "ssl.ca.pem": (STORES / "ca.pem").read_text(),
        "ssl.key.pem": own,
        "ssl.certificate.pem": own,
        "ssl.key.password": "k",
        "ssl.endpoint.identification.algorithm": "https",
    }
    assert told_tls(text) == {
        "ssl.ca.pem": "CA",
        "ssl.key.pem": "KEY",
        "ssl.certificate.pem": "CHAIN",
        "ssl.key.password": "k",
        "ssl.endpoint.identification.algorithm": "https",
    }
    assert not files.faults
    assert not text.faults


@pytest.mark.parametrize("key_store", ["server.p12", "server.jks"])
@pytest.mark.parametrize("trust_store", ["trust.p12", "trust.jks"])
def test_javas_key_stores_are_handed_to_the_client_as_text(key_store: str, trust_store: str) -> None:
    part = tls(
        {
            "security.protocol": "SSL",
            "ssl.keystore.location": str(STORES / key_store),
            "ssl.keystore.password": "storepass",
            "ssl.key.password": "keypass1",
            "ssl.truststore.location": str(STORES / trust_store),
            "ssl.truststore.password": "storepass",
        }
    )

    own = (STORES / "server.pem").read_text()
    assert not part.faults
    told = told_tls(part)
    assert str(told["ssl.key.pem"]) + str(told["ssl.certificate.pem"]) == own
    assert told["ssl.ca.pem"] == (STORES / "ca.pem").read_text()
    assert "ssl.key.password" not in told
    assert part.value is not None
    assert len(client_context(part.value).get_ca_certs()) == 1


def test_key_stores_that_cannot_be_read_are_faults_of_their_settings() -> None:
    wrong = {"ssl.keystore.location": str(STORES / "server.jks"), "ssl.truststore.location": "/nowhere/trust.jks"}

    part = tls({**wrong, "security.protocol": "SASL_SSL", "ssl.keystore.password": "guess"})

    assert part.faults.keys() == {"ssl.keystore.password", "ssl.truststore.location"}
    assert tls(wrong).faults == {}, "without encryption nobody needs them"


def test_a_client_shows_the_certificates_of_its_key_store_to_the_broker() -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(STORES / "chain-root.pem"))
    context.load_cert_chain(STORES / "server.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    stores = {
        "ssl.keystore.location": str(STORES / "chain.p12"),
        "ssl.keystore.password": "storepass",
        "ssl.truststore.location": str(STORES / "trust.jks"),
    }
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        worker = {"bootstrap.servers": address, "security.protocol": "SSL", **stores}
        settings = admin_settings(worker, client_id="test").checked()
        client = ck.Producer({**settings.librdkafka, "log_level": 0})
        plain, _ = server.accept()
        plain.settimeout(20)
        # The server knows the root alone, so the handshake needs the intermediate certificate from the client.
        with context.wrap_socket(plain, server_side=True) as encrypted:
            shown = encrypted.getpeercert()
    del client
    assert shown is not None
    assert shown["subject"] == ((("commonName", "localhost"),),)


def test_the_host_name_check_and_the_cipher_suites_keep_their_meaning() -> None:
    part = tls(
        {
            "security.protocol": "SSL",
            "ssl.endpoint.identification.algorithm": "",
            "ssl.cipher.suites": "TLS_AES_128_GCM_SHA256, TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        }
    )

    assert told_tls(part) == {
        "ssl.endpoint.identification.algorithm": "none",
        "ssl.cipher.suites": "ECDHE-ECDSA-AES256-GCM-SHA384",
    }
    assert openssl_cipher("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256") == "ECDHE-RSA-CHACHA20-POLY1305"


def test_sasl_settings_count_only_with_a_sasl_protocol() -> None:
    assert sasl({"sasl.mechanism": "PLAIN", "sasl.jaas.config": "nonsense"}).value is None


@pytest.mark.parametrize(("mechanism", "module"), [("PLAIN", PLAIN), ("SCRAM-SHA-512", SCRAM)])
def test_user_and_password_come_from_the_jaas_text(mechanism: str, module: str) -> None:
    part = sasl(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{module} required username=\'me\' password="a;\\"b=c";',
        }
    )

    assert told_sasl(part) == {"sasl.mechanism": mechanism, "sasl.username": "me", "sasl.password": 'a;"b=c'}


@pytest.mark.parametrize(
    ("mechanism", "text", "reason"),
    [
        ("PLAIN", f'{SCRAM} required username="a" password="b";', "PLAIN needs the PlainLoginModule"),
        ("PLAIN", f'{PLAIN} required username="a";', "with username and password"),
        ("PLAIN", f'{PLAIN} required username="a" password="b"', "expected: <login module class>"),
        ("PLAIN", f'{PLAIN} username="a" password="b";', "must be required"),
        ("PLAIN", f'{PLAIN} required username="a password=b;', "quote is not closed"),
        ("SCRAM-SHA-256", f'{SCRAM} required username="a" password="b" tokenauth=true;', "delegation tokens"),
        ("GSSAPI", f'{PLAIN} required username="a" password="b";', "needs the Krb5LoginModule"),
    ],
)
def test_a_login_that_cannot_work_says_what_is_missing(mechanism: str, text: str, reason: str) -> None:
    part = sasl({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": text})

    assert reason in part.faults["sasl.jaas.config"]


def test_tokens_come_from_an_endpoint_with_credentials_of_the_old_and_the_new_form() -> None:
    base = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "https://login/token",
        "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer."
        "secured.OAuthBearerLoginCallbackHandler",
    }
    old = sasl({**base, "sasl.jaas.config": f'{OAUTH} required clientId="i" clientSecret="s" scope="x";'})
    new = sasl(
        {
            **base,
            "sasl.oauthbearer.client.credentials.client.id": "i",
            "sasl.oauthbearer.client.credentials.client.secret": "s",
            "sasl.oauthbearer.scope": "x",
        }
    )

    assert old.value == new.value
    assert told_sasl(old) == {
        "sasl.oauthbearer.token.endpoint.url": "https://login/token",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.grant.type": "client_credentials",
        "sasl.oauthbearer.client.id": "i",
        "sasl.oauthbearer.client.secret": "s",
        "sasl.oauthbearer.scope": "x",
    }
    assert (
        "token endpoint"
        in (
            sasl({**base, "sasl.oauthbearer.token.endpoint.url": "file:///t"}).faults[
                "sasl.oauthbearer.token.endpoint.url"
            ]
        )
    )


def test_kerberos_takes_principal_and_key_tab_from_the_jaas_text() -> None:
    part = sasl(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.kerberos.service.name": "broker",
            "sasl.jaas.config": f'{KERBEROS} required useKeyTab=true keyTab="/k" principal="me@X";',
        }
    )

    assert told_sasl(part) == {
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "broker",
        "sasl.kerberos.principal": "me@X",
        "sasl.kerberos.keytab": "/k",
    }


def test_two_login_modules_are_refused() -> None:
    with pytest.raises(ValueError, match="only one login module"):
        parse_jaas(f'{PLAIN} required username="a"; {PLAIN} required username="b";')


def test_a_cooperative_assignor_first_makes_the_group_cooperative() -> None:
    prefix = "org.apache.kafka.clients.consumer."

    assert assignors(f"{prefix}CooperativeStickyAssignor,{prefix}RangeAssignor") == "cooperative-sticky"
    assert assignors(f"{prefix}RangeAssignor,{prefix}RoundRobinAssignor") == "range,roundrobin"
