"""Key stores that the JDK's keytool has written; tests/data/tls/README.md says what is in them."""

from __future__ import annotations

import random
import ssl
from pathlib import Path

import pytest

from penstock.errors import ConfigException
from penstock.keystores import Blame, KeyStoreFault, key_material, open_store, pem, trusted_certificates

DATA = Path(__file__).parents[1] / "data" / "tls"
SERVER_KEY, SERVER_CERTIFICATE = (
    f"-----BEGIN {part}" for part in (DATA / "server.pem").read_text().split("-----BEGIN ")[1:]
)


@pytest.mark.parametrize(("name", "kind"), [("server.p12", "PKCS12"), ("server.jks", "JKS")])
def test_a_private_key_and_its_certificate_come_out_as_they_went_in(name: str, kind: str) -> None:
    store = open_store((DATA / name).read_bytes(), "storepass")

    (entry,) = store.keys
    assert (store.format, entry.alias, list(store.trusted)) == (kind, "server", [])
    assert pem("PRIVATE KEY", entry.recover("keypass1")) == SERVER_KEY
    assert [pem("CERTIFICATE", one) for one in entry.chain] == [SERVER_CERTIFICATE]


@pytest.mark.parametrize("name", ["trust.p12", "trust.jks"])
def test_trusted_certificates_come_out_as_they_went_in(name: str) -> None:
    store = open_store((DATA / name).read_bytes(), "storepass")

    assert list(store.keys) == []
    assert [pem("CERTIFICATE", one) for one in store.trusted] == [(DATA / "ca.pem").read_text()]


def test_a_chain_is_in_order_and_not_trusted_unless_it_was_put_in_for_that() -> None:
    root = ssl.PEM_cert_to_DER_cert((DATA / "chain-root.pem").read_text())
    plain = open_store((DATA / "chain.p12").read_bytes(), "storepass")
    trusting = open_store((DATA / "chain-trusting.p12").read_bytes(), "storepass")

    chain = plain.keys[0].chain
    assert len(chain) == 3
    assert chain[2] == root
    assert list(trusting.keys[0].chain) == list(chain)
    # As Java does, the certificate of a key is trusted, and those that have signed it are not.
    assert plain.anchors() == [chain[0]]
    assert trusting.anchors() == [root, chain[0]]


@pytest.mark.parametrize("name", ["server.p12", "server.jks", "trust.p12", "trust.jks"])
def test_a_wrong_password_and_a_shortened_file_are_told_apart(name: str) -> None:
    data = (DATA / name).read_bytes()

    with pytest.raises(KeyStoreFault, match="password") as wrong:
        open_store(data, "guess")
    with pytest.raises(KeyStoreFault, match="damaged") as short:
        open_store(data[:-30], "storepass")

    assert (wrong.value.blame, short.value.blame) == (Blame.STORE_PASSWORD, Blame.FILE)


def test_a_jceks_file_is_refused_with_the_command_that_converts_it() -> None:
    with pytest.raises(KeyStoreFault, match=r"keytool -importkeystore .* -srcstoretype jceks") as refused:
        open_store(b"\xce" * 4 + bytes(40), "storepass")

    assert refused.value.blame is Blame.FILE


def test_a_key_with_a_password_of_its_own_needs_that() -> None:
    (entry,) = open_store((DATA / "server.jks").read_bytes(), "storepass").keys

    with pytest.raises(KeyStoreFault, match=r"the private key server.*ssl\.key\.password") as wrong:
        entry.recover("storepass")

    assert wrong.value.blame is Blame.KEY_PASSWORD


def test_a_store_without_its_password_is_read_unchecked_as_java_does() -> None:
    assert len(open_store((DATA / "trust.jks").read_bytes(), None).trusted) == 1
    with pytest.raises(KeyStoreFault, match="needs its password"):
        open_store((DATA / "trust.p12").read_bytes(), None)


@pytest.mark.parametrize("name", ["server.jks", "server.p12"])
def test_whatever_is_wrong_with_the_bytes_it_is_a_fault_of_the_store(name: str) -> None:
    good = (DATA / name).read_bytes()
    dice = random.Random(name)
    faults = 0
    for _ in range(40):
        bad = bytearray(good)
        for _ in range(dice.choice((1, 1, 5, 50))):
            bad[dice.randrange(len(bad))] = dice.randrange(256)
        try:
            # Without its password nothing but the structure is looked at.
            for entry in open_store(bytes(bad), "storepass" if name.endswith("p12") else None).keys:
                entry.recover("keypass1")
        except KeyStoreFault:
            faults += 1
    assert faults > 5


# ------------------------------------------------------------------ settings
def location(name: str) -> str:
    return str(DATA / name)


def test_the_file_decides_on_the_format_and_not_its_setting() -> None:
    named = {"ssl.keystore.type": "JKS", "ssl.keystore.location": location("server.p12")}

    (found,) = key_material({**named, "ssl.keystore.password": "storepass"})

    assert (found.key, found.chain, found.password) == (SERVER_KEY, SERVER_CERTIFICATE, "")
    assert SERVER_KEY not in repr(found)


def test_pem_is_passed_on_with_the_password_of_its_key() -> None:
    (text,) = key_material({"ssl.keystore.key": "K", "ssl.keystore.certificate.chain": "C", "ssl.key.password": "p"})
    (file,) = key_material({"ssl.keystore.location": location("server.pem")})

    assert (text.key, text.chain, text.password) == ("K", "C", "p")
    assert file.key == (DATA / "server.pem").read_text()
    assert key_material({}) == []
    assert trusted_certificates({}) == ""
    assert trusted_certificates({"ssl.truststore.location": location("ca.pem")}) == (DATA / "ca.pem").read_text()


@pytest.mark.parametrize(
    ("name", "more", "setting", "words"),
    [
        ("server.p12", {"ssl.keystore.password": "guess"}, "ssl.keystore.password", "server.p12"),
        ("server.p12", {}, "ssl.keystore.password", "needs its password"),
        ("server.jks", {"ssl.keystore.password": "storepass"}, "ssl.key.password", "server.jks"),
        ("server.jks", {"ssl.key.password": "guess"}, "ssl.key.password", "private key server"),
        ("trust.jks", {}, "ssl.keystore.location", "no private key, only 1 trusted"),
        ("README.md", {}, "ssl.keystore.location", "neither PKCS12 nor JKS"),
        ("gone.jks", {}, "ssl.keystore.location", "No such file"),
        ("", {}, "ssl.keystore.location", "not a file"),
    ],
)
def test_a_key_store_that_cannot_be_used_names_setting_file_and_reason(
    name: str, more: dict[str, str], setting: str, words: str
) -> None:
    with pytest.raises(ConfigException, match=words) as refused:
        key_material({"ssl.keystore.location": location(name), **more})

    assert refused.value.name == setting
    assert location(name) in str(refused.value)
    assert "guess" not in str(refused.value)


def test_a_device_is_not_read_to_its_end() -> None:
    with pytest.raises(ConfigException, match="not a file"):
        trusted_certificates({"ssl.truststore.location": "/dev/zero"})


def test_a_trust_store_that_cannot_be_used_names_setting_file_and_reason() -> None:
    wrong = {"ssl.truststore.location": location("trust.p12"), "ssl.truststore.password": "guess"}
    with pytest.raises(ConfigException, match=r"trust\.p12") as refused:
        trusted_certificates(wrong)
    assert refused.value.name == "ssl.truststore.password"
